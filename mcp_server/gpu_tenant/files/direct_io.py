"""Reads the bytes of a file from its storage, past the page cache, in pieces of bounded size."""

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
"""How much is read at once. Reading a file takes three buffers of this size, and no more memory."""
_IN_FLIGHT = 2
"""How many reads are under way at once. With only one, the storage is idle between reads."""
_FLUSHED_AT_ONCE = 16
ALIGNED_BYTES = 4096
"""Unbuffered reads and writes begin and end at a multiple of this."""
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Follow no link, and do not wait: opening a named pipe that lies in a file's place would block for ever."""


def open_regular(path: Path, more: int = 0) -> int | None:
    """Open the regular file at `path`, with `more` flags, and return its descriptor.

    None if there is no regular file, or it cannot be opened.
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
    """Flush everything that was written to the file to its storage, and drop it from the page cache."""
    if hasattr(os, "posix_fadvise"):
        os.fsync(opened)
    _forget(opened, 0, 0)


def flush_all(paths: Sequence[Path]) -> Sequence[bool]:
    """Flush these files to their storage. Return for each whether that was done.

    Many are flushed at once, because the storage then carries out several requests as one.
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
    """Yield the content of the regular file at `path` piece by piece, from its storage.

    None if there is no such file.

    A piece is valid until the next one is asked for.

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
    """Reads small files back from their storage, one after the other, into one buffer. For one thread only."""

    def __init__(self, most_bytes: int) -> None:
        self._buffer = mmap.mmap(-1, most_bytes + -most_bytes % ALIGNED_BYTES)

    def read(self, path: Path) -> memoryview | None:
        """Return the content of the regular file at `path`. None if there is none, or it is larger than the buffer.

        The file must have been flushed. The result is valid until the next file is read.

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
            # Use only as much of the buffer as the file fills, because the kernel pins all the memory
            # that it is given.
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
            # A network file system may return less at a time than there is.
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
    """Reads back and hashes a file from its storage while the file grows. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open the regular file at `path`. Nothing of it is read yet.

        Raises:
            OSError: it cannot be opened, or is not a regular file.
        """
        stored = Stored.at(path)
        if stored is None:
            raise OSError(errno.ENOENT, "no regular file", str(path))
        self._stored = stored
        self._digest = sha256()
        self.at = 0

    def upto(self, offset: int) -> int:
        """Read back everything before `offset`, or to the end of the file if that comes first.


        Return how far the file has been read back. The bytes must have been flushed. Steps of any size work, and
        large ones are faster.

        Raises:
            OSError: the storage could not be read.
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
    """A read into a buffer, which is under way."""

    at: int
    size_bytes: int
    buffer: mmap.mmap
    got: "Future[int]"


class Stored:
    """A regular file that is read from its storage: unbuffered, if the file system and platform allow that.

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
        """Keep in the page cache what is read from now on, for later readers."""
        if self._unbuffered is not None:
            os.close(self._unbuffered)
            self._unbuffered = None

    @property
    def size_bytes(self) -> int:
        """The file's size now."""
        return os.fstat(self.opened).st_size

    def to_the_end(self, start: int) -> Generator[memoryview, None, None]:
        """Yield the bytes from `start` to the end of the file, even if the end moves meanwhile."""
        before = -1
        while before < start < (end := self.size_bytes):
            before = start
            for block in self.blocks(start, end):
                start += len(block)
                yield block

    def blocks(self, start: int, end: int) -> Generator[memoryview, None, None]:
        """Yield the bytes from `start` to `end` piece by piece, or to the end of the file if that comes first.

        The next reads are under way meanwhile. A piece is valid until the next one is asked for.

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
            # Wait for these reads: a read that is still under way could hit a closed descriptor, or one
            # that was opened anew for another file.
            for read in coming:
                read.got.exception()
                self._spare.append(read.buffer)

    def _ask(self, at: int, stop: int) -> _Read:
        """Start a read. If one read is enough for all the bytes that are wanted, it is done when this returns."""
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
        """Fill the buffer with bytes from `at` on. Return how many: fewer than asked for if the file ends first."""
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
    """Open the same file a second time, bypassing the page cache. None if that is not possible.

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
