"""How a request for several boxes divides its price cap and its budget among these boxes, in pure functions."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import ROUND_DOWN, Decimal

from pydantic import Field, JsonValue

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.model import Lease, LeaseState, Profile
from gpu_tenant.domain.offers import USD_STEP, Quote
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.terms import RentRequest
from gpu_tenant.domain.wording import some

_NAMED = 4
"""At most so many leases are named in the next step."""


class Fleet(Record):
    """The boxes that one request has, and why it does not have more of them."""

    fleet: str
    asked: int
    had: int
    leases: tuple[str, ...] = Field(description="the live leases")
    usd_h: Usd = Field(description="of all leases together")
    not_ready: tuple[str, ...] = ()
    missing: tuple[str, ...] = Field(
        default=(), description="why there are fewer boxes than asked for"
    )
    next: str


def fleet_of(name: str, leases: Sequence[Lease], *, asked: int, missing: Sequence[str]) -> Fleet:
    """Describe the fleet as it is now, and what may be done next.

    Only the caller decides to continue with fewer boxes.
    """
    live = [lease for lease in leases if lease.state.live]
    rates = [lease.price_usd_h for lease in live]
    short = asked - len(boxes_had(leases))
    # No tool takes a fleet's name.
    step = (
        f"{Command('audit', *(lease.id for lease in live[:_NAMED]))}, then push and launch on each"
    )
    if len(live) > _NAMED:
        step = f"{Command('audit', live[0].id)}, push and launch, and so on each of its leases"
    if short > 0:
        step = (
            f"continue with {len(live)}; or repeat the same provision: it continues where it stopped; or "
            f"{Command('offers')}, then {Command('provision', count=short)} with new quotes"
        )
    return Fleet(
        fleet=name,
        asked=asked,
        had=len(boxes_had(leases)),
        leases=tuple(lease.id for lease in live),
        usd_h=None if None in rates else sum((usd for usd in rates if usd is not None), Decimal(0)),
        not_ready=tuple(lease.id for lease in live if lease.ready_at is None),
        missing=tuple(missing) if short > 0 else (),
        next=step,
    )


def request_of(said: Mapping[str, JsonValue], asked: RentRequest, *, count: int) -> str:
    """Return a name for a request for several boxes.

    Requests with equal numbers get the same name, even if these were written differently.
    """
    terms = asked.model_dump(mode="json", exclude_defaults=True, exclude={"labels"})
    return known_again(json.dumps({**said, "count": count, "terms": terms}))


def known_again(request: str) -> str:
    """Return the request in one canonical form, to recognize it again: amounts by their value, quotes as a set."""
    told = json.loads(request)
    if "quotes" in told:
        told["quotes"] = sorted(set(told["quotes"]))
    return json.dumps({name: _plain(name, value) for name, value in told.items()}, sort_keys=True)


def _plain(name: str, value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _plain(key, inner) for key, inner in value.items()}
    if "usd" in name and isinstance(value, str):
        return f"{Decimal(value).normalize():f}"
    return float(value) if isinstance(value, int) and name != "count" else value


def boxes_had(leases: Sequence[Lease]) -> list[Lease]:
    """Return the leases whose boxes count as a fleet's own.

    A box that was given back before anybody used it does not count. A box that continues the work of another box
    does not count either, because the other box counts already.
    """
    return [
        lease
        for lease in leases
        if lease.recovers is None
        and (lease.state.live or lease.ready_at is not None or lease.touched_at is not None)
    ]


def part_of(
    asked: RentRequest, leases: Sequence[Lease], *, count: int, now: datetime
) -> RentRequest:
    """Decide what may be spent on the next box of a fleet of `count`, given the boxes that it already has.

    What is left of the whole budget is divided equally among the missing boxes, and rounded down. What is left is the
    whole budget minus the budget of every live lease and the cost of every ended lease. If the cost of an ended lease
    is unknown, its whole budget is subtracted. The box's cap is the whole cap minus the caps of the live leases. A lost
    lease whose work may yet continue under its own terms counts as live. So neither the budgets nor the caps ever add
    up to more than was asked.

    Raises:
        Refused: nothing is left.
    """
    update: dict[str, Decimal] = {}
    lacking = max(1, count - len(boxes_had(leases)))
    if asked.budget_usd is not None:
        set_aside = (_set_aside(lease, leases, now) for lease in leases)
        left = asked.budget_usd - sum(set_aside, Decimal(0))
        update["budget_usd"] = (left / lacking).quantize(USD_STEP, ROUND_DOWN)
        if update["budget_usd"] <= 0:
            raise _used_up(f"the budget of {asked.budget_usd} USD for {some(count, 'box')}")
    if asked.max_price_usd_h is not None:
        live = [lease for lease in leases if lease.state.live or _may_go_on(lease, leases, now)]
        caps = (lease.terms.max_price_usd_h or lease.price_usd_h or Decimal(0) for lease in live)
        update["max_price_usd_h"] = asked.max_price_usd_h - sum(caps, Decimal(0))
        if update["max_price_usd_h"] <= 0:
            raise _used_up(f"the cap of {asked.max_price_usd_h} USD/h for {some(count, 'box')}")
    return asked.model_copy(update=update)


def _set_aside(lease: Lease, leases: Sequence[Lease], now: datetime) -> Decimal:
    own = lease.terms.budget_usd or Decimal(0)
    if lease.state.live or _may_go_on(lease, leases, now):
        return own
    cost = lease.cost_usd(now)
    return own if cost is None else cost


def _may_go_on(lost: Lease, leases: Sequence[Lease], now: datetime) -> bool:
    """Whether another box may still be rented for the work of a lost lease, by the lease's terms."""
    if lost.state is not LeaseState.LOST or lost.touched_at is None or not lost.terms.recover:
        return False
    goes_on = any(x.recovers == lost.id and (x.state.live or x.touched_at) for x in leases)
    return now < lost.terms.deadline_at and not goes_on


