"""Makes the Python environment on a box: installs the packages that the work tree needs and the image does not have."""

import json
import re
import secrets
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from gpu_tenant.box.caretaker import ENDED, JobStatus
from gpu_tenant.box.environment.git_source import repository
from gpu_tenant.box.environment.history import Recorded, newest, newest_recorded
from gpu_tenant.box.guard import keep_armed
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTrouble,
    CaretakerFailed,
    JobRunning,
    Refused,
    SecretRefused,
)
from gpu_tenant.domain.model import Job, JobId, Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.untrusted_text import fence, plain
from gpu_tenant.ledger import Ledger

_POLL_S = 0.5
_LOOK_WITHIN_S = 60
_TAIL_BYTES = 1_000
_DISCARD = (
    *(".git/index", ".git/logs/", ".git/FETCH_HEAD"),
    *("~/.rustup/", "~/.cargo/", "~/.local/share/uv/"),
)
"""Files that git rewrites in a clone whenever it is used, and files that installers leave in a home directory.

For example, pip asks `rustc` for its version at every run, and rustup then saves its settings.
"""
_FAILURES = {
    10: "NO_SOURCE",
    11: "NO_PYTHON",
    12: "NO_VENV",
    13: "NOT_RESOLVED",
    14: "DISK_FULL",
    15: "NOT_CLONED",
    16: "SECRET",
    17: "SHADOWED",
    18: "NOT_TAKEN",
    19: "NOTHING",
}
"""The exit statuses of `scripts/prepare.py`."""


class _Looked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    ok: bool
    record: Recorded | None = None
    code: str = ""
    message: str = ""


class EnvironmentRequest(Record):
    """Which packages to install: from a requirements file, a clone, or an earlier environment."""

    source: str | None = None
    clone: str | None = None
    replay: str | None = None
    env_names: tuple[str, ...] = ()
    env_from: tuple[str, ...] = ()


class Prepared(Record):
    """The environment of a lease: ready, or being made by a job that runs without this computer."""

    lease: str
    state: Literal["ready", "running", "nothing to do"]
    already: bool = False
    job: str | None = None
    source: str | None = None
    environment: str | None = None
    python: str | None = None
    installer: str | None = None
    packages: int | None = None
    held: tuple[str, ...] = ()
    image: dict[str, str] = Field(default={}, description="the frameworks that the image brings")
    commit: str | None = None
    notes: tuple[str, ...] = ()
    log: str = ""
    next: str


