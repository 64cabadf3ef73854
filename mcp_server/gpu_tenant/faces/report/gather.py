"""Gathers the content of a report from this computer's records. No box and no provider is asked."""

import asyncio
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from gpu_tenant.box.environment.history import Recorded
from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing import BYTES, counted_usd, newest_bill
from gpu_tenant.domain.evidence import Evidence
from gpu_tenant.domain.interruption import fate_met
from gpu_tenant.domain.model import Job, Lease, LeaseState, Profile
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.policy import rules_of
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.terms import cost_usd
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.trackers import OFFLINE_RUNS, as_named, link_words
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.wording import NOBODY_BILLS, size, some
from gpu_tenant.faces.report.chart_svg import amount
from gpu_tenant.faces.report.records import (
    Charged,
    Cost,
    Environment,
    EventTold,
    FileTold,
    GivenUp,
    JobTold,
    KeptFiles,
    Report,
)
from gpu_tenant.faces.timeline_text import describe, machine_words
from gpu_tenant.faces.to_do_text import matter_words
from gpu_tenant.files.artifact_directory import SUPERSEDED, is_here
from gpu_tenant.files.direct_io import open_regular
from gpu_tenant.files.paths import below
from gpu_tenant.jobs.metrics import Metrics, Series
from gpu_tenant.jobs.samples import readings_of
from gpu_tenant.jobs.trackers import known_trackers
from gpu_tenant.leases.billing import apart_words, counted_words, covered_until, disagreement
from gpu_tenant.leases.cards import ended_by
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.kept_parked import kept_words
from gpu_tenant.leases.overview import on_card
from gpu_tenant.leases.recovery_plan import gone_on
from gpu_tenant.ledger import Ledger

Charting = Literal["charted", "named"]

_MOST_FILES = 400
_MOST_MOVED = 20
_MOST_JOBS = 40
_MOST_LAST = 4
_MOST_CHARTED = 8
"""The logs of at most this many jobs are read: of the newest ones."""
_LOG_BYTES = 24_000_000
_WINDOW_BYTES = 1_000_000
"""From a longer log only `_LOG_BYTES` are read, in evenly spaced pieces of this size."""


async def report_of(context: Context, lease: str) -> Report:
    """Return the report of the lease by the records up to now. The lease need not have ended.

    Raises:
        UnknownLease: there is no such lease.
    """
    found, ledger = context.ledger.lease(lease), context.ledger
    profile = context.profiles[found.provider]
    now = context.clock.now()
    events, jobs = ledger.events(found.id), ledger.jobs(found.id)
    quoted = found.quote.offer if found.quote else None
    shown = jobs[-_MOST_JOBS:]
    kept_in = Path(found.kept_in or context.home.artifacts_of(found.id))
    logs = (kept_in / "log", context.home.logs / found.id)
    kept = _kept_files(found, ledger, events)
    goes_on = gone_on(ledger, found)
    told_jobs = tuple(
        [
            await _job(job, events, logs, {other.id for other in jobs} - {job.id}, charted)
            for job, charted in _charts(shown)
        ]
    )
    return Report(
        lease=found.id,
        made_at=now,
        provider=found.provider,
        title=profile.title,
        state=found.state,
        is_over=not found.state.live,
        standing=_standing_words(found, events, now),
        to_do=_to_do_words(context, found),
        result=_result_words(told_jobs, ledger.receipt(found.id)),
        proof=_proof_words(kept, is_over=not found.state.live),
        box=None if found.box_id is None else plain(found.box_id),
        gpu=None if quoted is None else f"{plain(quoted.gpu)} x{quoted.gpu_count}",
        machine=_machine(events),
        environment=_environment(events),
        created_at=found.created_at,
        active_at=found.active_at,
        ready_at=_first_ready_at(found, events),
        ended_at=found.ended_at,
        deadline_at=found.terms.deadline_at,
        fleet=found.fleet,
        recovers=found.recovers,
        goes_on_under=goes_on.id if goes_on else None,
        terms=rules_of(found, profile, now=now if found.state.live else None),
        if_this_computer_dies=context.protection(found).words,
        receipt=ledger.receipt(found.id),
        cost=_cost(found, profile, events, now, ledger.receipt(found.id)),
        kept=kept,
        given_up=tuple(_given_up(jobs, events)),
        jobs=told_jobs,
        jobs_left_out=len(jobs) - len(shown),
        readings=await asyncio.to_thread(readings_of, context.home, found.id),
        events=tuple(
            EventTold(at=line.at, kind=line.kind, words=describe(line.event)) for line in events
        ),
    )


