"""Sends requests to the caretaker, our script on a box, and reads its replies."""

import base64
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from gpu_tenant.box.manifest_entries import digest_of, sound
from gpu_tenant.box.script_replies import R, accepted_reply, is_missing, read, words
from gpu_tenant.box.sent_script import pack_script
from gpu_tenant.box.stall_detection import STALL_LIMIT, StallLimit, unless_stalled
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble, CaretakerFailed
from gpu_tenant.domain.job_state import ENDED as ENDED
from gpu_tenant.domain.job_state import JobState as JobState
from gpu_tenant.domain.model import Job, JobId, Lease
from gpu_tenant.domain.pipes import only_copied_by_pipes
from gpu_tenant.domain.ports import Finished, Transport
from gpu_tenant.domain.record import MOST_BYTES
from gpu_tenant.domain.seal import Manifest, Problem
from gpu_tenant.domain.survival import kept_disks
from gpu_tenant.transfer.tar_stream import archive, at_once

_LOOK_WITHIN_S = 15
"""A request for the state of jobs may take this many seconds. An agent's program may give up a call after a minute."""

QUIET = (
    *(".ssh/authorized_keys", ".ssh/authorized_keys2", ".ssh/environment", ".rehearsal.json"),
    *(".bashrc", ".bash_profile", ".bash_logout", ".profile", ".zshrc", ".tmux.conf", ".hushlogin"),
    *(".motd_shown", ".cache/motd.legal-displayed", ".sudo_as_admin_successful", ".no_auto_tmux"),
    *(".jupyter/", ".ipython/", ".local/share/jupyter/", ".config/code-server/", ".launch"),
    *(".local/share/code-server/", ".vast_api_key", ".vast_containerlabel", "onstart.sh"),
)
"""Files that an image's own services write in a home directory, even after sshd lets us in.

Such files do not count as work if they are small and were written before the first push or launch.
"""


class _Reply(BaseModel):
    """A reply of the caretaker. Fields that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Reason(_Reply):
    """Why a job ended, as far as the box could tell, with the evidence."""

    code: str
    evidence: str = ""
    signs: dict[str, str] = {}
    """All signs that could explain the end: for each possible cause, the evidence."""
    shares: dict[str, float] = {}
    """The free shares of the disk and of its inodes, and the size and the free room of /dev/shm in bytes."""


class LogPart(_Reply):
    """Part of a job's log."""

    offset: int
    next_offset: int
    base64: str
    truncated: bool = False

    @field_validator("base64")
    @classmethod
    def _is_base64(cls, said: str) -> str:
        base64.b64decode(said, validate=True)
        return said

    @property
    def raw(self) -> bytes:
        """The bytes of that part of the log."""
        return base64.b64decode(self.base64)


class GpuSample(_Reply):
    """One GPU at this moment."""

    index: int
    name: str = ""
    util_pct: float | None = None
    mem_used_mib: float | None = None
    mem_total_mib: float | None = None
    temp_c: float | None = None


class Sample(_Reply):
    """The use of the box's hardware at this moment."""

    gpus: tuple[GpuSample, ...] = ()
    cpu_load1: float | None = None
    mem_used_bytes: int | None = None
    mem_limit_bytes: int | None = None
    disk_free_bytes: int | None = None
    inodes_free: int | None = None
    procs: int | None = None


class JobStatus(_Reply):
    """The state of one job, as the box reports it now."""

    job: str
    state: JobState
    exit_code: int | None = None
    signal: str | None = None
    reason: Reason | None = None
    started_at: float | None = None
    ended_at: float | None = None
    now: float
    boot_id: str = ""
    log_bytes: int = 0
    log_mtime: float | None = None
    log: LogPart | None = None
    sample: Sample | None = None


class Brief(_Reply):
    """The state of one job, in a list of jobs."""

    job: str
    state: JobState
    exit_code: int | None = None
    started_at: float | None = None
    log_bytes: int = 0
    log_mtime: float | None = None


class StoreCopied(_Reply):
    """The result when the box itself copied files to the store."""

    ok: bool
    kept: int = 0


