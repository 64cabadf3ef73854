"""Starts a stopped box once after the end of its lease, so that its files can be proved and the box be ended.

A box that its guard or its provider has stopped bills for its disk until somebody ends it. Nothing can be proved of a
box that does not run. The start is paid from the rescue sum.
"""

from datetime import datetime
from functools import partial

from gpu_tenant.domain.last_start import last_start_at
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.policy import last_start_usd, rescue, running_usd_h
from gpu_tenant.domain.ports import Parking, Tended
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.terms import cost_usd
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.park import resume
from gpu_tenant.leases.ssh_access import forget_host_key
from gpu_tenant.leases.term_checks import NO_USD, began_at


def may_start_to_end(context: Context, lease: Lease, events: Lines, now: datetime) -> bool:
    """Whether to start the stopped box now, to end it.

    It is started only after its deadline, once, and only if its rescue sum pays for it. A box that somebody has stopped
    on purpose is left alone. So is one whose end was refused when it last ran: another start would show the same.
    """
    box, connector = story_of(events).box, context.connector(lease)
    if lease.state is not LeaseState.ACTIVE or lease.parked_at is None or lease.touched_at is None:
        return False
    by_hand = isinstance(connector, Tended) and connector.tends(lease.box_id)
    if by_hand or not isinstance(connector, Parking) or now < lease.terms.deadline_at:
        return False
    if box.is_kept_at_will or box.was_refused or last_start_at(lease, events) is not None:
        return False
    most, usd_h, began = rescue(lease), running_usd_h(lease), began_at(lease, events)
    if most is None or usd_h is None:
        return False
    spent = NO_USD if began is None else cost_usd(lease.rates, since=began, until=now)
    return spent is not None and spent + last_start_usd(usd_h) <= most


async def start_to_end(context: Context, lease: Lease) -> None:
    """Start the stopped box. Its deadline stays where it is: the next look ends the lease.

    Raises:
        LeaseHeld: another process is acting on the lease.
        Limit: the owner's limits leave no room for a running box; nothing was started.
        NoCapacity, ProviderTrouble: the provider did not start it; the disk is kept, and bills.
    """
    with context.hold_lease(lease.id, "resume"):
        found = context.ledger.lease(lease.id)
        if may_start_to_end(context, found, context.ledger.events(lease.id), context.clock.now()):
            allowed = partial(context.owner.allows, besides=found.id)
            forget_host_key(context, await resume(context, found, allowed=allowed))
