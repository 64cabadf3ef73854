"""One lease on one card: what a person or an agent needs to see at a glance."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from pydantic import AwareDatetime, Field, PrivateAttr

from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing import newest_bill
from gpu_tenant.domain.budget_end import budget_end, budget_end_words, budget_until
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.end_reserve import raise_step, resume_step, start_words
from gpu_tenant.domain.fleet_budget import Fleet
from gpu_tenant.domain.interruption import (
    BY_ITS_PROVIDER,
    recorded_fate,
    taken_words,
    went_on,
)
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import (
    Box,
    BoxState,
    Fate,
    Job,
    Lease,
    LeaseId,
    LeaseState,
    LocalAddress,
    Profile,
)
from gpu_tenant.domain.next_step import (
    AskForFiles,
    Await,
    BringHome,
    End,
    Furnish,
    GiveMore,
    GiveTime,
    GoElsewhere,
    Lack,
    LaunchAgain,
    NextStep,
    NothingToDo,
    Over,
    StartAgain,
    Watcher,
    watcher,
)
from gpu_tenant.domain.offers import USD_STEP, Leftover
from gpu_tenant.domain.policy import LookedAfter, rules_of
from gpu_tenant.domain.protection import Protection
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.domain.reconcile import way_on
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.rental import rental_is_over
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.survival import deleted_at
from gpu_tenant.domain.terms import GRACE_S, cost_usd
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.volumes import Volume, VolumeKey
from gpu_tenant.domain.wording import cost_words, some, until, usd_words
from gpu_tenant.jobs.cost_forecast import course_of, forecast, is_soon
from gpu_tenant.leases.billing import billed_more, counted_words
from gpu_tenant.leases.condition import (
    HOST_LOST,
    SOON_S,
    STANDS_STILL,
    STOPPED,
    TAKEN,
    Bills,
    Condition,
    condition_of,
    recorded_end,
    recorded_jobs,
)
from gpu_tenant.leases.kept_parked import kept_words, parked_next, parked_step
from gpu_tenant.leases.launch_again import died_unseen
from gpu_tenant.leases.names import labels_of
from gpu_tenant.leases.taken_step import (
    left_behind,
    left_behind_step,
    notice_step,
    recovers_words,
    stops_at,
    went_on_words,
)
from gpu_tenant.leases.won_back import next_words, starts_again, state_words, woken_step
from gpu_tenant.leases.work_done import tries_of

MONTH_H = 720
"""The hours of thirty days."""

_UNBILLED = {"nobody": "nobody bills", "no more": "bills no more"}
WORK_HAS_ENDED = "its work has ended"
_NAMED = 8
_BRIEF_NAME, _BRIEF_ALARM = 32, 150
"""A card names at most this many jobs, the newest first. A sweep has hundreds."""


class _Next(NamedTuple):
    """What is next, and the sentence that says it."""

    step: NextStep
    words: str


class Card(Record):
    """One lease at a glance. None means unknown, which is not zero."""

    lease: str
    name: str = Field(default="", description="PROJECT/NAME #TAG, as said, or as pushed and run")
    provider: str
    state: LeaseState
    box: str | None
    address: str | None
    age_s: float
    deadline_in_s: float | None = Field(description="None: it has ended")
    price_usd_h: Usd
    bills: Bills = Field(default="unknown", description="what its rate is for, now")
    running_usd_h: Usd = Field(
        default=None, description="while it boots or is parked: what it costs once it runs"
    )
    max_price_usd_h: Usd
    budget_usd: Usd
    budget_end: str | None = Field(
        default=None, description="when the budget ends it, if before its deadline"
    )
    cost_usd: Usd
    forecast_deadline_usd: Usd = None
    forecast_job_usd: Usd = Field(default=None, description="about, at its job's end")
    job_ends_in_s: float | None = None
    leaking_usd_month: Usd = Field(default=None, description="it bills although no job runs")
    counts: str = ""
    terms: tuple[str, ...] = Field(default=(), description="the policy in force")
    stops_the_meter: str = Field(description="if this computer dies")
    watched: str = Field(default="", description="who enforces its terms meanwhile")
    phase: str
    condition: Condition
    jobs: tuple[str, ...]
    alarm: str | None
    recovered: str = Field(
        default="",
        description="from where it goes on with another lease's work, and what that left",
    )
    unclaimed: str = Field(default="", description="files that nobody has claimed")
    memory: str = Field(default="", description="if its GPU may be too small for what was tested")
    published: tuple[str, ...] = Field(
        default=(), description="ports that are open to the whole internet, as just looked up"
    )
    next: str
    fleet: str | None = None
    together: Fleet | None = Field(
        default=None, description="its fleet, if several boxes were asked for"
    )
    _step: NextStep = PrivateAttr(default_factory=Over)
    """What is next, as a value. `next` is the sentence that says it."""
    _by_itself: Mapping[str, _Next] = PrivateAttr(default_factory=dict)
    """For each state in which the job may end: what a watchdog then does without being asked."""
    _goes_on: str = PrivateAttr(default="")
    """How to continue a job that ended because its box was taken. Empty if this is not the next step."""
    _notice: str = PrivateAttr(default="")
    """The next step if the platform has given notice that it takes the box. Empty if there is no notice."""
    _more: tuple[Lack, str] | None = PrivateAttr(default=None)
    """What will run out before the job ends, and what to do about that."""

    @property
    def brief(self) -> str:
        """The lease in one line: what it is, what it costs, until when, what is wrong, and what is next."""
        named = f" ({self.name[:_BRIEF_NAME]})" if self.name else ""
        parts = (
            f"{self.condition.word}",
            self.price_words,
            f"{cost_words(self.cost_usd, self.counts)} so far" if self.cost_usd else "",
            f"deadline {until(self.deadline_in_s)}" if self.deadline_in_s is not None else "",
            self.alarm[:_BRIEF_ALARM] if self.alarm else "",
            f"next: {self.next}",
        )
        return f"{self.lease}{named}: {'; '.join(filter(None, parts))}"

    def with_job(
        self,
        state: str | None,
        *,
        others_running: int = 0,
        blind: str | None = None,
        since_s: float | None = None,
    ) -> "Card":
        """Return the same card after a newer look at its newest job.

        If that look failed, `blind` says why the box does not answer. `since_s` says for how many seconds the box has
        been so: silent, or without a running job.
        """
        condition = condition_of(
            self.phase,
            self.bills,
            alarm=self.alarm,
            left_s=self.deadline_in_s,
            job=state,
            others_running=others_running,
            blind=blind,
        )
        to_do, before = condition.to_do, self.condition.to_do
        if to_do is not None:
            on_record = before is not None and before.matter == to_do.matter
            if before is not None and on_record and before.since_s is not None:
                to_do = before
            else:
                to_do = to_do.model_copy(
                    update={"since_s": since_s, "since_usd": self._cost_of(since_s)}
                )
            condition = condition.model_copy(update={"to_do": to_do})
        if condition.is_wasted and self._by_itself.get(state or ""):
            condition = _without_person(condition)
        shown = _Next(self._step, self.next)
        knows_why = self._goes_on and state in ENDED
        ready = self.phase == "ready" and not knows_why and not self._notice
        if ready and state is not None and (self.jobs or condition.is_wasted):
            near = self.deadline_in_s is not None and self.deadline_in_s < SOON_S
            is_over = state in ENDED and not others_running
            shown = _of_job(
                self.lease,
                is_over=is_over,
                is_near=near and self.too_little is None,
                unclaimed=self.unclaimed,
                by_itself=self._by_itself.get(state),
            )
            if self._more and not is_over:
                shown = _with_more(self.lease, self._more, shown)
        told = self.then(shown.step, shown.words)
        return told.model_copy(update={"condition": condition})

    def then(self, step: NextStep, words: str) -> "Card":
        """Return the same card with that next step, and the sentence that says it."""
        card = self.model_copy(update={"next": words})
        card._step = step
        return card

    @property
    def step(self) -> NextStep:
        """What is next, as a value."""
        return self._step

    def with_unclaimed(self, words: str) -> "Card":
        """Return the same card after a look at the box's files.

        If there are files that nobody has claimed, the next step is to claim or discard them: they keep the box.
        """
        shown = self.model_copy(update={"unclaimed": words})
        is_over = self.phase == "ready" and self.condition.word.startswith("job ")
        if not (words and is_over) or self._goes_on or self._notice:
            return shown
        told = _of_job(self.lease, is_over=True, is_near=False, unclaimed=words)
        return shown.then(told.step, told.words)

    def _cost_of(self, seconds: float | None) -> Decimal | None:
        """Return what the box costs in that many seconds at its present rate. None if this is unknown."""
        if seconds is None or self.price_usd_h is None:
            return None
        return (self.price_usd_h * Decimal(seconds) / 3600).quantize(USD_STEP)

    @property
    def too_little(self) -> Lack | None:
        """What will run out before the job ends, if the next step says what to do about it.

        None if nothing, or if unknown.
        """
        return self._step.lack if isinstance(self._step, GiveMore) else None

    @property
    def price_words(self) -> str:
        """The price by the hour, in words for a person."""
        if self.bills in _UNBILLED:
            return _UNBILLED[self.bills]
        if self.price_usd_h is None:
            return "unknown"
        later = "" if self.running_usd_h is None else f" now, {self.running_usd_h} once it runs"
        return f"{self.price_usd_h} USD/h{later}"


class Foreign(Record):
    """A box in the account that is not ours. The program shows it, and never touches it."""

    provider: str
    box: str
    state: str
    price_usd_h: Usd
    deployment: str | None = Field(
        default=None, description="whether its mark is that of another gpu-tenant"
    )
    name: str | None = None
    gpus: str | None = None
    created_at: AwareDatetime | None = None
    next: str = ""


class Leases(Record):
    """The leases that were asked for, and what a person must hear about."""

    leases: tuple[Card, ...]
    alarms: tuple[str, ...]
    foreign: tuple[Foreign, ...] = ()
    also_billing: tuple[str, ...] = Field(
        default=(), description="our volumes, and what bills although no box uses it"
    )
    spent_usd: Decimal = Field(
        default=Decimal(0), description="on all leases, including ended ones"
    )
    burning_usd_h: Decimal = Field(
        default=Decimal(0), description="now, including the disks of stopped boxes"
    )
    foreign_usd_h: Decimal = Field(
        default=Decimal(0), description="besides that: of the boxes that are not ours"
    )
    leaking_usd_month: Decimal = Field(
        default=Decimal(0), description="of boxes on which no job runs"
    )
    not_counted: tuple[str, ...] = Field(default=(), description="what these sums lack")
    watched: str = Field(default="", description="whether a watchdog looks after them")
    older: str | None = Field(
        default=None, description="give it back to see the leases before these"
    )
    sweeps: tuple[str, ...] = Field(default=(), description="the state of their cells")
    waiting: tuple[str, ...] = Field(default=(), description="wishes that stand")
    hidden: int = Field(default=0, description="leases that the search did not find")
    brief: tuple[str, ...] = Field(default=(), description="a line for each lease, where asked")


@dataclass(frozen=True, slots=True)
class Spent:
    """What leases have cost, and how many leases have an unknown cost."""

    usd: Decimal
    unknown: int


NOTHING = Spent(Decimal(0), 0)


_NO_VOLUMES: Mapping[Volume, str] = {}


class LossReport(Record):
    """What a teardown would destroy for good. `digest` is the hash of these losses."""

    lease: str
    losses: tuple[str, ...]
    digest: str


class TornDown(Record):
    """A lease that has ended, with the proof of its end."""

    lease: str
    state: LeaseState
    receipt: Receipt
    gang: str | None = Field(default=None, description="who else ran a job of this lease")
    twin: str | None = Field(default=None, description="a second box of its request that may bill")
    work: str | None = Field(
        default=None, description="if its work went over several boxes: their cost, and their files"
    )
    attempts: str | None = Field(
        default=None, description="if its work was tried before: what all attempts have cost"
    )


def card(
    lease: Lease,
    profile: Profile,
    *,
    jobs: Sequence[Job],
    alarm: str | None,
    now: datetime,
    protection: Protection,
    events: Lines = (),
    box: Box | None = None,
    looked_after: LookedAfter = "watched",
    again: Command | None = None,
    unclaimed: Sequence[str] = (),
    may_be_open: str = "",
    silent_since: datetime | None = None,
) -> Card:
    """Show the lease at `now`, from its timeline and from what its provider shows of the box.

    If the newest job ended because its box was taken, the command `again` launches it again. `unclaimed` are patterns
    for the files on the box that nobody has claimed. `may_be_open` says what may keep a watchdog from ending the box.
    `silent_since` is since when the box has not answered. None if it answers, or if nobody asked it.
    """
    born, taken_by = lease.active_at or lease.created_at, recorded_fate(events)
    phase = _phase(lease, box, taken_by)
    wakes = starts_again(lease, events, box)
    billed = newest_bill(events)
    told = forecast(lease, now, course=course_of(events), billed=billed)
    # A job makes no progress on a stopped box, so any estimate of its end would be wrong.
    stands = wakes or phase in (*STANDS_STILL, HOST_LOST)
    live = lease.state.live
    left_s = round((lease.terms.deadline_at - now).total_seconds()) if live else None
    bills, (job, others) = _bills(lease, profile, phase), recorded_jobs(jobs, events)
    runs = box is not None and box.state is BoxState.READY
    dead = died_unseen(events) if runs else None
    if dead is not None and job not in ENDED:
        job = "killed"
    ends_at = None if stands else told.job_ends_at
    # The sentence about the budget also says until when the job runs.
    late = None if told.over_budget else told.past_deadline
    moved = went_on(events) is not None
    over = told.over_budget
    if over is None and not stands and job not in ENDED and looked_after == "watched":
        over = _budget_soon(lease, events, now, ends_at)
    over = None if moved else over
    warned = (over, None if moved else late, billed_more(lease, billed, now))
    told_alarm = "; ".join(filter(None, (alarm, *warned))) or None
    silent_since = silent_since if phase == "ready" else None
    condition = condition_of(
        phase,
        bills,
        alarm=told_alarm,
        left_s=left_s,
        job=job,
        others_running=others,
        blind=None if silent_since is None else "silent",
    )
    too_little: Lack | None = None
    if live and (over or (not stands and not moved and _is_spent(lease, now))):
        too_little = "both" if told.past_deadline and not stands else "budget"
    elif live and told.past_deadline and not stands and not moved:
        too_little = "time"
    by_itself = _by_itself(lease, events, looked_after, may_be_open)
    is_over = job in ENDED and not others
    killed_by = None if moved else _killed_by(events) or dead
    if (job or "") in by_itself and not others and killed_by is None:
        condition = _without_person(condition)
    watched = looked_after == "watched"
    launches_again = watched and bool(lease.terms.recover) and killed_by is not None
    recovers = None
    if phase in (TAKEN, STOPPED) and not moved:
        recovers = recovers_words(lease, taken_by, looked_after)
    if launches_again or recovers:
        condition = _without_person(condition)
    shown_next = _next(
        lease,
        jobs,
        phase,
        taken_by,
        is_over=is_over,
        by_itself=by_itself.get(job or ""),
        is_near=too_little is None and left_s is not None and left_s < SOON_S,
        parked_until=deleted_at(profile, lease),
        now=now,
        events=events,
        unclaimed=unclaimed,
    )
    notice, goes_on = "", None
    by = watcher(looked_after)
    if phase == "ready" and went_on(events) is None:
        notice = notice_step(lease, events, profile.notice_s, now, unclaimed) or ""
        if is_over and not notice:
            goes_on = _goes_on(lease, killed_by, again, by if launches_again else None)
    if notice and lease.quote is not None and not lease.terms.recover:
        notice += f"; {Command('recover', lease.id)} goes on at another box"
    shown_next = goes_on or shown_next
    if notice:
        until = stops_at(events, profile.notice_s)
        shown_next = _Next(BringHome(lease.id, until), notice)
    if wakes:
        on = next_words(lease, events, again or _again(lease.id), looked_after)
        words = f"{state_words(lease, events)}; {on}"
        shown_next = _Next(woken_step(lease, events, by), words)
    elif recovers and by is not None:
        shown_next = _Next(NothingToDo(by, "recover"), recovers)
    more: tuple[Lack, str] | None = None
    if too_little is not None:
        pays_until = ends_at or lease.terms.deadline_at
        enough = budget_until(lease, events, now, pays_until)
        what = "its job's end" if ends_at else "its deadline"
        paid = f"until {what} at {pays_until:%H:%M} UTC"
        raised = raise_step(lease, events, enough)
        more = (too_little, _more_words(lease.id, too_little, raised, paid))
        shown_next = _with_more(lease.id, more, shown_next)
    shown = Card(
        lease=lease.id,
        name=labels_of(events, jobs).words,
        provider=lease.provider,
        state=lease.state,
        box=lease.box_id,
        address=_where(lease),
        # The difference may be negative, because this computer's clock may have been set back.
        age_s=max(0, round(((lease.ended_at or now) - born).total_seconds())),
        deadline_in_s=left_s,
        price_usd_h=lease.price_usd_h if live else Decimal(0),
        bills=bills,
        running_usd_h=lease.quote.offer.price.running_usd_h
        if lease.quote and phase in ("booting", *STANDS_STILL)
        else None,
        max_price_usd_h=lease.terms.max_price_usd_h,
        budget_usd=lease.terms.budget_usd,
        budget_end=budget_end_words(lease, events, now, looked_after),
        cost_usd=told.spent_usd,
        forecast_deadline_usd=told.to_deadline_usd,
        forecast_job_usd=None if stands else told.to_job_end_usd,
        job_ends_in_s=None if ends_at is None else round((ends_at - now).total_seconds()),
        leaking_usd_month=None
        if phase not in STANDS_STILL or lease.price_usd_h is None
        else (lease.price_usd_h * MONTH_H).quantize(USD_STEP),
        counts=counted_words(lease, profile, billed),
        terms=rules_of(lease, profile, looked_after=looked_after, now=now) if live else (),
        stops_the_meter=protection.words,
        phase=phase,
        condition=_with_since(condition, lease, events, now, silent_since),
        jobs=_job_names(jobs),
        alarm=told_alarm,
        published=box.published if box is not None and live else (),
        next=shown_next.words,
        fleet=lease.fleet,
    )
    shown._step, shown._by_itself, shown._more = shown_next.step, by_itself, more
    shown._goes_on, shown._notice = goes_on.words if goes_on else "", notice
    return shown


def in_all(
    cards: Sequence[Card],
    *,
    alarms: Sequence[str],
    foreign: Sequence[Foreign],
    leftovers: Sequence[Leftover],
    unseen: Sequence[str],
    free: Collection[str],
    strays: Sequence[Box] = (),
    volumes: Mapping[Volume, str] = _NO_VOLUMES,
    in_use: Collection[VolumeKey] = (),
    watched: str = "",
    older: str | None = None,
    before: Spent = NOTHING,
) -> Leases:
    """Put the cards together, and add up what they and the leftovers cost. Unknown costs are named, not counted as 0.

    `before` is what all ended leases have cost, including those among the cards. `unseen` are the providers that
    did not say what else bills there. `free` are the providers that bill nothing. `volumes` are our volumes, each with
    a line about it. `in_use` are the volumes that leases use. `strays` are boxes that are listed although they were
    seen gone. `older` names the oldest lease among the cards, if there are older leases.
    """
    live = [card for card in cards if card.state.live]
    ours = {(volume.provider, volume.volume_id) for volume in volumes}
    others = [left for left in leftovers if (left.provider, left.id) not in ours]
    unknown = [
        f"the rate of {card.lease}"
        for card in live
        if card.price_usd_h is None and card.provider not in free
    ]
    unknown += [
        f"what {card.lease} has cost"
        for card in live
        if card.cost_usd is None and card.box is not None and card.provider not in free
    ]
    unknown += [
        f"the {left.kind} {left.name or left.id}" for left in others if left.usd_month is None
    ]
    unknown += [f"the volume {volume.name}" for volume in volumes if volume.usd_month is None]
    unknown += [f"the rate of {box.box}" for box in foreign if box.price_usd_h is None]
    unknown += [f"what bills at {provider} besides boxes" for provider in unseen]
    if before.unknown:
        unknown.append(f"what {some(before.unknown, 'ended lease')} cost")
    return Leases(
        leases=tuple(cards),
        alarms=tuple(alarms),
        foreign=tuple(foreign),
        also_billing=(*volumes.values(), *(left.words for left in others)),
        spent_usd=_sum(card.cost_usd for card in live) + before.usd,
        burning_usd_h=_sum(card.price_usd_h for card in live)
        + _sum(box.price_usd_h for box in strays)
        + _sum(volume.usd_h for volume in volumes),
        foreign_usd_h=_sum(box.price_usd_h for box in foreign),
        leaking_usd_month=_sum(card.leaking_usd_month for card in live)
        + _sum(left.usd_month for left in others)
        + _sum(volume.usd_month for volume in volumes if volume.key not in in_use),
        not_counted=tuple(unknown),
        watched=watched if any(card.bills != "nobody" for card in live) else "",
        older=older,
    )


def _sum(amounts: Iterable[Decimal | None]) -> Decimal:
    return sum((usd for usd in amounts if usd is not None), Decimal(0))


def _job_names(jobs: Sequence[Job]) -> tuple[str, ...]:
    more = [f"and {len(jobs) - _NAMED} before them"] if len(jobs) > _NAMED else []
    return (*(job.id for job in jobs[-_NAMED:]), *more)


def _where(lease: Lease) -> str | None:
    if lease.address is None:
        return None
    return (
        lease.address.directory if isinstance(lease.address, LocalAddress) else lease.address.target
    )


def _bills(lease: Lease, profile: Profile, phase: str) -> Bills:
    if not lease.state.live:
        return "no more"
    if phase == HOST_LOST:
        return "unknown"
    if not lease.price_usd_h and profile.kind == "own":
        return "nobody"
    if lease.price_usd_h is None:
        return "unknown"
    return "disk" if phase in STANDS_STILL else "box"


def _phase(lease: Lease, box: Box | None, fate: Fate | None) -> str:
    if lease.state is not LeaseState.ACTIVE:
        return lease.state
    if lease.parked_at is not None:
        return "parked"
    if box is not None and box.state is BoxState.PARKED:
        return TAKEN if fate in BY_ITS_PROVIDER else STOPPED
    if box is not None and box.state is BoxState.BOOTING and box.taken is None and fate is not None:
        return "booting"
    if fate == "host_lost":
        return HOST_LOST
    if box is None and fate is not None:
        return TAKEN if fate in BY_ITS_PROVIDER else STOPPED  # as its provider showed it last
    return "booting" if lease.ready_at is None else "ready"


def _with_since(
    condition: Condition,
    lease: Lease,
    events: Lines,
    now: datetime,
    silent_since: datetime | None,
) -> Condition:
    """Return the condition, with how long it has needed a person, and what the box has cost since then."""
    to_do, since = condition.to_do, None
    if to_do is None:
        return condition
    if to_do.matter == "job over":
        since = recorded_end(events)
    elif to_do.matter == "taken":
        since = next((at for at, x in reversed(events) if isinstance(x, timeline.Taken)), None)
    elif to_do.matter == "silent":
        since = silent_since
    if since is None:
        return condition
    usd = cost_usd(lease.rates, since=since, until=now)
    since_s = max(0, round((now - since).total_seconds()))
    told = {"since_s": since_s, "since_usd": None if usd is None else usd.quantize(USD_STEP)}
    return condition.model_copy(update={"to_do": to_do.model_copy(update=told)})


def _parked_words(lease: Lease, until: datetime | None) -> str:
    bills = "a parked box goes on billing its disk"
    if lease.parked_at is not None and lease.price_usd_h == 0:
        bills = "a parked box costs nothing here"
    if until is None:
        return bills
    return f"{bills}, and its platform deletes it, data and all, at {until:%Y-%m-%d %H:%M} UTC"


def _setup_words(lease: Lease, events: Lines) -> _Next | None:
    """Return what to do about the box's setup. None if there was no setup, or if it succeeded."""
    told = [x for _, x in events if isinstance(x, timeline.SettingUp | timeline.SetUp)]
    match told[-1] if told else None:
        case timeline.SettingUp(job=job):
            looks = Command("monitor", lease.id, job=job)
            return _Next(Await(lease.id), f"{looks}: the box is being set up")
        case timeline.SetUp(state="failed", job=job, why=why):
            push = Command("push", "DIR", lease.id)
            words = (
                f"the box could not be set up: {why}; {Command('monitor', lease.id, job=job)} shows the setup; "
                f"correct it, then {push} sets the box up again"
            )
            return _Next(Furnish(lease.id), words)
        case _:
            return None


