"""What a lease will have cost by its deadline, and by the end of its job if the job keeps its pace."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from pydantic import AwareDatetime, TypeAdapter

from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing import Billed, counted_usd
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.job_state import ENDED, JobState
from gpu_tenant.domain.model import Lease, LeaseId
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.ledger import Ledger

if TYPE_CHECKING:
    from gpu_tenant.jobs.progress import Progress

_LEAST_FRACTION = 0.02
_LEAST_S = 60
"""A forecast needs at least this much progress and this many seconds, because a job's first steps are its slowest."""
_STEP, _STEP_S = 0.01, 60
"""Two recorded marks are at least this far apart, in progress and in seconds."""
_SOON = timedelta(hours=1)
"""A warning is given only if the budget will be spent sooner than this.

An earlier warning is not needed: the owner agreed that the budget may be spent before the deadline.
"""

_FRACTION: TypeAdapter[float | None] = TypeAdapter(float | None)


class Mark(Record):
    """How far a job had come at one moment, as a fraction of the whole."""

    at: AwareDatetime
    fraction: float


class Forecast(Record):
    """What is spent and what will be spent. An unknown sum is None, never 0."""

    spent_usd: Decimal | None
    rate_usd_h: Decimal | None
    to_deadline_usd: Decimal | None
    job_ends_at_earliest: AwareDatetime | None = None
    job_ends_at: AwareDatetime | None = None
    """The later of two estimates: one from the job's whole history, one from the newer half of that history."""
    to_job_end_usd_least: Decimal | None = None
    to_job_end_usd: Decimal | None = None
    """The cost at the later of the two ends."""
    over_budget: str | None = None
    past_deadline: str | None = None


def forecast(
    lease: Lease, now: datetime, *, course: Sequence[Mark] = (), billed: Billed | None = None
) -> Forecast:
    """Return what the lease has cost and will cost, as far as that is known.

    `course` is the progress of its running job from the start. `billed` is what the provider says it has
    charged. Of `billed`, only the charges for transferred bytes are added, because no hourly rate covers these.
    """
    spent = counted_usd(lease, now, billed=billed)
    if not lease.state.live:
        return Forecast(spent_usd=spent, rate_usd_h=None, to_deadline_usd=None)
    rate = _rate_usd_h(lease)
    told = Forecast(
        spent_usd=spent,
        rate_usd_h=lease.price_usd_h,
        to_deadline_usd=_by(lease.terms.deadline_at, now, spent, rate),
    )
    ends = ends_between(course) if lease.parked_at is None else None
    # If the estimated end is in the past, the job has ended or become slower: the estimate is of no use.
    if ends is not None and ends[1] >= now:
        told = told.model_copy(
            update={
                "job_ends_at_earliest": max(ends[0], now),
                "job_ends_at": ends[1],
                "to_job_end_usd_least": _by(ends[0], now, spent, rate),
                "to_job_end_usd": _by(ends[1], now, spent, rate),
            }
        )
    return told.model_copy(
        update={
            "over_budget": _over_budget(lease, told, now, rate),
            "past_deadline": _past_deadline(lease, told, now),
        }
    )


class ExitReason(NamedTuple):
    """How a job has ended: its exit status, and the verdict and the evidence of `jobs/failure_cause.py`."""

    exit_code: int | None = None
    cause: str | None = None
    evidence: str | None = None


UNKNOWN_END = ExitReason()


def keep_course(
    lease_id: LeaseId,
    job: str,
    state: JobState,
    progress: Progress | None,
    *,
    ledger: Ledger,
    at: datetime,
    end: ExitReason = UNKNOWN_END,
) -> None:
    """Record the job's progress: at most once a minute, and only if it grew by a hundredth. Also record its end."""
    fraction = progress.fraction if progress else None
    known = [
        (when, event)
        for when, event in ledger.events(lease_id, timeline.Progressed)
        if isinstance(event, timeline.Progressed) and event.job == job
    ]
    if state in ENDED:
        if known and known[-1][1].state in ENDED:
            return
    elif fraction is None:
        return
    elif known:
        when, last = known[-1]
        before = last.fraction
        near = before is not None and abs(fraction - before) < _STEP
        if near or (at - when).total_seconds() < _STEP_S:
            return
    told = timeline.Progressed(
        job=job,
        state=state,
        fraction=fraction,
        done=progress.done if progress else None,
        total=progress.total if progress else None,
    )
    if state in ENDED:
        told = told.model_copy(update=end._asdict())
    ledger.note(lease_id, told, at=at)


def course_of(events: Lines) -> tuple[Mark, ...]:
    """Return the progress of the newest job in that timeline. Empty if the job has ended."""
    launched = [(at, event.job) for at, event in events if isinstance(event, timeline.Launched)]
    if not launched:
        return ()
    newest = launched[-1][1]
    if newest is not None and story_of(events).job(newest).has_ended:
        return ()
    began = next(at for at, job in launched if job == newest)
    seen = [
        Mark(at=at, fraction=event.fraction)
        for at, event in events
        if isinstance(event, timeline.Progressed)
        and event.job == newest
        and event.fraction is not None
    ]
    return (Mark(at=began, fraction=0), *seen)


