"""What was read of a box right before its stop, so that it can be ended without being started again."""

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.parked import permitted, read_at_stop
from gpu_tenant.domain.ports import Chronicling
from gpu_tenant.leases.context import Context


async def read_for_its_stop(context: Context, lease: Lease) -> timeline.ReadAtStop | None:
    """Return what was read of a parked box right before its stop. None if it may hold more than that.

    A box whose destroy was permitted as *verified* or *never used* was read for that permit. If its provider refused or
    ignored the destroy, and the box was only stopped since, that reading counts: whatever came on the box after the
    permit would be gone if the provider had obeyed.
    """
    ledger = context.ledger
    events = ledger.events(lease.id)
    read = read_at_stop(events)
    permit = permitted(events)
    if read is not None or permit is None or lease.state is not LeaseState.TERMINATING:
        return read
    connector, said = context.connector(lease), None
    if isinstance(connector, Chronicling):
        said = await connector.last_change(lease)
        if said is None:
            return None
    read = timeline.ReadAtStop(seal=permit.seal, last_change=said)
    ledger.note(lease.id, read, at=ledger.now())
    return read
