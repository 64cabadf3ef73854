"""What the end of a lease itself costs.

A budget keeps this sum back, so that the whole bill stays within the budget.
"""

from datetime import datetime
from decimal import Decimal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.offers import CENT
from gpu_tenant.domain.policy import running_usd_h
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.wording import usd_words

STOP_GRACE_S = 60
"""How long a job has to save its work, between the request to stop and the kill."""

_STEPS_S = 60
"""How long the seal, the proof and the destroy take for a box with little on it."""

_ROUNDED_S = 60
"""Providers bill by the second or by the minute, and some bill at least a minute."""

_WORTH_MEASURING_BYTES = 1_000_000
"""The time of a smaller transfer shows how long a request takes, and not how fast the link is."""

_ASSUMED_BYTES_S = 10e6
"""The speed to expect while no transfer of the lease was measured."""


def end_reserve_s(lease: Lease, events: Lines, *, to_come_bytes: int = 0) -> float:
    """Return how long the box will still bill once its end begins, as far as that can be known.

    `to_come_bytes` is how much is not here yet. A box that nobody used has nothing to stop and nothing to bring.
    """
    if lease.touched_at is None:
        return _STEPS_S + _ROUNDED_S
    bytes_s = measured_bytes_s(events) or _ASSUMED_BYTES_S
    return STOP_GRACE_S + _STEPS_S + _ROUNDED_S + to_come_bytes / bytes_s


def measured_bytes_s(events: Lines) -> float | None:
    """Return how fast artifacts came here under this lease, seal and proof included. None if nothing large came."""
    came = [
        (event.bytes or 0, event.took_s)
        for _, event in events
        if isinstance(event, timeline.Collected | timeline.Snapped) and event.took_s
    ]
    large = [(count, took_s) for count, took_s in came if count >= _WORTH_MEASURING_BYTES]
    return sum(count for count, _ in large) / sum(took_s for _, took_s in large) if large else None


def kept_back_usd(lease: Lease, events: Lines) -> Decimal | None:
    """Return the least that a budget of the lease keeps back for its end. None if the lease's price is unknown."""
    usd_h = running_usd_h(lease)
    if usd_h is None:
        return None
    return (usd_h * Decimal(str(end_reserve_s(lease, events))) / 3600).quantize(CENT)


def leaves_nothing(lease: Lease, events: Lines, now: datetime) -> str | None:
    """Say that no more is left of the budget than the end costs. None if more is left, or if that is unknown."""
    budget, cost, end = lease.terms.budget_usd, lease.cost_usd(now), kept_back_usd(lease, events)
    if lease.parked_at is not None or budget is None or cost is None or end is None:
        return None
    if cost + end < budget:
        return None
    return (
        f"{usd_words(cost)} are spent and its end takes about {usd_words(end)}: the budget of {budget} USD leaves "
        "no time, and the watchdog ends it at its next look"
    )
