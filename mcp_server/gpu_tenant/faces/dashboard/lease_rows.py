"""The rows of the page's overview: for each lease its card, and what a person can do about it now."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.box.caretaker import ENDED, JobState
from gpu_tenant.domain.model import Lease, LeaseState, Profile
from gpu_tenant.domain.next_step import GiveTime, GoElsewhere, NothingToDo, StartAgain
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.survival import stop_keeps
from gpu_tenant.faces.dashboard.background_tasks import Trouble
from gpu_tenant.faces.dashboard.sparkline import Sparkline, sparkline_of
from gpu_tenant.jobs.monitor import Gpu, Watched
from gpu_tenant.jobs.progress import Progress
from gpu_tenant.leases.cards import Card, Leases
from gpu_tenant.leases.condition import HOST_LOST, STANDS_STILL, recorded_jobs
from gpu_tenant.leases.park import unsure_of
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy

Verb = Literal[
    "end",
    "extend",
    "terms",
    "park",
    "resume",
    "resume_and_end",
    "give_more",
    "look",
    "stop",
    "stop_and_park",
    "collect",
    "snapshot",
    "teardown",
    "waive",
    "recover",
]


class LastSeen(Record):
    """The last known state of a job, from the box or from the ledger."""

    at: AwareDatetime
    state: str | None
    fraction: float | None = None
    done: float | None = None
    total: float | None = None


class Working(Record):
    """The last known state of a lease's job, with measurements."""

    id: str
    state: JobState
    progress: Progress | None
    gpus: tuple[Gpu, ...]
    others_running: int = 0
    at: AwareDatetime = Field(description="when it was seen in this state")
    spark: Sparkline | None = Field(
        default=None, description="the newest measurements of its first metric"
    )

    @classmethod
    def of(cls, seen: Watched, *, at: AwareDatetime, others_running: int = 0) -> "Working":
        """Return the part of the job's state that the overview needs."""
        return cls(
            id=seen.job,
            state=seen.state,
            progress=seen.progress,
            gpus=seen.gpus,
            others_running=others_running,
            at=at,
            spark=sparkline_of(seen),
        )


class LeaseRow(Record):
    """One lease in the overview."""

    card: Card
    title: str
    kind: str
    gpu: str | None
    park: Literal["keeps", "wipes", "none"]
    park_how: Literal["api", "in_box", "owner"]
    blind: str | None = Field(
        description="why its box could not be asked, which does not mean that it is gone"
    )
    job: Working | None = Field(
        description="the newest job that runs; if none runs, the newest job"
    )
    is_old: bool = Field(
        description="whether the state of the job is an old one, because its box cannot be seen now"
    )
    others_running: int
    ended: JobState | None = Field(
        default=None,
        description="how its newest job ended, by the ledger; only for a box that is stopped",
    )
    signed_ahead: bool = Field(
        description="whether its owner has signed that the box is destroyed once its rescue sum is spent"
    )
    verbs: tuple[Verb, ...] = Field(
        description="the actions that make sense now, the most fitting first"
    )
    by_itself: bool = Field(description="whether a watchdog does what is next without being asked")


class Stray(Record):
    """A box in the account that has no lease of ours."""

    provider: str
    title: str
    box: str
    state: str
    price_usd_h: Usd
    deployment: str | None = Field(description="the other gpu-tenant that looks after it")
    name: str | None
    gpus: str | None
    can_park: bool


class Sums(Record):
    """The sums of all leases, and what a person must know."""

    at: AwareDatetime = Field(
        description="when the box was looked at; figures that grow with time grow from then on"
    )
    now: AwareDatetime = Field(description="when it was told")
    watched: str
    alarms: tuple[str, ...]
    foreign: tuple[Stray, ...]
    also_billing: tuple[str, ...]
    spent_usd: Usd
    burning_usd_h: Usd
    leaking_usd_month: Usd
    not_counted: tuple[str, ...]
    sweeps: tuple[str, ...]
    waiting: tuple[str, ...]
    trouble: Trouble | None = Field(
        description="why the last look failed; if so, everything else is from the look before"
    )