def _budget_soon(
    lease: Lease, events: Lines, now: datetime, job_ends_at: datetime | None
) -> str | None:
    """Warn that the budget ends the lease soon. None if it does not, or if the job ends before that."""
    end = budget_end(lease, events, now)
    if end is None or not is_soon(lease, end.acts_at, now, timedelta(seconds=SOON_S)):
        return None
    if job_ends_at is not None and job_ends_at <= end.acts_at:
        return None
    return f"its budget of {usd_words(lease.terms.budget_usd)} ends it at {end.acts_at:%H:%M} UTC, before its deadline"


def _more_words(lease: str, too_little: Lack, raised: Command, paid: str) -> str:
    """Return what to do if the job will exceed the budget, the deadline or both at its present pace.

    `paid` says in words until when the raised budget lasts.
    """
    if too_little == "both":
        return (
            f"{raised}, then {Command('extend', lease, hours='N')} if its job should run to its end"
        )
    if too_little == "budget":
        return (
            f"{raised} if the work is worth more than its budget: that pays {paid}, and for its end and a quarter of an "
            "hour to spare"
        )
    return f"{Command('extend', lease, hours='N')} if its job should run to its end"


def _is_spent(lease: Lease, now: datetime) -> bool:
    """Whether the time alone has used up the lease's budget. An alarm says so already."""
    cost, budget = lease.cost_usd(now), lease.terms.budget_usd
    return cost is not None and budget is not None and cost >= budget


