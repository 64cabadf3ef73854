"""Downloads over one channel: ranges of large files, batches of small files, and digests for comparison."""

import os
from collections.abc import Callable
from hashlib import sha256

from gpu_tenant.files.direct_io import open_regular
from gpu_tenant.transfer.chunks import (
    BLOCK_BYTES,
    LEAST_BYTES,
    Bundle,
    Coming,
    Comparison,
    Large,
    Piece,
    Stretch,
)
from gpu_tenant.transfer.download_state import DownloadState
from gpu_tenant.transfer.partial_file import Span
from gpu_tenant.transfer.protocol import Answer, Conversation, LinkBroken, spans_asked
from gpu_tenant.transfer.receive_to_file import Pouring
from gpu_tenant.transfer.worker import ChannelWorker, Way

_PARTS = 4
"""A piece is written to the file in at least this many parts."""


class Courier(ChannelWorker[Piece]):
    """The thread that downloads pieces from a box over one channel, and writes them into partial files."""

    FIRST_BYTES, LEAST_BYTES, MOST_BYTES = 1 << 20, LEAST_BYTES, 16 << 20

    def __init__(
        self,
        talk: Conversation,
        work: DownloadState,
        script: bytes,
        *,
        way: Way,
        mark: str,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(talk, work, script, way=way, mark=mark, wake=wake)
        self._work: DownloadState = work
        self._pouring = Pouring(talk)

    def _broke(self) -> None:
        if self.is_hearing:
            self._work.broke(self.asked[0])

    def _finish_piece(self, piece: Piece) -> None:
        self._work.note_done(piece)

    def _ask(self, piece: Piece) -> None:
        pack = self._work.packs
        match piece:
            case Stretch(file=file, spans=spans):
                self._talk.ask("read", {"at": file.at, "spans": spans_asked(spans), "pack": pack})
            case Bundle(files=files):
                named = [[one.entry.at, one.entry.size_bytes] for one in files]
                self._talk.ask("files", {"files": named, "pack": pack})
            case Comparison(file=file, span=span):
                compared = {"first": span.first, "size": span.size_bytes, "block": BLOCK_BYTES}
                self._talk.ask("sums", {"at": file.at, **compared})

    def _hear(self, piece: Piece) -> None:
        match piece:
            case Stretch(file=file, spans=spans):
                self._receive_spans(file, spans)
            case Bundle(files=files):
                while files:
                    self._receive_whole(files[0])
                    files.popleft()
            case Comparison(file=file, span=span):
                self._receive_sums(file, span)

    def _receive_spans(self, file: Large, spans: list[Span]) -> None:
        head = self._talk.head()
        match head.letter:
            case b"D":
                if head.size_bytes != sum(span.size_bytes for span in spans):
                    raise LinkBroken("the answer does not fit the request")
                for span in spans:
                    self._receive_span(file, span)
            case b"Z":
                content = self._talk.read_packed(head.size_bytes, sum(s.size_bytes for s in spans))
                view = memoryview(content)
                for span in spans:
                    for gap in file.partial.lacking([span]):
                        at = gap.first - span.first
                        file.partial.write(view[at : at + gap.size_bytes], gap.first)
                        file.partial.note_filled(gap)
                    self._count(span.size_bytes)
                    view = view[span.size_bytes :]
            case _:
                self._work.lose(file, self._why(head))

    def _receive_span(self, file: Large, span: Span) -> None:
        while span.size_bytes:
            at_once = max(self.LEAST_BYTES, self._size_bytes // _PARTS // BLOCK_BYTES * BLOCK_BYTES)
            count = self._pouring.pour(file.partial, span, at_once)
            self._count(count)
            span = Span(span.first + count, span.size_bytes - count)

    def _count(self, size_bytes: int) -> None:
        self._count_moved(size_bytes)
        self._work.came(size_bytes, "link")

    def _receive_whole(self, coming: Coming) -> None:
        head, size = self._talk.head(), coming.entry.size_bytes
        match head.letter:
            case b"D" if head.size_bytes == size:
                content = self._talk.body(size)
            case b"Z":
                content = self._talk.read_packed(head.size_bytes, size)
            case b"D":
                raise LinkBroken("the answer does not fit the request")
            case _:
                self._work.lose_small(coming, self._why(head))
                return
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        opened = os.open(coming.partial, flags, 0o600)
        try:
            _write(opened, memoryview(content), 0)
        finally:
            os.close(opened)
        self._count(size)
        self._work.wrote(coming)

    def _receive_sums(self, file: Large, span: Span) -> None:
        head, basis = self._talk.head(), file.coming.basis
        if head.letter != b"S" or basis is None:
            self._work.lose(file, self._why(head))
            return
        theirs = self._talk.body(head.size_bytes)
        self._count_moved(head.size_bytes)
        opened = open_regular(basis)
        if opened is None:  # the older version has been moved away since
            self._work.take_comparison(file, [span], [])
            return
        try:
            same, other = _compare(_digests(opened, span), theirs, span)
            for run in file.partial.lacking(same):
                self._pouring.copy(opened, file.partial, run)
                self._work.came(run.size_bytes, "disk")
        finally:
            os.close(opened)
        self._work.take_comparison(file, other, same)

    def _why(self, head: Answer) -> str:
        if head.letter != b"E":
            raise LinkBroken("the answer does not fit the request")
        return self._talk.body(head.size_bytes).decode(errors="replace")


def _compare(mine: bytes, theirs: bytes | bytearray, span: Span) -> tuple[list[Span], list[Span]]:
    """Return the runs of blocks that are equal, and the runs that differ, according to their digests."""
    same: list[Span] = []
    other: list[Span] = []
    for at in range(0, span.size_bytes, BLOCK_BYTES):
        place = at // BLOCK_BYTES * 8
        digest = mine[place : place + 8]
        runs = same if digest and digest == theirs[place : place + 8] else other
        block = Span(span.first + at, min(BLOCK_BYTES, span.size_bytes - at))
        if runs and runs[-1].end == block.first:
            runs[-1] = Span(runs[-1].first, runs[-1].size_bytes + block.size_bytes)
        else:
            runs.append(block)
    return same, other


def _digests(opened: int, span: Span) -> bytes:
    said = bytearray()
    at = span.first
    while at < span.end and (content := os.pread(opened, min(1 << 20, span.end - at), at)):
        view = memoryview(content)
        for start in range(0, len(view), BLOCK_BYTES):
            said += sha256(view[start : start + BLOCK_BYTES]).digest()[:8]
        at += len(content)
    return bytes(said)


def _write(opened: int, content: memoryview, at: int) -> None:
    while content:
        count = os.pwrite(opened, content, at)
        content, at = content[count:], at + count
