"""Runs one command over a grid of parameters on many boxes: begins a sweep, counts its cells, accepts its faults."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

from pydantic import Field

from gpu_tenant.artifacts.destination import require_its_own
from gpu_tenant.artifacts.inventory import files_here
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest, Refused, SweepOpen, TenantError
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.sweep_grid import Grid
from gpu_tenant.domain.sweep_placement import Settlement, Sweep
from gpu_tenant.files.patterns import require_narrow, require_patterns
from gpu_tenant.leases.allowed_references import must_be_allowed
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.term_checks import attempts
from gpu_tenant.providers.credentials import references, resolve_all
from gpu_tenant.sweeps.results import link_by_cell, with_results
from gpu_tenant.sweeps.status import CellRow, Reckoning, reckon, stands_in_the_way
from gpu_tenant.sweeps.tend import (
    Answered,
    hear,
    is_open,
    placements_of,
    takes_cells,
    tend_sweep,
    unrecorded_names,
)

_TERMS = {
    "env_from": Option("env"),
    "max_runtime_s": Option("max-runtime-h"),
    "attempts": Option("attempts"),
    "slots": Option("slots"),
    "python": Option("python"),
}
"""The settings of a sweep that a repeated launch must not change, each with its option."""


_OVER_TOLD, _ROWS_TOLD = 5, 64
"""At most so many sweeps that are over, and so many cells of one sweep, have a line."""


class SweepReport(Record):
    """A sweep after one round of work on it: its table, and what could not be done now."""

    table: Reckoning
    troubles: tuple[str, ...] = Field(description="tried again with the next look")


async def begin_sweep(
    context: Context,
    leases: Sequence[str],
    grid: Grid,
    *,
    env: Sequence[str] = (),
    max_runtime_s: float | None = None,
    attempts: int = 1,
    slots: int | None = None,
    python: Literal["prepared", "image"] = "prepared",
) -> SweepReport:
    """Record every cell of the grid, and queue it on one of the leases, now or later. It runs without this computer.

    The same call continues a sweep of exactly that grid: the leases join it, and no cell is begun twice.
    `attempts` is how often a failing cell is started in all. `slots` is how many cells run at the same time on a box.

    Raises:
        BadRequest, Refused: the sweep cannot be begun like this; nothing was begun.
    """
    if not grid.artifacts:
        raise BadRequest(
            "the cells declare nothing to keep, so their boxes could never be verified",
            remedy=f"name their outputs: {Command('launch', artifact='out/{cell}/', then='COMMAND')}",
        )
    require_patterns((*grid.artifacts, *grid.discard))
    require_narrow(grid.discard)
    env_from = references(env)
    if unknown := unrecorded_names(env_from):
        raise BadRequest(
            f"the value of {unknown[0]} would not be on record, but cells may be started days from now",
            remedy=f"make it a parameter of the grid, or give a reference to it: `{unknown[0]}=env:{unknown[0]}`",
        )
    found = [_fit(context, lease) for lease in dict.fromkeys(leases)]
    known = context.ledger.sweep_like(grid.digest)
    ended = known.id if known is not None and _has_ended(context, known) else None
    for lease in found:
        require_its_own(context.session(lease), grid.artifacts)
        _must_be_free(context, lease, grid, None if ended else known)
    values = resolve_all(env, context.environ, key_places=context.key_places)
    must_be_allowed(context, found, env)
    wanted = Sweep(
        id="",
        grid=grid,
        env_names=tuple(values),
        env_from=tuple(sorted(env_from)),
        max_runtime_s=max_runtime_s,
        attempts=attempts,
        slots=slots,
        python=python,
        at=context.clock.now(),
    )
    sweep = context.ledger.declare_sweep(wanted, after=ended)
    _must_be_alike(sweep, wanted)
    context.ledger.join_sweep(sweep.id, [lease.id for lease in found], at=context.clock.now())
    return await tend(context, sweep.id, values=values)


async def tend(
    context: Context,
    sweep_id: str,
    *,
    values: Mapping[str, str] | None = None,
    no_more_cells_on: LeaseId | None = None,
    by: str | None = None,
) -> SweepReport:
    """Ask every box of the sweep, complete what an earlier call left half done, and give idle boxes work.

    A box that does not answer keeps its cells. A box that its provider no longer lists loses the cells whose
    files are not on this computer, and other boxes run those cells. `values` are the values of the sweep's
    variables, if they are already known. The lease `no_more_cells_on` is given no more cells. `by` is
    the metric that the table is sorted by.
    """
    sweep = context.ledger.sweep(sweep_id)
    troubles = await tend_sweep(context, sweep, values, no_more_cells_on)
    table = await sorted_of(context, sweep.id, by=by)
    folder = context.home.sweep(sweep.id)
    if await asyncio.to_thread(link_by_cell, folder, table.rows):
        table = table.model_copy(update={"folder": os.fspath(folder)})
    return SweepReport(table=table, troubles=troubles)


async def sorted_of(context: Context, sweep_id: str, *, by: str | None = None) -> Reckoning:
    """Make the sweep's table from what is on record, with each cell's results, the best first. No box is asked."""
    sweep = context.ledger.sweep(sweep_id)
    # With thousands of cells this takes a while. In a thread, it does not block anything else.
    table = await asyncio.to_thread(_to_reckon(context, sweep.id))
    placements = context.ledger.placements(sweep.id)
    leases = {lease: context.ledger.lease(lease) for lease in table.leases}
    return await asyncio.to_thread(partial(with_results, table, sweep, placements, leases, by=by))


async def add_to_sweep(context: Context, sweep_id: str, leases: Sequence[str]) -> SweepReport:
    """Let cells of the sweep that have not begun also run on those leases."""
    sweep = context.ledger.sweep(sweep_id)
    found = [_fit(context, lease) for lease in dict.fromkeys(leases)]
    for lease in found:
        _must_be_free(context, lease, sweep.grid, sweep)
    must_be_allowed(context, found, sweep.env_from)
    context.ledger.join_sweep(sweep.id, [lease.id for lease in found], at=context.clock.now())
    return await tend(context, sweep.id)


async def retry_cells(context: Context, sweep_id: str, cells: Sequence[str]) -> SweepReport:
    """Run cells once more, by the same command, if they failed or did not leave everything that they declared.

    Raises:
        BadRequest, Refused: there is no such cell, or it may still run, or it is done.
    """
    rows = {row.cell: row for row in (await tend(context, sweep_id)).table.rows}
    for cell in cells:
        if cell not in rows:
            raise _no_cell(sweep_id, cell)
        if rows[cell].state not in ("failed", "missing"):
            raise Refused(
                f"{cell} is {rows[cell].state}, but only a cell that failed or is missing runs again",
                remedy=str(Command("sweep", sweep_id)),
            )
    again = [p for p in placements_of(context, context.ledger.sweep(sweep_id)) if p.cell in cells]
    context.ledger.release(again, "again", at=context.clock.now())
    return await tend(context, sweep_id)


async def give_up_cells(
    context: Context, sweep_id: str, cells: Sequence[str] | Literal["rest"]
) -> SweepReport:
    """Give up cells that have not begun: they will not run on any box. With `rest`, give up all such cells.

    A box that does not answer now withdraws its cells when it answers next. A cell that begins before that
    keeps running.

    Raises:
        BadRequest, Refused: there is no such cell, or it has begun.
    """
    rows = {row.cell: row for row in (await tend(context, sweep_id)).table.rows}
    has_not_begun = ("waiting", "queued", "given_up")
    if cells == "rest":
        cells = [name for name, row in rows.items() if row.state in has_not_begun]
    for cell in cells:
        if cell not in rows:
            raise _no_cell(sweep_id, cell)
        if rows[cell].state not in has_not_begun:
            raise Refused(
                f"{cell} is {rows[cell].state}, but only a cell that has not begun can be given up",
                remedy=f"{Command('sweep', sweep_id, settle=True)} accepts what went wrong",
            )
    context.ledger.give_up(sweep_id, cells, at=context.clock.now())
    return await tend(context, sweep_id)


def settle_sweep(context: Context, sweep_id: str) -> Reckoning:
    """Accept exactly what is wrong with the sweep now, if a person has signed for it. Later faults are not accepted.

    Raises:
        SignatureWanted: nobody has signed for that.
    """
    table, at = reckoned_of(context, sweep_id), context.clock.now()
    if not table.wrong or table.settled_by:
        return table
    code = context.ledger.must_be_signed(
        kind="settle",
        subject=sweep_id,
        digest=table.digest,
        words=table.wrong,
        would=f"accepting what is wrong with {sweep_id}, so that it raises no alarm",
        at=at,
    )
    signature = context.ledger.signature(code)
    assert signature is not None
    settlement = Settlement(digest=table.digest, wrong=table.wrong, by=signature.signed_by, at=at)
    context.ledger.settle_sweep(sweep_id, settlement, signature=code)
    for lease in context.ledger.leases_of_sweep(sweep_id):
        if context.ledger.lease(lease).state.live:
            context.ledger.note(lease, timeline.Accepted(sweep=sweep_id), at=at)
    return reckoned_of(context, sweep_id)


def reckoned_of(context: Context, sweep_id: str) -> Reckoning:
    """Make the sweep's table from what is on record. No box is asked."""
    return _to_reckon(context, sweep_id)()