class PreemptionNotice(_Reply):
    """The platform's notice that it takes the box back, and what the box has done since."""

    at: float
    source: str
    jobs: tuple[str, ...]
    ended_at: float | None = None
    """When all of the jobs had ended, or the box stopped waiting for them."""
    left: tuple[int, ...] = ()
    """The processes that still ran at `ended_at`."""
    kept: StoreCopied | None = None


class Standing(_Reply):
    """The states of all jobs that the box knows."""

    jobs: tuple[Brief, ...]
    notice: PreemptionNotice | None = None
    now: float | None = None
    """The box's own clock, in seconds since the epoch."""

    @property
    def live(self) -> tuple[str, ...]:
        """The jobs that have not ended."""
        return tuple(
            job.job for job in self.jobs if job.state not in ENDED and job.state != "absent"
        )


class Started(_Reply):
    """The answer to `start`: the job runs, or was started by an earlier request (`already`)."""

    job: str
    pid: int
    started_at: float
    already: bool
    since_ns: int | None = None


class KnownFile(_Reply):
    """The size and the hash of a file on the box."""

    size_bytes: int = Field(alias="size")
    sha256: str


class Index(_Reply):
    """Which of the requested files exist in the work directory, and how much room is free."""

    files: dict[str, KnownFile]
    placed: dict[str, KnownFile] = {}
    """The pushed files by the box's own record. A job can change this record."""
    since_ns: int | None = None
    """Files that were written after this time count as work. It is by the box's clock."""
    work: str = ""
    disk_free_bytes: int | None = None
    inodes_free: int | None = None
    other: tuple[str, ...] = ()
    """The files that were not put in place, because their content is not the announced one."""


class Judged(_Reply):
    """What is wrong with the patterns that were sent. Empty if all are accepted."""

    problems: tuple[Problem, ...]


class MadeFile(_Reply):
    """A file that a setup wrote, and that has not been changed since."""

    at: str
    size_bytes: int = Field(alias="size", ge=0, le=MOST_BYTES)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class SetupFiles(_Reply):
    """The files that a setup wrote."""

    made: tuple[MadeFile, ...]


class Guard(_Reply):
    """Whether the guard, a process on the box, enforces the deadline."""

    state: str
    deadline: float | None = None


_REMEMBERS = {"manifest", "index", "complete", "prune"}
"""The requests (verbs) that may use hashes which the box remembers."""
_TELLS = {"manifest", "index", "complete", "prune", "place", "receive"}
"""The requests that may take long, and report their progress."""
_LISTED_WITHIN_S = 600
_SLOW_BYTES_S = 250_000
"""We wait for a box that reads at least this fast: a quarter of the rate of a slow disk, such as a network disk."""
_LONG_S = 6 * 3600

_ACTIVATED = """\
VIRTUAL_ENV=$1; export VIRTUAL_ENV
[ -x "$VIRTUAL_ENV/bin/python" ] || { echo "gpu-tenant: there is no environment in $VIRTUAL_ENV" >&2; exit 127; }
PATH="$VIRTUAL_ENV/bin:$PATH"; export PATH; exec sh -c "$0"
"""
"""Runs a command (the first argument) as if the environment in the second argument had been activated."""


_PIPEFAIL = """\
command -v bash >/dev/null 2>&1 && exec bash -o pipefail -c "$0"
sh -o pipefail -c : 2>/dev/null && exec sh -o pipefail -c "$0"
exec sh -c "$0"
"""
"""Runs a command so that a failure before a pipe counts, if a shell of the box can say so."""


_FROM_STDIN = """\
import sys, zlib
script = zlib.decompress(sys.stdin.buffer.read(int(sys.argv[1])))
del sys.argv[:2]
exec(compile(script, sys.argv[0], "exec"), {"__name__": "__main__", "__file__": sys.argv[0]})
"""
"""Runs a compressed script from stdin. The first argument is its size in bytes. The request follows it in stdin."""


