"""One channel's thread: it asks for pieces, a few ahead of what it receives, and puts what comes in place."""

import os
import time
from collections import deque
from collections.abc import Callable
from hashlib import sha256

from gpu_tenant.storage import open_regular
from gpu_tenant.transfer.carriage import Hand, Way
from gpu_tenant.transfer.conversation import Answer, Conversation, LinkBroken, spans_asked
from gpu_tenant.transfer.partial import Span
from gpu_tenant.transfer.pieces import (
    BLOCK_BYTES,
    Bundle,
    Coming,
    Comparison,
    Large,
    Piece,
    Stretch,
)
from gpu_tenant.transfer.pouring import Pouring
from gpu_tenant.transfer.work import Work

_AHEAD = 2
"""So many pieces are asked for at once, so that the box has always something to send."""
_PIECE_S = 0.4
_FIRST_BYTES, _LEAST_BYTES, _MOST_BYTES = 1 << 20, 256 << 10, 16 << 20


class Courier(Hand):
    """Carries pieces over one channel until there are none, or the link breaks.

    `number` is its place among the couriers: only as many as are wanted ask for more.
    """

    def __init__(
        self,
        conversation: Conversation,
        work: Work,
        script: bytes,
        *,
        way: Way,
        mark: str,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(way)
        self._talk, self._work, self._script = conversation, work, script
        self._mark, self._wake = mark, wake
        self._pouring = Pouring(conversation)
        self.asked: deque[Piece] = deque()
        self._size_bytes = _FIRST_BYTES
        self._asked_at = 0.0

    def run(self) -> None:
        """Thread: see the class."""
        try:
            self._talk.greet(self._script, self._mark)
            self.is_ready = True
            self._wake()
            self._carry()
        except LinkBroken:
            if self.is_receiving:
                self._work.broke(self.asked[0])
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for the transfer
            self._work.fail(error)
        finally:
            for piece in reversed(self.asked):
                self._work.give_back(piece)
            self._talk.close()
            self.is_over = True
            self._wake()

    def hang_up(self) -> None:
        """The thread ends soon: its link is cut."""
        self._talk.hang_up()

    def _carry(self) -> None:
        while True:
            while len(self.asked) < _AHEAD:
                piece = self._work.take(self, self._size_bytes)
                if piece is None:
                    break
                self.asked.append(piece)
                self._ask(piece)
            if not self.asked:
                return
            began, before = time.monotonic(), self.carried_bytes
            self.moved_at, self.is_receiving = began, True
            self._receive(self.asked[0])
            self.is_receiving = False
            self._work.done(self.asked.popleft())
            self._find_size(self.carried_bytes - before, time.monotonic() - began)

    def _find_size(self, size_bytes: int, took_s: float) -> None:
        """Pieces are as large as comes in a short while, so that the slowest does not end long after the others."""
        if size_bytes >= self._size_bytes // 2:
            wanted = int(size_bytes / max(took_s, 1e-6) * _PIECE_S)
            grown = min(wanted, 4 * self._size_bytes, _MOST_BYTES)
            self._size_bytes = max(_LEAST_BYTES, grown // BLOCK_BYTES * BLOCK_BYTES)

    def _ask(self, piece: Piece) -> None:
        pack = self._work.packs
        self._asked_at = time.monotonic()
        match piece:
            case Stretch(file=file, spans=spans):
                self._talk.ask("read", {"at": file.at, "spans": spans_asked(spans), "pack": pack})
            case Bundle(files=files):
                named = [[one.entry.at, one.entry.size_bytes] for one in files]
                self._talk.ask("files", {"files": named, "pack": pack})
            case Comparison(file=file, span=span):
                compared = {"first": span.first, "size": span.size_bytes, "block": BLOCK_BYTES}
                self._talk.ask("sums", {"at": file.at, **compared})

    def _head(self) -> Answer:
        head = self._talk.head()
        if self.round_trip_s is None:
            self.round_trip_s = time.monotonic() - self._asked_at
        return head

    def _receive(self, piece: Piece) -> None:
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
        head = self._head()
        match head.letter:
            case b"D":
                if head.size_bytes != sum(span.size_bytes for span in spans):
                    raise LinkBroken("other bytes came than were asked for")
                for span in spans:
                    self._receive_span(file, span)
            case b"Z":
                content = self._talk.unpacked(head.size_bytes, sum(s.size_bytes for s in spans))
                view = memoryview(content)
                for span in spans:
                    for gap in file.partial.lacking([span]):
                        at = gap.first - span.first
                        file.partial.write(view[at : at + gap.size_bytes], gap.first)
                        file.partial.filled(gap)
                    self._count(span.size_bytes)
                    view = view[span.size_bytes :]
            case _:
                self._work.lose(file, self._why(head))

    def _receive_span(self, file: Large, span: Span) -> None:
        while span.size_bytes:
            count = self._pouring.pour(file.partial, span)
            self._count(count)
            span = Span(span.first + count, span.size_bytes - count)

    def _count(self, size_bytes: int) -> None:
        self.carried_bytes += size_bytes
        self.moved_at = time.monotonic()
        self._work.came(size_bytes)

    def _receive_whole(self, coming: Coming) -> None:
        head, size = self._head(), coming.entry.size_bytes
        match head.letter:
            case b"D" if head.size_bytes == size:
                content = self._talk.body(size)
            case b"Z":
                content = self._talk.unpacked(head.size_bytes, size)
            case b"D":
                raise LinkBroken("other bytes came than were asked for")
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
        head, basis = self._head(), file.coming.basis
        if head.letter != b"S" or basis is None:
            self._work.lose(file, self._why(head))
            return
        theirs = self._talk.body(head.size_bytes)
        opened = open_regular(basis)
        if opened is None:  # moved away meanwhile
            self._work.compared(file, [span], [])
            return
        try:
            same, other = _compared(_digests(opened, span), theirs, span)
            for run in file.partial.lacking(same):
                self._pouring.copy(opened, file.partial, run)
                self._work.came(run.size_bytes)
        finally:
            os.close(opened)
        self._work.compared(file, other, same)

    def _why(self, head: Answer) -> str:
        if head.letter != b"E":
            raise LinkBroken("another answer came than was asked for")
        return self._talk.body(head.size_bytes).decode(errors="replace")


def _compared(mine: bytes, theirs: bytes | bytearray, span: Span) -> tuple[list[Span], list[Span]]:
    """The runs of blocks whose digests are alike, and the others."""
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
