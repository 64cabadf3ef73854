"""Folds the timeline of a lease once into one value, from which every reader takes what it needs.

No other code goes through a timeline to find out how a job ended, whether the box was taken, or what is unfinished.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal, NamedTuple, assert_never, get_args

from gpu_tenant.domain import timeline
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import Fate
from gpu_tenant.domain.stop_cause import StopCause, Term
from gpu_tenant.domain.timeline import Line, Lines

KillingFate = Literal["preempted", "outbid", "host_lost", "balance_zero", "walltime"]
"""The fates that explain why a job on the box ended. Any other stop of the box explains nothing, because
anybody may have requested it."""
_KILLS: frozenset[str] = frozenset(get_args(KillingFate))

SAID_WITHIN = timedelta(minutes=10)
"""A job that was killed at most this long before its provider took the box counts as killed together with the box."""

PUSH_HOLDS_S = 300
"""After a push, or an installation of packages, the lease does not count as done for this many seconds.

After these, a launch will probably follow soon.
"""

_CHANGES_NO_DISK = (
    timeline.Ending
    | timeline.Refused
    | timeline.NewTerms
    | timeline.Claimed
    | timeline.Labelled
    | timeline.Tested
    | timeline.Priced
    | timeline.Billed
    | timeline.Noticed
    | timeline.StoppedByGuard
    | timeline.Reread
    | timeline.Stored
    | timeline.AwaitsWork
    | timeline.Waived
    | timeline.WaivedAhead
    | timeline.Permitted
    | timeline.Destroyed
    | timeline.ClockOffset
    | timeline.Unseen
)
"""Events that put nothing new on the disk of a stopped box. After any other event, the box has to be read again."""

_TAKES_IT = (
    timeline.Taken
    | timeline.Forewarned
    | timeline.Recovered
    | timeline.Progressed
    | timeline.JobEnded
)
"""Events that are recorded while a platform takes a box back. They put nothing new on its disk either."""

_TRY_AGAIN = (
    timeline.Launched
    | timeline.JobEnded
    | timeline.Lingers
    | timeline.Pushed
    | timeline.SetUp
    | timeline.Prepared
    | timeline.Claimed
    | timeline.Accepted
    | timeline.Collected
    | timeline.NewTerms
    | timeline.Resumed
    | timeline.AwaitsWork
)
"""After one of these events, the watchdog tries again to end a lease whose end was refused."""

_COUNTED = re.compile(r"(?P<first>.+)-[0-9]+")


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job that has ended, as recorded in its lease's timeline."""

    job: str
    state: str
    at: datetime
    """When the job ended, by this computer's clock."""
    why: str | None = None


class CutOff(NamedTuple):
    """A job ended because its box was stopped, or because it was asked to save before that."""

    at: datetime
    """When the stop, or the notice of it, was recorded."""
    fate: Fate | None
    """How the box was taken. None: the job had notice, and the stop itself is not recorded yet."""


@dataclass(frozen=True, slots=True)
class JobStory:
    """What is on record of one job, since it was last launched."""

    id: str
    launched_at: datetime | None = None
    """When it was last launched. None if no line says so."""
    is_cell: bool = False
    """Whether it was launched as a cell of a sweep, whose table says how it ended."""
    state: str | None = None
    """The last recorded state. An end stays, whatever an older look says later. None if its state was never seen."""
    ended_at: datetime | None = None
    """When it ended, as exactly as is known. None if no line says that it ended."""
    is_sealed: bool = False
    """Whether the box was sealed since, while no end was on record. A seal shows that no job runs."""
    cut_off: CutOff | None = None
    """How its box ended it. None if it ended otherwise, or may still run."""
    met: tuple[datetime, KillingFate] | None = None
    """What took its box while it ran, as far as is known, and when that was noticed. Its end need not be on record."""
    stop_cause: StopCause | None = None
    """The term of the lease that it was stopped for. None if somebody asked for the stop, or if it was not stopped."""
    lingers_since: datetime | None = None
    is_superseded: bool = False
    """Whether it was cut off, and was launched again since under another name, or something else was launched."""
    killed_at: datetime | None = None
    """When it was killed, if its box may have done that: nobody stopped it, and no seal came before."""

    @property
    def has_ended(self) -> bool:
        """Whether it is on record that the job runs no more. If this is False, it may still run."""
        return self.state in ENDED or self.is_sealed

    @property
    def may_run(self) -> bool:
        """Whether the job was launched, and nothing on record says that it has ended."""
        return self.launched_at is not None and not self.has_ended

    @property
    def is_unfinished(self) -> bool:
        """Whether its work is left to be done: it may still run, or it was cut off and not launched again."""
        return self.may_run or (self.cut_off is not None and not self.is_superseded)

    def died_with(self, taken_at: datetime) -> bool:
        """Whether the job was killed so shortly before its box was lost that both are one event."""
        return self.killed_at is not None and taken_at - self.killed_at <= SAID_WITHIN


