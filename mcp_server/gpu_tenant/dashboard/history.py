"""What was spent, by day and by lease, and how fast money burned: from the rates on record alone."""

from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Literal

from pydantic import AwareDatetime

from gpu_tenant.dashboard.rows import gpu_of
from gpu_tenant.market import CENT
from gpu_tenant.model import Lease, LeaseState, Receipt
from gpu_tenant.record import Record, Usd
from gpu_tenant.service import Tenancy
from gpu_tenant.terms import cost_usd

_DAYS = 90
_STEPS = 2_000
_LEASES = 1_000


class Day(Record):
    """What one day cost, by provider; what had no known rate is not in it."""

    day: str
    usd: dict[str, Decimal]


class Past(Record):
    """One lease that has ended."""

    lease: str
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
    """How much all boxes together cost by the hour from then on."""

    at: float
    usd_h: Decimal


class History(Record):
    """The past of this ledger: days by this computer's UTC calendar, leases newest first."""

    days: tuple[Day, ...]
    leases: tuple[Past, ...]
    spent_usd: Decimal
    burning: tuple[Burning, ...]


def history(tenancy: Tenancy) -> History:
    """What is on record; nobody is asked."""
    now, leases = tenancy.clock.now(), tenancy.ledger.leases()
    over = sorted(
        (lease for lease in leases if not lease.state.live), key=lambda lease: lease.created_at
    )[-_LEASES:]
    spent = [lease.cost_usd(now) for lease in leases]
    return History(
        days=_days(leases, now),
        leases=tuple(_past(tenancy, lease, now) for lease in reversed(over)),
        spent_usd=sum((usd for usd in spent if usd is not None), Decimal(0)),
        burning=_burning(leases, now),
    )


def _past(tenancy: Tenancy, lease: Lease, now: datetime) -> Past:
    receipt: Receipt | None = tenancy.ledger.receipt(lease.id)
    return Past(
        lease=lease.id, provider=lease.provider, title=tenancy.profiles[lease.provider].title,
        gpu=gpu_of(lease), began_at=lease.active_at or lease.created_at, ended_at=lease.ended_at,
        state=lease.state, cost_usd=receipt.cost_usd if receipt else lease.cost_usd(now),
        billed_usd=receipt.billed_usd if receipt else None,
        kept_files=receipt.kept_files if receipt else None,
        kept_bytes=receipt.kept_bytes if receipt else None,
        ground=receipt.ground if receipt else None,
    )  # fmt: skip


def _days(leases: list[Lease], now: datetime) -> tuple[Day, ...]:
    first = datetime.combine(now.date(), time(), now.tzinfo) - timedelta(days=_DAYS - 1)
    days: list[Day] = []
    for number in range(_DAYS):
        since = first + timedelta(days=number)
        until = min(since + timedelta(days=1), now)
        usd: dict[str, Decimal] = {}
        for lease in leases:
            ended = lease.ended_at or now
            if lease.created_at >= until or ended <= since:
                continue
            part = cost_usd(lease.rates, since=since, until=min(until, ended))
            if part:
                usd[lease.provider] = usd.get(lease.provider, Decimal(0)) + part
        if usd or days:
            days.append(
                Day(day=since.date().isoformat(), usd={k: v.quantize(CENT) for k, v in usd.items()})
            )
    return tuple(days)


def _burning(leases: list[Lease], now: datetime) -> tuple[Burning, ...]:
    since = now - timedelta(days=_DAYS)
    steps: list[tuple[datetime, Decimal]] = []
    for lease in leases:
        before = Decimal(0)
        for rate in lease.rates:
            usd_h = rate.usd_h or Decimal(0)
            steps.append((rate.at, usd_h - before))
            before = usd_h
        if lease.ended_at is not None:
            steps.append((lease.ended_at, -before))
    total, found = Decimal(0), []
    for at, change in sorted(steps, key=lambda step: step[0]):
        total += change
        found.append(Burning(at=max(at, since).timestamp(), usd_h=total))
    newest = found[-_STEPS:]
    return (*newest, Burning(at=now.timestamp(), usd_h=total)) if newest else ()
