"""Keeps copies of the logs that were read on boxes, so that no byte is fetched twice."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_BYTES = 1 << 30
"""All copies together may take this much disk space. The least recently used one is deleted first."""


class LogCopy:
    """A copy of the beginning of one log, as far as it has been read. Several processes may use it at once.

    If a copy is lost, the log only has to be fetched again. So a full disk is no error: the copy then stays shorter.
    """

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._path, self._most_bytes = path, most_bytes

    def size_bytes(self) -> int:
        """Return how many bytes of the log the copy holds. 0 if there is no copy."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def read(self, start: int, limit: int) -> bytes:
        """Return at most `limit` bytes from `start` on, as far as the copy holds them."""
        try:
            with self._open(os.O_RDONLY, fcntl.LOCK_SH) as file:
                return os.pread(file, limit, start)
        except OSError:
            return b""

    def join(self, at: int, raw: bytes, size_bytes: int) -> None:
        """Append `raw` to the copy, if it continues the copy. `at` is the position of `raw` in the log.

        `size_bytes` is the size of the log now. If the log is shorter than the copy, or if the two differ in the bytes
        that both have, it is a different log. The copy is then emptied, and takes `raw` only if `at` is 0.
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
        """Delete the least recently used copies until the rest fits into the allowed space."""
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
    """Delete those copies in the directory `copies` whose logs have been collected into the directory `kept`."""
    with suppress(OSError):
        for copy in copies.iterdir():
            if (kept / copy.name).is_file():
                copy.unlink(missing_ok=True)
        copies.rmdir()
