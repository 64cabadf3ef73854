"""What became of every cell of a sweep, found by comparing its declaration, the boxes' reports and the kept files."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Literal

from pydantic import Field

from gpu_tenant.artifacts.inventory import Here
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.sweep_grid import Cell
from gpu_tenant.domain.sweep_placement import Placement, Said, Settlement, Sweep
from gpu_tenant.domain.wording import some
from gpu_tenant.files.patterns import matches_kept_name

CellState = Literal[
    "verified",
    "finished",
    "running",
    "queued",
    "waiting",
    "given_up",
    "failed",
    "missing",
    "duplicate",
]
STATES: tuple[CellState, ...] = (
    "verified",
    "finished",
    "running",
    "queued",
    "waiting",
    "given_up",
    "failed",
    "missing",
    "duplicate",
)
OPEN: frozenset[CellState] = frozenset({"running", "queued", "waiting"})
"""A cell in one of these states may still run, or its files may still be collected."""
WRONG: frozenset[CellState] = frozenset({"failed", "missing", "duplicate"})
"""A cell in one of these states did not end as declared, and somebody must look at it."""
_NAMED = 5


class CellRow(Record):
    """One cell, and what became of it."""

    cell: str
    state: CellState
    lease: str | None = Field(description="the lease where it is, or was last; None: nowhere yet")
    job: str | None
    attempts: int
    why: str | None = Field(description="why it did not end well, as its box reported")
    parameters: dict[str, str]
    metrics: dict[str, float] = Field(default={}, description="the last metrics in its kept log")
    took_s: float | None = Field(
        default=None, description="how long its last run took; None: it has not ended"
    )
    cost_usd: Usd = Field(default=None, description="the cost of that run, at its box's rate")
    files: str | None = Field(default=None, description="where its collected files are")


class Reckoning(Record):
    """A sweep at a glance: every cell, how many cells there are in each state, and what is wrong."""

    sweep: str
    command: str
    leases: tuple[str, ...]
    rows: tuple[CellRow, ...]
    counts: dict[CellState, int]
    twins: tuple[tuple[str, ...], ...] = Field(
        description="cells whose files are identical, although their parameters differ"
    )
    wrong: tuple[str, ...] = Field(description="a sentence for each thing somebody must look at")
    digest: str = Field(
        description="a hash of everything that is wrong; it changes when that changes"
    )
    settled_by: str | None = Field(
        description="who accepted all that is wrong now; None: nobody, or nothing is wrong"
    )
    by: str | None = Field(default=None, description="how the rows are sorted; None: as declared")
    best: str | None = Field(
        default=None,
        description="the best cell that ended well, its metric, and where its files are",
    )
    doubtful: tuple[str, ...] = Field(default=(), description="a sentence for each NaN")
    folder: str | None = Field(default=None, description="it has a link for each cell's files")

    @property
    def still_open(self) -> int:
        """How many cells are still open."""
        return sum(count for state, count in self.counts.items() if state in OPEN)

    @property
    def words(self) -> str:
        """The counts in a line."""
        said = ", ".join(f"{count} {state}" for state, count in self.counts.items() if count)
        return f"{some(len(self.rows), 'cell')}: {said}"

    def on(self, lease: str) -> list[CellRow]:
        """Return the cells that are on that lease."""
        return [row for row in self.rows if row.lease == lease]


def reckon(
    sweep: Sweep,
    placements: Sequence[Placement],
    here: Mapping[LeaseId, Here],
    *,
    leases: Sequence[LeaseId],
    settlements: Sequence[Settlement] = (),
    given_up: Collection[str] = (),
) -> Reckoning:
    """Put every declared cell in one of the nine states, and say what somebody must look at.

    `placements` are ordered oldest first. A cell counts as verified if everything that it declared was
    collected after the cell had ended. It counts as missing if some of its files are not here and no more can come:
    the box was sealed after the cell had ended, or the box is gone. A cell that was `given_up` counts as given up
    once it is on no box.
    """
    of_cell: dict[str, list[Placement]] = defaultdict(list)
    for placement in placements:
        of_cell[placement.cell].append(placement)
    mine = {
        lease: _owned_files(held, sweep, {p.cell for p in placements if p.lease_id == lease})
        for lease, held in here.items()
    }
    rows = [_row(sweep, cell, of_cell[cell.name], here, mine) for cell in sweep.grid.cells]
    rows = [
        row.model_copy(update={"state": "given_up"})
        if row.state == "waiting" and row.cell in given_up
        else row
        for row in rows
    ]
    twins = tuple(_twins(rows, mine))
    wrong = [_sentence(row, of_cell[row.cell]) for row in rows if row.state in WRONG]
    wrong += [_of_twins(alike) for alike in twins]
    digest = _digest(rows, twins)
    accepted = next((s for s in reversed(settlements) if s.digest == digest), None)
    counted = Counter(row.state for row in rows)
    return Reckoning(
        sweep=sweep.id,
        command=sweep.grid.command,
        leases=tuple(leases),
        rows=tuple(rows),
        counts={state: counted[state] for state in STATES},
        twins=twins,
        wrong=tuple(wrong),
        digest=digest,
        settled_by=accepted.by if accepted and wrong else None,
    )


def whole_on(
    sweep: Sweep, lease: LeaseId, placements: Sequence[Placement], here: Here
) -> dict[str, frozenset[str]]:
    """Return the cells on that lease whose files are all on this computer, each with the names of its files."""
    mine = [p for p in placements if p.lease_id == lease]
    owned = _owned_files(here, sweep, {p.cell for p in mine})
    found = {}
    for placement in mine:
        cell = sweep.cell(placement.cell)
        if cell and _proof(sweep, cell, placement, here, owned) == "verified":
            found[placement.cell] = frozenset(owned[placement.cell])
    return found


def stands_in_the_way(table: Reckoning, lease: str) -> str:
    """Say why the sweep does not let that lease end yet. Empty if it does.

    A cell that went wrong keeps no box: that is a verdict on its work, and the lease's end proves its files anyway.
    """
    still = [row.cell for row in table.on(lease) if row.state in ("running", "queued")]
    return f"{_some_of(still)} of {table.sweep} {_are(still)} still to run there" if still else ""


# One cell


def _row(
    sweep: Sweep,
    cell: Cell,
    placements: Sequence[Placement],
    here: Mapping[LeaseId, Here],
    mine: Mapping[LeaseId, Mapping[str, Mapping[str, str]]],
) -> CellRow:
    now = next((p for p in reversed(placements) if p.released is None), None)
    said = now.said if now else None
    ended_badly = said is not None and said.word in ("failed", "killed", "stopped", "withdrawn")
    return CellRow(
        cell=cell.name,
        state=_state(sweep, cell, placements, now, here, mine),
        lease=now.lease_id if now else None,
        job=now.job if now else None,
        attempts=sum(p.said.attempts for p in placements if p.said),
        why=_why(said) if said and ended_badly else None,
        parameters=cell.parameters,
    )


def _state(
    sweep: Sweep,
    cell: Cell,
    placements: Sequence[Placement],
    now: Placement | None,
    here: Mapping[LeaseId, Here],
    mine: Mapping[LeaseId, Mapping[str, Mapping[str, str]]],
) -> CellState:
    # A cell that finished on two boxes is a duplicate. Two kinds of result do not count for that: a result that was
    # lost with its box, and a result whose cell was released to run again.
    done = {
        p.lease_id
        for p in placements
        if p.released in (None, "withdrawn") and p.said and p.said.word == "finished"
    }
    if len(done) > 1:
        return "duplicate"
    if now is None:
        return "waiting"
    match now.said.word if now.said else "queued":
        case "running":
            return "running"
        case "failed" | "killed" | "stopped":
            return "failed"
        case "finished":
            held = here.get(now.lease_id)
            return _proof(sweep, cell, now, held, mine[now.lease_id]) if held else "finished"
        case "withdrawn":
            return "failed" if now.said and now.said.attempts else "queued"
        case "queued" | "needs_env":
            return "queued"


def _proof(
    sweep: Sweep,
    cell: Cell,
    placement: Placement,
    here: Here,
    owned: Mapping[str, Mapping[str, str]],
) -> Literal["verified", "finished", "missing"]:
    """Return whether a finished cell's files are all here (`verified`), may come (`finished`), or are `missing`."""
    said, files = placement.said, owned.get(cell.name, {})
    if said is None or said.word != "finished":
        return "finished"
    patterns = sweep.grid.artifacts_of(cell)
    is_all = all(any(matches_kept_name(pattern, name) for name in files) for pattern in patterns)
    if placement.job in here.ended:
        return "verified" if is_all else "missing"
    came_after = here.as_of is not None and said.heard_at <= here.as_of
    lacks = any(matches_kept_name(pattern, name) for pattern in patterns for name in here.lacking)
    if is_all and came_after and not lacks:
        return "verified"
    return "finished" if here.more == "may come" else "missing"


