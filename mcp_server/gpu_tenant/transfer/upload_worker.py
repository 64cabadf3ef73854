"""Uploads large files to a box in ranges, over as many channels as are worthwhile, with a thread for each."""

import json
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from hashlib import sha256

from gpu_tenant.domain.ports import Transport
from gpu_tenant.transfer.channel_pool import Carriage
from gpu_tenant.transfer.chunks import BLOCK_BYTES
from gpu_tenant.transfer.partial_file import Span
from gpu_tenant.transfer.protocol import Answer, Conversation, LinkBroken, spans_asked
from gpu_tenant.transfer.shared_state import BandwidthTurn
from gpu_tenant.transfer.upload_state import (
    Copying,
    Going,
    Outgoing,
    Piece,
    UploadComparison,
    UploadSpan,
)
from gpu_tenant.transfer.worker import Hand, Way

_SAMPLE_BYTES = 64 << 10
_PAYS_BELOW = 0.8


class NotTaken(Exception):
    """The box does not accept the bytes of a file. Has the file's name and the reason."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


async def send_files(
    going: Sequence[Going],
    *,
    transport: Transport,
    turn: BandwidthTurn,
    on_bytes: Callable[[int], None],
) -> AsyncGenerator[Going, None]:
    """Yields each file once, when the box has acknowledged all of it. What the box already had is not sent again.

    `on_bytes` is told how many bytes were acknowledged, as they are. Bytes that were there before do not count.

    Raises:
        BoxUnreachable: the link broke; what was acknowledged is on record, and the next call goes on from it.
        BoxTrouble: the box does not start the program that takes the files.
        NotTaken: the box does not accept a file.
        Changed: a local file is no longer what it was when it was hashed.
        OSError: a local file cannot be read.
    """
    if not going:
        return
    job = Outgoing(going, turn)

    def opened(
        talk: Conversation, script: bytes, *, way: Way, mark: str, wake: Callable[[], None]
    ) -> Sender:
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


class Sender(Hand[Piece]):
    """The thread that sends pieces to a box over one channel, and reads its acknowledgements."""

    FIRST_BYTES, LEAST_BYTES, MOST_BYTES = 256 << 10, 64 << 10, 1 << 20
    """Pieces are small, so that little is lost when the link breaks."""

    def __init__(
        self,
        talk: Conversation,
        job: Outgoing,
        script: bytes,
        *,
        way: Way,
        mark: str,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(talk, job, script, way=way, mark=mark, wake=wake)
        self._work: Outgoing = job

    def _broke(self) -> None:
        """The acknowledgements that arrived before the link broke were read.

        Those pieces need not be sent again.
        """
        with suppress(LinkBroken):
            while self.asked:
                self._hear_next()

    def _heard(self, piece: Piece) -> None:
        self._carried(piece.size_bytes)
        if piece.file.is_whole:
            self._wake()

    def _ask(self, piece: Piece) -> None:
        going = piece.file.going
        match piece:
            case UploadSpan(file=file, span=span):
                content = file.read(span)
                asked: dict[str, object] = {
                    "at": going.at,
                    "first": span.first,
                    "size": span.size_bytes,
                }
                if self._work.packs and (packed := _pack(content)):
                    self._talk.ask("write", {**asked, "pack": len(packed)}, packed)
                else:
                    self._talk.ask("write", asked, content)
            case UploadComparison(span=span):
                compared = {"first": span.first, "size": span.size_bytes, "block": BLOCK_BYTES}
                self._talk.ask("sums", {"at": going.older, **compared})
            case Copying(spans=spans):
                copied = {"from": going.older, "spans": spans_asked(spans)}
                self._talk.ask("copy", {"at": going.at, **copied})

    def _hear(self, piece: Piece) -> None:
        head, file = self._talk.head(), piece.file
        body = self._talk.body(head.size_bytes)
        match piece, head.letter:
            case UploadSpan(span=span), b"A":
                self._work.arrived(file, [span], "link")
            case Copying(spans=spans), b"A":
                self._work.arrived(file, spans, "disk")
            case UploadComparison(span=span), b"S":
                self._work.compared(file, *_compare(piece, body))
            case UploadComparison(span=span), b"E":
                self._work.dissolve(file, [span])
            case Copying(spans=spans), b"E" if _refusal_of(head, body)[0] != "DISK_FULL":
                self._work.dissolve(file, spans)
            case _:
                raise NotTaken(file.going.name, _refusal_of(head, body)[1])


def _refusal_of(head: Answer, body: bytes | bytearray) -> tuple[str, str]:
    """The code and the message of a refusal."""
    if head.letter != b"E":
        raise LinkBroken("another answer came than was asked for")
    try:
        told = json.loads(body)
        return str(told["code"]), str(told["message"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise LinkBroken("what came is no answer") from error


def _pack(content: bytes) -> bytes:
    """The content, compressed, if a sample says that this pays. Otherwise nothing."""
    first = max(0, len(content) - _SAMPLE_BYTES) // 2
    sample = content[first : first + _SAMPLE_BYTES]
    if len(zlib.compress(sample, 1)) >= _PAYS_BELOW * len(sample):
        return b""
    return zlib.compress(content, 1)


def _compare(piece: UploadComparison, theirs: bytes | bytearray) -> tuple[list[Span], list[Span]]:
    """The parts of the span that the older version on the box has as well, and the parts that differ."""
    same: list[Span] = []
    other: list[Span] = []
    span, step = piece.span, Sender.MOST_BYTES
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