def _again(lease: str) -> Command:
    return Command("launch", lease=lease, artifact="PATTERN", then="COMMAND")


def _with_more(lease: str, more: tuple[Lack, str], told: _Next) -> _Next:
    """Return the next step if something will run out before the job ends: first, give the lease more of it."""
    return _Next(GiveMore(LeaseId(lease), more[0]), f"{more[1]}; {told.words}")


def _of_job(
    lease: str,
    *,
    is_over: bool,
    is_near: bool,
    unclaimed: str = "",
    by_itself: _Next | None = None,
) -> _Next:
    """Return what to do about the newest job of a box that is ready.

    `unclaimed` says in words which files nobody has claimed. `by_itself` is what a watchdog does once the job is over.
    """
    home, end, of = Command("collect", lease), Command("teardown", lease), LeaseId(lease)
    if is_over and unclaimed:
        return _Next(AskForFiles(of, ()), f"{unclaimed}; then {end}")
    if is_over and by_itself:
        keeps = f"{Command('hold', lease, '30m')} keeps the box for more work"
        return _Next(by_itself.step, f"{by_itself.words}; {keeps}")
    if is_over:
        return _Next(BringHome(of), f"{home}, then {end}: {WORK_HAS_ENDED}")
    when_over = f"when the job has ended: {home}, then {end}"
    if is_near:
        longer = f"{Command('extend', lease, hours=2)} if it needs longer; {when_over}"
        return _Next(GiveTime(of), longer)
    return _Next(Await(of), f"{Command('monitor', lease)}; {when_over}")


