"""Computes from the recorded rates what was spent, by day and by lease, and the hourly cost over time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain import timeline
from gpu_tenant.domain.labels import Labels
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.faces.dashboard.lease_rows import gpu_of
from gpu_tenant.leases.names import labels_of
from gpu_tenant.service import Tenancy

_DAYS = 90
_STEPS = 2_000
_LEASES = 1_000


class Day(Record):
    """What one day cost, by provider. Leases without a known rate are not included."""

    day: str
    usd: dict[str, Decimal]


class Past(Record):
    """One lease that has ended."""

    lease: str
    name: str = Field(description="what it is called")
    provider: str
    title: str
    gpu: str | None
    began_at: AwareDatetime
    ended_at: AwareDatetime | None
    state: LeaseState
    cost_usd: Usd
    billed_usd: Usd
    kept_files: int | None
    kept_bytes: int | None
    ground: Literal["verified", "never_used", "waived"] | None


class Burning(Record):
    """The hourly cost of all boxes together from `at` on."""

    at: float
    usd_h: Decimal


class CostShare(Record):
    """What the leases of one project, or of one tag, have cost so far."""

    name: str | None = Field(description="None: leases of no project, or without a tag")
    leases: int
    usd: Decimal


class Month(Record):
    """This month by the UTC calendar. Leases without a known rate are not included in the sums."""

    spent_usd: Decimal
    forecast_usd: Decimal = Field(
        description="at its end, if each box bills on at its rate until its deadline"
    )


class History(Record):
    """What this ledger has recorded: the cost of each day (UTC), and all leases that have ended, the newest first."""

    days: tuple[Day, ...]
    leases: tuple[Past, ...]
    spent_usd: Decimal
    burning: tuple[Burning, ...]
    projects: tuple[CostShare, ...] = Field(description="the dearest first")
    tags: tuple[CostShare, ...] = Field(
        description="the dearest first; a lease with two tags is in both"
    )
    month: Month
    unknown: tuple[str, ...] = Field(
        description="leases for which the rate of some hours is unknown; no sum here includes these hours"
    )


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A period of a lease at one rate."""

    lease: Lease
    since: datetime
    until: datetime
    usd_h: Decimal | None

    def usd(self, since: datetime, until: datetime) -> Decimal:
        """Return the cost between those times. 0 if the rate is unknown."""
        seconds = (min(self.until, until) - max(self.since, since)).total_seconds()
        if seconds <= 0 or self.usd_h is None:
            return Decimal(0)
        return self.usd_h * Decimal(seconds) / 3600


