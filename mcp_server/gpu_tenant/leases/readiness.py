"""Brings a lease to a box that runs and lets us in, and says why a box does not.

A box lets us in when it accepts our login and runs our commands.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from gpu_tenant.box.guard_record import has_lapsed
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.end_reserve import resume_step, start_words
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxStopped,
    BoxTrouble,
    BoxUnreachable,
    CredentialRefused,
    LeaseHeld,
    ProviderTrouble,
    Refused,
    StillBoots,
)
from gpu_tenant.domain.interruption import recorded_fate
from gpu_tenant.domain.model import Box, BoxState, Lease, LeaseState
from gpu_tenant.domain.protection import GuardState, way_out
from gpu_tenant.domain.reconcile import overdue, rate_words, ways_on
from gpu_tenant.domain.rental import over_words, rental_is_over
from gpu_tenant.domain.story import story_of
from gpu_tenant.leases.condition import open_jobs
from gpu_tenant.leases.context import WAIT_S, Context
from gpu_tenant.leases.kept_parked import kept_words, parked_step
from gpu_tenant.leases.provider_listing import Listing
from gpu_tenant.leases.provision import fulfil, make_ready
from gpu_tenant.leases.settle import is_as_recorded, settle
from gpu_tenant.leases.ssh_access import refresh_hosts
from gpu_tenant.leases.taken_step import known_unclaimed, left_behind_step, recovers_words
from gpu_tenant.leases.term_checks import may_start_to_end
from gpu_tenant.leases.won_back import not_yet


async def active(context: Context, lease: str) -> Lease:
    """Return the lease if its box takes new work. If the box had not let us in yet, wait until it does.

    Raises:
        Refused: the lease has no box (any more), it is parked, or its teardown has begun.
        NotReady: the box has not let us in yet (StillBoots), or never will.
    """
    found = await must_run(context, lease)
    if found.state is not LeaseState.ACTIVE:
        raise Refused(
            f"{found.id} is {found.state}: its box takes no new work",
            remedy=f"{Command('teardown', found.id)} continues the teardown",
        )
    return found


async def must_run(context: Context, lease: str) -> Lease:
    """Return the lease if its box runs. If the box had not let us in yet, wait until it does.

    Raises:
        Refused: the lease has no box (any more), or it is parked.
        NotReady: the box has not let us in yet (StillBoots), or never will.
    """
    found = await with_box(context, lease)
    if found.parked_at is not None:
        raise parked_refusal(context, found)
    if found.state is LeaseState.ACTIVE and found.ready_at is None:
        async with context.held_in_turn(found.id, "wait"):
            return await let_in(context, context.ledger.lease(found.id))
    if found.state is LeaseState.ACTIVE and has_lapsed(found, context.ledger.events(found.id)):
        # The box was taken and has started again by itself, without its guard. Arm the guard before anybody works on
        # the box.
        async with context.held_in_turn(found.id, "wait"):
            await arm_guard(context, found)
    return found


def parked_refusal(context: Context, lease: Lease) -> Refused:
    """Return the refusal for a parked box. It says why the box is parked, how its last job ended, and what to do."""
    events, now = context.ledger.events(lease.id), context.clock.now()
    kept = kept_words(lease, events)
    newest, job = events.story.newest_job, ""
    if newest is not None and newest.state is not None:
        job = f"its job {newest.id} was last seen as {newest.state}"
        why = [end.why for end in events.story.ends if end.job == newest.id and end.why]
        job += f" ({why[-1]})" if why else ""
    left = left_behind_step(lease, events, now, known_unclaimed(context.ledger, lease))
    step = left or (
        parked_step(lease, events, now, known_unclaimed(context.ledger, lease))
        if kept or may_start_to_end(lease, events, now)
        else start_words(lease, events, now, ", then run the same command again")
    )
    stands = f"{lease.id} is parked: its box does not run"
    late = ""
    if (
        lease.terms.deadline_at <= (lease.parked_at or now)
        and not story_of(events).box.is_kept_at_will
    ):
        late = f"its deadline was {lease.terms.deadline_at:%Y-%m-%d %H:%M} UTC, and its box was stopped then"
    return Refused("; ".join(filter(None, (stands, late, kept, job))), remedy=step)


async def why_silent(context: Context, lease: Lease, silent: BoxUnreachable) -> BoxTrouble:
    """Ask the provider why a box does not answer. Return an error that says why, or `silent` itself if unknown."""
    if lease.quote is None:
        return silent  # A box that was not rented by an offer is never taken by its provider.
    held = context.ledger.holder_of(lease.id)
    if held is not None and held.pid != os.getpid():
        return BoxUnreachable(
            f"{silent.message}: {lease.id} is in use, and {held.words}",
            remedy=f"wait until that is done; {Command('leases')} then shows how {lease.id} stands",
        )
    try:
        lease, _ = await settled_if_free(context, lease)
    except ProviderTrouble:
        return silent
    events, now = context.ledger.events(lease.id), context.clock.now()
    fate = recorded_fate(events)
    if lease.state is LeaseState.ACTIVE and lease.parked_at is not None:
        parked = parked_refusal(context, lease)
        return BoxStopped(parked.message, remedy=parked.remedy)
    if lease.state is LeaseState.ACTIVE and fate is None and lease.ready_at is None:
        return StillBoots(
            f"the box of {lease.id} still boots, and does not answer yet",
            remedy=f"{Command('audit', lease.id)}, and again as long as it still boots; then the same command again",
        )
    if lease.state is not LeaseState.ACTIVE or fate is None:
        return silent
    if (boots := await not_yet(context, lease)) is not None:
        return boots
    way = left_behind_step(lease, events, now, known_unclaimed(context.ledger, lease))
    way = way or recovers_words(lease, fate, context.looked_after)
    if way is None and rental_is_over(lease, now):
        way = f"{Command('recover', lease.id)}; {over_words(lease)}"
    way = way or ways_on(lease, fate, resume_step(lease, events, now))
    told = [event.words for _, event in events if isinstance(event, timeline.Taken) and event.words]
    return BoxStopped(
        f"the box of {lease.id} does not run: {told[-1] if told else fate}",
        remedy=f"{way}; {Command('leases')} shows what bills meanwhile",
    )


@asynccontextmanager
async def silence_explained(context: Context, lease: Lease) -> AsyncIterator[None]:
    """If the box does not answer, raise an error that says why: it boots, is being stopped, or is parked."""
    try:
        yield
    except BoxUnreachable as silent:
        raise await why_silent(context, context.ledger.lease(lease.id), silent) from None


def must_not_be_parked(context: Context, lease: str) -> None:
    """Check that the box is not parked. No job runs on a parked box, and starting it to stop a job would cost money.

    Raises:
        Refused: the box is parked.
    """
    found = context.ledger.lease(lease)
    if found.state is LeaseState.ACTIVE and found.parked_at is not None:
        raise Refused(
            f"{found.id} is parked: no job runs on it, so there is nothing to stop",
            remedy=f"{Command('leases')} shows what it costs",
        )


async def let_in(context: Context, lease: Lease) -> Lease:
    """Wait until the box has let us in.

    Raises:
        StillBoots: the box has not let us in yet.
        NotReady: it never will.
    """
    lease = await made_ready(context, lease)
    if lease.ready_at is None:
        raise StillBoots(
            f"the box of {lease.id} is still booting",
            remedy=f"make the same call again in a minute; {Command('leases')} shows what the box costs",
        )
    return lease


async def with_box(context: Context, lease: str) -> Lease:
    """Return the lease if its box may still exist. This includes a lease whose teardown was cut short.

    Raises:
        Refused: the lease has no box (any more).
    """
    found = context.ledger.lease(lease)
    if found.state is LeaseState.INTENDED:
        found, _ = await settled_if_free(context, found)
    if found.state not in (LeaseState.ACTIVE, LeaseState.TERMINATING):
        from gpu_tenant.leases.ended_words import ended_words

        raise Refused(
            f"{found.id} is {found.state}: it has no box; {ended_words(context.ledger, found)}",
            remedy=f"{Command('report', found.id)} shows its receipt; {Command('provision')} rents a new box; {Command('leases', all=True)} lists all leases",
        )
    return found


async def made_ready(context: Context, lease: Lease, wait_s: float = WAIT_S) -> Lease:
    """Wait at most `wait_s` until the box lets us in, and arm its guard. Return the lease, ready or not."""
    profile = context.profile(lease.provider)
    from gpu_tenant.leases.inspection import come_in

    ready = await make_ready(context, lease, reach=partial(come_in, context), wait_s=wait_s)
    if ready.ready_at is not None and way_out(profile, ready) is not None:
        # Arm the guard before anybody's work is on the box. This computer may die in the next second.
        await arm_guard(context, ready)
    refresh_hosts(context)
    return ready


async def arm_guard(context: Context, lease: Lease) -> GuardState:
    """Arm the guard on the box, which enforces the deadline there. If this fails, the result says why."""
    from gpu_tenant.box.guard import arm

    return await arm(context.session(lease), ledger=context.ledger, store=context.box_store(lease))


def unguarded_words(context: Context, lease: Lease, box: Box | None) -> str | None:
    """Warn that a box runs again after a stop, and that its guard was not armed since. None if this is not so."""
    if lease.state is not LeaseState.ACTIVE or box is None or box.state is not BoxState.READY:
        return None
    if way_out(context.profile(lease.provider), lease) is None:
        return None
    if not has_lapsed(lease, context.ledger.events(lease.id)):
        return None
    return (
        f"its box runs again, {rate_words(lease)}, and no guard holds its deadline: "
        f"{Command('audit', lease.id)} looks at it and arms one"
    )


async def reach(context: Context, lease: Lease) -> None:
    """Check that the box lets us in and answers.

    Raises:
        BoxTrouble: it does not.
    """
    await context.transport(lease).run(["true"], timeout_s=30)


async def settle_lease(
    context: Context, lease: Lease, listing: Listing | None = None
) -> tuple[Lease, str | None]:
    """Update the lease by what its provider shows. Return the lease, and what a person must hear."""
    return await settle(context, lease, listing=listing)


async def settled_if_free(
    context: Context, lease: Lease, listing: Listing | None = None
) -> tuple[Lease, str | None]:
    """Like `settle_lease`, but if another process is acting on the lease, return it unchanged."""
    # Most looks change nothing. Then take no hold, because a hold writes twice and waits for the disk.
    if listing is not None and is_as_recorded(context, lease, listing):
        return lease, None
    try:
        with context.hold_lease(lease.id, "look"):
            return await settle_lease(context, context.ledger.lease(lease.id), listing)
    except LeaseHeld:
        return lease, _kept_waiting(context, lease)
    except CredentialRefused as error:
        return lease, error.message


def _kept_waiting(context: Context, lease: Lease) -> str | None:
    """Say which process prevents the end of a lease that is past its terms, and since when. None if none does."""
    late, held = overdue(lease, context.clock.now()), context.ledger.holder_of(lease.id)
    return f"{late}, and {held.words}" if late and held else None


async def fulfil_intent(context: Context, lease: Lease, wait_s: float = WAIT_S) -> Lease:
    """Create the box for an intent, and wait at most `wait_s` until it lets us in."""
    lease = await fulfil(context, lease)
    return await made_ready(context, lease, wait_s)


async def close_connections(context: Context, lease: Lease) -> None:
    """Close our connections to the lease's box, and bring the owner's ssh configuration up to date with the ledger."""
    await context.disconnect(lease)
    refresh_hosts(context)


def must_be_idle(context: Context, lease: Lease) -> None:
    """Require that no job of the lease can still be running: a load test would take its GPU.

    Raises:
        BadRequest: a job was launched, and its end is not on record.
    """
    runs = open_jobs(context.ledger, lease.id)
    if runs:
        raise BadRequest(
            f"{runs[0]} may still run on the box of {lease.id}: a load would take its GPU",
            remedy=f"{Command('monitor', lease.id)} until it has ended, or audit without a load",
        )