def _next(
    lease: Lease,
    jobs: Sequence[Job],
    phase: str,
    fate: Fate | None,
    *,
    is_over: bool,
    is_near: bool,
    parked_until: datetime | None,
    now: datetime,
    by_itself: _Next | None,
    events: Lines = (),
    unclaimed: Sequence[str] = (),
) -> _Next:
    of = lease.id
    match lease.state:
        case LeaseState.INTENDED:
            words = f"{Command('leases')} again: its provider has not shown the box yet"
            return _Next(Await(of), words)
        case LeaseState.ACTIVE if phase == "ready" and by_itself and went_on(events) is not None:
            return _Next(by_itself.step, f"{by_itself.words}; {went_on_words(events)}")
        case LeaseState.ACTIVE if (
            step := left_behind_step(lease, events, now, unclaimed)
        ) is not None:
            words = f"{step}; {_parked_words(lease, parked_until)}"
            return _Next(left_behind(lease, events), words if phase in STANDS_STILL else step)
        case LeaseState.ACTIVE if phase == HOST_LOST:
            over = (
                f"{Command('teardown', lease.id)} gives up the box, and says what is lost with it"
            )
            if not jobs:
                return _Next(End(of), over)
            on = f"{Command('recover', lease.id)} continues its work elsewhere"
            return _Next(GoElsewhere(of), f"{on}; {over}")
        case LeaseState.ACTIVE if phase in STANDS_STILL and rental_is_over(lease, now):
            lost = start_words(lease, events, now, "")
            if jobs and not is_over:
                return _Next(GoElsewhere(of), f"{Command('recover', lease.id)}; {lost}")
            return _Next(End(of), lost)
        case LeaseState.ACTIVE if phase == "parked" and (
            why := kept_words(lease, events) or (WORK_HAS_ENDED if is_over else "")
        ):
            step = parked_step(lease, events, now, unclaimed)
            words = f"{step}; {why}; {_parked_words(lease, parked_until)}"
            return _Next(parked_next(lease, events), words)
        case LeaseState.ACTIVE if phase in STANDS_STILL:
            way = way_on(lease, fate) if phase != "parked" else "resume"
            bills = _parked_words(lease, parked_until)
            if way == "recover":
                return _Next(GoElsewhere(of), f"{Command('recover', lease.id)}; {bills}")
            return _Next(StartAgain(of, "work"), f"{resume_step(lease, events, now)}; {bills}")
        case LeaseState.ACTIVE if lease.ready_at is None:
            looks = Command("monitor", lease.id) if jobs else Command("audit", lease.id)
            return _Next(Await(of), f"{looks}, and again as long as the box still boots")
        case LeaseState.ACTIVE if jobs:
            return _of_job(lease.id, is_over=is_over, is_near=is_near, by_itself=by_itself)
        case LeaseState.ACTIVE if (setup := _setup_words(lease, events)) is not None:
            return setup
        case LeaseState.ACTIVE if lease.touched_at is not None:
            return _Next(LaunchAgain(of), str(_again(lease.id)))
        case LeaseState.ACTIVE if now >= lease.terms.deadline_at:
            words = (
                f"{Command('teardown', lease.id)}: its deadline has passed, and nothing was done on its box; for work: "
                f"{Command('extend', lease.id, hours='1')}"
            )
            return _Next(End(of), words)
        case LeaseState.ACTIVE:
            words = f"{Command('audit', lease.id)}, then {Command('push', 'DIR', lease.id)}"
            return _Next(Furnish(of), words)
        case LeaseState.TERMINATING:
            words = f"{Command('teardown', lease.id)} again: the last teardown was cut short"
            return _Next(End(of), words)
        case LeaseState.GONE | LeaseState.VOID | LeaseState.LOST:
            cause = ended_by(events)
            over = (
                f"nothing: this lease was ended: {cause}"
                if cause
                else "nothing: this lease has ended"
            )
            further = goes_on_words(lease, jobs, events)
            return _Next(Over(), f"{over}; {further}" if further else over)