class Overview(Sums):
    """The sums, and a row for each lease."""

    leases: tuple[LeaseRow, ...]


def rows_of(
    seen: Leases,
    tenancy: Tenancy,
    *,
    blind: Mapping[str, str],
    silent_since: Mapping[str, datetime],
    working: Mapping[str, Working],
) -> tuple[LeaseRow, ...]:
    """Make a row for each card. By lease, `blind` has the error of a box that does not answer, `working` its job."""
    now = tenancy.clock.now()
    return tuple(
        row_of(
            card,
            tenancy.ledger.lease(card.lease),
            tenancy.profiles[card.provider],
            ended=ended_of(card, tenancy.ledger),
            blind=blind.get(card.lease),
            job=working.get(card.lease),
            silent_s=_seconds(silent_since.get(card.lease), now),
            now=now,
        )
        for card in seen.leases
    )


def row_of(
    card: Card,
    lease: Lease,
    profile: Profile,
    *,
    blind: str | None,
    job: Working | None,
    ended: JobState | None = None,
    silent_s: float | None = None,
    now: datetime | None = None,
) -> LeaseRow:
    """Return the row of that lease. `silent_s` is the number of seconds for which its box has not answered."""
    if card.phase in (*STANDS_STILL, HOST_LOST):
        blind = None  # It is known why the box does not answer, so this is no news.
    if job is not None or blind is not None:
        over_s = _seconds(job.at, now) if job and job.state in ENDED and now else None
        card = card.with_job(
            job.state if job else None,
            others_running=job.others_running if job else 0,
            blind=blind,
            since_s=over_s if blind is None else silent_s,
        )
    return LeaseRow(
        card=card,
        title=profile.title,
        kind=profile.kind,
        gpu=gpu_of(lease, job),
        park=_park(profile, lease),
        park_how=profile.park_how,
        blind=blind,
        job=job,
        is_old=is_old(card, job, blind),
        others_running=job.others_running if job else 0,
        ended=ended,
        signed_ahead=lease.terms.on_deadline == "waive",
        verbs=_offered_verbs(card, profile, job, ended=ended),
        by_itself=isinstance(card.step, NothingToDo),
    )


def ended_of(card: Card, ledger: Ledger) -> JobState | None:
    """Return how the newest job on a stopped box has ended. None if it has not ended, or if the box runs."""
    if card.phase not in STANDS_STILL:
        return None
    lease = ledger.lease(card.lease).id
    state, others = recorded_jobs(ledger.jobs(lease), ledger.events(lease))
    return state if state in ENDED and not others else None


