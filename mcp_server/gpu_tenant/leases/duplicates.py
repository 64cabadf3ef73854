"""Which box is a second one of a request of ours, and which one only carries its mark."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from gpu_tenant.box.ownership import Seen, Unseen
from gpu_tenant.domain.model import Box, Lease, Profile
from gpu_tenant.ledger import Event, Ledger

_CLOCKS_APART_S = 60
_LATE = timedelta(hours=1)
"""So long after a request was given up its provider may still carry it out."""

Look = Callable[[Lease, Box], Awaitable[Seen]]
"""What a box that was made twice tells of itself."""


async def nobody_looks(lease: Lease, box: Box) -> Seen:
    """Nothing is known of the box, which may have been used."""
    return Unseen(f"there is no way to look at {box.id}", f"`gpu-tenant audit {lease.id}`")


def was_asked_for(
    box: Box, lease: Lease, profile: Profile, ledger: Ledger, *, seen_at: datetime
) -> bool:
    """Whether its provider made the box while the lease's own request for one was open, or had just timed out.

    A mark is text that a person's clone carries as well. When a box was made is no text of anybody's, but where
    its provider does not say so: there a box is the request's only where it was first seen soon after.
    """
    if box.created_at is None:
        return False
    soon = box.made_by_word_of == "provider"
    apart = timedelta(seconds=max(_CLOCKS_APART_S, profile.list_lag_s))
    for at, kind, _ in ledger.events(lease.id):
        if kind in (Event.BOUND, Event.ENDED):
            late = timedelta(0) if kind == Event.BOUND else _LATE
            soon = soon or seen_at <= at + apart + _LATE
            return soon and lease.created_at - apart <= box.created_at <= at + apart + late
    return lease.created_at - apart <= box.created_at


def unasked(box: Box, lease: Lease) -> str:
    """What a person hears of a box that carries the mark of a lease which did not ask for it."""
    made = "" if box.created_at is None else f", made at {box.created_at:%Y-%m-%d %H:%M} UTC,"
    price = "at an unknown rate" if box.price_usd_h is None else f"at {box.price_usd_h} USD/h"
    return (
        f"a box at {box.provider}{made} carries the mark of {lease.id}, which is not known to have asked for it "
        f"(a clone, or a second order): nothing was done to it, and it bills {price}; "
        f"`gpu-tenant adopt --on {box.provider} {box.id}` puts it under a lease, or end it in the console"
    )
