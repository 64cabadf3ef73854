"""Rents one box by quotes, or a fleet of boxes with one price cap and one budget."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from pydantic import JsonValue

from gpu_tenant.concurrency import each
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import (
    BadRequest,
    HostLeftOut,
    LeaseHeld,
    Limit,
    NoCapacity,
    NoQuota,
    NotReady,
    PriceMoved,
    ProviderSilent,
    QuoteUsed,
    Refused,
    TenantError,
)
from gpu_tenant.domain.fleet_budget import (
    boxes_had,
    cap_quote,
    fleet_of,
    is_one_machine,
    own_cap,
    part_of,
    request_of,
)
from gpu_tenant.domain.model import Lease, LeaseState, Profile
from gpu_tenant.domain.offers import Quote
from gpu_tenant.domain.standing_wish import is_wish
from gpu_tenant.domain.terms import RentRequest
from gpu_tenant.domain.wording import some, usd_words
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.context import WAIT_S, Context
from gpu_tenant.leases.inspection import look_at_new_box
from gpu_tenant.leases.overview import card_of
from gpu_tenant.leases.owner_approval import Unguarded
from gpu_tenant.leases.provision import find_out, fulfil, intend, intend_quote, must_be_hours
from gpu_tenant.leases.readiness import close_connections, fulfil_intent, made_ready, settle_lease
from gpu_tenant.leases.settle import return_unused

_POLL_S = 5
_TURN_AGAIN_S = 0.25


@dataclass(slots=True)
class _Source:
    """A place where a fleet's next box may come from."""

    name: str
    profile: Profile
    intend: Callable[[RentRequest, int, str], Lease]
    """Records the intent to rent. It gets the terms, how many boxes are missing, and the fleet's name."""
    offer: str | None = None
    refused: str | None = None
    """Why this call asks for no more boxes here; None if it may. A refused quote is not tried again in one call."""


@dataclass(slots=True)
class _Hunt:
    """One call's search for the boxes of a fleet."""

    fleet: str
    count: int
    asked: RentRequest
    sources: Sequence[_Source]
    until: datetime
    """The time after which this call asks for no more boxes, so that the caller gets an answer soon enough."""
    stopped: str | None = None
    may_go_on: bool = False
    """Whether the same call again may find more boxes: time ran out, or the fate of a box is unknown."""
    last: TenantError | None = None
    given_back: list[str] = field(default_factory=list)

    @property
    def why(self) -> list[str]:
        """The reasons why there are no more boxes, in sentences."""
        refused = [f"{s.name}: {s.refused}" for s in self.sources if s.refused is not None]
        return [*refused, *self.given_back, *([self.stopped] if self.stopped else [])]


async def rent_by_quotes(
    context: Context,
    quotes: Sequence[str],
    asked: RentRequest,
    *,
    unguarded: Unguarded,
    smoke: str | None,
    wait_s: float,
    wish: str | None = None,
) -> Card:
    """Rent a box by the first quote that is still available. A second box is never rented while the first may bill.

    `wish` is the standing wish that the box fulfils.
    """
    refused: list[str] = []
    for standing in context.ledger.rented_by(quotes):
        # An earlier identical call may have rented this box, or may be renting it right now.
        card = await _as_rented(context, standing, refused, wait_s)
        if card is not None:
            return card
    # If a box never gets ready, it is given back, and the other quotes may have expired meanwhile. They are used
    # anyway, because their price is asked for again first.
    wanted, asked_at = [_quote(context, name) for name in quotes], context.clock.now()
    for quote in wanted:
        profile = context.set_up(quote.offer.provider)
        try:
            must_have_room(context, quote, asked)
            signed = _signatures_for(context, quote, profile, unguarded, smoke)
            async with _in_turn(context, quote.id, wait_s):
                lease = intend_quote(
                    context,
                    context.owner.bound_quote(cap_quote(quote, asked.max_price_usd_h)),
                    asked=asked,
                    asked_at=asked_at,
                    wish=wish,
                    smoke=smoke,
                    instead_of=quotes,
                    allowed=context.owner.allows,
                    signed=signed,
                )
                async with context.held_in_turn(lease.id, "provision"):
                    try:
                        rented = await fulfil_intent(context, lease, wait_s)
                        return card_of(context, rented, "; ".join(refused) or None)
                    except (NoCapacity, NoQuota, PriceMoved, NotReady) as trouble:
                        refused.append(f"{quote.id}: {trouble.message}")
                        last: TenantError = trouble
                    if context.ledger.lease(lease.id).state.live:
                        refused[-1] += f"; {await _given_back(context, lease)}"
                        last.remedy = f"{Command('offers')} shows what there is now"
        except (Limit, HostLeftOut) as limit:
            refused.append(f"{quote.id}: {limit.message}")
            last = limit
        except QuoteUsed as used:
            standing, last = context.ledger.lease(used.lease_id), used
            card = None
            if standing.fleet is None:
                card = await _as_rented(context, standing, refused, wait_s)
            if card is not None:
                return card
            refused.append(used.message)
    last.message = "; ".join(refused)
    if isinstance(last, NoCapacity) and wish is None and wanted[0].wish_id is not None:
        last.remedy = _shown_or_waited_for(wanted, wanted[0].wish_id, asked, smoke)
    raise last


