"""The state that the threads of one push share: what the box has of each large file, and what to send next."""

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
from gpu_tenant.transfer.shared_state import BandwidthTurn, Transfer

_COMPARED_BYTES = 64 << 20
_MOST_SPANS = 512
_SAVED_EVERY_S = 0.2
_READING = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)

Identity = tuple[int, int, int, int]


class FileChanged(Exception):
    """A local file has changed since it was hashed."""


def identity(seen: os.stat_result) -> Identity:
    """Return the values that change if a file is written to or replaced."""
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


@dataclass(frozen=True, slots=True)
class Upload:
    """A large file to upload: its state when it was hashed, and the place on the box where its bytes are gathered."""

    name: str
    path: Path
    size_bytes: int
    seen: Identity
    key: str
    """Identifies this name with exactly these bytes. An upload with the same key can be continued."""
    at: str
    record: Path
    """The local file that records which bytes the box has acknowledged."""
    older: str | None = None
    """The path of an older version of the file on the box. None if there is none."""


def acknowledged_spans(record: Path, key: str, size_bytes: int) -> Spans:
    """Read from the record which bytes the box has. Empty if the record belongs to another upload."""
    try:
        held = json.loads(record.read_text(encoding="utf-8"))
        spans = [Span(int(first), int(size)) for first, size in held["spans"]]
        fits = held["key"] == key
    except (OSError, ValueError, TypeError, KeyError):
        return Spans()
    inside = all(s.first >= 0 and s.size_bytes > 0 and s.end <= size_bytes for s in spans)
    return Spans(spans if fits and inside else ())


