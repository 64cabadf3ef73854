"""What was agreed when a lease was made: until when, for how much, and what happens at the end."""

from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.record import Amount, Hours, Record

RESCUE_H = 24
"""Unverified data is worth a day of its box, unless the owner names another sum."""

IDLE_H = 2
"""Longer than most installs and most meals. A box that is idle for longer has been forgotten."""

UNSEEN_USD = Decimal(100)
"""The most that a day without anybody looking may cost, on a box whose meter nothing stops.

More needs somebody's consent.
"""

WhenIdle = Literal["end", "alarm"]


class Terms(Record):
    """What the owner agreed to; whoever looks at the lease holds it to them."""

    deadline_at: AwareDatetime = Field(description="when its jobs are stopped and the lease ends")
    max_price_usd_h: Decimal | None = Field(default=None, ge=0)
    budget_usd: Decimal | None = Field(default=None, ge=0)
    on_deadline: Literal["keep", "waive"] = Field(
        default="keep", description="waive: the owner has signed for what cannot be saved by then"
    )
    rescue_usd: Decimal | None = Field(
        default=None,
        ge=0,
        description="what may be spent beyond the end to save what is unverified; None: RESCUE_H at its rate",
    )
    idle_h: float | None = Field(default=None, gt=0, description="None: idleness is not looked at")
    when_idle: WhenIdle = "end"
    store: str | None = Field(
        default=None, description="where artifacts are copied besides this computer, in words"
    )
    recover: tuple[str, ...] = Field(
        default=(), description="where lost work is gone on with: providers, in this order"
    )

    def rescue(self, usd_h: Decimal | None) -> Decimal | None:
        """What may be spent beyond the end, at that rate. None if the rate is unknown."""
        if self.rescue_usd is not None:
            return self.rescue_usd
        return None if usd_h is None else usd_h * RESCUE_H


class Asked(Record):
    """The terms that somebody asks for. What they leave out stays as it is, or has its default."""

    hours: float | None = None
    max_price_usd_h: Amount | None = None
    budget_usd: Amount | None = None
    rescue_usd: Amount | None = None
    idle_h: Hours | None = Field(default=None, description="0: never")
    when_idle: WhenIdle = "end"
    store: str | None = None
    recover: tuple[str, ...] = ()

    def terms(
        self,
        *,
        deadline_at: datetime,
        max_price_usd_h: Decimal | None,
        meter: Literal["billed", "free"],
    ) -> Terms:
        """The terms from now on. A box that bills has an idle limit, unless the owner asked for none."""
        idle_h = self.idle_h
        if idle_h is None and meter == "billed":
            idle_h = IDLE_H
        return Terms(
            deadline_at=deadline_at,
            max_price_usd_h=max_price_usd_h,
            budget_usd=self.budget_usd,
            rescue_usd=self.rescue_usd,
            idle_h=idle_h or None,
            when_idle=self.when_idle,
            store=self.store,
            recover=self.recover,
        )


USUAL = Asked()
"""What holds if nobody asks for anything."""


class Rate(Record):
    """What a lease costs from `at` on. None is unknown, which is not zero."""

    at: AwareDatetime
    usd_h: Decimal | None


def cost_usd(rates: tuple[Rate, ...], *, since: datetime | None, until: datetime) -> Decimal | None:
    """What those rates add up to between two moments. None if one of them is unknown."""
    total = Decimal(0)
    ends = [rate.at for rate in rates[1:]] + [until]
    # A lease that never had a box has no rates, and has cost nothing.
    for rate, end in zip(rates, ends, strict=False):
        begin = rate.at if since is None else max(rate.at, since)
        seconds = (min(end, until) - begin).total_seconds()
        if seconds < 0 or (seconds == 0 and since is not None):
            continue
        if rate.usd_h is None:
            return None
        total += rate.usd_h * Decimal(seconds)
    return total / 3600
