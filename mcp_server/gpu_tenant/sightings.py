"""Looks at a provider's list, each on record: what gone, lost and never made rest upon."""

from collections.abc import Sequence

from gpu_tenant.errors import ProviderTrouble
from gpu_tenant.ledger import Ledger
from gpu_tenant.model import MARK_PREFIX, Box, Lease, Profile
from gpu_tenant.ports import Clock, Connector
from gpu_tenant.reconcile import Blind, Listed, Omitted, Patience, Seen


def patience(profile: Profile) -> Patience:
    """How long that platform's list is given."""
    return Patience(list_lag_s=profile.list_lag_s, confirm_s=profile.confirm_s)


async def look(
    lease: Lease,
    *,
    connector: Connector,
    ledger: Ledger,
    clock: Clock,
    boxes: Sequence[Box] | None = None,
) -> Seen:
    """What the provider's list says of the lease's box now; a look at a live lease is on record.

    `boxes` is such a list, when one was just made.
    """
    if boxes is None:
        try:
            boxes = await connector.list_boxes()
        except ProviderTrouble as error:
            return Blind(error.message)
    box = next((box for box in boxes if is_of(box, lease)), None)
    if box is not None:
        if ledger.absences(lease.id):
            ledger.saw(lease.id, listed="listed", at=clock.now())
        return Listed(box)
    ledger.saw(lease.id, listed="omitted", at=clock.now())
    return Omitted(ledger.absences(lease.id))


def is_of(box: Box, lease: Lease) -> bool:
    """Whether that is the lease's box."""
    if lease.box_id is None:
        return box.mark == lease.mark
    # A person may have renamed it. It is there, and bills, under any name but another lease's.
    another_s = box.mark != lease.mark and (box.mark or "").startswith(MARK_PREFIX)
    return box.id == lease.box_id and not another_s