class Setup:
    """Makes one lease's environment: checks what the box has, starts a job that installs packages, and waits for it."""

    def __init__(self, session: Session, script: Path, *, ledger: Ledger) -> None:
        self._session = session
        self._lease = session.lease
        self._script = script
        self._caretaker = session.caretaker
        self._ledger = ledger

    async def prepare(
        self,
        asked: EnvironmentRequest,
        *,
        env: Mapping[str, str],
        wait_s: float,
        hold: Callable[[], AbstractContextManager[None]],
    ) -> Prepared:
        """Make the environment that is asked for, or wait for the job on the box that makes it.

        If the pushed tree asks for no packages, there is nothing to do. If the job still runs when `wait_s` has passed,
        the call returns. Call it again, from any process, to wait longer. An environment that fits the request is not
        made again. If the tree asks for other packages now, a new environment is made.

        Raises:
            BadRequest: nothing was pushed and the request names no packages, the source of packages is missing or not
                clear, or the clone's address contains a password.
            JobRunning: a new environment is needed, but a running job may use the old one.
            Refused: the deadline has passed.
            BoxTrouble: the environment could not be made; the message has the end of the log.
        """
        until = self._ledger.now() + timedelta(seconds=wait_s)
        request = self._request(asked)
        command = self._command(request)
        started = False
        while True:
            seen = await self._look(request)
            if seen.code == _NOTHING:
                return self._nothing(seen)
            if seen.record is not None:
                await self._note_made()
                return self._ready(seen.record)
            if started:
                raise CaretakerFailed(
                    "the tree now asks for something else than what was just installed",
                    remedy=f"{Command('prepare', self._lease.id)} again, while nobody pushes",
                )
            job = self._under_way(command)
            if job is None:
                with hold():
                    job = await self._begin(request, command, env, asked.env_from)
                started = True
            status = await self._status(job)
            while status.state not in ENDED and status.state != "absent":
                left_s = (until - self._ledger.now()).total_seconds()
                if left_s <= 0:
                    return self._running(job, status)
                await self._ledger.clock.follow(min(_POLL_S, left_s))
                status = await self._status(job)
            if status.state != "finished":
                raise self._failure(job, status)
            if not started:
                # Another call started the job, perhaps for an older tree. So check again whether it fits.
                self._note("done", job.id)

    async def _look(self, request: Mapping[str, JsonValue]) -> _Looked:
        argv = ["python3", "-I", "-S", "-", "look", json.dumps(request)]
        finished = await self._session.transport.run(
            argv, stdin=self._script.read_bytes(), timeout_s=_LOOK_WITHIN_S
        )
        if finished.exit_status == 127:
            raise _trouble("NO_PYTHON", "there is no python3 on this box", self._lease)
        try:
            seen = _Looked.model_validate_json(finished.stdout.splitlines()[-1])
        except (IndexError, ValidationError):
            told = plain(finished.stderr.decode(errors="replace")).strip()[-300:]
            raise CaretakerFailed(
                f"the look at the environment ended with status {finished.exit_status}: {told}",
                remedy=f"{Command('audit', self._lease.id)} looks at the box",
            ) from None
        was_pushed = any(isinstance(event, timeline.Pushed) for _, event in self._events())
        if seen.code == _NOTHING and was_pushed:
            return seen
        if not seen.ok:
            raise _trouble(seen.code, plain(seen.message), self._lease)
        return seen

    async def _begin(
        self,
        request: Mapping[str, JsonValue],
        command: str,
        env: Mapping[str, str],
        env_from: tuple[str, ...],
    ) -> Job:
        """Start the job that makes the environment on the box, in a process session of its own."""
        lease = self._lease
        if self._ledger.now() >= lease.terms.deadline_at:
            raise Refused(
                f"the deadline of {lease.id} has passed",
                remedy=f"{Command('extend', lease.id, hours='8')}, then prepare again",
            )
        self._ledger.touch(lease.id, at=self._ledger.now())
        standing = await self._caretaker.standing()
        live = [job.job for job in standing.jobs if job.state not in (*ENDED, "absent")]
        if live:
            raise JobRunning(
                f"{', '.join(live)} runs on {lease.id}, and may be using the environment",
                remedy=f"wait with {Command('monitor', lease.id)}, or {Command('stop', lease.id)}",
            )
        content = json.dumps(request).encode()
        with TemporaryDirectory() as scratch:
            asked = Path(scratch) / "request.json"
            asked.write_bytes(content)
            await self._session.transport.put(asked, f"{lease.caretaker_home}/{_name_of(content)}")
        await self._session.transport.put(
            self._script, f"{lease.caretaker_home}/{_name_of(self._script.read_bytes(), 'py')}"
        )
        job = self._declare(command, tuple(env), env_from)
        self._ledger.note(lease.id, timeline.Preparing(job=job.id), at=self._ledger.now())
        started = await self._caretaker.start(job, env=env)
        if job.launched_at is None:
            self._ledger.note_launched(job, at=self._ledger.now(), box_time_s=started.started_at)
        await keep_armed(
            self._session,
            ledger=self._ledger,
        )
        return job

    def _declare(self, command: str, env_names: tuple[str, ...], env_from: tuple[str, ...]) -> Job:
        jobs = self._ledger.jobs(self._lease.id)
        known = [job for job in jobs if job.command == command and job.launched_at is None]
        if known:
            return known[0]
        taken = {job.id for job in jobs}
        name = next(x for n in range(1, 10_000) if (x := JobId(f"prepare{n}")) not in taken)
        return self._ledger.declare(
            Job(
                id=name,
                lease_id=self._lease.id,
                command=command,
                artifacts=(),
                discard=_DISCARD,
                env_names=env_names,
                env_from=env_from,
                max_runtime_s=None,
                declared_at=self._ledger.now(),
                launched_at=None,
            )
        )

    def _under_way(self, command: str) -> Job | None:
        """Return the job that was started with this command, if its result is not recorded yet. Otherwise None."""
        last = newest(self._ledger, self._lease.id)
        if not isinstance(last, timeline.Preparing):
            return None
        jobs = [job for job in self._ledger.jobs(self._lease.id) if job.id == last.job]
        return jobs[0] if jobs and jobs[0].launched_at and jobs[0].command == command else None

    async def _status(self, job: Job) -> JobStatus:
        return await self._caretaker.status(
            job.id, offset=-_TAIL_BYTES, limit=_TAIL_BYTES, sample="plain"
        )

    def _request(self, asked: EnvironmentRequest) -> dict[str, JsonValue]:
        clone = repository(asked.clone) if asked.clone is not None else None
        request: dict[str, JsonValue] = {
            "directory": self._lease.directory,
            "caretaker": self._caretaker.path,
            "source": asked.source,
            "python": self._session.profile.python,
            "env_names": list(asked.env_names),
        }
        if asked.replay is not None:
            record = newest_recorded(self._ledger, asked.replay)
            request["replay"] = {
                "lease": asked.replay,
                "image": dict(record.image),
                "options": list(record.options),
                "freeze": list(record.freeze),
            }
            cloned = record.asked.get("clone")
            pushed = any(isinstance(event, timeline.Pushed) for _, event in self._events())
            if clone is None and isinstance(cloned, dict) and not pushed:
                clone = {"url": cloned["url"], "ref": record.commit}
        if clone is not None:
            request["clone"] = clone
        return request

    def _command(self, request: Mapping[str, JsonValue]) -> str:
        script = _name_of(self._script.read_bytes(), "py")
        asked = _name_of(json.dumps(request).encode())
        words = [
            "python3",
            "-I",
            "-S",
            f"../caretaker/{script}",
            "install",
            f"../caretaker/{asked}",
        ]
        return shlex.join(words)

    def _events(self) -> Lines:
        return self._ledger.events(self._lease.id)

    def _note(self, state: str, job: str | None, record: Recorded | None = None) -> None:
        told = timeline.Prepared(state=state, job=job)
        if record is not None:
            told = timeline.Prepared(state=state, job=job, record=record.model_dump(mode="json"))
        self._ledger.note(self._lease.id, told, at=self._ledger.now())

    async def _note_made(self) -> None:
        """Record the files that the setup put into the work directory (such as a clone) as if we had sent them.

        This is done only before any job of the owner has run. After that, a job could have changed what the box reports
        about these files.
        """
        begun = [job for job in self._ledger.jobs(self._lease.id) if job.launched_at is not None]
        if begun and all(_IS_SETUP(job.id) for job in begun):
            made = (await self._caretaker.index([])).placed
            known = self._ledger.sent_versions(self._lease.id)
            fresh = [
                (name, held.size_bytes, held.sha256)
                for name, held in made.items()
                if (held.size_bytes, held.sha256) not in known.get(name, ())
            ]
            if fresh:
                self._ledger.send(self._lease.id, fresh)

    def _ready(self, record: Recorded) -> Prepared:
        last = newest(self._ledger, self._lease.id)
        known = last.record if isinstance(last, timeline.Prepared) else None
        new = known is None or known.get("ended_at") != record.ended_at
        if new:
            self._note("ready", last.job if last else None, record)
        return Prepared(
            lease=self._lease.id,
            state="ready",
            already=not new,
            source=record.source,
            environment=record.environment,
            python=f"{record.python} ({record.python_version})",
            installer=record.installer,
            packages=len(record.freeze),
            held=tuple(map(plain, record.held)),
            image=record.image,
            commit=record.commit,
            notes=tuple(map(plain, record.notes)),
            next=f"{Command('launch', lease=self._lease.id, artifact='PATTERN', then='COMMAND')}, which runs in "
            "this environment",
        )

    def _nothing(self, seen: _Looked) -> Prepared:
        """Return the answer for a tree that asks for no packages. The jobs then run with the image's own packages."""
        launch = Command("launch", lease=self._lease.id, artifact="PATTERN", then="COMMAND")
        other = Command("prepare", self._lease.id, source="FILE")
        return Prepared(
            lease=self._lease.id,
            state="nothing to do",
            notes=(plain(seen.message),),
            next=f"{launch}, which runs with what the image has; {other} if another file lists packages",
        )

    def _running(self, job: Job, status: JobStatus) -> Prepared:
        return Prepared(
            lease=self._lease.id,
            state="running",
            job=job.id,
            log=_tail(status, 600),
            next=f"{Command('prepare', self._lease.id)} with the same arguments; the job runs on without you",
        )

    def _failure(self, job: Job, status: JobStatus) -> BoxTrouble | BadRequest:
        self._note("failed", job.id)
        code = _FAILURES.get(status.exit_code or 0, "NOT_RESOLVED")
        reason = status.reason
        if reason is not None and reason.code == "disk_full":
            code = "DISK_FULL"
        words = _WORDS.get(code, "the environment could not be made")
        if status.state in ("killed", "stopped") and reason is not None:
            code, words = "KILLED", f"the setup was ended: {reason.code}"
        return _trouble(code, words, self._lease, log=_tail(status, _TAIL_BYTES))


