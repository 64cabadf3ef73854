"""Waits at a terminal for an offer, or for the box of a standing wish. The wish stays if the person leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from gpu_tenant.domain.standing_wish import LOOK_S
from gpu_tenant.leases.wait import WAITING, waiting_lines, wishes_of

if TYPE_CHECKING:
    from gpu_tenant.leases.cards import Card
    from gpu_tenant.leases.offers import Found
    from gpu_tenant.service import Tenancy

_ANSWER_S = 600
"""One call waits this many seconds. The next call continues with the same wish."""
_BOOT_S = 3600
_ON_THE_WAY = (WAITING, "intended", "booting")


async def search_offers(
    tenancy: Tenancy, wait_h: float | None, find: Callable[[], Awaitable[Found]]
) -> Found:
    """Return the offers. If there are none, wait up to `wait_h` hours for the first."""
    found = await find()
    if wait_h is None or found.offers:
        return found
    until = tenancy.clock.now() + timedelta(hours=wait_h)
    click.echo(f"nothing fits yet; looking every {LOOK_S} s until {until:%H:%M} UTC", err=True)
    while not found.offers and tenancy.clock.now() < until:
        await tenancy.clock.sleep(LOOK_S)
        found = await find()
    return found


async def wait_for_box(
    tenancy: Tenancy,
    names: Sequence[str],
    provision: Callable[[float], Awaitable[Card]],
    *,
    is_wait: bool,
) -> Card:
    """Return the card of the box that `provision` gets.

    `provision` is called with the number of seconds to wait for an answer. If the person leaves with Ctrl-C, the
    terminal shows what continues without them.
    """
    if not is_wait:
        return await provision(_BOOT_S)
    try:
        card = await provision(0)
        if card.phase == WAITING:
            _tell(tenancy, names, "waiting; after Ctrl-C, the wish stays open")
        while card.phase in _ON_THE_WAY:
            card = await provision(_ANSWER_S)
    except asyncio.CancelledError:
        _tell(tenancy, names, "this command stops here, but the wish stays open")
        raise
    return card


def _tell(tenancy: Tenancy, names: Sequence[str], words: str) -> None:
    ours = wishes_of(tenancy.context, names)
    for line in waiting_lines(tenancy.context):
        if line.partition(" ")[0] in ours:
            click.echo(f"{words}: {line}", err=True)