def key_of(record: Path) -> str | None:
    """Return the key of the upload that the record belongs to. None if the record cannot be read."""
    try:
        return str(json.loads(record.read_text(encoding="utf-8"))["key"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


@dataclass(eq=False, slots=True)
class OpenUpload:
    """A large file that is being uploaded over several connections."""

    upload: Upload
    fd: int
    there: Spans
    """The spans that the box has acknowledged."""
    missing: deque[Span]
    uncompared: deque[Span] = field(default_factory=deque)
    equal: deque[Span] = field(default_factory=deque)
    """The spans that the box should copy from the older version."""
    matched: int = 0
    is_saved: bool = True

    def read(self, span: Span) -> bytes:
        """Read the bytes of the span.

        Raises:
            FileChanged: the file has changed since it was hashed.
        """
        content = os.pread(self.fd, span.size_bytes, span.first)
        if len(content) != span.size_bytes or identity(os.fstat(self.fd)) != self.upload.seen:
            raise FileChanged(self.upload.name)
        return content

    @property
    def is_whole(self) -> bool:
        """Whether the box has acknowledged the whole file."""
        return self.there.front == self.upload.size_bytes


@dataclass(eq=False, slots=True)
class UploadSpan:
    """A piece: one span to send."""

    file: OpenUpload
    span: Span

    @property
    def size_bytes(self) -> int:
        """How many bytes go over the link."""
        return self.span.size_bytes


@dataclass(eq=False, slots=True)
class UploadComparison:
    """A piece: one span to compare with the older version on the box."""

    file: OpenUpload
    span: Span

    @property
    def size_bytes(self) -> int:
        """How many bytes of digests come over the link. The span itself is not sent."""
        return self.span.size_bytes // BLOCK_BYTES * 8


@dataclass(eq=False, slots=True)
class Copying:
    """A piece: spans that the box should copy from the older version."""

    file: OpenUpload
    spans: list[Span]
    size_bytes: int = 0
    """How many bytes go over the link: none."""


Piece = UploadSpan | UploadComparison | Copying


class UploadState(Transfer[Piece]):
    """The state of one push. The push ends when the last file is on the box."""

    def __init__(self, uploads: Iterable[Upload], turn: BandwidthTurn) -> None:
        super().__init__(turn)
        self._waiting = deque(sorted(uploads, key=lambda one: -one.size_bytes))
        self._open: list[OpenUpload] = []
        self._unfinished = len(self._waiting)
        self._whole: list[Upload] = []
        self._saved_at = time.monotonic()

    # senders

    def _next(self, size_bytes: int) -> Piece | None:
        while True:
            for file in self._open:
                if file.equal:
                    return Copying(file, _take(file.equal, _MOST_SPANS))
                if file.uncompared:
                    return UploadComparison(file, file.uncompared.popleft())
                if file.missing:
                    return UploadSpan(file, _cut(file.missing, size_bytes))
            if not self._waiting:
                return None
            file = _open_file(self._waiting.popleft())
            self._open.append(file)
            self._finish(file)

    def _take_back(self, piece: Piece) -> None:
        match piece:
            case UploadSpan(file=file, span=span):
                file.missing.appendleft(span)
            case UploadComparison(file=file, span=span):
                file.uncompared.appendleft(span)
            case Copying(file=file, spans=spans):
                file.equal.extendleft(reversed(spans))

    def note_arrived(
        self, file: OpenUpload, spans: Sequence[Span], over: Literal["link", "disk"]
    ) -> None:
        """Record that the box has acknowledged the spans.

        They were sent over the link, or copied on the box from an older version.
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

    def take_comparison(
        self, file: OpenUpload, same: Sequence[Span], other: Sequence[Span]
    ) -> None:
        """Use the result of a comparison: send the spans in `other`, and let the box copy those in `same`.

        If no span of the file has matched so far, all the rest is sent without a comparison.
        """
        with self._changed:
            file.matched += len(same)
            file.equal.extend(same)
            file.missing.extend(other)
            if not file.matched:
                file.missing.extend(file.uncompared)
                file.uncompared.clear()
            self._changed.notify_all()

    def give_up_comparison(self, file: OpenUpload, spans: Sequence[Span]) -> None:
        """Plan to send the spans, and all spans that were still to be compared or copied.

        This is needed if the older version can no longer be used.
        """
        with self._changed:
            for left in (spans, file.equal, file.uncompared):
                file.missing.extend(left)
            file.equal.clear()
            file.uncompared.clear()
            self._changed.notify_all()

    def _finish(self, file: OpenUpload) -> None:
        if file.is_whole and file in self._open:
            self._open.remove(file)
            self._close(file)
            self._whole.append(file.upload)
            self._unfinished -= 1

    def _save(self) -> None:
        """Record what the box has, but at most once in `_SAVED_EVERY_S` seconds."""
        if time.monotonic() - self._saved_at >= _SAVED_EVERY_S:
            self._saved_at = time.monotonic()
            for file in self._open:
                _save(file)

    def _close(self, file: OpenUpload) -> None:
        _save(file)
        os.close(file.fd)

    # called by the event loop, which waits for the senders

    def take_finished(self) -> list[Upload]:
        """Return the files that have become complete on the box since the last call."""
        with self._changed:
            whole, self._whole = self._whole, []
        return whole

    def leave(self) -> None:
        """Record what the box has of every file. Call this only when every thread has ended."""
        for file in self._open:
            self._close(file)
        self._open.clear()

    def _is_done(self) -> bool:
        return not self._unfinished

    def _is_ended(self) -> bool:
        return super()._is_ended() or self._is_done()


def _open_file(upload: Upload) -> OpenUpload:
    """Open the file, and list the spans that the box lacks. If the box has an older version, they are compared first.

    Raises:
        FileChanged: the file has changed since it was hashed.
    """
    try:
        fd = os.open(upload.path, _READING)
    except OSError:
        raise FileChanged(upload.name) from None
    if identity(os.fstat(fd)) != upload.seen:
        os.close(fd)
        raise FileChanged(upload.name)
    there = acknowledged_spans(upload.record, upload.key, upload.size_bytes)
    missing = there.missing(upload.size_bytes)
    if upload.older is None:
        return OpenUpload(upload, fd, there, deque(missing))
    compared: deque[Span] = deque()
    for gap in missing:
        first = gap.first
        while first < gap.end:
            # Comparisons end at block boundaries, so that both sides compare the same blocks.
            end = min(first // BLOCK_BYTES * BLOCK_BYTES + _COMPARED_BYTES, gap.end)
            compared.append(Span(first, end - first))
            first = end
    return OpenUpload(upload, fd, there, deque(), compared)


def _save(file: OpenUpload) -> None:
    if file.is_saved:
        return
    file.is_saved = True
    record = file.upload.record
    held = {"key": file.upload.key, "spans": [list(span) for span in file.there]}
    with suppress(OSError):  # without the record, the next push sends more than necessary
        replace_file(record, json.dumps(held), durable="none", draft=f"{record.name}.new")


def _take(spans: deque[Span], most: int) -> list[Span]:
    return [spans.popleft() for _ in range(min(most, len(spans)))]


def _cut(missing: deque[Span], size_bytes: int) -> Span:
    span = missing.popleft()
    if span.size_bytes > size_bytes:
        missing.appendleft(Span(span.first + size_bytes, span.size_bytes - size_bytes))
        span = Span(span.first, size_bytes)
    return span
