"""What is on record of a box's setup: which commands, how far it is, and which jobs of the caretaker's were it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Job, JobId, Lease, Profile
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.ledger import Ledger


@dataclass(frozen=True, slots=True)
class SetupState:
    """How far a box is set up, by what is on record."""

    commands: tuple[str, ...]
    state: Literal["none", "to do", "running", "done", "failed"]
    """`none`: nothing is ordered. `running`: it was begun, and nobody has seen its end."""
    job: JobId | None = None
    why: str | None = None
    unfiled: str | None = None
    """Why what it made is not on record. None if it is."""


def commands_of(ledger: Ledger, lease: Lease) -> tuple[str, ...]:
    """Return the setup of the lease: the one that ran last, under it or under the lease whose work it continues."""
    said: Lease | None = lease
    while said is not None:
        ran = [x for _, x in ledger.events(said.id) if isinstance(x, timeline.SettingUp)]
        if ran:
            return ran[-1].commands
        said = ledger.lease(said.recovers) if said.recovers is not None else None
    return lease.terms.order.setup


def setup_of(ledger: Ledger, lease: Lease, profile: Profile) -> SetupState:
    """Return how far the lease's box is set up. A stop that emptied the box has undone its setup."""
    commands = commands_of(ledger, lease)
    if not commands:
        return SetupState((), "none")
    for _, event in reversed(ledger.events(lease.id)):
        match event:
            case timeline.Resumed() if profile.park == "wipes":
                break
            case timeline.SettingUp(job=job):
                return SetupState(commands, "running", JobId(job))
            case timeline.SetUp(job=job, state=state, why=why, unfiled=unfiled):
                is_done: Literal["done", "failed"] = "done" if state == "done" else "failed"
                return SetupState(commands, is_done, JobId(job), why, unfiled)
            case _:
                pass
    return SetupState(commands, "to do")


def setup_jobs(events: Lines) -> tuple[str, ...]:
    """Return the names of the jobs that set the box up, oldest first."""
    begun = (event.job for _, event in events if isinstance(event, timeline.SettingUp))
    return tuple(dict.fromkeys(begun))


def setup_job(lease: Lease, name: str, commands: Sequence[str], *, ledger: Ledger) -> Job:
    """Return the setup as the caretaker's job."""
    order = lease.terms.order
    return Job(
        id=JobId(name),
        lease_id=lease.id,
        command=script_of(commands),
        artifacts=(),
        discard=(),
        env_names=tuple(order.env),
        env_from=order.env_from,
        max_runtime_s=order.setup_minutes * 60,
        declared_at=ledger.now(),
        launched_at=None,
    )


def script_of(commands: Sequence[str]) -> str:
    """Return the commands as one script, which ends at the first that fails. Each is shown before it runs.

    A command is shown as it is written: the value of a variable is not.
    """
    lines = ["set -e"]
    for command in commands:
        lines += [f"printf '%s\\n' {shlex.quote('+ ' + command)}", command]
    return "\n".join(lines)


def was_given_work(ledger: Ledger, lease: Lease) -> bool:
    """Whether a job was ever declared for the box, or a sweep sent to it. An environment is no work."""
    events = ledger.events(lease.id)
    prepares = {event.job for _, event in events if isinstance(event, timeline.Preparing)}
    declared = any(job.id not in prepares for job in ledger.jobs(lease.id))
    return declared or any(
        isinstance(event, timeline.Launched) and event.job not in prepares for _, event in events
    )