def _shown_or_waited_for(
    quotes: Sequence[Quote], wish_id: str, asked: RentRequest, smoke: str | None
) -> str:
    """Name the two ways on where nothing is free: to search again, or to wait for what was wished for."""
    cap = asked.max_price_usd_h or max(quote.cap_usd_h for quote in quotes)
    waits = Command("provision", quote=[wish_id], wait=6, max_price_usd_h=cap, smoke=smoke)
    return f"{Command('offers')} shows what there is now; or {waits} waits until one is free"


def must_have_room(context: Context, quote: Quote, asked: RentRequest, count: int = 1) -> None:
    """Check that the owner's limits allow `count` boxes by that quote. Do this before asking for a signature.

    Raises:
        Limit: the limits leave no room for them.
    """
    hours = quote.wish.hours if asked.hours is None else asked.hours
    must_be_hours(hours)
    terms = asked.terms(
        deadline_at=context.clock.now() + timedelta(hours=hours),
        meter="billed",
        max_price_usd_h=quote.cap_usd_h,
    )
    if asked.budget_usd is not None:
        terms = terms.model_copy(update={"budget_usd": asked.budget_usd / count})
    price = quote.offer.price.running_usd_h
    context.owner.allows(quote.offer.provider, terms, price, count=count)


def _signatures_for(
    context: Context,
    quote: Quote,
    profile: Profile,
    unguarded: Unguarded,
    smoke: str | None,
    count: int = 1,
) -> list[str]:
    """Return the codes of the signatures that boxes by that quote need.

    Raises:
        Refused, SignatureWanted: a signature is missing.
    """
    price = quote.offer.price.running_usd_h
    codes = (
        context.owner.signs_unguarded(unguarded, profile, price, count=count),
        context.owner.signs_for_no_smoke(smoke, profile.id),
    )
    return [code for code in codes if code is not None]


async def _as_rented(
    context: Context, lease: Lease, refused: list[str], wait_s: float
) -> Card | None:
    """Return the card of a lease that was already rented by one of the quotes. None if it has no box now.

    Raises:
        ProviderSilent: whether the lease has a box is not known yet.
    """
    assert lease.quote is not None
    words = (
        f"{lease.quote.id} had already rented this box, and nothing else was rented; for another box take a new "
        "quote, or `--count`"
    )
    try:
        async with _in_turn(context, lease.quote.id, wait_s):
            lease = context.ledger.lease(lease.id)
            if lease.state.live and lease.ready_at is None and lease.parked_at is None:
                async with context.held_in_turn(lease.id, "provision"):
                    lease = await as_far_as_it_goes(context, lease, refused, wait_s)
    except LeaseHeld:
        # The call that holds the lease will finish the work.
        lease = context.ledger.lease(lease.id)
    return card_of(context, lease, words) if lease.state.live else None


async def as_far_as_it_goes(
    context: Context, lease: Lease, refused: list[str], wait_s: float
) -> Lease:
    """Continue a rental that an earlier call began, as far as possible now. Return the lease.

    The box is then ready, still booting, or given back. Why it was given back is appended to `refused`.

    Raises:
        ProviderSilent: after `wait_s` it is still unknown whether a box was made.
    """
    until = context.clock.now() + timedelta(seconds=wait_s)
    while lease.state is LeaseState.INTENDED:
        lease, _ = await settle_lease(context, lease)
        if lease.state is LeaseState.INTENDED and context.clock.now() >= until:
            raise ProviderSilent(
                f"whether {lease.provider} has made a box for {lease.id} is not known yet",
                remedy="run the same provision again: nothing else is rented by its quotes until that is known",
            )
        if lease.state is LeaseState.INTENDED:
            await context.clock.sleep(_POLL_S)
    if lease.state is not LeaseState.ACTIVE:
        return lease
    try:
        left_s = (until - context.clock.now()).total_seconds()
        return await made_ready(context, lease, max(0.0, left_s))
    except (NotReady, PriceMoved) as trouble:
        refused.append(f"{lease.id}: {trouble.message}; {await _given_back(context, lease)}")
    return context.ledger.lease(lease.id)


