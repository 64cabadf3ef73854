"""Waits for a box that nobody offers yet.

The wish is recorded. Every watcher searches for it until a box is rented or the time is over.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import (
    BadRequest,
    LeaseHeld,
    NoCapacity,
    ProviderSilent,
    Refused,
    TenantError,
)
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.ports import Market
from gpu_tenant.domain.standing_wish import (
    LOOK_S,
    MOST_WAIT_H,
    StandingTerms,
    StandingWish,
    is_wish,
)
from gpu_tenant.domain.terms import RentRequest
from gpu_tenant.domain.wording import span
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.condition import condition_of
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.offers import Found, find_offers
from gpu_tenant.leases.overview import card_of
from gpu_tenant.leases.owner_approval import Unguarded
from gpu_tenant.leases.provision import YOUNG_LAGS, require_smoke
from gpu_tenant.leases.rent import as_far_as_it_goes, rent_by_quotes
from gpu_tenant.notifications.notify import tell_due

WAITING = "waiting"
"""The phase on the card of an open wish."""

_TRIED = 3
"""After each search, at most this many offers are tried, the best first."""
_TURN_AGAIN_S, _TURN_WAITS_S = 0.25, 120
"""While another process searches, a call tries again every `_TURN_AGAIN_S`, for at most `_TURN_WAITS_S`.