def _seconds(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else max(0, round((now - since).total_seconds()))


def _park(profile: Profile, lease: Lease) -> Literal["keeps", "wipes", "none"]:
    """Return what a stop does to the files on this box."""
    if profile.park == "none":
        return "none"
    return "wipes" if stop_keeps(profile, lease) == "nothing" else "keeps"


def is_old(card: Card, job: Working | None, blind: str | None) -> bool:
    """Whether the last known state of the job may be out of date, because its box is gone or does not answer."""
    if job is None or job.state in ENDED:
        return False
    return blind is not None or card.phase != "ready"


def gpu_of(lease: Lease, job: Working | None = None) -> str | None:
    """Return the box's GPUs, by its offer or else by what the box reports. None if unknown."""
    if lease.quote is not None:
        offer = lease.quote.offer
        return offer.gpu if offer.gpu_count == 1 else f"{offer.gpu} x{offer.gpu_count}"
    return gpu_words([gpu.name for gpu in job.gpus] if job else [])


def gpu_words(names: Sequence[str]) -> str | None:
    """Return the GPUs in a few words. None if there are none."""
    if not names:
        return None
    return names[0] if len(names) == 1 else f"{names[0]} x{len(names)}"


def sums_of(
    seen: Leases,
    profiles: Mapping[str, Profile],
    *,
    at: AwareDatetime,
    now: AwareDatetime,
    trouble: Trouble | None,
) -> Sums:
    """Return the sums of these leases, without the leases."""
    strays = tuple(
        Stray(
            provider=box.provider,
            title=profiles[box.provider].title,
            box=box.box,
            state=box.state,
            price_usd_h=box.price_usd_h,
            deployment=box.deployment,
            name=box.name,
            gpus=box.gpus,
            can_park=profiles[box.provider].park == "keeps"
            and not unsure_of(profiles[box.provider])
            and box.deployment is None,
        )
        for box in seen.foreign
    )
    return Sums(
        at=at,
        now=now,
        watched=seen.watched,
        alarms=seen.alarms,
        foreign=strays,
        also_billing=seen.also_billing,
        spent_usd=seen.spent_usd,
        burning_usd_h=seen.burning_usd_h,
        leaking_usd_month=seen.leaking_usd_month,
        not_counted=seen.not_counted,
        sweeps=seen.sweeps,
        waiting=seen.waiting,
        trouble=trouble,
    )


def _offered_verbs(
    card: Card,
    profile: Profile,
    job: Working | None,
    *,
    ended: JobState | None,
) -> tuple[Verb, ...]:
    to_do = card.condition.to_do
    if card.state is LeaseState.LOST:
        return ("recover",)
    if card.state is LeaseState.TERMINATING:
        return ("teardown",)
    if card.state is not LeaseState.ACTIVE:
        return ()
    if card.phase == HOST_LOST:
        return ("recover", "teardown", "waive", "terms") if card.jobs else ("teardown", "waive")
    if card.phase in STANDS_STILL:
        return _verbs_of_still(card, ended)
    if card.phase == "booting":
        return ("extend", "terms", "teardown")
    park: tuple[Verb, ...] = () if profile.park == "none" else ("park",)
    if to_do is not None and to_do.matter == "silent":
        # All other actions ask the box, which does not answer. A park asks the provider.
        return ("look", "extend", "terms", "teardown", *park, "waive")
    if not card.jobs:
        return ("extend", "terms", "teardown", *park, "waive")
    if job is not None and job.state in ("starting", "running", "lingering"):
        # A park is refused while a job runs, so the button first stops the job.
        park = ("stop_and_park",) if park else ()
        others: tuple[Verb, ...] = ("collect", "terms", "teardown", *park, "waive")
        if card.too_little in ("budget", "both"):
            return ("give_more", "stop", "snapshot", "extend", *others)
        if card.too_little == "time" or isinstance(card.step, GiveTime):
            return ("extend", "stop", "snapshot", *others)
        return ("snapshot", "stop", "extend", *others)
    if card.condition.is_wasted:
        return ("end", "collect", "teardown", "extend", "terms", *park, "snapshot", "waive")
    return ("collect", "teardown", "extend", "terms", *park, "snapshot", "waive")


def _verbs_of_still(card: Card, ended: JobState | None) -> tuple[Verb, ...]:
    """Return the actions for a stopped box. It must first be started, because a stopped box can prove nothing."""
    more: tuple[Verb, ...] = ("waive", "extend", "terms")
    match card.step:
        case GoElsewhere():
            return ("recover", "resume", "teardown", *more)
        case NothingToDo(does="recover"):
            # Whoever starts the old box while a new one is rented lets two boxes bill.
            return ("recover", "teardown", *more)
        case _:
            pass
    if not card.jobs:
        return ("resume", "teardown", *more)
    to_end = isinstance(card.step, StartAgain) and card.step.to == "end"
    if to_end or ended in ("finished", "failed", "killed"):
        return ("resume_and_end", "resume", *more)
    return ("resume", "resume_and_end", *more)
