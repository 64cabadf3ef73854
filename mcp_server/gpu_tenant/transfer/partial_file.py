"""A file that arrives in any order: which spans of it are here, also after either end was killed."""

import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from gpu_tenant.files.direct_io import ALIGNED_BYTES, unbuffered

_RECORD = ".spans"


class Span(NamedTuple):
    """A stretch of a file."""

    first: int
    size_bytes: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.first + self.size_bytes


class Spans:
    """Stretches of one file, merged where they touch."""

    def __init__(self, spans: Sequence[Span] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for span in spans:
            self.add(span)

    def __iter__(self) -> Iterator[Span]:
        return (Span(a, b - a) for a, b in zip(self._firsts, self._ends, strict=True))

    @property
    def size_bytes(self) -> int:
        """How much they cover."""
        return sum(self._ends) - sum(self._firsts)

    @property
    def front(self) -> int:
        """Everything before this byte is covered."""
        return self._ends[0] if self._firsts and self._firsts[0] == 0 else 0

    def add(self, span: Span) -> None:
        """The span is covered, too."""
        if not span.size_bytes:
            return
        low = bisect_left(self._ends, span.first)
        high = bisect_right(self._firsts, span.end)
        first = min([span.first, *self._firsts[low : low + 1]]) if low < high else span.first
        end = max([span.end, *self._ends[high - 1 : high]]) if low < high else span.end
        self._firsts[low:high], self._ends[low:high] = [first], [end]

    def lacking(self, span: Span) -> Iterator[Span]:
        """What of it is not covered."""
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
        """What is not covered of a file of that size."""
        return list(self.lacking(Span(0, size_bytes)))


class Partial:
    """The bytes of a file that are here so far, and the record beside them of which those are.

    The record is written behind the bytes. After a power cut it may say more than the disk holds: the
    file is believed only when it was re-read to its end.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Raises: OSError: the place takes no file."""
        self.path, self.size_bytes = path, size_bytes
        self._record = _record_of(path)
        self._lock = Lock()
        if not path.exists():
            forget(path)  # it is of a file that is no more
        self._spans = Spans(_recorded(path, size_bytes))
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        self._fd = os.open(path, flags, 0o600)
        self._unbuffered = unbuffered(self._fd, path, os.O_WRONLY)
        self._saved = list(self._spans)
        self._is_synced = False
        with suppress(OSError):  # where so large a file may not be, as much comes as may
            os.ftruncate(self._fd, size_bytes)

    @property
    def front(self) -> int:
        """Everything before this byte is here."""
        return self._spans.front

    @property
    def held_bytes(self) -> int:
        """How much is here."""
        return self._spans.size_bytes

    @property
    def is_whole(self) -> bool:
        """Whether all of it is here."""
        return self._spans.front == self.size_bytes

    def missing(self) -> list[Span]:
        """What is not here yet."""
        with self._lock:
            return self._spans.missing(self.size_bytes)

    def lacking(self, spans: Sequence[Span]) -> list[Span]:
        """What of those is not here yet."""
        with self._lock:
            return [gap for span in spans for gap in self._spans.lacking(span)]

    def write(self, content: memoryview, at: int) -> None:
        """The bytes lie at that place; past the page cache where `content` is a buffer that allows it.

        Raises:
            OSError: the file takes no more.
        """
        if self._unbuffered is not None and not (at | len(content)) % ALIGNED_BYTES:
            # What it refuses is not lost: the rest is written in the other way.
            with suppress(OSError):
                while content and not len(content) % ALIGNED_BYTES:
                    count = os.pwritev(self._unbuffered, [content], at)
                    content, at = content[count:], at + count
        while content:
            count = os.pwrite(self._fd, content, at)
            content, at = content[count:], at + count

    def filled(self, span: Span) -> None:
        """The bytes of `span` were written."""
        with self._lock:
            self._spans.add(span)
            self._is_synced = False

    def sync(self) -> None:
        """All that was written before is on the storage.

        Raises:
            OSError: it is not.
        """
        if not self._is_synced:
            self._is_synced = True
            getattr(os, "fdatasync", os.fsync)(self._fd)

    def save(self) -> None:
        """The record is as the file."""
        with self._lock:
            spans = list(self._spans)
        if spans == self._saved:
            return
        part = self._record.with_name(self._record.name + ".new")
        part.write_text(json.dumps({"size": self.size_bytes, "spans": spans}), encoding="utf-8")
        part.replace(self._record)
        self._saved = spans

    def close(self) -> None:
        """Nothing more is written; what is here stays, and is on record."""
        with suppress(OSError):  # the next one fetches more than it must
            self.save()
        self._leave()

    def _leave(self) -> None:
        os.close(self._fd)
        if self._unbuffered is not None:
            os.close(self._unbuffered)


def held_bytes(path: Path, size_bytes: int) -> int:
    """How much of a file of that size is at `path` from an earlier attempt."""
    return Spans(_recorded(path, size_bytes)).size_bytes


def names_of(path: Path) -> tuple[str, str]:
    """What lies there while the partial file at `path` does: itself, and its record."""
    return path.name, _record_of(path).name


def forget(path: Path) -> None:
    """Nothing is known of the partial file at `path`: it was proved, or is to begin anew."""
    _record_of(path).unlink(missing_ok=True)


def discard(path: Path) -> None:
    """There is no partial file at `path`: what came is not what was wanted."""
    path.unlink(missing_ok=True)
    forget(path)


def _record_of(path: Path) -> Path:
    return path.with_name(path.name + _RECORD)


def _recorded(path: Path, size_bytes: int) -> Sequence[Span]:
    """The spans on record, where it is of this very file as it is."""
    try:
        held = json.loads(_record_of(path).read_text(encoding="utf-8"))
        spans = [Span(int(a), int(b)) for a, b in held["spans"]]
        fits = held["size"] == size_bytes == path.stat().st_size
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()
    inside = all(s.first >= 0 and s.size_bytes > 0 and s.end <= size_bytes for s in spans)
    return spans if fits and inside else ()
