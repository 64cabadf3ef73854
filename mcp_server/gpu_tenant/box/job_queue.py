"""Sends requests to the runner, our script on a box that runs queued jobs in order, and reads its replies."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, JsonValue

from gpu_tenant.box.caretaker import Caretaker, start_request
from gpu_tenant.box.script_replies import R, accepted_reply, is_missing, read, reply_of
from gpu_tenant.domain.model import Job, JobId, Lease
from gpu_tenant.domain.ports import Transport

TurnState = Literal[
    "queued", "needs_env", "running", "finished", "failed", "killed", "stopped", "withdrawn"
]
MAY_RUN: frozenset[TurnState] = frozenset({"queued", "needs_env", "running"})
"""The states of a job that runs or may still run. Every other state is final."""


_LOOK_WITHIN_S = 15
"""A request for the state of jobs may take this many seconds."""


_is_code = re.compile("[a-z_]{1,40}").fullmatch

Code = Annotated[str, AfterValidator(lambda said: said if _is_code(said) else "unknown")]
"""The caretaker's code for why a run ended. Text that does not look like a code becomes `unknown`."""


class _Reply(BaseModel):
    """A reply of the runner. Fields that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """One job in the queue, and how it is run."""

    job: Job
    attempts: int = 1
    """The command is run at most this many times, until it succeeds."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    stop_signal: str | None = None
    """The signal that asks the job to save and end, such as `USR1`. None means TERM."""
    grace_s: float | None = None
    """The seconds between that signal and SIGKILL. None means 10."""


class RunnerStanding(_Reply):
    """The state of the runner on the box, which takes jobs from the queue."""

    state: Literal["none", "alive", "gone", "left", "elsewhere"]
    """`gone`: the runner died, or the box was restarted.

    `elsewhere`: the runner was started on another machine, so only its records are known.
    """
    kind: Literal["detached", "stay"] | None = None
    started_at: float | None = None
    left: str | None = None
    """Why the runner ended by itself: `empty`, `deadline`, or the signal that asked it to end."""
    trouble: str | None = None
    """What keeps the runner from starting a job now, if anything does."""


class Queued(_Reply):
    """The answer to `queue`: every job of the request is now recorded on the box."""

    queued: tuple[str, ...]
    already: tuple[str, ...]
    """The jobs that were known before, in any state. A withdrawn job stays withdrawn."""
    needs_env: tuple[str, ...] = ()
    """The jobs that wait, because no runner has their variables now, until `queue` sends the variables again."""
    runner: RunnerStanding


class Withdrawn(_Reply):
    """The answer to `withdraw`. Every job of the request is in exactly one of these lists."""

    withdrawn: tuple[str, ...]
    """The jobs that the box will not start any more.

    If attempts of a job have failed, the last of them is the job's result. Jobs that were never queued are included:
    if a `queue` for them arrives later, they stay withdrawn.
    """
    too_late: tuple[str, ...]
    """The jobs that run or have ended. With `begun="spare"`, also those that have run at least once."""


class TurnStatus(_Reply):
    """The state of one job of the queue."""

    job: str
    state: TurnState
    run: str | None = None
    """The caretaker's name for the job's latest run (`NAME`, then `NAME.2`), for `tail` and `stop`."""
    runs: int = 0
    """How often the command was started, including after interruptions."""
    attempts: int = 0
    """How many of these starts count as attempts. A run that was interrupted (preemption, walltime) does not."""
    exit_code: int | None = None
    signal: str | None = None
    reason: Code | None = None
    """Why the latest run ended, as the caretaker's code. Examples: `exit`, `cgroup_oom`, `interrupted`."""
    slot: int | None = None
    started_at: float | None = None
    ended_at: float | None = None


class Roll(_Reply):
    """Every job that was ever queued on the box, in order."""

    jobs: tuple[TurnStatus, ...]
    runner: RunnerStanding
    slots: int = 1
    now: float
    boot_id: str = ""

    @property
    def waiting(self) -> tuple[str, ...]:
        """The jobs that run or may still run. As long as there are any, the box cannot be sealed."""
        return tuple(job.job for job in self.jobs if job.state in MAY_RUN)


