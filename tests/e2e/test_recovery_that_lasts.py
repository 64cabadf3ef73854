"""Work that goes on at another box takes one whose rental lasts, where there is one; and what it took is said."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.taken import outbid

from gpu_tenant.emulators.vastai.market import ASKS
from gpu_tenant.leases.recover import recover
from gpu_tenant.leases.recovery_words import rental_ends_at

ENDS_SOON = 9009
"""The cheapest offer of all, which ends before the deadline of a lease for a short job."""


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as made:
        yield made


async def outbid_soon(tenant: Tenant, tree: Path) -> str:
    """A short job's lease, on a box that would have lasted, which was outbid while the job ran."""
    quotes = await tenant.quotes(hours=0.3, interruptible="yes")
    assert str(ENDS_SOON) in offer_of(tenant, quotes[0])
    lasts = next(x for x in quotes if str(ENDS_SOON) not in offer_of(tenant, x))
    return await outbid(tenant, tree, "sleep 600", quote=lasts)


def offer_of(tenant: Tenant, quote: str) -> str:
    known = tenant.tenancy.ledger.quote(quote)
    assert known is not None
    return known.offer.id


async def test_a_recovery_leaves_the_cheapest_offer_that_ends_before_the_deadline_for_one_that_lasts(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid_soon(tenant, tmp_path / "tree")

    card = await recover(tenant.tenancy.context, lost, wait_s=3600)

    new = tenant.lease(card.lease)
    assert new.quote is not None
    assert str(ENDS_SOON) not in new.quote.offer.id
    ends_at = rental_ends_at(new)
    assert ends_at is not None
    assert ends_at >= new.terms.deadline_at
    price = new.quote.offer.price.running_usd_h
    assert (
        f"on {new.id}: its provider calls the host {new.quote.offer.trust}, it is rented at {price} USD/h, and the "
        f"rental ends at {ends_at:%Y-%m-%d %H:%M} UTC"
    ) in card.recovered
    assert card.alarm is None


async def test_where_only_a_box_that_ends_early_is_left_it_is_taken_and_that_is_said(
    tenant: Tenant, tmp_path: Path
) -> None:
    lost = await outbid_soon(tenant, tmp_path / "tree")
    for ask in ASKS:
        if ask["id"] != ENDS_SOON:
            tenant.fault("no_capacity", "PUT", f"/asks/{ask['id']}/", times=100)

    card = await recover(tenant.tenancy.context, lost, wait_s=3600)

    new = tenant.lease(card.lease)
    ends_at = rental_ends_at(new)
    assert ends_at is not None
    assert ends_at < new.terms.deadline_at
    assert card.alarm is not None
    assert (
        f"the rental of its box ends at {ends_at:%Y-%m-%d %H:%M} UTC, before its deadline at"
        in card.alarm
    )
