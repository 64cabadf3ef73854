"""Determines the condition of a lease, as one word and one colour.

It depends on the box, the job, what bills, and whether the box answers.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from pydantic import Field

from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import Job, JobId, LeaseId
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.ledger import Ledger

TAKEN = "stopped by its provider"
STOPPED = "stopped"
"""The box was stopped, and its list does not show by whom: its provider, its guard, or a person at the console."""
HOST_LOST = "lost with its host"
"""The provider says that the box's host is gone. It does not say whether the box still bills."""
STANDS_STILL = ("parked", TAKEN, STOPPED)

SOON_S = 900
"""A lease that ends sooner than this needs attention."""

Bills = Literal["box", "disk", "nobody", "no more", "unknown"]
"""What is billed.

`disk`: only the disk of a stopped box. `nobody`: nobody charges for the box. `no more`: the box has ended.
"""
Tone = Literal["good", "accent", "wait", "still", "soft", "warn", "bad"]
Group = Literal["attention", "running", "idle", "starting", "ending", "still", "free", "over"]
"""`attention`: a person has to do something. `free`: nobody charges for the box."""
Matter = Literal["job over", "taken", "silent", "alarm", "ends soon"]
"""Why a person is needed.

`job over`: the box still bills, but no job runs on it. `taken`: the box was stopped unasked, or its host is lost.
`silent`: the box does not answer. `ends soon`: its deadline is near.
"""

_TONES: dict[str, Tone] = {
    "waiting": "wait",
    "intended": "wait",
    "booting": "wait",
    "ready": "good",
    "parked": "still",
    TAKEN: "warn",
    STOPPED: "warn",
    HOST_LOST: "bad",
    "terminating": "wait",
    "gone": "soft",
    "void": "soft",
    "lost": "bad",
    "job finished": "accent",
    "job failed": "bad",
    "job killed": "bad",
    "job stopped": "still",
}
_GROUPS: dict[str, Group] = {
    "waiting": "starting",
    "intended": "starting",
    "booting": "starting",
    "ready": "running",
    "parked": "still",
    TAKEN: "attention",
    STOPPED: "attention",
    HOST_LOST: "attention",
    "terminating": "ending",
    "gone": "over",
    "void": "over",
    "lost": "over",
}


class ToDo(Record):
    """Why a lease needs a person, since when, and what it has cost since. The card's next step is what to do."""

    matter: Matter
    since_s: float | None = Field(default=None, description="None: unknown since when")
    since_usd: Usd = Field(default=None, description="what it has cost since then")


class Condition(Record):
    """The condition of a lease, which every face shows first."""

    word: str = Field(description="its phase; while the box is ready, how its last job ended")
    tone: Tone
    group: Group
    is_wasted: bool = Field(description="the box bills, and no job runs on it any more")
    to_do: ToDo | None = Field(default=None, description="None: no person is needed")


def condition_of(
    phase: str,
    bills: Bills,
    *,
    alarm: str | None,
    left_s: float | None,
    job: str | None,
    others_running: int = 0,
    blind: str | None = None,
) -> Condition:
    """Return the condition of a lease in that phase.

    `job` is the state of its newest job. `blind` says why its box does not answer; None if it answers.
    """
    over = phase == "ready" and job in ENDED
    word = f"job {job}" if over else phase
    tone = _TONES.get(word, "soft")
    wasted = over and others_running == 0 and bills in ("box", "unknown")
    group: Group = "idle" if over else _GROUPS.get(phase, "running")
    if group == "over":
        return Condition(word=word, tone=tone, group=group, is_wasted=False)
    near = left_s is not None and left_s < SOON_S and phase in ("booting", "ready")
    if alarm:
        tone = "bad"
    elif blind or (wasted and tone != "bad"):
        # If a box does not answer, its last known state may no longer be true.
        tone = "warn"
    matter = _matter(
        phase, is_alarm=bool(alarm), is_blind=bool(blind), is_wasted=wasted, is_near=near
    )
    if matter is not None:
        group = "attention"
    elif bills == "nobody" and group in ("running", "idle", "still"):
        group = "free"
    return Condition(word=word, tone=tone, group=group, is_wasted=wasted, to_do=matter)


def _matter(
    phase: str, *, is_alarm: bool, is_blind: bool, is_wasted: bool, is_near: bool
) -> ToDo | None:
    """Return why a person is needed, the most expensive reason first. None if nobody is needed."""
    reasons: tuple[tuple[Matter, bool], ...] = (
        ("silent", is_blind),
        ("job over", is_wasted),
        ("taken", phase in (TAKEN, STOPPED, HOST_LOST)),
        ("alarm", is_alarm),
        ("ends soon", is_near),
    )
    return next((ToDo(matter=matter) for matter, holds in reasons if holds), None)


def recorded_jobs(jobs: Iterable[Job], events: Lines) -> tuple[str | None, int]:
    """Return the last recorded state of the newest job, and how many other jobs have no recorded end."""
    story = story_of(events)
    in_order = {job.id: job for job in story.jobs if job.launched_at and not job.is_cell}
    # Older ledgers have no line for a launch, and cells of a sweep have one together.
    launched = [story.job(job.id) for job in jobs if job.launched_at and job.id not in in_order]
    launched += in_order.values()
    if not launched:
        return None, 0
    *others, newest = launched
    return newest.state, sum(not job.has_ended for job in others)


def open_jobs(ledger: Ledger, lease_id: LeaseId) -> list[JobId]:
    """Return the jobs that may still run on the lease's box: they were launched, and their end is not on record."""
    story, over = story_of(ledger.events(lease_id)), ledger.ended_cells(lease_id)
    return [
        job.id
        for job in ledger.jobs(lease_id)
        if job.launched_at is not None and not story.job(job.id).has_ended and job.id not in over
    ]


def recorded_end(events: Lines) -> datetime | None:
    """Return when the job that was launched last has ended. None if its end is not recorded."""
    newest = story_of(events).newest_job
    return None if newest is None else newest.ended_at
