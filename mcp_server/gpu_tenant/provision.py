"""Have a box under a lease: written down before it exists, and believed when its provider lists it."""

import secrets
from datetime import timedelta
from decimal import Decimal

from gpu_tenant.errors import BadRequest, Refused
from gpu_tenant.ledger import Ledger
from gpu_tenant.model import Address, Lease, LeaseId, Profile, Terms
from gpu_tenant.ports import Clock, Connector
from gpu_tenant.smoke import SmokeReceipt

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Without the ones that are read for others."""

_SMOKE_COUNTS_FOR = timedelta(days=7)


def intend(
    profile: Profile,
    *,
    hours: float,
    price_usd_h: Decimal | None,
    max_price_usd_h: Decimal | None,
    budget_usd: Decimal | None,
    address: Address | None,
    ledger: Ledger,
    clock: Clock,
) -> Lease:
    """The intent is in the ledger, with the terms that hold from now on; nothing exists for it yet.

    Raises:
        BadRequest: the hours are not a time to come.
        Refused: the price is above the cap, or unknown where there is a cap.
    """
    if not 0 < hours <= 24 * 365:
        raise BadRequest(f"{hours} hours is no lease", remedy="give --hours as a number above 0")
    if price_usd_h is None and (max_price_usd_h is not None or budget_usd is not None):
        raise Refused(
            "the price is unknown, which is not zero, and cannot pass a cap or fill a budget",
            remedy="state what the box costs with --price-usd-h, or drop --max-price-usd-h and --budget-usd",
        )
    if max_price_usd_h is not None and price_usd_h is not None and price_usd_h > max_price_usd_h:
        raise Refused(
            f"{price_usd_h} USD/h is above the cap of {max_price_usd_h} USD/h",
            remedy="raise --max-price-usd-h, or take a cheaper box",
        )
    now = clock.now()
    terms = Terms(
        deadline_at=now + timedelta(hours=hours),
        max_price_usd_h=max_price_usd_h,
        budget_usd=budget_usd,
    )
    return ledger.intend(
        lease_id=new_lease_id(profile, ledger),
        provider=profile.id,
        terms=terms,
        address=address,
        price_usd_h=price_usd_h,
        at=now,
    )


def new_lease_id(profile: Profile, ledger: Ledger) -> LeaseId:
    """An id that no lease has, easy to say: the provider and four letters."""
    taken = {lease.id for lease in ledger.leases()}
    while True:
        lease_id = LeaseId(f"{profile.id}-{''.join(secrets.choice(_LETTERS) for _ in range(4))}")
        if lease_id not in taken:
            return lease_id


async def fulfil(lease: Lease, *, connector: Connector, ledger: Ledger, clock: Clock) -> Lease:
    """The lease stands on a box that its provider lists under its mark.

    Raises:
        ProviderTrouble: no box could be had.
        BoxTaken: another live lease stands on it.
    """
    return ledger.bind(lease.id, await connector.create(lease), at=clock.now())


def require_smoke(receipt_id: str | None, *, ledger: Ledger, clock: Clock) -> SmokeReceipt | None:
    """A passed smoke test of the last week, or None where the caller chose to go without.

    Raises:
        Refused: neither; a bug found on the meter costs more than one found here.
    """
    remedy = "run `gpu-tenant smoke DIR -- COMMAND` first, or go without by name: --smoke none"
    if receipt_id == "none":
        return None
    if receipt_id is None:
        raise Refused("no smoke test was shown", remedy=remedy)
    record = ledger.smoke(receipt_id)
    if record is None:
        raise Refused(f"there is no smoke receipt {receipt_id}", remedy=remedy)
    receipt = SmokeReceipt.model_validate_json(record)
    if not receipt.passed:
        raise Refused(f"the smoke test {receipt_id} did not pass", remedy=remedy)
    if clock.now() - receipt.at > _SMOKE_COUNTS_FOR:
        raise Refused(f"the smoke test {receipt_id} is older than a week", remedy=remedy)
    return receipt
