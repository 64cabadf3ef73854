"""Looks for a lease's box in its provider's list, and records each look.

These looks decide whether a box is gone, was lost, or was never made.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from weakref import WeakKeyDictionary

from gpu_tenant.domain import timeline
from gpu_tenant.domain.clock_offset import offset_now
from gpu_tenant.domain.errors import PartlyListed, ProviderTrouble
from gpu_tenant.domain.interruption import TURNS
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxState, Lease, Profile
from gpu_tenant.domain.ports import Connector, Tended, Timekeeping
from gpu_tenant.domain.reconcile import Blind, Listed, Omitted, Patience, Seen
from gpu_tenant.leases.account_check import note_asking, stranger
from gpu_tenant.leases.context import Context
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.response_limits import await_list

_STARTS_WITHIN_S, _RELAUNCHES_WITHIN_S = 120, 600
"""How long a box that was started again may be shown as stopped, and as ended."""
_ENDED_SINCE: dict[tuple[str, str, datetime], datetime] = {}
"""When this process first saw a box as ended that its provider had stopped. The key names the ledger, the lease and
when the stop was recorded."""


def patience(profile: Profile, lease: Lease) -> Patience:
    """Return how late the list with the lease's box may be. Our own list of console boxes is never late."""
    if lease.goes_by_address:
        return Patience(list_lag_s=0, confirm_s=0)
    return Patience(list_lag_s=profile.list_lag_s, confirm_s=profile.confirm_s)


class Listing(NamedTuple):
    """A provider's list."""

    boxes: Sequence[Box]
    asked_at: datetime
    """When the list was requested. It may omit boxes that were made later."""
    gap: str | None = None
    """Why a box that the list omits may still exist. None if the list is complete."""


async def look(
    context: Context,
    lease: Lease,
    *,
    listing: Listing | None = None,
) -> Seen:
    """Return what the provider's list says about the lease's box. A look at a live lease is recorded.

    If `listing` was requested after the lease was recorded, it is used. Otherwise the provider is asked.
    """
    connector, ledger = context.connector(lease), context.ledger
    if listing is None or listing.asked_at < lease.created_at:
        asked_at = ledger.now()
        try:
            listing = Listing(await _ask_list(connector), asked_at)
        except PartlyListed as part:
            listing = Listing(boxes_of(part), asked_at, part.message)
        except ProviderTrouble as error:
            return Blind(error.message)
    note_clock(context, lease)
    box = next((box for box in listing.boxes if is_of(box, lease)), None)
    if box is not None:
        await note_asking(context, lease)
        if ledger.absences(lease.id):
            ledger.saw(lease.id, listed="listed", at=listing.asked_at)
        return Listed(as_started(lease, box, ledger=ledger))
    if listing.gap is not None:
        return Blind(listing.gap)
    if isinstance(connector, Tended) and lease.goes_by_address and not ledger.is_attested(lease.id):
        # The box is missing from our own list, but no person has stated that it is gone.
        return Listed(await connector.create(lease))
    strange = await stranger(context, lease)
    if strange is not None:
        return Blind(strange, words=strange)
    ledger.saw(lease.id, listed="omitted", at=listing.asked_at)
    return Omitted(ledger.absences(lease.id), ledger.last_listed(lease.id))


def note_clock(context: Context, lease: Lease) -> None:
    """Record how far this computer's clock is ahead of the provider's, if that has changed since the last record."""
    connector, ledger = context.connector(lease), context.ledger
    if not isinstance(connector, Timekeeping) or connector.ahead is None or not lease.state.live:
        return
    known = ledger.lease(lease.id)
    moved = offset_now(known, ledger.events(lease.id), connector.ahead)
    if moved is not None:
        ledger.note(lease.id, moved, at=ledger.now())


async def shown_box(context: Context, lease: Lease) -> Box | None:
    """Return the lease's box as its provider shows it now. None if it does not show the box. Nothing is recorded."""
    try:
        boxes: Sequence[Box] = await _ask_list(context.connector(lease))
    except PartlyListed as part:
        boxes = boxes_of(part)
    except ProviderTrouble:
        return None
    box = next((box for box in boxes if is_of(box, lease)), None)
    return box and as_started(lease, box, ledger=context.ledger)


def as_started(lease: Lease, box: Box, *, ledger: Ledger) -> Box:
    """Return the box. If it has just started again and is still shown as it was left, return it as one that boots.

    Vast.ai shows a container as ended for up to 10 minutes after a start (seen on 2026-10-02). Lists are late anyway.
    """
    late_s = {BoxState.PARKED: _STARTS_WITHIN_S, BoxState.BROKEN: _RELAUNCHES_WITHIN_S}
    if box.state is BoxState.PARKED and box.words:
        return (
            box  # Its provider says why it does not start, for example that it waits for its GPU.
        )
    turns = ledger.events(lease.id, *TURNS) if box.state in late_s and box.taken is None else ()
    if not turns:
        return box
    last = turns[-1].event
    stopped = isinstance(last, timeline.Taken) and last.fate not in (None, "host_lost")
    if isinstance(last, timeline.Resumed):
        since = turns[-1].at
    elif stopped and box.state is BoxState.BROKEN:
        # It was stopped, and has started by itself at some time before this process first saw it so.
        since = _ENDED_SINCE.setdefault((str(ledger.path), lease.id, turns[-1].at), ledger.now())
    else:
        return box
    if ledger.now() >= since + timedelta(seconds=late_s[box.state]):
        return box
    return box.model_copy(update={"state": BoxState.BOOTING, "price_usd_h": None})


def boxes_of(part: PartlyListed) -> Sequence[Box]:
    """Return the boxes in an incomplete list."""
    return [box for box in part.shown if isinstance(box, Box)]


class _Rounds:
    """Requests for one provider's list, one after the other. All callers that wait for the next list share it."""

    def __init__(self) -> None:
        # `_now` is the running request. `_next` begins when `_now` has ended. All callers that ask before that share
        # `_next`.
        self._now: asyncio.Task[Sequence[Box]] | None = None
        self._next: asyncio.Task[Sequence[Box]] | None = None

    async def next_list(self, connector: Connector) -> Sequence[Box]:
        if self._next is None or self._next.done():
            self._next = asyncio.create_task(self._ask(connector))
        # If one caller gives up waiting, the others still get the list.
        return await asyncio.shield(self._next)

    async def _ask(self, connector: Connector) -> Sequence[Box]:
        if self._now is not None and not self._now.done():
            await asyncio.wait([self._now])
        self._now, self._next = self._next, None
        return await await_list(connector.list_boxes(), "the provider's list")


_ROUNDS: WeakKeyDictionary[Connector, _Rounds] = WeakKeyDictionary()


async def _ask_list(connector: Connector) -> Sequence[Box]:
    """Return a list that was requested after this call began. A hundred booting boxes share one list."""
    return await _ROUNDS.setdefault(connector, _Rounds()).next_list(connector)


def is_of(box: Box, lease: Lease) -> bool:
    """Whether that box is the lease's."""
    if lease.box_id is None:
        return box.mark == lease.mark
    # A person may have renamed the box. It is still the lease's box, unless its new name is the mark of another lease.
    another_s = box.mark != lease.mark and (box.mark or "").startswith(MARK_PREFIX)
    return box.id == lease.box_id and not another_s
