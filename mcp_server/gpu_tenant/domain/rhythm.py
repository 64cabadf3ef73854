"""The rhythm of a job: how often it writes to its log, and whether that has stopped for many times as long."""

from datetime import UTC, datetime
from typing import NamedTuple

from gpu_tenant.domain.wording import span

_LINE_BYTES = 80
_MANY_PERIODS = 20
_SHORTEST_S = 600.0


class Silence(NamedTuple):
    """A job that is silent for much longer than it ever was between two lines, as far as its log shows."""

    since: datetime
    """By the clock of the box."""
    period_s: float

    @property
    def words(self) -> str:
        """Since when the job is silent, and how often it wrote before. The words stay the same while it is silent."""
        every = f"before that a line about every {span(max(1.0, self.period_s))}"
        return f"nothing new is in its log since {self.since:%Y-%m-%d %H:%M} UTC, {every}"


def silence_of(
    *, started_at: float | None, log_mtime: float | None, log_bytes: int, now: float
) -> Silence | None:
    """Say whether a running job has fallen silent. The times are of one clock, in seconds since 1970.

    The usual time between two lines is that of the whole log: so one line an epoch is no silence.
    """
    if started_at is None or log_mtime is None or not log_bytes:
        return None
    period_s = max(0.0, log_mtime - started_at) * _LINE_BYTES / max(log_bytes, _LINE_BYTES)
    if now - log_mtime < max(_SHORTEST_S, _MANY_PERIODS * period_s):
        return None
    return Silence(datetime.fromtimestamp(log_mtime, UTC), period_s)