class Runner:
    """The runner of one lease: a script next to the caretaker's on the box, with its hash in the name."""

    def __init__(
        self, lease: Lease, transport: Transport, script: Path, *, caretaker: Caretaker
    ) -> None:
        self._lease = lease
        self._transport = transport
        self._script = script
        self._caretaker = caretaker
        digest = sha256(script.read_bytes()).hexdigest()[:16]
        self.path = f"{lease.scripts_directory}/runner-{digest}.py"
        """The script's path on the box. A relative path is relative to the login home."""

    async def queue(
        self,
        turns: Sequence[QueuedJob],
        *,
        slots: int | None = None,
        slot_gpus: Sequence[str] = (),
        runner: Literal["here", "elsewhere"] = "here",
    ) -> Queued:
        """Record the jobs on the box in that order. Each is recorded once, however often this is called.

        With `runner="here"`, a runner is started if none runs, and takes the jobs. With `elsewhere`, the jobs are left
        to a runner that was started with `stay`, such as the one in an allocation's batch script. At most `slots` jobs
        run at the same time (None keeps the number, which is 1 at first). If `slot_gpus` names GPUs for each
        slot, each job gets its slot's CUDA_VISIBLE_DEVICES.

        Of the variables in `env`, only the names are recorded on the box, not the values. VIRTUAL_ENV is an exception:
        it becomes part of the job's command, so that the job runs in that environment.

        Raises:
            CaretakerFailed: nothing was queued: OTHER_COMMAND (a job of that name has another command),
                NAME_TAKEN (for example `x.2`, if there is a job `x`, whose second run has that name),
                DEADLINE_PASSED.
        """
        request: dict[str, JsonValue] = {
            "jobs": [_entry(turn, self._lease) for turn in turns],
            "runner": runner,
        }
        if slots is not None:
            request |= {"slots": slots, "slot_gpus": list(slot_gpus)}
        return await self._ask("queue", request, Queued)

    async def withdraw(
        self, jobs: Sequence[JobId], *, begun: Literal["end", "spare"] = "end"
    ) -> Withdrawn:
        """Withdraw the jobs: the box will not start them, unless they already run or have ended.

        If a job has failed and has attempts left, these are withdrawn, too. With `begun="spare"`, they are not.
        """
        return await self._ask("withdraw", {"jobs": list(jobs), "begun": begun}, Withdrawn)

    async def roll(self) -> Roll:
        """Ask for the state of every queued job, in one reply."""
        return await self._ask("roll", {"tenant": True}, Roll, timeout_s=_LOOK_WITHIN_S)

    async def present(self) -> None:
        """Put the runner's script and the caretaker's on the box, unless they are there."""
        await self._caretaker.present()
        looked = await self._transport.run(["test", "-f", self.path], timeout_s=60)
        if looked.exit_status:
            await self._transport.put(self._script, self.path, mode=0o700)

    def _argv(self, verb: str) -> tuple[str, ...]:
        return (
            "python3",
            "-I",
            "-S",
            self.path,
            "--home",
            self._lease.caretaker_home,
            "--caretaker",
            self._caretaker.path,
            verb,
            "--request",
            "-",
        )

    async def _ask(
        self, verb: str, request: dict[str, JsonValue], reply: type[R], *, timeout_s: float = 120
    ) -> R:
        stdin, argv = json.dumps(request).encode(), self._argv(verb)
        finished = await self._transport.run(argv, stdin=stdin, timeout_s=timeout_s)
        if is_missing(finished) or (reply_of(finished) or {}).get("code") == "NO_CARETAKER":
            # Nothing was done, so the request may be repeated.
            await self.present()
            finished = await self._transport.run(argv, stdin=stdin, timeout_s=timeout_s)
        return read(reply, accepted_reply(verb, finished, self._lease.id))


def _entry(turn: QueuedJob, lease: Lease) -> dict[str, JsonValue]:
    entry = start_request(turn.job, lease, env=turn.env) | {"attempts": turn.attempts}
    if turn.stop_signal is not None:
        entry["stop_signal"] = turn.stop_signal
    if turn.grace_s is not None:
        entry["grace_s"] = turn.grace_s
    return entry
