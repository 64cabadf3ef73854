"""Copies of what was read from logs on boxes, kept on this computer so that no byte is fetched twice."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_BYTES = 1 << 30
"""All copies together may take this much. The least recently used one is deleted first."""


class LogCopy:
    """The beginning of one log, as far as it has been read. Any number of processes may use it.

    Losing a copy costs nothing but time. So if the disk has no room, the copy is just shorter, and that is no
    error.
    """

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._path, self._most_bytes = path, most_bytes

    def size_bytes(self) -> int:
        """How many bytes of the log the copy holds."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def read(self, start: int, limit: int) -> bytes:
        """The bytes from `start` on, as far as the copy holds them."""
        try:
            with self._open(os.O_RDONLY, fcntl.LOCK_SH) as file:
                return os.pread(file, limit, start)
        except OSError:
            return b""

    def join(self, at: int, raw: bytes, size_bytes: int) -> None:
        """Add the bytes `raw`, which are at `at` in the log, to the copy, if they continue it.

        The log now has `size_bytes`. If the log is shorter than the copy, or differs from the copy where both
        are known, it is a different log. The copy is then emptied, and keeps `raw` only if `raw` begins at
        the log's beginning.
        """
        if not raw and not self.size_bytes():
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._open(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as file:
                known = os.fstat(file).st_size
                both = raw[: max(0, known - at)]
                if size_bytes < known or os.pread(file, len(both), at) != both:
                    os.ftruncate(file, 0)
                    known = 0
                if at <= known < at + len(raw) <= self._most_bytes:
                    os.pwrite(file, raw[known - at :], known)
                os.utime(file)
            self._make_room()

    @contextmanager
    def _open(self, flags: int, lock: int) -> Iterator[int]:
        file = os.open(self._path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, lock)
            yield file
        finally:
            os.close(file)

    def _make_room(self) -> None:
        """Delete the least recently used copies until all copies together fit into the allowed space."""
        copies = []
        for path in self._path.parent.parent.glob("*/*"):
            with suppress(FileNotFoundError):
                seen = path.stat()
                copies.append((seen.st_mtime_ns, seen.st_size, path))
        excess = sum(size for _, size, _ in copies) - self._most_bytes
        for _, size, path in sorted(copies):
            if excess <= 0:
                return
            if path != self._path:
                path.unlink(missing_ok=True)
                excess -= size


def forget_copies(copies: Path, kept: Path) -> None:
    """Delete from `copies` the copies of logs that are in the directory `kept`."""
    with suppress(OSError):
        for copy in copies.iterdir():
            if (kept / copy.name).is_file():
                copy.unlink(missing_ok=True)
        copies.rmdir()
