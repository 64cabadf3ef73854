"""Runs the order's setup on a box: commands that run once, before the first job, and again on each new box.

The caretaker runs the setup as a job, but it does not count as work. The files that it wrote are recorded here by name,
size and hash, as if they had been pushed. So they do not block the end of the lease, unless somebody changes them.
"""

import secrets
from collections.abc import Mapping, Sequence

from gpu_tenant.box.caretaker import ENDED, JobStatus
from gpu_tenant.box.guard import keep_armed
from gpu_tenant.box.ownership import home_was_emptied, since_ns
from gpu_tenant.box.seal_request import seal_facts
from gpu_tenant.box.session import Session
from gpu_tenant.box.setup_record import SetupState, setup_job, setup_jobs, setup_of, was_given_work
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import JobRunning, Refused
from gpu_tenant.domain.model import JobId
from gpu_tenant.domain.survival import accounted_paths
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.untrusted_text import fence, plain
from gpu_tenant.ledger import Ledger

_TAIL_BYTES = 1_000
_GRACE_S = 10
_WHY = {
    "walltime": "the setup took longer than the order allows, and was ended",
    "disk_full": "the disk of the box is full",
    "oom": "the box ran out of memory",
    "deadline": "the deadline of the lease ended it",
    "preempted": "the platform took the box back",
}


async def begin_setup(
    session: Session,
    *,
    env: Mapping[str, str],
    ledger: Ledger,
    commands: Sequence[str] | None = None,
) -> JobId:
    """Start the setup on the box. Once started, it does not need this computer. Returns the name of its job.

    If the start of a setup was not confirmed, it is repeated under the same name. So the setup is started at most once.

    Raises:
        Refused: the deadline has passed.
        JobRunning: a job runs, and the setup could change files that the job uses.
    """
    lease = session.lease
    if ledger.now() >= lease.terms.deadline_at:
        raise Refused(
            f"the deadline of {lease.id} has passed",
            remedy=f"{Command('extend', lease.id, hours='8')}, then the same command again",
        )
    known = setup_of(ledger, lease, session.profile)
    ledger.touch(lease.id, at=ledger.now())
    standing = await session.caretaker.standing()
    live = [job.job for job in standing.jobs if job.state not in (*ENDED, "absent")]
    if live and live != [known.job]:
        raise JobRunning(
            f"{', '.join(live)} runs on {lease.id}, and the setup could change what it uses",
            remedy=f"wait with {Command('monitor', lease.id)}, or {Command('stop', lease.id)}",
        )
    if known.state == "running" and known.job is not None:
        name: str = known.job
    else:
        taken = {*setup_jobs(ledger.events(lease.id)), *(job.job for job in standing.jobs)}
        name = next(x for n in range(1, 10_000) if (x := f"setup{n}") not in taken)
        told = timeline.SettingUp(job=name, commands=tuple(commands or known.commands))
        ledger.note(lease.id, told, at=ledger.now())
    job = setup_job(lease, name, commands or known.commands, ledger=ledger)
    ledger.must_still_hold(lease.id)
    values = {"DEBIAN_FRONTEND": "noninteractive", **env}
    started = await session.caretaker.start(job, env=values, role="setup")
    ledger.counts_since(lease.id, started.since_ns)
    await keep_armed(session, ledger=ledger)
    return job.id


async def settle_setup(session: Session, *, ledger: Ledger) -> SetupState:
    """Check whether a running setup has ended. If so, record its end and the files that it wrote. Returns its state.

    Raises:
        BoxTrouble: the box cannot be asked.
    """
    lease = session.lease
    known = setup_of(ledger, lease, session.profile)
    if known.state != "running" or known.job is None:
        return known
    status = await setup_status(session, known.job)
    has_left = status.state == "lingering" and status.exit_code is not None
    if status.state == "absent":
        return SetupState(known.commands, "to do", known.job)
    if status.state not in ENDED and not has_left:
        return known
    is_done = status.state == "finished" or (has_left and status.exit_code == 0)
    if has_left and not is_done:
        await session.caretaker.stop(known.job, grace_s=_GRACE_S)
    filed, unfiled = await _file_made(session, known.job, ledger=ledger)
    told = timeline.SetUp(
        job=known.job,
        state="done" if is_done else "failed",
        why=None if is_done else _why(status),
        filed=filed,
        unfiled=unfiled,
    )
    ledger.note(lease.id, told, at=ledger.now())
    return setup_of(ledger, lease, session.profile)


async def setup_status(session: Session, job: JobId) -> JobStatus:
    """Ask the box for the setup's state, and for the end of its log."""
    return await session.caretaker.status(
        job, offset=-_TAIL_BYTES, limit=_TAIL_BYTES, sample="plain"
    )


def log_end(status: JobStatus) -> str:
    """Return the end of the setup's log, marked as output of the box."""
    if status.log is None or not status.log.raw:
        return ""
    text = plain(status.log.raw.decode(errors="replace")).strip()
    return fence(text, nonce=secrets.token_hex(4))


async def _file_made(session: Session, job: JobId, *, ledger: Ledger) -> tuple[int, str | None]:
    """Record the files that the setup wrote as sent to the box. Return their number; or 0, and why none was recorded.

    This is done only before any work was given to the box. After that, a job could have written files, and the box
    could report them as the setup's. On a machine that others use as well, only files in the work directory are
    recorded.
    """
    lease, profile = session.lease, session.profile
    facts = seal_facts(session, ledger)
    if was_given_work(ledger, lease):
        return (
            0,
            "work was given to the box before its setup: what the setup changed counts as work",
        )
    if _was_logged_in(ledger.events(lease.id)):
        return (
            0,
            "somebody was given a login before the setup ended: what changed meanwhile counts as work",
        )
    kept, given_up = ledger.declarations(lease.id)
    try:
        made = await session.caretaker.made_by(
            job,
            accounted=accounted_paths(profile, lease),
            artifacts=kept,
            discard=given_up,
            since="ever" if lease.was_taken_over else "launch",
            rented_ns=since_ns(session, ledger),
            told=facts.request(),
            home="emptied" if home_was_emptied(session, ledger) else "as it was",
        )
    except JobRunning as trouble:
        return (
            0,
            f"what the setup made could not be told apart from what others write: {trouble.message}",
        )
    named = [(lease.from_work(each.at), each) for each in made]
    files = [
        (name, each.size_bytes, each.sha256)
        for name, each in named
        if facts.alone or name != each.at
    ]
    if files:
        ledger.send(lease.id, files)
    return len(files), None


def _was_logged_in(events: Lines) -> bool:
    return any(isinstance(event, timeline.LoggedIn | timeline.Executed) for _, event in events)


def _why(status: JobStatus) -> str:
    code = status.reason.code if status.reason is not None else ""
    if code in _WHY:
        return _WHY[code]
    if status.exit_code is not None:
        return f"a command of the setup ended with status {status.exit_code}"
    return f"it was {status.state}" + (f" by {plain(status.signal)}" if status.signal else "")
