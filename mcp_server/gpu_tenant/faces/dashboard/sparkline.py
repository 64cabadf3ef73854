"""The newest measurements of a job's first metric, for a small drawing in its row."""

from gpu_tenant.domain.record import Record
from gpu_tenant.jobs.metrics import measured_by
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.jobs.progress import whole_lines

_MOST = 60
_LEAST = 2


class Sparkline(Record):
    """Measured values of one metric, each at the step that the job reports for it."""

    metric: str
    steps: tuple[float, ...]
    values: tuple[float, ...]

    def after(self, before: "Sparkline | None") -> "Sparkline":
        """Return the values of `before`, followed by these."""
        if before is None or before.metric != self.metric or not self.steps:
            return self
        # If the job was started again, its steps begin again, so later steps belong to the run before and are dropped.
        known = {
            step: value
            for step, value in zip(before.steps, before.values, strict=True)
            if step < self.steps[0]
        }
        points = sorted((known | dict(zip(self.steps, self.values, strict=True))).items())
        return _of(self.metric, points[-_MOST:])


def sparkline_of(seen: Watched) -> Sparkline | None:
    """Return the values of the job's first metric in the complete lines of the log. None if there are too few."""
    if seen.progress is None or not seen.progress.metrics:
        return None
    metric = next(iter(seen.progress.metrics))
    is_cut = seen.log_size_bytes > len(seen.log.encode())
    whole = (whole_lines(seen.log) if is_cut else seen.log).rpartition("\n")[0]
    series = measured_by(whole).get(metric)
    if series is None:
        return None
    points = [
        (step, value)
        for step, value in zip(series.steps, series.values, strict=True)
        if value is not None
    ]
    return _of(metric, points[-_MOST:]) if len(points) >= _LEAST else None


def _of(metric: str, points: list[tuple[float, float]]) -> Sparkline:
    return Sparkline(
        metric=metric,
        steps=tuple(step for step, _ in points),
        values=tuple(value for _, value in points),
    )