@dataclass(frozen=True, slots=True)
class BoxStory:
    """What is on record of the box."""

    fate: Fate | None = None
    """How the provider took it. None if it did not, or if the box has come back, or was parked, since."""
    fate_words: str | None = None
    taken_since: datetime | None = None
    """When the present fate was first recorded. None if there is none."""
    last_taken_at: datetime | None = None
    """When a fate was last recorded, also if the box has come back since."""
    last_fate: Fate | None = None
    last_words: str | None = None
    """What was last said of a fate, also if the box has come back since."""
    back_at: datetime | None = None
    """When the box was last seen to run after a stop, or to have become ready."""
    notice: timeline.Forewarned | None = None
    """The notice that it will be taken. None if there was none, or if it no longer counts."""
    start_asked_at: datetime | None = None
    """When its provider was last asked to start it after a stop. None if it never was."""
    is_kept_at_will: bool = False
    """Whether somebody, or what the owner agreed for finished work, stopped it: neither a limit nor its provider did."""
    was_refused: bool = False
    """Whether a teardown was refused while it last ran, and nothing was given up since."""


class Kept(NamedTuple):
    """Why a box was parked and is kept."""

    ending: str
    """The term of the lease because of which it was parked, in words. Empty if a person or an agent parked it."""
    lost: str
    """What a teardown would have lost. Empty if no teardown was refused."""


_NOT_KEPT = Kept("", "")


@dataclass(frozen=True, slots=True)
class Tries:
    """The attempts to end a lease whose work is done, since the last event that could change their result."""

    refused: str | None
    """Why the end was refused. None if it was not refused, or if such an event has come since."""
    failed: tuple[datetime, ...]
    """The times of the attempts that failed for a reason that may pass."""
    words: str = ""


class GuardStop(NamedTuple):
    """When the guard on the box stopped it, as far as is known, and for which term."""

    at: datetime
    term: Literal["deadline", "budget", "idle"]


