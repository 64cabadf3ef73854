"""Alarms: what a person must hear of, how loudly, and when again until it is over."""

from datetime import datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.record import Record

CHANNEL = "notify:"
"""The prefix of the key of an alarm about a channel. The channel's name follows."""


class Level(IntEnum):
    """How much an alarm matters."""

    NOTICE = 1
    """Worth knowing. Nothing is lost by hearing of it tomorrow."""
    WARNING = 2
    """Somebody should look today."""
    URGENT = 3
    """Money is burning beyond the terms, or a box may be lost."""


class AlarmPace(NamedTuple):
    """How often something of one level is reported."""

    waits: tuple[timedelta, ...]
    """The time from one report to the next. The last entry repeats for ever."""
    louder_after: timedelta | None = None
    """After this time, an open alarm is reported as if it were one level higher."""


def _minutes(*each: int) -> tuple[timedelta, ...]:
    return tuple(timedelta(minutes=m) for m in each)


# The first report is immediate, whatever the level.
PACES = {
    Level.NOTICE: AlarmPace(_minutes(15, 60, 4 * 60, 12 * 60), louder_after=timedelta(hours=24)),
    Level.WARNING: AlarmPace(_minutes(15, 60, 2 * 60, 4 * 60), louder_after=timedelta(hours=12)),
    Level.URGENT: AlarmPace(_minutes(5, 15, 30, 60)),
}


class Alarm(Record):
    """Something that a person must hear of. It stays open until what it is about has ended."""

    seq: int
    lease_id: LeaseId | None = Field(description="None: it is about no single lease")
    key: str = Field(description="what it is about, the same each time it is seen")
    words: str
    level: Level = Field(description="as it was raised; `loudness` is what it has become")
    since: AwareDatetime
    last_seen_at: AwareDatetime
    told: int = Field(description="how often it was told at this level, and somebody was reached")
    told_at: AwareDatetime | None = Field(description="when somebody was last to be told")
    ended_at: AwareDatetime | None

    @property
    def channel(self) -> str | None:
        """The channel that this alarm is about. None if it is about something else."""
        return self.key.removeprefix(CHANNEL) if self.key.startswith(CHANNEL) else None


def loudness(alarm: Alarm, now: datetime) -> Level:
    """The level at which an alarm is reported at `now`: one that stays open grows one level louder."""
    after = PACES[alarm.level].louder_after
    # A failing channel costs no money by itself, so its level never rises.
    if after is None or alarm.channel is not None or now - alarm.since <= after:
        return alarm.level
    return Level(alarm.level + 1)


def is_due(alarm: Alarm, now: datetime) -> bool:
    """Whether it is time to report it. Also true if `told_at` is in the future, because a clock was ahead."""
    return due_at(alarm, now) <= now or (alarm.told_at is not None and now < alarm.told_at)


def due_at(alarm: Alarm, now: datetime) -> datetime:
    """When an open alarm is to be reported next, as things stand at `now`."""
    if alarm.told_at is None:
        return alarm.since
    waits = PACES[loudness(alarm, now)].waits
    # An alarm that was tried but reached nobody waits for its next try as if it had been reported
    # once.
    return alarm.told_at + waits[min(max(alarm.told, 1), len(waits)) - 1]
