"""Reads the state of a job without disturbing it: how far it is, what is new in its log, and what it costs."""

from __future__ import annotations

import codecs
import re
import secrets
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from gpu_tenant.artifacts.left_behind import Missing, missing_on_box
from gpu_tenant.box.caretaker import ENDED, JobState, JobStatus
from gpu_tenant.box.script_replies import make_room
from gpu_tenant.box.session import Session
from gpu_tenant.box.setup_record import commands_of, setup_job, setup_jobs
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import Job, JobId, Lease
from gpu_tenant.domain.policy import LookedAfter
from gpu_tenant.domain.ports import Clock
from gpu_tenant.domain.reconcile import overdue
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.rhythm import silence_of
from gpu_tenant.domain.stop_cause import StopCause
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.terms import GRACE_S
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.trackers import link_words
from gpu_tenant.domain.untrusted_text import fence, plain, quote_text
from gpu_tenant.jobs.cost_forecast import ExitReason, keep_course
from gpu_tenant.jobs.progress import Progress, read_progress, whole_lines
from gpu_tenant.jobs.trackers import trackers_of
from gpu_tenant.ledger import Ledger

if TYPE_CHECKING:
    from gpu_tenant.jobs.failure_cause import BoxSeen

_BOX_TIME = re.compile(r"\bat \d{10,}(?:\.\d+)?")
_POLL_S = 1.0
_DIAGNOSED_BYTES = 32768
_DISK_LOW_BYTES = 1 << 30
"""If less disk is free than this, a checkpoint may not fit."""


class Gpu(Record):
    """One GPU at this moment."""

    index: int
    name: str
    util_pct: float | None
    mem_used_mib: float | None
    mem_total_mib: float | None
    temp_c: float | None


class Watched(Record):
    """One look at a job. Pass `cursor` to the next call, to get only what is new in the log."""

    lease: str
    job: str
    state: JobState
    exit_code: int | None
    why: str | None
    progress: Progress | None
    log: str
    cursor: int
    log_skipped_bytes: int
    log_size_bytes: int
    gpus: tuple[Gpu, ...]
    memory_used_bytes: int | None
    memory_limit_bytes: int | None
    disk_free_bytes: int | None
    running_s: float | None
    cost_usd: Decimal | None
    nobody_bills: bool = Field(default=False, description="why `cost_usd` is unknown")
    deadline_in_s: float
    alarm: str | None
    cadence: str | None = Field(
        default=None, description="how often it should save, as seen so far"
    )
    trackers: tuple[str, ...] = Field(
        default=(), description="pages that its log names; the log may lie"
    )
    budget_end: str | None = Field(
        default=None, description="when the budget ends the lease, if before its deadline"
    )
    outlook: str | None = Field(
        default=None, description="whether it ends before its lease, and what gives it more time"
    )
    gang: str | None = Field(
        default=None, description="if the job runs over several leases, its state on the others"
    )
    next: str


async def watch(
    session: Session,
    run: JobId,
    *,
    cursor: int | None,
    wait_s: float,
    limit_bytes: int,
    ledger: Ledger,
    looked_after: LookedAfter,
    box: BoxSeen | None = None,
) -> Watched:
    """Return the state of the job that the box knows by that name, and the part of its log after byte `cursor`.

    At most `limit_bytes` of the log are returned: the newest. With `wait_s`, the call returns when the job has ended,
    or after that time.
    """
    until = ledger.now() + timedelta(seconds=wait_s)
    log = bytearray()
    offset, skipped = (-limit_bytes if cursor is None else cursor), 0
    while True:
        status = await session.caretaker.status(
            run, offset=offset, limit=limit_bytes, sample="sample"
        )
        if status.log is not None:
            if status.log.truncated:
                log.clear()
            log += status.log.raw
            offset = status.log.next_offset
        behind = status.log_bytes - offset
        if behind > limit_bytes:
            # The log grows faster than it is read: skip to its newest part.
            skipped += len(log) + behind - limit_bytes
            log.clear()
            offset = status.log_bytes - limit_bytes
        elif behind <= 0:
            left_s = (until - ledger.now()).total_seconds()
            if status.state in ENDED or status.state == "absent" or left_s <= 0:
                break
            await ledger.clock.follow(min(_POLL_S, left_s))
    if len(log) > limit_bytes:
        skipped += len(log) - limit_bytes
        del log[:-limit_bytes]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = plain(decoder.decode(bytes(log), status.state in ENDED))
    # If only some bytes of a character have arrived, the next call returns the whole character.
    offset -= len(decoder.getstate()[0])
    is_cut = cursor is None and offset > len(log)
    why = await _why(status, bytes(log), session, box, ledger)
    progress = read_progress(whole_lines(text) if is_cut else text)
    cost_usd = ledger.cost_usd(session.lease, ledger.now())
    seen = _answer(
        session.lease,
        status,
        why,
        text,
        progress,
        offset,
        skipped,
        clock=ledger.clock,
        cost_usd=cost_usd,
        nobody_bills=cost_usd is None and session.profile.kind == "own",
        looked_after=looked_after,
    )
    if seen.state == "absent":
        return seen
    keep_course(
        session.lease.id,
        run,
        seen.state,
        seen.progress,
        ledger=ledger,
        at=ledger.now(),
        end=ExitReason(status.exit_code, why.cause, why.evidence),
    )
    reaches: Literal["head", "tail"] = "tail" if is_cut or skipped > 0 else "head"
    links = await trackers_of(session, run, text, reaches=reaches, ledger=ledger)
    return seen.model_copy(update={"trackers": tuple(map(link_words, links))})


