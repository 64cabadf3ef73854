"""Judges the work of a lease: done, failed, incomplete or suspect, and why. None of this is a loss or keeps a box."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from gpu_tenant.artifacts.file_sets import cut_off_saves, half_sets
from gpu_tenant.artifacts.local_evidence import reread_all
from gpu_tenant.artifacts.unbegun_jobs import unbegun_jobs
from gpu_tenant.domain import timeline
from gpu_tenant.domain.evidence import Evidence
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import JobId, Lease, LeaseId
from gpu_tenant.domain.outcome import Doubt, Outcome, outcome_from
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.untrusted_text import quote_text, sentence
from gpu_tenant.domain.wording import some
from gpu_tenant.files.paths import below
from gpu_tenant.files.patterns import is_readable, matches_kept_name
from gpu_tenant.files.state_dir import is_reached
from gpu_tenant.ledger import Ledger

if TYPE_CHECKING:
    from gpu_tenant.jobs.log_end import Crash

_LOG_BYTES = 64 << 10
_JUDGED_BYTES = 2 << 30
"""A collect that is followed by another read of its files, for the proof, reads at most so much itself."""
_LOG_NAMES = (".log", ".out", ".err", ".txt")
_MOST_LOGS = 50
_NAMED = 3
_LONGEST = 240


def outcome_of(
    ledger: Ledger, lease: Lease, seal: Manifest | None, evidence: Sequence[Evidence]
) -> Outcome | None:
    """Judge the work of a lease by the end of its newest job and by the files that are kept of it.

    None if no job was ever launched, or if the work went on under another lease.
    """
    jobs = [job.id for job in ledger.jobs(lease.id) if job.launched_at is not None]
    if seal is not None:
        logs = {entry.name for entry in seal.entries if entry.role == "log"}
        jobs += [
            job.id
            for job in ledger.jobs(lease.id)
            if job.launched_at is None and f"log/{job.id}.log" in logs
        ]
    if not jobs or story_of(ledger.events(lease.id)).moved is not None:
        return None
    kept = Path(lease.kept_in) if lease.kept_in is not None else None
    doubts = [*_of_job(ledger, lease, jobs, kept)]
    if seal is not None:
        doubts += _of_declarations(ledger, lease.id, seal)
        doubts += _of_files(evidence)
        if kept is not None:
            doubts += _of_sets(ledger, lease.id, seal, kept)
            if not any(doubt.grade == "failed" for doubt in doubts):
                doubts += _of_kept_logs(ledger, lease.id, seal.entries, kept)
    return outcome_from(doubts)


async def judged_so_far(ledger: Ledger, lease: Lease) -> Outcome | None:
    """Judge the work by what was collected, while its box is there and the work can be done again.

    None if no job was launched, or if so much was collected that reading it twice would take long.
    """
    seal = ledger.seal(lease.id)
    if lease.touched_at is None or seal is None or not seal.digest or lease.kept_in is None:
        return None
    if sum(entry.size_bytes for entry in seal.entries) > _JUDGED_BYTES:
        return None
    if outcome_of(ledger, lease, seal, ()) is None:
        return None
    reread = await reread_all(seal.entries, lease)
    return outcome_of(ledger, lease, seal, [x for x in reread if isinstance(x, Evidence)])


def _of_job(
    ledger: Ledger, lease: Lease, jobs: Sequence[JobId], kept: Path | None
) -> Iterator[Doubt]:
    """Judge the end of the newest job. The cells of a sweep are judged in the sweep's own table."""
    cells = ledger.cell_jobs(lease.id)
    alone = [job for job in jobs if job not in cells]
    if not alone:
        return
    job, events = alone[-1], ledger.events(lease.id)
    story = story_of(events).job(job)
    log = _end_of(kept, f"log/{job}.log") if kept is not None else ""
    crash = _crash_in(log)
    end = _recorded_end(events, job, story.state)
    if end is None:
        if crash is not None and crash.grade == "failed":
            yield Doubt("failed", _shown(crash))
        elif story.cut_off is not None:
            yield Doubt("failed", f"the box was taken while {job} ran")
        else:
            yield Doubt("suspect", f"how {job} ended is not on record")
        return
    match end.state:
        case "finished":
            if crash is not None:
                yield Doubt(crash.grade, f"{_shown(crash)}, although its exit status is 0")
            else:
                yield from _of_losses(log)
        case "stopped" if end.exit_code == 0:
            pass  # Its command had finished, and only what it left running was stopped.
        case "stopped" if story.lingers_since is not None:
            status = "" if end.exit_code is None else f" (exit status {end.exit_code})"
            yield Doubt(
                "failed", f"its command failed{status}, and what it left running was stopped"
            )
        case "stopped":
            cause = story.stop_cause
            yield Doubt("failed", cause.sentence if cause else "it was stopped before it ended")
        case _:
            yield Doubt("failed", _failure(end, crash, log))


def _recorded_end(lines: timeline.Lines, job: str, state: str | None) -> timeline.Progressed | None:
    """Return the recorded end of the job, with the exit status if it was read. None if no end is recorded."""
    if state not in ENDED:
        return None
    found: timeline.Progressed | None = None
    for _, event in lines:
        if isinstance(event, timeline.Launched) and event.job == job:
            found = None
        elif isinstance(event, timeline.Progressed) and event.job == job and event.state in ENDED:
            found = event
    told = found or timeline.Progressed(job=job)
    return told.model_copy(update={"state": state})


