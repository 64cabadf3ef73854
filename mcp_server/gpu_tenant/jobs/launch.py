"""Starts one detached job on a box. The job is recorded before it runs, and is started at most once."""

import asyncio
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, JsonValue

from gpu_tenant.artifacts.destination import require_its_own
from gpu_tenant.artifacts.left_behind import Missing, missing_on_box
from gpu_tenant.artifacts.push import pushed_trees
from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.box.guard import arm, does_all
from gpu_tenant.box.script_replies import SETUP_NAME
from gpu_tenant.box.seal_request import as_refusal
from gpu_tenant.box.session import Session
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest, HostKeyChanged, JobRunning, Refused, TenantError
from gpu_tenant.domain.model import Job, JobId, Lease, SlurmAddress
from gpu_tenant.domain.pipes import hidden_status
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.survival import accounted_paths
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.files.patterns import require_narrow, require_patterns
from gpu_tenant.ledger import Ledger

_LOOK_AFTER_S = 1.0
_LOG_BYTES = 8192
_SHELLS_WORD = {126: "it cannot be executed", 127: "there is no such command on the box"}
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Launched(Record):
    """A job that from now on runs without this computer."""

    lease: str
    job: str
    command: str
    artifacts: tuple[str, ...]
    discard: tuple[str, ...]
    already: bool
    environment: str | None = Field(
        description="the prepared environment it runs in; None: the image's own"
    )
    died: str | None = Field(
        default=None,
        description="how the job ended, if it had ended badly a second after its start",
    )
    guard: str
    is_guarded: bool = Field(default=False, description="whether the guard does all that it can")
    budget_end: str | None = Field(
        default=None, description="when the budget ends the lease, if before its deadline"
    )
    undeclared: str | None = Field(
        default=None, description="what the smoke test wrote and this job does not declare"
    )
    pipe: str | None = Field(
        default=None, description="what hides the exit status of the command, if a pipe does"
    )
    sweep: str | None = Field(
        default=None,
        description="the sweep's id and the state of its cells; `job` is the first cell on this box",
    )
    next: str


async def launch(
    session: Session,
    command: str,
    *,
    artifacts: Sequence[str],
    discard: Sequence[str],
    env: Mapping[str, str],
    env_from: tuple[str, ...] = (),
    max_runtime_s: float | None,
    stalled_after_s: float | None = None,
    name: str | None,
    ledger: Ledger,
    store: Mapping[str, JsonValue] | None = None,
) -> Launched:
    """Start the job on the box, in a process session of its own, so that it does not depend on this computer.

    If a job was recorded but its start was never confirmed, for example after a crash, calling again
    completes the start.

    Raises:
        BadRequest: no artifact is declared, a pattern leads out of the box, or another job has the name.
        Refused: the lease's deadline has passed.
        CaretakerFailed: the box could not start the job.
        HostKeyChanged: a stranger answered. If certainly nothing of the job was sent, it is not on record.
    """
    lease = session.lease
    if ledger.now() >= lease.terms.deadline_at:
        raise Refused(
            f"the deadline of {lease.id} has passed, and the box would stop the job at once",
            remedy=f"{Command('collect', lease.id)} and teardown, then rent again with more {Option('hours')}",
        )
    if stalled_after_s is not None and session.profile.kind == "scheduler":
        raise BadRequest(
            f"{session.profile.title} runs jobs by its own means, which do not watch for silence",
            remedy=f"launch without {Option('stalled-after')}; {Command('monitor', lease.id)} tells of a silent job",
        )
    if name is None:
        await _refuse_twice(session, command, ledger=ledger)
    require_patterns((*artifacts, *discard))
    require_narrow(discard)
    await must_be_taken(session, artifacts, discard)
    require_its_own(session, artifacts)
    before = {job.id for job in ledger.jobs(lease.id)}
    job = _declare(
        lease,
        command,
        artifacts,
        discard,
        env=env,
        env_from=env_from,
        max_runtime_s=max_runtime_s,
        stalled_after_s=stalled_after_s,
        name=name,
        ledger=ledger,
    )
    try:
        armed = await arm(session, ledger=ledger, store=store, proof="recent")
        ledger.must_still_hold(lease.id)
        started = await session.caretaker.start(job, env=env)
    except HostKeyChanged:
        # A start is one request, which was not sent. But an earlier call may have sent it, and a start at Slurm is
        # several requests: the stranger may have answered only the last of them.
        if job.id not in before and not isinstance(lease.address, SlurmAddress):
            ledger.withdraw(job)
        raise
    ledger.counts_since(lease.id, started.since_ns)
    if job.launched_at is None:
        ledger.note_launched(job, at=ledger.now(), box_time_s=started.started_at)
    died = None if started.already else await _died_at_once(session, job.id, command, ledger=ledger)
    look = Command("monitor", lease.id)
    return Launched(
        lease=lease.id,
        job=job.id,
        command=job.command,
        artifacts=job.artifacts,
        discard=job.discard,
        already=started.already,
        environment=env.get("VIRTUAL_ENV") or None,
        died=f"{died.words}; {died.missing.words}"
        if died and died.missing
        else died and died.words,
        guard=armed.words,
        is_guarded=does_all(armed, session.profile),
        pipe=pipe_words(job.command),
        next=died.next(look) if died else str(look),
    )


