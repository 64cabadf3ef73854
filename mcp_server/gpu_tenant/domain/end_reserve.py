"""What it costs to end a lease.

A part of the budget is kept for this, so that the whole bill stays within the budget.
"""

import math
from datetime import datetime
from decimal import ROUND_FLOOR, Decimal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing import charged_bytes_usd, newest_bill
from gpu_tenant.domain.command import Command, Option, SignedCommand
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.expected_cost import undisturbed_usd
from gpu_tenant.domain.interruption import went_on
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.offers import USD_STEP, Offer, Quote
from gpu_tenant.domain.policy import running_usd_h
from gpu_tenant.domain.rental import over_words, rental_is_over
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.wording import span, usd_words

STOP_GRACE_S = 60
"""A job has this many seconds to save its work, between the request to stop and the kill."""

_STEPS_S = 60
"""To seal, prove and destroy a box with few files is assumed to take this many seconds."""

_ROUNDED_S = 60
"""This many seconds are added for rounding. Some providers bill by the minute, or for at least one minute."""

LOOK_S = 60
"""Two looks of a watchdog are this many seconds apart. A lease is ended one look before its budget is spent."""

_WAY_OUT_H = "1"
"""A parked box is started for this many hours to collect its files and end it."""

SOME_H = 0.25
"""A suggested budget is enough for this many more hours.

The smallest budget that is enough now may be too small by the time when somebody has signed for it.
"""

_USD_CENT = Decimal("0.01")

_WORTH_MEASURING_BYTES = 1_000_000
"""Smaller transfers are not used to measure the speed, because most of their time is the time of a request."""

ASSUMED_BYTES_S = 10e6
"""The speed, in bytes a second, that is assumed until a transfer of the lease was measured."""


def end_reserve_s(lease: Lease, events: Lines, *, to_come_bytes: int = 0) -> float:
    """Return how many seconds the box will still bill after its end has begun. This is an estimate.

    `to_come_bytes` is how much has still to be copied here. On an unused box, there is nothing to stop or to copy.
    """
    if lease.touched_at is None:
        return _STEPS_S + _ROUNDED_S
    bytes_s = measured_bytes_s(events) or ASSUMED_BYTES_S
    return STOP_GRACE_S + _STEPS_S + _ROUNDED_S + to_come_bytes / bytes_s


def measured_bytes_s(events: Lines) -> float | None:
    """Return at how many bytes a second artifacts were copied here, seal and proof included.

    None if no large ones were.
    """
    came = [
        (event.bytes or 0, event.took_s)
        for _, event in events
        if isinstance(event, timeline.Collected | timeline.Snapped) and event.took_s
    ]
    large = [(count, took_s) for count, took_s in came if count >= _WORTH_MEASURING_BYTES]
    return sum(count for count, _ in large) / sum(took_s for _, took_s in large) if large else None


def kept_back_usd(lease: Lease, events: Lines) -> Decimal | None:
    """Return how much of the lease's budget is kept for its end, at least. None if the lease's price is unknown."""
    usd_h = running_usd_h(lease)
    if usd_h is None:
        return None
    return (usd_h * Decimal(str(end_reserve_s(lease, events))) / 3600).quantize(USD_STEP)


def least_budget_usd(
    lease: Lease, events: Lines, now: datetime, *, hours: float = 0
) -> Decimal | None:
    """Return the smallest budget, in whole cents, that lets the box run for `hours` more and pays for its end.

    None if it is unknown what was spent, or what the running box costs.
    """
    spent, usd_h = lease.cost_usd(now), running_usd_h(lease)
    if spent is None or usd_h is None:
        return None
    takes_s = Decimal(str(hours * 3600 + end_reserve_s(lease, events) + LOOK_S))
    least = spent + charged_bytes_usd(newest_bill(events)) + usd_h * takes_s / 3600
    # A budget that is only just reached counts as passed.
    return least.quantize(_USD_CENT, ROUND_FLOOR) + _USD_CENT


def shortest_h(offer: Offer) -> float:
    """Return the shortest useful deadline in hours, rounded up to hundredths.

    It is enough to start the box, look at it once, and let a job save.
    """
    return math.ceil((offer.setup_s + LOOK_S + STOP_GRACE_S) / 36) / 100


