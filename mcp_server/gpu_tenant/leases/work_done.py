"""Whether a lease's work is done, and what follows from that: the decision, from what is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.terms import GRACE_S, duration_words
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.leases.term_checks import next_attempt_at

LAUNCH_HOLDS_S = 120
"""How long a launch that could not begin at once keeps its lease from being ended for being done."""
PUSH_HOLDS_S = 300
"""How long a push, or packages that were installed, do: who brings a tree is about to launch."""

_CHANGES = (
    timeline.Launched
    | timeline.JobEnded
    | timeline.Lingers
    | timeline.Pushed
    | timeline.Prepared
    | timeline.Claimed
    | timeline.Accepted
    | timeline.Collected
    | timeline.NewTerms
    | timeline.Resumed
    | timeline.Holds
)
"""After one of these, an end that was refused is tried once more."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job that has ended, as its lease's timeline has it."""

    job: str
    state: str
    at: datetime
    """When it ended, by this computer's clock."""
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What is known of a lease's work."""

    launched: bool
    """Whether anything was ever launched there."""
    busy: tuple[str, ...] = ()
    """What runs, or may still run there; each in words."""
    ended_at: datetime | None = None
    """When the last of it ended; None: unknown."""
    failed: tuple[str, ...] = ()
    """What did not end well, and nobody launched anything since; each in words."""
    idle: bool = False
    """Whether nothing runs there now, although something may still come there."""
    lingering: tuple[str, ...] = ()
    """The jobs whose commands have ended and left processes that run on; stopped before anything is ended."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done about a lease now, and why."""

    does: Literal["nothing", "wait", "end", "park"]
    because: Literal[
        "keep", "unused", "busy", "held", "grace", "failed", "refused", "again", "done"
    ]
    words: str = ""
    until: datetime | None = None
    """When to look again at the latest, if that is before the next look."""


def next_step(lease: Lease, work: Work, events: Lines, now: datetime) -> Step:
    """What follows from the lease's work, by its terms; every other of its terms holds on besides."""
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
    # A clock that was set back since then must not hold the box for as long.
    ready_at = ended_at + timedelta(seconds=GRACE_S) if now >= ended_at else now
    words = "all its jobs have ended"
    if work.failed:
        words = "; ".join(work.failed[:3])
        rule = terms.on_failure
        if rule.does == "hold":
            return Step("nothing", "failed", f"{words}; it is kept, as its terms say")
        does, last = rule.does, "parked" if rule.does == "park" else "ended"
        look_at = ended_at + timedelta(seconds=max(rule.after_s, GRACE_S))
        if ended_at <= now < look_at:
            left = f"{last} at {look_at:%H:%M} UTC, {duration_words(rule.after_s)} after its end"
            return Step("wait", "failed", f"{words}; {left}, unless something is launched", look_at)
    elif now < ready_at:
        return Step("wait", "grace", words, ready_at)
    again_at = next_attempt_at(tried.failed)
    if again_at is not None and tried.failed[-1] <= now < again_at:
        return Step("wait", "again", tried.words, again_at)
    return Step(does, "done", words)


# --- what the timeline says


@dataclass(frozen=True, slots=True)
class Tries:
    """What came of ending a lease for being done, since something last changed."""

    refused: str | None
    """Why the law refused it; None: it did not, or something changed since."""
    failed: list[datetime]
    """When it was tried and something was in the way that may pass."""
    words: str = ""


def tries_of(events: Lines) -> Tries:
    """The attempts since the last line that changes something; what an attempt itself collects changes nothing."""
    refused: str | None = None
    failed: list[datetime] = []
    words, is_under_way = "", False
    for at, event in events:
        if isinstance(event, timeline.Done):
            is_under_way = event.outcome == "begun"
            if event.outcome == "refused":
                refused, failed = event.words, []
            elif event.outcome == "failed":
                refused, words = None, event.words
                failed.append(at)
        elif is_under_way and isinstance(event, timeline.Collected):
            continue
        elif isinstance(event, _CHANGES):
            refused, failed, words, is_under_way = None, [], "", False
    return Tries(refused, failed, words)


def held_until(events: Lines) -> datetime | None:
    """Until when somebody wants the lease for more work; None: nobody said so.

    A hold that is said takes the place of the one before; a launch, a push and packages hold besides.
    """
    said: datetime | None = None
    besides: datetime | None = None
    for at, event in events:
        match event:
            case timeline.Holds(until=until, by="said"):
                said = until
                besides = None if until <= at else besides
            case timeline.Holds(until=until):
                besides = max(filter(None, (besides, until)))
            case timeline.Pushed() | timeline.Prepared():
                besides = max(filter(None, (besides, at + timedelta(seconds=PUSH_HOLDS_S))))
            case timeline.Launched():
                besides = None  # what was about to be launched is
            case _:
                pass
    return max(filter(None, (said, besides)), default=None)


def lingers_since(events: Lines) -> dict[str, datetime]:
    """The jobs that were seen to have left processes running, each with when that was first seen."""
    return {event.job: at for at, event in events if isinstance(event, timeline.Lingers)}


def ends_of(events: Lines) -> list[JobEnd]:
    """The jobs whose end a look has seen, in that order."""
    return [
        JobEnd(
            job=event.job,
            state=str(event.state),
            at=at - timedelta(seconds=max(0.0, event.ago_s or 0.0)),
            why=event.why,
        )
        for at, event in events
        if isinstance(event, timeline.JobEnded)
    ]


def last_launch_at(events: Lines) -> datetime | None:
    """When something was last launched; None: never."""
    return max((at for at, event in events if isinstance(event, timeline.Launched)), default=None)


def failures(ends: Sequence[JobEnd], launched_at: datetime | None) -> tuple[str, ...]:
    """The jobs that did not end well and that nobody has answered: whoever launches after an end has seen it."""
    return tuple(
        f"the job {end.job} is {end.state}" + (f" ({end.why})" if end.why else "")
        for end in ends
        if end.state != "finished" and (launched_at is None or end.at >= launched_at)
    )
