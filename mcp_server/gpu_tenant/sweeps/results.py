"""The results of a sweep's cells: each cell's metrics from its log, its time, and its cost. The best comes first."""

import math
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from gpu_tenant.domain.model import JobId, Lease, LeaseId
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.policy import running_usd_h
from gpu_tenant.domain.sweep_placement import Placement, Sweep
from gpu_tenant.files.direct_io import open_regular
from gpu_tenant.jobs.progress import read_progress, whole_lines
from gpu_tenant.sweeps.status import CellRow, Reckoning

_TAIL_BYTES = 64_000
_GROWS = (
    "acc",
    "f1",
    "auc",
    "map",
    "score",
    "reward",
    "bleu",
    "rouge",
    "recall",
    "precision",
    "iou",
)
"""Parts of the names of metrics that grow as they get better. All other metrics are assumed to fall, as a loss does."""


def with_results(
    table: Reckoning,
    sweep: Sweep,
    placements: Sequence[Placement],
    leases: Mapping[str, Lease],
    *,
    by: str | None = None,
) -> Reckoning:
    """Return the table with each cell's results, sorted by the metric `by`, the best first.

    Without `by`, the metric that most cells report is used, and losses come before other metrics. Cells without
    this metric keep their order, and come last. Each metric has its last value in the collected log. The time is that
    of the cell's last run. The cost is its box's rate over that time, divided by the slots that share the box. The cost
    of a box that waits belongs to no cell.
    """
    newest = {(p.lease_id, p.job): p for p in placements}
    rows = [_result(row, newest, leases, sweep) for row in table.rows]
    by = by or _most_told(rows)
    if by is None or not any(_is_number(row.metrics.get(by)) for row in rows):
        return table.model_copy(update={"rows": tuple(rows)})
    sign = -1 if grows(by) else 1

    def place(row: CellRow) -> tuple[bool, float]:
        value = row.metrics.get(by)
        return (False, sign * value) if value is not None and _is_number(value) else (True, 0.0)

    rows.sort(key=place)
    first = "highest" if grows(by) else "lowest"
    return table.model_copy(
        update={
            "rows": tuple(rows),
            "by": f"{by}, the {first} first",
            "best": f"{rows[0].cell}, {by} {rows[0].metrics[by]:g}",
        }
    )


def grows(metric: str) -> bool:
    """Whether that metric grows as it gets better, by its name."""
    name = metric.lower()
    return "loss" not in name and any(part in name for part in _GROWS)


def _result(
    row: CellRow,
    placements: Mapping[tuple[LeaseId, JobId], Placement],
    leases: Mapping[str, Lease],
    sweep: Sweep,
) -> CellRow:
    placement = placements.get((LeaseId(row.lease or ""), JobId(row.job or "")))
    said = placement.said if placement else None
    lease = leases.get(row.lease or "")
    if placement is None or said is None or lease is None:
        return row
    took_s = None
    if said.began_at is not None and said.ended_at is not None:
        took_s = round(max(0.0, said.ended_at - said.began_at), 1)
    usd_h = running_usd_h(lease)
    cost = None
    if took_s is not None and usd_h:
        cost = (usd_h * Decimal(str(took_s)) / 3600 / (sweep.slots or 1)).quantize(USD_STEP)
    return row.model_copy(
        update={
            "took_s": took_s,
            "cost_usd": cost,
            "metrics": _metrics(lease, placement.job, said.attempts),
        }
    )


def _metrics(lease: Lease, job: str, runs: int) -> dict[str, float]:
    """Return the last metrics in the collected log. Empty if no log was collected."""
    if lease.kept_in is None:
        return {}
    name = job if runs <= 1 else f"{job}.{runs}"
    opened = open_regular(Path(lease.kept_in) / "log" / f"{name}.log")
    if opened is None:
        return {}
    with os.fdopen(opened, "rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - _TAIL_BYTES))
        text = log.read(_TAIL_BYTES).decode("utf-8", "replace")
    told = read_progress(whole_lines(text) if size > _TAIL_BYTES else text)
    return told.metrics if told else {}


def _most_told(rows: Sequence[CellRow]) -> str | None:
    """Return the metric that most cells report.

    If several are equally frequent, return the first one in a log, which is a loss if there is one.
    """
    told = [name for row in rows for name in row.metrics]
    return max(dict.fromkeys(told), key=told.count, default=None)


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
