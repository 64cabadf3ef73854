"""Distinguishes a second box that our own request made from a box that only has a copy of our mark."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.model import Box, Lease
from gpu_tenant.leases.context import Context

if TYPE_CHECKING:
    from gpu_tenant.box.ownership import Seen

_CLOCKS_APART_S = 60
_LATE = timedelta(hours=1)
"""A provider may still carry out a request this long after we gave the request up."""

Look = Callable[[Lease, Box], Awaitable["Seen"]]
"""A function that looks at such a second box, and returns what the box shows about itself."""


async def nobody_looks(lease: Lease, box: Box) -> Seen:
    """Do not look at the box. Nothing is known about it, so it may have been used."""
    from gpu_tenant.box.ownership import Unseen

    return Unseen(f"there is no way to look at {box.id}", str(Command("audit", lease.id)))


def was_asked_for(context: Context, box: Box, lease: Lease, *, seen_at: datetime) -> bool:
    """Whether the provider made the box while the lease's own request was open, or had just timed out.

    A mark is text, and a clone that a person makes has it too. Nobody can forge the time when a provider made a box.
    Some providers do not state this time. There, a box counts as ours only if it was first seen soon after the request.
    """
    profile = context.profile(lease.provider)
    if box.created_at is None:
        return False
    soon = box.made_by_word_of == "provider"
    apart = timedelta(seconds=max(_CLOCKS_APART_S, profile.list_lag_s))
    for at, event in context.ledger.events(lease.id):
        if isinstance(event, timeline.Bound | timeline.Ended):
            late = timedelta(0) if isinstance(event, timeline.Bound) else _LATE
            soon = soon or seen_at <= at + apart + _LATE
            return soon and lease.created_at - apart <= box.created_at <= at + apart + late
    return lease.created_at - apart <= box.created_at


def unasked_words(box: Box, lease: Lease) -> str:
    """Say what a person must know about a box that has the mark of a lease but was not requested by this lease."""
    made = "" if box.created_at is None else f", made at {box.created_at:%Y-%m-%d %H:%M} UTC,"
    price = "at an unknown rate" if box.price_usd_h is None else f"at {box.price_usd_h} USD/h"
    return (
        f"a box at {box.provider}{made} carries the mark of {lease.id}, but that lease is not known to have asked for this box "
        f"(it is a clone, or a second order): nothing was done to the box, and it bills {price}; "
        f"{Command('adopt', box.id, on=box.provider)} puts it under a lease; or end it in the provider's console"
    )
