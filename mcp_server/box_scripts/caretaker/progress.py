"""Reports to the tenant how much of a long request is done so far."""

from __future__ import annotations

import sys
import time


class Telling:
    """Reports to the tenant how much is done so far, if the request asks for reports.

    If the tenant has disconnected, the write fails and ends this process, because nobody needs its work any more.
    """

    def __init__(self) -> None:
        self.every_s: float | None = None
        self._told_at = time.monotonic()
        self._files = self._read_bytes = 0

    def did(self, files: int, read_bytes: int) -> None:
        """Count processed files and bytes that were read. Report the totals, if the time for a report has come."""
        self._files, self._read_bytes = self._files + files, self._read_bytes + read_bytes
        if self.every_s is None or time.monotonic() - self._told_at < self.every_s:
            return
        self._told_at = time.monotonic()
        sys.stdout.buffer.write(b'{"done":[%d,%d]}\n' % (self._files, self._read_bytes))
        sys.stdout.buffer.flush()


TELLING = Telling()
