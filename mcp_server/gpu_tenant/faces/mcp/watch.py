"""The server's own watch: while the server runs, it looks after every lease as a watchdog does."""

import asyncio
import logging
import os

from gpu_tenant.files.state_dir import Home

_log = logging.getLogger(__name__)

WATCH_EVERY_S = 60.0
_BEGINS_AFTER_S = 5.0
"""How long the watch waits at first: a host that starts a server waits for its list of tools."""


async def watch(*, every_s: float = WATCH_EVERY_S) -> None:
    """Look at every lease until cancelled, with a ledger and connections of its own.

    Before there is a ledger, there is nothing to look after. The time between looks is real, also in a
    rehearsal: otherwise the rehearsal's clock would jump while somebody uses it.
    """
    home = Home.of(os.environ)
    await asyncio.sleep(min(_BEGINS_AFTER_S, every_s))
    while True:
        try:
            if home.ledger.exists():
                await _look_after(every_s)
        except Exception as error:  # noqa: BLE001 - a ledger that is busy now may be free later
            _log.warning("the server does not watch: %s", error)
        await asyncio.sleep(every_s)


async def _look_after(every_s: float) -> None:
    # Imported here, because a host waits for the list of tools, which needs none of this.
    from gpu_tenant.app import open_tenancy
    from gpu_tenant.watchdog.loop import Watchdog

    tenancy = open_tenancy(tell=_log.info, purpose="watch")
    tenancy.context.watches = True
    try:
        dog = Watchdog(tenancy, every_s=every_s, tell=_log.info, sleep=asyncio.sleep, by="server")
        await dog.forever()
    finally:
        await tenancy.aclose()
