"""One pass over a file on the disk. It hashes every byte, and lets a check inspect the bytes as they pass."""

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from threading import Event
from typing import Literal

from gpu_tenant.files.direct_io import Stored, flush


class Stopped(Exception):
    """The pass was stopped, because its result is no longer needed."""


class Passage:
    """A pass over a file. It moves on only when bytes are requested, and never goes back.

    Each block is hashed in another thread while it is inspected.
    """

    def __init__(
        self,
        stored: Stored,
        expected: str | None,
        stop: Event,
        *,
        flushed: Literal["flushed", "not flushed"] = "not flushed",
    ) -> None:
        """Prepare the pass. Nothing is read yet. `expected` is the sha256 that the whole file should have."""
        if flushed == "not flushed":
            flush(stored.opened)
        self._stored = stored
        self._expected = expected
        self._stop = stop
        self._blocks: Generator[memoryview, None, None] | None = None
        self._digest = sha256()
        self._hashed: Future[None] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._block = memoryview(b"")
        self._at = self._end = 0

    def keep(self) -> None:
        """Let the page cache keep the bytes of the pass, for a program that reads the file afterwards."""
        self._stored.keep()

    def piece(self, offset: int, size_bytes: int) -> memoryview | None:
        """Return at most `size_bytes` bytes at `offset`. The bytes are valid only until the next call.

        None if the pass has already moved beyond `offset`, or if the file ends before it.

        Raises:
            OSError: the disk could not be read.
            Stopped: the result is no longer needed.
        """
        while offset >= self._end:
            if not self._move_on():
                return None
        if offset < self._at:
            return None
        return self._block[offset - self._at :][:size_bytes]

    def finish(self) -> tuple[int, str]:
        """Read the rest of the file. Return the size of the file in bytes, and its sha256.

        Raises:
            OSError: the disk could not be read.
            Stopped: the result is no longer needed.
        """
        while self._move_on():
            pass
        return self._end, self._digest.hexdigest()

    def is_as_expected(self) -> bool:
        """Read the rest of the file. Return whether its hash is the expected one."""
        return self.finish()[1] == self._expected

    def close(self) -> None:
        """End the pass and its thread."""
        if self._threads is not None:
            self._threads.shutdown()
        if self._blocks is not None:
            self._blocks.close()

    def _move_on(self) -> bool:
        if self._hashed is not None:
            self._hashed.result()
        if self._stop.is_set():
            raise Stopped
        if self._blocks is None:
            self._blocks = self._stored.to_the_end(0)
        block = next(self._blocks, None)
        if block is None:
            return False
        self._block, self._at, self._end = block, self._end, self._end + len(block)
        if self._threads is None and self._end < self._stored.size_bytes:
            self._threads = ThreadPoolExecutor(1)
        if self._threads is None:
            self._digest.update(block)
        else:
            self._hashed = self._threads.submit(self._digest.update, block)
        return True
