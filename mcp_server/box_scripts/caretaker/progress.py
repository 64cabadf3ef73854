"""Tells whoever asked how much of long work is done so far."""

from __future__ import annotations

import sys
import time


class Telling:
    """Whoever asked to hear of it is told how much was done so far; and once nobody hears it, this ends."""

    def __init__(self) -> None:
        self.every_s: float | None = None
        self._told_at = time.monotonic()
        self._files = self._read_bytes = 0

    def did(self, files: int, read_bytes: int) -> None:
        """So many files more were looked at, and bytes read."""
        self._files, self._read_bytes = self._files + files, self._read_bytes + read_bytes
        if self.every_s is None or time.monotonic() - self._told_at < self.every_s:
            return
        self._told_at = time.monotonic()
        sys.stdout.buffer.write(b'{"done":[%d,%d]}\n' % (self._files, self._read_bytes))
        sys.stdout.buffer.flush()


TELLING = Telling()
