"""Checks whether a box is the lease's own, and whether it is unused."""

from datetime import datetime, timedelta

from gpu_tenant.artifacts.local_evidence import Loss
from gpu_tenant.box.ownership import (
    Marked,
    NeverIn,
    Occupancy,
    Seen,
    StoppedUnused,
    Unseen,
    is_another_s,
    refusals,
    settle_place,
    use,
    was_let_in,
)
from gpu_tenant.box.setup_record import setup_jobs
from gpu_tenant.domain.end_reserve import resume_step
from gpu_tenant.domain.errors import (
    AnotherBox,
    BoxTaken,
    BoxTrouble,
    BoxUnreachable,
    CaretakerFailed,
    ProviderTrouble,
    Refused,
)
from gpu_tenant.domain.model import Box, BoxState, JobId, Lease
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.park import unsure_of
from gpu_tenant.leases.read_at_stop import read_for_its_stop
from gpu_tenant.leases.verify import UNTOUCHED, Assessment, cannot_be_seen, started_since

_BOOTS_WITHIN = timedelta(minutes=15)
"""A box without an address may still be in its first boot for this long."""


def occupancy(context: Context, lease: Lease, since: datetime | None = None) -> Occupancy:
    """Return the object that checks the lease's mark on its box, and looks for traces of use there."""
    return Occupancy(
        context.session(lease),
        ledger=context.ledger,
        known_hosts=context.home.known_hosts(lease.id),
        since=since,
    )


async def _settle_place(context: Context, lease: Lease, since: datetime | None = None) -> Occupancy:
    """Record where the lease's directory is on its box. Return the object that inspects the box there."""
    placed = await settle_place(context.session(lease), ledger=context.ledger)
    return occupancy(context, lease.model_copy(update={"place": placed.place}), since)


async def come_in(context: Context, lease: Lease) -> None:
    """Log in to the box, record where the lease's directory is, and put the lease's mark there.

    Raises:
        BoxTaken, AnotherBox: this lease may not use the box.
        BoxTrouble: the box has not let us in.
    """
    try:
        await (await _settle_place(context, lease)).stand()
    except CaretakerFailed:
        # The box answered, but has no Python. A plain command is enough here; the next request reports what is missing.
        await context.transport(lease).run(["true"], timeout_s=30)


async def must_be_the_box(context: Context, lease: Lease) -> None:
    """Check that the box that answers carries the lease's mark.

    Raises:
        AnotherBox: it does not carry the mark.
        BoxTrouble: the box cannot be asked.
    """
    await (await _settle_place(context, lease)).stand()


async def look_inside(context: Context, lease: Lease) -> Seen:
    """Look at a box that its lease never used, according to the ledger. Return what the box itself shows."""
    events = context.ledger.events(lease.id)
    # A twin may have let in somebody else, so it proves nothing that we never logged in there.
    came_in = was_let_in(events) or is_another_s(lease)
    if lease.parked_at is not None:
        if not came_in:
            return NeverIn()
        if (why := await _may_hide_use(context, lease)) is None:
            return StoppedUnused()
        return Unseen(
            why,
            f"{resume_step(lease, events, context.clock.now())}, then run the same command again",
        )
    if lease.address is None and (not came_in or _first_boots(context, lease, lease.active_at)):
        return NeverIn()
    try:
        return await (await _settle_place(context, lease)).look("everything")
    except BoxTaken as taken:
        return Unseen(taken.message, taken.remedy)
    except BoxTrouble as trouble:
        if came_in or isinstance(trouble, AnotherBox | CaretakerFailed):
            return Unseen(f"it cannot be looked at: {trouble.message}", trouble.remedy)
        return NeverIn()


async def _may_hide_use(context: Context, lease: Lease) -> str | None:
    """Say why a parked box may have been used since it was last looked at. None if it was not."""
    try:
        read = await read_for_its_stop(context, lease)
    except ProviderTrouble as trouble:
        return f"it is parked, and {trouble.message}"
    if read is None or read.seal is not None:
        return "it is parked"
    return await started_since(context, lease, read)


async def look_at_new_box(context: Context, lease: Lease) -> Seen:
    """Return what is known about the use of a new box that is not as quoted. A box that never let us in is unused."""
    if not was_let_in(context.ledger.events(lease.id)):
        return NeverIn()
    return await look_inside(context, lease)


async def look_at_twin(context: Context, lease: Lease, box: Box) -> Seen:
    """Look at a second box of the same request. If this is not possible, the box may have been used."""
    boots = box.address is None and box.state is BoxState.BOOTING
    if boots and _first_boots(context, lease, box.created_at):
        return NeverIn()
    try:
        return await (await _settle_place(context, lease, box.created_at)).look("everything")
    except (BoxTaken, BoxTrouble) as trouble:
        return Unseen(f"it cannot be looked at: {trouble.message}", trouble.remedy)


def _first_boots(context: Context, lease: Lease, made_at: datetime | None) -> bool:
    """Whether a box without an address is so young that it cannot have been up before."""
    if made_at is None or was_let_in(context.ledger.events(lease.id)):
        return False
    return context.clock.now() - made_at <= _BOOTS_WITHIN


async def look_surely(context: Context, lease: Lease) -> tuple[Lease, Seen]:
    """Look at the box. If it shows use, mark the lease as used. Return the lease, and what the box shows."""
    seen = await look_inside(context, lease)
    if isinstance(seen, Marked) and use(seen) is not None:
        context.ledger.touch(lease.id, at=context.clock.now())
    return context.ledger.lease(lease.id), seen


async def check_before_stop(context: Context, lease: Lease) -> Lease:
    """Look at the box before it is stopped, because a stop may empty its disk. Return the lease.

    If the box shows use, the lease is marked as used.

    Raises:
        Refused: the box cannot be looked at, and it is uncertain whether a stop keeps its disk.
    """
    profile = context.profile(lease.provider)
    if lease.touched_at is not None or profile.park == "none" or profile.kind == "own":
        return lease
    lease, seen = await look_surely(context, lease)
    if isinstance(seen, Unseen) and (profile.park == "wipes" or unsure_of(profile)):
        raise Refused(
            f"{lease.id} may have been used, and a stop may empty its disk: {seen.why}",
            remedy=seen.remedy,
        )
    return lease


async def check_before_seal(
    context: Context, lease: Lease
) -> tuple[Lease, Assessment | list[Loss]]:
    """Look at the box before a seal. Return the lease and the result.

    If the box needs no seal or cannot have one, the result is its assessment. Otherwise it is a list of losses: work
    of others on the box.
    """
    profile = context.profile(lease.provider)
    if lease.touched_at is None and profile.destroy == "hands_back":
        return lease, UNTOUCHED  # A machine that is handed back keeps everything on it.
    if lease.touched_at is None:
        lease, seen = await look_surely(context, lease)
        why = use(seen)
        if why is None:
            return lease, UNTOUCHED
        if isinstance(seen, Unseen):
            return lease, cannot_be_seen(why, seen.remedy)
    elif lease.lets_us_in and profile.destroy == "deletes":
        try:
            seen = await occupancy(context, lease).look("others")
        except BoxUnreachable:
            return lease, []  # The seal will fail too, and say why.
        except BoxTrouble as trouble:
            return lease, cannot_be_seen(trouble.message, trouble.remedy)
    else:
        return lease, []
    if not isinstance(seen, Marked):
        return lease, []
    jobs = [job.id for job in context.ledger.jobs(lease.id)]
    jobs += map(JobId, setup_jobs(context.ledger.events(lease.id)))
    return lease, [Loss(what=what, remedy=remedy) for what, remedy in refusals(seen, jobs)]
