"""One lease in full: its terms, jobs and timeline, and every file with what was proved of it."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.model import Evidence, Job, Lease, Manifest, Problem, Receipt, Unclaimed
from gpu_tenant.domain.policy import Policy
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.faces.dashboard.lease_rows import Row, gpu_words, row_of
from gpu_tenant.faces.dashboard.poller import Looks
from gpu_tenant.faces.timeline_text import told
from gpu_tenant.jobs.samples import readings_of
from gpu_tenant.leases.overview import on_card
from gpu_tenant.leases.watch_actions import policy_of
from gpu_tenant.ledger import Event

_LAST = ("state", "fraction", "done", "total")
_FILES = 5_000
"""At most this many files are listed. The rest are counted."""


class Rated(Record):
    """What the lease costs from `at` on."""

    at: AwareDatetime
    usd_h: Usd


class Dates(Record):
    """When the main things happened to the lease."""

    created_at: AwareDatetime
    active_at: AwareDatetime | None
    ready_at: AwareDatetime | None
    parked_at: AwareDatetime | None
    ended_at: AwareDatetime | None
    deadline_at: AwareDatetime
    kept_in: str | None
    recovers: str | None
    fleet: str | None
    rates: tuple[Rated, ...]


class LastSeen(Record):
    """How a job was when that was last recorded."""

    at: AwareDatetime
    state: str | None
    fraction: float | None
    done: float | None
    total: float | None


class Declared(Record):
    """A job as it was declared, without any value of its environment."""

    id: str
    command: str
    artifacts: tuple[str, ...]
    discard: tuple[str, ...]
    env_names: tuple[str, ...]
    declared_at: AwareDatetime
    launched_at: AwareDatetime | None
    last: LastSeen | None


class Line(Record):
    """One line of the ledger's timeline."""

    at: AwareDatetime
    kind: str
    words: str


class Proved(Record):
    """What re-reading a kept file has proved."""

    at: AwareDatetime
    where: str
    format: str
    outcome: str
    proved: tuple[str, ...]
    not_proved: tuple[str, ...]
    warnings: tuple[str, ...]
    problem: str | None


class File(Record):
    """One file of the newest seal."""

    name: str
    role: str
    kind: str
    size_bytes: int
    sha256: str | None
    evidence: Proved | None


class Counted(Record):
    """How many files, and their bytes."""

    count: int
    bytes: int


class Files(Record):
    """The newest seal, and how much of it was proved."""

    sealed_at: float
    collected_at: AwareDatetime | None = Field(
        description="when all of it had come, each file with the hash of the seal"
    )
    verified_at: AwareDatetime | None = Field(description="when all of it was re-read here")
    stored_at: AwareDatetime | None = Field(description="when it was copied to the store")
    digest: str
    total: int
    bytes: int
    shown: tuple[File, ...]
    unclaimed: Unclaimed
    discarded: Counted
    problems: tuple[Problem, ...]
    unmatched: tuple[str, ...]


class Alarmed(Record):
    """Something about this lease that a person must hear."""

    words: str
    level: str
    since: AwareDatetime


class Detail(Record):
    """All that is on record about one lease."""

    row: Row
    lease: Dates
    policy: Policy
    jobs: tuple[Declared, ...]
    events: tuple[Line, ...]
    files: Files | None
    receipt: Receipt | None
    alarms: tuple[Alarmed, ...]


async def detail_of(looks: Looks, name: str) -> Detail:
    """The lease as it is on record now. No box and no provider is asked.

    Raises:
        UnknownLease: there is none of that name.
    """
    tenancy = looks.tenancy
    lease, ledger = tenancy.ledger.lease(name), tenancy.ledger
    seal, events = ledger.seal(lease.id), ledger.events(lease.id)
    last = {
        looks.declared(lease.id, str(d["job"])): LastSeen.model_validate(
            {"at": at} | {k: d.get(k) for k in _LAST}
        )
        for at, kind, d in events
        if kind == Event.PROGRESS and "job" in d
    }
    row = looks.row(lease.id) or row_of(
        # A lease that has ended is not among the rows that are polled.
        on_card(tenancy.context, lease.id),
        lease,
        tenancy.profiles[lease.provider],
        blind=None,
        job=None,
    )
    if row.gpu is None:
        seen = [gpu.name for gpu in readings_of(tenancy.home, lease.id).gpus]
        row = row.model_copy(update={"gpu": gpu_words(seen)})
    return Detail(
        row=row,
        lease=_dates(lease),
        policy=policy_of(tenancy.context, lease.id),
        jobs=tuple(_declared(job, last.get(job.id)) for job in ledger.jobs(lease.id)),
        events=tuple(
            Line(at=at, kind=kind, words=plain(told(kind, detail))) for at, kind, detail in events
        ),
        files=None
        if seal is None
        else _files(seal, ledger.evidence_filed(lease.id, seal.digest), events),
        receipt=ledger.receipt(lease.id),
        alarms=tuple(
            Alarmed(words=a.words, level=Level(a.level).name.lower(), since=a.since)
            for a in ledger.open_alarms_of(lease.id)
        ),
    )


def _dates(lease: Lease) -> Dates:
    return Dates(
        created_at=lease.created_at,
        active_at=lease.active_at,
        ready_at=lease.ready_at,
        parked_at=lease.parked_at,
        ended_at=lease.ended_at,
        deadline_at=lease.terms.deadline_at,
        kept_in=lease.kept_in,
        recovers=lease.recovers,
        fleet=lease.fleet,
        rates=tuple(Rated(at=rate.at, usd_h=rate.usd_h) for rate in lease.rates),
    )


def _declared(job: Job, last: LastSeen | None) -> Declared:
    return Declared(
        id=job.id,
        command=job.command,
        artifacts=job.artifacts,
        discard=job.discard,
        env_names=job.env_names,
        declared_at=job.declared_at,
        launched_at=job.launched_at,
        last=last,
    )


def _files(
    seal: Manifest,
    evidence: Sequence[tuple[datetime, Evidence]],
    events: Sequence[tuple[datetime, str, dict[str, object]]],
) -> Files:
    by_name = {proof.name: (at, proof) for at, proof in evidence}

    def newest(wanted: str) -> datetime | None:
        of_it = (seal.digest,)
        found = [
            at
            for at, kind, d in events
            if kind == wanted and (d.get("seal") in of_it or d.get("digest") in of_it)
        ]
        return found[-1] if found else None

    return Files(
        sealed_at=seal.sealed_at,
        collected_at=newest(Event.COLLECTED),
        verified_at=newest(Event.VERIFIED),
        stored_at=newest(Event.STORED),
        digest=seal.digest,
        total=len(seal.entries),
        bytes=sum(entry.size_bytes for entry in seal.entries),
        shown=tuple(
            File(
                name=entry.name,
                role=entry.role,
                kind=entry.kind,
                size_bytes=entry.size_bytes,
                sha256=entry.sha256,
                evidence=_proved(*by_name[entry.name]) if entry.name in by_name else None,
            )
            for entry in seal.entries[:_FILES]
        ),
        unclaimed=seal.unclaimed,
        discarded=Counted(count=seal.discarded.count, bytes=seal.discarded.size_bytes),
        problems=seal.problems,
        unmatched=seal.unmatched,
    )


def _proved(at: datetime, evidence: Evidence) -> Proved:
    verdict = evidence.verdict
    return Proved(
        at=at,
        where=evidence.where,
        format=verdict.format,
        outcome=verdict.outcome,
        proved=verdict.proved,
        not_proved=verdict.not_proved,
        warnings=verdict.warnings,
        problem=verdict.problem,
    )
