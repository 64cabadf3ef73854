"""The record of a sweep: what it runs, where each cell was put, and what its box last said about it."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.model import JobId, LeaseId
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.sweep_grid import Cell, Grid

Word = Literal[
    "queued", "needs_env", "running", "finished", "failed", "killed", "stopped", "withdrawn"
]
"""What a box says about a job that was queued there."""

OVER: frozenset[Word] = frozenset({"finished", "failed", "killed", "stopped"})
"""The job ran, and no longer runs."""

Released = Literal["withdrawn", "lost", "again"]
"""Why a cell was released: it never ran there, its box no longer exists, or it should run once more."""


class Sweep(Record):
    """A declared grid under one id, and how its cells are run. No variable's value is stored in it."""

    id: str
    grid: Grid
    env_names: tuple[str, ...]
    env_from: tuple[str, ...]
    max_runtime_s: float | None
    attempts: int = Field(description="how often a cell that fails is started in all")
    slots: int | None = Field(
        description="how many cells run at once on a box; None: one for each GPU"
    )
    python: Literal["prepared", "image"]
    at: AwareDatetime

    def cell(self, name: str) -> Cell | None:
        """Return the cell with that name. None if there is none."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> Mapping[str, Cell]:
        return {cell.name: cell for cell in self.grid.cells}


class Said(Record):
    """What a box said about one cell, and when."""

    word: Word
    attempts: int = 0
    exit_code: int | None = None
    reason: str | None = None
    began_at: float | None = Field(
        default=None, description="when its last run began and ended, by the box's clock"
    )
    ended_at: float | None = None
    heard_at: AwareDatetime


class Placement(Record):
    """A cell given to a lease, as a job there."""

    seq: int
    cell: str
    lease_id: LeaseId
    job: JobId
    at: AwareDatetime
    released: Released | None
    said: Said | None = Field(
        description="the latest report; None: the box has said nothing about it"
    )
    reread_at: AwareDatetime | None = Field(
        default=None,
        description="when the cell's files were found complete here, after its box was lost",
    )


class Settlement(Record):
    """A person's statement that they accept exactly this list of what is wrong with a sweep."""

    digest: str
    wrong: tuple[str, ...]
    by: str
    at: AwareDatetime


def by_lease(placements: Sequence[Placement]) -> dict[LeaseId, list[Placement]]:
    """Return the placements of each lease, in their order."""
    found: dict[LeaseId, list[Placement]] = {}
    for placement in placements:
        found.setdefault(placement.lease_id, []).append(placement)
    return found
