"""Move leases forward by what their providers show, so that no process is indispensable."""

import re
from collections.abc import Mapping
from datetime import timedelta

from gpu_tenant.errors import ProviderTrouble
from gpu_tenant.ledger import Event, Ledger
from gpu_tenant.model import MARK_PREFIX, Lease, LeaseId, LeaseState, Profile, Terms
from gpu_tenant.ports import Clock, Connector
from gpu_tenant.reconcile import (
    Alarm,
    BindBox,
    DeclareLost,
    FileReceipt,
    FinishTeardown,
    LookAgain,
    Rest,
    VoidIntent,
    plan,
)
from gpu_tenant.teardown import file_receipt, look

_ORPHAN_TERMS_H = 24
_MARK = re.compile(rf"{MARK_PREFIX}(?P<lease>[a-z][a-z0-9_]*-[a-z0-9]+)")
"""Anybody may write a label, and a lease's id becomes part of paths: only our own form counts."""


async def settle(
    lease: Lease, profile: Profile, *, connector: Connector, ledger: Ledger, clock: Clock
) -> tuple[Lease, str | None]:
    """The lease as its provider's list says it stands now, and what a person must hear about it.

    Nothing is destroyed here: a teardown that was cut short is told, and proved anew by the verb.
    """
    while True:
        if not lease.state.live:
            return lease, None
        seen = await look(lease, connector=connector, ledger=ledger, clock=clock)
        now = clock.now()
        match plan(lease, seen, now, list_lag_s=profile.list_lag_s):
            case Rest():
                return lease, None
            case Alarm(words=words):
                return lease, words
            case LookAgain(at=at):
                if at > now:
                    return lease, "its box is not in the provider's list; one look proves nothing"
            case BindBox(box=box):
                lease = ledger.bind(lease.id, box, at=now)
            case VoidIntent():
                lease = ledger.end(lease.id, "void", at=now)
            case DeclareLost():
                return ledger.end(lease.id, "lost", at=now), "the box is gone, and not by us"
            case FinishTeardown():
                return lease, f"its teardown was cut short: `gpu-tenant teardown {lease.id}` again"
            case FileReceipt() as step:
                file_receipt(lease, profile, step, ledger=ledger, clock=clock)
                lease = ledger.lease(lease.id)


async def adopt_orphans(
    connectors: Mapping[str, Connector], *, ledger: Ledger, clock: Clock
) -> list[tuple[LeaseId, str]]:
    """Every listed box with our mark is under a lease; the ones that were not are told.

    What such a box was used for is not known, so it counts as used from the start.
    """
    adopted: list[tuple[LeaseId, str]] = []
    for provider, connector in connectors.items():
        try:
            boxes = await connector.list_boxes()
        except ProviderTrouble as error:
            adopted.append((LeaseId(provider), f"{provider} does not answer: {error.message}"))
            continue
        # Asked after the list: whoever makes a box writes its lease down first.
        known = {lease.id: lease.state for lease in ledger.leases()}
        for box in boxes:
            marked = _MARK.fullmatch(box.mark or "")
            if marked is None:
                continue
            lease_id = LeaseId(marked["lease"])
            if lease_id in known:
                if not known[lease_id].live:
                    adopted.append((lease_id, _back(known[lease_id], provider)))
                continue
            now = clock.now()
            ledger.intend(
                lease_id=lease_id,
                provider=provider,
                terms=Terms(deadline_at=now + timedelta(hours=_ORPHAN_TERMS_H)),
                address=box.address,
                price_usd_h=box.price_usd_h,
                at=now,
                # In one step: a crash must not leave a used box that looks unused.
                touched_at=now,
            )
            ledger.bind(lease_id, box, at=now)
            words = (
                "this box carries our mark and no ledger line knew it: it is under a lease again"
            )
            ledger.note(lease_id, Event.NOTICE, {"words": words}, at=now)
            adopted.append((lease_id, words))
    return adopted


def _back(ended: LeaseState, provider: str) -> str:
    return (
        f"its lease is {ended}, and {provider} lists its box again: its meter may be running, and only "
        "you can end it, where you rented it"
    )