def _owned_files(here: Here, sweep: Sweep, cells: set[str]) -> dict[str, dict[str, str]]:
    """Return the files here, by the cell that declared them. If several cells' names fit a path, the longest wins."""
    patterns = {
        cell.name: sweep.grid.artifacts_of(cell) for cell in sweep.grid.cells if cell.name in cells
    }
    sizes = sorted({len(name) for name in patterns}, reverse=True)
    found: dict[str, dict[str, str]] = {name: {} for name in patterns}
    alone = next(iter(patterns)) if len(sweep.grid.cells) == 1 and patterns else None
    for name, held in here.files.items():
        for cell in (alone,) if alone else _mentions(name, patterns, sizes):
            if any(matches_kept_name(pattern, name) for pattern in patterns[cell]):
                found[cell][name] = held
                break
    return found


def _mentions(path: str, cells: Mapping[str, object], sizes: Sequence[int]) -> Iterator[str]:
    """Yield the cells whose names occur in the path, the longest name first."""
    for size in sizes:
        for at in range(len(path) - size + 1):
            if path[at : at + size] in cells:
                yield path[at : at + size]


def _twins(
    rows: Sequence[CellRow], mine: Mapping[LeaseId, Mapping[str, Mapping[str, str]]]
) -> Iterator[tuple[str, ...]]:
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        if row.state == "verified" and row.lease is not None:
            files = mine[LeaseId(row.lease)][row.cell]
            alike[tuple(sorted(files.values()))].append(row.cell)
    return (tuple(cells) for hashes, cells in alike.items() if hashes and len(cells) > 1)


