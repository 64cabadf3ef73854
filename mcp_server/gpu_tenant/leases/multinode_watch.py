"""Shows the state of a job that runs over several leases, on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_tenant.concurrency import each
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.jobs.multinode.launcher import gangs
from gpu_tenant.leases.context import Context

if TYPE_CHECKING:
    from gpu_tenant.domain.model import Lease
    from gpu_tenant.jobs.monitor import Watched


async def gang_words(context: Context, lease: Lease, seen: Watched) -> str | None:
    """Say the state of the job on every lease of its gang. None if the job runs on one lease only."""
    gang = next(
        (
            x
            for x in reversed(gangs(context.ledger.events(lease.id, timeline.Together)))
            if x.job == seen.job
        ),
        None,
    )
    if gang is None:
        return None

    async def state(name: str) -> str:
        other = context.ledger.lease(name)
        if not other.state.live or other.parked_at is not None:
            return "parked" if other.state.live else f"its lease is {other.state}"
        standing = await context.caretaker(other).standing()
        return next((x.state for x in standing.jobs if x.job == gang.job), "absent")

    others = gang.others(lease.id)
    states = {str(lease.id): str(seen.state)}
    for name, told in zip(others, await each(others, state), strict=True):
        states[name] = told if isinstance(told, str) else "unknown: its box does not answer"
    listed = ", ".join(f"{name} {states[name]}" for name in gang.leases)
    ended = [name for name, said in states.items() if said in ENDED and said != "finished"]
    running = [name for name, said in states.items() if said in ("running", "starting")]
    words = f"one job over {len(gang.leases)} leases: {listed}"
    if ended and running:
        words += (
            f"; the job failed on {', '.join(ended)}, and the others wait for it while they bill: {gang.stop}, "
            f"then read the log of the failed one ({Command('monitor', ended[0])}) and launch anew"
        )
    return words
