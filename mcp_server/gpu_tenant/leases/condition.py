"""The condition of a lease, in one word and one colour.

It follows from its box, its job, what bills, and whether the box answers.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from gpu_tenant.domain import timeline
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import Job
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.timeline import Lines

TAKEN = "stopped by its provider"
STANDS_STILL = ("parked", TAKEN)

SOON_S = 900
"""A lease that ends sooner than this needs attention."""

Bills = Literal["box", "disk", "nobody", "no more", "unknown"]
"""What bills: the box, the disk of a stopped box, nobody, nothing any more, or that is unknown."""
Tone = Literal["good", "accent", "wait", "still", "soft", "warn", "bad"]
Group = Literal["attention", "running", "idle", "starting", "ending", "still", "over"]

_TONES: dict[str, Tone] = {
    "waiting": "wait",
    "intended": "wait",
    "booting": "wait",
    "ready": "good",
    "parked": "still",
    TAKEN: "warn",
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
    "terminating": "ending",
    "gone": "over",
    "void": "over",
    "lost": "over",
}


class Condition(Record):
    """The condition of a lease, which every face shows first."""

    word: str = Field(description="its phase; while the box is ready, how its last job ended")
    tone: Tone
    group: Group
    is_wasted: bool = Field(description="the box bills, and no job runs on it any more")


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

    `job` is the state of its newest job. `blind` is why its box does not answer.
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
        # If a box does not answer, what was last seen of it may no longer be true.
        tone = "warn"
    if alarm or blind or wasted or near:
        group = "attention"
    return Condition(word=word, tone=tone, group=group, is_wasted=wasted)


def recorded_jobs(jobs: Iterable[Job], events: Lines) -> tuple[str | None, int]:
    """Return the last recorded state of the newest job, and how many other jobs have no recorded end."""
    states: dict[str, str | None] = {job.id: None for job in jobs if job.launched_at is not None}
    for _, event in events:
        if isinstance(event, timeline.Launched) and event.job is not None:
            states.pop(event.job, None)
            states[event.job] = None  # it is the newest now, even if it was launched before
        elif isinstance(event, timeline.Progressed | timeline.JobEnded) and event.job in states:
            states[event.job] = event.state
        elif isinstance(event, timeline.Stopped) and event.job in states:
            states[event.job] = states[event.job] if states[event.job] in ENDED else "stopped"
    if not states:
        return None, 0
    newest = next(reversed(states))
    return states[newest], sum(
        state not in ENDED for name, state in states.items() if name != newest
    )
