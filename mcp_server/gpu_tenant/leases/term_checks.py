"""Which of its terms a lease is about to outrun, when that is acted on again, and how far it goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.policy import owners_cap, rescue
from gpu_tenant.domain.terms import cost_usd
from gpu_tenant.ledger.events import Event

Term = Literal["deadline", "budget", "price", "idle"]
Line = tuple[datetime, str, dict[str, object]]
"""One line of a lease's timeline: when, what, and its detail."""

_AGAIN_S, _AT_MOST_S = 60, 3600
_NEAR = timedelta(minutes=30)

_BEGINS_ANEW = frozenset({Event.TERMS, Event.RESUMED, Event.LAUNCHED})
"""After these an earlier attempt to end the lease counts no more."""


@dataclass(frozen=True, slots=True)
class Outrun:
    """A term that holds no longer, for a person."""

    term: Term
    words: str


def outrun(
    lease: Lease, now: datetime, *, look_s: float, idle_s: float | None = None
) -> Outrun | None:
    """The first term that the lease has outrun, or would before the next look; None where none.

    `idle_s` is how long its box has done nothing; None is unknown, which is not idle.
    """
    terms = lease.terms
    if now >= terms.deadline_at:
        return Outrun("deadline", f"its deadline was {terms.deadline_at:%Y-%m-%d %H:%M} UTC")
    cost, price = lease.cost_usd(now), lease.price_usd_h
    if cost is not None and price is not None and terms.budget_usd is not None:
        by_next_look = cost + price * Decimal(str(look_s)) / 3600
        if by_next_look >= terms.budget_usd:
            return Outrun(
                "budget", f"{cost:.2f} USD of its budget of {terms.budget_usd} USD are spent"
            )
    cap = owners_cap(lease)
    # Twice, a look apart: a price in another unit, for a moment, ends nobody's work.
    stands = bool(lease.rates) and now - lease.rates[-1].at >= timedelta(seconds=look_s / 2)
    if cap is not None and price is not None and price > cap and stands:
        return Outrun("price", f"it costs {price} USD/h, and its owner's cap is {cap}")
    if idle_s is not None and terms.idle_h is not None and idle_s >= terms.idle_h * 3600:
        return Outrun("idle", f"its box has done nothing for {idle_s / 3600:.1f} h")
    return None


def time_left_s(lease: Lease, now: datetime) -> float:
    """How long the lease stays within its deadline and its budget, as it costs now."""
    left_s = (lease.terms.deadline_at - now).total_seconds()
    cost, price, budget = lease.cost_usd(now), lease.price_usd_h, lease.terms.budget_usd
    if cost is not None and price and budget is not None:
        left_s = min(left_s, float((budget - cost) / price) * 3600)
    return left_s


def is_near(lease: Lease, now: datetime) -> bool:
    """Whether the deadline comes so soon that what is left to do should be done."""
    left = lease.terms.deadline_at - now
    whole = lease.terms.deadline_at - lease.created_at
    return timedelta(0) < left <= min(_NEAR, whole / 4)


def attempts(events: Sequence[Line]) -> list[datetime]:
    """When it was tried to end the lease, since something last changed the reason to."""
    tried: list[datetime] = []
    for at, kind, _ in events:
        if kind in _BEGINS_ANEW:
            tried.clear()
        elif kind == Event.ENDING:
            tried.append(at)
    return tried


def began_at(lease: Lease, events: Sequence[Line]) -> datetime | None:
    """When it was first tried to end the lease at or past its deadline; its rescue sum counts from there.

    None: it was not yet. What was tried for another reason before does not count.
    """
    deadline = lease.terms.deadline_at
    return next((at for at, kind, _ in events if kind == Event.ENDING and at >= deadline), None)


def next_attempt_at(tried: Sequence[datetime]) -> datetime | None:
    """When it is tried again: for ever, and ever more seldom up to once an hour; None: now."""
    if not tried:
        return None
    return tried[-1] + timedelta(seconds=min(_AGAIN_S * 2 ** (len(tried) - 1), _AT_MOST_S))


def is_due(tried: Sequence[datetime], now: datetime) -> bool:
    """Whether it is time for an attempt; a clock that was set back does not put it off for long."""
    at = next_attempt_at(tried)
    return at is None or now >= at or now < tried[-1]


def beyond(lease: Lease, began_at: datetime, now: datetime) -> Literal["pay", "waive", "keep"]:
    """What is done about a box that can be neither verified nor parked, since its end began.

    It is paid for inside the agreed sum; after that it is destroyed only where its owner has signed.
    """
    spent = cost_usd(lease.rates, since=began_at, until=now)
    most = rescue(lease)
    # What nobody knows the price of has no sum to stay inside of: a day is the measure then.
    over = now - began_at >= timedelta(days=1) if spent is None or most is None else spent >= most
    if not over:
        return "pay"
    return "waive" if lease.terms.on_deadline == "waive" else "keep"