_NOTHING = "NOTHING"
"""The script's code for a work directory that asks for no packages."""
_IS_SETUP = re.compile(r"prepare\d+").fullmatch
_WORDS = {
    "NOT_RESOLVED": "the packages could not be installed",
    "DISK_FULL": "the disk of the box is full",
    "NO_VENV": "the box's python cannot make an environment",
    "NO_PYTHON": "there is no python3 on this box",
    "NOT_CLONED": "the repository could not be cloned",
    "SHADOWED": "a package installed another build of a framework (such as torch) that the image already has",
    "NO_SOURCE": "nothing says what to install",
    "NOTHING": "the work directory asks for no packages",
    "SECRET": "the requirements hold a password",
    "NOT_TAKEN": "what was made in the work directory could not be put on record",
}


def _trouble(code: str, words: str, lease: Lease, *, log: str = "") -> BoxTrouble | BadRequest:
    """Make the error for that code, with the next command."""
    again = str(Command("prepare", lease.id))
    remedies = {
        "NO_PYTHON": f"install python3 (`apt-get install python3 python3-venv python3-pip`), then {again}",
        "NO_VENV": f"on the box: `apt-get install python3-venv python3-pip`, then {again}",
        "NOT_RESOLVED": f"correct the requirements, {Command('push', 'DIR', lease.id)}, then {again}; a"
        " conflict with what the image has needs another pin, or another image",
        "DISK_FULL": f"{Command('audit', lease.id)} shows its disks; make room, then {again}",
        "NOT_CLONED": f"clone it on this computer, {Command('push', 'DIR', lease.id)}, then {again}",
        "SHADOWED": "pin that package to a build that uses the image's version, or take an image that has"
        f" the version it needs; then {again}",
        "KILLED": f"{Command('audit', lease.id)} looks at the box; then {again}",
    }
    match code:
        case "NO_SOURCE" | "NOTHING":
            return BadRequest(
                words,
                remedy="if the image has all that the work needs, skip prepare and run"
                f" {Command('launch', lease=lease.id, artifact='PATTERN', then='COMMAND')}; otherwise push a tree that has"
                f" a requirements file ({Command('push', 'DIR', lease.id)}), or name the file:"
                f" {Command('prepare', lease.id, source='FILE')}",
                log=log,
            )
        case "SECRET":
            return SecretRefused(
                words,
                remedy="write ${NAME} in place of the password, and pass `--env NAME=file:PATH`",
                log=log,
            )
        case _:
            return BoxTrouble(words, remedy=remedies.get(code, again), log=log)


def _tail(status: JobStatus, limit: int) -> str:
    """Return the end of the setup's log, marked as output of the box."""
    if status.log is None or not status.log.raw:
        return ""
    text = plain(status.log.raw.decode(errors="replace"))[-limit:]
    return fence(text.strip(), nonce=secrets.token_hex(4))


def _name_of(content: bytes, kind: str = "json") -> str:
    return f"prepare-{sha256(content).hexdigest()[:16]}.{kind}"
