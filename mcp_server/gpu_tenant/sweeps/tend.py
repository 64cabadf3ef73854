"""One round of work on a sweep: ask every box, send again the cells that did not arrive, and give idle boxes cells.

A sweep is a grid of jobs over several boxes, and a cell is one of these jobs.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_tenant.artifacts.inventory import files_here, is_kept, still_here
from gpu_tenant.box.environment.history import activation
from gpu_tenant.box.environment.mirrors import mirrors
from gpu_tenant.box.guard import arm
from gpu_tenant.box.job_queue import MAY_RUN, QueuedJob, Roll
from gpu_tenant.concurrency import each
from gpu_tenant.domain.command import Option
from gpu_tenant.domain.errors import LeaseHeld, TenantError
from gpu_tenant.domain.model import Job, JobId, Lease, LeaseId, LeaseState, SlurmAddress
from gpu_tenant.domain.sweep_grid import Cell, variables_of
from gpu_tenant.domain.sweep_placement import OVER, Placement, Said, Sweep, by_lease
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.term_checks import attempts
from gpu_tenant.providers.credentials import resolve_all
from gpu_tenant.sweeps.scheduler import Load, deal, surplus
from gpu_tenant.sweeps.status import whole_on

_AT_ONCE = 500
"""One request hands at most this many cells to a box."""
_WRITTEN = "=text:"
_GPUS = ["sh", "-c", "nvidia-smi -L 2>/dev/null || true"]


@dataclass(frozen=True, slots=True)
class Answered:
    """A box that answered: what is queued on it, and how many cells it runs at the same time."""

    lease: Lease
    roll: Roll
    slots: int
    """How many cells may run on the box at the same time. With 0, the box is given nothing more."""
    slot_gpus: tuple[str, ...] | None
    """Which GPUs each slot sees. None leaves the box's slots and their GPUs as they are."""


async def tend_sweep(
    context: Context,
    sweep: Sweep,
    values: Mapping[str, str] | None,
    no_more_cells_on: LeaseId | None,
) -> tuple[str, ...]:
    """Do what the sweep needs next, unless this tenancy must change nothing (`tending` is off).

    The lease `no_more_cells_on` is given no more cells. Returns what could not be done now, each item as one sentence.
    """
    if context.tending == "off":
        return ()
    troubles: list[str] = []
    try:
        with context.hold_lease(sweep.id, "tend"):
            await _let_go(context, sweep, troubles)
            if is_open(context, sweep):
                await _move_on(context, sweep, values, no_more_cells_on, troubles)
    except LeaseHeld as held:
        troubles.append(held.message)
    return tuple(troubles)


def is_open(context: Context, sweep: Sweep) -> bool:
    """Whether a cell may still run, or something remains to be done for a cell."""
    there = placements_of(context, sweep)
    is_over = {p.cell for p in there if p.said is not None and p.said.word in OVER}
    nowhere = context.ledger.given_up(sweep.id) - {p.cell for p in there}
    return len(is_over | nowhere) < len(sweep.grid.cells)


def placements_of(context: Context, sweep: Sweep) -> list[Placement]:
    """Return the placements of the sweep's cells, without those that were released."""
    return [p for p in context.ledger.placements(sweep.id) if p.released is None]


async def _let_go(context: Context, sweep: Sweep, troubles: list[str]) -> None:
    """Take the cells from boxes that are gone, except cells that ended there.

    On a lost box, a finished cell counts as ended only if its files are on this computer.
    """
    for lease_id, mine in by_lease(placements_of(context, sweep)).items():
        lease = context.ledger.lease(lease_id)
        if lease.state not in (LeaseState.LOST, LeaseState.GONE):
            continue
        # GONE: the box was torn down, so its files had been verified, or somebody had given them up. LOST: nobody knows
        # what became of its files.
        stays = OVER if lease.state is LeaseState.GONE else OVER - {"finished"}
        doubtful = [
            p for p in mine if not p.reread_at and (p.said is None or p.said.word not in stays)
        ]
        if doubtful and not is_kept(lease):
            troubles.append(
                f"{lease.id} is lost, and the directory {lease.kept_in}, where its files are kept, does not exist; "
                "mount that directory again; or, if its files are lost, create it empty, and the cells will run again"
            )
            continue
        held = files_here(lease, ledger=context.ledger)
        whole = await asyncio.to_thread(whole_on, sweep, lease.id, doubtful, held)
        # Nobody verified a lost box's files before it went, so the files on this computer are read once more.
        read = [
            placement
            for placement in doubtful
            if placement.cell in whole
            and await still_here(whole[placement.cell], lease, ledger=context.ledger)
        ]
        context.ledger.reread(read, at=context.clock.now())
        kept = {placement.seq for placement in read}
        lost = [placement for placement in doubtful if placement.seq not in kept]
        context.ledger.release(lost, "lost", at=context.clock.now())


