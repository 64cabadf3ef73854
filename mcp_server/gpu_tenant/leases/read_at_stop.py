"""Reads a box in full right before its stop, so that it can be ended later without being started again.

This is for one case only: a lease is past one of its terms, and its teardown was refused only because declared
artifacts never appeared.
"""

import asyncio
from contextlib import suppress

from gpu_tenant.artifacts.collect import Collected, answer_of
from gpu_tenant.artifacts.unbegun_jobs import unbegun_jobs
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import ProviderTrouble, Refused, TenantError
from gpu_tenant.domain.model import BoxState, Lease, LeaseState
from gpu_tenant.domain.parked import permitted_seal, read_at_stop
from gpu_tenant.domain.ports import Chronicling
from gpu_tenant.domain.reconcile import Listed
from gpu_tenant.files.patterns import told_apart
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.end_reserve import resume_step
from gpu_tenant.leases.inspection import check_before_seal, must_be_the_box
from gpu_tenant.leases.provider_listing import look
from gpu_tenant.leases.readiness import parked_refusal
from gpu_tenant.leases.verify import Assessment, assess

_READ_WITHIN_S = 120
"""A box is read for at most this many seconds before it is stopped, because it bills meanwhile."""


async def read_before_stop(context: Context, lease: Lease) -> Assessment | None:
    """If the teardown was refused only because artifacts never appeared, assess the box once more, as a teardown does.

    Returns the assessment if such artifacts are still the only obstacle. Otherwise None.
    """
    told = context.ledger.events(lease.id, timeline.Ending, timeline.Refused)
    newest = told[-1].event if told else None
    if not isinstance(newest, timeline.Refused) or not newest.missing:
        return None
    if not isinstance(context.connector(lease), Chronicling):
        return None  # The provider could not say later whether the box was started.
    # This only saves a later start. If it fails, the box is stopped anyway.
    with suppress(TenantError, TimeoutError):
        async with asyncio.timeout(_READ_WITHIN_S):
            lease, others = await check_before_seal(context, lease)
            if isinstance(others, Assessment):
                return None
            seen = await assess(context, lease, others=others)
            await must_be_the_box(context, lease)
        if seen.missing:
            return seen
    return None


async def note_read(context: Context, lease: Lease, seen: Assessment) -> None:
    """Record what was read before the stop, and what the provider says about the stop.

    If the provider says nothing about it, record nothing.
    """
    ledger, connector = context.ledger, context.connector(lease)
    if seen.seal is None or not isinstance(connector, Chronicling):
        return
    with context.hold_lease(lease.id, "park"):
        found = ledger.lease(lease.id)
        if found.state is not LeaseState.ACTIVE or not _was_only_stopped(context, found):
            return  # Somebody has done something else with the box meanwhile.
        try:
            said = await connector.last_change(found)
            shown = await look(context, found)
        except ProviderTrouble:
            return
        if said is None or not isinstance(shown, Listed) or shown.box.state is not BoxState.PARKED:
            return
        ledger.file_seal(lease.id, seen.seal, at=ledger.now())
        read = timeline.ReadAtStop(seal=seen.seal.digest, missing=seen.missing, last_change=said)
        ledger.note(lease.id, read, at=ledger.now())


async def read_for_its_stop(context: Context, lease: Lease) -> timeline.ReadAtStop | None:
    """Return what was read of a parked box right before its stop. None if it may hold more than that.

    A box whose destroy was permitted as *verified* was read for that permit. If its provider refused or ignored the
    destroy, and the box was only stopped since, that reading counts: whatever came on the box after the permit would
    be gone if the provider had obeyed.
    """
    ledger = context.ledger
    events = ledger.events(lease.id)
    read = read_at_stop(events)
    seal = permitted_seal(events)
    if read is not None or seal is None or lease.state is not LeaseState.TERMINATING:
        return read
    connector, said = context.connector(lease), None
    if isinstance(connector, Chronicling):
        said = await connector.last_change(lease)
        if said is None:
            return None
    read = timeline.ReadAtStop(seal=seal, missing=(), last_change=said)
    ledger.note(lease.id, read, at=ledger.now())
    return read


def _was_only_stopped(context: Context, lease: Lease) -> bool:
    """Whether the lease's newest events are the request to stop its box, and the stop."""
    news: list[timeline.Event] = []
    for _, event in reversed(context.ledger.events(lease.id)):
        if isinstance(event, timeline.Parking):
            return any(isinstance(each, timeline.Parked) for each in news)
        if not isinstance(event, timeline.Parked | timeline.Priced | timeline.Billed):
            return False
        news.append(event)
    return False


def give_up_missing(context: Context, lease: Lease, patterns: list[str]) -> Collected:
    """Give up artifacts that never appeared on a parked box, without starting it.

    Raises:
        Refused: the box was not read right before its stop, or a pattern is not such an artifact.
    """
    ledger = context.ledger
    read, seal = read_at_stop(ledger.events(lease.id)), ledger.seal(lease.id)
    given = told_apart((), patterns)[1]
    resumed = f"{resume_step(lease, ledger.events(lease.id), ledger.now())}, then run the same command again"
    if read is None or seal is None or seal.digest != read.seal or lease.kept_in is None:
        raise parked_refusal(context, lease)
    strange = [pattern for pattern in given if pattern not in read.missing]
    if strange:
        raise Refused(
            f"{lease.id} is parked, and {strange[0]!r} is not one of its artifacts that never appeared",
            remedy=f"{Command('collect', lease.id, discard=read.missing)} gives up those; or {resumed}",
        )
    ledger.claim(lease.id, artifacts=(), discard=given, at=ledger.now())
    given_up = {*ledger.declarations(lease.id)[1], *unbegun_jobs(seal, lease.id, ledger).patterns}
    return answer_of(lease, seal, lease.kept_in, (), given_up)
