"""Tells whether a running job will end before its lease does, and how to give it more time."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from decimal import Decimal

from gpu_tenant.domain.budget_end import budget_end, budget_until
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.end_reserve import SOME_H, raise_step
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.policy import LookedAfter
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.wording import span
from gpu_tenant.jobs.cost_forecast import Mark, course_of, ends_between, is_soon
from gpu_tenant.leases.condition import SOON_S

_SAYS = re.compile("is not known yet|ends the lease before that| extend ")
"""The parts of the sentences below by which two outlooks differ."""


class OutlookNews:
    """Filters the outlooks of a job that somebody watches: only those that say something new are shown."""

    def __init__(self) -> None:
        self._told: tuple[str, ...] | None = None

    def of(self, outlook: str | None) -> str | None:
        """Return the outlook if it differs from the last one that was returned. Otherwise None.

        It differs if the job's end has become known, or if the job now ends too late or in time again. It also differs
        if the deadline is now too early as well.
        """
        if outlook is None:
            return None
        says = tuple(_SAYS.findall(outlook))
        if says == self._told:
            return None
        self._told = says
        return outlook


def job_outlook(
    lease: Lease,
    events: Lines,
    now: datetime,
    *,
    fraction: float | None,
    looked_after: LookedAfter,
) -> str | None:
    """Say whether the newest job ends before its lease does. None if its progress is unknown.

    `fraction` is the job's present progress, from 0 to 1. A budget ends the lease only if somebody looks after it.
    """
    course = course_of(events)
    if fraction is None or not course or not lease.state.live or lease.parked_at is not None:
        return None
    budget = budget_end(lease, events, now) if looked_after == "watched" else None
    deadline = lease.terms.deadline_at
    by, over_at = ("deadline", deadline) if budget is None else ("budget", budget.acts_at)
    ends = ends_between([*course, Mark(at=now, fraction=fraction)])
    if ends is None:
        if not is_soon(lease, over_at, now, timedelta(seconds=SOON_S)):
            return None
        more = _more(lease, events, now, deadline if by == "budget" else now + timedelta(hours=1))
        return f"whether its job ends before its {by} ends the lease is not known yet: {more} gives it more time while it runs"
    ends_at = max(now, ends[1])
    at = f"at {ends_at:%H:%M} UTC, in {span((ends_at - now).total_seconds())}"
    if ends_at <= over_at:
        return f"its job ends {at}, at its present pace: before its {by} ends the lease"
    return (
        f"its job ends {at}, at its present pace, but its {by} ends the lease before that: "
        f"{_more(lease, events, now, ends_at)} gives it more time while it runs"
    )


def _more(lease: Lease, events: Lines, now: datetime, until: datetime) -> str:
    """Name the commands that let the lease go on until then: for a larger budget, a later deadline, or both."""
    steps = []
    budget = lease.terms.budget_usd
    enough = budget_until(lease, events, now, until)
    if budget is not None and (enough == "N" or budget < Decimal(enough)):
        steps.append(raise_step(lease, events, enough))
    if until > lease.terms.deadline_at:
        hours = math.ceil(((until - now).total_seconds() / 3600 + SOME_H) * 10) / 10
        steps.append(Command("extend", lease.id, hours=f"{hours:g}"))
    return ", then ".join(map(str, steps))
