"""Writes the state of all leases in Prometheus's text format, for example for Grafana."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal

from gpu_tenant.faces.dashboard.lease_rows import LeaseRow, Overview

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Sample = tuple[dict[str, str], float | Decimal]
_Reader = Callable[[LeaseRow], float | Decimal | None]


def metrics_text(seen: Overview) -> str:
    """Write the overview in the text format. Unknown values are left out, because 0 would be wrong."""
    return "".join(_families(seen))


def _families(seen: Overview) -> Iterator[str]:
    rows = seen.leases
    states = Counter((row.card.phase, row.card.provider) for row in rows)
    yield from _gauge(
        "gpu_tenant_leases",
        "Live leases by state and platform.",
        [({"state": state, "provider": who}, count) for (state, who), count in states.items()],
    )
    yield from _gauge(
        "gpu_tenant_leases_to_do",
        "Live leases that need a person.",
        [({}, sum(row.card.condition.to_do is not None for row in rows))],
    )
    for name, words, value in (
        ("burning_usd_per_hour", "What bills now, in USD an hour.", seen.burning_usd_h),
        ("leaking_usd_per_month", "What bills unused, in USD a month.", seen.leaking_usd_month),
        ("spent_usd", "What all leases have cost, in USD.", seen.spent_usd),
    ):
        yield from _gauge(f"gpu_tenant_{name}", words, [] if value is None else [({}, value)])
    yield from _gauge("gpu_tenant_alarms", "Open alarms.", [({}, len(seen.alarms))])
    yield from _gauge(
        "gpu_tenant_not_counted", "What the sums lack.", [({}, len(seen.not_counted))]
    )
    yield from _gauge(
        "gpu_tenant_last_look_timestamp_seconds",
        "When the providers were asked last.",
        [({}, round(seen.at.timestamp(), 3))],
    )
    yield from _gauge(
        "gpu_tenant_last_look_failed",
        "1 if the last look at the providers failed. All other figures are older then.",
        [({}, int(seen.trouble is not None))],
    )
    yield from _gauge(
        "gpu_tenant_lease_usd_per_hour",
        "What a lease costs an hour now.",
        _of_leases(rows, lambda row: row.card.price_usd_h),
    )
    yield from _gauge(
        "gpu_tenant_lease_spent_usd",
        "What a lease has cost.",
        _of_leases(rows, lambda row: row.card.cost_usd),
    )
    yield from _gauge(
        "gpu_tenant_lease_deadline_seconds",
        "Seconds until the deadline of a lease.",
        _of_leases(rows, lambda row: row.card.deadline_in_s),
    )
    yield from _gauge(
        "gpu_tenant_box_silent",
        "1 if the box of a lease did not answer at the last look.",
        _of_leases(rows, lambda row: int(row.blind is not None)),
    )
    yield from _gauge(
        "gpu_tenant_job_progress_ratio",
        "How far the job is, by its own log.",
        _of_leases(rows, _fraction, job=True),
    )
    yield from _gauge("gpu_tenant_gpu_use_ratio", "How busy a GPU was.", _gpu_use(rows))


def _fraction(row: LeaseRow) -> float | None:
    return row.job.progress.fraction if row.job and row.job.progress and not row.is_old else None


def _gpu_use(rows: Sequence[LeaseRow]) -> Iterator[_Sample]:
    for row in rows:
        # If a box does not answer any more, its old measurements are not reported.
        for gpu in row.job.gpus if row.job and not row.is_old else ():
            if gpu.util_pct is not None:
                labels = {"lease": row.card.lease, "gpu": str(gpu.index)}
                yield labels, round(gpu.util_pct / 100, 4)


def _of_leases(rows: Sequence[LeaseRow], value: _Reader, *, job: bool = False) -> Iterator[_Sample]:
    for row in rows:
        read = value(row)
        if read is not None:
            labels = {"lease": row.card.lease, "provider": row.card.provider}
            yield labels | ({"job": row.job.id} if job and row.job else {}), read


def _gauge(name: str, words: str, samples: Iterable[_Sample]) -> Iterator[str]:
    """Write one metric with its samples. Nothing is written for a metric without samples."""
    lines = [f"{name}{_labels(labels)} {value}\n" for labels, value in samples]
    if lines:
        yield f"# HELP {name} {words}\n# TYPE {name} gauge\n"
        yield from lines


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