Both are seconds of real time.
"""
_SEEN = 300


async def wait_for(
    context: Context,
    names: Sequence[str],
    asked: RentRequest,
    *,
    wait_h: float,
    unguarded: Unguarded,
    smoke: str | None,
    wait_s: float,
) -> Card:
    """Wait for a box. Returns its card if one was rented within `wait_s`, otherwise the card of the wish.

    `names` are quotes of one search, or the id of the wish that the search recorded. The wish stays after this call,
    and the same call may be repeated to wait longer.

    Raises:
        NoCapacity: the time of the wish is over.
        Refused: the wish was called off, or the lease of its box has ended.
        BadRequest: the wish has no price cap, was recorded with other terms, or the quotes are of several searches.
    """
    ledger = context.ledger
    quotes = [name for name in names if not is_wish(name)]
    wish_id = _only_wish(context, names, quotes)
    ours = {lease.id for lease in ledger.leases_of_wish(wish_id)}
    if any(lease.id not in ours for lease in ledger.rented_by(quotes)):
        # One of the quotes was used to rent a box before anybody waited.
        return await rent_by_quotes(
            context, quotes, asked, unguarded=unguarded, smoke=smoke, wait_s=wait_s
        )
    standing, now = ledger.wish(wish_id), context.clock.now()
    if standing.order is None or asked != RentRequest():
        if not standing.stands:
            require_smoke(smoke, ledger=ledger)
        order = StandingTerms(
            asked=asked.model_copy(update={"max_price_usd_h": None}),
            cap_usd_h=cap_of(context, wish_id, quotes, asked),
            unguarded=unguarded,
            smoke=smoke,
            quotes=tuple(quotes),
        )
        until = now + timedelta(hours=min(wait_h, MOST_WAIT_H))
        standing = ledger.let_stand(wish_id, order, until=until, at=now)
    answer_by, loop = now + timedelta(seconds=wait_s), asyncio.get_running_loop()
    turn_by_s = loop.time() + _TURN_WAITS_S
    while standing.stands:
        left_s = (answer_by - context.clock.now()).total_seconds()
        try:
            standing = await look_for(context, wish_id, wait_s=max(0.0, left_s))
        except LeaseHeld:
            # Another process is searching right now. That takes real time, even in a rehearsal.
            await asyncio.sleep(_TURN_AGAIN_S)
            standing = ledger.wish(wish_id)
            if standing.stands and loop.time() < turn_by_s:
                continue
        turn_by_s = loop.time() + _TURN_WAITS_S
        now = context.clock.now()
        if not standing.stands or now >= answer_by:
            break
        looked = standing.looked_at or now
        next_s = LOOK_S - (now - looked).total_seconds()
        left_s = (answer_by - now).total_seconds()
        await context.clock.sleep(max(1.0, min(next_s, left_s, LOOK_S)))
    return _answer(context, standing)


def _only_wish(context: Context, names: Sequence[str], quotes: Sequence[str]) -> str:
    """Return the one wish to which all these names belong.

    Raises:
        BadRequest: they belong to several wishes, or to none.
    """
    for name in quotes:
        if not wishes_of(context, [name]):
            raise BadRequest(
                f"{name!r} is no quote of a recorded search",
                remedy=f"{Command('offers')} starts a new search",
            )
    wishes = wishes_of(context, names)
    if len(wishes) != 1:
        raise BadRequest(
            "only the quotes of one search can be waited for, and these are of several",
            remedy=f"{Command('offers')} searches again; wait with the quotes of that search only",
        )
    return wishes.pop()


def wishes_of(context: Context, names: Sequence[str]) -> set[str]:
    """Return the wishes among these names, and those whose quotes are among them."""
    quotes = filter(None, (context.ledger.quote(name) for name in names))
    return {*filter(is_wish, names), *(quote.wish_id for quote in quotes if quote.wish_id)}


def cap_of(context: Context, wish_id: str, quotes: Sequence[str], asked: RentRequest) -> Decimal:
    """Return the lowest cap that was named. If none was, the highest price of the quotes.

    Raises:
        BadRequest: there is no cap. A wish may rent while nobody is there, so it must have one.
    """
    named = [asked.max_price_usd_h, context.ledger.wish(wish_id).wish.max_price_usd_h]
    caps = [cap for cap in named if cap is not None]
    found = [context.ledger.quote(name) for name in quotes]
    if not caps:
        caps = [max(quote.cap_usd_h for quote in found if quote)] if quotes else []
    if not caps:
        raise BadRequest(
            "a wish that waits may rent a box while nobody watches, and this one has no price cap",
            remedy=f"repeat the call with {Option('max-price-usd-h', 'USD')}",
        )
    return min(caps)


async def look_for(context: Context, wish_id: str, *, wait_s: float) -> StandingWish:
    """Take the next step for the wish: update its box, ask the market, or end the wish.

    If there is a box, this waits until the box has let us in, at most `wait_s`.

    Raises:
        LeaseHeld: another process is taking a step for this wish right now.
    """
    ledger = context.ledger
    with context.hold_lease(wish_id, "wait"):
        standing = ledger.wish(wish_id)
        if not standing.stands:
            return standing
        standing = await _settle_boxes(context, standing, wait_s)
        now = context.clock.now()
        if not standing.stands or _may_have_box(context, standing):
            return standing
        assert standing.until is not None
        if now >= standing.until:
            return await _give_up(context, standing)
        if standing.is_due(now):
            await _rent_best(context, standing, wait_s)
            standing = await _settle_boxes(context, ledger.wish(wish_id), 0)
    return standing


async def look_for_all(context: Context) -> list[str]:
    """Take the next step for every open wish. Return in words which wishes ended."""
    did: list[str] = []
    for standing in context.ledger.standing_wishes():
        with suppress(LeaseHeld):  # the process that holds the wish takes the step
            after = await look_for(context, standing.id, wait_s=0)
            if not after.stands:
                did.append(_end_words(after))
    return did


def _end_words(ended: StandingWish) -> str:
    """Return in words how the wish ended."""
    if ended.outcome == "had":
        return f"{ended.id}: a box was rented for this wish: {ended.seen}"
    if ended.outcome == "given up":
        return f"{ended.id} was given up, and nothing was rented: {ended.seen}"
    return f"{ended.id} was called off"


async def _settle_boxes(context: Context, standing: StandingWish, wait_s: float) -> StandingWish:
    """Update the wish's boxes. If one is ready, end the wish. Give back each box that will never be ready."""
    ledger, refused = context.ledger, list[str]()
    for lease in ledger.leases_of_wish(standing.id):
        if lease.state.live and lease.ready_at is None and lease.parked_at is None:
            try:
                async with context.held_in_turn(lease.id, "provision"):
                    now = ledger.lease(lease.id)
                    if now.state.live and now.state is not LeaseState.TERMINATING:
                        lease = await as_far_as_it_goes(context, now, refused, wait_s)
            except TenantError as trouble:
                refused.append(f"{lease.id}: {trouble.message}")
            lease = ledger.lease(lease.id)
        if lease.ready_at is not None or lease.touched_at is not None:
            return await _end_as_had(context, standing, lease)
    if refused and ledger.wish(standing.id).stands:
        return ledger.note_look(
            standing.id, "; ".join(refused)[:_SEEN], standing.rests, at=context.clock.now()
        )
    return standing