Role = Literal["work", "setup"]
"""What a job is for. When only a setup has ended, the work has not ended."""


def start_request(
    job: Job, lease: Lease, *, env: Mapping[str, str], role: Role = "work"
) -> dict[str, JsonValue]:
    """Build the request to `start` that job. If `env` has VIRTUAL_ENV, the job runs in that environment."""
    values = dict(env)
    command = job.command
    if role == "work" and only_copied_by_pipes(command):
        command = shlex.join(["exec", "sh", "-c", _PIPEFAIL, command])
    place = values.pop("VIRTUAL_ENV", "")
    request: dict[str, JsonValue] = {
        "job": job.id,
        # The environment is activated on the box, because only the box knows its PATH.
        "argv": ["sh", "-c", *([_ACTIVATED, command, place] if place else [command])],
        "cwd": lease.work_directory,
        "env": {**values},
        "artifacts": list(job.artifacts),
        "discard": list(job.discard),
    }
    if job.max_runtime_s is not None:
        request["max_runtime_s"] = job.max_runtime_s
    if job.stalled_after_s is not None:
        request["stalled_after_s"] = job.stalled_after_s
    if role == "setup":
        request["setup"] = True
    return request


def script_hashes(directory: Path) -> Sequence[str]:
    """Return the hashes of all scripts in that directory. They may change while a program runs, by an update."""
    found = [(at, at.stat()) for at in sorted(directory.glob("*.py"))]
    return [_hash_of(at, seen.st_mtime_ns, seen.st_ino, seen.st_size) for at, seen in found]


@cache
def _hash_of(at: Path, *_version: int) -> str:
    return sha256(at.read_bytes()).hexdigest()


