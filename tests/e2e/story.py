"""One lease over ssh from adopt to receipt: a program that goes on from wherever the ledger says it stands."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.service import Tenancy

PHASES = ("adopt", "push", "launch", "monitor", "collect", "teardown")
ORDER = (*PHASES, "told")


async def story(
    tenancy: Tenancy, target: str, tree: str, command: str, *, enter: Callable[[str], None]
) -> None:
    """One lease from adopt to receipt, going on from wherever the ledger says it stands."""
    enter("adopt")
    known = (await tenancy.list_leases("all")).leases
    live = [card.lease for card in known if card.state.live]
    if not live and any(card.state is LeaseState.GONE for card in known):
        return
    lease = live[0] if live else (await tenancy.provision("own", target)).lease
    try:
        enter("push")
        await tenancy.push(lease, tree)
        enter("launch")
        await tenancy.launch_detached(lease, command, ["out/"], name="train")
        enter("monitor")
        while (seen := await tenancy.monitor(lease, wait_s=45)).state == "running":
            pass
        assert seen.state == "finished", seen
        enter("collect")
        await tenancy.collect(lease)
    except TenantError:
        # A teardown that was cut short has no box to work on, and only the verb itself goes on.
        if tenancy.ledger.lease(lease).state is not LeaseState.TERMINATING:
            raise
    enter("teardown")
    await tenancy.verify_and_teardown(lease)


def main(target: str, tree: str, command: str, told: str, until: str) -> None:
    """The story is told; on its way each phase was written to `told` with the time it began."""

    def enter(phase: str) -> None:
        is_over = ORDER.index(phase) > ORDER.index(until)
        with Path(told).open("a", encoding="utf-8") as log:
            log.write(f"{'waiting' if is_over else phase} {time.monotonic()}\n")
        if is_over:
            signal.pause()

    async def once() -> None:
        tenancy = open_tenancy()
        try:
            await story(tenancy, target, tree, command, enter=enter)
            enter("told")
        finally:
            await tenancy.aclose()

    asyncio.run(once())


if __name__ == "__main__":
    main(*sys.argv[1:])
