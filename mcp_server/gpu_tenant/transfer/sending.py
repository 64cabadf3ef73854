"""Large files go to a box in ranges, over as many channels as the link repays; a thread for each."""

import json
import time
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from hashlib import sha256

from gpu_tenant.ports import Transport
from gpu_tenant.transfer.carriage import Carriage, Hand, Way
from gpu_tenant.transfer.conversation import Answer, Conversation, LinkBroken, spans_asked
from gpu_tenant.transfer.outgoing import Comparison, Copying, Going, Outgoing, Piece, Stretch
from gpu_tenant.transfer.partial import Span
from gpu_tenant.transfer.pieces import BLOCK_BYTES
from gpu_tenant.transfer.work import Turn

_AHEAD = 2
"""So many pieces are under way at once, so that the link is never idle while an answer comes."""
_PIECE_S = 0.4
_FIRST_BYTES, _LEAST_BYTES, _MOST_BYTES = 256 << 10, 64 << 10, 1 << 20
"""No more than is lost without regret when the link breaks."""
_SAMPLE_BYTES = 64 << 10
_PAYS_BELOW = 0.8


class NotTaken(Exception):
    """The box does not take the bytes of a file: its name, and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


async def sent(
    going: Sequence[Going], *, transport: Transport, turn: Turn, on_bytes: Callable[[int], None]
) -> AsyncGenerator[Going, None]:
    """Each file once, when the box has acknowledged all of it; what it had before is not sent again.

    `on_bytes` is told of bytes as they are acknowledged, those that were there before left out.

    Raises:
        BoxUnreachable: the link broke; what was acknowledged is on record, and the next call goes on from it.
        BoxTrouble: the box does not start what takes its files.
        NotTaken: it does not take a file.
        Changed: a file here is not any more what it was when it was hashed.
        OSError: a file here cannot be read.
    """
    if not going:
        return
    job = Outgoing(going, turn)

    def opened(
        talk: Conversation, script: bytes, *, way: Way, mark: str, wake: Callable[[], None]
    ) -> Hand:
        return Sender(talk, job, script, way=way, mark=mark, wake=wake)

    total = sum(one.size_bytes for one in going)
    carriage = Carriage(job, opened, transport, turn, total_bytes=total, on_bytes=on_bytes)
    left = len(going)
    try:
        carriage.begin()
        while left:
            await carriage.look()
            for one in job.finished():
                left -= 1
                yield one
    finally:
        await carriage.end()
        job.leave()


class Sender(Hand):
    """Sends pieces over one channel until there are none, or the link breaks."""

    def __init__(
        self,
        conversation: Conversation,
        job: Outgoing,
        script: bytes,
        *,
        way: Way,
        mark: str,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(way)
        self._talk, self._job, self._script = conversation, job, script
        self._mark, self._wake = mark, wake
        self.asked: deque[Piece] = deque()
        self._asked_at: deque[float] = deque()
        self._heard_at = 0.0
        self._size_bytes = _FIRST_BYTES

    def run(self) -> None:
        """Thread: see the class."""
        try:
            self._talk.greet(self._script, self._mark)
            self.is_ready = True
            self._wake()
            try:
                self._send()
            except LinkBroken:
                # What came back before it broke need not be sent again.
                while self.asked:
                    self._hear_next()
        except LinkBroken:
            pass
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for the transfer
            self._job.fail(error)
        finally:
            for piece in reversed(self.asked):
                self._job.give_back(piece)
            self._talk.close()
            self.is_over = True
            self._wake()

    def hang_up(self) -> None:
        """The thread ends soon: its link is cut."""
        self._talk.hang_up()

    def _send(self) -> None:
        while True:
            while len(self.asked) < _AHEAD:
                piece = self._job.take(self, self._size_bytes)
                if piece is None:
                    break
                self.asked.append(piece)
                self._asked_at.append(time.monotonic())
                self._ask(piece)
            if not self.asked:
                return
            self._hear_next()

    def _hear_next(self) -> None:
        self._hear(self.asked[0])
        piece = self.asked.popleft()
        self._measure(piece)
        if piece.file.is_whole:
            self._wake()

    def _ask(self, piece: Piece) -> None:
        going = piece.file.going
        match piece:
            case Stretch(file=file, span=span):
                content = file.read(span)
                asked: dict[str, object] = {
                    "at": going.at,
                    "first": span.first,
                    "size": span.size_bytes,
                }
                if self._job.packs and (packed := _packed(content)):
                    self._talk.ask("write", {**asked, "pack": len(packed)}, packed)
                else:
                    self._talk.ask("write", asked, content)
            case Comparison(span=span):
                compared = {"first": span.first, "size": span.size_bytes, "block": BLOCK_BYTES}
                self._talk.ask("sums", {"at": going.older, **compared})
            case Copying(spans=spans):
                copied = {"from": going.older, "spans": spans_asked(spans)}
                self._talk.ask("copy", {"at": going.at, **copied})

    def _hear(self, piece: Piece) -> None:
        head, file = self._talk.head(), piece.file
        body = self._talk.body(head.size_bytes)
        match piece, head.letter:
            case Stretch(span=span), b"A":
                self._job.arrived(file, [span])
            case Copying(spans=spans), b"A":
                self._job.arrived(file, spans)
            case Comparison(span=span), b"S":
                self._job.compared(file, *_compared(piece, body))
            case Comparison(span=span), b"E":
                self._job.dissolve(file, [span])
            case Copying(spans=spans), b"E" if _said(head, body)[0] != "DISK_FULL":
                self._job.dissolve(file, spans)
            case _:
                raise NotTaken(file.going.name, _said(head, body)[1])

    def _measure(self, piece: Piece) -> None:
        """Pieces are as large as are heard of in a short while, so that a break costs little."""
        now, asked_at = time.monotonic(), self._asked_at.popleft()
        took_s = now - max(asked_at, self._heard_at)
        self._heard_at = now
        if not isinstance(piece, Stretch):
            return
        # The bytes before it in the pipes count, too: the shortest of all is the nearest to the truth.
        self.round_trip_s = min(self.round_trip_s or now - asked_at, now - asked_at)
        if piece.size_bytes >= self._size_bytes // 2:
            wanted = int(piece.size_bytes / max(took_s, 1e-6) * _PIECE_S)
            grown = min(wanted, 4 * self._size_bytes, _MOST_BYTES)
            self._size_bytes = max(_LEAST_BYTES, grown // BLOCK_BYTES * BLOCK_BYTES)


def _said(head: Answer, body: bytes | bytearray) -> tuple[str, str]:
    """The code and the words of a refusal."""
    if head.letter != b"E":
        raise LinkBroken("another answer came than was asked for")
    try:
        told = json.loads(body)
        return str(told["code"]), str(told["message"])
    except (ValueError, TypeError, KeyError) as error:
        raise LinkBroken("what came is no answer") from error


def _packed(content: bytes) -> bytes:
    """The content packed, where a sample says that it pays; else nothing."""
    first = max(0, len(content) - _SAMPLE_BYTES) // 2
    sample = content[first : first + _SAMPLE_BYTES]
    if len(zlib.compress(sample, 1)) >= _PAYS_BELOW * len(sample):
        return b""
    return zlib.compress(content, 1)


def _compared(piece: Comparison, theirs: bytes | bytearray) -> tuple[list[Span], list[Span]]:
    """What of the span the older version on the box holds, too, and what it does not."""
    same: list[Span] = []
    other: list[Span] = []
    span, step = piece.span, _MOST_BYTES
    for first in range(span.first, span.end, step):
        view = memoryview(piece.file.read(Span(first, min(step, span.end - first))))
        for at in range(0, len(view), BLOCK_BYTES):
            block = view[at : at + BLOCK_BYTES]
            place = (first + at - span.first) // BLOCK_BYTES * 8
            runs = same if sha256(block).digest()[:8] == theirs[place : place + 8] else other
            if runs and runs[-1].end == first + at:
                runs[-1] = Span(runs[-1].first, runs[-1].size_bytes + len(block))
            else:
                runs.append(Span(first + at, len(block)))
    return same, other