@asynccontextmanager
async def _in_turn(context: Context, name: str, wait_s: float) -> AsyncIterator[None]:
    """Hold that name, for example a quote's, for this call. If another call holds it, wait for that call.

    The wait is in real time, because another call's work takes real time even in a rehearsal.

    Raises:
        LeaseHeld: the other call was not done within `wait_s`.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + max(wait_s, WAIT_S)
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(context.hold_lease(name, "provision"))
                break
            except LeaseHeld as busy:
                if loop.time() >= until_s:
                    raise LeaseHeld(
                        f"{name} is being rented by another call right now",
                        remedy=f"{Command('leases')} shows what that call rented; the same provision again returns it",
                    ) from busy
            await asyncio.sleep(_TURN_AGAIN_S)
        yield


async def _given_back(context: Context, lease: Lease) -> str:
    """Give back the unused box. Return what it cost, in words."""
    standing = context.ledger.lease(lease.id)
    receipt = await return_unused(context, standing, await look_at_new_box(context, standing))
    await close_connections(context, standing)
    return f"it was given back unused, for {usd_words(receipt.spent_usd)}"


def quotes_for(context: Context, quotes: Sequence[Quote], count: int) -> list[Quote]:
    """Return these quotes. If they are fewer machines than boxes are wanted, others of the same search follow."""
    wanted = list(quotes)
    if count == 1 or most_boxes(context, wanted) is None:
        return wanted
    searches = {quote.wish_id for quote in quotes if quote.wish_id is not None}
    kinds = {quote.offer.interruptible for quote in quotes}
    machines = set(map(_machine, quotes))
    for other in context.ledger.valid_quotes(context.clock.now()):
        is_of_search = other.wish_id in searches and other.offer.interruptible in kinds
        if len(machines) < count and is_of_search and _machine(other) not in machines:
            machines.add(_machine(other))
            wanted.append(other)
    return wanted


def most_boxes(context: Context, quotes: Sequence[Quote]) -> int | None:
    """Return how many boxes these quotes rent at most. None if one of them is for a kind of box, and not a machine."""
    if all(is_one_machine(context.profile(quote.offer.provider)) for quote in quotes):
        return len(set(map(_machine, quotes)))
    return None


def _machine(quote: Quote) -> tuple[str, str]:
    return quote.offer.provider, quote.offer.id


def _quote(context: Context, name: str) -> Quote:
    if is_wish(name):
        raise BadRequest(
            f"{name} is a wish: nothing can be rented for it at once",
            remedy=f"{Command('provision', quote=[name], wait=6)} waits until something can be rented for it",
        )
    quote = context.ledger.quote(name)
    if quote is None:
        raise BadRequest(f"no quote {name!r} is known", remedy=f"{Command('offers')} makes quotes")
    return quote


async def fleet_by(
    context: Context,
    quotes: Sequence[str],
    asked: RentRequest,
    count: int,
    *,
    unguarded: Unguarded,
    smoke: str | None,
    wait_s: float,
    at_least: int | None = None,
) -> Card:
    """Rent `count` boxes by those quotes, and by others of their search if these are too few machines.

    Each quote is used as often as its offer allows. If there are fewer than `at_least` boxes (None: `count`), none
    is kept.

    Raises:
        Refused: so many boxes are not offered; nothing was rented.
    """
    asked_at, least = context.clock.now(), min(count, at_least or count)
    wanted = quotes_for(context, [_quote(context, name) for name in quotes], count)
    said: dict[str, JsonValue] = {"quotes": list(quotes)}
    name = context.ledger.fleet_for(request_of(said, asked, count=count), at=asked_at)
    missing = count - len(boxes_had(context.ledger.leases_of(name)))
    if missing == count:
        machines = most_boxes(context, wanted)
        if machines is not None and machines < least:
            raise Refused(
                f"the search has shown {some(machines, 'machine')} of this kind, each is rented once, and "
                f"{some(least, 'box')} are wanted: nothing was rented",
                remedy=f"{Command('offers')} with a wider wish or a larger limit; or {Option('at-least', str(machines))}",
            )
        # If the limits do not allow all the boxes, none is rented.
        cheapest = min(wanted, key=lambda quote: quote.offer.price.running_usd_h or 0)
        must_have_room(context, cheapest, asked, count)
        for quote in wanted:
            # The signature is for what all the boxes together cost in a day on which nobody looks.
            profile = context.set_up(quote.offer.provider)
            for code in _signatures_for(context, quote, profile, unguarded, smoke, count):
                context.ledger.use_signature(code, at=context.clock.now())
    sources = []
    for quote in wanted:
        profile = context.set_up(quote.offer.provider)

        def of_quote(
            part: RentRequest,
            missing: int,
            fleet: str,
            quote: Quote = quote,
        ) -> Lease:
            return intend_quote(
                context,
                context.owner.bound_quote(cap_quote(quote, part.max_price_usd_h, boxes=missing)),
                asked=part,
                asked_at=asked_at,
                fleet=fleet,
                smoke=smoke,
                allowed=context.owner.allows,
            )

        sources.append(_Source(quote.id, profile, of_quote, quote.offer.id))
    return await _fleet(context, said, asked, count, sources, wait_s, least)


async def fleet_at(
    context: Context,
    profile: Profile,
    asked: RentRequest,
    count: int,
    price_usd_h: Decimal | None,
    *,
    wait_s: float,
    at_least: int | None = None,
) -> Card:
    """Rent a fleet of `count` boxes at a platform that needs no quote. `at_least` is as for `fleet_by`."""

    def without_quote(part: RentRequest, missing: int, fleet: str) -> Lease:
        cap = part.max_price_usd_h
        if cap is not None and price_usd_h is not None and price_usd_h <= cap:
            cap = own_cap(price_usd_h, cap, boxes=missing)
        return intend(
            context,
            profile.id,
            asked=part.model_copy(update={"max_price_usd_h": cap}),
            address=None,
            price_usd_h=price_usd_h,
            fleet=fleet,
            allowed=context.owner.allows,
        )

    said: dict[str, JsonValue] = {
        "provider": profile.id,
        "price_usd_h": None if price_usd_h is None else str(price_usd_h),
    }
    sources = [_Source(profile.id, profile, without_quote)]
    least = min(count, at_least or count)
    return await _fleet(context, said, asked, count, sources, wait_s, least)


async def _fleet(
    context: Context,
    said: Mapping[str, JsonValue],
    asked: RentRequest,
    count: int,
    sources: Sequence[_Source],
    wait_s: float,
    least: int,
) -> Card:
    """Rent a fleet. Return the card of its first lease, which shows the whole fleet and why any boxes are missing.

    Raises:
        TenantError: fewer than `least` boxes could be rented, and those were given back; the message says why.
    """
    begun = context.clock.now()
    name = context.ledger.fleet_for(request_of(said, asked, count=count), at=begun)
    hunt = _Hunt(name, count, asked, sources, until=begun + timedelta(seconds=max(wait_s, WAIT_S)))
    with context.hold_lease(name, "provision"):
        while await _fill(context, hunt):
            left_s = wait_s - (context.clock.now() - begun).total_seconds()
            if await _all_ready(context, hunt, max(0.0, left_s)):
                break
        standing = context.ledger.leases_of(name)
        is_used = any(lease.touched_at is not None for lease in standing)
        if len(boxes_had(standing)) < least and not hunt.may_go_on and not is_used:
            await _all_given_back(context, hunt, standing, least)
    whole = fleet_of(name, standing, asked=count, missing=hunt.why)
    first = next((x for x in standing if x.state.live), None) or next(
        iter(boxes_had(standing)), None
    )
    if first is None:
        assert hunt.last is not None
        hunt.last.message = "; ".join(hunt.why)
        raise hunt.last
    words = f"{whole.had} of {count} boxes were rented" if whole.missing else None
    return card_of(context, first, words).model_copy(update={"together": whole})


async def _all_given_back(
    context: Context, hunt: _Hunt, standing: Sequence[Lease], least: int
) -> None:
    """Give back the boxes of a fleet that cannot be had as a whole. Nobody has used them.

    Raises:
        TenantError: always: why there are not more.
    """
    had = [lease for lease in standing if lease.state is LeaseState.ACTIVE]
    if not had:
        return  # whoever called says why there is none
    back = list[str]()
    for lease in had:
        async with context.held_in_turn(lease.id, "provision"):
            back.append(f"{lease.id}: {await _given_back(context, lease)}")
    assert hunt.last is not None
    hunt.last.message = f"{len(had)} of {hunt.count} boxes could be rented, and {least} are wanted: {'; '.join((*back, *hunt.why))}"
    hunt.last.remedy = f"{Command('offers')} shows what there is now; {Option('at-least', str(len(had)))} keeps fewer boxes"
    raise hunt.last


async def _fill(context: Context, hunt: _Hunt) -> bool:
    """Ask for one box after another until the fleet is complete or nothing is available.

    Return whether a box still boots.
    """
    await _fates_known(context, hunt)
    while hunt.stopped is None:
        standing = context.ledger.leases_of(hunt.fleet)
        if len(boxes_had(standing)) >= hunt.count:
            break
        if boxes_had(standing) and context.clock.now() >= hunt.until:
            hunt.stopped = "the time of this call is over: make the same call again to continue"
            hunt.may_go_on = True
            break
        if not await _another(context, hunt, standing):
            break
    return any(
        lease.state is LeaseState.ACTIVE and lease.ready_at is None
        for lease in context.ledger.leases_of(hunt.fleet)
    )


async def _fates_known(context: Context, hunt: _Hunt) -> None:
    """Find out whether the boxes that an earlier call asked for exist. Bind their leases to them, or make them void.

    If this stays unknown for one of them, nothing more is rented.
    """
    for lease in context.ledger.leases_of(hunt.fleet):
        if lease.state is not LeaseState.INTENDED:
            continue
        silence = ProviderSilent(
            f"whether {lease.id} has a box is not known yet", remedy=f"{Command('leases')} looks"
        )
        with context.hold_lease(lease.id, "provision"), suppress(ProviderSilent):
            await find_out(context, lease, silence)
        if context.ledger.lease(lease.id).state is LeaseState.INTENDED:
            hunt.stopped, hunt.last, hunt.may_go_on = silence.message, silence, True


async def _another(context: Context, hunt: _Hunt, standing: Sequence[Lease]) -> bool:
    """Make one more box, at the first source that has one. Return whether a box was made."""
    missing = hunt.count - len(boxes_had(standing))
    for source in hunt.sources:
        if source.refused is not None:
            continue
        taken = {x.quote.offer.id for x in standing if x.quote and x.provider == source.profile.id}
        if source.offer in taken and is_one_machine(source.profile):
            source.refused = "it is a single machine, and was rented"
            hunt.last = hunt.last or NoCapacity(
                f"{source.name}: {source.refused}", remedy=str(Command("offers"))
            )
            continue
        try:
            part = part_of(hunt.asked, standing, count=hunt.count, now=context.clock.now())
            lease = source.intend(part, missing, hunt.fleet)
        except Refused as refusal:
            source.refused, hunt.last = refusal.message, refusal
            continue
        try:
            async with context.held_in_turn(lease.id, "provision"):
                await fulfil(context, lease)
        except (NoCapacity, NoQuota, PriceMoved) as trouble:
            source.refused, hunt.last = trouble.message, trouble
        except TenantError as trouble:
            # Such an error affects every offer, for example an empty account, a refused key, or an unknown outcome.
            hunt.stopped, hunt.last = f"{trouble.message}; {trouble.remedy}", trouble
            hunt.may_go_on = isinstance(trouble, ProviderSilent)
            return False
        else:
            return True
    return False


async def _all_ready(context: Context, hunt: _Hunt, wait_s: float) -> bool:
    """Wait for the boxes. Give back each that is broken, late or above its cap. Return whether none was given back."""
    booting = [
        lease
        for lease in context.ledger.leases_of(hunt.fleet)
        if lease.state is LeaseState.ACTIVE and lease.ready_at is None
    ]

    async def ready(lease: Lease) -> str | None:
        async with context.held_in_turn(lease.id, "provision"):
            try:
                await made_ready(context, lease, wait_s)
            except (NotReady, PriceMoved) as trouble:
                hunt.last = trouble
                for source in hunt.sources:
                    if lease.quote is not None and lease.quote.id == source.name:
                        source.refused = f"{lease.id} was rented by it: {trouble.message}"
                return f"{lease.id}: {await _given_back(context, lease)}"
        return None

    given_back = 0
    for lease, came in zip(booting, await each(booting, ready), strict=True):
        if isinstance(came, TenantError):
            hunt.given_back.append(f"{lease.id}: {came.message}; {came.remedy}")
        elif isinstance(came, Exception):
            raise came
        elif came is not None:
            given_back += 1
            hunt.given_back.append(came)
    return given_back == 0


def must_be_one(count: int) -> None:
    """Check that exactly one box is asked for.

    Raises:
        BadRequest: several are asked for.
    """
    if count > 1:
        raise BadRequest(
            "existing machines are put under a lease one at a time",
            remedy=f"provision without {Option('count')}, once for each machine; {Command('offers')} has quotes for several",
        )