@dataclass(frozen=True, slots=True)
class GuardStory:
    """What is on record of the guard on the box. It is a process, so it ends when the box is stopped."""

    was_armed: bool = False
    """Whether its state was ever recorded."""
    now: timeline.Guarded | None = None
    """Its present state. None if nothing is recorded since the box was last started, stopped or taken."""
    last: timeline.Guarded | None = None
    """Its last state since we started the box, even if the box was stopped or taken after that."""
    stopped: GuardStop | None = None
    """When it stopped the box, under the terms that are in force now. None if it did not."""


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that readers take from the timeline of one lease."""

    jobs: tuple[JobStory, ...] = ()
    """In the order in which they were last launched."""
    newest: str | None = None
    """The job that was launched last, cells of sweeps aside. None if none was."""
    launched_at: datetime | None = None
    """When anything was last launched. None if nothing was."""
    ends: tuple[JobEnd, ...] = ()
    """The ends of jobs as a watchdog noticed them, in that order."""
    setups: tuple[str, ...] = ()
    """The jobs that set the box up, oldest first."""
    environments: tuple[str, ...] = ()
    """The jobs that make an environment on the box, oldest first."""
    box: BoxStory = BoxStory()
    moved: timeline.Recovered | None = None
    """The event by which the work went on under another lease. None if it did not."""
    kept: Kept = _NOT_KEPT
    """Why the box, if it is parked, is kept."""
    read_at_stop: timeline.ReadAtStop | None = None
    """What was read right before the stop. None if a recorded event may have changed the box since."""
    read_in_notice: tuple[datetime, timeline.ReadInNotice] | None = None
    """When the box was last read during a notice, and what was read. None if something may be new on it since."""
    permitted: timeline.Permitted | None = None
    """The newest permit as *verified* or *never used*. None if more than the box's stop has come since."""
    held_until: datetime | None = None
    """Until when the lease is held for more work. None if it is not held."""
    tries: Tries = Tries(None, ())
    attempts: tuple[datetime, ...] = ()
    """When it was tried to end the lease, since the last event that made earlier attempts irrelevant."""
    endings: tuple[datetime, ...] = ()
    """Every time when it was tried to end the lease."""
    ended_for: str | None = None
    """Which of its terms ended the lease, in words. None if a person or an agent ended it, or nobody did."""
    refusal: timeline.Refused | None = None
    """The last refusal of a teardown."""
    guard: GuardStory = GuardStory()
    billed: timeline.Billed | None = None
    """The last bill with a sum."""
    labelled: timeline.Labelled | None = None
    """The labels that somebody last gave the lease. None if nobody did."""
    directory: str | None = None
    """The directory that was pushed last. None if none was."""

    def job(self, name: str) -> JobStory:
        """Return what is on record of that job. If nothing is, nothing is known of it."""
        return next((job for job in self.jobs if job.id == name), JobStory(name))

    @property
    def newest_job(self) -> JobStory | None:
        """The job that was launched last, cells of sweeps aside."""
        return None if self.newest is None else self.job(self.newest)

    @property
    def cut_off_job(self) -> JobStory | None:
        """The newest job if it ended because its box was stopped. None if not, or if its work went on elsewhere."""
        newest = self.newest_job
        if newest is None or self.moved is not None:
            return None
        return newest if newest.cut_off is not None and newest.cut_off.fate != "walltime" else None

    @property
    def died_unseen(self) -> KillingFate | None:
        """How the box was taken while its newest job ran, if the box is back. The job's end need not be on record."""
        newest = self.newest_job
        if newest is None or newest.met is None or self.box.fate is not None:
            return None
        return newest.met[1]

    def unfinished(self, *, lost_at: datetime | None = None) -> tuple[str, ...]:
        """Return the jobs whose work is left to be done, in the order in which they were launched.

        Jobs that make an environment, and cells of sweeps, are left out: they are done again elsewhere in this
        program. `lost_at` is when the provider's list first omitted the box, if the box is lost.
        """
        return tuple(
            job.id
            for job in self.jobs
            if job.id not in self.environments
            and not job.is_cell
            and (job.is_unfinished or (lost_at is not None and job.died_with(lost_at)))
        )


