"""One pass over a file from its storage: every byte is hashed, and shown on the way to who asks for it."""

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from threading import Event

from gpu_tenant.files.direct_io import Stored, flush


class Stopped(Exception):
    """Nobody waits any more for what the pass would have proved."""


class Passage:
    """A pass that moves on as far as it is asked for, and never back.

    A block is hashed in a thread of its own while it is looked at.
    """

    def __init__(self, stored: Stored, expected: str | None, stop: Event) -> None:
        """Nothing has passed; `expected` is the sha256 that all of it should have."""
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
        """The page cache keeps what the pass reads, for a program that reads it again afterwards."""
        self._stored.keep()

    def piece(self, offset: int, size_bytes: int) -> memoryview | None:
        """At most so many bytes at `offset`; None where that lies behind, or beyond the end.

        They are good until the next are asked for.

        Raises:
            OSError: the storage could not be read.
            Stopped: nobody waits for the result.
        """
        while offset >= self._end:
            if not self._move_on():
                return None
        if offset < self._at:
            return None
        return self._block[offset - self._at :][:size_bytes]

    def finish(self) -> tuple[int, str]:
        """How many bytes the file has, and their sha256; all have passed.

        Raises:
            OSError: the storage could not be read.
            Stopped: nobody waits for the result.
        """
        while self._move_on():
            pass
        return self._end, self._digest.hexdigest()

    def is_as_expected(self) -> bool:
        """Whether the file, all of which has passed then, has the hash that it should have."""
        return self.finish()[1] == self._expected

    def close(self) -> None:
        """No thread of it is left."""
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