def _to_reckon(context: Context, sweep_id: str) -> Callable[[], Reckoning]:
    """Return a function that makes the table of what is on record now. It may be called in any thread."""
    sweep, leases = context.ledger.sweep(sweep_id), context.ledger.leases_of_sweep(sweep_id)
    here = {
        lease: files_here(context.ledger.lease(lease), ledger=context.ledger) for lease in leases
    }
    return partial(
        reckon,
        sweep,
        context.ledger.placements(sweep_id),
        here,
        leases=leases,
        settlements=context.ledger.settlements(sweep_id),
        given_up=context.ledger.given_up(sweep_id),
    )


def open_sweeps(context: Context) -> list[str]:
    """Return the sweeps that have a live lease, or cells that wait for one. The oldest comes first."""
    return [
        sweep_id
        for sweep_id in context.ledger.sweeps()
        if any(context.ledger.lease(x).state.live for x in context.ledger.leases_of_sweep(sweep_id))
        or is_open(context, context.ledger.sweep(sweep_id))
    ]


async def tend_all(
    context: Context, which: Literal["live", "all"] = "live", search: str = ""
) -> tuple[str, ...]:
    """Do what each sweep that is not over needs next. Return a line for each sweep, with what is wrong.

    With `all`, the newest that are over have a line, too. If `search` is the id of a sweep, only that one is told, with
    a line for each of its cells.
    """
    told = list[str]()
    known, going = context.ledger.sweeps(), open_sweeps(context)
    over = [x for x in known if x not in going][-_OVER_TOLD:] if which == "all" else []
    for sweep_id in [search] if search in known else [*over, *going]:
        try:
            if sweep_id in going:
                tended = await tend(context, sweep_id)
            else:
                tended = SweepReport(table=await sorted_of(context, sweep_id), troubles=())
        except TenantError as trouble:
            told.append(f"{sweep_id}: {trouble.message}; {trouble.remedy}")
            continue
        wrong = () if tended.table.settled_by else tended.table.wrong
        more = [f"and {len(wrong) - 1} more"] if wrong[1:] else []
        best = [f"best {tended.table.best}"] if tended.table.best else []
        said = [tended.table.words, *best, *wrong[:1], *more, *tended.troubles[:1]]
        told.append(f"{sweep_id}: {'; '.join(said)}")
        if sweep_id == search:
            told += map(_row_words, tended.table.rows[:_ROWS_TOLD])
    return tuple(told)


