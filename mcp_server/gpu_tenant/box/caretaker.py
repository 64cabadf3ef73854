"""The requests to the caretaker on a box, and the types of its replies."""

import base64
import json
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
from gpu_tenant.domain.ports import Finished, Transport
from gpu_tenant.domain.record import MOST_BYTES
from gpu_tenant.domain.seal import Manifest, Problem
from gpu_tenant.domain.survival import kept_disks
from gpu_tenant.transfer.tar_stream import archive, at_once

_LOOK_WITHIN_S = 15
"""A look may take this many seconds. An agent's host may give up on a call after a minute."""

QUIET = (
    *(".ssh/authorized_keys", ".ssh/authorized_keys2", ".ssh/environment", ".rehearsal.json"),
    *(".bashrc", ".bash_profile", ".bash_logout", ".profile", ".zshrc", ".tmux.conf", ".hushlogin"),
    *(".motd_shown", ".cache/motd.legal-displayed", ".sudo_as_admin_successful", ".no_auto_tmux"),
    *(".jupyter/", ".ipython/", ".local/share/jupyter/", ".config/code-server/", ".launch"),
    *(".local/share/code-server/", ".vast_api_key", ".vast_containerlabel", "onstart.sh"),
)
"""What an image's own services write in a home directory while they start or run. sshd lets us in before they finish.

These names excuse small files only: a larger file counts as somebody's, whatever its name. They excuse only
what was written before the first push or launch.
"""


class _Reply(BaseModel):
    """A reply of the caretaker. Fields of later versions are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Reason(_Reply):
    """Why a job ended, as far as the box could tell, with the evidence."""

    code: str
    evidence: str = ""
    signs: dict[str, str] = {}
    """All signs that could explain the end, by the cause that each suggests."""
    shares: dict[str, float] = {}
    """The free shares of the disk and of its inodes, and the size of /dev/shm in bytes."""


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
    """The box at this moment."""

    gpus: tuple[GpuSample, ...] = ()
    cpu_load1: float | None = None
    mem_used_bytes: int | None = None
    mem_limit_bytes: int | None = None
    disk_free_bytes: int | None = None
    inodes_free: int | None = None
    procs: int | None = None


class JobStatus(_Reply):
    """One job, as the box sees it now."""

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
    log: LogPart | None = None
    sample: Sample | None = None


class Brief(_Reply):
    """The state of one job, among several."""

    job: str
    state: JobState


class StoreCopied(_Reply):
    """What became of the box's own copy to the store."""

    ok: bool
    kept: int = 0


class PreemptionNotice(_Reply):
    """What the box was told about being taken by its platform, and what it has done about it."""

    at: float
    source: str
    jobs: tuple[str, ...]
    ended_at: float | None = None
    """When none of the jobs ran any more, or the box stopped waiting for them."""
    left: tuple[int, ...] = ()
    """The processes that still ran then."""
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
    """A job that the box has started, now or before."""

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
    """Those of the requested files that exist in the work directory, and the free room."""

    files: dict[str, KnownFile]
    placed: dict[str, KnownFile] = {}
    """What the box has on record about pushed files. A job can change that record."""
    since_ns: int | None = None
    """The time, by the box's clock, from which on written files count as work."""
    work: str = ""
    disk_free_bytes: int | None = None
    inodes_free: int | None = None
    other: tuple[str, ...] = ()
    """The files that should have been put in place, but whose content is not the announced one."""


class Judged(_Reply):
    """What the box says about the requested patterns."""

    problems: tuple[Problem, ...]


class MadeFile(_Reply):
    """A file that a setup wrote, and that nobody changed since."""

    at: str
    size_bytes: int = Field(alias="size", ge=0, le=MOST_BYTES)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class SetupFiles(_Reply):
    """What a setup made."""

    made: tuple[MadeFile, ...]


class Guard(_Reply):
    """Whether a process on the box enforces the deadline."""

    state: str
    deadline: float | None = None


_REMEMBERS = {"manifest", "index", "complete", "prune"}
"""The verbs that may use hashes that the box remembers."""
_TELLS = {"manifest", "index", "complete", "prune", "place", "receive"}
"""The verbs that may take long, and report their progress."""
_LISTED_WITHIN_S = 600
_SLOW_BYTES_S = 250_000
"""A quarter of the rate of a slow disk, such as a network disk. We wait for a box that reads at least this fast."""
_LONG_S = 6 * 3600

_ACTIVATED = """\
VIRTUAL_ENV=$1; export VIRTUAL_ENV
[ -x "$VIRTUAL_ENV/bin/python" ] || { echo "gpu-tenant: there is no environment in $VIRTUAL_ENV" >&2; exit 127; }
PATH="$VIRTUAL_ENV/bin:$PATH"; export PATH; exec sh -c "$0"
"""
"""Runs a command (the first argument) in an environment (the second), as after `activate` in a shell."""


_FROM_STDIN = """\
import sys, zlib
script = zlib.decompress(sys.stdin.buffer.read(int(sys.argv[1])))
del sys.argv[:2]
exec(compile(script, sys.argv[0], "exec"), {"__name__": "__main__", "__file__": sys.argv[0]})
"""
"""Runs a script from stdin. The first argument is the number of its compressed bytes. The request follows them."""


Role = Literal["work", "setup"]
"""What a job is for. The end of a setup is not the end of the work."""