# In words


def _sentence(row: CellRow, placements: Sequence[Placement]) -> str:
    match row.state:
        case "failed":
            times = f" after {some(row.attempts, 'attempt')}" if row.attempts > 1 else ""
            return f"{row.cell} failed{times} on {row.lease}: {row.why}"
        case "missing":
            return f"{row.cell} finished on {row.lease}, but not all the files that it declares were there"
        case _:
            where = sorted({p.lease_id for p in placements if p.said and p.said.word == "finished"})
            return (
                f"{row.cell} finished on {' and on '.join(where)}, so it has more than one result"
            )


def _of_twins(alike: Sequence[str]) -> str:
    return f"the files of {', '.join(alike)} are identical, although their parameters differ"


def _digest(rows: Sequence[CellRow], twins: Sequence[tuple[str, ...]]) -> str:
    lines = [f"{row.cell} {row.state} {row.job}" for row in rows if row.state in WRONG]
    lines += [f"twins {' '.join(alike)}" for alike in twins]
    return sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def _why(said: Said) -> str:
    if said.reason == "exit" and said.exit_code is not None:
        return f"exit {said.exit_code}"
    return said.reason or said.word


def _some_of(cells: Sequence[str]) -> str:
    more = f" and {len(cells) - _NAMED} more" if len(cells) > _NAMED else ""
    return ", ".join(cells[:_NAMED]) + more


def _are(cells: Sequence[str]) -> str:
    return "is" if len(cells) == 1 else "are"
