"""The page's view of one lease: its terms, jobs and timeline, and all files, with what was proved about each."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.evidence import Evidence
from gpu_tenant.domain.gpu_memory import Fit
from gpu_tenant.domain.model import Declared, Lease
from gpu_tenant.domain.policy import Policy
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.seal import Manifest, Problem, Unclaimed
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.faces.dashboard.lease_rows import LastSeen, LeaseRow, ended_of, gpu_words, row_of
from gpu_tenant.faces.dashboard.poller import Looks
from gpu_tenant.faces.timeline_text import describe
from gpu_tenant.jobs.samples import readings_of
from gpu_tenant.leases.overview import on_card
from gpu_tenant.leases.provision import memory_wanted
from gpu_tenant.leases.ssh_access import enterable, owner_ssh
from gpu_tenant.leases.ssh_config import inclusion
from gpu_tenant.leases.terms_in_force import policy_of
from gpu_tenant.ledger import Ledger

_FILES = 5_000
"""At most this many files are listed. The rest are counted."""


class Rated(Record):
    """The rate of the lease from `at` on."""

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


class JobSeen(Declared):
    """A job as it was declared, and its last known state."""

    last: LastSeen | None


class Line(Record):
    """One line of the ledger's timeline."""

    at: AwareDatetime
    kind: str
    words: str


class Proved(Record):
    """What was proved by reading a kept file again."""

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
    """A number of files, and their size in bytes."""

    count: int
    bytes: int


class Files(Record):
    """The files of the newest seal, and how many of them were proved."""

    sealed_at: float
    collected_at: AwareDatetime | None = Field(
        description="when everything had arrived, each file with the hash that the seal has"
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


class MemoryWanted(Record):
    """How much GPU memory the job needs, as estimated by the smoke test with which the lease was rented."""

    smoke: str
    figures: str = Field(description="the estimate, with the lowest and the highest value")
    words: str = Field(description="how it was estimated, or a warning if the GPU may be too small")
    fit: Fit | None = Field(description="None: the memory of its GPU is unknown")


class Alarmed(Record):
    """An alarm about this lease."""

    words: str
    level: str
    since: AwareDatetime


class Detail(Record):
    """All that is recorded about one lease."""

    at: AwareDatetime = Field(description="when the figures of its row were true")
    row: LeaseRow
    login: Literal["none", "ours", "plain"] = Field(
        description="how a person's ssh reaches its box: not at all, by `gpu-tenant ssh`, or by plain `ssh` as well"
    )
    lease: Dates
    policy: Policy
    jobs: tuple[JobSeen, ...]
    events: tuple[Line, ...]
    files: Files | None
    receipt: Receipt | None
    memory: MemoryWanted | None = Field(description="None: no smoke test has estimated it")
    alarms: tuple[Alarmed, ...]


async def detail_of(looks: Looks, name: str) -> Detail:
    """Return all that is recorded about the lease now. No box and no provider is asked.

    Raises:
        UnknownLease: there is no lease of that name.
    """
    tenancy = looks.tenancy
    lease, ledger = tenancy.ledger.lease(name), tenancy.ledger
    seal, events = ledger.seal(lease.id), ledger.events(lease.id)
    last = {
        looks.declared_id(lease.id, event.job): LastSeen(
            at=at,
            state=event.state,
            fraction=event.fraction,
            done=event.done,
            total=event.total,
        )
        for at, event in events
        if isinstance(event, timeline.Progressed)
    }
    last |= looks.states_on(lease.id)
    looked = looks.row(lease.id)
    row = looked or row_of(
        # A lease that has ended has no row in the poller, so make one.
        card := on_card(tenancy.context, lease.id),
        lease,
        tenancy.profiles[lease.provider],
        blind=None,
        job=None,
        ended=ended_of(card, ledger),
    )
    if row.gpu is None:
        seen = [gpu.name for gpu in readings_of(tenancy.home, lease.id).gpus]
        row = row.model_copy(update={"gpu": gpu_words(seen)})
    return Detail(
        at=looks.looked_at if looked else tenancy.clock.now(),
        row=row,
        login=_login(looks, lease),
        lease=_dates(lease),
        policy=policy_of(tenancy.context, lease.id),
        jobs=tuple(
            JobSeen(**job.model_dump(include=set(Declared.model_fields)), last=last.get(job.id))
            for job in ledger.jobs(lease.id)
        ),
        events=tuple(
            Line(at=line.at, kind=line.kind, words=plain(describe(line.event))) for line in events
        ),
        files=None
        if seal is None
        else _files(seal, ledger.evidence_filed(lease.id, seal.digest), events),
        receipt=ledger.receipt(lease.id),
        memory=_memory(lease, ledger),
        alarms=tuple(
            Alarmed(words=a.words, level=Level(a.level).name.lower(), since=a.since)
            for a in ledger.open_alarms_of(lease.id)
        ),
    )


def _memory(lease: Lease, ledger: Ledger) -> MemoryWanted | None:
    wanted = memory_wanted(lease, ledger=ledger)
    if wanted is None:
        return None
    vram_gib = lease.quote.offer.vram_gib if lease.quote else None
    return MemoryWanted(
        smoke=wanted.smoke,
        figures=wanted.memory.figures,
        words=wanted.memory.warning(vram_gib, wanted.smoke) or wanted.memory.words,
        fit=wanted.memory.fit(vram_gib),
    )


def _login(looks: Looks, lease: Lease) -> Literal["none", "ours", "plain"]:
    context = looks.tenancy.context
    if lease.id not in {one.id for one in enterable(context)}:
        return "none"
    return "plain" if inclusion(context.home, owner_ssh()).done else "ours"


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


def _files(
    seal: Manifest,
    evidence: Sequence[tuple[datetime, Evidence]],
    events: Lines,
) -> Files:
    by_name = {proof.name: (at, proof) for at, proof in evidence}

    collected = verified = stored = None
    for at, event in events:
        match event:
            case timeline.Collected(seal=seal.digest):
                collected = at
            case timeline.Reread(digest=seal.digest):
                verified = at
            case timeline.Stored(seal=seal.digest):
                stored = at
            case _:
                pass
    return Files(
        sealed_at=seal.sealed_at,
        collected_at=collected,
        verified_at=verified,
        stored_at=stored,
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
                evidence=_proved_file(*by_name[entry.name]) if entry.name in by_name else None,
            )
            for entry in seal.entries[:_FILES]
        ),
        unclaimed=seal.unclaimed,
        discarded=Counted(count=seal.discarded.count, bytes=seal.discarded.size_bytes),
        problems=seal.problems,
        unmatched=seal.unmatched,
    )


def _proved_file(at: datetime, evidence: Evidence) -> Proved:
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
