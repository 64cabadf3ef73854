"""How long each account lasts at its current spending.

This is reported before the account is empty, because its boxes go with it.
"""

import asyncio
from datetime import timedelta
from decimal import Decimal

from gpu_tenant.domain.billing import Balance
from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.ports import Funded
from gpu_tenant.leases.cards import MONTH_H
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.settle import Survey

_ENOUGH_H = 3
_ASKED_EVERY = timedelta(minutes=10)
_PATIENCE_S = 8.0
"""In real time: a list of leases waits no longer than this for it."""


async def balance_alarms(context: Context, found: Survey) -> list[str]:
    """What a person must hear about accounts that are being spent.

    An account that does not answer is not reported.
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
    # As the account itself says, or else by what its lists show.
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
        pass  # `doctor` reports it
    context.balances[provider] = (now, balance)
    return balance


def _spends_usd_h(provider: str, found: Survey) -> Decimal:
    """What the account is known to spend on every box there, also on those that are not ours, and on leftovers."""
    boxes = [box.price_usd_h for box in found.listings[provider].boxes]
    left = [each.usd_month for each in found.leftovers if each.provider == provider]
    hourly = sum((usd for usd in boxes if usd is not None), Decimal(0))
    return hourly + sum((usd for usd in left if usd is not None), Decimal(0)) / MONTH_H
