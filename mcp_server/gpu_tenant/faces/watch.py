"""Lets a process that runs for another purpose (a server, a `run`) also do the work of a watchdog while it runs."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.watchdog_heartbeat import Watcher, withdraw_heartbeat

_log = logging.getLogger(__name__)

WATCH_EVERY_S = 60.0
_BEGINS_AFTER_S = 5.0
"""The watch begins this many seconds later, so that it does not slow down the start of the process."""


async def watch(by: Watcher, *, every_s: float = WATCH_EVERY_S) -> None:
    """Look after every lease until cancelled, with a ledger and connections of its own. `by` names this watcher.

    As long as there is no ledger, there is nothing to do. The pauses are real time, even in a rehearsal: otherwise the
    rehearsal's clock would jump while somebody uses it.
    """
    home = Home.of(os.environ)
    await asyncio.sleep(min(_BEGINS_AFTER_S, every_s))
    try:
        while True:
            try:
                if home.ledger.exists():
                    await _look_after(by, every_s)
            except Exception as error:  # noqa: BLE001 - a ledger that is busy now may be free later
                _log.warning("nobody watches: %s", error)
            await asyncio.sleep(every_s)
    finally:
        withdraw_heartbeat(home.watchdog)


@asynccontextmanager
async def watching(by: Watcher, *, every_s: float = WATCH_EVERY_S) -> AsyncIterator[None]:
    """Look after every lease while the block runs."""
    watch_task = asyncio.create_task(watch(by, every_s=every_s))
    try:
        yield
    finally:
        watch_task.cancel()
        with suppress(asyncio.CancelledError):
            await watch_task


async def _look_after(by: Watcher, every_s: float) -> None:
    # Imported here, because this is slow, and an agent's program waits for the list of tools, which does not need it.
    from gpu_tenant.app import open_tenancy
    from gpu_tenant.watchdog.loop import Watchdog

    tenancy = open_tenancy(tell=_log.info, purpose="watch")
    tenancy.context.watches = by
    try:
        dog = Watchdog(tenancy, every_s=every_s, tell=_log.info, sleep=asyncio.sleep, by=by)
        await dog.forever()
    finally:
        await tenancy.aclose()
