"""Reads from the ledger what is recorded about a box's setup: its commands, its state, and the jobs that ran it."""

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
    """The state of a box's setup, by the ledger's record."""

    commands: tuple[str, ...]
    state: Literal["none", "to do", "running", "done", "failed"]
    """`none`: no setup is ordered. `running`: it was started, and its end has not been recorded yet."""
    job: JobId | None = None
    why: str | None = None
    unfiled: str | None = None
    """Why the files that the setup wrote were not recorded. None if they were."""


def commands_of(ledger: Ledger, lease: Lease) -> tuple[str, ...]:
    """Return the lease's setup commands: those that ran last, under this lease or the one whose work it continues.

    If no setup ran yet, these are the commands of the lease's order.
    """
    said: Lease | None = lease
    while said is not None:
        ran = [x for _, x in ledger.events(said.id) if isinstance(x, timeline.SettingUp)]
        if ran:
            return ran[-1].commands
        said = ledger.lease(said.recovers) if said.recovers is not None else None
    return lease.terms.order.setup


def setup_of(ledger: Ledger, lease: Lease, profile: Profile) -> SetupState:
    """Return the state of the setup of the lease's box. After a stop that emptied the box, it is "to do" again."""
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
    """Return the names of the jobs that set up the box, oldest first."""
    begun = (event.job for _, event in events if isinstance(event, timeline.SettingUp))
    return tuple(dict.fromkeys(begun))


def setup_job(lease: Lease, name: str, commands: Sequence[str], *, ledger: Ledger) -> Job:
    """Return the setup as a job for the caretaker."""
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
    """Return the commands as one script, which ends at the first command that fails.

    Each command is printed before it runs, as it is written: variables are printed by name, not by value.
    """
    lines = ["set -e"]
    for command in commands:
        lines += [f"printf '%s\\n' {shlex.quote('+ ' + command)}", command]
    return "\n".join(lines)


def was_given_work(ledger: Ledger, lease: Lease) -> bool:
    """Whether a job was ever declared for the box, or a sweep was sent to it. A job of `prepare` does not count."""
    events = ledger.events(lease.id)
    prepares = {event.job for _, event in events if isinstance(event, timeline.Preparing)}
    declared = any(job.id not in prepares for job in ledger.jobs(lease.id))
    return declared or any(
        isinstance(event, timeline.Launched) and event.job not in prepares for _, event in events
    )
