"""Decides which step of an errand is next, from what the ledger has recorded."""

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
    Gated,
    MoreDeclared,
    Smoked,
    Unprepared,
)
from gpu_tenant.domain.interruption import cut_off_at, recorded_fate
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.last_start import ends_at
from gpu_tenant.domain.model import Job, Lease, LeaseState
from gpu_tenant.domain.stop_cause import StopCause
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.timeline import Lines

Step = Literal[
    "smoke",
    "choose",
    "rent",
    "boot",
    "push",
    "prepare",
    "gate",
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
    "gate": "the smoke test's command is tried on its GPU",
    "launch": "the job is started",
    "follow": "the job runs",
    "recover": "the work goes on elsewhere: its platform takes its box",
    "end": "its files are collected and proved; only then is its box torn down",
    "show": "it has ended",
    "over": "it has ended",
}

_ABOUT = timedelta(seconds=5)
"""The clocks of a box and of this computer may differ by this much. The guard on the box ends jobs at the deadline."""

MOST_BOXES_TRIED = 3
"""When this many boxes have been given back unused, the errand looks for no other."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger has recorded about an errand."""

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
    """Whether the provider took the box, and the work may continue on another box, or already does."""
    may_relaunch: bool = False
    """Whether the deadline is still ahead, so that the job may be launched again on its own box."""

    is_being_taken: bool = False
    """Whether the provider has announced that it takes the box back, and has not stopped the box yet."""

    @property
    def smoked(self) -> str | None:
        """The id of the newest smoke test that passed. None if none has passed."""
        return next(
            (x.event.receipt for x in reversed(self.events) if isinstance(x.event, Smoked)), None
        )

    @property
    def tried_tree(self) -> Smoked | None:
        """The newest smoke test that passed, if its files are on record. Otherwise None."""
        tried = [x.event for x in self.events if isinstance(x.event, Smoked)]
        return tried[-1] if tried and tried[-1].tree else None

    @property
    def agreed(self) -> Agreed | None:
        """The last agreement to rent. None if there is none yet."""
        return next((x.event for x in reversed(self.events) if isinstance(x.event, Agreed)), None)

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The patterns of files that must be kept: those of the request, and those declared later."""
        return self.said_of(self.lease)[0]

    @property
    def discard(self) -> tuple[str, ...]:
        """The patterns of files that may be lost: those of the request, and those declared later."""
        return self.said_of(self.lease)[1]

    def said_of(self, lease: Lease | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the patterns of files that must be kept of that lease's box, and of those that may be lost.

        What was declared for another lease only does not count.
        """
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
        """The last recorded state of the job. None if it was not launched, or if its state was never checked."""
        return None if self.job is None else story_of(self.lines).job(self.job.id).state

    @property
    def stopped_for(self) -> StopCause | None:
        """The term of the lease that ended the job. None if the job ended by itself, or was stopped on request."""
        if self.job is None:
            return None
        if self.job_state == "stopped":
            return story_of(self.lines).job(self.job.id).stop_cause
        ended_at, lease = story_of(self.lines).job(self.job.id).ended_at, self.lease
        if self.job_state == "killed" and lease is not None and ended_at is not None:
            deadline_at, armed = lease.terms.deadline_at, story_of(self.lines).guard.last
            if ended_at >= deadline_at - _ABOUT:
                return StopCause("deadline", f"its deadline was {deadline_at:%Y-%m-%d %H:%M} UTC")
            until = ends_at(lease, self.lines)
            if armed is not None and armed.until is not None:
                until = min(until, armed.until)
            if ended_at >= until - _ABOUT:
                return StopCause(
                    "budget", f"from {until:%Y-%m-%d %H:%M} UTC it paid only for the end"
                )
        return None

    @property
    def was_cut_off(self) -> bool:
        """Whether the job ended because the provider took its box. It is launched again as soon as the box runs."""
        return (
            self.job is not None
            and self.may_relaunch
            and cut_off_at(self.lines, self.job.id) is not None
        )

    @property
    def was_taken(self) -> bool:
        """Whether the provider took the lease's box while the job ran, and the box is stopped, as far as we know."""
        if self.lease is None or self.lease.state is not LeaseState.ACTIVE:
            return False
        if self.lease.parked_at is not None:
            return self.was_cut_off
        return recorded_fate(self.lines) is not None

    @property
    def was_declined(self) -> bool:
        """Whether a person has declined the plan."""
        ends = [line.event for line in self.events if isinstance(line.event, EndShown)]
        return any(end.outcome == "declined" for end in ends)

    @property
    def is_launched(self) -> bool:
        """Whether the box has confirmed the start of the job."""
        return self.job is not None and self.job.launched_at is not None

    @property
    def tried(self) -> int:
        """How many boxes were given back unused."""
        return sum(x.state is LeaseState.GONE and x.touched_at is None for x in self.leases)

    def has(self, *kinds: type[timeline.Told]) -> bool:
        """Whether the lease's timeline has an event of one of these kinds."""
        return any(isinstance(event, kinds) for _, event in self.lines)


def next_step(known: Known) -> Step:
    """Return the next step. This uses only what is recorded, and asks neither a box nor a provider."""
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
        case LeaseState.ACTIVE if _must_gate(known, lease):
            return "gate"
        case LeaseState.ACTIVE:
            return "launch"


def _must_prepare(known: Known) -> bool:
    """Whether packages still have to be installed, by the ledger's record."""
    if any(isinstance(line.event, Unprepared) for line in known.events):
        return False
    made = [event for _, event in known.lines if isinstance(event, timeline.Prepared)]
    return not made or made[-1].state != "ready"


def _must_gate(known: Known, lease: Lease) -> bool:
    """Whether the smoke test's command still has to be tried on the box, by the ledger's record."""
    tried = (line.event.lease for line in known.events if isinstance(line.event, Gated))
    return known.errand.gate_s > 0 and lease.id not in tried
