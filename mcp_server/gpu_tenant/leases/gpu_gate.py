"""Tries the smoke test's command on the rented GPU before the job starts: what differs there fails within a minute."""

import json
import shlex
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from gpu_tenant.box.caretaker import JobStatus
from gpu_tenant.box.environment.history import activation
from gpu_tenant.domain.command import Option
from gpu_tenant.domain.errors import BoxTrouble, BoxUnreachable
from gpu_tenant.domain.model import JobId
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import plain, quote_text
from gpu_tenant.domain.wording import span
from gpu_tenant.files.skill_files import script
from gpu_tenant.jobs.failure_cause import diagnose
from gpu_tenant.jobs.log_end import last_crash
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.quick_look import run_bounded
from gpu_tenant.leases.readiness import active

_COPY_S = 60.0
"""Copying the work directory may take this much longer than the command itself."""
_COPY = '"$GPU_TENANT_CARETAKER/gate"'
"""The copy lies outside the tree, in the caretaker's home, which `scripts/exec.py` names to a shell."""
_TEXT = 4_000
_LEAST_MIB = 100
"""A driver alone uses some memory."""


class _Answer(Record):
    """The last line of `scripts/gate.py`."""

    status: int | None = None
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    peak_mib: Annotated[int, Field(ge=0)] | None = None
    total_mib: Annotated[int, Field(ge=0)] | None = None
    output: str = ""
    skipped: str | None = None


class GateResult(Record):
    """How the command went on the box."""

    state: Literal["passed", "failed", "not tried"]
    words: str
    log: str = Field(default="", description="the end of what it printed: text from the box")


async def try_on_gpu(
    context: Context, lease_id: str, command: str, *, limit_s: float
) -> GateResult:
    """Run the command on the lease's box, in a copy of the work directory, for at most `limit_s` seconds.

    Afterwards nothing of it runs, and its copy is gone. A command that still runs at the limit has passed: it is
    stopped. The job's own variables are not set, as they were not set at the smoke test.

    Raises:
        LeaseHeld: another process is acting on the lease.
        Refused, JobRunning: the environment of the job could not be made, or is still being made.
        BoxUnreachable: the box does not answer.
    """
    async with context.held_in_turn(lease_id, "gate"):
        lease = await active(context, lease_id)
        session = context.session(lease)
        venv = activation(context.ledger, lease.id).get("VIRTUAL_ENV", "")
        source = script("gate.py").read_text(encoding="utf-8")
        python = shlex.join(["exec", "python3", "-I", "-S", "-c", source])
        words = f"{python} {_COPY} {shlex.join([f'{limit_s:g}', command, venv])}"
        try:
            told = await run_bounded(session, words, seconds=limit_s + _COPY_S)
        except BoxUnreachable:
            raise
        except BoxTrouble as trouble:
            return GateResult(state="not tried", words=trouble.message)
    try:
        answer = _Answer.model_validate(json.loads(str(told.get("output")).splitlines()[-1]))
    except (IndexError, ValueError, RecursionError, ValidationError):
        return GateResult(state="not tried", words="the box gave no answer that could be read")
    if answer.skipped is not None:
        return GateResult(state="not tried", words=quote_text(answer.skipped))
    memory = ""
    if answer.peak_mib and answer.peak_mib > _LEAST_MIB and answer.total_mib:
        memory = f", with at most {answer.peak_mib / 1024:.1f} of {answer.total_mib / 1024:.1f} GiB of GPU memory in use"
    log = plain(answer.output)[-_TEXT:]
    if answer.status is None:
        return GateResult(
            state="passed", words=f"it still ran on the box after {span(limit_s)}{memory}", log=log
        )
    if answer.status == 0:
        return GateResult(
            state="passed",
            words=f"it ended well on the box in {span(max(1.0, answer.seconds))}{memory}",
            log=log,
        )
    return GateResult(
        state="failed",
        words=f"the smoke test's command fails on the box, after {span(max(1.0, answer.seconds))}: "
        f"{_cause(answer.status, log)}; {Option('gate', 'none')} leaves this try out",
        log=log,
    )


def _cause(status: int, log: str) -> str:
    """Say why it failed: by the last error in its log, else by what is known of such an end."""
    crash = last_crash(log)
    if crash is not None:
        return quote_text(crash.words)
    ended = JobStatus(job=JobId("gate"), state="failed", exit_code=status, now=0)
    found = diagnose(ended, log)
    return found.evidence if found is not None else f"exit status {status}"
