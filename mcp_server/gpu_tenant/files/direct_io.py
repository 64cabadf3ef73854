"""Reads the bytes of a file from the disk, past the page cache, in pieces of bounded size."""

import errno
import fcntl
import mmap
import os
import stat
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

BLOCK_BYTES = 2 << 20
"""How many bytes are read at a time. Reading a file needs three buffers of this size, and no more memory."""
_IN_FLIGHT = 2
"""How many reads are under way at the same time. With only one, the disk is idle between reads."""
_FLUSHED_AT_ONCE = 16
ALIGNED_BYTES = 4096
"""Unbuffered reads and writes begin and end at a multiple of this number of bytes."""
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Follow no link, and do not wait: otherwise opening a named pipe in place of a file would block for ever."""


def open_regular(path: Path, more: int = 0) -> int | None:
    """Open the regular file at `path`, with the extra flags `more`, and return its descriptor.

    None if there is no regular file, or if it cannot be opened.
    """
    try:
        opened = os.open(path, os.O_RDONLY | _CAREFUL | more)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        return None
    return opened


def flush(opened: int) -> None:
    """Flush everything that was written to the file to the disk, and drop it from the page cache."""
    if hasattr(os, "posix_fadvise"):
        os.fsync(opened)
    _forget(opened, 0, 0)


def flush_all(paths: Sequence[Path]) -> Sequence[bool]:
    """Flush these files to the disk. Return for each whether that worked.

    Many are flushed at the same time, because the disk can then handle several requests together.
    """
    with ThreadPoolExecutor(min(_FLUSHED_AT_ONCE, len(paths) or 1)) as threads:
        return list(threads.map(_is_flushed, paths))


def _is_flushed(path: Path) -> bool:
    opened = open_regular(path)
    if opened is None:
        return False
    try:
        flush(opened)
    except OSError:
        return False
    finally:
        os.close(opened)
    return True


def _forget(opened: int, start: int, size_bytes: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(opened, start, size_bytes, os.POSIX_FADV_DONTNEED)
    elif hasattr(fcntl, "F_NOCACHE"):
        fcntl.fcntl(opened, fcntl.F_NOCACHE, 1)


def reread_blocks(path: Path) -> Generator[memoryview, None, None] | None:
    """Yield the content of the regular file at `path` piece by piece, from the disk.

    Returns None if there is no such file. A piece is valid until the next one is requested.

    Raises:
        OSError: the disk could not be read.
    """
    stored = Stored.at(path)
    return None if stored is None else _all_of(stored)


def _all_of(stored: "Stored") -> Generator[memoryview, None, None]:
    with stored:
        flush(stored.opened)
        yield from stored.to_the_end(0)


class Rereader:
    """Reads small files back from the disk, one after the other, into one buffer. Only one thread may use it."""

    def __init__(self, most_bytes: int) -> None:
        self._buffer = mmap.mmap(-1, most_bytes + -most_bytes % ALIGNED_BYTES)

    def read(self, path: Path) -> memoryview | None:
        """Return the content of the regular file at `path`. None if there is none, or if it is larger than the buffer.

        The file must have been flushed. The result is valid until the next file is read.

        Raises:
            OSError: the disk could not be read.
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
            # Use only as much of the buffer as the file needs, because the kernel pins all the
            # memory that it is given.
            view = memoryview(self._buffer)[: size_bytes + -size_bytes % ALIGNED_BYTES]
            if not is_direct:
                _forget(opened, 0, 0)
            try:
                got = os.preadv(opened, [view], 0)
            except OSError:
                os.close(opened)  # unbuffered reads are refused, so open it the ordinary way
                opened = open_regular(path)
                if opened is None:
                    return None
                _forget(opened, 0, 0)
                got = os.preadv(opened, [view], 0)
            # A network file system may return less than is there.
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
    """Reads back and hashes a file from the disk while the file grows. Only one thread at a time may use it."""

    def __init__(self, path: Path) -> None:
        """Open the regular file at `path`. Nothing is read yet.

        Raises:
            OSError: the file cannot be opened, or is not a regular file.
        """
        stored = Stored.at(path)
        if stored is None:
            raise OSError(errno.ENOENT, "no regular file", str(path))
        self._stored = stored
        self._digest = sha256()
        self.at = 0

    def upto(self, offset: int) -> int:
        """Read back everything before `offset`, or up to the end of the file if that comes first.

        Return the position up to which the file has been read back. The bytes must have been flushed before.
        Steps of any size are allowed; large ones are faster.

        Raises:
            OSError: the disk could not be read.
        """
        for block in self._stored.blocks(self.at, offset):
            self._digest.update(block)
            self.at += len(block)
        return self.at

    def hexdigest(self) -> str:
        """Return the sha256 of what has been read back so far."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._stored.close()


class _Read(NamedTuple):
    """A read into a buffer. It is under way or done."""

    at: int
    size_bytes: int
    buffer: mmap.mmap
    got: "Future[int]"


class Stored:
    """A regular file that is read from the disk. The reads are unbuffered if the file system and platform allow that.

    Otherwise, each part is dropped from the page cache before it is read.
    """

    def __init__(self, opened: int, path: Path) -> None:
        self.opened = opened
        self._unbuffered = open_unbuffered(opened, path, os.O_RDONLY)
        self._spare: list[mmap.mmap] = []
        self._threads: ThreadPoolExecutor | None = None

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """Open the regular file at `path`. None if there is no such file."""
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
        """Close the file."""
        if self._threads is not None:
            self._threads.shutdown()
        os.close(self.opened)
        if self._unbuffered is not None:
            os.close(self._unbuffered)

    def keep(self) -> None:
        """Let the page cache keep what is read from now on, for later readers."""
        if self._unbuffered is not None:
            os.close(self._unbuffered)
            self._unbuffered = None

    @property
    def size_bytes(self) -> int:
        """The present size of the file."""
        return os.fstat(self.opened).st_size

    def to_the_end(self, start: int) -> Generator[memoryview, None, None]:
        """Yield the bytes from `start` to the end of the file. If it grows meanwhile, the new bytes are included."""
        before = -1
        while before < start < (end := self.size_bytes):
            before = start
            for block in self.blocks(start, end):
                start += len(block)
                yield block

    def blocks(self, start: int, end: int) -> Generator[memoryview, None, None]:
        """Yield the bytes from `start` to `end` piece by piece, or up to the end of the file if that comes first.

        The next pieces are read ahead. A piece is valid until the next one is requested.

        Raises:
            OSError: the disk could not be read.
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
            # Wait for these reads: otherwise one could use a descriptor that is closed, or that
            # already belongs to another file.
            for read in coming:
                read.got.exception()
                self._spare.append(read.buffer)

    def _ask(self, at: int, stop: int) -> _Read:
        """Start a read. If this is the first and only read that is needed, it is done when this returns."""
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
        """Fill the buffer with bytes from `at` on. Return how many were read: at the file's end, fewer than wanted."""
        got = 0
        if self._unbuffered is not None:
            # If the unbuffered read fails, the rest is read the ordinary way below.
            with suppress(OSError):
                got = os.preadv(self._unbuffered, [memoryview(buffer)[:size_bytes]], at)
        while got < size_bytes:
            more = os.preadv(self.opened, [memoryview(buffer)[got:size_bytes]], at + got)
            if not more:
                break
            got += more
        return got


def open_unbuffered(opened: int, path: Path, mode: int) -> int | None:
    """Open the same file a second time, past the page cache. None if that is not possible.

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
    os.close(second)  # the name belongs to another file now
    return None
