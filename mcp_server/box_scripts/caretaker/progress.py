"""Reports to the tenant how much of a long request is done so far, and ends with the tenant's connection."""

from __future__ import annotations

import os
import select
import sys
import time


class Telling:
    """Reports to the tenant how much is done so far, if the request asks for reports."""

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


def end_with_asker() -> None:
    """End this process as soon as the tenant has disconnected, whatever it does then. Nobody needs its work any more."""
    import threading

    def watch() -> None:
        poll = select.poll()
        poll.register(1, 0)  # a broken pipe is always told
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll()):
            os._exit(1)

    if hasattr(select, "poll"):
        threading.Thread(target=watch, daemon=True).start()
