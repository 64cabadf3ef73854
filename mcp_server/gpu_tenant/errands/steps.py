"""Decides, from what is on record, which step of an errand is next."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errand import (
    Agreed,
    EndShown,
    ErrandLine,
    ErrandRequest,
    MoreDeclared,
    Smoked,
    Unprepared,
)
from gpu_tenant.domain.interruption import cut_off_at, recorded_fate
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import Job, Lease, LeaseState
from gpu_tenant.domain.stop_cause import StopCause, stop_cause
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.leases.condition import recorded_end

Step = Literal[
    "smoke",
    "choose",
    "rent",
    "boot",
    "push",
    "prepare",
    "launch",
    "follow",
    "recover",
    "end",
    "show",
    "over",
]
"""The steps, in the order of an errand. At `show` and `over`, nothing has to be done any more."""

WORDS: dict[Step, str] = {
    "smoke": "the command is tried here first",
    "choose": "a box is chosen",
    "rent": "the box is rented, or taken over",
    "boot": "the box boots",
    "push": "the work tree goes to the box",
    "prepare": "packages are installed",
    "launch": "the job is started",
    "follow": "the job runs",
    "recover": "the work goes on elsewhere: its platform takes its box",
    "end": "what it wrote is now collected and proved; only then is the box torn down",
    "show": "it has ended",
    "over": "it has ended",
}

_ABOUT = timedelta(seconds=5)
"""How far apart the clocks may be of the guard on a box, which ends jobs at the deadline, and of this computer."""

MOST_BOXES_TRIED = 3
"""After this many boxes were given back unused, the errand stops looking for another."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger knows of an errand."""

    errand: ErrandRequest
    events: Sequence[ErrandLine] = ()
    leases: Sequence[Lease] = ()
    """Every lease that was made for the errand, oldest first."""
    lease: Lease | None = None
    """The lease under which the work is done now. None if there is none yet."""
    lines: Lines = ()
    """The timeline of that lease."""
    job: Job | None = None
    """The errand's job on that lease. None if it was not declared there."""
    may_recover: bool = False
    """Whether the box was taken, and the work may go on elsewhere, or has begun to."""
    may_relaunch: bool = False
    """Whether the deadline still allows to launch the job again on its own box."""

    is_being_taken: bool = False
    """Whether the box was told that its provider will take it back, and has not been stopped yet."""

    @property
    def smoked(self) -> str | None:
        """The receipt of the smoke test. None if none has passed."""
        return next(
            (x.event.receipt for x in reversed(self.events) if isinstance(x.event, Smoked)), None
        )

    @property
    def tried_tree(self) -> Smoked | None:
        """The smoke test that passed last, if it is on record which files it tried. None if not."""
        tried = [x.event for x in self.events if isinstance(x.event, Smoked)]
        return tried[-1] if tried and tried[-1].tree else None

    @property
    def agreed(self) -> Agreed | None:
        """The last agreement. None if nobody was asked yet."""
        return next((x.event for x in reversed(self.events) if isinstance(x.event, Agreed)), None)

    @property
    def artifacts(self) -> tuple[str, ...]:
        """What must be kept: what was asked for, and what was said since."""
        return self.said_of(self.lease)[0]

    @property
    def discard(self) -> tuple[str, ...]:
        """What may be lost: what was asked for, and what was said since."""
        return self.said_of(self.lease)[1]

    def said_of(self, lease: Lease | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what must be kept of that lease's box, and what may be lost with it. What was said of another does not count."""
        of_it = (None, lease.id if lease is not None else None)
        said = [each for each in self._declared if each.lease in of_it]
        kept = (x for each in said for x in each.artifacts)
        given_up = (x for each in said for x in each.discard)
        return (
            tuple(dict.fromkeys((*self.errand.artifacts, *kept))),
            tuple(dict.fromkeys((*self.errand.discard, *given_up))),
        )

    @property
    def _declared(self) -> list[MoreDeclared]:
        return [x.event for x in self.events if isinstance(x.event, MoreDeclared)]

    @property
    def job_state(self) -> str | None:
        """The last state of the job that is on record. None if it was not launched, or nobody has looked."""
        state: str | None = None
        for _, event in self.lines:
            if self.job is None:
                break
            match event:
                case timeline.Progressed(job=self.job.id) | timeline.JobEnded(job=self.job.id):
                    state = event.state
                case timeline.Launched(job=self.job.id):
                    state = None
                case timeline.Stopped(job=self.job.id):
                    state = state if state in ENDED else "stopped"
                case _:
                    pass
        return state

    @property
    def stopped_for(self) -> StopCause | None:
        """The term of its lease that ended the job. None if it ended by itself, or somebody asked for it."""
        if self.job is None:
            return None
        if self.job_state == "stopped":
            return stop_cause(self.lines, self.job.id)
        ended_at, lease = recorded_end(self.lines), self.lease
        if self.job_state == "killed" and lease is not None and ended_at is not None:
            deadline_at = lease.terms.deadline_at
            if ended_at >= deadline_at - _ABOUT:
                return StopCause("deadline", f"its deadline was {deadline_at:%Y-%m-%d %H:%M} UTC")
        return None

    @property
    def was_cut_off(self) -> bool:
        """Whether the taking of its box ended the job, which is then to be launched again as soon as the box runs."""
        return (
            self.job is not None
            and self.may_relaunch
            and cut_off_at(self.lines, self.job.id) is not None
        )

    @property
    def was_taken(self) -> bool:
        """Whether the lease's box was taken with its job, and is stopped, as far as the record says."""
        if self.lease is None or self.lease.state is not LeaseState.ACTIVE:
            return False
        if self.lease.parked_at is not None:
            return self.was_cut_off
        return recorded_fate(self.lines) is not None

    @property
    def is_launched(self) -> bool:
        """Whether the box has confirmed the start of the job."""
        return self.job is not None and self.job.launched_at is not None

    @property
    def tried(self) -> int:
        """How many boxes were given back before anybody used them."""
        return sum(x.state is LeaseState.GONE and x.touched_at is None for x in self.leases)

    def has(self, *kinds: type[timeline.Told]) -> bool:
        """Whether the lease's timeline has such an event."""
        return any(isinstance(event, kinds) for _, event in self.lines)


def next_step(known: Known) -> Step:
    """Return the step that is next, by what is on record alone."""
    if any(isinstance(line.event, EndShown) for line in known.events):
        return "over"
    lease = known.lease
    if lease is None:
        if known.smoked is None:
            return "smoke"
        agreed = known.agreed
        return "choose" if agreed is None or not (agreed.quotes or agreed.by == "free") else "rent"
    if known.may_recover:
        return "recover"
    match lease.state:
        case LeaseState.GONE | LeaseState.VOID | LeaseState.LOST:
            return "show"
        case LeaseState.TERMINATING:
            return "end"
        case LeaseState.INTENDED:
            return "boot"
        case LeaseState.ACTIVE if lease.ready_at is None:
            return "boot"
        case LeaseState.ACTIVE if known.was_cut_off:
            return "follow" if known.was_taken or known.is_being_taken else "launch"
        case LeaseState.ACTIVE if known.job_state in ENDED:
            return "end"
        case LeaseState.ACTIVE if known.is_launched:
            return "follow"
        case LeaseState.ACTIVE if not known.has(timeline.Pushed):
            return "push"
        case LeaseState.ACTIVE if _must_prepare(known):
            return "prepare"
        case LeaseState.ACTIVE:
            return "launch"


def _must_prepare(known: Known) -> bool:
    """Whether packages are still to be installed, as far as the record says."""
    if any(isinstance(line.event, Unprepared) for line in known.events):
        return False
    made = [event for _, event in known.lines if isinstance(event, timeline.Prepared)]
    return not made or made[-1].state != "ready"