@dataclass(slots=True)
class _Job:
    """A job while its timeline is folded."""

    id: str
    launched_at: datetime | None = None
    is_cell: bool = False
    state: str | None = None
    ended: int | None = None
    """The number of the line that first said that it has ended."""
    ended_at: datetime | None = None
    runs: bool = False
    """Whether it may still run, as far as the lines so far say."""
    is_stopped: bool = False
    is_sealed: bool = False
    killed_at: datetime | None = None
    asked: tuple[int, datetime] | None = None
    """The line, and the time, at which it was asked to save."""
    stops: list[tuple[int, datetime, Fate]] = field(default_factory=list)
    """Every fate that was recorded while it ran, or shortly after it was killed."""
    hits: list[tuple[datetime, KillingFate]] = field(default_factory=list)
    """The fates among them that were recorded before any end was."""
    ending: StopCause | None = None
    stopped_for: StopCause | Literal["asked", "unknown"] = "unknown"
    lingers_since: datetime | None = None

    def see(self, number: int, at: datetime, state: str | None) -> None:
        if state == "running":
            self.stops, self.hits = [], []
        if state not in ENDED:
            if self.state not in ENDED:
                self.state = state
            return
        self.state = state
        if state == "killed" and self.runs:
            self.killed_at = at
        elif state == "killed" and self.killed_at is not None:
            self.killed_at = min(self.killed_at, at)
        self.ended = number if self.ended is None else self.ended
        self.ended_at = at if self.ended_at is None else min(self.ended_at, at)
        self.runs = False

    def stop(self, at: datetime, cause: StopCause | None) -> None:
        if self.state not in ENDED:
            self.state = "stopped"
        self.ended_at = self.ended_at or at
        self.runs, self.is_stopped, self.asked, self.killed_at, self.stops = (
            False,
            True,
            None,
            None,
            [],
        )
        self.stopped_for = cause or self.ending or "asked"

    def take(self, number: int, at: datetime, fate: Fate) -> None:
        shortly_before = self.killed_at is not None and at - self.killed_at <= SAID_WITHIN
        if self.runs or self.asked is not None or shortly_before:
            self.stops.append((number, at, fate))
        if self.runs and fate in _KILLS:
            self.hits.append((at, _killing(fate)))

    @property
    def cut_off(self) -> tuple[int, CutOff] | None:
        """How its box ended it, and the number of the first line that says that it ended so."""
        has_ended = self.state in ENDED or self.is_sealed
        if not has_ended or self.state == "finished" or self.is_stopped:
            return None
        stops = [
            (number, CutOff(at, fate))
            for number, at, fate in self.stops
            # If it is known when the job was killed, it may have been long before.
            if self.ended_at is None or at - self.ended_at <= SAID_WITHIN
        ]
        # The end of a rental is a term of the lease: any other stop explains the end better.
        stops.sort(key=lambda stop: stop[1].fate == "walltime")
        if self.asked is not None:
            number, at = self.asked
            told = next((cut_off for _, cut_off in stops if cut_off.fate != "walltime"), None)
            return number, told or CutOff(at, None)
        if not stops or self.state != "killed":
            return None
        number, cut_off = stops[0]
        return number if self.ended is None else min(number, self.ended), cut_off

    @property
    def met(self) -> tuple[datetime, KillingFate] | None:
        """What took its box while it ran."""
        if self.state == "finished":
            return None
        late = self.ended_at
        return next(
            (hit for hit in self.hits if late is None or hit[0] - late <= SAID_WITHIN), None
        )


