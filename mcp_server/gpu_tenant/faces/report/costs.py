"""Says in one record what is paid: now, today and this month, by project and platform, and what bills without a box."""

from datetime import datetime, timedelta
from decimal import Decimal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.faces.report.expenses import expenses_of
from gpu_tenant.leases.cards import Leases
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.spending_limits import since


class LeaseCost(Record):
    """What one live lease bills now, and what it will have cost."""

    lease: str
    name: str
    usd_h: Usd
    cost_usd: Usd
    by_deadline_usd: Usd = Field(description="None: unknown, or it is parked")


class Costs(Record):
    """What is paid. Days and months are those of UTC. None means unknown, which is not zero."""

    at: AwareDatetime
    usd_h: Decimal = Field(description="of our leases, now, including the disks of stopped boxes")
    foreign_usd_h: Decimal = Field(description="besides that: of boxes that are not ours")
    leases: tuple[LeaseCost, ...] = Field(description="the live ones, the dearest first")
    today_usd: Decimal
    month_usd: Decimal
    promised_month_usd: Decimal | None = Field(
        description="this month, if each live lease runs to its deadline; None: not summed up"
    )
    by_project: dict[str, Decimal] = Field(description="this month; empty: no lease has a project")
    by_platform: dict[str, Decimal] = Field(description="this month")
    limits: dict[str, str] = Field(description="how much of the owner's limits is used")
    near_limits: tuple[str, ...] = Field(description="those of which half is used, or more")
    without_a_box: tuple[str, ...] = Field(description="volumes, and what else bills with no box")
    leaking_usd_month: Decimal = Field(description="of boxes on which no job runs")
    not_counted: tuple[str, ...] = Field(description="what these sums lack")


def costs_of(context: Context, seen: Leases) -> Costs:
    """Sum up what is paid. `seen` is what a look at all providers has just shown; nothing else is asked."""
    now = context.clock.now()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    day = expenses_of(context, today, _after(now))
    month = expenses_of(context, since(now), _after(now))
    uses = {use.name: use for use in context.owner.usage()}
    promised = uses.get("usd_month")
    burning = [
        LeaseCost(
            lease=card.lease,
            name=card.name,
            usd_h=card.price_usd_h,
            cost_usd=card.cost_usd,
            by_deadline_usd=card.forecast_deadline_usd,
        )
        for card in seen.leases
        if card.state.live and card.bills not in ("nobody", "no more")
    ]
    return Costs(
        at=now,
        usd_h=seen.burning_usd_h,
        foreign_usd_h=seen.foreign_usd_h,
        leases=tuple(sorted(burning, key=lambda one: one.usd_h or Decimal(0), reverse=True)),
        today_usd=day.total_usd,
        month_usd=month.total_usd,
        promised_month_usd=None if promised is None else promised.used,
        by_project=month.by_project,
        by_platform=month.by_platform,
        limits={name: uses[name].words for name in ("usd_day", "usd_month") if name in uses},
        near_limits=tuple(
            name for name in ("usd_day", "usd_month") if name in uses and uses[name].is_near
        ),
        without_a_box=seen.also_billing,
        leaking_usd_month=seen.leaking_usd_month,
        not_counted=(
            *seen.not_counted,
            *(f"{lease}: its cost is unknown" for lease in month.unknown),
        ),
    )


def _after(now: datetime) -> datetime:
    return now + timedelta(seconds=1)
