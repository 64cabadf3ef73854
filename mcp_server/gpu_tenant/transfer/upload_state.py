"""What the threads of one push share: how much of each large file the box has acknowledged, and what goes next."""

import json
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.transfer.chunks import BLOCK_BYTES
from gpu_tenant.transfer.partial_file import Span, Spans
from gpu_tenant.transfer.shared_state import Job, Turn

_COMPARED_BYTES = 64 << 20
_MOST_SPANS = 512
_SAVED_EVERY_S = 0.2
_READING = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)

Identity = tuple[int, int, int, int]


class Changed(Exception):
    """A local file is no longer what it was when it was hashed."""


def identity(seen: os.stat_result) -> Identity:
    """What stays the same as long as a file is neither written to nor replaced."""
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


@dataclass(frozen=True, slots=True)
class Going:
    """A large file to upload: what it was when it was hashed, and where its bytes are gathered on the box."""

    name: str
    path: Path
    size_bytes: int
    seen: Identity
    key: str
    """Names exactly these bytes under this name. An upload that began under the same key may be continued."""
    at: str
    record: Path
    """The local record of what the box has acknowledged."""
    older: str | None = None
    """Where an older version of it is on the box. None if there is none."""


def acknowledged(record: Path, key: str, size_bytes: int) -> Spans:
    """Which of those bytes the box has, by the record. None of them if the record is about something else."""
    try:
        held = json.loads(record.read_text(encoding="utf-8"))
        spans = [Span(int(first), int(size)) for first, size in held["spans"]]
        fits = held["key"] == key
    except (OSError, ValueError, TypeError, KeyError):
        return Spans()
    inside = all(s.first >= 0 and s.size_bytes > 0 and s.end <= size_bytes for s in spans)
    return Spans(spans if fits and inside else ())


