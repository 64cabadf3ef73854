"""What to do next about a lease, given what its provider shows: a pure decision, always one step."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from gpu_tenant.model import Box, Lease, LeaseState


@dataclass(frozen=True, slots=True)
class Listed:
    """The provider's list shows the box."""

    box: Box


@dataclass(frozen=True, slots=True)
class Omitted:
    """The provider's list does not show the box; these are all such looks since it last did."""

    looks: Sequence[datetime]


@dataclass(frozen=True, slots=True)
class Blind:
    """The provider did not answer. Blind is not dead."""

    reason: str


Seen = Listed | Omitted | Blind


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A person must hear of this; nothing is done to the box."""

    words: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """One absence proves nothing; look once more, not before `at`."""

    at: datetime


@dataclass(frozen=True, slots=True)
class BindBox:
    """The box of this intent exists: put it on record."""

    box: Box


@dataclass(frozen=True, slots=True)
class VoidIntent:
    """The intent never became a box."""


@dataclass(frozen=True, slots=True)
class DeclareLost:
    """The box is gone, and not by us."""


@dataclass(frozen=True, slots=True)
class FinishTeardown:
    """A destroy was permitted and the box is still there: prove the ground again, destroy again."""


@dataclass(frozen=True, slots=True)
class FileReceipt:
    """A destroy was permitted and the box is gone, seen twice."""

    looks: Sequence[datetime]


Step = Rest | Alarm | LookAgain | BindBox | VoidIntent | DeclareLost | FinishTeardown | FileReceipt


def plan(lease: Lease, seen: Seen, now: datetime, *, list_lag_s: float) -> Step:
    """The one next step for `lease`.

    `list_lag_s` is how long a box may exist before its provider lists it: within that time of the
    lease's birth an absence proves nothing, and two absences must lie that far apart.
    """
    if not lease.state.live:
        return Rest()
    match seen:
        case Blind(reason=reason):
            return Alarm(f"{lease.provider} does not answer ({reason}); the box may be running")
        case Listed(box=box):
            return _present(lease, box, now)
        case Omitted(looks=looks):
            return _absent(lease, looks, now, list_lag_s)


def _present(lease: Lease, box: Box, now: datetime) -> Step:
    if lease.state is LeaseState.INTENDED:
        return BindBox(box)
    if lease.state is LeaseState.TERMINATING:
        return FinishTeardown()
    words = overdue(lease, now)
    return Alarm(words) if words else Rest()


def overdue(lease: Lease, now: datetime) -> str | None:
    """Which of its terms the lease has outrun, in words; None where it has not."""
    cost, terms = lease.cost_usd(now), lease.terms
    outrun = []
    if now >= terms.deadline_at:
        outrun.append(f"the deadline passed at {terms.deadline_at:%Y-%m-%d %H:%M} UTC")
    if cost is not None and terms.budget_usd is not None and cost >= terms.budget_usd:
        outrun.append(f"the budget of {terms.budget_usd} USD is spent ({cost:.2f})")
    return "; ".join(outrun) or None


def _absent(lease: Lease, looks: Sequence[datetime], now: datetime, list_lag_s: float) -> Step:
    lag = timedelta(seconds=list_lag_s)
    settled = (
        len(looks) >= 2 and looks[-1] - looks[0] >= lag and looks[-1] - lease.created_at >= lag
    )
    if not settled:
        return LookAgain(now + lag)
    match lease.state:
        case LeaseState.INTENDED:
            return VoidIntent()
        case LeaseState.ACTIVE:
            return DeclareLost()
        case LeaseState.TERMINATING:
            return FileReceipt(looks)
        case LeaseState.GONE | LeaseState.VOID | LeaseState.LOST:
            return Rest()
        case _:
            assert_never(lease.state)