@dataclass(slots=True)
class _Fold:
    """The timeline as far as it has been folded."""

    jobs: dict[str, _Job] = field(default_factory=dict)
    launches: list[tuple[int, str]] = field(default_factory=list)
    newest: str | None = None
    launched_at: datetime | None = None
    ends: list[JobEnd] = field(default_factory=list)
    setups: dict[str, None] = field(default_factory=dict)
    environments: dict[str, None] = field(default_factory=dict)
    fate: Fate | None = None
    fate_words: str | None = None
    taken_since: datetime | None = None
    last_taken: tuple[datetime, Fate] | None = None
    last_words: str | None = None
    back_at: datetime | None = None
    notice: timeline.Forewarned | None = None
    moved: timeline.Recovered | None = None
    parked_for: str = ""
    kept_for: timeline.Refused | None = None
    is_parked: bool = False
    start_asked_at: datetime | None = None
    is_kept_at_will: bool = False
    was_refused: bool = False
    read_at_stop: timeline.ReadAtStop | None = None
    read_in_notice: tuple[datetime, timeline.ReadInNotice] | None = None
    permitted: timeline.Permitted | None = None
    said: datetime | None = None
    held: datetime | None = None
    tries: Tries = Tries(None, ())
    is_tried: bool = False
    attempts: list[datetime] = field(default_factory=list)
    endings: list[datetime] = field(default_factory=list)
    ending: StopCause | None = None
    ended_for: str | None = None
    refusal: timeline.Refused | None = None
    was_armed: bool = False
    guard: timeline.Guarded | None = None
    last_guard: timeline.Guarded | None = None
    guard_stop: GuardStop | None = None
    billed: timeline.Billed | None = None
    labelled: timeline.Labelled | None = None
    directory: str | None = None

    def job(self, name: str) -> _Job:
        return self.jobs.setdefault(name, _Job(name, ending=self.ending))

    def add(self, number: int, at: datetime, event: timeline.Event) -> None:
        """Take in the next line."""
        self._what_was_read(at, event)
        self._what_was_tried(at, event)
        match event:
            case timeline.Launched():
                self._launched(number, at, event)
            case timeline.Progressed():
                self.job(event.job).see(number, at, event.state)
            case timeline.JobEnded():
                ended_at = at - timedelta(seconds=max(0.0, event.ago_s or 0.0))
                self.job(event.job).see(number, ended_at, event.state)
                self.ends.append(JobEnd(event.job, str(event.state), ended_at, event.why))
            case timeline.Stopped():
                self.job(event.job).stop(at, _cause(event.term, event.words))
            case timeline.Lingers():
                self.job(event.job).lingers_since = at
            case timeline.Sealed():
                for job in self.jobs.values():
                    job.is_sealed, job.runs = job.is_sealed or job.runs, False
            case timeline.SettingUp():
                self.setups[event.job] = None
            case timeline.Preparing():
                self.environments[event.job] = None
            case timeline.Taken():
                self._taken(number, at, event)
            case timeline.Forewarned():
                self.notice = event
                for name in event.jobs:
                    job = self.job(name)
                    job.asked = job.asked or (number, at)
            case timeline.Ready():
                self._came_back(at)
            case timeline.Resuming():
                self.start_asked_at = at
                self._runs_on()
            case timeline.RunsOn():
                self._runs_on()
            case timeline.Parking():
                self.is_kept_at_will = not self.parked_for
            case timeline.Resumed():
                self._runs_on()
                self._came_back(at)
                self._begins_anew()
                self.guard = self.last_guard = self.ended_for = None
            case timeline.Parked():
                self._turned()
                self.is_parked, self.guard, self.ended_for = True, None, None
            case timeline.Recovered():
                self.moved = event if event.by else self.moved
            case timeline.NewTerms():
                self._begins_anew()
                self.ended_for = self.guard_stop = None
            case timeline.StoppedByGuard(term=term):
                self.guard_stop = GuardStop(at, term)
            case timeline.Ending():
                self._ending(at, event)
            case timeline.Done():
                begun = event.outcome == "begun"
                self.ended_for = (event.why or _why(event.words)) if begun else None
            case timeline.Refused():
                self.refusal = event
                self.was_refused = self.was_refused or not self.is_parked
                # A teardown of a parked box may be refused only because the box is parked. That does not explain why
                # it is kept.
                if self.kept_for is None or not self.is_parked:
                    self.kept_for = event
            case timeline.Claimed():
                self.was_refused = False
            case timeline.AwaitsWork():
                if event.by == "said":
                    self.said, self.held = event.until, None if event.until <= at else self.held
                else:
                    self.held = _later(self.held, event.until)
            case timeline.Pushed():
                self.held = _later(self.held, at + timedelta(seconds=PUSH_HOLDS_S))
                where = event.tree.get("directory") if event.tree else None
                self.directory = where if isinstance(where, str) else self.directory
            case timeline.SetUp() | timeline.Prepared():
                self.held = _later(self.held, at + timedelta(seconds=PUSH_HOLDS_S))
            case timeline.Guarded():
                self.was_armed, self.guard, self.last_guard = True, event, event
            case timeline.Billed():
                self.billed = event if event.usd else self.billed
            case timeline.Labelled():
                self.labelled = event
            case (
                timeline.Intended()
                | timeline.Bound()
                | timeline.Placed()
                | timeline.Marking()
                | timeline.Marked()
                | timeline.Looked()
                | timeline.TakesOver()
                | timeline.Brokered()
                | timeline.Tested()
                | timeline.Priced()
                | timeline.Noticed()
                | timeline.Absent()
                | timeline.Overwritten()
                | timeline.LoggedIn()
                | timeline.Executed()
                | timeline.Audited()
                | timeline.Together()
                | timeline.Tracked()
                | timeline.Accepted()
                | timeline.Snapped()
                | timeline.Collected()
                | timeline.Stored()
                | timeline.Reread()
                | timeline.ReadAtStop()
                | timeline.ReadInNotice()
                | timeline.Waived()
                | timeline.WaivedAhead()
                | timeline.Permitted()
                | timeline.Unseen()
                | timeline.ClockOffset()
                | timeline.Destroyed()
                | timeline.Attested()
                | timeline.Receipted()
                | timeline.Ended()
                | timeline.CameBack()
                | timeline.Unread()
            ):
                pass
            case _:
                assert_never(event)

    def _what_was_read(self, at: datetime, event: timeline.Event) -> None:
        """A kind that nobody has thought of closes both: the box has to be read again."""
        if isinstance(event, timeline.ReadAtStop):
            self.read_at_stop = event
        elif not isinstance(event, _CHANGES_NO_DISK):
            self.read_at_stop = None
        if isinstance(event, timeline.ReadInNotice):
            self.read_in_notice = at, event
        elif not isinstance(event, _CHANGES_NO_DISK | _TAKES_IT):
            self.read_in_notice = None
        if isinstance(event, timeline.Permitted):
            self.permitted = event if event.ground in ("verified", "never_used") else None
        elif not isinstance(event, _CHANGES_NO_DISK | timeline.ReadAtStop | timeline.Parked):
            self.permitted = None

    def _what_was_tried(self, at: datetime, event: timeline.Event) -> None:
        if isinstance(event, timeline.Done):
            self.is_tried = event.outcome == "begun"
            if event.outcome == "refused":
                self.tries = Tries(event.words, (), self.tries.words)
            elif event.outcome == "failed":
                self.tries = Tries(None, (*self.tries.failed, at), event.words)
        elif self.is_tried and isinstance(event, timeline.Collected):
            pass  # It is a part of the attempt.
        elif isinstance(event, _TRY_AGAIN):
            self.tries, self.is_tried = Tries(None, ()), False

    def _launched(self, number: int, at: datetime, event: timeline.Launched) -> None:
        for over in self.jobs.values():
            over.killed_at = None  # The box lived on, so it was not the box that killed this job.
        names = event.jobs or () if event.job is None else (event.job,)
        for name in names:
            # Nothing of an earlier start counts any more.
            self.jobs.pop(name, None)
            self.jobs[name] = _Job(name, launched_at=at, is_cell=event.job is None, runs=True)
            self.launches.append((number, name))
        self.newest = event.job or self.newest
        self.launched_at = at if self.launched_at is None else max(self.launched_at, at)
        self.held = None  # What was about to be launched has been launched.
        self.ended_for = None
        self.attempts.clear()
        self._runs_on()

    def _taken(self, number: int, at: datetime, event: timeline.Taken) -> None:
        self.guard = None
        self.last_words = event.words or self.last_words
        if event.fate is None:
            self.fate = self.fate_words = self.taken_since = None
            self.back_at = at
            return
        self.fate, self.fate_words = event.fate, event.words
        self.taken_since = self.taken_since or at
        self.last_taken = at, event.fate
        for job in self.jobs.values():
            job.take(number, at, event.fate)

    def _turned(self) -> None:
        """An earlier fate or notice no longer counts."""
        self.fate = self.fate_words = self.taken_since = self.notice = None

    def _came_back(self, at: datetime) -> None:
        self._turned()
        self.back_at = at

    def _runs_on(self) -> None:
        """The box runs, or is about to: it is not kept for an earlier reason."""
        self.parked_for, self.kept_for, self.is_parked = "", None, False
        self.is_kept_at_will = self.was_refused = False

    def _begins_anew(self) -> None:
        self.attempts.clear()
        self.ending = None
        for job in self.jobs.values():
            job.ending = None

    def _ending(self, at: datetime, event: timeline.Ending) -> None:
        self.attempts.append(at)
        self.endings.append(at)
        self.parked_for = event.words or self.parked_for
        self.ended_for = event.words or self.ended_for
        cause = _cause(event.term, event.words)
        self.ending = cause or self.ending
        for job in self.jobs.values():
            job.ending = cause or job.ending

    def told(self) -> Story:
        """Return what has been folded as one value."""
        last_at, last_fate = self.last_taken or (None, None)
        return Story(
            jobs=tuple(self._told_of(job) for job in self.jobs.values()),
            newest=self.newest,
            launched_at=self.launched_at,
            ends=tuple(self.ends),
            setups=tuple(self.setups),
            environments=tuple(self.environments),
            box=BoxStory(
                fate=self.fate,
                fate_words=self.fate_words,
                taken_since=self.taken_since,
                last_taken_at=last_at,
                last_fate=last_fate,
                last_words=self.last_words,
                back_at=self.back_at,
                notice=self.notice,
                start_asked_at=self.start_asked_at,
                is_kept_at_will=self.is_kept_at_will,
                was_refused=self.was_refused,
            ),
            moved=self.moved,
            kept=self._kept(),
            read_at_stop=self.read_at_stop,
            read_in_notice=self.read_in_notice,
            permitted=self.permitted,
            held_until=_later(self.said, self.held),
            tries=self.tries,
            attempts=tuple(self.attempts),
            endings=tuple(self.endings),
            ended_for=self.ended_for,
            refusal=self.refusal,
            guard=GuardStory(self.was_armed, self.guard, self.last_guard, self.guard_stop),
            billed=self.billed,
            labelled=self.labelled,
            directory=self.directory,
        )

    def _told_of(self, job: _Job) -> JobStory:
        cut = job.cut_off
        cause = job.ending if job.stopped_for == "unknown" else job.stopped_for
        return JobStory(
            id=job.id,
            launched_at=job.launched_at,
            is_cell=job.is_cell,
            state=job.state,
            ended_at=job.ended_at,
            is_sealed=job.is_sealed,
            cut_off=None if cut is None else cut[1],
            met=job.met,
            stop_cause=None if cause == "asked" else cause,
            lingers_since=job.lingers_since,
            is_superseded=cut is not None and self._is_superseded(job.id, cut[0]),
            killed_at=None if job.is_stopped or job.is_sealed else job.killed_at,
        )

    def _is_superseded(self, job: str, since: int) -> bool:
        """Whether that job was launched again after the line `since`, or something new was launched instead of it.

        The launch of another cut-off job does not count: this one may be the next.
        """
        before = {_series(name) for number, name in self.launches if number < since}
        later = {_series(name) for number, name in self.launches if number > since}
        return _series(job) in later or bool(later - before)

    def _kept(self) -> Kept:
        return Kept(self.parked_for, self.kept_for.lost if self.kept_for is not None else "")