def _failure(end: timeline.Progressed, crash: Crash | None, log: str) -> str:
    """Say why the job failed: what its box counted, or else the exception; and its exit status."""
    told: list[str] = []
    if end.cause not in (None, "exit", "signal", "unknown") and end.evidence:
        told.append(sentence(f"{end.cause}: {end.evidence}", most=_LONGEST))
    elif crash is not None:
        told.append(_shown(crash))
    elif end.evidence and log.strip():
        told.append(sentence(end.evidence, most=_LONGEST))
    status = f"exit status {end.exit_code}"
    if end.exit_code is not None and not any(status in words for words in told):
        told.append(status)
    return ", ".join(told) or f"it was seen as {end.state}"


def _of_losses(log: str) -> Iterator[Doubt]:
    from gpu_tenant.jobs.log_end import last_loss

    if (told := last_loss(log)) is not None:
        yield Doubt("suspect", f"its last word of a loss: {quote_text(told)}")


def _of_declarations(ledger: Ledger, lease_id: LeaseId, seal: Manifest) -> Iterator[Doubt]:
    """Judge what was declared: it must be there, and the job must have written some of it."""
    given_up = {*ledger.declarations(lease_id)[1], *unbegun_jobs(seal, lease_id, ledger).patterns}
    sent = ledger.sent_versions(lease_id)
    artifacts = [entry for entry in seal.entries if entry.role == "artifact"]
    written = [entry for entry in artifacts if not _is_as_sent(entry, sent)]
    for pattern in sorted(ledger.demanded_patterns(lease_id) - given_up):
        name = quote_text(pattern)
        if not is_readable(pattern):
            continue  # An old record: what it wanted is unknown, and the seal has told of it.
        if pattern in seal.unmatched:
            yield Doubt("incomplete", f"{name} never appeared")
        elif not any(matches_kept_name(pattern, entry.name) for entry in written):
            yield Doubt("incomplete", f"{name} has nothing new: all of it is as it was pushed")
        elif not any(x.size_bytes and matches_kept_name(pattern, x.name) for x in written):
            yield Doubt(
                "suspect", f"{name} is empty: no file of it has a byte, as if it is unfinished"
            )


def _of_sets(ledger: Ledger, lease_id: LeaseId, seal: Manifest, kept: Path) -> Iterator[Doubt]:
    """Judge the sets among the kept files, if the job wrote a part of them, and the saves that were cut off."""
    sent, discard = ledger.sent_versions(lease_id), ledger.declarations(lease_id)[1]
    files: dict[str, Path | None] = {
        x.name: below(kept, x.name) for x in seal.entries if x.role in ("artifact", "unasked")
    }
    own = {x.name for x in seal.entries if x.role == "artifact" and not _is_as_sent(x, sent)}
    for half in half_sets(files, discard):
        if half.members & own or any(
            name.startswith(f"{member}/") for member in half.members - {*files} for name in own
        ):
            yield Doubt("incomplete", half.words)
    saves = cut_off_saves(own)
    for name in saves[:_NAMED]:
        shown = quote_text(name.removeprefix("work/"))
        yield Doubt("suspect", f"{shown} is a save that did not end, by its name")
    if len(saves) > _NAMED:
        yield Doubt("suspect", f"and {some(len(saves) - _NAMED, 'more save')} that did not end")


def _is_as_sent(entry: SealedFile, sent: dict[str, list[tuple[int, str]]]) -> bool:
    inner = entry.name.removeprefix("work/")
    return entry.sha256 is not None and (entry.size_bytes, entry.sha256) in sent.get(inner, ())


def _of_files(evidence: Sequence[Evidence]) -> Iterator[Doubt]:
    broken = [each for each in evidence if each.verdict.outcome == "broken"]
    for each in broken[:_NAMED]:
        verdict = each.verdict
        name = quote_text(each.name.removeprefix("work/"))
        as_what = "" if verdict.format == "unknown" else f" as {verdict.format}"
        yield Doubt(
            "suspect", f"{name} does not load{as_what}: {quote_text(verdict.problem or '')}"
        )
    if len(broken) > _NAMED:
        yield Doubt("suspect", f"and {some(len(broken) - _NAMED, 'more file')} that do not load")


def _of_kept_logs(
    ledger: Ledger, lease_id: LeaseId, entries: Sequence[SealedFile], kept: Path
) -> Iterator[Doubt]:
    """Find a failure at the end of a log among the artifacts. A command may write its errors there, and end with 0."""
    sent = ledger.sent_versions(lease_id)
    logs = [
        entry
        for entry in entries
        if entry.role == "artifact"
        and entry.kind == "file"
        and PurePosixPath(entry.name).suffix in _LOG_NAMES
        and not _is_as_sent(entry, sent)
    ]
    newest = sorted(logs, key=lambda entry: -entry.mtime_ns)[:_MOST_LOGS]
    for entry in newest:
        crash = _crash_in(_end_of(kept, entry.name))
        if crash is not None and (crash.grade == "failed" or not entry.name.endswith(".txt")):
            name = quote_text(entry.name.removeprefix("work/"))
            yield Doubt(crash.grade, f"{name} ends with a failure: {_shown(crash)}")


def _end_of(kept: Path, name: str) -> str:
    """Return the end of a kept text file. Empty if it cannot be read."""
    path = below(kept, name)
    with suppress(OSError):
        if is_reached(kept, path) and path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _LOG_BYTES))
                return file.read(_LOG_BYTES).decode("utf-8", "replace")
    return ""


def _crash_in(log: str) -> Crash | None:
    # Imported here, because compiling the patterns of failures takes long, and most calls judge no work.
    from gpu_tenant.jobs.log_end import last_crash

    return last_crash(log) if log else None


def _shown(crash: Crash) -> str:
    return sentence(crash.words, most=_LONGEST)