def fence_log(seen: Watched) -> Watched:
    """Put the log, and the links that it contains, between tags that mark them as text from the box."""
    fenced = {"log": seen.log, "trackers": "\n".join(seen.trackers)}
    told = {name: fence(text, nonce=secrets.token_hex(4)) for name, text in fenced.items() if text}
    if "trackers" in told:
        return seen.model_copy(update={**told, "trackers": (told["trackers"],)})
    return seen.model_copy(update=told)


def job_of(lease: Lease, name: str | None, *, ledger: Ledger) -> Job:
    """Find the job with that name, or the newest job if no name is given.

    Raises:
        BadRequest: there is no such job.
    """
    jobs = ledger.jobs(lease.id)
    events = ledger.events(lease.id) if name is not None or not jobs else ()
    if setups := [one for one in setup_jobs(events) if name in (None, one)]:
        return setup_job(lease, setups[-1], commands_of(ledger, lease), ledger=ledger)
    chosen = [job for job in jobs if name in (None, job.id)]
    if not chosen:
        lacks = (
            f"{lease.id} has no job {name} (known: {', '.join(job.id for job in jobs)})"
            if jobs
            else f"{lease.id} has no job: none was ever launched on it"
        )
        raise BadRequest(
            lacks,
            remedy=str(
                Command("monitor", lease=lease.id, job=jobs[-1].id)
                if jobs
                else Command("launch", lease=lease.id, artifact="PATTERN", then="COMMAND")
            ),
        )
    return chosen[-1]


def _answer(
    lease: Lease,
    status: JobStatus,
    why: _Why,
    text: str,
    progress: Progress | None,
    cursor: int,
    skipped: int,
    *,
    clock: Clock,
    cost_usd: Decimal | None,
    nobody_bills: bool,
    looked_after: LookedAfter,
) -> Watched:
    sample = status.sample
    running = None
    ended_at = status.ended_at if status.state in ENDED else status.now
    if status.started_at is not None and ended_at is not None:
        # If the box was taken away or restarted, nobody saw the job's end, and it is unknown how long it ran.
        running = round(ended_at - status.started_at, 1)
    return Watched(
        lease=lease.id,
        job=status.job,
        state=status.state,
        exit_code=status.exit_code,
        why=why.words,
        progress=progress,
        log=text,
        log_skipped_bytes=skipped,
        cursor=cursor,
        log_size_bytes=status.log_bytes,
        gpus=tuple(
            Gpu(
                index=gpu.index,
                name=plain(gpu.name),
                util_pct=gpu.util_pct,
                mem_used_mib=gpu.mem_used_mib,
                mem_total_mib=gpu.mem_total_mib,
                temp_c=gpu.temp_c,
            )
            for gpu in (sample.gpus if sample else ())
        ),
        memory_used_bytes=sample.mem_used_bytes if sample else None,
        memory_limit_bytes=sample.mem_limit_bytes if sample else None,
        disk_free_bytes=sample.disk_free_bytes if sample else None,
        running_s=running,
        cost_usd=cost_usd,
        nobody_bills=nobody_bills,
        deadline_in_s=round((lease.terms.deadline_at - clock.now()).total_seconds()),
        alarm="; ".join(
            filter(
                None,
                (
                    overdue(lease, clock.now()),
                    _short_of_disk(status, lease),
                    _left_alive(status),
                    _silent(status),
                ),
            )
        )
        or None,
        next=why.next(lease) or _next(status, lease, looked_after),
    )


class _Why(NamedTuple):
    """Why a job ended, and what makes it possible to name the next step: the term that stopped it, or missing files."""

    words: str | None = None
    stopped_for: StopCause | None = None
    missing: Missing | None = None
    cause: str | None = None
    evidence: str | None = None

    def next(self, lease: Lease) -> str | None:
        """Return the step that solves what ended the job. None if no such step is known."""
        home = Command("collect", lease.id)
        if self.stopped_for is not None:
            more = self.stopped_for.more(lease.id)
            return (
                f"{home} brings what it wrote; to continue on this box: {more}, and launch it again"
            )
        if self.missing is not None:
            return f"{self.missing.push}, then launch it again"
        return None


