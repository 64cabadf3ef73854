"""Decides, from what is known, whether a lease's work is done and what follows from that."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from gpu_tenant.domain.interruption import cut_off_at, went_on
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.story import JobEnd, Tries, story_of
from gpu_tenant.domain.terms import GRACE_S, duration_words
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.wording import usd_words
from gpu_tenant.leases.term_checks import next_attempt_at

LAUNCH_HOLDS_S = 120
"""After a request to launch, the lease does not count as done for this many seconds.

This is so even if the launch cannot begin at once.
"""
RELAUNCH_S = 900
"""If a box that was taken runs again, it is kept for this many seconds, so that its job can be launched again."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is known of a lease's work."""

    launched: bool
    """Whether anything was ever launched on the box."""
    busy: tuple[str, ...] = ()
    """The work that runs on the box or may still run there, each item in words."""
    ended_at: datetime | None = None
    """When the last job ended. None means unknown."""
    failed: tuple[str, ...] = ()
    """The failures after the last launch, each in words."""
    idle: bool = False
    """Whether nothing runs on the box now, although work may still come to it."""
    relaunch_until: datetime | None = None
    """If the box was taken during a job and runs again: until when it is kept for that job. None otherwise."""
    seen_at: datetime | None = None
    """When a person or an agent was last there, who may try again after a failure. None if nobody was."""
    lingering: tuple[str, ...] = ()
    """The jobs whose command has ended but left processes running. They are stopped before the lease ends."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done about a lease now, and why."""

    does: Literal["nothing", "wait", "end", "park"]
    because: Literal[
        "keep", "unused", "busy", "held", "grace", "failed", "refused", "again", "done"
    ]
    words: str = ""
    until: datetime | None = None
    """When to look again, if that is before the next regular look."""


def next_step(lease: Lease, work: Work, events: Lines, now: datetime) -> Step:
    """Decide what follows from the state of the lease's work, by the terms `when_done` and `on_failure`.

    The lease's other terms, such as the deadline, are not considered here.
    """
    terms = lease.terms
    if terms.when_done == "keep":
        return Step("nothing", "keep")
    if not work.launched:
        return Step("nothing", "unused")
    if work.busy:
        return Step("nothing", "busy", f"{', '.join(work.busy[:3])} may still run")
    tried = tries_of(events)
    if tried.refused is not None:
        return Step("nothing", "refused", tried.refused)
    until = held_until(events)
    if until is not None and now < until:
        return Step("wait", "held", f"held until {until:%Y-%m-%d %H:%M} UTC", until)
    does: Literal["end", "park"] = terms.when_done
    ended_at = work.ended_at or now
    # If this computer's clock was set back, do not keep the box longer for that.
    ready_at = ended_at + timedelta(seconds=GRACE_S) if now >= ended_at else now
    words = "all its jobs have ended"
    if work.failed:
        words = "; ".join(work.failed[:3])
        rule = terms.on_failure
        if rule.does == "hold":
            return Step(
                "nothing",
                "failed",
                f"{words}; its box is kept, as its terms say, for {_day_words(lease)}",
            )
        does, last = rule.does, "parked" if rule.does == "park" else "ended"
        wait_s = max(rule.wait_s(work.seen_at, ended_at), GRACE_S)
        look_at = ended_at + timedelta(seconds=wait_s)
        until = work.relaunch_until
        if until is not None and look_at < until and now < until:
            left = f"its box runs again, and will be {last} at {until:%H:%M} UTC"
            return Step(
                "wait", "failed", f"{words}; {left}, unless something is launched before", until
            )
        if ended_at <= now < look_at:
            left = f"its box stays warm until {look_at:%H:%M} UTC, for {warm_words(lease, wait_s)}, and will then be {last}"
            return Step(
                "wait", "failed", f"{words}; {left}, unless something is launched before", look_at
            )
    elif now < ready_at:
        return Step("wait", "grace", words, ready_at)
    again_at = next_attempt_at(tried.failed)
    if again_at is not None and tried.failed[-1] <= now < again_at:
        return Step("wait", "again", tried.words, again_at)
    return Step(does, "done", words)


def warm_words(lease: Lease, wait_s: float) -> str:
    """Say how long a failed job's box stays, and what that costs: `10m at 0.5 USD/h = 0.08 USD`."""
    if lease.price_usd_h is None:
        return f"{duration_words(wait_s)} at an unknown rate"
    usd = lease.price_usd_h * Decimal(wait_s) / 3600
    return f"{duration_words(wait_s)} at {lease.price_usd_h} USD/h = {usd_words(usd)}"


def _day_words(lease: Lease) -> str:
    if lease.price_usd_h is None:
        return "an unknown sum a day"
    return f"{usd_words(lease.price_usd_h * 24)} a day"


# --- what the timeline says


def tries_of(events: Lines) -> Tries:
    """Find the attempts to end a lease whose work is done, since the last event that could change their result.

    A collect that is part of an attempt does not count as such an event.
    """
    return story_of(events).tries


def held_until(events: Lines) -> datetime | None:
    """Return until when the lease is held for more work. None if it is not held.

    A hold that a person or agent asks for replaces the hold before it. A launch that waits, a push and an installation
    of packages also hold the lease for a short time.
    """
    return story_of(events).held_until


def lingers_since(events: Lines) -> dict[str, datetime]:
    """Return the jobs that have left processes running, with the time when this was seen."""
    return {
        job.id: job.lingers_since for job in story_of(events).jobs if job.lingers_since is not None
    }


def ends_of(events: Lines) -> list[JobEnd]:
    """Return the jobs that are known to have ended, in the order in which their ends were noticed."""
    return list(story_of(events).ends)


def last_launch_at(events: Lines) -> datetime | None:
    """Return when something was last launched. None if nothing was."""
    return story_of(events).launched_at


def failures(
    ends: Sequence[JobEnd], launched_at: datetime | None, events: Lines = ()
) -> tuple[str, ...]:
    """Return in words the jobs that failed after the last launch. Earlier failures were known at that launch.

    If a job ended because its box was taken, it counts as ended when the box was taken, even if this was seen later. If
    its work went on under another lease, it is no failure here.
    """
    is_elsewhere = went_on(events) is not None
    told: list[str] = []
    for end in ends:
        cut_off = cut_off_at(events, end.job)
        ended_at = end.at if cut_off is None else min(end.at, cut_off)
        is_seen = launched_at is not None and ended_at < launched_at
        if end.state == "finished" or is_seen or (cut_off is not None and is_elsewhere):
            continue
        told.append(f"the job {end.job} is {end.state}" + (f" ({end.why})" if end.why else ""))
    return tuple(told)


def relaunch_until(
    ends: Sequence[JobEnd], launched_at: datetime | None, events: Lines
) -> datetime | None:
    """If a box was taken during a job and runs again, return until when it is kept for that job. Otherwise None.

    The box was started for this job, or has started by itself. The term `on_failure` is not meant for this case.
    """
    if went_on(events) is not None:
        return None
    cut = [at for end in ends if (at := cut_off_at(events, end.job)) is not None]
    if not cut or (launched_at is not None and max(cut) < launched_at):
        return None
    back_at = story_of(events).box.back_at
    return (
        None if back_at is None or back_at < max(cut) else back_at + timedelta(seconds=RELAUNCH_S)
    )
