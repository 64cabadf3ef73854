"""Sets a lease's box up as its order says: after the first push, and before the first job."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal

from pydantic import Field

from gpu_tenant.artifacts.losses import differs
from gpu_tenant.box.manifest import reseal
from gpu_tenant.box.setup import begin_setup, log_end, settle_setup, setup_status
from gpu_tenant.box.setup_record import SetupState, setup_of, was_given_work
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, JobRunning, NotSaved, Refused
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import Manifest
from gpu_tenant.leases.context import Context
from gpu_tenant.providers.credentials import resolve_all

_POLL_S = 0.5
LAUNCH_WAITS_S = 20.0
"""A launch waits at most this many seconds for the setup. An agent's host gives up on a call after a minute."""


class SetupReport(Record):
    """How far a box is set up."""

    lease: str
    state: Literal["none", "to do", "running", "done", "failed"]
    job: str | None = None
    commands: tuple[str, ...] = ()
    why: str | None = Field(default=None, description="why it failed")
    note: str | None = Field(
        default=None, description="why what the setup made is not on record, and so counts as work"
    )
    log: str = ""
    next: str


async def begin_if_ordered(
    context: Context,
    lease: Lease,
    *,
    anew: Literal["if failed", "always", "never"],
    commands: Sequence[str] | None = None,
) -> SetupState:
    """Begin the setup if one is ordered and not yet done. `anew` says whether a setup that has ended runs again.

    The caller holds the lease.

    Raises:
        NotSaved: results on the box, which the setup could overwrite, are saved nowhere else.
        JobRunning: a job is running on the box.
    """
    session, ledger = context.session(lease), context.ledger
    known = await settle_setup(session, ledger=ledger)
    is_again = anew == "always" or (anew == "if failed" and known.state == "failed")
    if commands:
        known = SetupState(tuple(commands), "to do" if known.state == "none" else known.state)
    if known.state in ("none", "running") or (known.state in ("done", "failed") and not is_again):
        return known
    await _must_lose_nothing(context, lease)
    env = resolve_all(lease.terms.order.env_from, context.environ, key_places=context.key_places)
    mirrors = context_mirrors(context, lease)
    await begin_setup(session, env={**mirrors, **env}, ledger=ledger, commands=known.commands)
    return setup_of(ledger, lease, session.profile)


def context_mirrors(context: Context, lease: Lease) -> dict[str, str]:
    """Return the variables that name the package indexes near the lease's box."""
    from gpu_tenant.box.environment.mirrors import mirrors

    profile = context.profile(lease.provider)
    return mirrors(profile, context.home.configuration, context.environ)


async def report_setup(
    context: Context, lease: Lease, state: SetupState, *, wait_s: float = 0
) -> SetupReport:
    """Wait for the end of the setup, at most `wait_s` seconds of real time, and report its state."""
    session, loop = context.session(lease), asyncio.get_running_loop()
    until = loop.time() + wait_s
    while state.state == "running":
        state = await settle_setup(session, ledger=context.ledger)
        if state.state != "running" or loop.time() >= until:
            break
        await asyncio.sleep(_POLL_S)
    log = ""
    if state.job is not None and state.state in ("running", "failed"):
        log = log_end(await setup_status(session, state.job))
    return SetupReport(
        lease=lease.id,
        state=state.state,
        job=state.job,
        commands=state.commands,
        why=state.why,
        note=state.unfiled,
        log=log,
        next=_next(lease, state),
    )


async def look(context: Context, lease: Lease) -> SetupReport:
    """Report how far the box is set up. Nothing is begun."""
    state = await settle_setup(context.session(lease), ledger=context.ledger)
    return await report_setup(context, lease, state)


async def must_be_set_up(
    context: Context,
    lease: Lease,
    *,
    hold: Callable[[], AbstractAsyncContextManager[object]],
    wait_s: float = LAUNCH_WAITS_S,
) -> None:
    """Make sure that the box is set up as ordered before a job runs on it. Wait at most `wait_s` for the setup.

    `hold` holds the lease.

    Raises:
        JobRunning: the setup still runs.
        Refused: the setup failed.
    """
    state = setup_of(context.ledger, lease, context.profile(lease.provider))
    if state.state in ("none", "done"):
        return
    async with hold():
        state = await begin_if_ordered(context, lease, anew="never")
    told = await report_setup(context, lease, state, wait_s=wait_s)
    match told.state:
        case "failed":
            raise Refused(
                f"the box of {lease.id} could not be set up: {told.why}",
                remedy=told.next,
                log=told.log,
            )
        case "running" | "to do":
            raise JobRunning(
                f"the box of {lease.id} is still being set up by {told.job}",
                remedy=f"{told.next}; then the same call again",
                log=told.log,
            )
        case "none" | "done":
            return


async def set_up(
    context: Context, lease: Lease, *, runs: Literal["once", "anew"], commands: Sequence[str] | None
) -> SetupReport:
    """Set the box up, or follow a running setup.

    With `runs="anew"` or with `commands`, run it again even if it is done.

    Raises:
        BadRequest: no setup is ordered.
    """
    anew: Literal["always", "if failed"] = "always" if runs == "anew" or commands else "if failed"
    async with context.held_in_turn(lease.id, "setup"):
        state = await begin_if_ordered(context, lease, anew=anew, commands=commands)
    if state.state == "none":
        raise BadRequest(
            f"no setup is ordered for {lease.id}",
            remedy="write `setup = [...]` into gpu-tenant.toml, and name that file with `--order`",
        )
    return await report_setup(context, lease, state)


async def _must_lose_nothing(context: Context, lease: Lease) -> None:
    """Check that the box has no result that a setup could overwrite, and that is saved nowhere else.

    Raises:
        NotSaved: there is such a result.
    """
    ledger = context.ledger
    if not was_given_work(ledger, lease):
        return
    now = await reseal(context.session(lease), ledger=ledger, hashes="recalled")
    results = now.model_copy(update={"entries": tuple(e for e in now.entries if e.role != "log")})
    if not now.unclaimed.count and not _is_uncollected(results, lease, context):
        return
    raise NotSaved(
        f"results on the box of {lease.id} are saved nowhere else, and its setup could overwrite them",
        remedy=f"{Command('collect', lease.id)}, then the same command again",
    )


def _is_uncollected(results: Manifest, lease: Lease, context: Context) -> bool:
    """Whether a result is new, or differs from what was collected. The files are not read for this."""
    collected = context.ledger.seal(lease.id)
    if collected is not None:
        kept = tuple(entry for entry in collected.entries if entry.role != "log")
        collected = collected.model_copy(update={"entries": kept})
    return differs(results.model_copy(update={"digest": ""}), collected)


def _next(lease: Lease, state: SetupState) -> str:
    match state.state:
        case "running" | "to do" if state.job is not None:
            return f"{Command('monitor', lease.id, job=state.job)} shows it"
        case "failed":
            return (
                f"correct what it names and {Command('push', 'DIR', lease.id)}, which sets the box up anew; "
                f"or give the box back: {Command('teardown', lease.id)}"
            )
        case _:
            return str(Command("launch", lease=lease.id, artifact="PATTERN", then="COMMAND"))