class Caretaker:
    """The caretaker of one lease: a script that is put on the box once, with its hash in the name, and then called."""

    def __init__(
        self,
        lease: Lease,
        transport: Transport,
        script: Path,
        *,
        key: str | None = None,
        elsewhere: Literal["counted", "passed over"] = "passed over",
        stall: StallLimit = STALL_LIMIT,
    ) -> None:
        """`key` signs the hashes that the box remembers. Without a key, the box remembers no hashes."""
        self._lease = lease
        self._transport = transport
        self._script = script
        self._key, self._elsewhere, self._stall = key, elsewhere, stall
        digest = sha256(script.read_bytes()).hexdigest()[:16]
        self.path = f"{lease.scripts_directory}/caretaker-{digest}.py"
        """The script's path on the box. A relative path is relative to the login home."""

    async def start(self, job: Job, *, env: Mapping[str, str], role: Role = "work") -> Started:
        """Start the job on the box. The job is started at most once, however often this is called.

        With VIRTUAL_ENV in `env`, the job runs in that environment.

        Raises:
            CaretakerFailed: the box could not start the job (no such command, no work directory).
        """
        request = start_request(job, self._lease, env=env, role=role)
        return await self.ask("start", request, Started)

    async def status(
        self, job: JobId, *, offset: int, limit: int, sample: Literal["sample", "plain"]
    ) -> JobStatus:
        """Ask for the job's state and for at most `limit` bytes of its log, from byte `offset` on.

        With "sample", also ask for the use of the box's hardware.

        A negative `offset` counts from the end of the log.
        """
        request: dict[str, JsonValue] = {
            "job": job,
            "offset": offset,
            "limit": limit,
            "sample": sample == "sample",
            "tenant": True,
        }
        return await self.ask("status", request, JobStatus, timeout_s=_LOOK_WITHIN_S)

    async def standing(self, *, back_in_s: float | None = None) -> Standing:
        """Ask for the state of every job that was ever started on the box.

        If the caller looks after the lease, `back_in_s` says when it will ask again. Until then, the guard
        leaves it to the caller to end the box.
        """
        request: dict[str, JsonValue] = {"tenant": True}
        if back_in_s is not None:
            request["back_in_s"] = back_in_s
        return await self.ask("status", request, Standing, timeout_s=_LOOK_WITHIN_S)

    async def stop(self, job: JobId, *, grace_s: float) -> JobStatus:
        """End every process of the job: ask it to end, and kill what still runs after `grace_s`."""
        return await self.ask(
            "stop", {"job": job, "grace_s": grace_s}, JobStatus, timeout_s=grace_s + 60
        )

    async def manifest(
        self,
        *,
        accounted: Sequence[str],
        artifacts: Sequence[str],
        discard: Sequence[str],
        since: Literal["launch", "ever"] = "launch",
        rented_ns: int | None = None,
        hashes: Literal["taken", "recalled"] = "taken",
        running: Literal["refused", "listed"] = "refused",
        named: int = 20,
        told: Mapping[str, JsonValue] | None = None,
        unread_bytes: int | None = None,
        kept: Sequence[str] | None = None,
        home: Literal["as it was", "emptied"] = "as it was",
        bring_bytes: int | None = None,
    ) -> Manifest:
        """List and hash all files on the box that must be accounted for, while no job runs: a seal.

        At most `named` unclaimed files are listed by name, the largest first. `told` replaces the caretaker's own
        records. With `unread_bytes` from a draft, the box gets only the time that a slow disk needs to read these
        bytes. In any case we give up as soon as the box makes no progress.

        `since="ever"` is for a box that was in use before the lease: older files count, too. On a box that was
        rented empty, all files count that were written from `rented_ns` on, by the box's own clock.

        Of the files that nobody has claimed, the smallest are entries, up to `bring_bytes` in all. None: no such file is.

        `home="emptied"` says that a stop has emptied the home directory. Then files that the box writes there when it
        starts do not count. `kept` are the paths that outlive a stop. With it, the result also lists the files that
        count and are outside these paths.

        With `hashes="recalled"` the box reads no files: an entry has a hash only if the box remembers it. If any hash
        is missing, there is no digest, and the result is a draft and not a seal. With `running="listed"`, the files
        that running jobs have written so far are listed. The result is then a draft, too.

        Raises:
            JobRunning: a job, or a process it left behind, is still running.
        """
        request = self._of_seal(
            accounted=accounted,
            artifacts=artifacts,
            discard=discard,
            since=since,
            rented_ns=rented_ns,
            told=told,
            home=home,
        )
        request |= {
            "hash": hashes,
            "running": running,
            "named": named,
            "elsewhere": self._elsewhere == "counted" and running == "refused",
        }
        if bring_bytes is not None:
            request["bring_bytes"] = bring_bytes
        if kept is not None:
            request |= {"kept": list(kept), "kept_disks": list(kept_disks(self._lease))}
        timeout_s: float = _LISTED_WITHIN_S
        if hashes == "taken":
            timeout_s += _LONG_S if unread_bytes is None else unread_bytes / _SLOW_BYTES_S
        manifest = await self.ask_ours("manifest", request, Manifest, timeout_s=timeout_s)
        sound(manifest.entries)
        is_draft = hashes == "recalled" and not manifest.digest
        if manifest.digest != ("" if is_draft else digest_of(manifest)):
            raise CaretakerFailed(
                "the seal's digest does not fit its entries",
                remedy=f"seal again: {Command('collect')}",
            )
        return manifest

    async def made_by(
        self,
        job: str,
        *,
        accounted: Sequence[str],
        artifacts: Sequence[str],
        discard: Sequence[str],
        since: Literal["launch", "ever"] = "launch",
        rented_ns: int | None = None,
        told: Mapping[str, JsonValue] | None = None,
        home: Literal["as it was", "emptied"] = "as it was",
    ) -> Sequence[MadeFile]:
        """List and hash the files that this setup wrote, if no pattern covers them and they have not changed since.

        The arguments are as for `manifest`.

        Raises:
            JobRunning: a job still runs, or somebody works in the directories that are listed.
        """
        request = self._of_seal(
            accounted=accounted,
            artifacts=artifacts,
            discard=discard,
            since=since,
            rented_ns=rented_ns,
            told=told,
            home=home,
        )
        # Logins are checked only if nobody else uses the machine. Otherwise somebody is always logged in.
        is_alone = self._elsewhere == "counted"
        request |= {"made_by": job, "logins": is_alone, "elsewhere": is_alone}
        timeout_s = _LISTED_WITHIN_S + _LONG_S
        return (await self.ask_ours("manifest", request, SetupFiles, timeout_s=timeout_s)).made

    def _of_seal(
        self,
        *,
        accounted: Sequence[str],
        artifacts: Sequence[str],
        discard: Sequence[str],
        since: Literal["launch", "ever"],
        rented_ns: int | None,
        told: Mapping[str, JsonValue] | None,
        home: Literal["as it was", "emptied"],
    ) -> dict[str, JsonValue]:
        request: dict[str, JsonValue] = {
            "tenant": True,  # this request counts as a sign that somebody looks after the lease
            "work": self._lease.work_directory,
            "roots": list(accounted),
            "artifacts": list(artifacts),
            "discard": list(discard),
            "ever": since == "ever",
            **(told or {}),
        }
        if rented_ns is not None:
            request |= {"rented_ns": rented_ns, "quiet": [f"~/{name}" for name in QUIET]}
        if home == "emptied":
            request["restarted"] = True
        known = request.get("ours")
        request["ours"] = [*(known if isinstance(known, list) else ()), *self._ours()]
        return request

    async def judge_patterns(
        self, *, accounted: Sequence[str], artifacts: Sequence[str], discard: Sequence[str]
    ) -> Judged:
        """Ask which of the patterns are invalid, or discard too much. Nothing on the box is changed."""
        asked: dict[str, JsonValue] = {
            "work": self._lease.work_directory,
            "roots": list(accounted),
            "artifacts": list(artifacts),
            "discard": list(discard),
        }
        return await self.ask_ours("patterns", asked, Judged, timeout_s=60)

    async def index(
        self,
        names: Sequence[str],
        *,
        below: str | None = None,
        then: Literal["push", "nothing"] = "nothing",
    ) -> Index:
        """Ask which files the box has under those names, in the work directory or in `below`.

        With `then="push"`, all files that are written there from now on count as work, if they did not before.
        """
        asked: dict[str, JsonValue] = {
            "work": below or self._lease.work_directory,
            "paths": list(names),
            "begin": then == "push",
        }
        return await self.ask_ours("index", asked, Index, timeout_s=_LONG_S)

    async def place(
        self,
        files: Sequence[Mapping[str, JsonValue]],
        *,
        stale: Sequence[str] = (),
        over: Mapping[str, str] | None = None,
    ) -> Index:
        """Move uploaded files to their places. Delete those whose content is wrong, and the `stale` ones.

        `over` says which existing files may be replaced: it maps a name to the hash that the file must have, or to `*`
        for any content.

        Raises:
            NotSaved: in the place of a file there is another file that must not be replaced.
        """
        asked: dict[str, JsonValue] = {
            "work": self._lease.work_directory,
            "files": [dict(file) for file in files],
            "stale": list(stale),
            **({} if over is None else {"over": {**over}}),
        }
        return await self.ask("place", asked, Index, timeout_s=_LONG_S)

    async def receive(
        self,
        files: Mapping[str, Path],
        *,
        before: Callable[[int], Awaitable[None]] = at_once,
        over: Mapping[str, str] | None = None,
    ) -> Index:
        """Send the files into the work directory. The box hashes each on arrival, and then renames it to its place.

        `before` is awaited with the size of each chunk before that chunk is sent. `over` is as for `place`.
        """
        await self.present()
        asked: dict[str, JsonValue] = {
            "work": self._lease.work_directory,
            "tells_s": self._stall.tells_s,
        }
        if over is not None:
            asked["over"] = {**over}
        heading = json.dumps(asked).encode() + b"\n"
        async with unless_stalled("receive", self._stall) as progress:

            async def wait_before(size_bytes: int) -> None:
                with progress.held_up():
                    await before(size_bytes)

            stream = archive(files, heading=heading, before=wait_before)
            finished = await self._transport.run(
                self._argv("receive"), stdin=stream, timeout_s=_LONG_S, listener=progress
            )
        return read(Index, accepted_reply("receive", finished, self._lease.id))

    async def disarm(self) -> None:
        """Tell the guard to forget its deadline. Its process then ends within seconds."""
        await self.ask("guard", {"disarm": True}, Guard, timeout_s=_LOOK_WITHIN_S)

    async def ask(
        self, verb: str, request: Mapping[str, JsonValue], reply: type[R], *, timeout_s: float = 60
    ) -> R:
        """Send a request to the caretaker on the box, and return its reply. If it is not there, put it there first."""
        return read(reply, await self._ask_raw(verb, request, timeout_s=timeout_s))

    async def ask_ours(
        self, verb: str, request: Mapping[str, JsonValue], reply: type[R], *, timeout_s: float
    ) -> R:
        """Send a request together with our own copy of the caretaker, and return its reply.

        The copy on the box is not used, because a job may have changed it.
        """
        if self._key is not None and verb in _REMEMBERS:
            # The key goes only to the copy that we send: a job may have changed the copy on the
            # box, and could learn the key.
            request = {**request, "key": self._key}
        # Only the needed parts of the script are sent, which saves a round trip or two on a slow link.
        script = pack_script(self._script, verb)
        words = ["python3", "-I", "-S", "-c", _FROM_STDIN, str(len(script))]
        finished = await self._run(
            verb, [*words, *self._argv(verb)[3:]], request, script=script, timeout_s=timeout_s
        )
        said = accepted_reply(verb, finished, self._lease.id)
        return read(reply, {k: v for k, v in said.items() if k in reply.model_fields})

    def _ours(self) -> list[JsonValue]:
        """Return the hashes of all scripts that this program may have put on the box."""
        return list(script_hashes(self._script.parent))

    async def _ask_raw(
        self, verb: str, request: Mapping[str, JsonValue], *, timeout_s: float
    ) -> dict[str, JsonValue]:
        finished = await self._run(verb, self._argv(verb), request, timeout_s=timeout_s)
        if is_missing(finished):
            # Python ended before the script began, so nothing was done, and the request may be repeated.
            await self._put()
            finished = await self._run(verb, self._argv(verb), request, timeout_s=timeout_s)
        return accepted_reply(verb, finished, self._lease.id)

    async def _run(
        self,
        verb: str,
        argv: Sequence[str],
        request: Mapping[str, JsonValue],
        *,
        script: bytes = b"",
        timeout_s: float,
    ) -> Finished:
        if verb not in _TELLS:
            stdin = script + json.dumps(request).encode()
            return await self._transport.run(argv, stdin=stdin, timeout_s=timeout_s)
        stdin = script + json.dumps({**request, "tells_s": self._stall.tells_s}).encode()
        async with unless_stalled(verb, self._stall) as progress:
            return await self._transport.run(
                argv, stdin=stdin, timeout_s=timeout_s, listener=progress
            )

    async def present(self) -> None:
        """Put the caretaker's script on the box, unless it is there."""
        finished = await self._transport.run(["test", "-f", self.path], timeout_s=60)
        if finished.exit_status:
            await self._put()

    async def _put(self) -> None:
        made = await self._transport.run(
            [
                "mkdir",
                "-p",
                "-m",
                "700",
                self._lease.scripts_directory,
                self._lease.directory,
                self._lease.work_directory,
            ],
            timeout_s=60,
        )
        if made.exit_status:
            raise BoxTrouble(
                f"a directory could not be made on the box: {words(made.stderr)}",
                remedy=f"{Command('audit', self._lease.id)} looks at its disks",
            )
        await self._transport.put(self._script, self.path, mode=0o700)

    def _argv(self, verb: str) -> list[str]:
        # -I -S: ignore PYTHON* variables, site-packages, and modules in the script's directory.
        return [
            "python3",
            "-I",
            "-S",
            self.path,
            "--home",
            self._lease.caretaker_home,
            verb,
            "--request",
            "-",
        ]