def _first_ready_at(lease: Lease, events: Lines) -> datetime | None:
    """Return when the box first let us in. The lease's `ready_at` may be later: it is that of the newest start."""
    return next((at for at, event in events if isinstance(event, timeline.Ready)), lease.ready_at)


def _standing_words(lease: Lease, events: Lines, now: datetime) -> str:
    match lease.state:
        case LeaseState.GONE:
            why = ended_by(events)
            because = f" It was ended: {plain(why)}." if why else ""
            return f"It is over: its provider lists no such box, seen twice.{because}"
        case LeaseState.VOID:
            return "It is over, and never had a box: there is no receipt, as nothing was destroyed."
        case LeaseState.LOST:
            return "It is over: its provider lists the box no more, and nobody here ended it. There is no receipt."
        case LeaseState.TERMINATING:
            return "It is not over: its end has begun, the meter may be running, and there is no receipt yet."
        case _:
            kept = kept_words(lease, events)
            why = f" {kept[0].upper()}{plain(kept[1:])}." if kept else ""
            return (
                f"It is not over: this is how it stood at {now:%Y-%m-%d %H:%M} UTC.{why} The meter may be "
                "running, and there is no receipt yet."
            )


def _to_do_words(context: Context, lease: Lease) -> str | None:
    shown = on_card(context, lease.id)
    to_do = shown.condition.to_do
    return None if to_do is None else plain(f"{matter_words(shown, to_do)}: {shown.next}")


def _result_words(jobs: Sequence[JobTold], receipt: Receipt | None) -> str:
    """Say how the newest job ended, the verdict on the work, and the last metrics."""
    if not jobs:
        return "no job was declared"
    newest = jobs[-1]
    last = [
        f"{plain(name)} {amount(known[-1], 'number')}"
        for name, series in newest.metrics.items()
        if (known := [value for value in series.values if value is not None])
    ]
    seen = newest.last_seen or f"{newest.id}: nobody has looked"
    outcome = receipt.outcome if receipt is not None else None
    judged = [f"the work: {plain(outcome.words)}"] if outcome is not None else []
    return "; ".join([seen, *judged, *last[:_MOST_LAST]])


def _proof_words(kept: KeptFiles | None, *, is_over: bool) -> str:
    """Say what was proved about the kept files."""
    if kept is None:
        return "nothing was sealed, so nothing is proved"
    if kept.verified_at is None:
        return f"{some(kept.total, 'file')} sealed, and none re-read: collected is not verified"
    unclaimed = f"; {some(kept.unclaimed, 'unclaimed file')}" if kept.unclaimed else ""
    lost = ", lost with the box" if kept.unclaimed and is_over else ""
    return (
        f"{kept.proved} of {some(kept.total, 'file')} ({size(kept.total_bytes)}) re-read and equal to "
        f"the seal, {kept.verified_at:%Y-%m-%d %H:%M} UTC{unclaimed}{lost}"
    )


# What it ran on


def _machine(events: Lines) -> str | None:
    audits = [event for _, event in events if isinstance(event, timeline.Audited)]
    return machine_words(audits[-1]) if audits else None


def _environment(events: Lines) -> Environment | None:
    made = [event for _, event in events if isinstance(event, timeline.Prepared) and event.record]
    if not made:
        return None
    record = Recorded.model_validate(made[-1].record)
    return Environment(
        python_version=plain(record.python_version),
        installer=plain(record.installer),
        packages=tuple(map(plain, record.freeze)),
    )


