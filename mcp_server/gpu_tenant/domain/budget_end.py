"""Tells when the budget of a lease ends it, if that is before its deadline, and who ends it."""

from datetime import datetime, timedelta
from typing import NamedTuple

from gpu_tenant.domain.billing import charged_bytes_usd, newest_bill
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.end_reserve import LOOK_S, SOME_H, end_reserve_s, least_budget_usd
from gpu_tenant.domain.interruption import went_on
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.policy import LookedAfter, running_usd_h
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.wording import span, usd_words


class BudgetEnd(NamedTuple):
    """When the watchdog ends a lease for its budget, and when nothing of the budget would be left."""

    acts_at: datetime
    spent_at: datetime


def budget_end(lease: Lease, events: Lines, now: datetime) -> BudgetEnd | None:
    """Return when the lease's budget ends it, at its present price. None if its deadline comes first, or if unknown.

    This assumes that the box was used: it takes longer to end a used box than an unused one.
    """
    if lease.state not in (LeaseState.INTENDED, LeaseState.ACTIVE) or lease.parked_at is not None:
        return None
    # A box that boots may bill less than when it runs.
    prices = (lease.price_usd_h, running_usd_h(lease) if lease.ready_at is None else None)
    price = max((usd for usd in prices if usd), default=None)
    budget, cost = lease.terms.budget_usd, lease.cost_usd(now)
    if budget is None or cost is None or price is None:
        return None
    worked_on = lease.model_copy(update={"touched_at": lease.touched_at or now})
    left_usd = budget - cost - charged_bytes_usd(newest_bill(events))
    left_s = float(left_usd / price) * 3600
    early_s = end_reserve_s(worked_on, events) + LOOK_S
    deadline_s = (lease.terms.deadline_at - now).total_seconds()
    if left_s - early_s >= deadline_s:
        return None
    return BudgetEnd(
        acts_at=now + timedelta(seconds=left_s - early_s), spent_at=now + timedelta(seconds=left_s)
    )


def budget_end_words(
    lease: Lease, events: Lines, now: datetime, looked_after: LookedAfter
) -> str | None:
    """Say when the lease's budget ends it, and who ends it. None if its deadline comes first, or if unknown."""
    end = budget_end(lease, events, now)
    if end is None:
        return None
    budget = f"the budget of {usd_words(lease.terms.budget_usd)}"
    told = went_on(events)
    if told is not None:
        left = usd_words(lease.terms.budget_usd)
        budget = f"the budget of {left} that this lease kept when its work went on under {told.by}"
    guard = story_of(events).guard.now
    until = guard.until if guard is not None and guard.ends_the_meter else None
    if looked_after == "unwatched" and until is not None and until < lease.terms.deadline_at:
        return (
            f"{budget} ends it {_clock(until, now)}: its guard stops its box then, and nothing is watching that "
            f"would prove its files and end it: {Command('watchdog')}"
        )
    if looked_after == "unwatched":
        if end.spent_at <= now:
            return f"{budget} is spent, and nothing is watching that would end the lease: {Command('watchdog')}"
        return (
            f"{budget} is spent {_clock(end.spent_at, now)}, and nothing is watching that would end the lease before "
            f"that: {Command('watchdog')}"
        )
    if end.acts_at <= now:
        return f"{budget} ends it at the watchdog's next look: the rest pays for its end"
    return f"{budget} ends it {_clock(end.acts_at, now)}: the watchdog acts then, and the rest pays for its end"


def budget_until(lease: Lease, events: Lines, now: datetime, until: datetime) -> str:
    """Return a budget that lasts until then, with some time to sign for it, as text. `N` if the cost is unknown."""
    hours = max(0.0, (until - now).total_seconds() / 3600) + SOME_H
    worked_on = lease.model_copy(update={"touched_at": lease.touched_at or now})
    least = least_budget_usd(worked_on, events, now, hours=hours)
    return "N" if least is None else str(least)


def _clock(at: datetime, now: datetime) -> str:
    return f"at {at:%H:%M} UTC, in {span((at - now).total_seconds())}"