async def _move_on(
    context: Context,
    sweep: Sweep,
    values: Mapping[str, str] | None,
    no_more_cells_on: LeaseId | None,
    troubles: list[str],
) -> None:
    boxes = await _ask_boxes(context, sweep, no_more_cells_on, troubles)
    hear(context, sweep, boxes)
    await _drop(context, sweep, boxes)
    await _level(context, sweep, [box for box in boxes if box.lease.id != no_more_cells_on])
    _place(context, sweep, boxes)
    unsent = {box.lease.id: _unsent(context, sweep, box) for box in boxes}
    todo = [box for box in boxes if box.slots and unsent[box.lease.id]]
    if not todo:
        return
    own = _resolve_values(context, sweep, troubles) if values is None else values
    if own is None:
        return

    async def send(box: Answered) -> None:
        await _send(context, sweep, box, unsent[box.lease.id], own)

    _tell(troubles, [box.lease for box in todo], await each(todo, send, begun="goes on"))


def _resolve_values(
    context: Context, sweep: Sweep, troubles: list[str]
) -> Mapping[str, str] | None:
    """Look up the present values of the sweep's variables by their references. None if a value is missing."""
    if unknown := unrecorded_names(sweep.env_from):
        troubles.append(
            f"cells wait for a variable: the value of {unknown[0]} was given as plain text when {sweep.id} "
            f"was launched, and is not on record; launch the grid under another {Option('name')}, with a reference to the value"
        )
        return None
    try:
        return resolve_all(sweep.env_from, context.environ, key_places=context.key_places)
    except TenantError as trouble:
        troubles.append(
            f"cells wait for a variable: {trouble.message}; run the same launch again to provide the value"
        )
        return None


async def _ask_boxes(
    context: Context, sweep: Sweep, no_more_cells_on: LeaseId | None, troubles: list[str]
) -> list[Answered]:
    """Ask every box of the sweep that can be asked what is queued on it."""
    leases = [context.ledger.lease(x) for x in context.ledger.leases_of_sweep(sweep.id)]
    reached = [
        lease
        for lease in leases
        if lease.state is LeaseState.ACTIVE and lease.parked_at is None and lease.ready_at
    ]

    async def ask(lease: Lease) -> Answered:
        roll = await context.runner(lease).roll()
        takes = lease.id != no_more_cells_on and takes_cells(context, lease)
        if takes and not (roll.jobs and roll.slots == (sweep.slots or roll.slots)):
            return Answered(lease, roll, *await _slots(context, sweep, lease))
        return Answered(lease, roll, roll.slots if takes else 0, None)

    came = await each(reached, ask)
    _tell(troubles, reached, came)
    return [box for box in came if isinstance(box, Answered)]


def takes_cells(context: Context, lease: Lease) -> bool:
    """Whether new work may begin on the lease: only before its deadline, and before its end has begun."""
    return (
        lease.state is LeaseState.ACTIVE
        and context.clock.now() < lease.terms.deadline_at
        and not attempts(context.ledger.events(lease.id))
    )