# What it cost


def _cost(
    lease: Lease, profile: Profile, events: Lines, now: datetime, receipt: Receipt | None
) -> Cost:
    # A box counts as billing until it was first seen to be gone. The second check only confirms this.
    until = receipt.first_absent_at if receipt else min(lease.ended_at or now, now)
    billed = newest_bill(events)
    ends = [rate.at for rate in lease.rates[1:]] + [until]
    rates = [
        Charged(
            since=rate.at,
            until=max(rate.at, min(end, until)),
            usd_h=rate.usd_h,
            usd=None
            if (usd := cost_usd((rate,), since=None, until=max(rate.at, min(end, until)))) is None
            else usd.quantize(USD_STEP),
        )
        for rate, end in zip(lease.rates, ends, strict=False)
    ]
    words = counted_words(lease, profile, billed)
    spent = counted_usd(lease, now, billed=billed, receipt=receipt)
    return Cost(
        spent_usd=spent,
        budget_usd=lease.terms.budget_usd,
        max_price_usd_h=lease.terms.max_price_usd_h,
        rates=tuple(rates),
        parked_s=_time_parked(events, until).total_seconds(),
        counts=receipt.counts if receipt and receipt.counts else words,
        not_counted=() if words == NOBODY_BILLS else tuple(_not_counted(lease, rates)),
        billed_usd=billed.usd if billed else None,
        billed_until=covered_until(lease, billed) if billed else None,
        billed_parts={plain(part): usd for part, usd in billed.by_part.items()} if billed else {},
        billed_by=plain(billed.words) if billed else None,
        difference=disagreement(lease, billed, until=until)
        or apart_words(
            lease,
            spent and spent.quantize(USD_STEP),
            billed,
            until="now" if lease.state.live else "it was seen gone",
        )
        if billed
        else None,
    )


def _time_parked(events: Lines, until: datetime) -> timedelta:
    """Return for how long the lease's box was parked, by our own record."""
    total, since = timedelta(), None
    for at, event in events:
        if isinstance(event, timeline.Parked):
            since = since or at
        elif isinstance(event, timeline.Resumed) and since is not None:
            total, since = total + (at - since), None
    return total + max(timedelta(), until - since) if since is not None else total


def _not_counted(lease: Lease, rates: Sequence[Charged]) -> Iterator[str]:
    for rate in rates:
        if rate.usd_h is None:
            yield f"from {rate.since:%Y-%m-%d %H:%M} to {rate.until:%Y-%m-%d %H:%M} UTC the rate is unknown"
    price = lease.quote.offer.price if lease.quote else None
    if price is None or not price.has_free_bytes:
        yield f"{BYTES} moved, beyond what its provider's bill says of them"
    yield "taxes, and whatever bills in the account besides this box: volumes, addresses, snapshots"


# What was kept


def _kept_files(lease: Lease, ledger: Ledger, events: Lines) -> KeptFiles | None:
    seal = ledger.seal(lease.id)
    if seal is None:
        return None
    filed = {one.name: (at, one) for at, one in ledger.evidence_filed(lease.id, seal.digest)}
    files = [_file(entry, *filed.get(entry.name, (None, None))) for entry in seal.entries]
    files.sort(key=lambda one: (one.outcome == "loads", one.outcome is not None, one.name))
    verified = [
        at
        for at, event in events
        if isinstance(event, timeline.Reread) and event.digest == seal.digest
    ]
    return KeptFiles(
        digest=seal.digest,
        sealed_at=datetime.fromtimestamp(seal.sealed_at, UTC),
        verified_at=verified[-1] if verified else None,
        kept_in=lease.kept_in,
        total=len(files),
        total_bytes=sum(one.size_bytes for one in files),
        proved=sum(1 for one in files if one.outcome in ("loads", "opaque")),
        files=tuple(files[:_MOST_FILES]),
        left_out=max(0, len(files) - _MOST_FILES),
        unclaimed=seal.unclaimed.count,
        unclaimed_bytes=seal.unclaimed.size_bytes,
        discarded=tuple(
            (plain(one.pattern), one.count, one.size_bytes) for one in seal.discarded.patterns
        ),
        problems=tuple(_problems(seal, ledger.demanded_patterns(lease.id))),
        moved=tuple(_moved(lease, seal)),
    )