async def _why(
    status: JobStatus, held: bytes, session: Session, box: BoxSeen | None, ledger: Ledger
) -> _Why:
    """Judge why a job ended, by the end of its log. `held` is the part of the log that has been read."""
    if status.state == "lingering" and status.reason is not None:
        return _Why(f"its command has ended: {quote_text(status.reason.evidence)}")
    if status.state not in ENDED or status.state == "finished":
        return _Why()
    if len(held) < min(status.log_bytes, _DIAGNOSED_BYTES):
        end = await session.caretaker.status(
            JobId(status.job), offset=-_DIAGNOSED_BYTES, limit=_DIAGNOSED_BYTES, sample="plain"
        )
        held = end.log.raw if end.log else b""
    # Imported here, because compiling the patterns of failures takes long, and most calls are for a job that runs.
    from gpu_tenant.jobs.failure_cause import diagnose

    log, events = (
        held[-_DIAGNOSED_BYTES:].decode("utf-8", "replace"),
        ledger.events(session.lease.id),
    )
    stopped_for = story_of(events).job(status.job).stop_cause if status.state == "stopped" else None
    if not ledger.clock.shared_with_boxes:
        status = _stopped_by_our_clock(status, events)
    missing = missing_on_box(session.lease, log, ledger=ledger)
    found = diagnose(status, log, box=box, stopped_for=stopped_for, missing=missing)
    if found is None:
        return _Why()
    is_left_out = found.verdict == "left_out"
    return _Why(
        str(found.of(session.lease.id)),
        stopped_for,
        missing if is_left_out else None,
        found.verdict,
        found.evidence,
    )


def _stopped_by_our_clock(status: JobStatus, events: Lines) -> JobStatus:
    """Return the status with the time of the last stop by the ledger's clock. In a rehearsal, boxes have another."""
    asked = [
        at
        for at, event in events
        if isinstance(event, timeline.Stopped) and event.job == status.job
    ]
    if not asked or status.reason is None or status.state != "stopped":
        return status
    at = _BOX_TIME.sub(f"at {asked[-1].timestamp():.3f}", status.reason.evidence)
    return status.model_copy(update={"reason": status.reason.model_copy(update={"evidence": at})})


def _short_of_disk(status: JobStatus, lease: Lease) -> str | None:
    """Say that the box's disk is nearly full, and how to make room. None if there is room, or if that is unknown."""
    free = status.sample.disk_free_bytes if status.sample else None
    if free is None or free >= _DISK_LOW_BYTES:
        return None
    return (
        f"the disk of the box has {free / 1e6:,.0f} MB left, and a file that is written now may be cut short: "
        f"{make_room(lease.id)}"
    )


def _left_alive(status: JobStatus) -> str | None:
    """Say that the command failed while processes that it started live on, as a dead launcher leaves its workers."""
    if status.state != "lingering" or status.exit_code == 0:
        return None
    return f"{status.job} has failed, and processes that it started still run and hold the GPU"


def _silent(status: JobStatus) -> str | None:
    """Say since when a running job is silent, and what of it still moves. Silence alone ends no job."""
    if status.state != "running":
        return None
    silence = silence_of(
        started_at=status.started_at,
        log_mtime=status.log_mtime,
        log_bytes=status.log_bytes,
        now=status.now,
    )
    if silence is None:
        return None
    busy = [
        f"{x.util_pct:.0f} %"
        for x in (status.sample.gpus if status.sample else ())
        if x.util_pct is not None
    ]
    return f"{silence.words}; GPU use now: {', '.join(busy)}" if busy else silence.words


def by_itself_words(lease: Lease) -> str:
    """Say what the watchdog does with the box when its jobs have ended, and how to keep the box longer."""
    ends = "parked" if lease.terms.when_done == "park" else "ended"
    hold = Command("hold", lease.id, "30m")
    return (
        f"the watchdog collects its work, and its box is {ends} {GRACE_S} s after its last job has ended; a launch, "
        f"or {hold}, before then keeps the box"
    )


def _next(status: JobStatus, lease: Lease, looked_after: LookedAfter) -> str:
    terms, home = lease.terms, Command("collect", lease.id)
    hold = Command("hold", lease.id, "30m")
    match status.state:
        case "starting" | "running":
            return f"{Command('monitor', lease.id)} again with this cursor"
        case "lingering":
            return (
                f"the command ended and left processes running: wait with {Command('monitor', lease.id)}, or "
                f"{Command('stop', lease.id, job=status.job)}"
            )
        case "finished" if terms.when_done != "keep" and looked_after == "unwatched":
            return f"{home}, then {Command('teardown', lease.id)}: no watchdog runs that would end the lease"
        case "finished" if terms.when_done != "keep":
            return f"nothing: {by_itself_words(lease)}"
        case "finished":
            return str(home)
        case "failed" | "killed" | "stopped" if (
            terms.when_done != "keep" and looked_after == "watched"
        ):
            return (
                f"read the log; launch it again to resume; the watchdog collects what it wrote, and the lease's terms "
                f"say {terms.on_failure.words}; {hold} gives more time"
            )
        case "failed" | "killed" | "stopped":
            return f"read the log; launch it again to resume, or {home} collects what it wrote"
        case "absent":
            return "the box knows no such job: launch it again"