def _used_up(what: str) -> Refused:
    return Refused(
        f"{what} leaves no money for another box",
        remedy="continue with the boxes that you have, or request the others with a sum of their own",
    )


def cap_quote(quote: Quote, most_usd_h: Decimal | None, *, boxes: int = 1) -> Quote:
    """Return the quote with the price cap that follows from the owner's cap for `boxes` boxes together.

    Raises:
        Refused: the quote's price is above the cap, or unknown.
    """
    if most_usd_h is None:
        return quote
    price = quote.offer.price.running_usd_h
    if price is None or price > most_usd_h:
        cost = (
            f"has an unknown price, which may be above the {most_usd_h} USD/h that the cap leaves"
            if price is None
            else f"costs {price} USD/h, and the cap leaves {most_usd_h} USD/h"
        )
        raise Refused(
            f"{quote.id} {cost}",
            remedy=f"raise {Option('max-price-usd-h')}, or see what {Command('offers')} has for less",
        )
    own = own_cap(price, most_usd_h, boxes=boxes)
    named = quote.wish.max_price_usd_h
    cap = own if named is None else min(own, max(named, price))
    wish = quote.wish.model_copy(update={"max_price_usd_h": cap})
    return quote.model_copy(update={"cap_usd_h": cap, "wish": wish})


def own_cap(price_usd_h: Decimal, most_usd_h: Decimal, *, boxes: int) -> Decimal:
    """Return a box's own cap: an equal share of what is left for `boxes`, or its price if that is higher."""
    return max(price_usd_h, (most_usd_h / boxes).quantize(USD_STEP, ROUND_DOWN))


def is_one_machine(profile: Profile) -> bool:
    """Whether each of the platform's offers is a single machine, which can be rented only once."""
    return profile.kind in ("marketplace", "own") or profile.lease == "adopted"
