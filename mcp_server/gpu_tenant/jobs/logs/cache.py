"""What was read of logs on boxes, kept here so that no byte of it is fetched twice."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_BYTES = 1 << 30
"""What all copies may take together; the one that was used longest ago goes first."""


class LogCopy:
    """One log from its beginning, as far as it was read; any number of processes may use it.

    To lose it costs nothing but time, so a disk that does not take it is no trouble: it is shorter then.
    """

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._path, self._most_bytes = path, most_bytes

    def size_bytes(self) -> int:
        """How much of the log is here."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def read(self, start: int, limit: int) -> bytes:
        """The bytes from `start` on, as far as they are here."""
        try:
            with self._opened(os.O_RDONLY, fcntl.LOCK_SH) as file:
                return os.pread(file, limit, start)
        except OSError:
            return b""

    def join(self, at: int, raw: bytes, size_bytes: int) -> None:
        """The bytes `raw`, which the log has from `at` on, are here if they follow on what was.

        The log has `size_bytes` now. If it is shorter than what is here, or other where both are
        known, it is another log by now: then nothing is here but what follows on its beginning.
        """
        if not raw and not self.size_bytes():
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._opened(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as file:
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
    def _opened(self, flags: int, lock: int) -> Iterator[int]:
        file = os.open(self._path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, lock)
            yield file
        finally:
            os.close(file)

    def _make_room(self) -> None:
        """All copies together take no more than they may."""
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
    """Of the logs that lie in the directory `kept` there is no copy in `copies`."""
    with suppress(OSError):
        for copy in copies.iterdir():
            if (kept / copy.name).is_file():
                copy.unlink(missing_ok=True)
        copies.rmdir()
