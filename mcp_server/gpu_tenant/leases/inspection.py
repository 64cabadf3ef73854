"""What we check on a box before it counts as the lease's own, and before it counts as unused."""

from datetime import datetime, timedelta

from gpu_tenant.artifacts.local_evidence import Loss
from gpu_tenant.box.ownership import (
    Marked,
    NeverIn,
    Occupancy,
    Seen,
    Unseen,
    is_another_s,
    refusals,
    settle_place,
    use,
    was_let_in,
)
from gpu_tenant.box.setup_record import setup_jobs
from gpu_tenant.domain.errors import (
    AnotherBox,
    BoxTaken,
    BoxTrouble,
    BoxUnreachable,
    CaretakerFailed,
    Refused,
)
from gpu_tenant.domain.model import Box, BoxState, JobId, Lease
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.end_reserve import resume_step
from gpu_tenant.leases.park import unsure_of
from gpu_tenant.leases.verify import UNTOUCHED, Assessment, cannot_be_seen

_BOOTS_WITHIN = timedelta(minutes=15)
"""A box without an address may still be in its first boot for this long."""


def occupancy(context: Context, lease: Lease, since: datetime | None = None) -> Occupancy:
    """Return the object that checks the lease's mark on its box, and that looks at what was done on the box."""
    return Occupancy(
        context.session(lease),
        ledger=context.ledger,
        known_hosts=context.home.known_hosts(lease.id),
        since=since,
    )


async def _settle_place(context: Context, lease: Lease, since: datetime | None = None) -> Occupancy:
    """Return the same lease, after recording where its directory is on its box."""
    placed = await settle_place(context.session(lease), ledger=context.ledger)
    return occupancy(context, lease.model_copy(update={"place": placed.place}), since)


async def come_in(context: Context, lease: Lease) -> None:
    """Log in to the box, settle the place of the lease's directory, and put the lease's mark there.

    Raises:
        BoxTaken, AnotherBox: this lease may not stand on the box.
        BoxTrouble: the box has not let us in.
    """
    try:
        await (await _settle_place(context, lease)).stand()
    except CaretakerFailed:
        # The box answered, but has no Python. The next request will say so.
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
    # We did not wait for a twin to let us in. So it proves nothing that we never logged in: somebody else may
    # have.
    came_in = was_let_in(events) or is_another_s(lease)
    if lease.parked_at is not None:
        if not came_in:
            return NeverIn()
        return Unseen(
            "it is parked",
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


async def look_at_new_box(context: Context, lease: Lease) -> Seen:
    """Return what is known about a box that did not come up as quoted. A box that never let us in is unused."""
    if not was_let_in(context.ledger.events(lease.id)):
        return NeverIn()
    return await look_inside(context, lease)


async def look_at_twin(context: Context, lease: Lease, box: Box) -> Seen:
    """Look at a box that was made twice. A box that cannot be looked at may have been used."""
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
    """Look at the box, and return the lease with what the box shows. If the box shows use, mark the lease as used."""
    seen = await look_inside(context, lease)
    if isinstance(seen, Marked) and use(seen) is not None:
        context.ledger.touch(lease.id, at=context.clock.now())
    return context.ledger.lease(lease.id), seen


async def check_before_stop(context: Context, lease: Lease) -> Lease:
    """Look at the box before it is stopped, and mark the lease as used if the box shows use: a stop may empty its disk.

    Raises:
        Refused: the box cannot be looked at, and it is not certain that a stop keeps its disk.
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
    """Look at the box before a seal. Returns the assessment of a box that needs no seal or cannot have one.

    Otherwise returns the losses: what on the box belongs to others.
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
            return lease, []  # The seal of this box will fail as well, and will say why.
        except BoxTrouble as trouble:
            return lease, cannot_be_seen(trouble.message, trouble.remedy)
    else:
        return lease, []
    if not isinstance(seen, Marked):
        return lease, []
    jobs = [job.id for job in context.ledger.jobs(lease.id)]
    jobs += map(JobId, setup_jobs(context.ledger.events(lease.id)))
    return lease, [Loss(what=what, remedy=remedy) for what, remedy in refusals(seen, jobs)]
