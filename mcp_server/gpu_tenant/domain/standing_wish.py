"""A standing wish: what to rent as soon as it is available, on which terms, and until when."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.terms import RentRequest

WISH = "w"
"""The beginning of the id of every wish."""

LOOK_S = 60
"""Seconds from one look at the market to the next. The first process that checks after that looks again."""

MOST_WAIT_H = 7 * 24.0
"""The longest time that a wish may wait. It is a week, which is also how long a smoke test counts."""

_RESTS = tuple(timedelta(minutes=m) for m in (2, 4, 8, 15))
"""How long a provider is not asked after one, two, three, or more failures in a row."""

Outcome = Literal["had", "given up", "called off"]


def is_wish(name: str) -> bool:
    """Whether that is the id of a wish, and not of a quote."""
    return name.startswith(f"{WISH}-")


class StandingTerms(Record):
    """The terms on which a wish may be fulfilled, as stated when it became a standing wish."""

    asked: RentRequest
    cap_usd_h: Decimal = Field(ge=0, description="no box above this price is rented")
    unguarded: Literal["refuse", "accept"]
    smoke: str | None
    quotes: tuple[str, ...] = Field(default=(), description="what is tried first")


class ProviderRest(Record):
    """A provider that is not asked before `until`, because it failed `failed` times in a row."""

    failed: int
    until: AwareDatetime


class StandingWish(Record):
    """A recorded wish. A box is rented for it only while it has terms (`order`) and has not ended."""

    id: str
    wish: Wish
    provider: str | None = Field(description="the only provider to ask; None: all")
    filed_at: AwareDatetime
    order: StandingTerms | None = None
    asked_at: AwareDatetime | None = None
    until: AwareDatetime | None = None
    looked_at: AwareDatetime | None = None
    seen: str = Field(default="", description="what the last look showed")
    rests: dict[str, ProviderRest] = Field(default={})
    ended_at: AwareDatetime | None = None
    outcome: Outcome | None = None

    @property
    def stands(self) -> bool:
        """Whether a box should still be rented for the wish."""
        return self.order is not None and self.ended_at is None

    def is_due(self, now: datetime) -> bool:
        """Whether to ask the market again. Also true if the last look is in the future, because a clock was ahead."""
        past = None if self.looked_at is None else now - self.looked_at
        return past is None or not timedelta(0) <= past < timedelta(seconds=LOOK_S)

    def resting(self, now: datetime) -> set[str]:
        """Return the providers that are not asked now."""
        longest = _RESTS[-1]
        return {who for who, rest in self.rests.items() if now < rest.until <= now + longest}

    def rests_after(
        self, asked: Collection[str], troubles: Mapping[str, str], now: datetime
    ) -> dict[str, ProviderRest]:
        """Return which providers are not asked for a while, after a look.

        At that look the providers in `asked` were asked, and those in `troubles` failed.
        """
        after = {who: rest for who, rest in self.rests.items() if who not in asked}
        for who in troubles:
            failed = self.rests[who].failed + 1 if who in self.rests else 1
            until = now + _RESTS[min(failed, len(_RESTS)) - 1]
            after[who] = ProviderRest(failed=failed, until=until)
        return after

    @property
    def what(self) -> str:
        """What somebody wishes to rent, in words."""
        wish = self.wish
        count = f" x{wish.gpu_count}" if wish.gpu_count > 1 else ""
        cap = f" at up to {self.order.cap_usd_h} USD/h" if self.order else ""
        at = f" at {self.provider}" if self.provider else ""
        return f"{' or '.join(wish.gpus) or 'a box'}{count}{at}{cap}"

    def words(self, watched: str) -> str:
        """Return in one line what the wish waits for, who looks again, and how to end it."""
        until = f"{self.until:%Y-%m-%d %H:%M} UTC" if self.until else "nobody knows when"
        looked = f"{self.looked_at:%H:%M} UTC, {self.seen}" if self.looked_at else "none yet"
        return (
            f"{self.id} waits for {self.what} until {until}; last look: {looked}; watch: {watched}; "
            f"{Command('call-off', self.id)} ends it"
        )
