"""Checks for one more day a box that counts as gone only because a person said so. If it answers, it is not gone.

Then the old receipt stays, and the box gets a new lease with the terms of the old one. So what it bills is shown, its
terms are enforced, and only a verified teardown ends it.

A box that was parked in a console counts as stopped only because it is silent. It is checked in the same way. If it
answers, its lease counts as running.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble, BoxUnreachable, HostKeyChanged
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.ports import Parking, Tended
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.names import labels_again
from gpu_tenant.leases.provision import new_lease_id
from gpu_tenant.ledger import Ledger

_DOUBTED = timedelta(days=1)
_WITHIN_S = 5
"""A look at all leases waits only this many seconds for such a box, because it is most likely gone."""
_KEY = "answers again: "
_RUNS = "runs again: "


def in_doubt(ledger: Ledger, now: datetime) -> list[Lease]:
    """Return the leases that ended in the last day on a person's statement, and whose box has no later lease."""
    return [
        lease
        for lease in ledger.ended_since(now - _DOUBTED)
        if lease.state is LeaseState.GONE
        and ledger.is_attested(lease.id)
        and not any(
            other.created_at > lease.created_at
            for other in ledger.stood_on(lease.provider, str(lease.box_id))
        )
    ]


async def is_there(lease: Lease, reach: Callable[[Lease], Awaitable[None]]) -> bool:
    """Whether the lease's box answers at its address. False if it is silent, or if it has another host key."""
    try:
        async with asyncio.timeout(_WITHIN_S):
            await reach(lease)
    except (TimeoutError, BoxUnreachable, HostKeyChanged):
        return False
    except BoxTrouble:
        return True  # It does not let us in, but it has its own host key.
    return True


def reopen(context: Context, lease: Lease) -> Lease:
    """Make a new lease for that box, with the old lease's terms, and raise an alarm. The box counts as used."""
    ledger, at = context.ledger, context.clock.now()
    again = ledger.intend(
        lease_id=new_lease_id(ledger, lease.provider),
        provider=lease.provider,
        address=lease.address,
        terms=lease.terms.model_copy(update={"on_deadline": "keep"}),
        at=at,
        price_usd_h=lease.rates[0].usd_h if lease.rates else lease.price_usd_h,
        labels=labels_again(context, lease),
    )
    ledger.touch(again.id, at=again.created_at)
    ledger.raise_alarm(
        f"{_KEY}{again.id}",
        f"{lease.id} was attested to be gone, but its box {lease.box_id} answers again: the box bills"
        f" {rate_words(again)}, and is under the lease {again.id} now; end the box in its console, or run"
        f" {Command('teardown', again.id)}",
        level=Level.URGENT,
        lease_id=None,
        at=at,
    )
    ledger.note(
        again.id, timeline.Noticed(words=f"the box of {lease.id}, which answers again"), at=at
    )
    return ledger.lease(again.id)


def parked_in_doubt(context: Context) -> list[Lease]:
    """Return the leases whose box was parked in the last day and counts as stopped only because it is silent."""
    now = context.clock.now()
    parked = [
        lease
        for lease in context.ledger.leases("live")
        if lease.state is LeaseState.ACTIVE
        and lease.parked_at is not None
        and now - lease.parked_at < _DOUBTED
    ]
    return [lease for lease in parked if _parking_connector(context, lease) is not None]


def _parking_connector(context: Context, lease: Lease) -> Parking | None:
    connector = context.connectors.get(lease.provider)
    if connector is None or not isinstance(connector, Tended) or not connector.tends(lease.box_id):
        return None
    return connector if isinstance(connector, Parking) else None


async def run_on(context: Context, lease: Lease) -> None:
    """Record that a parked box runs after all, and raise an alarm."""
    ledger, at = context.ledger, context.clock.now()
    connector = _parking_connector(context, lease)
    if connector is None or lease.parked_at is None:
        return
    before = next((rate.usd_h for rate in reversed(lease.rates) if rate.at < lease.parked_at), None)
    await connector.resume(lease)  # this changes only our own list of boxes, and starts nothing
    again = ledger.note_resumed(lease.id, before, at=at)
    ledger.raise_alarm(
        f"{_RUNS}{lease.id}",
        f"{lease.id} was parked, because its box {lease.box_id} was silent, but the box answers: it bills"
        f" {rate_words(again)}, and may have billed since {lease.parked_at:%Y-%m-%d %H:%M} UTC;"
        f" {Command('park', lease.id)}, or stop the box in its console",
        level=Level.URGENT,
        lease_id=None,
        at=at,
    )


def told_no_more(ledger: Ledger, at: datetime) -> None:
    """End the alarm about a box that answered again, if its lease has ended or is parked again."""
    for alarm in ledger.open_alarms():
        if alarm.key.startswith(_RUNS):
            known = ledger.lease(LeaseId(alarm.key.removeprefix(_RUNS)))
            if known.state is not LeaseState.ACTIVE or known.parked_at is not None:
                ledger.end_alarm(alarm.key, lease_id=None, at=at)
        again = LeaseId(alarm.key.removeprefix(_KEY))
        if alarm.key.startswith(_KEY) and not ledger.lease(again).state.live:
            ledger.end_alarm(alarm.key, lease_id=None, at=at)
