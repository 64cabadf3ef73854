"""Launches one job over several leases. It checks the boxes first, and begins the job on all of them or on none."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Literal

from gpu_tenant.box.environment.history import activation
from gpu_tenant.box.environment.mirrors import mirrors
from gpu_tenant.concurrency import each
from gpu_tenant.domain import timeline
from gpu_tenant.domain.choices import PORT, Launcher
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest, BoxTrouble, Refused, TenantError
from gpu_tenant.domain.model import JobId, Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.jobs.launch import Launched, launch
from gpu_tenant.jobs.multinode.launcher import Gang, Node, gangs, lines
from gpu_tenant.jobs.multinode.preflight import Preflight, preflight
from gpu_tenant.leases.allowed_references import must_be_allowed
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.orders import with_ordered
from gpu_tenant.leases.readiness import active
from gpu_tenant.leases.take_work import set_up_first
from gpu_tenant.providers.credentials import references, resolve_all

_GRACE_S = 10


class LaunchedTogether(Record):
    """One job that was launched on several boxes, and runs there without us."""

    job: str
    launcher: Launcher
    members: tuple[Launched, ...]
    checked: Preflight | None
    next: str


async def preflight_of(
    context: Context, leases: Sequence[str], *, interface: str | None = None, port: int = PORT
) -> Preflight:
    """Check whether every box can reach every other box on one network interface. The result names what fails."""
    return await _check(context, await _members(context, leases), interface, port)


async def launch_together(
    context: Context,
    leases: Sequence[str],
    command: str,
    artifacts: Sequence[str],
    discard: Sequence[str],
    env: Sequence[str],
    *,
    launcher: Launcher,
    interface: str | None,
    port: int,
    processes: int | None,
    max_runtime_h: float | None,
    name: str | None,
    python: Literal["prepared", "image"],
) -> LaunchedTogether:
    """Launch the job on every one of the leases under one name. The first lease has rank 0.

    Calling again with the same name continues a launch that was cut short. If one box cannot begin the job,
    the job is stopped on the boxes that have begun it.

    Raises:
        BadRequest: there are fewer than two leases, or the command does not use a launcher.
        Refused: the boxes cannot reach each other; nothing was begun.
        BoxTrouble, ...: a box did not begin the job; the message says on which others it was stopped.
    """
    members = await _members(context, leases)
    env = with_ordered(members[0], env)
    values = resolve_all(env, context.environ, key_places=context.key_places)
    must_be_allowed(context, members, env)
    with ExitStack() as held:
        for member in sorted(members, key=lambda lease: lease.id):
            held.enter_context(context.hold_lease(member.id, "launch"))
        gang, checked = _begun_gang(context, members, name), None
        if gang is None:
            checked = await _check(context, members, interface, port)
            if not checked.passed:
                raise Refused(
                    f"these boxes cannot train together: {'; '.join(checked.trouble)}",
                    remedy=f"{Command('preflight', *leases)} shows every pair; nothing was launched",
                )
            gang = _declare(
                context,
                members,
                checked,
                command,
                launcher=launcher,
                name=name,
                processes=processes,
                python=python,
            )
        elif gang.command != command:
            raise BadRequest(
                f"the job {gang.job} of {', '.join(gang.leases)} runs another command",
                remedy="choose another name",
            )

        async def begin(rank: int) -> Launched:
            lease, profile = members[rank], context.profile(members[rank].provider)
            own = activation(context.ledger, lease.id) if python == "prepared" else {}
            return await launch(
                context.session(lease),
                gang.lines[rank],
                artifacts=artifacts,
                # If only rank 0 writes, the others have nothing to keep. A discarded artifact may
                # be absent, but one that exists is kept.
                discard=[*discard, *(artifacts if rank else ())],
                env={
                    **mirrors(profile, context.home.configuration, context.environ),
                    **own,
                    **values,
                },
                env_from=references(list(env)),
                name=gang.job,
                max_runtime_s=None if max_runtime_h is None else max_runtime_h * 3600,
                ledger=context.ledger,
                store=context.box_store(lease),
            )

        came = await each(range(len(members)), begin, begun="goes on")
        launched = tuple(one for one in came if isinstance(one, Launched))
        if len(launched) < len(members):
            await _stop_all(context, gang, members, came)
    return LaunchedTogether(
        job=gang.job,
        launcher=gang.launcher,
        members=launched,
        checked=checked,
        next=f"{Command('monitor', members[0].id)}, which also shows the others",
    )


async def _members(context: Context, leases: Sequence[str]) -> list[Lease]:
    if len(set(leases)) < max(2, len(leases)):
        raise BadRequest(
            "one job over several boxes needs two leases or more, each named once",
            remedy=f"{Command('leases')} lists them",
        )
    return [await set_up_first(context, await active(context, name)) for name in leases]


async def _check(
    context: Context, members: Sequence[Lease], interface: str | None, port: int
) -> Preflight:
    ways = {str(lease.id): context.transport(lease) for lease in members}
    return await preflight(members, ways, wanted=interface, port=port)


def _begun_gang(context: Context, members: Sequence[Lease], name: str | None) -> Gang | None:
    """Return the gang (one job over several boxes) of that name, even if its launch was cut short.

    None if there is none.

    Raises:
        BadRequest: the gang has other members, or a job of that name belongs to no gang.
        Refused: the gang was stopped on all its members.
    """
    wanted = tuple(lease.id for lease in members)
    for lease in members:
        known = [gang for gang in gangs(context.ledger.events(lease.id)) if gang.job == name]
        if known and known[-1].leases != wanted:
            raise BadRequest(
                f"{name} is a job over the leases {', '.join(known[-1].leases)}",
                remedy="name the same leases in the same order, or choose another name",
            )
        stopped = any(
            isinstance(event, timeline.Stopped) and event.job == name
            for _, event in context.ledger.events(lease.id)
        )
        if known and stopped:
            raise Refused(
                f"{name} was stopped on {lease.id}, and a job runs once",
                remedy=f"launch it under another {Option('name')}; the job continues from its own checkpoint",
            )
        if known:
            return known[-1]
        if name is not None and any(job.id == name for job in context.ledger.jobs(lease.id)):
            raise BadRequest(
                f"{lease.id} has a job {name} of its own", remedy="choose another name"
            )
    return None


def _declare(
    context: Context,
    members: Sequence[Lease],
    checked: Preflight,
    command: str,
    *,
    launcher: Launcher,
    name: str | None,
    processes: int | None,
    python: Literal["prepared", "image"],
) -> Gang:
    """Record the gang in the timeline of every lease in it, with the command line for each box."""
    job = name or _free_name(context, members)
    nodes, pythons = [], []
    for lease, spot in zip(members, checked.nodes, strict=True):
        count = processes or spot.gpus
        if not count:
            raise BadRequest(
                f"{lease.id} shows no GPU, so the number of its processes is unknown",
                remedy="for a job that needs no GPU, say --per-node 1",
            )
        nodes.append(
            Node(
                lease.id,
                spot.address,
                spot.interface,
                processes=count,
                gpus=spot.gpus,
                infiniband="active" if spot.infiniband else "none",
            )
        )
        in_own = python == "prepared" and activation(context.ledger, lease.id)
        own = None if in_own else context.profile(lease.provider).python
        pythons.append(own or "python3")
    gang = Gang(
        job=job,
        launcher=launcher,
        leases=tuple(lease.id for lease in members),
        command=command,
        lines=lines(
            nodes,
            command,
            launcher=launcher,
            run_id=f"{job}-{members[0].id}",
            port=checked.port,
            pythons=pythons,
        ),
        interface=checked.network,
    )
    for lease in members:
        context.ledger.note(
            lease.id, timeline.Together(**gang.model_dump()), at=context.clock.now()
        )
    return gang


def _free_name(context: Context, members: Sequence[Lease]) -> str:
    taken = {job.id for lease in members for job in context.ledger.jobs(lease.id)}
    return next(name for n in range(1, len(taken) + 2) if (name := f"gang{n}") not in taken)


async def _stop_all(
    context: Context, gang: Gang, members: Sequence[Lease], came: Sequence[Launched | Exception]
) -> None:
    """Stop the job on every box that can be reached. Then raise the error that kept the job from beginning.

    A box that did not answer may have begun the job, and is asked to stop it like the others.
    """
    troubles = [trouble for trouble in came if isinstance(trouble, Exception)]
    at, may_run = context.clock.now(), []

    async def stop(lease: Lease) -> None:
        await context.caretaker(lease).stop(JobId(gang.job), grace_s=_GRACE_S)

    declared = [
        lease
        for lease in members
        if any(job.id == gang.job for job in context.ledger.jobs(lease.id))
    ]
    for lease, ended in zip(declared, await each(declared, stop), strict=True):
        context.ledger.note(lease.id, timeline.Stopped(job=gang.job), at=at)
        if isinstance(ended, BoxTrouble) and not _never_began(ended):
            may_run.append(lease.id)
    first = next((x for x in troubles if isinstance(x, TenantError)), None)
    if first is None:
        raise troubles[0]
    failed = ", ".join(
        lease.id for lease, what in zip(members, came, strict=True) if isinstance(what, Exception)
    )
    first.message = (
        f"{failed} did not begin {gang.job}, so the job was stopped on all leases: {first.message}"
    )
    if may_run:
        first.message += f"; whether the job runs on {', '.join(may_run)} is unknown"
        first.remedy = f"{gang.stop}; {first.remedy}"
    else:
        first.remedy = f"{first.remedy}; then launch the job under another {Option('name')}"
    raise first


def _never_began(trouble: BoxTrouble) -> bool:
    """Whether the box answered that it does not know the job."""
    return "NO_SUCH_JOB" in trouble.message or "UNKNOWN_JOB" in trouble.message
