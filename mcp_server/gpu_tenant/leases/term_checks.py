"""Checks which of its terms a lease exceeds.

Also says when to try again to end it, and what to do if its rescue sum is spent. The rescue sum is the money that may
be spent after the end of a lease to save its files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.interruption import recorded_fate, went_on
from gpu_tenant.domain.last_start import ends_at, last_start_at
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.policy import last_start_usd, owners_cap, rescue, running_usd_h
from gpu_tenant.domain.rental import rental_ends_soon, rental_is_over, rental_words
from gpu_tenant.domain.stop_cause import Term
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.terms import cost_usd
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.wording import usd_words

NO_USD = Decimal(0)

_AGAIN_S, _AT_MOST_S = 60, 3600
_NEAR = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Outrun:
    """A term that the lease has exceeded, and how, in words for a person."""

    term: Term
    words: str


def outrun(
    lease: Lease,
    now: datetime,
    *,
    look_s: float,
    end_s: float = 0,
    bytes_usd: Decimal = NO_USD,
    idle_s: float | None = None,
) -> Outrun | None:
    """Return the first term that the lease has exceeded, or would exceed before the next look. None if there is none.

    `end_s` is how many seconds its end takes, during which the box bills. `bytes_usd` is what its provider has billed
    for bytes. `idle_s` is for how many seconds its box has done nothing. None means unknown, and does not count as
    idle.
    """
    terms = lease.terms
    if now >= terms.deadline_at:
        return Outrun("deadline", f"its deadline was {terms.deadline_at:%Y-%m-%d %H:%M} UTC")
    if rental_ends_soon(lease, now):
        return Outrun("deadline", rental_words(lease))
    cost, price = lease.cost_usd(now), lease.price_usd_h
    if cost is not None and price is not None and terms.budget_usd is not None:
        cost, end = cost + bytes_usd, price * Decimal(str(end_s)) / 3600
        look = price * Decimal(str(look_s)) / 3600
        if cost + look + end >= terms.budget_usd:
            kept = (
                f", and the rest is kept back: about {usd_words(end)} for its end, {usd_words(look)} until a later look"
                if end
                else ""
            )
            return Outrun(
                "budget",
                f"{usd_words(cost)} of its budget of {terms.budget_usd} USD are spent{kept}",
            )
    cap = owners_cap(lease)
    # The higher price must last for two looks. A provider may show a wrong price for a moment, and no work may end
    # because of that.
    stands = bool(lease.rates) and now - lease.rates[-1].at >= timedelta(seconds=look_s / 2)
    if cap is not None and price is not None and price > cap and stands:
        return Outrun("price", f"it costs {price} USD/h, but its owner's cap is {cap} USD/h")
    if idle_s is not None and terms.idle_h is not None and idle_s >= terms.idle_h * 3600:
        return Outrun("idle", f"its box has done nothing for {idle_s / 3600:.1f} h")
    return None


def over_while_parked(lease: Lease, events: Lines, now: datetime) -> Outrun | None:
    """Return what ends a parked lease before its deadline, although it costs little. None if nothing does.

    Its guard has stopped the box for the budget, or the rental ends so soon that the box could not be started later.
    """
    stop = story_of(events).guard.stopped
    if lease.parked_at is None or now < ends_at(lease, events):
        return None
    if stop is not None and stop.term == "budget":
        return Outrun("budget", f"its guard stopped it at {stop.at:%H:%M} UTC for its budget")
    return Outrun("deadline", rental_words(lease))


def as_it_was(cause: Outrun | None, events: Lines) -> Outrun | None:
    """Return the cause. If the work went on elsewhere with most of the budget, its words say so."""
    told = went_on(events)
    if cause is None or told is None or cause.term != "budget":
        return cause
    why = f" ({told.fate})" if told.fate else ""
    return Outrun(
        "budget",
        f"its provider took its box{why}, its work went on under {told.by}, and the part of the budget that this "
        "lease kept is spent",
    )


def time_left_s(lease: Lease, now: datetime, *, end_s: float = 0) -> float:
    """Return for how many seconds the lease stays within its deadline and its budget, at its current price.

    `end_s` is how many seconds its end takes. The budget pays for this too.
    """
    left_s = (lease.terms.deadline_at - now).total_seconds()
    cost, price, budget = lease.cost_usd(now), lease.price_usd_h, lease.terms.budget_usd
    if cost is not None and price and budget is not None:
        left_s = min(left_s, float((budget - cost) / price) * 3600 - end_s)
    return left_s


def is_near(lease: Lease, now: datetime) -> bool:
    """Whether the deadline is so near that anything left to do should be done now."""
    left = lease.terms.deadline_at - now
    whole = lease.terms.deadline_at - lease.created_at
    return timedelta(0) < left <= min(_NEAR, whole / 4)


def attempts(events: Lines) -> list[datetime]:
    """Return the times of the attempts to end the lease since the last event that made earlier ones irrelevant."""
    return list(story_of(events).attempts)


def began_at(lease: Lease, events: Lines) -> datetime | None:
    """Return when the lease's end was first tried after its deadline. From then on, costs count against the rescue sum.

    None if it was not tried yet. An attempt before the deadline does not count, whatever its reason: what the owner has
    signed for is lost only after the rescue sum was spent from the deadline on.
    """
    deadline_at = lease.terms.deadline_at
    return next((at for at in story_of(events).endings if at >= deadline_at), None)


def next_attempt_at(tried: Sequence[datetime]) -> datetime | None:
    """Return when the next attempt is due. None if it is due now.

    Attempts never stop. The time between them grows to one hour.
    """
    if not tried:
        return None
    return tried[-1] + timedelta(seconds=min(_AGAIN_S * 2 ** (len(tried) - 1), _AT_MOST_S))


def is_due(tried: Sequence[datetime], now: datetime) -> bool:
    """Whether an attempt is due. If the clock was set back, the attempt is not delayed for long."""
    at = next_attempt_at(tried)
    return at is None or now >= at or now < tried[-1]


def beyond(lease: Lease, began_at: datetime, now: datetime) -> Literal["pay", "waive", "keep"]:
    """Decide what happens to a box that could be neither verified nor parked after the end of its lease.

    Until the rescue sum is spent, the box is paid for. After that, it is destroyed if its owner has signed for that,
    and kept otherwise.
    """
    spent = cost_usd(lease.rates, since=began_at, until=now)
    most = rescue(lease)
    # If the price is unknown, the sum cannot be checked. Then the limit is one day.
    over = now - began_at >= timedelta(days=1) if spent is None or most is None else spent >= most
    if not over:
        return "pay"
    return "waive" if lease.terms.on_deadline == "waive" else "keep"


def may_start_to_end(lease: Lease, events: Lines, now: datetime) -> bool:
    """Whether the terms of the lease let its stopped box be started now, to prove its files and end it.

    It is started only after its end, once, and only if its rescue sum pays for it. A used box that somebody has
    stopped on purpose is left alone. So is one whose end was refused when it last ran: another start would show the same.
    """
    box = story_of(events).box
    stands = lease.state is LeaseState.ACTIVE and lease.parked_at is not None
    if not stands or now < ends_at(lease, events):
        return False
    if (box.is_kept_at_will and lease.touched_at is not None) or box.was_refused:
        return False
    return last_start_at(lease, events) is None and _pays_for_a_start(lease, events, now)


def may_start_what_moved(lease: Lease, events: Lines, now: datetime) -> bool:
    """Whether a stopped box may be started now, once, to prove its files and end it, although its deadline is ahead.

    Its work went on elsewhere and is over there, so nothing else is left to do on it.
    """
    story = story_of(events)
    moved_at = next(
        (at for at, e in reversed(events) if isinstance(e, timeline.Recovered) and e.by), None
    )
    asked_at, fate = story.box.start_asked_at, recorded_fate(events)
    stands = lease.state is LeaseState.ACTIVE and (lease.parked_at is not None or fate is not None)
    if not stands or moved_at is None or fate == "host_lost" or now >= lease.terms.deadline_at:
        return False
    if story.box.is_kept_at_will or (asked_at is not None and asked_at >= moved_at):
        return False
    return _pays_for_a_start(lease, events, now)


def _pays_for_a_start(lease: Lease, events: Lines, now: datetime) -> bool:
    """Whether the rescue sum pays for one more start, and the rental lets the box run."""
    usd_h, most = running_usd_h(lease), rescue(lease)
    if most is None or usd_h is None or rental_is_over(lease, now):
        return False
    began = began_at(lease, events)
    spent = NO_USD if began is None else cost_usd(lease.rates, since=began, until=now)
    return spent is not None and spent + last_start_usd(usd_h) <= most
