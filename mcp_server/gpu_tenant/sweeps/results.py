"""The results of a sweep's cells: each cell's metrics from its log, its time, and its cost. The best comes first."""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

from gpu_tenant.domain.model import JobId, Lease, LeaseId
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.policy import running_usd_h
from gpu_tenant.domain.sweep_placement import Placement, Sweep
from gpu_tenant.files.direct_io import open_regular
from gpu_tenant.jobs.progress import read_progress, whole_lines
from gpu_tenant.sweeps.status import CellRow, CellState, Reckoning

_TAIL_BYTES = 64_000
_WELL: frozenset[CellState] = frozenset({"verified", "finished"})
"""Only a cell that ended well can be the best one."""
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
    best = next(
        (row for row in rows if row.state in _WELL and _is_number(row.metrics.get(by))), None
    )
    return table.model_copy(
        update={
            "rows": tuple(rows),
            "by": f"{by}, the {first} first",
            "best": _best_words(best, by) if best is not None else None,
            "doubtful": tuple(
                f"{row.cell}: {name} is {value}"
                for row in rows
                for name, value in row.metrics.items()
                if not _is_number(value)
            ),
        }
    )


def _best_words(best: CellRow, by: str) -> str:
    where = f": {best.files}" if best.files else ""
    return f"{best.cell}, {by} {best.metrics[by]:g}{where}"


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
    cell = sweep.cell(row.cell)
    kept = places(lease, sweep.grid.places_of(cell)) if cell else []
    return row.model_copy(
        update={
            "files": os.fspath(kept[0]) if kept else None,
            "took_s": took_s,
            "cost_usd": cost,
            "metrics": _metrics(lease, placement.job, said.attempts),
        }
    )


def places(lease: Lease, names: Sequence[str]) -> list[Path]:
    """Return the collected directories and files of that lease that have these names below its work directory."""
    if lease.kept_in is None:
        return []
    work = Path(lease.kept_in) / "work"
    plain = (name.removeprefix("./").strip("/") for name in names)
    return [work / name for name in plain if name and (work / name).exists()]


def link_by_cell(folder: Path, rows: Sequence[CellRow]) -> bool:
    """Make a link to the files of each cell that ended well, by its name. Return whether there is one.

    The boxes' own directories stay as they are: they are what was proved.
    """
    has_one = False
    for row in rows:
        if row.files is None or row.state not in _WELL:
            continue
        link = folder / row.cell
        with suppress(OSError):  # a full disk, or a file of the owner's by that name
            folder.mkdir(parents=True, exist_ok=True)
            if link.is_symlink() and os.fspath(link.readlink()) != row.files:
                link.unlink()
            if not link.is_symlink():
                link.symlink_to(row.files)
        has_one = has_one or link.is_symlink()
    return has_one


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