def start_request(
    job: Job, lease: Lease, *, env: Mapping[str, str], role: Role = "work"
) -> dict[str, JsonValue]:
    """Build the request to `start` that job, in the environment that VIRTUAL_ENV names, if any."""
    values = dict(env)
    place = values.pop("VIRTUAL_ENV", "")
    request: dict[str, JsonValue] = {
        "job": job.id,
        # The environment is activated on the box, because only the box knows its PATH.
        "argv": ["sh", "-c", *([_ACTIVATED, job.command, place] if place else [job.command])],
        "cwd": lease.work_directory,
        "env": {**values},
        "artifacts": list(job.artifacts),
        "discard": list(job.discard),
    }
    if job.max_runtime_s is not None:
        request["max_runtime_s"] = job.max_runtime_s
    if role == "setup":
        request["setup"] = True
    return request


def script_hashes(directory: Path) -> Sequence[str]:
    """The hash of every script in that directory now. An update replaces the scripts while a program runs."""
    found = [(at, at.stat()) for at in sorted(directory.glob("*.py"))]
    return [_hash_of(at, seen.st_mtime_ns, seen.st_ino, seen.st_size) for at, seen in found]


@cache
def _hash_of(at: Path, *_version: int) -> str:
    return sha256(at.read_bytes()).hexdigest()


class Caretaker:
    """The caretaker of one lease. Its script is put on the box once, under its own hash, and then called."""

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
        """Start the job on the box. However often this is called, the job is started at most once.

        With VIRTUAL_ENV in `env`, the job runs in that environment.

        Raises:
            CaretakerFailed: the box could not start the job (no such command, no work directory).
        """
        request = start_request(job, self._lease, env=env, role=role)
        return await self.ask("start", request, Started)

    async def status(
        self, job: JobId, *, offset: int, limit: int, sample: Literal["sample", "plain"]
    ) -> JobStatus:
        """Ask for the job's state, its log from byte `offset` on, and a sample of the box if that is wanted.

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

        If the caller looks after the lease, `back_in_s` says when they will look again. Until then, the guard
        leaves the end to them.
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
    ) -> Manifest:
        """List and hash everything that matters on the box, while no job runs.

        At most `named` unclaimed files are listed by name, the largest first. The caretaker believes `told`
        in place of its own records. With `unread_bytes` from a draft, the box gets only the time that a slow
        disk needs to read these bytes. In any case we give up as soon as the box makes no progress.

        `since="ever"` is for a box that was in use before the lease: older files count, too. On a box that was
        rented empty, everything counts that was written from `rented_ns` on, by the box's own clock.

        `home="emptied"` says that a stop has emptied the home since: what a start of the box writes there is not
        accounted for. `kept` has the paths that outlive a stop. With it, the result says what counts and lies
        outside these paths.

        With `hashes="recalled"` the box reads no files: an entry has a hash only if the box remembers it, and
        if any hash is missing there is no digest. The result is then a draft, and not a seal. With
        `running="listed"`, the files that running jobs have written so far are listed. That is a draft, too.

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
            "elsewhere": self._elsewhere == "counted" and hashes == "taken",
        }
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
        """List and hash what that setup wrote, what nobody has claimed, and what nobody changed since it ended.

        The arguments are as for `manifest`.

        Raises:
            JobRunning: a job still runs, or somebody is at work in what would be listed.
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
        # On a machine that others use as well, somebody is always logged in.
        request |= {"made_by": job, "logins": self._elsewhere == "counted"}
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
            "tenant": True,  # whoever seals looks after the lease
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
        """Ask which of the patterns are invalid, or give up too much. Nothing else is done."""
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
        """Ask what the box has under those names, in the work directory or in `below`.

        With `then="push"`, files that are written there from now on count as work, unless they counted
        already.
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
        """Put files that have arrived whole in their places. Delete those with other content, and the stale ones.

        `over` says, by name, which existing files may be replaced: those with that hash, or any file for `*`.

        Raises:
            NotSaved: another file is in a file's place now.
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
        """Send the files into the work directory. The box hashes each as it arrives, and puts it in place by a rename.

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
        """Let the guard forget its deadline. It then ends within seconds."""
        await self.ask("guard", {"disarm": True}, Guard, timeout_s=_LOOK_WITHIN_S)

    async def ask(
        self, verb: str, request: Mapping[str, JsonValue], reply: type[R], *, timeout_s: float = 60
    ) -> R:
        """Ask the caretaker on the box, and put it there first if it is missing. Returns its reply."""
        return read(reply, await self._ask_raw(verb, request, timeout_s=timeout_s))

    async def ask_ours(
        self, verb: str, request: Mapping[str, JsonValue], reply: type[R], *, timeout_s: float
    ) -> R:
        """Ask our own copy of the caretaker, which is sent along with the request.

        A job may have changed the copy on the box.
        """
        if self._key is not None and verb in _REMEMBERS:
            # The key goes only to the copy that we send: a job may have changed the copy on the
            # box, and could learn the key.
            request = {**request, "key": self._key}
        # A short script saves a round trip or two on a long link.
        script = pack_script(self._script, verb)
        words = ["python3", "-I", "-S", "-c", _FROM_STDIN, str(len(script))]
        finished = await self._run(
            verb, [*words, *self._argv(verb)[3:]], request, script=script, timeout_s=timeout_s
        )
        said = accepted_reply(verb, finished, self._lease.id)
        return read(reply, {k: v for k, v in said.items() if k in reply.model_fields})

    def _ours(self) -> list[JsonValue]:
        """The hashes of all scripts that this program may have put on the box."""
        return list(script_hashes(self._script.parent))

    async def _ask_raw(
        self, verb: str, request: Mapping[str, JsonValue], *, timeout_s: float
    ) -> dict[str, JsonValue]:
        finished = await self._run(verb, self._argv(verb), request, timeout_s=timeout_s)
        if is_missing(finished):
            # Python ended before the script began. So nothing was done, and asking again is safe.
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
        # -I -S: ignore PYTHON* variables, site-packages, and a stray json.py beside the script.
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
