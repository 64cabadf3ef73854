"""Alarms: what a person must be told, how urgent each alarm is, and when it is repeated."""

from datetime import datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.record import Record

CHANNEL = "notify:"
"""The prefix of the key of an alarm about a channel. The channel's name follows it."""
UNREACHABLE = "unreachable"
"""The key of the alarm that a box does not answer."""
END_NEWS = "ended"
"""The key of the alarm that a lease has ended. As a notice, it is news of an end that went as agreed."""


class Level(IntEnum):
    """How much an alarm matters."""

    NOTICE = 1
    """Worth knowing. Nothing is lost if somebody hears of it tomorrow."""
    WARNING = 2
    """Somebody should look today."""
    URGENT = 3
    """Money is burning beyond the terms, or a box may be lost."""


class AlarmPace(NamedTuple):
    """How often something of one level is reported."""

    waits: tuple[timedelta, ...]
    """The time from one report to the next. The last entry repeats forever."""
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
    """Something that a person must hear of. It stays open until its cause has ended."""

    seq: int
    lease_id: LeaseId | None = Field(description="None: it is not about a single lease")
    key: str = Field(description="what it is about, the same each time it is seen")
    words: str
    level: Level = Field(description="at first; `loudness` tells the level that it has now")
    since: AwareDatetime
    last_seen_at: AwareDatetime
    told: int = Field(description="how often it reached somebody at this level")
    told_at: AwareDatetime | None = Field(description="when it was last sent, if ever")
    ended_at: AwareDatetime | None

    @property
    def channel(self) -> str | None:
        """The channel that this alarm is about. None if it is about something else."""
        return self.key.removeprefix(CHANNEL) if self.key.startswith(CHANNEL) else None


def loudness(alarm: Alarm, now: datetime) -> Level:
    """Return the level at which an alarm is reported at `now`. An alarm that stays open rises by one level."""
    after = PACES[alarm.level].louder_after
    # A failing channel costs no money by itself, and neither does news that nobody has read. So their levels never rise.
    is_news = alarm.key == END_NEWS and alarm.level is Level.NOTICE
    if after is None or is_news or alarm.channel is not None or now - alarm.since <= after:
        return alarm.level
    return Level(alarm.level + 1)


def is_due(alarm: Alarm, now: datetime) -> bool:
    """Whether it is time to report the alarm. Also true if `told_at` is in the future: a clock was wrong."""
    return due_at(alarm, now) <= now or (alarm.told_at is not None and now < alarm.told_at)


def due_at(alarm: Alarm, now: datetime) -> datetime:
    """Return when an open alarm is to be reported next, at the level that it has at `now`."""
    if alarm.told_at is None:
        return alarm.since
    waits = PACES[loudness(alarm, now)].waits
    # If an alarm was sent but reached nobody, the wait until the next try is the same as after one report.
    return alarm.told_at + waits[min(max(alarm.told, 1), len(waits)) - 1]