def history(tenancy: Tenancy) -> History:
    """Return the recorded history. No provider is asked."""
    now, leases = tenancy.clock.now(), tenancy.ledger.leases()
    free = {slug for slug, profile in tenancy.profiles.items() if profile.kind == "own"}
    stretches = [stretch for lease in leases for stretch in _stretches(lease, now)]
    over = sorted(
        (lease for lease in leases if not lease.state.live), key=lambda lease: lease.created_at
    )[-_LEASES:]
    called = _labels(tenancy, leases)
    cost = {lease.id: Decimal(0) for lease in leases}
    for stretch in stretches:
        cost[stretch.lease.id] += stretch.usd(stretch.since, stretch.until)
    unknown = (s.lease.id for s in stretches if s.usd_h is None and s.lease.provider not in free)
    return History(
        days=_days(stretches, now),
        leases=tuple(_past(tenancy, lease, called[lease.id], now) for lease in reversed(over)),
        spent_usd=sum((s.usd(s.since, s.until) for s in stretches), Decimal(0)).quantize(USD_STEP),
        burning=_burn_rates(stretches, now),
        projects=_shares(cost, {lease: (labels.project,) for lease, labels in called.items()}),
        tags=_shares(cost, {lease: labels.tags or (None,) for lease, labels in called.items()}),
        month=_month(stretches, leases, now),
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _stretches(lease: Lease, now: datetime) -> Iterator[_Stretch]:
    ended = min(lease.ended_at or now, now)
    ends = [rate.at for rate in lease.rates[1:]] + [ended]
    for rate, end in zip(lease.rates, ends, strict=False):
        if rate.at < min(end, ended):
            yield _Stretch(lease, rate.at, min(end, ended), rate.usd_h)


def _labels(tenancy: Tenancy, leases: Sequence[Lease]) -> dict[LeaseId, Labels]:
    lines = tenancy.ledger.lines_by_lease(timeline.Labelled, timeline.Pushed)
    return {
        lease.id: labels_of(lines.get(lease.id, ()), tenancy.ledger.jobs(lease.id))
        for lease in leases
    }


def _shares(
    cost: Mapping[LeaseId, Decimal], names: Mapping[LeaseId, Sequence[str | None]]
) -> tuple[CostShare, ...]:
    """Sum the costs by name, the highest first. Empty if no lease has a name of that kind."""
    usd: dict[str | None, Decimal] = {}
    count: dict[str | None, int] = {}
    for lease, said in names.items():
        for name in said:
            usd[name] = usd.get(name, Decimal(0)) + cost[lease]
            count[name] = count.get(name, 0) + 1
    if set(usd) <= {None}:
        return ()
    return tuple(
        CostShare(name=name, leases=count[name], usd=usd[name].quantize(USD_STEP))
        for name in sorted(usd, key=lambda name: (-usd[name], name or ""))
    )


def _month(stretches: Sequence[_Stretch], leases: Sequence[Lease], now: datetime) -> Month:
    first = datetime.combine(now.date().replace(day=1), time(), now.tzinfo)
    end = (first + timedelta(days=32)).replace(day=1)
    spent = sum((stretch.usd(first, now) for stretch in stretches), Decimal(0))
    to_come = sum(
        (
            lease.price_usd_h * Decimal((until - now).total_seconds()) / 3600
            for lease in leases
            if lease.state.live
            and lease.price_usd_h is not None
            and (until := min(lease.terms.deadline_at, end)) > now
        ),
        Decimal(0),
    )
    return Month(
        spent_usd=spent.quantize(USD_STEP), forecast_usd=(spent + to_come).quantize(USD_STEP)
    )


def _past(tenancy: Tenancy, lease: Lease, labels: Labels, now: datetime) -> Past:
    receipt: Receipt | None = tenancy.ledger.receipt(lease.id)
    return Past(
        lease=lease.id,
        name=labels.words,
        provider=lease.provider,
        title=tenancy.profiles[lease.provider].title,
        gpu=gpu_of(lease),
        began_at=lease.active_at or lease.created_at,
        ended_at=lease.ended_at,
        state=lease.state,
        cost_usd=tenancy.ledger.cost_usd(lease, now),
        billed_usd=receipt.billed_usd if receipt else None,
        kept_files=receipt.kept_files if receipt else None,
        kept_bytes=receipt.kept_bytes if receipt else None,
        ground=receipt.ground if receipt else None,
    )


def _days(stretches: Sequence[_Stretch], now: datetime) -> tuple[Day, ...]:
    first = datetime.combine(now.date(), time(), now.tzinfo) - timedelta(days=_DAYS - 1)
    days: list[Day] = []
    for number in range(_DAYS):
        since = first + timedelta(days=number)
        until = since + timedelta(days=1)
        usd: dict[str, Decimal] = {}
        for stretch in stretches:
            if stretch.since < until and stretch.until > since:
                provider = stretch.lease.provider
                usd[provider] = usd.get(provider, Decimal(0)) + stretch.usd(since, until)
        if any(usd.values()) or days:
            known = {who: what.quantize(USD_STEP) for who, what in usd.items() if what}
            days.append(Day(day=since.date().isoformat(), usd=known))
    return tuple(days)


def _burn_rates(stretches: Sequence[_Stretch], now: datetime) -> tuple[Burning, ...]:
    first = now - timedelta(days=_DAYS)
    steps: list[tuple[datetime, Decimal]] = []
    for stretch in stretches:
        if stretch.usd_h is not None and stretch.until > first:
            steps += [(max(stretch.since, first), stretch.usd_h), (stretch.until, -stretch.usd_h)]
    total = Decimal(0)
    found: dict[float, Decimal] = {}
    for at, change in sorted(steps, key=lambda step: step[0]):
        total += change
        # A running lease is counted up to now. This is not its end, so the rate does not fall there.
        if at < now:
            found[at.timestamp()] = total
    newest = [Burning(at=at, usd_h=usd_h) for at, usd_h in found.items()][-_STEPS:]
    return (*newest, Burning(at=now.timestamp(), usd_h=newest[-1].usd_h)) if newest else ()