def _goes_on(
    lease: Lease, killed_by: Fate | None, again: Command | None, by: Watcher | None
) -> _Next | None:
    """Say how to continue the newest job, if it ended because its box was taken. None if it ended otherwise.

    `by` is who launches it again without being asked. None if nobody does.
    """
    if killed_by is None or lease.state is not LeaseState.ACTIVE or lease.ready_at is None:
        return None
    if by is not None:
        words = f"nothing: the watchdog launches its job again, which was killed when {taken_words(killed_by)}"
        return _Next(NothingToDo(by, "launch"), words)
    words = (
        f"{again or _again(lease.id)} again continues from what its disk kept: its last job was killed when "
        f"{taken_words(killed_by)}; or {Command('collect', lease.id)}, then {Command('teardown', lease.id)}"
    )
    return _Next(LaunchAgain(lease.id), words)


def _by_itself(
    lease: Lease, events: Lines, looked_after: LookedAfter, may_be_open: str
) -> dict[str, _Next]:
    """Return what a watchdog does when the job has ended, for each state in which it may end. Empty if nothing.

    `may_be_open` says what may keep the watchdog from doing so.
    """
    terms, by = lease.terms, watcher(looked_after)
    tried = tries_of(events)
    refused = tried.refused is not None or tried.failed
    if by is None or terms.when_done == "keep" or refused:
        return {}
    ends = "parks its box" if terms.when_done == "park" else "ends it"
    then = f"the watchdog collects its work, and {ends} {GRACE_S} s after the last job"
    told = {"finished": (then, NothingToDo(by, terms.when_done))}
    rule = terms.on_failure
    if rule.does != "hold":
        does = "parks its box" if rule.does == "park" else "ends it"
        words = f"the watchdog collects its work, and {does} {rule.time_words or 'at once'}"
        told |= dict.fromkeys(("failed", "killed", "stopped"), (words, NothingToDo(by, rule.does)))
    return {
        # What nobody has declared has to be declared first: until then, a person has something to do.
        state: _Next(
            AskForFiles(lease.id, ()) if may_be_open else step, by_itself_step(words, may_be_open)
        )
        for state, (words, step) in told.items()
    }