def _moved(lease: Lease, seal: Manifest) -> Iterator[str]:
    """If a later `collect` into the same directory moved kept files away, say where each is now.

    Only files in the directory of moved files are read, and only if their size is right.
    """
    aside = sorted(Path(lease.kept_in or "").glob(f"{SUPERSEDED}/*")) if lease.kept_in else []
    entries = seal.entries if aside else ()
    told = 0
    for entry in entries:
        found = next((place for place in reversed(aside) if _may_be(place, entry)), None)
        if found is None or not is_here(found, entry) or is_here(Path(str(lease.kept_in)), entry):
            continue
        told += 1
        if told <= _MOST_MOVED:
            name = plain(entry.name)
            yield f"{name} lies in {found} now: a later collect brought another file of that name"
    if told > _MOST_MOVED:
        yield f"and {told - _MOST_MOVED} more files lie below {Path(str(lease.kept_in)) / SUPERSEDED} now"


def _may_be(place: Path, entry: SealedFile) -> bool:
    """Whether there is a file of that name and size."""
    try:
        seen = below(place, entry.name).lstat()
    except (OSError, ValueError):
        return False
    return entry.kind == "link" or seen.st_size == entry.size_bytes


def _file(entry: SealedFile, read_at: datetime | None, evidence: Evidence | None) -> FileTold:
    verdict = evidence.verdict if evidence else None
    return FileTold(
        name=plain(entry.name),
        role=entry.role,
        kind=entry.kind,
        size_bytes=entry.size_bytes,
        sha256=entry.sha256,
        where=evidence.where if evidence else None,
        read_at=read_at,
        format=plain(verdict.format) if verdict else None,
        outcome=verdict.outcome if verdict else None,
        proved=tuple(map(plain, verdict.proved)) if verdict else (),
        not_proved=tuple(map(plain, verdict.not_proved)) if verdict else (),
        warnings=tuple(map(plain, verdict.warnings)) if verdict else (),
        problem=plain(verdict.problem) if verdict and verdict.problem else None,
    )


def _problems(seal: Manifest, demanded: Collection[str]) -> Iterator[str]:
    for problem in seal.unsealed:
        yield plain(f"{problem.at}: {problem.why}, {problem.detail}")
    for pattern in seal.unmatched:
        if pattern in OFFLINE_RUNS and pattern not in demanded:
            continue  # Nobody declared this pattern. It is added by default, and need not match.
        yield plain(f"{pattern}: it was declared, and nothing of the kind was there")


def _given_up(jobs: Sequence[Job], events: Lines) -> Iterator[GivenUp]:
    found = [
        GivenUp(
            at=job.declared_at,
            by=f"the declaration of the job {plain(job.id)}",
            what=tuple(map(plain, named)),
        )
        for job in jobs
        if (named := as_named(job.artifacts, job.discard)[1])
    ]
    for at, event in events:
        match event:
            case timeline.Claimed(discard=given_up) if given_up:
                what = tuple(map(plain, given_up))
                found.append(GivenUp(at=at, by="a later word, by name", what=what))
            case timeline.Waived(by=who, losses=losses):
                by = f"the signature of {plain(who)}"
                found.append(GivenUp(at=at, by=by, what=tuple(map(plain, losses))))
            case timeline.WaivedAhead(by=who):
                by = f"the signature of {plain(who)}, in advance"
                what = ("what cannot be saved by its end",)
                found.append(GivenUp(at=at, by=by, what=what))
            case _:
                pass
    yield from sorted(found, key=lambda one: one.at)


# Its jobs


