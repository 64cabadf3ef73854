"""Warns about accounts whose balance does not last long at their current spending.

The warning comes before an account is empty, because the account's boxes are then stopped or deleted.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from gpu_tenant.domain.billing import Balance
from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.ports import Funded
from gpu_tenant.leases.cards import MONTH_H

if TYPE_CHECKING:
    from gpu_tenant.leases.context import Context
    from gpu_tenant.leases.settle import Survey

_ENOUGH_H = 3
_ASKED_EVERY = timedelta(minutes=10)
_PATIENCE_S = 8.0
"""A list of leases waits at most this many seconds for a balance.

This is real time, even in a rehearsal, whose clock may differ.
"""


async def balance_alarms(context: Context, found: Survey) -> list[str]:
    """Say which accounts will soon be empty at what they spend now.

    Nothing is said about an account that does not answer.
    """
    async with asyncio.TaskGroup() as asking:
        told = [
            asking.create_task(_alarm(context, provider, found))
            for provider in found.listings
            if _spends_usd_h(provider, found) > 0
        ]
    return [words for task in told if (words := task.result()) is not None]


async def _alarm(context: Context, provider: str, found: Survey) -> str | None:
    balance = await _balance(context, provider)
    if balance is None:
        return None
    # Use the spending that the account itself states. If it states none, add up the prices of its boxes and leftovers.
    spends = balance.spends_usd_h or _spends_usd_h(provider, found)
    lasts_h = balance.amount_usd / spends
    if lasts_h >= _ENOUGH_H:
        return None
    return (
        f"{provider} balance: {context.profile(provider).title} holds {balance.amount_usd:.2f} USD, which "
        f"lasts {max(lasts_h, Decimal(0)):.1f} h at {spends:.4f} USD/h: add credit; {balance.words}"
    )


async def _balance(context: Context, provider: str) -> Balance | None:
    now = context.clock.now()
    known = context.balances.get(provider)
    if known is not None and now - known[0] < _ASKED_EVERY:
        return known[1]
    connector = context.connectors[provider]
    if not isinstance(connector, Funded):
        return None
    balance = None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            balance = await connector.balance()
    except (TenantError, TimeoutError):
        pass  # `doctor` reports an account that does not answer.
    context.balances[provider] = (now, balance)
    return balance


def _spends_usd_h(provider: str, found: Survey) -> Decimal:
    """Return what the account spends per hour on its boxes and leftovers, as far as known, also on boxes of others."""
    boxes = [box.price_usd_h for box in found.listings[provider].boxes]
    left = [each.usd_month for each in found.leftovers if each.provider == provider]
    hourly = sum((usd for usd in boxes if usd is not None), Decimal(0))
    return hourly + sum((usd for usd in left if usd is not None), Decimal(0)) / MONTH_H
