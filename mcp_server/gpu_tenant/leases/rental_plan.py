"""The plan of a rental, as a person is shown it before they agree: which box, until when, and for how much."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal

from gpu_tenant.domain.errors import Limit, Refused
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.offers import Quote
from gpu_tenant.domain.policy import running_usd_h
from gpu_tenant.domain.standing_wish import is_wish
from gpu_tenant.domain.terms import RentRequest, Terms
from gpu_tenant.domain.wording import some, usd_words
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.provision import must_be_hours, terms_by_quote
from gpu_tenant.leases.rent import must_have_room, quotes_for
from gpu_tenant.leases.spending_plan import SpendingPlan, most_usd


def plan_of_rental(
    context: Context,
    quotes: Sequence[str],
    asked: RentRequest,
    *,
    count: int = 1,
    wait_h: float = 0,
) -> SpendingPlan | None:
    """Return what renting by those quotes, or waiting for that wish, promises. None if it promises nothing new.

    A quote that has rented already is answered with its lease, and a wish that stands was agreed to.
    """
    ledger, now = context.ledger, context.clock.now()
    if asked.hours is not None:
        must_be_hours(asked.hours)
    if count == 1 and ledger.rented_by(quotes):
        return None
    found = [quote for quote in map(ledger.quote, quotes) if quote is not None]
    wishes = [name for name in quotes if is_wish(name)]
    if wait_h:
        standing = [
            ledger.wish(name) for name in {*wishes, *(q.wish_id for q in found if q.wish_id)}
        ]
        if len(standing) != 1 or (standing[0].stands and asked == RentRequest()):
            return None
        return _of_wait(standing[0].id, standing[0].what, found, asked, wait_h, now, context)
    if not found:
        return None  # what is wrong with these names is told by whoever rents by them
    if count > 1:
        found = quotes_for(context, found, count)
    _must_fit_one(context, found, asked, count)
    usd = most_by_quotes(found, asked, now)
    if usd is not None and count > 1:
        usd = usd if asked.budget_usd is not None else usd * count
    first = found[0]
    boxes = "a box" if count == 1 else some(count, "box")
    return SpendingPlan(
        kind="rent",
        subjects=tuple(quote.id for quote in found),
        would=f"rent {boxes} with {first.offer.gpu_count} x {first.offer.gpu} at {first.offer.provider}",
        usd=usd,
        lines=tuple(_lines(found, terms_by_quote(first, asked, now))),
        has_free_bytes=all(quote.offer.price.has_free_bytes for quote in found),
        is_budget=asked.budget_usd is not None and usd == asked.budget_usd,
    )


def _must_fit_one(
    context: Context, quotes: Sequence[Quote], asked: RentRequest, count: int
) -> None:
    """Check that the owner's limits have room for one of these quotes, before a person is asked about them.

    Raises:
        Limit: they have none.
    """
    for quote in quotes[:-1]:
        with suppress(Limit):
            must_have_room(context, quote, asked, count)
            return
    must_have_room(context, quotes[-1], asked, count)


def most_by_quotes(quotes: Sequence[Quote], asked: RentRequest, now: datetime) -> Decimal | None:
    """Return the most that a box by any of these quotes costs by its deadline. None if that is unknown."""
    each = [_most_by_quote(quote, asked, now) for quote in quotes]
    known = [usd for usd in each if usd is not None]
    return max(known) if known and len(known) == len(each) else None


def _most_by_quote(quote: Quote, asked: RentRequest, now: datetime) -> Decimal | None:
    terms, price = terms_by_quote(quote, asked, now), quote.offer.price.running_usd_h
    if price is None:
        return terms.budget_usd
    cap = quote.cap_usd_h if asked.max_price_usd_h is None else asked.max_price_usd_h
    return most_usd(
        max(price, min(cap, quote.cap_usd_h)), terms.deadline_at - now, terms.budget_usd
    )


def plan_of_hours(
    context: Context, lease: Lease, hours: float, budget_usd: Decimal | None
) -> SpendingPlan | None:
    """Return what a deadline in that many hours promises beyond what was agreed. None if that is nothing.

    A larger budget takes a signature of its own, so it is not asked about here.
    """
    must_be_hours(hours)
    later = {"deadline_at": context.clock.now() + timedelta(hours=hours)}
    if budget_usd is not None and budget_usd != lease.terms.budget_usd:
        return None
    terms = lease.terms.model_copy(update=later)
    usd_h = lease.price_usd_h if lease.parked_at is None else running_usd_h(lease)
    return context.owner.plan_of_change(lease, terms, usd_h)


def _of_wait(
    wish: str,
    what: str,
    quotes: Sequence[Quote],
    asked: RentRequest,
    wait_h: float,
    now: datetime,
    context: Context,
) -> SpendingPlan | None:
    from gpu_tenant.leases.wait import cap_of

    try:
        cap = cap_of(context, wish, [quote.id for quote in quotes], asked)
    except Refused:
        return None
    wished = context.ledger.wish(wish).wish.hours
    hours = max(1.5 * wished, wished + 1) if asked.hours is None else asked.hours
    usd = (cap * Decimal(str(hours))).quantize(Decimal("0.01"))
    return SpendingPlan(
        kind="rent",
        subjects=(f"{wish} {cap} {hours:g}",),
        would=f"rent a box when there is one, within {wait_h:g} h: {what}",
        usd=usd if asked.budget_usd is None else min(usd, asked.budget_usd),
        lines=(f"no box above {cap} USD/h, for {hours:g} h",),
        has_free_bytes=bool(quotes) and all(x.offer.price.has_free_bytes for x in quotes),
        is_budget=asked.budget_usd is not None and asked.budget_usd < usd,
    )


def _lines(quotes: Sequence[Quote], terms: Terms) -> list[str]:
    told = []
    for quote in quotes:
        offer = quote.offer
        price = offer.price.running_usd_h
        at = ", ".join(filter(None, (offer.provider, offer.region)))
        cost = "unknown" if price is None else f"{price} USD/h, and no more than {quote.cap_usd_h}"
        told.append(f"{offer.gpu_count} x {offer.gpu} at {at}: {cost}")
    ends = f"its deadline is {terms.deadline_at:%Y-%m-%d %H:%M} UTC"
    if terms.budget_usd is not None:
        ends += f", its budget {usd_words(terms.budget_usd)}"
    return [*told, ends]
