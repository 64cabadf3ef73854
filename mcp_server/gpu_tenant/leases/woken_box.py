"""Launches again, on a box that was taken and runs again, what its taking cut off. Whoever watches does that unasked."""

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
    """Whether work that was cut off goes on at its own box, which runs again, by the ledger alone.

    It does if the lease's terms let work go on elsewhere: then its owner has agreed to pay for that unasked. It does
    not if another box has already been rented for the work.
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
    """Return the jobs that the taking of the lease's box ended, each with the name under which it is launched again there.

    Empty if their work went on elsewhere, or if somebody has launched something else since. A cell of a sweep and a
    part of a job on several boxes do not count: what placed them places them again.
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
        if job.id not in apart and (at := cut_off_at(events, job.id)) is not None
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
    """Return the name under which that job is launched again: always the same, so that it is taken once.

    A box starts each name once. So whoever else launches the job again at the same moment starts nothing.
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
    """Launch again what was cut off on that lease's box. Returns each job, with its new name.

    What runs from then on is the same command with the same outputs, and continues from what the disk kept.

    Raises:
        LeaseHeld: another process is acting on the lease now.
        Refused, BadRequest: a value that the job was given was not stored, or cannot be had here.
        BoxTrouble: the box did not do its part.
    """
    found = await require_box_for_work(context, lease)
    async with held_for_work(context, found, "launch") as found:
        # Nobody else launches now, so what is on record is all that was launched.
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
                name=name,
                ledger=context.ledger,
                store=context.box_store(found),
            )
    return [(str(job.id), name) for job, name in again]


def _must_have_its_values(ledger: Ledger, lease: Lease, job: Job) -> None:
    """Raise `Refused` if a value was written out when the job was launched. Such a value is not on record."""
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