def whole_s(events: Lines, job: str) -> float | None:
    """Return how many seconds that job takes from start to end if it keeps its pace. None if unknown."""
    began = [
        at for at, event in events if isinstance(event, timeline.Launched) and event.job == job
    ]
    if not began:
        return None
    marks = [Mark(at=began[0], fraction=0)] + [
        Mark(at=at, fraction=event.fraction)
        for at, event in events
        if isinstance(event, timeline.Progressed)
        and event.job == job
        and event.state not in ENDED
        and event.fraction is not None
    ]
    ends = ends_between(marks)
    return None if ends is None else (ends[1] - began[0]).total_seconds()


def ends_between(course: Sequence[Mark]) -> tuple[datetime, datetime] | None:
    """Return the earliest and the latest end of the job. None if unknown.

    There are two estimates: one from the pace of the whole run, one from the pace of its newer half.
    """
    run = _since_it_fell_back(course)
    if len(run) < 2:
        return None
    last, middle = run[-1], run[0].at + (run[-1].at - run[0].at) / 2
    newer = [mark for mark in run if mark.at <= middle][-1]
    ends = [end for begun in (run[0], newer) if (end := _end(begun, last)) is not None]
    # If the whole run is too short for an estimate, so is its newer half.
    return (min(ends), max(ends)) if _end(run[0], last) is not None else None


def _since_it_fell_back(course: Sequence[Mark]) -> list[Mark]:
    """Return the marks since the fraction last fell: a job that started over is measured from its new start."""
    run: list[Mark] = []
    for mark in course:
        if run and mark.fraction < run[-1].fraction:
            run = []
        run.append(mark)
    return run


def _end(begun: Mark, last: Mark) -> datetime | None:
    took, done = last.at - begun.at, last.fraction - begun.fraction
    if done < _LEAST_FRACTION or took.total_seconds() < _LEAST_S:
        return None
    try:
        return last.at + took * ((1 - min(1.0, last.fraction)) / done)
    except OverflowError:
        return None


def _rate_usd_h(lease: Lease) -> Decimal | None:
    """Return the hourly cost from now on. A box that is booting counts as running, because it soon runs."""
    running = lease.quote.offer.price.running_usd_h if lease.quote else None
    boots = lease.ready_at is None and lease.parked_at is None
    if running is not None and boots and lease.price_usd_h is not None:
        return max(running, lease.price_usd_h)
    return lease.price_usd_h


def _by(
    then: datetime, now: datetime, spent: Decimal | None, rate: Decimal | None
) -> Decimal | None:
    if spent is None or rate is None:
        return None
    seconds = Decimal(str(max(0.0, (then - now).total_seconds())))
    return (spent + rate * seconds / 3600).quantize(USD_STEP)


def _over_budget(lease: Lease, told: Forecast, now: datetime, rate: Decimal | None) -> str | None:
    """Say that the budget will be exceeded, or that it is used up once the charges for bytes are included.

    None if neither is so, as far as is known. None, too, if the job's end is unknown and the budget lasts for a while,
    or if the hourly cost alone has used up the budget: another message says that.
    """
    budget, spent = lease.terms.budget_usd, told.spent_usd
    counted = lease.cost_usd(now)
    if budget is None or spent is None or (counted is not None and counted >= budget):
        return None
    if spent >= budget:
        return f"including the charges for bytes, {spent:.2f} USD are spent: the budget of {budget} USD is used up"
    gone = None
    if rate and told.to_deadline_usd is not None and told.to_deadline_usd > budget:
        gone = now + timedelta(hours=float((budget - spent) / rate))
    if told.to_job_end_usd is not None and told.job_ends_at is not None:
        if told.to_job_end_usd <= budget:
            return None
        needs = (
            f"its job needs about {told.to_job_end_usd:.2f} USD, and runs until "
            f"{told.job_ends_at:%Y-%m-%d %H:%M} UTC, at its present pace"
        )
        if gone is None:
            return f"the budget is {budget} USD: {needs}"
        return f"at {gone:%Y-%m-%d %H:%M} UTC the budget of {budget} USD is used up, and the lease ends: {needs}"
    if gone is None or not is_soon(lease, gone, now, _SOON):
        return None
    return f"the budget of {budget} USD is spent at {gone:%Y-%m-%d %H:%M} UTC, before its deadline"


def is_soon(lease: Lease, at: datetime, now: datetime, most: timedelta) -> bool:
    """Whether that moment is near: at most `most` away, with three quarters of the time from the lease's begin over.

    So there is no warning in the first minute if a budget lasts only for a few minutes: its owner wanted that.
    """
    began = lease.active_at or lease.created_at
    return at - now <= min(most, (at - began) / 4)


def _past_deadline(lease: Lease, told: Forecast, now: datetime) -> str | None:
    earliest, deadline = told.job_ends_at_earliest, lease.terms.deadline_at
    if earliest is None or earliest <= deadline or now >= deadline:
        return None
    return (
        f"its job ends at {earliest:%Y-%m-%d %H:%M} UTC at the earliest, at its present pace, but the lease ends "
        f"at {deadline:%Y-%m-%d %H:%M} UTC: {Command('extend', lease.id, hours='N')}"
    )