def pipe_words(command: str) -> str | None:
    """Say that a pipe hides the exit status of what is before it. None if none does."""
    hiding = hidden_status(command)
    if hiding is None:
        return None
    return (
        f"its exit status is that of {quote_text(hiding)}: a failure before the pipe is not seen by it; "
        "`set -o pipefail` in bash changes that"
    )


class _Death(NamedTuple):
    """How a job ended that failed within a second. `missing`: files that its log misses and that the push left out."""

    words: str
    missing: Missing | None

    def next(self, look: Command) -> str:
        if self.missing is not None:
            return f"{self.missing.push}, then launch again"
        return f"{look}: the log says why; correct the command, and launch again"


async def _died_at_once(
    session: Session, job: JobId, command: str, *, ledger: Ledger
) -> _Death | None:
    """Say how the job ended, if it failed within a second, for example because its command is mistyped.

    None if the job did not fail, or if that is unknown. This waits in real time, because a job runs in real time even
    in a rehearsal.
    """
    await asyncio.sleep(_LOOK_AFTER_S)
    try:
        seen = await session.caretaker.status(
            job, offset=-_LOG_BYTES, limit=_LOG_BYTES, sample="plain"
        )
    except TenantError:
        return None  # The job was started, even if this second request fails.
    if seen.state not in ENDED or seen.state == "finished":
        return None
    if seen.exit_code is None:
        return _Death(f"{seen.state} by {seen.signal}" if seen.signal else seen.state, None)
    found = _SHELLS_WORD.get(seen.exit_code)
    if found is not None:
        found = _interpreter_words(session.lease, command, ledger=ledger) or found
    log = seen.log.raw.decode("utf-8", "replace") if seen.log else ""
    return _Death(
        f"{seen.state}, exit status {seen.exit_code}" + (f": {found}" if found else ""),
        missing_on_box(session.lease, log, ledger=ledger),
    )


def _interpreter_words(lease: Lease, command: str, *, ledger: Ledger) -> str | None:
    """Say what is wrong with the first line of a pushed script that a shell could not start. None if nothing is."""
    program = command.split(maxsplit=1)[0].strip("'\"")
    if Path(program).is_absolute() or ".." in Path(program).parts:
        return None
    for tree in reversed(pushed_trees(ledger, lease.id)):
        try:
            with (Path(tree.directory) / program).open("rb") as file:
                first = file.readline(256)
        except OSError:
            continue
        if first.startswith(b"#!"):
            named = first[2:].decode("utf-8", "replace").strip()
            if first.rstrip(b"\n").endswith(b"\r"):
                return (
                    f"{quote_text(program)} has the line ends of Windows (CRLF), so its interpreter is not found: "
                    f"`sed -i 's/\\r$//' {shlex.quote(program)}` corrects that"
                )
            return f"{quote_text(program)} is there; perhaps its interpreter, {quote_text(named)}, is not"
    return None


