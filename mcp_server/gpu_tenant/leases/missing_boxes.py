"""A box that is found late, missed once, gone for good, or found again. Each is reported as what it is."""

from collections.abc import Iterator
from datetime import datetime

from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing_start import birth
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.cost_uncertainty import destroy_asked_at, unseen_boot, unseen_stop
from gpu_tenant.domain.errors import BoxTaken, LeaseHeld, ProviderTrouble
from gpu_tenant.domain.model import Box, Lease, LeaseState
from gpu_tenant.domain.offers import Quote
from gpu_tenant.domain.ports import Connector, Findable
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.provider_listing import is_of
from gpu_tenant.ledger import Ledger


def stand_on(context: Context, lease: Lease, box: Box, *, asked_at: datetime) -> Lease:
    """The lease stands on `box`, requested at `asked_at`. Its cost counts from when the box was made.

    Raises:
        BoxTaken: another live lease stands on it.
    """
    profile, ledger = context.profile(lease.provider), context.ledger
    now = ledger.now()
    born = birth(box, asked_at=asked_at, now=now, list_lag_s=profile.list_lag_s)
    doubt = unseen_stop(lease, box, since=born.at, now=now)
    ran = box if doubt is None else box.model_copy(update={"price_usd_h": doubt.usd_h})
    lease = ledger.bind(lease.id, ran, at=now, since=born.at)
    if doubt is not None:
        ledger.note(lease.id, doubt.doubt, at=now)
        if box.price_usd_h is not None:
            lease = ledger.note_rate(lease.id, box.price_usd_h, at=now)
    note_unseen_boot(lease, box, lease.quote, since=born.at, ledger=ledger, at=now)
    if born.words is not None:
        ledger.note(lease.id, timeline.Noticed(words=born.words), at=now)
    return lease


def note_unseen_boot(
    lease: Lease, box: Box, quote: Quote | None, *, since: datetime, ledger: Ledger, at: datetime
) -> None:
    """If booting costs less, the ledger says that nobody saw when the box stopped booting."""
    doubt = unseen_boot(box, quote, since=since, now=at)
    if doubt is not None:
        ledger.note(lease.id, doubt, at=at)


def missed_once(lease: Lease, again_at: datetime, ledger: Ledger) -> str:
    """What a person must hear about a box that its provider's list has omitted once."""
    if lease.state is not LeaseState.TERMINATING:
        return "its box is not in the provider's list; one look proves nothing"
    asked_at = destroy_asked_at(ledger.events(lease.id)) or ledger.newest_permit(lease.id)[1]
    return (
        f"its destroy was asked at {asked_at:%H:%M:%S} UTC, and its provider's list has omitted it once: it "
        f"has to twice; {Command('teardown', lease.id)} waits for that, from {again_at:%H:%M:%S} UTC on"
    )


async def by_its_id(lease: Lease, connector: Connector) -> Box | str | None:
    """The box that the list omits, if its provider finds it by its id. Words, if that could not be learned.

    None if the provider finds no such box, or cannot search by id.
    """
    if not isinstance(connector, Findable):
        return None
    try:
        box = await connector.find_box(lease)
    except ProviderTrouble as error:
        return (
            f"its provider's list omits the box, and was asked for it by its id in vain ({error.message}); "
            f"it may be running, {rate_words(lease)}"
        )
    return box if box is not None and is_of(box, lease) else None


def come_back(lost: Lease, *, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """The lease of a missed box that is listed again is live as it was. Yields what a person must hear."""
    try:
        with ledger.hold(lost.id, "come back", at=ledger.now()):
            if ledger.lease(lost.id).state is LeaseState.LOST:
                ledger.come_back(lost.id, at=ledger.now())
    except (BoxTaken, LeaseHeld):
        return  # another lease stands on it now, or another process is working on it
    went_on = [each.id for each in ledger.leases("live") if each.recovers == lost.id]
    words = (
        "its provider lists the box again, which it had omitted: it was never gone, and the lease goes on "
        f"with its terms, {rate_words(lost)} all the while"
    )
    if went_on:
        words += f"; its work goes on under {', '.join(went_on)}, too: end the one that is too many"
    yield lost.id, words