def key_of(record: Path) -> str | None:
    """The key of the upload that the record is about. None if there is no readable record."""
    try:
        return str(json.loads(record.read_text(encoding="utf-8"))["key"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


@dataclass(eq=False, slots=True)
class Leaving:
    """A large file that is being uploaded, over several connections."""

    going: Going
    fd: int
    there: Spans
    """What the box has acknowledged."""
    missing: deque[Span]
    uncompared: deque[Span] = field(default_factory=deque)
    equal: deque[Span] = field(default_factory=deque)
    """What the box should copy from the older version."""
    matched: int = 0
    is_saved: bool = True

    def read(self, span: Span) -> bytes:
        """The bytes of the span.

        Raises:
            Changed: the file is not the one that was hashed.
        """
        content = os.pread(self.fd, span.size_bytes, span.first)
        if len(content) != span.size_bytes or identity(os.fstat(self.fd)) != self.going.seen:
            raise Changed(self.going.name)
        return content

    @property
    def is_whole(self) -> bool:
        """Whether the box has acknowledged all of it."""
        return self.there.front == self.going.size_bytes


@dataclass(eq=False, slots=True)
class Stretch:
    """A span to send."""

    file: Leaving
    span: Span

    @property
    def size_bytes(self) -> int:
        """How much goes over the link."""
        return self.span.size_bytes


@dataclass(eq=False, slots=True)
class Comparison:
    """A span to compare with the older version on the box."""

    file: Leaving
    span: Span

    @property
    def size_bytes(self) -> int:
        """How much comes over the link: only digests."""
        return self.span.size_bytes // BLOCK_BYTES * 8


@dataclass(eq=False, slots=True)
class Copying:
    """Spans for the box to copy from the older version."""

    file: Leaving
    spans: list[Span]
    size_bytes: int = 0
    """How much goes over the link: nothing."""


Piece = Stretch | Comparison | Copying


class Outgoing(Job[Piece]):
    """The state of one push. It ends when its last file is on the box."""

    def __init__(self, going: Iterable[Going], turn: Turn) -> None:
        super().__init__(turn)
        self._waiting = deque(sorted(going, key=lambda one: -one.size_bytes))
        self._open: list[Leaving] = []
        self._unfinished = len(self._waiting)
        self._whole: list[Going] = []
        self._saved_at = time.monotonic()

    # senders

    def _next(self, size_bytes: int) -> Piece | None:
        while True:
            for file in self._open:
                if file.equal:
                    return Copying(file, _taken(file.equal, _MOST_SPANS))
                if file.uncompared:
                    return Comparison(file, file.uncompared.popleft())
                if file.missing:
                    return Stretch(file, _cut(file.missing, size_bytes))
            if not self._waiting:
                return None
            file = _opened(self._waiting.popleft())
            self._open.append(file)
            self._finish(file)

    def _take_back(self, piece: Piece) -> None:
        match piece:
            case Stretch(file=file, span=span):
                file.missing.appendleft(span)
            case Comparison(file=file, span=span):
                file.uncompared.appendleft(span)
            case Copying(file=file, spans=spans):
                file.equal.extendleft(reversed(spans))

    def arrived(self, file: Leaving, spans: Sequence[Span], over: Literal["link", "disk"]) -> None:
        """The box has acknowledged those spans.

        They were sent over the link, or copied from an older version on its disk.
        """
        with self._changed:
            for span in spans:
                file.there.add(span)
                self.came_bytes += span.size_bytes
                if over == "link":
                    self.linked_bytes += span.size_bytes
            file.is_saved = False
            self._finish(file)
            self._save()
            self._changed.notify_all()

    def compared(self, file: Leaving, same: Sequence[Span], other: Sequence[Span]) -> None:
        """What differs from the older version will be sent.

        If nothing has matched so far, all the rest will be, too.
        """
        with self._changed:
            file.matched += len(same)
            file.equal.extend(same)
            file.missing.extend(other)
            if not file.matched:
                file.missing.extend(file.uncompared)
                file.uncompared.clear()
            self._changed.notify_all()

    def dissolve(self, file: Leaving, spans: Sequence[Span]) -> None:
        """The older version cannot be used any more, for those spans or any others. All will be sent."""
        with self._changed:
            for left in (spans, file.equal, file.uncompared):
                file.missing.extend(left)
            file.equal.clear()
            file.uncompared.clear()
            self._changed.notify_all()

    def _finish(self, file: Leaving) -> None:
        if file.is_whole and file in self._open:
            self._open.remove(file)
            self._close(file)
            self._whole.append(file.going)
            self._unfinished -= 1

    def _save(self) -> None:
        """What the box has is on record. This writes at most every `_SAVED_EVERY_S`."""
        if time.monotonic() - self._saved_at >= _SAVED_EVERY_S:
            self._saved_at = time.monotonic()
            for file in self._open:
                _save(file)

    def _close(self, file: Leaving) -> None:
        _save(file)
        os.close(file.fd)

    # called by the event loop, which waits for the senders

    def finished(self) -> list[Going]:
        """The files that are complete on the box now. Each is returned once."""
        with self._changed:
            whole, self._whole = self._whole, []
        return whole

    def leave(self) -> None:
        """What the box has of every file is on record. Call this only when every thread has ended."""
        for file in self._open:
            self._close(file)
        self._open.clear()

    def _is_done(self) -> bool:
        return not self._unfinished

    def _is_ended(self) -> bool:
        return super()._is_ended() or self._is_done()


def _opened(going: Going) -> Leaving:
    """The opened file, with what is missing on the box, or what to compare if an older version is there.

    Raises:
        Changed: it is not the file that was hashed.
    """
    try:
        fd = os.open(going.path, _READING)
    except OSError:
        raise Changed(going.name) from None
    if identity(os.fstat(fd)) != going.seen:
        os.close(fd)
        raise Changed(going.name)
    there = acknowledged(going.record, going.key, going.size_bytes)
    missing = there.missing(going.size_bytes)
    if going.older is None:
        return Leaving(going, fd, there, deque(missing))
    compared: deque[Span] = deque()
    for gap in missing:
        first = gap.first
        while first < gap.end:
            # Comparisons end at block boundaries, which are the same in both versions.
            end = min(first // BLOCK_BYTES * BLOCK_BYTES + _COMPARED_BYTES, gap.end)
            compared.append(Span(first, end - first))
            first = end
    return Leaving(going, fd, there, deque(), compared)


def _save(file: Leaving) -> None:
    if file.is_saved:
        return
    file.is_saved = True
    record = file.going.record
    held = {"key": file.going.key, "spans": [list(span) for span in file.there]}
    with suppress(OSError):  # then the next push sends more than necessary
        replace_file(record, json.dumps(held), durable="none", draft=f"{record.name}.new")


def _taken(spans: deque[Span], most: int) -> list[Span]:
    return [spans.popleft() for _ in range(min(most, len(spans)))]


def _cut(missing: deque[Span], size_bytes: int) -> Span:
    span = missing.popleft()
    if span.size_bytes > size_bytes:
        missing.appendleft(Span(span.first + size_bytes, span.size_bytes - size_bytes))
        span = Span(span.first, size_bytes)
    return span
