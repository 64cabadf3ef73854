"""New work for a lease that may be about to end for being done: who comes in time wins, and who does not is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LeaseHeld, Refused
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.readiness import active
from gpu_tenant.leases.work_done import LAUNCH_HOLDS_S

_ENDING = frozenset({"collect", "store", "teardown", "end", "park"})
"""What an end that is being prepared holds a lease for."""


async def wanted(context: Context, lease: str) -> Lease:
    """The lease, with a box that takes new work; an end of it that is only being prepared is given up.

    Raises:
        Refused: its end has begun, or it has none (any more).
    """
    known = context.ledger.lease(lease)
    if known.terms.when_done == "keep":
        return await active(context, lease)
    now = context.clock.now()
    until = now + timedelta(seconds=LAUNCH_HOLDS_S)
    if known.state is not LeaseState.INTENDED:
        # Written first, and read in the transaction that files the permit: so one of the two is the earlier.
        context.ledger.hold_until(known.id, until, by="launch", at=now)
    try:
        return await active(context, lease)
    except Refused as refused:
        raise _told_why(context, known.id, refused) from refused


@asynccontextmanager
async def held_for_work(context: Context, lease: Lease, purpose: str) -> AsyncIterator[Lease]:
    """Nobody else acts on the lease meanwhile; an end that is being given up for this is waited for.

    Raises:
        LeaseHeld: somebody else is acting on it now.
        Refused: it has ended meanwhile.
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
            held.remedy = f"the same call again: meanwhile {lease.id} is not ended for being done; {held.remedy}"
        raise


def _told_why(context: Context, lease: str, refused: Refused) -> Refused:
    """The refusal, with the reason where the lease ended because its work was done."""
    done = any(isinstance(x, timeline.Done) for _, x in context.ledger.events(lease))
    state = context.ledger.lease(lease).state
    if done and state in (LeaseState.TERMINATING, LeaseState.GONE):
        refused.message = (
            f"{refused.message}; it was ended because its work was done, as its terms say"
        )
        refused.remedy = (
            f"what it made is here: {Command('leases', all=True)}; {Command('offers')} finds another box, and "
            f"`--when-done keep` or {Command('hold', 'LEASE', '30m')} keeps one between jobs"
        )
    return refused