class QuotedBudget:
    """What a budget pays for on a box that is not rented yet.

    It also pays for the box's start and end, and for one look.
    """

    def __init__(self, quote: Quote, budget_usd: Decimal, *, hours: float | None = None) -> None:
        """`hours` are the hours of work. If it is None, they are taken from the quote."""
        self.hours = quote.wish.hours if hours is None else hours
        self.budget_usd, self._usd_h = budget_usd, quote.offer.price.running_usd_h or Decimal(0)
        wish = quote.wish.model_copy(update={"hours": self.hours})
        end_usd = self._usd_h * (STOP_GRACE_S + _STEPS_S + _ROUNDED_S + LOOK_S) / 3600
        work_usd = self._usd_h * Decimal(str(self.hours))
        whole_usd = (undisturbed_usd(quote.offer, wish) or Decimal(0)) + end_usd
        self.around_usd = whole_usd - work_usd
        """What the start and the end of the box cost."""
        # A budget that is only just reached counts as passed.
        self.enough_usd = whole_usd.quantize(_USD_CENT, ROUND_FLOOR) + _USD_CENT
        """The smallest budget, in whole cents, that pays for all the hours."""

    @property
    def paid_h(self) -> float:
        """The hours of work that the budget pays for, but not more than `hours`."""
        if not self._usd_h:
            return self.hours
        left_h = float((self.budget_usd - self.around_usd) / self._usd_h)
        return min(self.hours, max(0.0, left_h))

    @property
    def is_enough(self) -> bool:
        """Whether the budget pays for all the hours."""
        return self.paid_h >= self.hours

    @property
    def words(self) -> str:
        """Why the budget is too small, and which sum is enough, in words."""
        return (
            f"too small for {self.hours:g} h: about {usd_words(self.around_usd)} of the {usd_words(self.budget_usd)} are "
            f"kept for the start and the end, and the rest pays for {span(self.paid_h * 3600)} of work; "
            f"{self.enough_usd} USD suffices"
        )

    @property
    def enough(self) -> str:
        """The sum that is enough, as the value of an option."""
        return f"{self.enough_usd:f}"

    def remedy(self, larger: Option, *, least_h: float = 0) -> str:
        """Return in words what to do: use `larger`, the option with a larger budget, or fewer hours.

        Fewer hours than `least_h` are not proposed.
        """
        less = Decimal(str(self.paid_h)).quantize(_USD_CENT, ROUND_FLOOR)
        less = less if less >= Decimal(str(least_h)) else Decimal(0)
        shorter = (
            f", or {Option('hours', f'{less:f}')}, if that is enough for the work" if less else ""
        )
        return f"the same line with {larger}{shorter}; or other GPUs: {Command('offers')}"


def must_pay_for_its_end(lease: Lease, budget_usd: Decimal, events: Lines, now: datetime) -> None:
    """Require that a budget covers what was spent, one more look, and the end of the lease.

    Raises:
        Refused: it does not. The message names the smallest budget that does, and the remedy how to end the lease now.
    """
    least = least_budget_usd(lease, events, now)
    if least is None or budget_usd >= least:
        return
    spent = lease.cost_usd(now)
    over = usd_words(least - spent) if spent is not None else "an unknown sum"
    home, end = Command("collect", lease.id), Command("teardown", lease.id)
    if lease.parked_at is not None:
        remedy = f"{resume_step(lease, events, now)}, then {home} and {end}"
    else:
        longer = least_budget_usd(lease, events, now, hours=SOME_H)
        more = raise_step(lease, events, str(longer))
        remedy = f"{more} leaves the lease a quarter of an hour; to end it now: {home}, then {end}"
    raise Refused(
        f"{usd_words(spent)} are spent on {lease.id}, and one more look and its end take about {over}: a "
        f"budget of {budget_usd} USD would end the lease at once, and the smallest that would not is {least} "
        "USD",
        remedy=remedy,
    )


def resume_step(lease: Lease, events: Lines, now: datetime, *, hours: float = 1) -> Command:
    """Return the command that starts a parked box for long enough to collect its files and end it.

    If the deadline has passed, the command sets a new one. If the budget does not pay for `hours`, the box is started
    for the shortest useful time. If it does not pay for that either, the command raises the budget, which may need a
    signature.
    """
    late = now >= lease.terms.deadline_at
    budget, least = lease.terms.budget_usd, least_budget_usd(lease, events, now, hours=hours)
    if budget is None or least is None or budget >= least:
        return Command("resume", lease.id, hours=_WAY_OUT_H if late else None)
    needed_h = _way_out_h(lease)
    least = least_budget_usd(lease, events, now, hours=needed_h)
    if least is not None and budget >= least:
        return Command("resume", lease.id, hours=f"{needed_h:g}" if late else None)
    hours = max(hours, SOME_H) if lease.touched_at is not None else needed_h
    raised = Command(
        "resume",
        lease.id,
        hours=f"{hours:g}" if late else None,
        budget_usd=str(least_budget_usd(lease, events, now, hours=hours)),
    )
    # If the work went on elsewhere, the owner has already agreed to this sum as a part of the work's budget.
    return raised if went_on(events) is not None else SignedCommand(raised)


def start_words(lease: Lease, events: Lines, now: datetime, then: str) -> str:
    """Say how a stopped box is started, and what to do `then`. If its rental is over, say what is left to do instead."""
    if rental_is_over(lease, now):
        return f"{over_words(lease)}; {lost_step(lease)}"
    return f"{resume_step(lease, events, now)}{then}"


def lost_step(lease: Lease) -> str:
    """Say what ends a lease whose box can never be read again."""
    return f"{Command('waive', lease.id)} names what of it is not here, for its owner to give up"


def _way_out_h(lease: Lease) -> float:
    """Return the least number of hours that a parked box has to run to be collected and ended."""
    if lease.touched_at is not None or lease.quote is None:
        return SOME_H
    return shortest_h(lease.quote.offer)


def raise_step(lease: Lease, events: Lines, budget_usd: str) -> Command:
    """Return the command that raises the budget of a lease. It shows whether a signature is needed."""
    raised = Command("terms", lease.id, budget_usd=budget_usd)
    return raised if went_on(events) is not None else SignedCommand(raised)


def leaves_nothing(lease: Lease, events: Lines, now: datetime) -> str | None:
    """Warn that the rest of the budget pays only for the end. None if more is left, or if this is unknown."""
    budget, cost, end = lease.terms.budget_usd, lease.cost_usd(now), kept_back_usd(lease, events)
    if lease.parked_at is not None or budget is None or cost is None or end is None:
        return None
    if cost + end < budget:
        return None
    return (
        f"{usd_words(cost)} are spent and the end takes about {usd_words(end)}: the budget of {budget} USD "
        "leaves no time, and the watchdog ends the lease at its next look"
    )
