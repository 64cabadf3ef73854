"""Starts a stopped box once after the end of its work, so that its files can be proved and the box be ended.

A box that its guard or its provider has stopped bills for its disk until somebody ends it. Nothing can be proved of a
box that does not run. The start is paid from the rescue sum.
"""

from functools import partial
from typing import Literal

from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.ports import Parking, Tended
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.park import resume
from gpu_tenant.leases.readiness import made_ready
from gpu_tenant.leases.ssh_access import forget_host_key
from gpu_tenant.leases.term_checks import may_start_to_end, may_start_what_moved

LETS_IN_S = 300
"""A box that was started for its end lets us in within this time, or is stopped again."""


async def start_to_end(
    context: Context,
    lease: Lease,
    *,
    why: Literal["deadline", "moved"] = "deadline",
    wait_s: float = LETS_IN_S,
) -> bool:
    """Start the stopped box, if that is due, and wait at most `wait_s` until it lets us in and its guard is armed.

    Its deadline stays where it is. If the work went on elsewhere and is over (`why`), the start need not wait for the
    deadline. Returns whether the box was started.

    Raises:
        LeaseHeld: another process is acting on the lease.
        Limit: the owner's limits leave no room for a running box; nothing was started.
        NoCapacity, ProviderTrouble: the provider did not start it; the disk is kept, and bills.
    """
    connector = context.connector(lease)
    by_hand = isinstance(connector, Tended) and connector.tends(lease.box_id)
    if by_hand or not isinstance(connector, Parking):
        return False
    with context.hold_lease(lease.id, "resume"):
        found = context.ledger.lease(lease.id)
        events = context.ledger.events(lease.id)
        now = context.clock.now()
        is_due = may_start_to_end(found, events, now)
        if not is_due and not (why == "moved" and may_start_what_moved(found, events, now)):
            return False
        allowed = partial(context.owner.allows, besides=found.id)
        found = await resume(context, found, allowed=allowed)
        forget_host_key(context, found)
        await made_ready(context, found, wait_s=wait_s)
    return True
