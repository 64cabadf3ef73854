"""One lease whole: its terms, jobs, story, and every file with what was proved of it."""

from collections.abc import Sequence

from pydantic import AwareDatetime

from gpu_tenant.alarms import Level
from gpu_tenant.boxtext import plain
from gpu_tenant.dashboard.looks import Looks
from gpu_tenant.dashboard.rows import Row, row_of
from gpu_tenant.model import Evidence, Job, Lease, Manifest, Problem, Receipt, Unclaimed
from gpu_tenant.policy import Policy
from gpu_tenant.record import Record, Usd
from gpu_tenant.story import told

_FILES = 5_000
"""So many are listed; the rest is counted."""


class Rated(Record):
    """What the lease costs from then on."""

    at: AwareDatetime
    usd_h: Usd


class Dates(Record):
    """When what happened to the lease."""

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


class Declared(Record):
    """A job as it was declared; no value of its environment."""

    id: str
    command: str
    artifacts: tuple[str, ...]
    discard: tuple[str, ...]
    env_names: tuple[str, ...]
    declared_at: AwareDatetime
    launched_at: AwareDatetime | None


class Line(Record):
    """One line of the ledger's timeline."""

    at: AwareDatetime
    kind: str
    words: str


class Proved(Record):
    """What re-reading a kept file has proved."""

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
    """The newest seal, and what of it was proved."""

    sealed_at: float
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
    """All that is on record of one lease."""

    row: Row
    lease: Dates
    policy: Policy
    jobs: tuple[Declared, ...]
    events: tuple[Line, ...]
    files: Files | None
    receipt: Receipt | None
    alarms: tuple[Alarmed, ...]


async def detail_of(looks: Looks, name: str) -> Detail:
    """The lease as it is on record now; nobody is asked.

    Raises:
        UnknownLease: there is none of that name.
    """
    tenancy = looks.tenancy
    lease, ledger = tenancy.ledger.lease(name), tenancy.ledger
    seal = ledger.seal(lease.id)
    return Detail(
        # One that has ended is not among those looked at.
        row=looks.row(lease.id)
        or row_of(
            tenancy.on_card(lease.id), lease, tenancy.profiles[lease.provider], blind=None, job=None
        ),
        lease=_dates(lease),
        policy=tenancy.policy(lease.id),
        jobs=tuple(map(_declared, ledger.jobs(lease.id))),
        events=tuple(
            Line(at=at, kind=kind, words=plain(told(kind, detail)))
            for at, kind, detail in ledger.events(lease.id)
        ),
        files=None if seal is None else _files(seal, ledger.evidence(lease.id, seal.digest)),
        receipt=ledger.receipt(lease.id),
        alarms=tuple(
            Alarmed(words=a.words, level=Level(a.level).name.lower(), since=a.since)
            for a in ledger.open_alarms_of(lease.id)
        ),
    )


def _dates(lease: Lease) -> Dates:
    return Dates(
        created_at=lease.created_at, active_at=lease.active_at, ready_at=lease.ready_at,
        parked_at=lease.parked_at, ended_at=lease.ended_at, deadline_at=lease.terms.deadline_at,
        kept_in=lease.kept_in, recovers=lease.recovers, fleet=lease.fleet,
        rates=tuple(Rated(at=rate.at, usd_h=rate.usd_h) for rate in lease.rates),
    )  # fmt: skip


def _declared(job: Job) -> Declared:
    return Declared(
        id=job.id, command=job.command, artifacts=job.artifacts, discard=job.discard,
        env_names=job.env_names, declared_at=job.declared_at, launched_at=job.launched_at,
    )  # fmt: skip


def _files(seal: Manifest, evidence: Sequence[Evidence]) -> Files:
    by_name = {proof.name: proof for proof in evidence}
    return Files(
        sealed_at=seal.sealed_at,
        digest=seal.digest,
        total=len(seal.entries),
        bytes=sum(entry.size_bytes for entry in seal.entries),
        shown=tuple(
            File(
                name=entry.name, role=entry.role, kind=entry.kind, size_bytes=entry.size_bytes,
                sha256=entry.sha256,
                evidence=_proved(by_name[entry.name]) if entry.name in by_name else None,
            )
            for entry in seal.entries[:_FILES]
        ),
        unclaimed=seal.unclaimed,
        discarded=Counted(count=seal.discarded.count, bytes=seal.discarded.size_bytes),
        problems=seal.problems,
        unmatched=seal.unmatched,
    )  # fmt: skip


def _proved(evidence: Evidence) -> Proved:
    verdict = evidence.verdict
    return Proved(
        where=evidence.where, format=verdict.format, outcome=verdict.outcome, proved=verdict.proved,
        not_proved=verdict.not_proved, warnings=verdict.warnings, problem=verdict.problem,
    )  # fmt: skip