def _may_have_box(context: Context, standing: StandingWish) -> bool:
    """Whether the wish has, or may have, a box.

    A lost lease counts while it is so young that its provider's list may not show the box yet.
    """
    now = context.clock.now()
    for lease in context.ledger.leases_of_wish(standing.id):
        lag_s = YOUNG_LAGS * context.profile(lease.provider).list_lag_s
        young = now - (lease.active_at or lease.created_at) < timedelta(seconds=lag_s)
        if lease.state.live or (lease.state is LeaseState.LOST and young):
            return True
    return False


async def _rent_best(context: Context, standing: StandingWish, wait_s: float) -> None:
    """Ask the market, and rent the best offer below the cap that is still available."""
    ledger, order, now = context.ledger, standing.order, context.clock.now()
    assert order is not None
    # Record the search before asking. Otherwise a process that crashes again and again would ask too often.
    ledger.note_look(standing.id, standing.seen, standing.rests, at=now)
    asked = {
        slug: market
        for slug, market in context.connectors.items()
        if isinstance(market, Market)
        and standing.provider in (None, slug)
        and slug not in standing.resting(now)
    }
    wish = standing.wish.model_copy(update={"max_price_usd_h": order.cap_usd_h})
    found = await find_offers(wish, asked, ledger=ledger, limit=_TRIED, wish_id=standing.id)
    first = order.quotes if standing.looked_at is None else ()
    names = [*first, *(offer.quote for offer in found.offers if offer.quote)]
    terms = order.asked.model_copy(update={"max_price_usd_h": order.cap_usd_h})
    refused: list[str] = []
    for name in dict.fromkeys(names):
        try:
            await rent_by_quotes(
                context,
                [name],
                terms,
                unguarded=order.unguarded,
                smoke=order.smoke,
                wait_s=wait_s,
                wish=standing.id,
            )
        except (ProviderSilent, LeaseHeld) as trouble:
            # A box may exist. The next look finds out, and until then no other box is requested.
            refused.append(trouble.message)
            break
        except TenantError as trouble:
            refused.append(str(trouble) if isinstance(trouble, Refused) else trouble.message)
        if _may_have_box(context, standing) or not ledger.wish(standing.id).stands:
            break
    seen = "; ".join(refused) or _market_words(found)
    rests = standing.rests_after(asked, found.troubles, context.clock.now())
    ledger.note_look(standing.id, seen[:_SEEN], rests, at=context.clock.now())


def _market_words(found: Found) -> str:
    """Return in words what the market showed."""
    if found.offers:
        return f"{found.offers[0].provider} has an offer that fits"
    least = [f"{count} left out as {why}" for why, count in list(found.unfit.items())[:2]]
    silent = [f"{who} did not answer" for who in found.troubles]
    return "; ".join(("nothing fits", *least, *silent))


async def _end_as_had(context: Context, standing: StandingWish, lease: Lease) -> StandingWish:
    price = lease.quote.offer.price.running_usd_h if lease.quote else lease.price_usd_h
    now = context.clock.now()
    waited = span((now - (standing.asked_at or now)).total_seconds())
    words = f"{lease.id} at {lease.provider} for {price} USD/h, after {waited}"
    if context.ledger.end_wish(standing.id, "had", words, at=now):
        next_step = Command("audit", lease.id)
        await _news(
            context,
            standing,
            f"{standing.id}, the wish for {standing.what}, has its box: {words}; it bills; {next_step} checks it",
        )
    return context.ledger.wish(standing.id)