async def _slots(context: Context, sweep: Sweep, lease: Lease) -> tuple[int, tuple[str, ...]]:
    """Return how many cells run on the box at the same time, and which GPUs each of them sees."""
    if lease.quote is not None:
        gpus = lease.quote.offer.gpu_count
    else:
        listed = await context.transport(lease).run(_GPUS, timeout_s=30)
        gpus = sum(line.startswith(b"GPU ") for line in listed.stdout.splitlines())
    slots = sweep.slots or max(1, gpus)
    if gpus < 2:
        return slots, ()
    share = max(1, gpus // slots)
    first = [slot * share % gpus for slot in range(slots)]
    return slots, tuple(",".join(str(at + n) for n in range(share)) for at in first)


def hear(context: Context, sweep: Sweep, boxes: Sequence[Answered]) -> None:
    """Record what the boxes say. A cell that a box reports as withdrawn is free again."""
    now, said, withdrawn = context.clock.now(), dict[int, Said](), list[Placement]()
    known = by_lease(context.ledger.placements(sweep.id))
    for box in boxes:
        mine = {p.job: p for p in known.get(box.lease.id, ())}
        for turn in box.roll.jobs:
            placement = mine.get(JobId(turn.job))
            if placement is None:
                continue
            said[placement.seq] = Said(
                word=turn.state,
                attempts=turn.runs,
                exit_code=turn.exit_code,
                reason=turn.reason,
                began_at=turn.started_at,
                ended_at=turn.ended_at,
                heard_at=now,
            )
            if turn.state == "withdrawn" and placement.released is None:
                withdrawn.append(placement)
    context.ledger.note_reports(said)
    context.ledger.release(withdrawn, "withdrawn", at=now)


async def _drop(context: Context, sweep: Sweep, boxes: Sequence[Answered]) -> None:
    """On every box that answered, withdraw the cells that were given up and have not begun."""
    given_up, there = context.ledger.given_up(sweep.id), by_lease(placements_of(context, sweep))
    for box in boxes:
        begun = _jobs_no_longer_queued(box)
        mine = [p for p in there.get(box.lease.id, ()) if p.cell in given_up and p.job not in begun]
        if mine:
            await _withdraw(context, box, mine)


async def _withdraw(context: Context, box: Answered, placements: Sequence[Placement]) -> None:
    """Withdraw the cells from the box, except those that it has begun."""
    told = await context.runner(box.lease).withdraw([p.job for p in placements], begun="spare")
    gone = [p for p in placements if p.job in told.withdrawn]
    context.ledger.release(gone, "withdrawn", at=context.clock.now())


async def _level(context: Context, sweep: Sweep, boxes: Sequence[Answered]) -> None:
    """Take cells from long queues, if another box would otherwise have nothing to do."""
    there, loads = by_lease(placements_of(context, sweep)), dict[LeaseId, Load]()
    nowhere = _nowhere(context, sweep)
    for box in boxes:
        begun = _jobs_no_longer_queued(box)
        mine = [p.job for p in there.get(box.lease.id, ()) if p.job not in begun]
        # A cell that is placed on this box but has not reached it yet is sent in this round, so it does not move. It
        # moves only if the box takes no more cells.
        known = {turn.job for turn in box.roll.jobs}
        movable = [job for job in mine if job in known or not box.slots]
        loads[box.lease.id] = Load(box.slots, len(box.roll.waiting), movable)
    # Cells that are on no box go to the idle boxes first. While there are any, no other cell moves.
    todo = {} if nowhere else surplus(loads)
    for box in boxes:
        if wanted := todo.get(box.lease.id):
            await _withdraw(context, box, [p for p in there[box.lease.id] if p.job in wanted])


def _nowhere(context: Context, sweep: Sweep) -> list[Cell]:
    """Return the cells that are on no box and are still to run."""
    settled = {p.cell for p in placements_of(context, sweep)} | context.ledger.given_up(sweep.id)
    return [cell for cell in sweep.grid.cells if cell.name not in settled]


def _place(context: Context, sweep: Sweep, boxes: Sequence[Answered]) -> None:
    """Choose and record a box for every cell that is on no box, if any box takes cells."""
    known = context.ledger.placements(sweep.id)
    last = {p.cell: p for p in known}
    waiting = _nowhere(context, sweep)
    mine = by_lease([p for p in known if p.released is None])
    loads = dict[LeaseId, Load]()
    for box in boxes:
        ours = {p.job for p in mine.get(box.lease.id, ()) if _may_run(p)}
        loads[box.lease.id] = Load(box.slots, len(ours.union(box.roll.waiting)))
    again = {p.cell: p.lease_id for p in last.values() if p.released == "again"}
    dealt = deal([cell.name for cell in waiting], loads, prefer=again)
    # A job outside of the sweep may have taken a cell's name since the box joined the sweep.
    taken = {(lease_id, job.id) for lease_id in loads for job in context.ledger.jobs(lease_id)}
    jobs = {}
    for cell in waiting:
        if (lease_id := dealt.get(cell.name)) is None:
            continue
        names = (JobId(cell.name if n == 1 else f"{cell.name}.r{n}") for n in range(1, 10_000))
        jobs[cell.name] = Job(
            id=next(name for name in names if (lease_id, name) not in taken),
            lease_id=lease_id,
            command=sweep.grid.command_of(cell),
            artifacts=sweep.grid.artifacts_of(cell),
            discard=sweep.grid.discard_of(cell),
            env_names=(*sweep.env_names, *variables_of(cell)),
            env_from=sweep.env_from,
            max_runtime_s=sweep.max_runtime_s,
            declared_at=context.clock.now(),
            launched_at=None,
        )
    context.ledger.place(sweep.id, jobs, at=context.clock.now())


def _unsent(context: Context, sweep: Sweep, box: Answered) -> list[Placement]:
    """Return the cells that must be sent to their box: it does not know them, or has forgotten their variables."""
    known = {turn.job: turn for turn in box.roll.jobs}
    return [
        p
        for p in placements_of(context, sweep)
        if p.lease_id == box.lease.id and (p.job not in known or known[p.job].state == "needs_env")
    ]


async def _send(
    context: Context,
    sweep: Sweep,
    box: Answered,
    placements: Sequence[Placement],
    values: Mapping[str, str],
) -> None:
    """Queue the cells on the box, and let the box enforce the lease's deadline."""
    lease, profile = box.lease, context.profile(box.lease.provider)
    async with context.held_in_turn(lease.id, "launch"):
        if not takes_cells(context, context.ledger.lease(lease.id)):
            return  # The lease's end has begun since the box was asked, and a launch would undo that.
        own = activation(context.ledger, lease.id) if sweep.python == "prepared" else {}
        env = {**mirrors(profile, context.home.configuration, context.environ), **own, **values}
        await arm(
            context.session(lease),
            ledger=context.ledger,
            store=context.box_store(lease),
            proof="recent",
        )
        jobs = {job.id: job for job in context.ledger.jobs(lease.id)}
        for at in range(0, len(placements), _AT_ONCE):
            turns = [
                QueuedJob(
                    job=jobs[p.job],
                    attempts=sweep.attempts,
                    env={**env, **_variables(sweep, p)},
                )
                for p in placements[at : at + _AT_ONCE]
            ]
            await context.runner(lease).queue(
                turns,
                slots=None if box.slot_gpus is None else box.slots,
                slot_gpus=box.slot_gpus or (),
                # When a step of an allocation ends, everything that the step started ends too. So in an
                # allocation, the batch script starts the jobs.
                runner="elsewhere" if isinstance(lease.address, SlurmAddress) else "here",
            )
            queued = [turn.job.id for turn in turns]
            context.ledger.cells_launched(
                sweep.id, queued, lease.id, at=context.clock.now(), box_time_s=box.roll.now
            )


def _variables(sweep: Sweep, placement: Placement) -> dict[str, str]:
    cell = sweep.cell(placement.cell)
    return variables_of(cell) if cell else {}


def unrecorded_names(env_from: Sequence[str]) -> list[str]:
    """Return the variables whose values were given as plain text in the launch. These values are not on record."""
    return [entry.removesuffix(_WRITTEN) for entry in env_from if entry.endswith(_WRITTEN)]


def _jobs_no_longer_queued(box: Answered) -> set[str]:
    """Return the jobs that the box has ever begun or withdrawn."""
    return {
        turn.job for turn in box.roll.jobs if turn.state not in ("queued", "needs_env") or turn.runs
    }


def _may_run(placement: Placement) -> bool:
    return placement.said is None or placement.said.word in MAY_RUN


def _tell(troubles: list[str], leases: Sequence[Lease], came: Sequence[object]) -> None:
    """Add to `troubles` what the boxes could not do. Raise any other exception."""
    for lease, outcome in zip(leases, came, strict=True):
        if isinstance(outcome, TenantError):
            troubles.append(f"{lease.id}: {outcome.message}; {outcome.remedy}")
        elif isinstance(outcome, Exception):
            raise outcome
