"""Whether a job has stopped writing: to its log, and to every other file."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.jobs import Job

LOOK_S = 10.0


class Stall:
    """Watches one job. Only its owner's limit makes its silence an end."""

    def __init__(self, job: Job, limit_s: float | None) -> None:
        self._job, self._limit_s = job, limit_s
        self._wrote: tuple | None = None
        self._since, self._looked = time.monotonic(), 0.0

    def next_look_s(self) -> float:
        """In how many seconds the job must be looked at again."""
        if self._limit_s is None:
            return float("inf")
        return max(0.0, self._looked + min(LOOK_S, self._limit_s / 4) - time.monotonic())

    def is_over_limit(self) -> bool:
        """Look at the job. Whether it has written nothing for as long as its owner allows."""
        if self._limit_s is None or self.next_look_s() > 0:
            return False
        self._looked = time.monotonic()
        wrote = self._written()
        if wrote != self._wrote:
            self._wrote, self._since = wrote, self._looked
        return self._looked - self._since >= self._limit_s

    def _written(self) -> tuple:
        """Return what changes whenever the job writes: the size of its log, and what each of its processes has written."""
        try:
            size = os.stat(self._job.path("log")).st_size
        except OSError:
            size = 0
        each = []
        for member in self._job.members():
            try:
                with open("/proc/%d/io" % member.pid, "rb") as file:
                    each.append((member.pid, file.read().split(b"wchar: ")[1].split()[0]))
            except (OSError, IndexError):
                continue
        return (size, *sorted(each))
