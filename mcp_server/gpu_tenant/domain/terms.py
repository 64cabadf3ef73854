"""What was agreed when a lease was made: until when, for how much, and what happens at the end."""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AwareDatetime, Field

from gpu_tenant.domain.choices import WhenDone, WhenIdle
from gpu_tenant.domain.labels import UNNAMED, Labels
from gpu_tenant.domain.order import NOTHING_ORDERED, Order
from gpu_tenant.domain.record import Amount, Hours, Record

RESCUE_H = 24
"""To save unverified data, up to this many hours of the box's price may be spent beyond the end.

The owner can name another sum.
"""

LAST_START_S = 1800
"""A stopped box that is started once more after its deadline, to prove its files, is stopped again after this time."""

IDLE_H = 2
"""The usual limit on idle time.

It is longer than most installs and most meals, so a box that is idle for longer was forgotten.
"""

UNSEEN_USD = Decimal(100)
"""If nothing stops a box's meter, a day on which nobody looks may cost at most this.

A higher cost needs a person's consent.
"""

ATTENDED_S = 600
"""How many seconds the box of a failed job stays for another try, while somebody is there."""

UNATTENDED_S = 60
"""The same, if nobody is there to try again."""

_THERE = timedelta(minutes=5)
"""Somebody who was seen this long before the end of a job still counts as there."""

UNASKED_GIB, UNASKED_S = 2.0, 600
"""Of what nobody declared, so much comes home without a question, or what comes in so many seconds if that is more."""


GRACE_S = 30
"""How many seconds after its last job a lease waits for the next job, before it counts as done."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)")
_UNIT_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_ON_FAILURE = re.compile(r"(end|park|keep|hold)(?:\s+after\s+(.+))?")


def seconds_of(said: str) -> float:
    """Return how many seconds a duration such as `30m` or `1.5h` has.

    Raises:
        ValueError: the text is not such a duration.
    """
    found = _DURATION.fullmatch(said.strip())
    if found is None or float(found[1]) * _UNIT_S[found[2]] > 366 * 86400:
        raise ValueError(f"{said!r} is not a duration such as 90s, 30m or 2h")
    return float(found[1]) * _UNIT_S[found[2]]


def duration_words(seconds: float) -> str:
    """Write a duration so that `seconds_of` can read it, in the largest unit that gives a whole number."""
    unit = next((u for u in ("h", "m") if seconds and seconds % _UNIT_S[u] == 0), "s")
    return f"{seconds / _UNIT_S[unit]:g}{unit}"


def unasked_bytes(gib: float | None) -> int:
    """Return how much of what nobody declared comes home without a question, while no transfer was measured."""
    return int((UNASKED_GIB if gib is None else gib) * 2**30)


class OnFailure(Record):
    """What becomes of a box whose job failed, and how long somebody can try again on it before that."""

    does: Literal["end", "park", "hold"] = Field(
        default="end", description="hold: it is kept, which is written `keep`"
    )
    after_s: float | None = Field(
        default=None, ge=0, description="None: ATTENDED_S if somebody is there, else UNATTENDED_S"
    )

    @classmethod
    def parse(cls, words: str) -> Self:
        """Parse `end`, `end after 15m`, `park after 1h` or `keep`. `hold` is the earlier word for `keep`.

        Raises:
            ValueError: the words are none of these.
        """
        found = _ON_FAILURE.fullmatch(words.strip())
        keeps = found is not None and found[1] in ("keep", "hold")
        if found is None or (keeps and found[2] is not None):
            raise ValueError(f"{words!r} is not `end after 15m`, `park after 1h` or `keep`")
        after_s = None if found[2] is None else seconds_of(found[2])
        return cls.model_validate({"does": "hold" if keeps else found[1], "after_s": after_s})

    @property
    def words(self) -> str:
        """The same in words that `parse` can read."""
        if self.does == "hold":
            return "keep"
        return (
            self.does
            if self.after_s is None
            else f"{self.does} after {duration_words(self.after_s)}"
        )

    @property
    def longest_s(self) -> float:
        """The longest time that the box may wait for another try, if it is not kept."""
        return ATTENDED_S if self.after_s is None else self.after_s

    def wait_s(self, seen_at: datetime | None, ended_at: datetime) -> float:
        """Return how long after its job's end the box waits for another try.

        `seen_at` is when a person or an agent was last there. None if nobody was.
        """
        if self.after_s is not None:
            return self.after_s
        return ATTENDED_S if is_there(seen_at, ended_at) else UNATTENDED_S

    @property
    def time_words(self) -> str:
        """How long after a failed job the box goes, in words. Empty if it goes at once."""
        if self.after_s is None:
            return (
                f"{duration_words(UNATTENDED_S)} later, or {duration_words(ATTENDED_S)} if somebody is "
                "there to try again"
            )
        return f"{duration_words(self.after_s)} later" if self.after_s else ""


def is_there(seen_at: datetime | None, ended_at: datetime) -> bool:
    """Whether somebody who was last seen then may try again after a job's end."""
    return seen_at is not None and seen_at >= ended_at - _THERE