def _charts(jobs: Sequence[Job]) -> Iterator[tuple[Job, Charting]]:
    for number, job in enumerate(jobs):
        yield job, "charted" if number >= len(jobs) - _MOST_CHARTED else "named"


async def _job(
    job: Job,
    events: Lines,
    logs: Sequence[Path],
    others: Collection[str],
    charting: Charting,
) -> JobTold:
    seen = [
        event
        for _, event in events
        if isinstance(event, timeline.Progressed | timeline.Stopped | timeline.JobEnded)
        and event.job == job.id
    ]
    metrics: dict[str, Series] = {}
    words = f"none: this log was not read, because there are {_MOST_CHARTED} newer jobs or more"
    if charting == "charted":
        metrics, words = await asyncio.to_thread(_metrics, job, logs, others)
    artifacts, discard = as_named(job.artifacts, job.discard)
    last = describe(seen[-1]) if seen else None
    cause = story_of(events).job(job.id).stop_cause
    if last and cause and isinstance(seen[-1], timeline.Progressed) and seen[-1].state == "stopped":
        last = f"{last.removesuffix('.')}: {cause.sentence}."
    met = fate_met(events, job.id)
    if met is not None and not (seen and isinstance(seen[-1], timeline.JobEnded)):
        taken = f"its provider took the box ({met[1]}) while it ran, as was seen at {met[0]:%Y-%m-%d %H:%M} UTC"
        last = f"{last.removesuffix('.')}: {taken}" if last else f"The job {plain(job.id)}: {taken}"
    return JobTold(
        id=plain(job.id),
        command=plain(job.command),
        artifacts=tuple(map(plain, artifacts)),
        discard=tuple(map(plain, discard)),
        env_names=tuple(map(plain, job.env_names)),
        declared_at=job.declared_at,
        launched_at=job.launched_at,
        last_seen=last,
        trackers=tuple(map(link_words, known_trackers(events, job.id))),
        metrics=metrics,
        metrics_from=words,
    )


def _metrics(
    job: Job, logs: Sequence[Path], others: Collection[str]
) -> tuple[dict[str, Series], str]:
    """Read the job's metrics from its log, if we have the log. Also say how much of the log was read."""
    for place in logs:
        opened = open_regular(_latest(place, job.id, others))
        if opened is None:
            continue
        metrics = Metrics()
        with suppress(OSError), os.fdopen(opened, "rb") as file:
            whole = os.fstat(file.fileno()).st_size
            for start in _starts(whole):
                file.seek(start)
                held = file.read(_WINDOW_BYTES)
                if whole > _LOG_BYTES:
                    # The log between two pieces is not read, so the incomplete lines at the ends of
                    # a piece are dropped.
                    held = b"\n" + held.partition(b"\n")[2].rpartition(b"\n")[0] + b"\n"
                metrics.feed(held.decode("utf-8", "replace"))
            metrics.end()
            part = f", {size(_LOG_BYTES)} of it evenly apart" if whole > _LOG_BYTES else ""
            series = metrics.series()
            return series, f"{'from' if series else 'none in'} its log, {size(whole)}{part}"
    return {}, "none: its log is not on this computer"


def _latest(place: Path, job: str, others: Collection[str]) -> Path:
    """Return the path of the log of the job's latest run. For a cell of a sweep, this is the last attempt."""
    is_run = re.compile(rf"{re.escape(job)}\.(\d+)\.log")
    runs = [
        (int(run[1]), path)
        for path in place.glob("*.log")
        if (run := is_run.fullmatch(path.name)) and path.name.removesuffix(".log") not in others
    ]
    return max(runs)[1] if runs else place / f"{job}.log"


def _starts(whole: int) -> list[int]:
    if whole <= _LOG_BYTES:
        return list(range(0, whole, _WINDOW_BYTES))
    pieces = _LOG_BYTES // _WINDOW_BYTES
    return [i * (whole - _WINDOW_BYTES) // (pieces - 1) for i in range(pieces)]
