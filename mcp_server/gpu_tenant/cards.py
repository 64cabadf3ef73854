"""A lease on one card: what a person or an agent wants to see of it at a glance."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from pydantic import Field

from gpu_tenant.model import Job, Lease, LeaseState, LocalAddress, Profile, Receipt
from gpu_tenant.record import Record


class Card(Record):
    """One lease at a glance; None is unknown, which is not zero."""

    lease: str
    provider: str
    state: LeaseState
    box: str | None
    address: str | None
    age_s: float
    deadline_in_s: float
    price_usd_h: Decimal | None
    running_usd_h: Decimal | None = Field(
        default=None, description="while it boots or is parked: what it costs once it runs"
    )
    max_price_usd_h: Decimal | None
    budget_usd: Decimal | None
    cost_usd: Decimal | None
    on_deadline: str
    stops_the_meter: str
    phase: str = Field(description="booting, ready or parked, while the lease is active")
    jobs: tuple[str, ...]
    alarm: str | None
    next: str

    @property
    def price_words(self) -> str:
        """What it costs by the hour, for a person."""
        if self.price_usd_h is None:
            return "unknown"
        later = "" if self.running_usd_h is None else f" now, {self.running_usd_h} once it runs"
        return f"{self.price_usd_h} USD/h{later}"


class Foreign(Record):
    """A box in the account that is not ours: shown, and never touched."""

    provider: str
    box: str
    state: str
    price_usd_h: Decimal | None


class Leases(Record):
    """The leases that were asked for, and what a person must hear about."""

    leases: tuple[Card, ...]
    alarms: tuple[str, ...]
    foreign: tuple[Foreign, ...] = ()
    also_billing: tuple[str, ...] = Field(
        default=(), description="volumes, disks and the like that bill although no box uses them"
    )


class LossReport(Record):
    """What would be gone for good; `digest` names exactly this list."""

    lease: str
    losses: tuple[str, ...]
    digest: str


class TornDown(Record):
    """A lease that has ended, with its proof."""

    lease: str
    state: LeaseState
    receipt: Receipt


def card(
    lease: Lease, profile: Profile, *, jobs: Sequence[Job], alarm: str | None, now: datetime
) -> Card:
    """The lease as it stands at `now`."""
    born = lease.active_at or lease.created_at
    return Card(
        lease=lease.id,
        provider=lease.provider,
        state=lease.state,
        box=lease.box_id,
        address=_where(lease),
        age_s=round(((lease.ended_at or now) - born).total_seconds()),
        deadline_in_s=round((lease.terms.deadline_at - now).total_seconds()),
        price_usd_h=lease.price_usd_h,
        running_usd_h=lease.quote.offer.price.running_usd_h
        if lease.quote and _phase(lease) in ("booting", "parked")
        else None,
        max_price_usd_h=lease.terms.max_price_usd_h,
        budget_usd=lease.terms.budget_usd,
        cost_usd=lease.cost_usd(now),
        on_deadline=f"{lease.terms.on_deadline}: the box stops its jobs and keeps its disk"
        + ("" if profile.kind == "own" else ", and bills on until its teardown"),
        stops_the_meter=profile.stops_the_meter,
        phase=_phase(lease),
        jobs=tuple(job.id for job in jobs),
        alarm=alarm,
        next=_next(lease, jobs),
    )


def _where(lease: Lease) -> str | None:
    if lease.address is None:
        return None
    return (
        lease.address.directory if isinstance(lease.address, LocalAddress) else lease.address.target
    )


def _phase(lease: Lease) -> str:
    if lease.state is not LeaseState.ACTIVE:
        return lease.state
    if lease.parked_at is not None:
        return "parked"
    return "booting" if lease.ready_at is None else "ready"


def _next(lease: Lease, jobs: Sequence[Job]) -> str:
    match lease.state:
        case LeaseState.INTENDED:
            return "list_leases again: its provider has not shown the box yet"
        case LeaseState.ACTIVE if lease.parked_at is not None:
            return "change_lease resume; a parked box goes on billing its disk"
        case LeaseState.ACTIVE if lease.ready_at is None:
            return "audit: it waits until the box lets us in"
        case LeaseState.ACTIVE if jobs:
            return "monitor; when the job has ended: collect, then verify_and_teardown"
        case LeaseState.ACTIVE if lease.touched_at is not None:
            return "launch_detached"
        case LeaseState.ACTIVE:
            return "audit, then push"
        case LeaseState.TERMINATING:
            return "verify_and_teardown again: it was cut short"
        case LeaseState.GONE | LeaseState.VOID | LeaseState.LOST:
            return "nothing: this lease has ended"
