"""Makes random timelines of a lease that can really happen, from a small world of a box, its jobs and who looks.

The world decides what is true: which jobs run, how one has ended, whether the provider stopped the box. Lines are
written only by somebody who looks, as the program writes them: late, twice, or never.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from arranged import NOON

from gpu_tenant.domain import timeline
from gpu_tenant.domain.job_state import ENDED, JobState
from gpu_tenant.domain.model import Fate
from gpu_tenant.domain.timeline import Line

FATES: Sequence[Fate] = (
    "preempted",
    "outbid",
    "host_lost",
    "balance_zero",
    "walltime",
    "stopped_by_provider",
)
_WAITS_S = (1, 5, 30, 60, 300, 900, 3600)


@dataclass
class TrueJob:
    """What is true of one job, whoever knows it."""

    name: str
    state: JobState = "running"
    ended_at: datetime | None = None
    by_its_box: bool = False
    """Whether it ended because the box was stopped, or was about to be."""
    asked: bool = False

    @property
    def runs(self) -> bool:
        return self.state == "running"


@dataclass
class World:
    """One box with its jobs, and the timeline that those who look have written so far."""

    random: Random
    now: datetime = NOON
    lines: list[Line] = field(default_factory=list)
    jobs: list[TrueJob] = field(default_factory=list)
    fate: Fate | None = None
    """How the provider stopped the box. None: it runs, or we parked it."""
    parked: bool = False
    told: Fate | None = None
    notice: bool = False

    @property
    def runs(self) -> bool:
        return self.fate is None and not self.parked

    def step(self) -> None:
        self.now += timedelta(seconds=self.random.choice(_WAITS_S))
        self.random.choice(self._possible())()

    def _possible(self) -> list[Callable[[], object]]:
        if self.parked:
            return [self._resume]
        look = [self._look_at_provider]
        if not self.runs:
            return [*look, *look, self._comes_back, self._resume_taken]
        live = [job for job in self.jobs if job.runs]
        can: list[Callable[[], object]] = [*look, self._launch, self._watchdog, self._taken]
        if live:
            can += [self._ends, self._ends, self._monitor, self._stop, self._notice]
        elif self.jobs:
            can += [self._monitor, self._collect, self._collect, self._park]
        return can

    def _note(self, event: timeline.Event) -> None:
        self.lines.append(Line(self.now, event))

    # --- what happens

    def _launch(self) -> None:
        if self.notice or self.told is not None or len(self.jobs) >= 4:
            return
        dead = [job for job in self.jobs if job.by_its_box]
        again = self.random.choice(dead).name.split("-")[0] if dead else ""
        count = sum(job.name.split("-")[0] == again for job in self.jobs) + 1
        name = (
            f"{again}-{count}" if again and self.random.random() < 0.7 else f"job{len(self.jobs)}"
        )
        self.jobs.append(TrueJob(name))
        self._note(timeline.Launched(job=name, command=f"python3 {name.split('-')[0]}.py"))

    def _ends(self) -> None:
        job = self.random.choice([job for job in self.jobs if job.runs])
        job.state = self.random.choice(("finished", "failed", "killed"))
        job.ended_at = self.now
        job.by_its_box = job.asked

    def _notice(self) -> None:
        live = [job for job in self.jobs if job.runs]
        self.notice = True
        for job in live:
            job.asked = True
        heard = timeline.Forewarned(
            source="metadata", at=self.now, jobs=tuple(job.name for job in live)
        )
        if self.random.random() < 0.8:
            self._note(heard)
        for job in live:
            if self.random.random() < 0.7:
                # A job that was asked to save and then ends counts as killed, whatever its status.
                job.state, job.ended_at, job.by_its_box = "killed", self.now, True

    def _taken(self) -> None:
        self.fate, self.notice = self.random.choice(FATES), False
        for job in self.jobs:
            if job.runs:
                job.state, job.ended_at, job.by_its_box = "killed", self.now, True

    def _comes_back(self) -> None:
        self.fate = None

    def _resume_taken(self) -> None:
        if self.told is not None:
            self.fate = self.told = None
            self._note(timeline.Resuming())
            self._note(timeline.Resumed())

    def _park(self) -> None:
        if self.told is None:
            self.parked = True
            if self.random.random() < 0.3:
                term = self.random.choice(("deadline", "budget", "idle"))
                self._note(timeline.StoppedByGuard(term=term, words=f"its {term}"))
            else:
                self._note(timeline.Parking())
            self._note(timeline.Parked())

    def _resume(self) -> None:
        self.parked = False
        self._note(timeline.Resuming())
        self._note(timeline.Resumed())

    def _stop(self) -> None:
        job = self.random.choice([job for job in self.jobs if job.runs])
        job.state, job.ended_at = "stopped", self.now
        self._note(timeline.Stopped(job=job.name))

    # --- who looks

    def _look_at_provider(self) -> None:
        if self.told != self.fate:
            self.told = self.fate
            words = None if self.fate is None else "its provider says so"
            self._note(timeline.Taken(fate=self.fate, words=words))

    def _monitor(self) -> None:
        self._see(self.random.choice(self.jobs))

    def _see(self, job: TrueJob) -> None:
        if job.runs:
            if self.random.random() < 0.5:
                self._note(timeline.Progressed(job=job.name, state="running", fraction=0.5))
        elif not self._has(timeline.Progressed, job):
            self._note(timeline.Progressed(job=job.name, state=job.state))

    def _watchdog(self) -> None:
        for job in self.jobs:
            if job.runs or self._has(timeline.JobEnded, job):
                continue
            told = timeline.JobEnded(job=job.name, state=job.state)
            got_far = self.random.random()
            if got_far > 0.3 and job.ended_at is not None:
                told = told.model_copy(update={"ago_s": (self.now - job.ended_at).total_seconds()})
            if got_far > 0.6:
                self._see(job)
            self._note(told)

    def _collect(self) -> None:
        self._note(timeline.Sealed(digest="d", files=1))
        self._note(timeline.Collected(seal="d"))
        if self.random.random() < 0.6:
            for job in self.jobs:
                self._see(job)

    def _has(self, kind: type[timeline.Progressed] | type[timeline.JobEnded], job: TrueJob) -> bool:
        return any(
            isinstance(event, kind) and event.job == job.name and event.state in ENDED
            for _, event in self.lines
        )


def possible(seed: int, *, steps: int = 14) -> World:
    """Return a world after that many random steps, or fewer, always the same for the same seed."""
    random = Random(seed)
    world = World(random)
    world.lines.append(Line(world.now, timeline.Ready()))
    for _ in range(random.randint(2, steps)):
        world.step()
    return world
