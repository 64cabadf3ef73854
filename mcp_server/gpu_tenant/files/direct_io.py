"""The bytes of a file as they lie on its storage: past the page cache, in pieces of bounded size."""

import errno
import fcntl
import mmap
import os
import stat
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

BLOCK_BYTES = 2 << 20
"""So much is read at once; three of these are all the memory that a file takes."""
_IN_FLIGHT = 2
"""One read alone leaves the storage idle between any two."""
ALIGNED_BYTES = 4096
"""Past the page cache, files are read and written from and to multiples of this."""
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Through no link, and not waiting: a named pipe that lies in a file's place would never open."""


def open_regular(path: Path, more: int = 0) -> int | None:
    """A descriptor of the regular file at `path`; None where there is no such file, or not with `more` flags."""
    try:
        opened = os.open(path, os.O_RDONLY | _CAREFUL | more)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        return None
    return opened


def flush(opened: int) -> None:
    """What was written to the file is on its storage, and nothing of it is in the page cache."""
    if hasattr(os, "posix_fadvise"):
        os.fsync(opened)
    _forget(opened, 0, 0)


def _forget(opened: int, start: int, size_bytes: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(opened, start, size_bytes, os.POSIX_FADV_DONTNEED)
    elif hasattr(fcntl, "F_NOCACHE"):
        fcntl.fcntl(opened, fcntl.F_NOCACHE, 1)


def reread_blocks(path: Path) -> Generator[memoryview, None, None] | None:
    """The regular file at `path` from its storage, piece by piece; None where there is no such file.

    A piece is good until the next one is asked for.

    Raises:
        OSError: the storage could not be read.
    """
    stored = Stored.at(path)
    return None if stored is None else _all_of(stored)


def _all_of(stored: "Stored") -> Generator[memoryview, None, None]:
    with stored:
        flush(stored.opened)
        yield from stored.to_the_end(0)


class Rereader:
    """Reads small files back from their storage, one after the other, into one buffer; for one thread."""

    def __init__(self, most_bytes: int) -> None:
        self._buffer = mmap.mmap(-1, most_bytes + -most_bytes % ALIGNED_BYTES)

    def read(self, path: Path) -> memoryview | None:
        """What the regular file at `path` holds, which was flushed; None where there is none, or a larger one.

        Good until the next is read.

        Raises:
            OSError: the storage could not be read.
        """
        direct = getattr(os, "O_DIRECT", 0)
        opened = open_regular(path, direct)
        is_direct = bool(direct and opened is not None)
        try:
            if opened is None:
                opened = open_regular(path)
            size_bytes = 0 if opened is None else os.fstat(opened).st_size
            if opened is None or size_bytes > len(self._buffer):
                return None
            # No more of the buffer than the file fills: all that is offered must be held in memory.
            view = memoryview(self._buffer)[: size_bytes + -size_bytes % ALIGNED_BYTES]
            if not is_direct:
                _forget(opened, 0, 0)
            try:
                got = os.preadv(opened, [view], 0)
            except OSError:
                os.close(opened)  # it was opened in a way that it cannot be read in
                opened = open_regular(path)
                if opened is None:
                    return None
                _forget(opened, 0, 0)
                got = os.preadv(opened, [view], 0)
            # A network file system may give less at once than there is.
            while got < os.fstat(opened).st_size:
                more = os.preadv(opened, [memoryview(self._buffer)[got:]], got)
                if not more:
                    break
                got += more
            return memoryview(self._buffer)[:got]
        finally:
            if opened is not None:
                os.close(opened)


class Rereading:
    """A file that grows, read back from its storage as it does, and hashed; for one thread at a time."""

    def __init__(self, path: Path) -> None:
        """The regular file at `path` is open, and nothing of it has been read.

        Raises:
            OSError: it cannot be opened, or is no regular file.
        """
        stored = Stored.at(path)
        if stored is None:
            raise OSError(errno.ENOENT, "no regular file", str(path))
        self._stored = stored
        self._digest = sha256()
        self.at = 0

    def upto(self, offset: int) -> int:
        """All before `offset` has been read back; returns how far that is: less where the file ends first.

        What is to be read must have been flushed. It goes best in large steps, but takes any.

        Raises:
            OSError: the storage could not be read.
        """
        for block in self._stored.blocks(self.at, offset):
            self._digest.update(block)
            self.at += len(block)
        return self.at

    def hexdigest(self) -> str:
        """The sha256 of what has been read back so far."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """The file is closed."""
        self._stored.close()


@dataclass(frozen=True, slots=True)
class _Read:
    """A read on its way into a buffer."""

    at: int
    size_bytes: int
    buffer: mmap.mmap
    got: "Future[int]"


class Stored:
    """A regular file, read from its storage: unbuffered where file system and platform take that.

    Elsewhere, what the page cache holds of a stretch is dropped before it is read.
    """

    def __init__(self, opened: int, path: Path) -> None:
        self.opened = opened
        self._unbuffered = unbuffered(opened, path, os.O_RDONLY)
        self._spare: list[mmap.mmap] = []
        self._threads: ThreadPoolExecutor | None = None

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """The regular file at `path`; None where there is no such file."""
        opened = open_regular(path)
        return None if opened is None else cls(opened, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """The file is closed."""
        if self._threads is not None:
            self._threads.shutdown()
        os.close(self.opened)
        if self._unbuffered is not None:
            os.close(self._unbuffered)

    def keep(self) -> None:
        """The page cache keeps what is read from now on, for whoever reads it next."""
        if self._unbuffered is not None:
            os.close(self._unbuffered)
            self._unbuffered = None

    @property
    def size_bytes(self) -> int:
        """How long the file is now."""
        return os.fstat(self.opened).st_size

    def to_the_end(self, start: int) -> Generator[memoryview, None, None]:
        """The bytes from `start` to the end of the file, even where that moves meanwhile."""
        before = -1
        while before < start < (end := self.size_bytes):
            before = start
            for block in self.blocks(start, end):
                start += len(block)
                yield block

    def blocks(self, start: int, end: int) -> Generator[memoryview, None, None]:
        """The bytes from `start` to `end`, or to where the file ends first, piece by piece.

        Reads are on their way while a piece is looked at, which is good until the next is asked for.

        Raises:
            OSError: the storage could not be read.
        """
        if start >= end:
            return
        at, stop = start - start % ALIGNED_BYTES, end + -end % ALIGNED_BYTES
        _forget(self.opened, at, stop - at)
        coming: deque[_Read] = deque()
        try:
            while at < stop or coming:
                if at < stop:
                    coming.append(self._ask(at, stop))
                    at += coming[-1].size_bytes
                    if at < stop and len(coming) <= _IN_FLIGHT:
                        continue
                read = coming[0]
                got = read.got.result()
                if piece := memoryview(read.buffer)[
                    max(0, start - read.at) : min(got, end - read.at)
                ]:
                    yield piece
                if got < read.size_bytes:
                    return
                self._spare.append(coming.popleft().buffer)
        finally:
            # Or a read still on its way would find the file closed, and another one in its place.
            for read in coming:
                read.got.exception()
                self._spare.append(read.buffer)

    def _ask(self, at: int, stop: int) -> _Read:
        """A read that is on its way: already there, where no other will be at the same time."""
        size_bytes = min(BLOCK_BYTES, stop - at)
        buffer = self._spare.pop() if self._spare else mmap.mmap(-1, BLOCK_BYTES)
        if self._threads is None and at + size_bytes == stop:
            got: Future[int] = Future()
            got.set_result(self._fill(buffer, at, size_bytes))
        else:
            self._threads = self._threads or ThreadPoolExecutor(_IN_FLIGHT)
            got = self._threads.submit(self._fill, buffer, at, size_bytes)
        return _Read(at, size_bytes, buffer, got)

    def _fill(self, buffer: mmap.mmap, at: int, size_bytes: int) -> int:
        """How many bytes from `at` on are in the buffer now: all that were asked for, or all there are."""
        got = 0
        if self._unbuffered is not None:
            # What it refuses is not lost: the rest is read in the other way.
            with suppress(OSError):
                got = os.preadv(self._unbuffered, [memoryview(buffer)[:size_bytes]], at)
        while got < size_bytes:
            more = os.preadv(self.opened, [memoryview(buffer)[got:size_bytes]], at + got)
            if not more:
                break
            got += more
        return got


def unbuffered(opened: int, path: Path, mode: int) -> int | None:
    """A second descriptor of the same file that goes past the page cache; None where there is no such.

    `mode` is `os.O_RDONLY` or `os.O_WRONLY`.
    """
    if not hasattr(os, "O_DIRECT"):
        return None
    try:
        second = os.open(path, _CAREFUL | mode | os.O_DIRECT)
    except OSError:
        return None
    if os.path.sameopenfile(opened, second):
        return second
    os.close(second)  # another file has its name now
    return None
