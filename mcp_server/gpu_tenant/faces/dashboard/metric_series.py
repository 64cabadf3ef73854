"""Reads the metrics of jobs that open pages show, from every line of their logs. Each call continues the last one."""

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from gpu_tenant.jobs.metrics import Metrics, Series
from gpu_tenant.leases.read_logs import log_window
from gpu_tenant.service import Tenancy

_WINDOW_BYTES = 1 << 20
_BUDGET_S = 0.8
"""One call reads a log for at most this many seconds, because a person waits. Later calls read the rest."""
_REMEMBERED = 32


class MetricSeries(NamedTuple):
    """The metrics of a job by step. They are complete when `read_bytes` has reached `size_bytes`."""

    series: dict[str, Series]
    read_bytes: int
    size_bytes: int


@dataclass(slots=True)
class _Course:
    metrics: Metrics = field(default_factory=Metrics)
    read_bytes: int = 0
    size_bytes: int = 0
    begun: str = ""
    """The beginning of a line whose rest has not been read yet."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Courses:
    """The metrics that were read from each job's log so far."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], _Course] = {}

    async def upto_now(self, tenancy: Tenancy, lease: str, job: str) -> MetricSeries:
        """Return the metrics by step, from as much of the log as could be read in about a second.

        Raises:
            TenantError: the log could not be read.
        """
        course = self._all.pop((lease, job), None) or _Course()
        self._all[lease, job] = course
        for old in list(self._all)[:-_REMEMBERED]:
            del self._all[old]
        clock = asyncio.get_running_loop().time
        until = clock() + _BUDGET_S
        async with course.reading:
            while clock() < until:
                part = await log_window(
                    tenancy.context, lease, job, start=course.read_bytes, limit=_WINDOW_BYTES
                )
                course.size_bytes = part.size
                if part.size < course.read_bytes:
                    # The log is shorter than before, so it was started again.
                    course.metrics, course.read_bytes, course.begun = Metrics(), 0, ""
                    continue
                if part.to <= course.read_bytes:
                    break
                # A window may end within a line. The next window usually begins with the whole line again. If it
                # begins exactly at the cut instead, the two parts are joined.
                goes_on = part.from_ == course.read_bytes
                text = course.begun + part.text if goes_on else part.text
                whole, newline, begun = text.rpartition("\n")
                course.begun, course.read_bytes = begun, part.to
                await asyncio.to_thread(course.metrics.feed, whole + newline)
        return MetricSeries(course.metrics.series(), course.read_bytes, course.size_bytes)
