"""Reads the logs of jobs, on the box or on this computer."""

import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from gpu_tenant.box.job_queue import TurnStatus
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTrouble,
    BoxUnreachable,
    ProviderTrouble,
    Refused,
)
from gpu_tenant.domain.model import Job, JobId, Lease
from gpu_tenant.files.state_dir import is_reached
from gpu_tenant.jobs.logs.cache import LogCopy, forget_copies
from gpu_tenant.jobs.logs.source import Log, LogHere, LogOnBox
from gpu_tenant.jobs.logs.window import Hits, LogWindow, search, window
from gpu_tenant.jobs.monitor import job_of
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.readiness import must_run, why_silent

_Read = TypeVar("_Read", LogWindow, Hits)


async def log_window(
    context: Context, lease: str, job: str | None, *, start: int, limit: int
) -> LogWindow:
    """Read about `limit` bytes of the log's lines from `start` on. See `window.window`.

    A negative `start` counts from the log's end.

    Raises:
        BadRequest: there is no such job, or its lease has ended and its log was never brought here.
        BoxTrouble, ProviderTrouble, Refused: the box does not answer, and no part of the log is here.
    """
    return await _read_log(context, lease, job, lambda log: window(log, start=start, limit=limit))


async def log_search(
    context: Context,
    lease: str,
    job: str | None,
    *,
    q: str,
    start: int = 0,
    case: Literal["no", "yes"] = "no",
    budget_s: float = 1.0,
) -> Hits:
    """Find the log's lines from byte `start` on that contain the text `q`. See `window.search`.

    Raises:
        BadRequest: as for a window; or there is nothing to search for.
        BoxTrouble, ProviderTrouble, Refused: as for a window.
    """
    return await _read_log(
        context, lease, job, lambda log: search(log, q=q, start=start, case=case, budget_s=budget_s)
    )


async def _read_log(
    context: Context, lease: str, job: str | None, read: Callable[[Log], Awaitable[_Read]]
) -> _Read:
    found = context.ledger.lease(lease)
    _forget_copies(context)
    if not found.state.live or not found.lets_us_in:
        here = _log_here(context, found, job)
        if here is None:
            raise BadRequest(
                f"the log of {job or 'that job'} is not on this computer, and the box of {found.id} does not run",
                remedy=f"{Command('leases', all=True)} shows the state of the lease, and what was kept",
            )
        return await read(here)
    try:
        box = await must_run(context, found.id)
        run = await run_of(context, box, job)
        copy = LogCopy(context.home.logs / box.id / f"{run}.log")
        return await read(LogOnBox(run, context.caretaker(box), copy))
    except (BoxTrouble, ProviderTrouble, Refused) as trouble:
        here = _log_here(context, found, job)
        if here is not None:
            return await read(here)
        if isinstance(trouble, BoxUnreachable):
            raise await why_silent(context, found, trouble) from None
        raise


async def run_of(context: Context, lease: Lease, name: str | None) -> JobId:
    """Return the box's id for the job of that name. For a cell of a sweep, it is the latest run, unless a run is named.

    Without a name, it is the newest job. If that is a cell, it is a cell that runs, else the one that ended last.

    Raises:
        BadRequest: there is no such job.
        BoxTrouble: the box could not be asked.
    """
    if _is_run_of_cell(context, lease, name):
        return JobId(name or "")
    chosen, cells = (
        job_of(lease, name, ledger=context.ledger),
        context.ledger.cell_jobs(lease.id),
    )
    turns: tuple[TurnStatus, ...] = ()
    if chosen.id in cells:
        turns = (await context.runner(lease).roll()).jobs
        if name is None:
            begun = newest_begun([x for x in turns if x.job in cells])
            chosen = chosen if begun is None else job_of(lease, begun, ledger=context.ledger)
    if name is None and chosen.launched_at is None and chosen.id not in {x.job for x in turns}:
        chosen = await _begun(context, lease, chosen)
    if chosen.id not in cells:
        return chosen.id
    said = (x.run for x in turns if x.job == chosen.id and x.run)
    return next((JobId(run) for run in said if is_run(run, of=chosen.id)), chosen.id)


def newest_begun(cells: Sequence[TurnStatus]) -> str | None:
    """Return the cell that began last of those that run, else of those that have ended. None if none has begun."""
    begun = [x for x in cells if x.started_at is not None]
    newest = max(begun, key=lambda x: (x.state == "running", x.started_at or 0), default=None)
    return newest.job if newest else None


async def _begun(context: Context, lease: Lease, newest: Job) -> Job:
    """Return the newest job if the box has begun it. Otherwise return the newest job that was launched before.

    If none was launched, return the newest job anyway.
    """
    standing = await context.caretaker(lease).standing()
    if any(told.job == newest.id and told.state != "absent" for told in standing.jobs):
        return newest  # it has begun, and only its confirmation was lost
    launched = [job for job in context.ledger.jobs(lease.id) if job.launched_at is not None]
    return launched[-1] if launched else newest


def _is_run_of_cell(context: Context, lease: Lease, name: str | None) -> bool:
    cells = context.ledger.cell_jobs(lease.id)
    cell, _, number = (name or "").rpartition(".")
    return name not in cells and cell in cells and number.isdigit()


def _log_here(context: Context, lease: Lease, job: str | None) -> LogHere | None:
    """Find the log on this computer: the collected log, or a copy of the part that was read before.

    While the lease is live, take the longer of the two. None if there is neither.
    """
    named = _is_run_of_cell(context, lease, job)
    name = job if named and job else job_of(lease, job, ledger=context.ledger).id
    others = {other.id for other in context.ledger.jobs(lease.id)} - {name}
    kept = _latest(context.kept_in(lease), "log", name, others)
    seen = _latest(context.home.logs, lease.id, name, others)
    if kept is None or seen is None or not lease.state.live:
        place = kept or seen
    else:
        place = max(kept, seen, key=lambda path: path.stat().st_size)
    if place is None:
        return None
    return LogHere(place, "kept" if place == kept else "seen")


def _forget_copies(context: Context) -> None:
    """Delete the copies of logs that were read earlier, if the lease has ended and the log itself was collected."""
    if not context.home.logs.is_dir():
        return
    for copies in context.home.logs.iterdir():
        lease = context.ledger.find_lease(copies.name)
        if lease is not None and not lease.state.live:
            forget_copies(copies, context.kept_in(lease) / "log")


def is_run(said: str, *, of: str) -> bool:
    """Whether that word from a box is a valid name for a run of the job.

    Only a valid name may be used as a file name on this computer.
    """
    return re.fullmatch(rf"{re.escape(of)}\.[1-9][0-9]{{0,8}}", said) is not None


def _latest(root: Path, directory: str, name: str, others: set[JobId]) -> Path | None:
    """Find the log of the job's latest run in that directory. None if none is there, or if a link leads out of it."""
    is_run = re.compile(rf"{re.escape(name)}(?:\.(\d+))?\.log")
    place = root / directory
    runs = [
        (int(run[1] or 1), path)
        for path in (place.iterdir() if place.is_dir() else ())
        if (run := is_run.fullmatch(path.name)) and path.name.removesuffix(".log") not in others
    ]
    path = max(runs)[1] if runs else None
    return path if path is not None and path.is_file() and is_reached(root, path) else None
