"""Asks providers what they have charged.

They are asked rarely. The answer is recorded, and compared with our own count.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing import BYTES, Billed, newest_bill
from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.model import Lease, Profile
from gpu_tenant.domain.ports import Billing
from gpu_tenant.domain.wording import NOBODY_BILLS
from gpu_tenant.leases.context import Context
from gpu_tenant.ledger import Ledger

_ASKED_EVERY = timedelta(hours=1)
BILLED_WITHIN = timedelta(days=1)
_PATIENCE_S = 8.0
"""A request for a bill may take at most this many seconds of real time."""
_SLACK = Decimal("0.02")
_SLACK_USD = Decimal("0.01")
"""A bill and our own count may differ by this much.

Providers round, and our count does not begin at the same second as theirs.
"""


async def ask_bills(context: Context, provider: str, leases: Sequence[Lease]) -> None:
    """Ask the provider what it has billed for those boxes, and record the answers. For each box, ask once an hour.

    For an ended lease, ask only while its last bill may still come. If the provider does not answer, this is no error:
    the bill stays unknown.
    """
    connector, ledger = context.connectors[provider], context.ledger
    if not isinstance(connector, Billing):
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            for lease in leases:
                asked_at = _asked_at(ledger, lease)
                due = asked_at is None or ledger.now() - asked_at >= _ASKED_EVERY
                if due and lease.box_id is not None and may_be_billed(lease, ledger.now()):
                    await _ask(context, lease, connector)


def may_be_billed(lease: Lease, now: datetime) -> bool:
    """Whether the provider may still add something to the lease's bill."""
    return lease.ended_at is None or now - lease.ended_at <= BILLED_WITHIN


async def ask_bill(context: Context, lease: Lease) -> Billed | None:
    """Ask what the provider has billed for the box so far. Without an answer, return the last known bill, or None."""
    connector = context.connector(lease)
    if isinstance(connector, Billing):
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await _ask(context, lease, connector)
    return newest_bill(context.ledger.events(lease.id, timeline.Billed))


async def _ask(context: Context, lease: Lease, connector: Billing) -> None:
    try:
        billed = await connector.ask_bill(lease)
    except (TenantError, ValueError, ArithmeticError):
        return
    told = timeline.Billed(usd=None)
    if billed is not None:
        told = timeline.Billed(
            usd=str(billed.usd),
            until=billed.until.isoformat(),
            parts={part: str(usd) for part, usd in billed.by_part.items()},
            words=billed.words,
        )
    # Record an empty answer too, so that the next request waits an hour.
    context.ledger.note(lease.id, told, at=context.clock.now())


def _asked_at(ledger: Ledger, lease: Lease) -> datetime | None:
    asked = ledger.events(lease.id, timeline.Billed)
    return asked[-1].at if asked else None


def disagreement(lease: Lease, billed: Billed, *, until: datetime) -> str | None:
    """Say how the bill, without charges for bytes, differs from our count. None if they agree."""
    most, least = lease.cost_usd(until), lease.cost_usd(min(billed.until, until))
    if most is None or least is None:
        return None
    usd = billed.by_the_hour_usd
    if least - _slack(least) <= usd <= most + _slack(most):
        return None
    parts = ", ".join(f"{part} {sum_usd}" for part, sum_usd in billed.by_part.items())
    if usd > most:
        return (
            f"without the charges for bytes, {lease.provider} billed {usd} USD, but {most} USD were counted: "
            f"more than was quoted ({billed.words}: {parts})"
        )
    return (
        f"without the charges for bytes, {lease.provider} has billed {usd} USD so far, but {most} USD were "
        f"counted: the rest may be billed later, or never ({billed.words}: {parts})"
    )


def covered_until(lease: Lease, billed: Billed) -> datetime | None:
    """Return until when the bill covers the box's time. None if it covers none of that time yet."""
    return billed.until if billed.until > (lease.active_at or lease.created_at) else None


def apart_words(
    lease: Lease,
    counted: Decimal | None,
    billed: Billed | None,
    *,
    until: Literal["it was seen gone", "now"] = "it was seen gone",
) -> str | None:
    """Say why our count and the bill differ although both are right. None if they are equal, or if one is unknown."""
    if counted is None or billed is None or counted == billed.usd:
        return None
    covered = covered_until(lease, billed)
    if covered is None:
        return f"our count goes until {until}; the bill is of a period that is not over, by {billed.words}"
    return f"our count goes until {until}; the bill is until {covered:%Y-%m-%d %H:%M} UTC, by {billed.words}"


def billed_more(lease: Lease, billed: Billed | None, now: datetime) -> str | None:
    """Return the words of `disagreement`, but only if the bill is higher than our count. Otherwise None."""
    counted = lease.cost_usd(now)
    if billed is None or counted is None or billed.by_the_hour_usd <= counted:
        return None
    return disagreement(lease, billed, until=now)


def _slack(counted: Decimal) -> Decimal:
    return max(counted * _SLACK, _SLACK_USD)


def counted_words(lease: Lease, profile: Profile, billed: Billed | None) -> str:
    """Say what a lease's cost includes, and where its rates come from."""
    had_a_rate = lease.price_usd_h or any(rate.usd_h for rate in lease.rates)
    if profile.kind == "own" and not had_a_rate and billed is None:
        return NOBODY_BILLS
    price = lease.quote.offer.price if lease.quote else None
    source = "the rate on record"
    if price is not None:
        source = {"api": "its provider's rate", "owner": "its owner's word"}.get(
            price.source, f"a price list of {price.as_of or 'no date'}"
        )
        if price.converted is not None:
            source += f" ({price.converted})"
    return f"compute and disk by {source}; {_bytes_words(lease, billed)}"


def _bytes_words(lease: Lease, billed: Billed | None) -> str:
    price = lease.quote.offer.price if lease.quote else None
    if billed is not None and BYTES in billed.by_part:
        covered = covered_until(lease, billed)
        if covered is None:
            return f"{billed.by_part[BYTES]} USD for bytes, by its bill so far"
        return (
            f"{billed.by_part[BYTES]} USD for bytes, by its bill until {covered:%Y-%m-%d %H:%M} UTC"
        )
    if price is not None and price.has_free_bytes:
        return "bytes are free"
    return "bytes are not in it: their cost is unknown"