class WholeTimeline(tuple[Line, ...]):  # noqa: SLOT001 - it keeps its story
    """All lines of a lease, as the ledger gives them. Their story is folded once, however many ask for it."""

    @cached_property
    def story(self) -> Story:
        """The story of the lease."""
        return fold(self)


def story_of(lines: Lines) -> Story:
    """Return the story that a timeline tells."""
    return lines.story if isinstance(lines, WholeTimeline) else fold(lines)


def fold(lines: Iterable[Line]) -> Story:
    """Fold the timeline of a lease, from its oldest line to its newest."""
    so_far = _Fold()
    for number, (at, event) in enumerate(lines):
        so_far.add(number, at, event)
    return so_far.told()


def _series(job: str) -> str:
    """Return the name that a job has in common with those that were launched again for it."""
    counted = _COUNTED.fullmatch(job)
    return counted["first"] if counted else job


def _killing(fate: Fate) -> KillingFate:
    return next(each for each in get_args(KillingFate) if each == fate)


def _cause(term: str | None, words: str | None) -> StopCause | None:
    known: Sequence[Term] = get_args(Term)
    return next((StopCause(each, words or "") for each in known if each == term), None)


def _why(words: str) -> str | None:
    """Return why the lease was ended, from a line of an earlier version, which has the reason only in its words."""
    return words.removesuffix("; it is being ended") or None


def _later(*moments: datetime | None) -> datetime | None:
    return max(filter(None, moments), default=None)
