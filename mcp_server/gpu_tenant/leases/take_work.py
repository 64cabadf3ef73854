"""Accepts new work for a lease that may be about to end because its work is done.

Exactly one of the two comes first: the new work, or the end.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from gpu_tenant.box.setup_record import setup_of
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LeaseHeld, Refused
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.readiness import active
from gpu_tenant.leases.work_done import LAUNCH_HOLDS_S

_ENDING = frozenset({"collect", "store", "teardown", "end", "park"})
"""The purposes for which a lease is held while its end is being prepared."""


async def require_box_for_work(context: Context, lease: str) -> Lease:
    """Return the lease, with a box that takes new work. If the lease's end is only being prepared, it is cancelled.

    Raises:
        Refused: the lease's end has begun, it has no box (any more), or the box could not be set up.
        JobRunning: the box is still being set up.
    """
    known = context.ledger.lease(lease)
    if known.terms.when_done == "keep":
        return await set_up_first(context, await active(context, lease))
    now = context.clock.now()
    until = now + timedelta(seconds=LAUNCH_HOLDS_S)
    if known.state is not LeaseState.INTENDED:
        # Write this first. The transaction that files a permit reads it, so either the work or the end comes first.
        context.ledger.hold_until(known.id, until, by="launch", at=now)
    try:
        found = await active(context, lease)
    except Refused as refused:
        raise _told_why(context, known.id, refused) from refused
    return await set_up_first(context, found)


async def set_up_first(context: Context, lease: Lease) -> Lease:
    """Return the lease once its box is set up as ordered.

    Raises:
        Refused: the box could not be set up.
        JobRunning: the box is still being set up.
    """
    if setup_of(context.ledger, lease, context.profile(lease.provider)).state not in (
        "none",
        "done",
    ):
        from gpu_tenant.leases.setup import must_be_set_up

        await must_be_set_up(
            context, lease, hold=lambda: context.held_in_turn(lease.id, "setup", waits_for=_ENDING)
        )
    return lease


@asynccontextmanager
async def held_for_work(context: Context, lease: Lease, purpose: str) -> AsyncIterator[Lease]:
    """Hold the lease for new work. If its end is being prepared, wait until that is cancelled.

    Raises:
        LeaseHeld: another process is acting on the lease now.
        Refused: the lease has ended meanwhile.
    """
    ends = lease.terms.when_done != "keep"
    try:
        async with context.held_in_turn(lease.id, purpose, waits_for=_ENDING if ends else ()):
            try:
                found = await active(context, lease.id)
            except Refused as refused:
                raise _told_why(context, lease.id, refused) from refused
            yield found
    except LeaseHeld as held:
        if ends:
            held.remedy = f"make the same call again: meanwhile, {lease.id} is not ended because its work is done; {held.remedy}"
        raise


def _told_why(context: Context, lease: str, refused: Refused) -> Refused:
    """Add the reason to the refusal, if the lease ended because its work was done."""
    done = any(isinstance(x, timeline.Done) for _, x in context.ledger.events(lease))
    state = context.ledger.lease(lease).state
    if done and state in (LeaseState.TERMINATING, LeaseState.GONE):
        refused.message = (
            f"{refused.message}; the lease was ended because its work was done, as its terms say"
        )
        refused.remedy = (
            f"what its jobs made is on this computer: {Command('leases', all=True)}; {Command('offers')} finds another box, and "
            f"`--when-done keep` or {Command('hold', 'LEASE', '30m')} keeps a box between jobs"
        )
    return refused
