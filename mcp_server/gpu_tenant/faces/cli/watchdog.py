"""The command that looks after all leases when nobody else does."""

import asyncio
import signal

import click

from gpu_tenant.domain.wording import some
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import as_json, verb
from gpu_tenant.faces.cli.quantities import Number

_NAMED = 8
"""At most this many leases are named at the start."""


@verb("watchdog")
@click.option("--once", is_flag=True, help="look once, do or try what is due, and end; for cron")
@click.option(
    "--every",
    "every_s",
    type=Number(min=5, max=3600),
    default=60,
    show_default=True,
    help="seconds between two looks",
)
@as_json
async def watchdog(once: bool, every_s: float, as_json: bool) -> None:
    """Deadlines, idleness, prices and budgets are enforced, checkpoints are fetched, and alarms are sent. Each
    lease ends with its files proved, or is parked, or raises alarms until somebody acts. `gpu-tenant install watchdog` keeps it running."""
    from gpu_tenant.leases.watchdog_heartbeat import withdraw_heartbeat
    from gpu_tenant.watchdog.loop import Watchdog

    async with output.tenancy(purpose="watch") as tenancy:

        def tell(words: str) -> None:
            if not once:  # With --once, the answer reports this.
                click.echo(f"{tenancy.clock.now():%Y-%m-%d %H:%M:%S} UTC  {words}", err=True)

        dog = Watchdog(tenancy, every_s=every_s, tell=tell, alarms="told")
        here, was_told = asyncio.current_task(), False
        assert here is not None

        def told_to_end() -> None:
            nonlocal was_told
            was_told = True
            here.cancel()

        if not once:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_end)
        live = [lease.id for lease in tenancy.ledger.leases("live")]
        named = (
            f" ({', '.join(live[:_NAMED])}{', …' if len(live) > _NAMED else ''})" if live else ""
        )
        tell(
            f"watches {some(len(live), 'lease')}{named}, and those to come: a look every {every_s:g} s"
        )
        if once:
            output.answer(await dog.once(), as_json, output.look)
            return
        try:
            await dog.forever()
        except asyncio.CancelledError:
            if not was_told:
                raise
        finally:
            withdraw_heartbeat(tenancy.home.watchdog)
            left = some(len(tenancy.ledger.leases("live")), "lease")
            tell(f"ends, and leaves {left}; who watches now: {tenancy.context.watch_words()}")
