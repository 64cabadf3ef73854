"""Decides whether a provider took a box away, and why.

A job that crashed does not count as taken away, and neither does a box that we merely cannot see.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Box, BoxState, Fate, Lease, LeaseState, Profile
from gpu_tenant.domain.rental import rental_is_over
from gpu_tenant.domain.story import KillingFate, story_of
from gpu_tenant.domain.timeline import Lines

TURNS = (timeline.Taken, timeline.Ready, timeline.Resumed, timeline.Parked)
"""The events by which a box stops, or runs again."""

INTERRUPTIONS: frozenset[Fate] = frozenset({"preempted", "outbid", "host_lost"})
"""The fates that may interrupt the work at any time, even if the account has money and the lease's time is not over."""

_NOTICE_STANDS = timedelta(minutes=15)
"""A notice that the box will be taken counts for this long."""


BY_ITS_PROVIDER: frozenset[Fate] = frozenset({"preempted", "outbid", "host_lost", "balance_zero"})
"""The fates that only a provider brings about. Any other stop may also be that of a guard, or of a person there."""


class Taken(NamedTuple):
    """What took the box, and a sentence that says how we know."""

    fate: Fate
    words: str


def fate(
    lease: Lease,
    profile: Profile,
    box: Box | None,
    *,
    now: datetime,
    balance_usd: Decimal | None = None,
    guard_stops: str = "",
) -> Taken | None:
    """Return what took the lease's box, as its provider shows it. None if nothing did.

    `box` is None if no list shows the box. One such list proves nothing. After two, the lease is `lost`.
    `balance_usd` is what the account holds. None if nobody asked. `guard_stops` says when the guard on the box may have
    stopped it. Three things do not count as a fate: a state that nobody understands, a provider that does not answer,
    and a job that died.
    """
    if lease.state is LeaseState.LOST:
        return Taken("host_lost", "its provider no longer lists it, and nobody here ended it")
    if box is None or lease.state is not LeaseState.ACTIVE or lease.parked_at is not None:
        return None
    said = f": {box.words}" if box.words else ""
    if box.taken is not None:
        return Taken(box.taken, f"its provider says so{said}")
    match box.state:
        case BoxState.PARKED:
            return _why_stopped(lease, profile, box, said, now, balance_usd, guard_stops)
        case BoxState.BROKEN if lease.ready_at is not None:
            return Taken("host_lost", f"its provider calls it broken{said}")
        case _:
            return None


def _why_stopped(
    lease: Lease,
    profile: Profile,
    box: Box,
    said: str,
    now: datetime,
    balance_usd: Decimal | None,
    guard_stops: str,
) -> Taken:
    """Return the most certain reason for the stop of a box that nobody here has parked."""
    if now >= lease.terms.deadline_at:
        return Taken("walltime", "it was stopped, and its deadline has passed")
    if rental_is_over(lease, now):
        return Taken("walltime", f"it was stopped, and its rental period is over{said}")
    if balance_usd is not None and balance_usd <= 0:
        return Taken("balance_zero", f"it was stopped, and the account holds {balance_usd} USD")
    if not box.interruptible:
        return Taken("stopped_by_provider", f"{who_stopped_it(None, guard_stops)}{said}")
    unless = f", unless its guard stopped it {guard_stops}" if guard_stops else ""
    if profile.kind == "marketplace":
        may = box.words or "it may start again by itself, and bill"
        return Taken("outbid", f"somebody pays more for its GPU{unless}; {may}")
    return Taken(
        "preempted", f"its provider took the GPU back{unless}; its disk is kept, and bills{said}"
    )


def who_stopped_it(fate: Fate | None, guard_stops: str = "") -> str:
    """Say who has stopped the box, as far as this is known.

    `guard_stops` says when the guard on the box may have done it. A provider shows its own stop, one by the guard, and
    one by a person in its console alike.
    """
    if guard_stops:
        return f"its guard has stopped it {guard_stops}, otherwise its provider or a person has"
    if fate in BY_ITS_PROVIDER:
        return "its provider has stopped it"
    return "its provider or a person at its console has stopped it"


def taken_words(fate: Fate) -> str:
    """Say what befell the box, as the end of a sentence about what this has cut off."""
    if fate in BY_ITS_PROVIDER:
        return f"its provider took the box ({fate})"
    return "the box was stopped"


def recorded_fate(lines: Lines) -> Fate | None:
    """Return the newest recorded fate of the box. None if there is none, or if the box has come back since."""
    return story_of(lines).box.fate


def fate_met(lines: Lines, job: str) -> tuple[datetime, KillingFate] | None:
    """Return what took the box while that job ran, and when that was noticed. None if nothing did.

    The fate still counts for the job after the box runs again. It does not count if the job had ended before, was
    launched again since, or was seen running after it.
    """
    return story_of(lines).job(job).met


def cut_off_at(lines: Lines, job: str) -> datetime | None:
    """Return when it was noticed that the job ended because its box was taken. None if it did not end for that reason.

    Such a job did not fail by itself. If it is launched again, it continues. A job that was killed shortly before
    counts, too, because the box may know sooner than its provider says it. So does a job that was asked to save because
    of a notice, even before its provider says anything. The deadline and the end of a rental do not count, because they
    are terms of the lease.
    """
    cut_off = story_of(lines).job(job).cut_off
    return None if cut_off is None or cut_off.fate == "walltime" else cut_off.at


def notice_on_record(lines: Lines) -> timeline.Forewarned | None:
    """Return the recorded notice that the box will be taken. None if there was no notice, or if it no longer counts."""
    return story_of(lines).box.notice


def is_being_taken(lines: Lines, now: datetime) -> bool:
    """Whether the box has notice that its provider will take it back, and still exists as far as the record says.

    If the box still runs long after its notice, it is treated like any other box.
    """
    heard = notice_on_record(lines)
    return heard is not None and recorded_fate(lines) is None and now - heard.at < _NOTICE_STANDS


def went_on(lines: Lines) -> timeline.Recovered | None:
    """Return the event by which the lease's work went on under another lease. None if it did not go on."""
    return story_of(lines).moved