def _row_words(row: CellRow) -> str:
    """Tell one cell in a line: its state, its lease, why it failed, and its results."""
    results = (f"{name}={value:g}" for name, value in row.metrics.items())
    return f"{row.cell}: {', '.join(filter(None, (row.state, row.lease, row.why, *results)))}"


async def tend_on(context: Context, lease: str) -> None:
    """Do what each sweep with cells on that lease needs next, as far as is possible now.

    A failure here is not reported to the caller, who asked about the lease. The next look reports it.
    """
    for sweep_id in context.ledger.sweeps_on(lease):
        with suppress(TenantError):
            await tend(context, sweep_id)


async def vacate(context: Context, lease: str) -> None:
    """Let no further cell begin on that box. Cells that had not begun may run elsewhere.

    Raises:
        BoxTrouble: the box could not be asked.
    """
    found = context.ledger.lease(lease)
    for sweep_id in context.ledger.sweeps_on(lease):
        sweep = context.ledger.sweep(sweep_id)
        mine = [p.job for p in placements_of(context, sweep) if p.lease_id == found.id]
        runner = context.runner(found)
        if mine:
            await runner.withdraw(mine)
            hear(context, sweep, [Answered(found, await runner.roll(), slots=0, slot_gpus=None)])


async def must_be_reckoned(context: Context, lease: Lease) -> None:
    """Check that no sweep keeps the lease from ending.

    If the lease is already being ended because of its terms (such as its deadline), no sweep prevents that.

    Raises:
        SweepOpen: cells are still to run on the lease.
    """
    if lease.state is not LeaseState.ACTIVE or attempts(context.ledger.events(lease.id)):
        return
    for sweep_id in context.ledger.sweeps_on(lease.id):
        table = (await tend(context, sweep_id, no_more_cells_on=lease.id)).table
        if reason := stands_in_the_way(table, lease.id):
            words = f"{lease.id} keeps its box, because of {sweep_id}: {reason}"
            context.ledger.note(lease.id, timeline.Refused(words=words), at=context.clock.now())
            raise SweepOpen(
                words,
                remedy=f"{Command('monitor', lease.id)} shows what runs there; {Command('stop', lease.id)} ends it",
            )


