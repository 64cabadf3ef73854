"""The one place that destroys: over a filed permit, and believed only when the list says so twice."""

from datetime import timedelta

from pydantic import TypeAdapter

from gpu_tenant.errors import ProviderTrouble
from gpu_tenant.ledger import Event, Ledger
from gpu_tenant.model import MARK_PREFIX, Box, Evidence, Lease, Profile, Receipt
from gpu_tenant.permit import TeardownPermit
from gpu_tenant.ports import Clock, Connector
from gpu_tenant.reconcile import Blind, FileReceipt, Listed, LookAgain, Omitted, Seen, plan
from gpu_tenant.verify import formats_of

_WORDS: TypeAdapter[list[str]] = TypeAdapter(list[str])
_GONE_WITHIN_S = 300
"""A box that is still listed so long after the destroy is somebody's to look at."""


async def tear_down(
    permit: TeardownPermit,
    lease: Lease,
    profile: Profile,
    *,
    connector: Connector,
    ledger: Ledger,
    clock: Clock,
) -> Receipt:
    """The permitted box is gone, seen twice, and the receipt is filed.

    Raises:
        ProviderTrouble: the destroy was refused, or the box is still listed; the meter may run.
    """
    lease = ledger.file_permit(permit, at=clock.now())
    await connector.destroy(permit)
    give_up_at = clock.now() + timedelta(seconds=_GONE_WITHIN_S)
    while True:
        seen = await look(lease, connector=connector, ledger=ledger, clock=clock)
        step = plan(lease, seen, clock.now(), list_lag_s=profile.list_lag_s)
        if isinstance(step, FileReceipt):
            return file_receipt(lease, profile, step, ledger=ledger, clock=clock)
        if clock.now() >= give_up_at:
            raise ProviderTrouble(
                f"{lease.box_id} is not proved gone; its meter may be running ({_rate(lease)})",
                remedy=f"look at the provider's console, then `gpu-tenant teardown {lease.id}` again",
            )
        await clock.sleep(_pause_s(step, clock))


async def look(lease: Lease, *, connector: Connector, ledger: Ledger, clock: Clock) -> Seen:
    """What the provider's list says of the lease's box now; a look at a live lease is on record."""
    try:
        boxes = await connector.list_boxes()
    except ProviderTrouble as error:
        return Blind(error.message)
    box = next((box for box in boxes if _is_of(box, lease)), None)
    if box is not None:
        if ledger.absences(lease.id):
            ledger.saw(lease.id, listed="listed", at=clock.now())
        return Listed(box)
    ledger.saw(lease.id, listed="omitted", at=clock.now())
    return Omitted(ledger.absences(lease.id))


def _is_of(box: Box, lease: Lease) -> bool:
    if box.mark == lease.mark:
        return True
    # A person may have renamed it. It is there, and bills, under any name but another lease's.
    return box.id == lease.box_id and not (box.mark or "").startswith(MARK_PREFIX)


def file_receipt(
    lease: Lease, profile: Profile, step: FileReceipt, *, ledger: Ledger, clock: Clock
) -> Receipt:
    """The proof of the end is in the ledger and the lease is gone."""
    ground, asked_at = ledger.permitted(lease.id)
    seal = ledger.seal(lease.id) if ground != "never_used" else None
    evidence = ledger.evidence(lease.id, seal.digest) if seal else []
    first, second = step.looks[0], step.looks[-1]
    if lease.active_at is None or lease.box_id is None:
        raise ProviderTrouble(f"{lease.id} never had a box", remedy="`gpu-tenant leases --all`")
    receipt = Receipt.model_validate(
        {
            "lease_id": lease.id,
            "provider": lease.provider,
            "box_id": lease.box_id,
            "ground": ground,
            "active_at": lease.active_at,
            "destroy_asked_at": asked_at,
            "first_absent_at": first,
            "second_absent_at": second,
            "lived_s": round((first - lease.active_at).total_seconds(), 3),
            "cost_usd": lease.cost_usd(first),
            "kept_files": len(evidence),
            "kept_bytes": sum(e.size_bytes for e in evidence),
            "kept_in": lease.kept_in if evidence else None,
            "formats": formats_of(evidence),
            "not_proved": (*_not_proved(evidence), *_not_looked_at(lease, profile)),
            "given_up": _given_up(lease, ground, ledger),
            "warnings": tuple(f"{e.name}: {w}" for e in evidence for w in e.verdict.warnings),
            "left_behind": _left_behind(lease, profile),
        }
    )
    ledger.file_receipt(receipt, at=clock.now())
    return receipt


def _not_proved(evidence: list[Evidence]) -> tuple[str, ...]:
    unread = [e.name for e in evidence if e.verdict.outcome == "opaque"]
    words = [
        f"{e.name}: {w}" for e in evidence for w in e.verdict.not_proved if e.name not in unread
    ]
    if unread:
        words.append(
            f"{len(unread)} files have no format we read; their bytes were proved by hash alone"
        )
    return tuple(words)


def _not_looked_at(lease: Lease, profile: Profile) -> tuple[str, ...]:
    if lease.touched_at is None:
        return ()
    places = " and ".join(("the work directory", *profile.accounted_paths))
    return (f"bytes written outside {places}: nobody looked there",)


def _given_up(lease: Lease, ground: str, ledger: Ledger) -> tuple[str, ...]:
    """What the owner let go: patterns by name, or the losses a person signed for."""
    if ground != "waived":
        return tuple(ledger.declared(lease.id)[1])
    signed = [detail for _, kind, detail in ledger.events(lease.id) if kind == Event.WAIVED]
    return tuple(_WORDS.validate_python(signed[-1]["losses"])) if signed else ()


def _left_behind(lease: Lease, profile: Profile) -> str | None:
    if profile.destroy == "hands_back":
        rate = "its meter" if lease.price_usd_h is None else f"its {lease.price_usd_h} USD/h"
        return (
            f"~/{lease.directory} on {lease.box_id}: the machine was handed back as it is, and "
            f"{rate} goes on until its owner stops it"
        )
    return None


def _rate(lease: Lease) -> str:
    return "at an unknown rate" if lease.price_usd_h is None else f"at {lease.price_usd_h} USD/h"


def _pause_s(step: object, clock: Clock) -> float:
    if isinstance(step, LookAgain):
        return max(0.0, (step.at - clock.now()).total_seconds())
    return 5.0
