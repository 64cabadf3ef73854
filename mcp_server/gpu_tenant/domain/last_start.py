"""When a lease ends, and the one start of its stopped box after that, for the minutes that the proof of its files takes."""

from datetime import datetime, timedelta

from gpu_tenant.domain.budget_end import budget_end
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.terms import LAST_START_S
from gpu_tenant.domain.timeline import Lines


def ends_at(lease: Lease, events: Lines) -> datetime:
    """Return the lease's deadline, or what ends it before that.

    This is the time at which its guard stopped the box because of the budget, or the last moment at which a stopped box
    can be started before its rental ends, as its provider said since.
    """
    stop, ends = story_of(events).guard.stopped, [lease.terms.deadline_at]
    if stop is not None and stop.term == "budget":
        ends.append(stop.at)
    if lease.rental_ends_at is not None:
        ends.append(lease.rental_ends_at - timedelta(seconds=LAST_START_S))
    return min(ends)


def last_start_at(lease: Lease, events: Lines) -> datetime | None:
    """Return when the box was started for its end. None if it was not.

    Any other start of a box whose lease has ended changes the terms.
    """
    at = story_of(events).box.start_asked_at
    return at if at is not None and at >= ends_at(lease, events) else None


def guarded_until(lease: Lease, events: Lines, now: datetime) -> datetime:
    """Return until when the guard lets the jobs run: until the deadline, or until the budget pays only for the end.

    After a start for the end, this is later than both. If the owner has signed for what is lost at the deadline, it is
    never before the deadline, because a guard may then destroy what is not proved.
    """
    at, deadline_at = last_start_at(lease, events), lease.terms.deadline_at
    stop = story_of(events).guard.stopped
    is_after_end = at is not None and (at >= deadline_at or stop is not None)
    last = at + timedelta(seconds=LAST_START_S) if at is not None and is_after_end else None
    if lease.terms.on_deadline == "waive":
        return deadline_at if last is None else max(last, deadline_at)
    if last is not None:
        return last
    budget = budget_end(lease, events, now)
    return deadline_at if budget is None else max(now, budget.acts_at)