def by_itself_step(by_itself: str, may_be_open: str) -> str:
    """Return the next step if a watchdog ends the box. `may_be_open` says what may keep it from doing so."""
    if may_be_open:
        return f"{may_be_open}; if all is declared, {by_itself}"
    return f"nothing: {by_itself}"


def _without_person(condition: Condition) -> Condition:
    """Return the condition without a task for a person, because a watchdog does the next step."""
    to_do = condition.to_do
    if to_do is None or to_do.matter not in ("job over", "taken"):
        return condition
    group = "idle" if to_do.matter == "job over" else "still"
    return condition.model_copy(update={"to_do": None, "group": group})


def _killed_by(events: Lines) -> Fate | None:
    """Return how the box was taken, if this killed its newest job. None if it did not."""
    newest = story_of(events).newest_job
    if newest is None or newest.cut_off is None or newest.cut_off.fate == "walltime":
        return None
    return (
        newest.cut_off.fate or "preempted"
    )  # It had notice, and the stop itself is not recorded yet.


def ended_by(events: Lines) -> str | None:
    """Return which of its terms ended the lease, in words. None if a person or an agent ended it.

    If the work went on elsewhere, the words say so, whichever term ended this lease.
    """
    moved = went_on_words(events)
    if moved is not None:
        return moved
    return story_of(events).ended_for


def goes_on_words(lease: Lease, jobs: Sequence[Job], events: Lines) -> str | None:
    """Say how to continue unfinished work from the files that were kept. None if there is no such work."""
    if went_on(events) is not None:
        return None
    if lease.kept_in is None or recorded_jobs(jobs, events)[0] not in (
        "stopped",
        "killed",
        "running",
    ):
        return None
    kept = str(Path(lease.kept_in) / "work")
    return (
        f"to go on with its work, rent another box, {Command('push', 'DIR', 'NEW')}, then "
        f"{Command('push', kept, 'NEW')} puts there what was kept, and launch again"
    )
