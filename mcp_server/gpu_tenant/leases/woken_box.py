"""Launches jobs again that were cut off because their box was taken, when the box runs again.

A watchdog does this without being asked.
"""

import re
from collections.abc import Mapping, Sequence

from gpu_tenant.box.environment.history import activation
from gpu_tenant.box.environment.mirrors import mirrors
from gpu_tenant.box.setup_record import setup_jobs
from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.interruption import (
    cut_off_at,
    notice_on_record,
    recorded_fate,
    went_on,
)
from gpu_tenant.domain.model import Job, Lease, LeaseState
from gpu_tenant.jobs.launch import launch
from gpu_tenant.jobs.multinode.launcher import gangs
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.launch_again import again_step
from gpu_tenant.leases.recovery_plan import successor
from gpu_tenant.leases.take_work import held_for_work, require_box_for_work
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.credentials import resolve_all

_COUNTED = re.compile(r"(?P<first>.+)-(?P<count>[0-9]+)")


def may_launch_again(context: Context, lease: Lease) -> bool:
    """Whether to launch cut-off jobs again on their own box, which runs again. This is judged only by the ledger.

    The lease's terms must allow its work to continue elsewhere: then its owner has agreed to pay without being asked
    again. No other box may have been rented for the work yet.
    """
    if not lease.terms.recover or context.clock.now() >= lease.terms.deadline_at:
        return False
    if lease.state is not LeaseState.ACTIVE or lease.parked_at is not None:
        return False
    events = context.ledger.events(lease.id)
    if recorded_fate(events) is not None or notice_on_record(events) is not None:
        return False
    return successor(context.ledger, lease) is None and bool(cut_off_jobs(context.ledger, lease))


def cut_off_jobs(ledger: Ledger, lease: Lease) -> list[tuple[Job, str]]:
    """Return the jobs that ended because the lease's box was taken, each with its name for the next launch.

    Empty if their work went on elsewhere, or if somebody has launched something else since. Cells of sweeps and jobs on
    several boxes are left out: they are launched again elsewhere in this program.
    """
    events, jobs = ledger.events(lease.id), ledger.jobs(lease.id)
    if went_on(events) is not None:
        return []
    made = (event.job for _, event in events if isinstance(event, timeline.Preparing))
    gang = (gang.job for gang in gangs(events))
    apart = {*setup_jobs(events), *made, *ledger.cell_jobs(lease.id), *gang}
    cut = {
        job.id: at
        for job in jobs
        if job.id not in apart
        and (at := cut_off_at(events, job.id)) is not None
        and not events.story.job(job.id).is_superseded
    }
    again = {job.id: _name_again(job, jobs) for job in jobs if job.id in cut}
    launched = {job.id for job in jobs if job.launched_at is not None}
    if any(
        isinstance(event, timeline.Launched)
        and at >= max(cut.values())
        and event.job not in again.values()
        for at, event in (events if cut else ())
    ):
        return []
    return [(job, again[job.id]) for job in jobs if job.id in cut and again[job.id] not in launched]


def _name_again(job: Job, jobs: Sequence[Job]) -> str:
    """Return the name under which that job is launched again. It is always the same name.

    A box starts each name only once. So if two processes launch the job again at the same time, it runs once.
    """
    commands = {str(each.id): each.command for each in jobs}
    counted = _COUNTED.fullmatch(job.id)
    first, count = str(job.id), 1
    if counted is not None and commands.get(counted["first"]) == job.command:
        first, count = counted["first"], int(counted["count"])
    while commands.get(f"{first}-{count + 1}", job.command) != job.command:
        count += 1
    return f"{first}-{count + 1}"


async def launch_cut_off_again(context: Context, lease: str) -> list[tuple[str, str]]:
    """Launch the cut-off jobs of the lease again on its box. Return each job, with its new name.

    Each has the same command and the same outputs as before, and continues from the files on the disk.

    Raises:
        LeaseHeld: another process is acting on the lease now.
        Refused, BadRequest: the value of one of the job's variables was not stored, or cannot be found here.
        BoxTrouble: the box could not launch a job.
    """
    found = await require_box_for_work(context, lease)
    async with held_for_work(context, found, "launch") as found:
        # No other process launches now, so the ledger knows every launch.
        again = cut_off_jobs(context.ledger, found) if may_launch_again(context, found) else []
        for job, name in again:
            _must_have_its_values(context.ledger, found, job)
            await launch(
                context.session(found),
                job.command,
                artifacts=job.artifacts,
                discard=job.discard,
                env=_environment(context, found, job),
                env_from=job.env_from,
                max_runtime_s=job.max_runtime_s,
                stalled_after_s=job.stalled_after_s,
                name=name,
                ledger=context.ledger,
                store=context.box_store(found),
            )
    return [(str(job.id), name) for job, name in again]


def _must_have_its_values(ledger: Ledger, lease: Lease, job: Job) -> None:
    """Raise `Refused` if a value was given as plain text when the job was launched. Such a value is not stored."""
    for reference in job.env_from:
        name, _, source = reference.partition("=")
        if source == "text:":
            raise Refused(
                f"the value of {name} was given as plain text when {job.id} was launched, so it was not stored",
                remedy=f"{again_step(ledger, lease, job.id)} again, with its value",
            )


def _environment(context: Context, lease: Lease, job: Job) -> dict[str, str]:
    profile = context.profile(lease.provider)
    own: Mapping[str, str] = {}
    if "VIRTUAL_ENV" in job.env_names:
        own = activation(context.ledger, lease.id)
    values = resolve_all(job.env_from, context.environ, key_places=context.key_places)
    return {**mirrors(profile, context.home.configuration, context.environ), **own, **values}