async def must_be_taken(session: Session, artifacts: Sequence[str], discard: Sequence[str]) -> None:
    """Check that the box can match those patterns, and that no pattern in `discard` covers a whole place.

    A place is the work directory, the home directory, or another directory whose files must be accounted for. The box
    is asked before the patterns are recorded, and only about patterns that lead outside the work directory: what these
    cover depends on where the box's home directory is.

    Raises:
        BadRequest: a pattern cannot be matched, or covers too much.
    """
    given_up = [pattern for pattern in discard if pattern[:1] in ("/", "~")]
    kept = [pattern for pattern in artifacts if pattern[:1] in ("/", "~")]
    if not (given_up or kept):
        return
    judged = await session.caretaker.judge_patterns(
        accounted=accounted_paths(session.profile, session.lease), artifacts=kept, discard=given_up
    )
    for problem in judged.problems:
        raise as_refusal(problem)


async def _refuse_twice(session: Session, command: str, *, ledger: Ledger) -> None:
    for job in ledger.jobs(session.lease.id):
        if job.command == command and job.launched_at is not None:
            status = await session.caretaker.status(job.id, offset=0, limit=0, sample="plain")
            if status.state not in ENDED and status.state != "absent":
                raise JobRunning(
                    f"{job.id} already runs exactly this command, and two copies would overwrite each other's files",
                    remedy=f"{Command('monitor', session.lease.id)}; to run the command twice, give the second job a name: {Option('name')}",
                )


def _declare(
    lease: Lease,
    command: str,
    artifacts: Sequence[str],
    discard: Sequence[str],
    *,
    env: Mapping[str, str],
    env_from: tuple[str, ...],
    max_runtime_s: float | None,
    stalled_after_s: float | None,
    name: str | None,
    ledger: Ledger,
) -> Job:
    if not command.strip():
        raise BadRequest("the command is empty", remedy="give the command that the job is to run")
    if not artifacts:
        raise BadRequest(
            "the job declares nothing to keep, so its box could never be verified",
            remedy=f"name its outputs: {Command('launch', lease=lease.id, artifact='out/', then='COMMAND')}",
        )
    if name is not None and not _JOB_NAME.fullmatch(name):
        raise BadRequest(
            f"{name!r} cannot name a job", remedy="use up to 64 letters, digits, `.`, `_` and `-`"
        )
    if name is not None and SETUP_NAME.fullmatch(name):
        raise BadRequest(f"{name} names a setup of the box", remedy="choose another name")
    jobs = ledger.jobs(lease.id)
    by_name = next((job for job in jobs if job.id == name), None)
    if by_name is not None and by_name.command != command:
        raise BadRequest(
            f"{lease.id} has a job {name} with another command", remedy="choose another name"
        )
    unconfirmed = next(
        (
            job
            for job in jobs
            if name is None and job.launched_at is None and job.command == command
        ),
        None,
    )
    known = by_name or unconfirmed
    if known is not None and known.launched_at is None:
        return ledger.declare_again(known, at=ledger.now())
    if known is not None:
        return known
    ledger.touch(lease.id, at=ledger.now())
    return ledger.declare(
        Job(
            id=JobId(name) if name is not None else ledger.next_job_id(lease.id),
            lease_id=lease.id,
            command=command,
            artifacts=tuple(artifacts),
            discard=tuple(discard),
            env_names=tuple(env),
            env_from=env_from,
            max_runtime_s=max_runtime_s,
            stalled_after_s=stalled_after_s,
            declared_at=ledger.now(),
            launched_at=None,
        )
    )