async def _give_up(context: Context, standing: StandingWish) -> StandingWish:
    if context.ledger.end_wish(standing.id, "given up", standing.seen, at=context.clock.now()):
        words = (
            f"{standing.id}: no box was found in time for {standing.what}, and nothing was rented"
        )
        await _news(
            context, standing, f"{words}; {standing.seen}; {Command('offers')} starts a new search"
        )
    return context.ledger.wish(standing.id)


async def _news(context: Context, standing: StandingWish, words: str) -> None:
    """Tell a person once, over every channel."""
    context.ledger.raise_alarm(
        f"wish {standing.id}",
        words,
        level=Level.NOTICE,
        lease_id=None,
        at=context.clock.now(),
    )
    await tell_due(context.home, context.ledger, environ=context.environ)


def call_off(context: Context, wish_id: str) -> Card:
    """End the wish, so that nothing is rented for it any more. A box that it already has stays under its lease.

    Raises:
        BadRequest: nobody waits for that wish.
    """
    standing = context.ledger.wish(wish_id)
    if standing.order is None:
        raise BadRequest(
            f"nobody waits for {wish_id}", remedy=f"{Command('leases')} lists the open wishes"
        )
    context.ledger.end_wish(wish_id, "called off", "", at=context.clock.now())
    return wish_card(context, context.ledger.wish(wish_id))


def waiting_lines(context: Context) -> tuple[str, ...]:
    """Describe every open wish, each in one line for a person."""
    watched = context.watch_words().removeprefix("by ")
    return tuple(standing.words(watched) for standing in context.ledger.standing_wishes())


def _answer(context: Context, standing: StandingWish) -> Card:
    """Return the card of the wish's live box, or of the wish while it is open.

    Raises:
        NoCapacity, Refused: the wish has ended, and no box of it is live now.
    """
    live = [x for x in context.ledger.leases_of_wish(standing.id) if x.state.live]
    if live and standing.outcome != "called off":
        return card_of(context, live[-1], None)
    if standing.stands:
        return wish_card(context, standing)
    anew = f"{Command('offers')} searches again; then wait for the wish of that search"
    if standing.outcome == "given up":
        raise NoCapacity(_end_words(standing), remedy=anew)
    over = "; the lease of that box has ended" if standing.outcome == "had" else ""
    raise Refused(f"{_end_words(standing)}{over}", remedy=anew)


def wish_card(context: Context, standing: StandingWish) -> Card:
    """Describe the wish as a card: it waits, or it has ended. If it got a box, the box has a card of its own."""
    now, order = context.clock.now(), standing.order
    live = [x.id for x in context.ledger.leases_of_wish(standing.id) if x.state.live]
    asked_s = ((standing.until or now) - (standing.asked_at or now)).total_seconds()
    again = Command("provision", quote=[standing.id], wait=f"{max(1, round(asked_s / 3600))}")
    next_step = f"{Command('leases')} shows it; {again} continues to wait; {Command('call-off', standing.id)} ends it"
    if not standing.stands:
        next_step = (
            f"the box that was rented for this wish bills, under {live[-1]}; {Command('teardown', live[-1])} gives it back"
            if live
            else f"{Command('offers')} starts a new search"
        )
    return Card(
        lease=standing.id,
        provider=standing.provider or "any",
        state=LeaseState.INTENDED if standing.stands else LeaseState.VOID,
        box=None,
        address=None,
        age_s=round((now - (standing.asked_at or now)).total_seconds()),
        deadline_in_s=round(((standing.until or now) - now).total_seconds())
        if standing.stands
        else None,
        price_usd_h=None,
        max_price_usd_h=order.cap_usd_h if order else None,
        budget_usd=order.asked.budget_usd if order else None,
        cost_usd=Decimal(0),
        stops_the_meter="nothing is billed for it",
        watched=context.watch_words() if standing.stands else "",
        bills="nobody",
        phase=WAITING if standing.stands else str(standing.outcome),
        condition=condition_of(
            WAITING if standing.stands else "void", "nobody", alarm=None, left_s=None, job=None
        ),
        jobs=(),
        alarm=standing.seen or None,
        next=next_step,
    )
