"""A file whose parts arrive in any order. A record of the parts that are here survives a crash of either side."""

import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from gpu_tenant.files.direct_io import ALIGNED_BYTES, open_unbuffered
from gpu_tenant.files.replace_file import replace_file

_RECORD = ".spans"


class Span(NamedTuple):
    """A range of bytes of a file."""

    first: int
    size_bytes: int

    @property
    def end(self) -> int:
        """The position of the first byte after the span."""
        return self.first + self.size_bytes


class Spans:
    """A set of spans of one file. Spans that touch are merged."""

    def __init__(self, spans: Sequence[Span] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for span in spans:
            self.add(span)

    def __iter__(self) -> Iterator[Span]:
        return (Span(a, b - a) for a, b in zip(self._firsts, self._ends, strict=True))

    @property
    def size_bytes(self) -> int:
        """How many bytes the spans cover."""
        return sum(self._ends) - sum(self._firsts)

    @property
    def front(self) -> int:
        """The position up to which all bytes are covered."""
        return self._ends[0] if self._firsts and self._firsts[0] == 0 else 0

    def add(self, span: Span) -> None:
        """Add a span to the set."""
        if not span.size_bytes:
            return
        low = bisect_left(self._ends, span.first)
        high = bisect_right(self._firsts, span.end)
        first = min([span.first, *self._firsts[low : low + 1]]) if low < high else span.first
        end = max([span.end, *self._ends[high - 1 : high]]) if low < high else span.end
        self._firsts[low:high], self._ends[low:high] = [first], [end]

    def lacking(self, span: Span) -> Iterator[Span]:
        """Yield the parts of the span that are not covered."""
        at = span.first
        place = bisect_right(self._ends, at)
        while at < span.end:
            known = place < len(self._firsts) and self._firsts[place] < span.end
            gap_end = self._firsts[place] if known else span.end
            if gap_end > at:
                yield Span(at, gap_end - at)
            at = self._ends[place] if known else span.end
            place += 1

    def missing(self, size_bytes: int) -> list[Span]:
        """Return the parts of a file of that size that are not covered."""
        return list(self.lacking(Span(0, size_bytes)))


class Partial:
    """The bytes of a file that have arrived so far, and a record beside it of which bytes these are.

    The record is written after the bytes, but may reach the disk before them. So after a power cut the record
    may list bytes that are not on the disk. This is why a file is trusted only after it was read back
    completely.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Open the file, or create it, and read its record.

        Raises:
            OSError: the file cannot be opened or created.
        """
        self.path, self.size_bytes = path, size_bytes
        self._record = _record_of(path)
        self._lock = Lock()
        if not path.exists():
            forget(path)  # a record without its file belongs to a file that is gone
        self._spans = Spans(_read_record(path, size_bytes))
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        self._fd = os.open(path, flags, 0o600)
        self._unbuffered = open_unbuffered(self._fd, path, os.O_WRONLY)
        self._saved = list(self._spans)
        self._is_synced = False
        with suppress(OSError):  # if so large a file is not allowed, we write as much as we can
            os.ftruncate(self._fd, size_bytes)

    @property
    def front(self) -> int:
        """The position up to which all bytes are here."""
        return self._spans.front

    @property
    def held_bytes(self) -> int:
        """How many bytes are here."""
        return self._spans.size_bytes

    @property
    def is_whole(self) -> bool:
        """Whether the whole file is here."""
        return self._spans.front == self.size_bytes

    def missing(self) -> list[Span]:
        """Return the spans that are not here yet."""
        with self._lock:
            return self._spans.missing(self.size_bytes)

    def lacking(self, spans: Sequence[Span]) -> list[Span]:
        """Return the parts of those spans that are not here yet."""
        with self._lock:
            return [gap for span in spans for gap in self._spans.lacking(span)]

    def write(self, content: memoryview, at: int) -> None:
        """Write the bytes to the file at that position, past the page cache if position and length are aligned.

        Raises:
            OSError: the bytes cannot be written.
        """
        if self._unbuffered is not None and not (at | len(content)) % ALIGNED_BYTES:
            # If the unbuffered write fails, the rest is written through the cache below.
            with suppress(OSError):
                while content and not len(content) % ALIGNED_BYTES:
                    count = os.pwritev(self._unbuffered, [content], at)
                    content, at = content[count:], at + count
        while content:
            count = os.pwrite(self._fd, content, at)
            content, at = content[count:], at + count

    def note_filled(self, span: Span) -> None:
        """Count the bytes of `span` as here."""
        with self._lock:
            self._spans.add(span)
            self._is_synced = False

    def sync(self) -> None:
        """Flush everything that was written so far to the disk.

        Raises:
            OSError: the flush failed.
        """
        if not self._is_synced:
            self._is_synced = True
            getattr(os, "fdatasync", os.fsync)(self._fd)

    def save(self) -> None:
        """Record which bytes are in the file."""
        with self._lock:
            spans = list(self._spans)
        if spans == self._saved:
            return
        held = json.dumps({"size": self.size_bytes, "spans": spans})
        replace_file(self._record, held, durable="none", draft=f"{self._record.name}.new")
        self._saved = spans

    def close(self) -> None:
        """Save the record, and close the file. The bytes that are here stay."""
        with suppress(OSError):  # otherwise the next attempt fetches more than necessary
            self.save()
        self._leave()

    def _leave(self) -> None:
        os.close(self._fd)
        if self._unbuffered is not None:
            os.close(self._unbuffered)


def held_bytes(path: Path, size_bytes: int) -> int:
    """Return how many bytes of a file of that size an earlier attempt has left at `path`."""
    return Spans(_read_record(path, size_bytes)).size_bytes


def names_of(path: Path) -> tuple[str, str]:
    """Return the names of the partial file at `path` and of its record."""
    return path.name, _record_of(path).name


def forget(path: Path) -> None:
    """Delete the record of the partial file at `path`. It is not needed: the file was verified, or is fetched anew."""
    _record_of(path).unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Delete the partial file at `path` and its record, because its bytes are not those that were wanted."""
    path.unlink(missing_ok=True)
    forget(path)


def _record_of(path: Path) -> Path:
    return path.with_name(path.name + _RECORD)


def _read_record(path: Path, size_bytes: int) -> Sequence[Span]:
    """Return the recorded spans. Empty if the record is damaged or does not fit the file."""
    try:
        held = json.loads(_record_of(path).read_text(encoding="utf-8"))
        spans = [Span(int(a), int(b)) for a, b in held["spans"]]
        fits = held["size"] == size_bytes == path.stat().st_size
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()
    inside = all(s.first >= 0 and s.size_bytes > 0 and s.end <= size_bytes for s in spans)
    return spans if fits and inside else ()