def _fit(context: Context, lease: str) -> Lease:
    """Return the lease, if it takes cells.

    Raises:
        Refused: the lease takes no cells.
    """
    found = context.ledger.lease(lease)
    if not takes_cells(context, found):
        raise Refused(
            f"{found.id} takes no cells: it is {found.state}, or its time is over",
            remedy=f"{Command('leases')}; {Command('extend', found.id, hours='N')} moves a deadline",
        )
    return found


def _has_ended(context: Context, sweep: Sweep) -> bool:
    """Whether the sweep is over and its boxes are gone. Then a launch of the same grid begins another sweep."""
    leases = context.ledger.leases_of_sweep(sweep.id)
    is_live = any(context.ledger.lease(x).state.live for x in leases)
    return not is_live and not is_open(context, sweep)


def _must_be_free(context: Context, lease: Lease, grid: Grid, sweep: Sweep | None) -> None:
    """Check that no job on the lease from outside the sweep has the name of one of the grid's cells.

    No other sweep on the lease may add such a job either.

    Raises:
        BadRequest: a job has such a name, or may get one.
    """
    placed = context.ledger.placements(sweep.id) if sweep is not None else []
    ours = {p.job for p in placed if p.lease_id == lease.id}
    names = {str(job.id) for job in context.ledger.jobs(lease.id) if job.id not in ours}
    for other in context.ledger.sweeps_on(lease.id):
        if sweep is None or other != sweep.id:
            names |= {cell.name for cell in context.ledger.sweep(other).grid.cells}
    if clash := sorted(names & {cell.name for cell in grid.cells}):
        raise BadRequest(
            f"{lease.id} has a job {clash[0]} that does not belong to this sweep, or may get one",
            remedy=f"give the sweep a name, with which its cells' names then begin: {Option('name')}",
        )


def _must_be_alike(known: Sweep, wanted: Sweep) -> None:
    """Check that the known sweep of the same grid runs its cells in the way that is wanted now.

    Raises:
        BadRequest: it runs them in another way.
    """
    for term, option in _TERMS.items():
        if getattr(known, term) != getattr(wanted, term):
            raise BadRequest(
                f"{known.id} runs exactly that grid, but with another {option}",
                remedy=f"launch it with the former {option}, to continue {known.id}; or begin another sweep with a {Option('name')}",
            )


def _no_cell(sweep_id: str, cell: str) -> BadRequest:
    return BadRequest(f"{sweep_id} has no cell {cell!r}", remedy=str(Command("sweep", sweep_id)))
