"""Reads a box in full while its platform takes it, so that it can be ended later without being started again.

It is read when its jobs have ended and all their files are here, and then repeatedly until it is stopped. The result is
valid only if the provider says that the box was stopped soon after it was last read.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial

from gpu_tenant.artifacts.stores.protocol import DurableStore
from gpu_tenant.box.manifest import reseal
from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import ProviderTrouble, TenantError
from gpu_tenant.domain.interruption import is_being_taken, recorded_fate
from gpu_tenant.domain.model import BoxState, Lease, LeaseState
from gpu_tenant.domain.parked import read_in_notice
from gpu_tenant.domain.ports import Chronicling, Dating
from gpu_tenant.domain.reconcile import Listed
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.inspection import check_before_seal, must_be_the_box
from gpu_tenant.leases.provider_listing import look
from gpu_tenant.leases.verify import Assessment, assess, assess_unstarted, changed_since

_READ_WITHIN_S = 60
"""Reading a box with notice may take at most this many seconds. Its notice is not much longer."""
_AGAIN_S = 15
"""After this many seconds, the box is read again, and the record is renewed."""
_STOPPED_WITHIN = timedelta(seconds=60)
"""A box counts as read right before its stop if its stop came within this time. A shutdown may take half a minute."""


async def read_while_it_answers(context: Context, lease: Lease) -> None:
    """If a box with notice has no file that is not kept here, record this. If the box has no notice, do nothing.

    If this fails, nothing is lost, but the box has to be started again before it can be ended.

    Raises:
        LeaseHeld: another process is acting on the lease.
    """
    ledger, connector = context.ledger, context.connector(lease)
    now, events = ledger.now(), ledger.events(lease.id)
    if lease.state is not LeaseState.ACTIVE or lease.parked_at is not None:
        return
    if not is_being_taken(events, now) or lease.touched_at is None:
        return
    if not (isinstance(connector, Dating) and isinstance(connector, Chronicling)):
        return  # The provider could not say later whether the box was started.
    before = read_in_notice(events)
    if before is not None and now - before[0] < timedelta(seconds=_AGAIN_S):
        return
    with context.hold_lease(lease.id, "seal"), suppress(TenantError, TimeoutError):
        async with asyncio.timeout(_READ_WITHIN_S):
            lease, others = await check_before_seal(context, lease)
            if isinstance(others, Assessment) or others:
                return
            seal = ledger.seal(lease.id)
            if before is not None and seal is not None and seal.digest == before[1].seal:
                # Nothing was unclaimed when it was read. So the count shows a new file, however few are named.
                again = partial(reseal, context.session(lease), ledger=ledger)
                if await changed_since(seal, again, lease):
                    return
                await must_be_the_box(context, lease)
                ledger.note(lease.id, before[1], at=ledger.now())
                return
            seen = await assess(context, lease)
            await must_be_the_box(context, lease)
            turns = await connector.turns(lease)
        if seen.seal is None or turns is None or seen.losses:
            return
        ledger.file_seal(lease.id, seen.seal, at=ledger.now())
        read = timeline.ReadInNotice(seal=seen.seal.digest, started=turns.started)
        ledger.note(lease.id, read, at=ledger.now())


def needs_no_start(context: Context, lease: Lease) -> bool:
    """Whether the ledger says that the lease's box was taken and was read in full right before."""
    events = context.ledger.events(lease.id)
    return (
        lease.state is LeaseState.ACTIVE
        and lease.parked_at is None
        and recorded_fate(events) == "preempted"
        and read_in_notice(events) is not None
    )


async def assess_taken(
    context: Context, lease: Lease, *, store: DurableStore | None
) -> Assessment | None:
    """Assess a box that was taken, without starting it, by what was read right before. None if that proves nothing.

    If nothing would be lost, record the lease as parked, and the box as read at its stop.
    """
    ledger, connector = context.ledger, context.connector(lease)
    before = read_in_notice(ledger.events(lease.id))
    if before is None or not needs_no_start(context, lease):
        return None
    if not (isinstance(connector, Dating) and isinstance(connector, Chronicling)):
        return None
    read_at, told = before
    try:
        turns = await connector.turns(lease)
        said = await connector.last_change(lease)
        seen = await look(context, lease)
    except ProviderTrouble:
        return None
    if turns is None or said is None or turns.started != told.started:
        return None  # It was started since, or this is unknown.
    # If the stop seems to come before the reading, the two clocks differ. Then it is unknown how long the box ran on.
    if turns.stopped_at is None or not (
        timedelta(0) <= turns.stopped_at - read_at <= _STOPPED_WITHIN
    ):
        return None
    if not isinstance(seen, Listed) or seen.box.state is not BoxState.PARKED:
        return None
    read = timeline.ReadAtStop(seal=told.seal, last_change=said)
    assessed = await assess_unstarted(context, lease, read, store=store, by=told)
    if not assessed.losses:
        ledger.note_parked(lease.id, seen.box.price_usd_h, at=ledger.now())
        ledger.note(lease.id, read, at=ledger.now())
    return assessed
