"""Handles boxes that appear late in a provider's list, are missing from it, or appear again."""

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
    """Bind the lease to `box`, which was requested at `asked_at`. Its cost counts from when the box was made.

    Raises:
        BoxTaken: another live lease has the box.
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
    """If booting costs less than running and nobody saw when the box started to run, record this doubt."""
    doubt = unseen_boot(box, quote, since=since, now=at)
    if doubt is not None:
        ledger.note(lease.id, doubt, at=at)


def missed_once(lease: Lease, again_at: datetime, ledger: Ledger) -> str:
    """Say what a person must know about a box that its provider's list has omitted once."""
    if lease.state is not LeaseState.TERMINATING:
        return "its box is not in the provider's list; one look proves nothing"
    asked_at = destroy_asked_at(ledger.events(lease.id)) or ledger.newest_permit(lease.id)[1]
    return (
        f"its destroy was requested at {asked_at:%H:%M:%S} UTC, and its provider's list has omitted the box once: it "
        f"has to omit it twice; {Command('teardown', lease.id)} waits for that, from {again_at:%H:%M:%S} UTC on"
    )


async def by_its_id(lease: Lease, connector: Connector) -> Box | str | None:
    """Ask the provider for the box by its id, because the list omits the box.

    Returns the box if the provider finds it, and words for a person if the provider does not answer. Returns None if
    the provider finds no such box, or cannot search by id.
    """
    if not isinstance(connector, Findable):
        return None
    try:
        box = await connector.find_box(lease)
    except ProviderTrouble as error:
        return (
            f"its provider's list omits the box, and asking for the box by its id failed ({error.message}); "
            f"it may be running, {rate_words(lease)}"
        )
    return box if box is not None and is_of(box, lease) else None


def come_back(lost: Lease, *, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Make a lost lease live again, because its box is listed again. Yields what a person must hear."""
    try:
        with ledger.hold(lost.id, "come back", at=ledger.now()):
            if ledger.lease(lost.id).state is LeaseState.LOST:
                ledger.come_back(lost.id, at=ledger.now())
    except (BoxTaken, LeaseHeld):
        return  # Another lease has the box now, or another process is acting on this lease.
    went_on = [each.id for each in ledger.leases("live") if each.recovers == lost.id]
    words = (
        "its provider lists the box again, which it had omitted: the box was never gone, and the lease is live again "
        f"under its terms; the box has been billing {rate_words(lost)}"
    )
    if went_on:
        words += (
            f"; its work was continued under {', '.join(went_on)}, too: end one of the two leases"
        )
    yield lost.id, words
