"""The command that runs the setup of a box, as its order says, and shows the log until it has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.domain.errors import BoxUnreachable
from gpu_tenant.domain.wording import some
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import as_json, lease_argument, the_lease, verb
from gpu_tenant.leases.orders import order_of
from gpu_tenant.leases.readiness import active
from gpu_tenant.leases.setup import SetupReport, look, set_up

if TYPE_CHECKING:
    from gpu_tenant.artifacts.push import Pushed
    from gpu_tenant.service import Tenancy

_ASK_AGAIN_S = 5


@verb("setup")
@lease_argument
@click.option("--again", is_flag=True, help="run the setup again even if it is done")
@click.option("--order", default="", help="take the commands from that gpu-tenant.toml")
@as_json
async def setup(lease: str | None, again: bool, order: str, as_json: bool) -> None:
    """Leaving with Ctrl-C leaves the setup alone; the same command goes on following it.

    The first push or launch begins the setup. A setup that failed runs again.
    """
    async with output.tenancy() as tenancy:
        found = await active(tenancy.context, the_lease(lease, tenancy))
        commands = order_of(tenancy.context, order).setup or None
        told = await set_up(
            tenancy.context, found, runs="anew" if again else "once", commands=commands
        )
        if told.state == "running" and told.job is not None:
            told = await follow(tenancy, told.lease, told.job)
        output.answer(told, as_json, _print_setup)
        if told.state == "failed":
            raise SystemExit(1)


async def follow(tenancy: Tenancy, lease: str, job: str) -> SetupReport:
    """Show the setup's output on stderr until it has ended. Return how it ended."""
    cursor: int | None = 0
    while True:
        try:
            seen = await tenancy.follow(lease, job, cursor=cursor, wait_s=1, limit_bytes=65_536)
        except BoxUnreachable as error:
            click.echo(f"note: {error.message}; asking again", err=True)
            await asyncio.sleep(_ASK_AGAIN_S)
            continue
        cursor = seen.cursor
        click.echo(seen.log, nl=False, err=True)
        if seen.state in ENDED or seen.state in ("absent", "lingering"):
            return await look(tenancy.context, tenancy.ledger.lease(lease))


async def follow_pushed(tenancy: Tenancy, pushed: Pushed) -> None:
    """If a push has begun the setup, show it until it has ended. If it fails, the process exits with status 1."""
    if pushed.setup is None:
        return
    told = await follow(tenancy, pushed.lease, pushed.setup)
    _print_setup(told)
    if told.state == "failed":
        raise SystemExit(1)


def _print_setup(told: SetupReport) -> None:
    words = {"done": "set up", "failed": "not set up", "running": "being set up"}
    output.print_list(
        f"{told.lease}: {words.get(told.state, told.state)}",
        [
            ("setup", f"{some(len(told.commands), 'command')}, as {told.job}"),
            *([("failed", told.why)] if told.why else []),
            *([("note", told.note)] if told.note else []),
            ("next", told.next),
        ],
    )
