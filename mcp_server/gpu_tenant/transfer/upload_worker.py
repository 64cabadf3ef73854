"""Uploads large files to a box in ranges, over as many channels as are worthwhile, with one thread for each."""

import json
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from hashlib import sha256

from gpu_tenant.domain.ports import Transport
from gpu_tenant.transfer.channel_pool import ChannelPool
from gpu_tenant.transfer.chunks import BLOCK_BYTES
from gpu_tenant.transfer.partial_file import Span
from gpu_tenant.transfer.protocol import Answer, Conversation, LinkBroken, spans_asked
from gpu_tenant.transfer.shared_state import BandwidthTurn
from gpu_tenant.transfer.upload_state import (
    Copying,
    Piece,
    Upload,
    UploadComparison,
    UploadSpan,
    UploadState,
)
from gpu_tenant.transfer.worker import ChannelWorker, Way

_SAMPLE_BYTES = 64 << 10
_PAYS_BELOW = 0.8


class NotTaken(Exception):
    """The box refuses the bytes of a file. `name` is the file, `why` is the reason."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


async def send_files(
    uploads: Sequence[Upload],
    *,
    transport: Transport,
    turn: BandwidthTurn,
    on_bytes: Callable[[int], None],
) -> AsyncGenerator[Upload, None]:
    """Upload files, and yield each one when the box has acknowledged all of it.

    Bytes that the box already has are not sent again. `on_bytes` is called after each acknowledgement, with the
    number of newly acknowledged bytes.

    Raises:
        BoxUnreachable: the link broke. What the box has acknowledged is recorded, and the next call continues
            after it.
        BoxTrouble: the box does not start the courier, which receives the files.
        NotTaken: the box refuses a file.
        FileChanged: a local file has changed since it was hashed.
        OSError: a local file cannot be read.
    """
    if not uploads:
        return
    job = UploadState(uploads, turn)

    def open_sender(
        talk: Conversation, script: bytes, *, way: Way, mark: str, wake: Callable[[], None]
    ) -> Sender:
        return Sender(talk, job, script, way=way, mark=mark, wake=wake)

    total = sum(one.size_bytes for one in uploads)
    pool = ChannelPool(job, open_sender, transport, turn, total_bytes=total, on_bytes=on_bytes)
    left = len(uploads)
    try:
        pool.begin()
        while left:
            await pool.look()
            for one in job.take_finished():
                left -= 1
                yield one
    finally:
        await pool.end()
        job.leave()


class Sender(ChannelWorker[Piece]):
    """The thread that sends pieces to a box over one channel, and reads its acknowledgements."""

    FIRST_BYTES, LEAST_BYTES, MOST_BYTES = 256 << 10, 64 << 10, 1 << 20
    """Pieces are small, so that little has to be sent again if the link breaks."""

    def __init__(
        self,
        talk: Conversation,
        job: UploadState,
        script: bytes,
        *,
        way: Way,
        mark: str,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(talk, job, script, way=way, mark=mark, wake=wake)
        self._work: UploadState = job

    def _broke(self) -> None:
        """Read the acknowledgements that arrived before the link broke.

        The pieces that they acknowledge are not sent again.
        """
        with suppress(LinkBroken):
            while self.asked:
                self._hear_next()

    def _finish_piece(self, piece: Piece) -> None:
        self._count_moved(piece.size_bytes)
        if piece.file.is_whole:
            self._wake()

    def _ask(self, piece: Piece) -> None:
        upload = piece.file.upload
        match piece:
            case UploadSpan(file=file, span=span):
                content = file.read(span)
                asked: dict[str, object] = {
                    "at": upload.at,
                    "first": span.first,
                    "size": span.size_bytes,
                }
                if self._work.packs and (packed := _pack(content)):
                    self._talk.ask("write", {**asked, "pack": len(packed)}, packed)
                else:
                    self._talk.ask("write", asked, content)
            case UploadComparison(span=span):
                compared = {"first": span.first, "size": span.size_bytes, "block": BLOCK_BYTES}
                self._talk.ask("sums", {"at": upload.older, **compared})
            case Copying(spans=spans):
                copied = {"from": upload.older, "spans": spans_asked(spans)}
                self._talk.ask("copy", {"at": upload.at, **copied})

    def _hear(self, piece: Piece) -> None:
        head, file = self._talk.head(), piece.file
        body = self._talk.body(head.size_bytes)
        match piece, head.letter:
            case UploadSpan(span=span), b"A":
                self._work.note_arrived(file, [span], "link")
            case Copying(spans=spans), b"A":
                self._work.note_arrived(file, spans, "disk")
            case UploadComparison(span=span), b"S":
                self._work.take_comparison(file, *_compare(piece, body))
            case UploadComparison(span=span), b"E":
                self._work.give_up_comparison(file, [span])
            case Copying(spans=spans), b"E" if _refusal_of(head, body)[0] != "DISK_FULL":
                self._work.give_up_comparison(file, spans)
            case _:
                raise NotTaken(file.upload.name, _refusal_of(head, body)[1])


def _refusal_of(head: Answer, body: bytes | bytearray) -> tuple[str, str]:
    """Return the code and the message of a refusal."""
    if head.letter != b"E":
        raise LinkBroken("the answer does not fit the request")
    try:
        told = json.loads(body)
        return str(told["code"]), str(told["message"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise LinkBroken("what came is not an answer") from error


def _pack(content: bytes) -> bytes:
    """Return the compressed content. Empty if a sample shows that compression does not pay."""
    first = max(0, len(content) - _SAMPLE_BYTES) // 2
    sample = content[first : first + _SAMPLE_BYTES]
    if len(zlib.compress(sample, 1)) >= _PAYS_BELOW * len(sample):
        return b""
    return zlib.compress(content, 1)


def _compare(piece: UploadComparison, theirs: bytes | bytearray) -> tuple[list[Span], list[Span]]:
    """Return the parts of the span that are equal in the box's older version, and the parts that differ."""
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