def _on_failure(words: str) -> str:
    return OnFailure.parse(words).words


SaidOnFailure = Annotated[str, AfterValidator(_on_failure)]
"""`end after 15m`, `park after 1h` or `keep`, as somebody writes it."""


class Terms(Record):
    """What the owner agreed to. Every process that looks at the lease enforces these terms."""

    deadline_at: AwareDatetime = Field(description="when its jobs are stopped and the lease ends")
    max_price_usd_h: Decimal | None = Field(default=None, ge=0)
    budget_usd: Decimal | None = Field(default=None, ge=0)
    on_deadline: Literal["keep", "waive"] = Field(
        default="keep", description="waive: the owner has signed for what cannot be saved by then"
    )
    rescue_usd: Decimal | None = Field(
        default=None,
        ge=0,
        description="what may be spent beyond the end to save unverified data; None: what the box costs in RESCUE_H hours",
    )
    idle_h: float | None = Field(default=None, gt=0, description="None: no idle limit")
    when_idle: WhenIdle = "end"
    when_done: WhenDone = Field(
        default="keep",
        description="what is done once its jobs have ended; the default is for leases from ledgers that did not record this yet",
    )
    on_failure: OnFailure = OnFailure()
    unasked_gib: float | None = Field(
        default=None,
        ge=0,
        le=2**20,
        description="of what nobody declared, so much comes home without a question; None: UNASKED_GIB, or more",
    )
    store: str | None = Field(
        default=None, description="where artifacts are copied besides this computer, in words"
    )
    recover: tuple[str, ...] = Field(
        default=(), description="where lost work continues: providers, in this order"
    )
    order: Order = Field(default=NOTHING_ORDERED, description="what its box has besides its GPU")

    @property
    def unasked_bytes(self) -> int:
        """How much of what nobody declared comes home without a question, while no transfer was measured."""
        return unasked_bytes(self.unasked_gib)

    def rescue(self, usd_h: Decimal | None) -> Decimal | None:
        """Return what may be spent beyond the end, if the box costs `usd_h` an hour. None if that is unknown."""
        if self.rescue_usd is not None:
            return self.rescue_usd
        return None if usd_h is None else usd_h * RESCUE_H


class RentRequest(Record):
    """The terms that somebody asks for. What they leave out is unchanged, or has its default."""

    hours: float | None = None
    max_price_usd_h: Amount | None = None
    budget_usd: Amount | None = None
    rescue_usd: Amount | None = None
    idle_h: Hours | None = Field(default=None, description="0: never")
    when_idle: WhenIdle = "end"
    when_done: WhenDone | None = Field(
        default=None, description="None: depends on whose machine it is"
    )
    on_failure: SaidOnFailure | None = None
    unasked_gib: float | None = Field(default=None, ge=0, le=2**20)
    store: str | None = None
    recover: tuple[str, ...] = ()
    order: Order = NOTHING_ORDERED
    errand: str | None = Field(default=None, description="the errand that the box is for")
    labels: Labels = Field(default=UNNAMED, description="what the lease is called")

    def terms(
        self,
        *,
        deadline_at: datetime,
        max_price_usd_h: Decimal | None,
        meter: Literal["billed", "free"],
        machine: Literal["rented", "own", "adopted"] = "rented",
    ) -> Terms:
        """Return the terms from now on.

        A box that bills has an idle limit, unless the owner asked for none. A rented box is ended when its work is
        done, unless the owner asked otherwise. A machine of one's own is kept. So is one that somebody else rented and
        that was adopted, and idling does not end it: its owner may be at work there in a way that we do not see.
        """
        idle_h = self.idle_h
        if idle_h is None and meter == "billed" and machine != "adopted":
            idle_h = IDLE_H
        return Terms(
            deadline_at=deadline_at,
            max_price_usd_h=max_price_usd_h,
            budget_usd=self.budget_usd,
            rescue_usd=self.rescue_usd,
            idle_h=idle_h or None,
            when_idle=self.when_idle,
            when_done=self.when_done or ("end" if machine == "rented" else "keep"),
            on_failure=OnFailure.parse(self.on_failure) if self.on_failure else OnFailure(),
            unasked_gib=self.unasked_gib,
            store=self.store,
            recover=self.recover,
            order=self.order,
        )


USUAL = RentRequest.model_construct()
"""The terms if nobody asks for anything."""


class Rate(Record):
    """What a lease costs from `at` on. None means unknown, which is not zero."""

    at: AwareDatetime
    usd_h: Decimal | None


def cost_usd(rates: tuple[Rate, ...], *, since: datetime | None, until: datetime) -> Decimal | None:
    """Return what those rates add up to between two moments. None if a rate in this time is unknown."""
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
