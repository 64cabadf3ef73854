"""A box that was ordered: what is quoted is what is rented, on record, and what its jobs get."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from signed import with_signature

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.order import Order
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.terms_in_force import policy_of

IMAGE = "ghcr.io/me/train:1"


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path) as tenant:
        yield tenant


def ordered(tmp_path: Path, text: str) -> str:
    path = tmp_path / "gpu-tenant.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


async def test_what_is_ordered_is_rented_and_on_record(tenant: Tenant, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-this-job-alone", encoding="utf-8")
    order = ordered(tmp_path, f'image = "{IMAGE}"\ndisk_gb = 64\n[env]\nTOKEN = "file:token"\n')

    found = await with_signature(
        tenant.tenancy, lambda: tenant.tenancy.find_offers(provider="vastai", order=order)
    )
    quote = found.offers[0].quote
    assert quote is not None
    card = await tenant.tenancy.provision(
        smoke="none", quotes=[quote], wait_s=3600, order=order, recover=["same"]
    )

    assert found.order == (f"image {IMAGE}", f"TOKEN from file:{tmp_path}/./token")
    box = tenant.thing(card.box)
    assert (box.facts["image"], float(str(box.facts["disk"]))) == (IMAGE, 64)
    told = f"ordered: image {IMAGE}; TOKEN from file:{tmp_path}/./token"
    assert told in card.terms
    # Another process reads the same from the ledger alone.
    again = tenant.anew_tenancy()
    assert again.ledger.lease(card.lease).terms.order == Order(
        image=IMAGE, disk_gb=64, env={"TOKEN": f"file:{tmp_path}/./token"}
    )
    assert told in policy_of(again.context, card.lease).terms
    assert "of-this-job-alone" not in card.model_dump_json()


async def test_a_job_gets_the_ordered_variables_and_the_ledger_no_value(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-this-job-alone", encoding="utf-8")
    order = ordered(tmp_path, f'[env]\nTOKEN = "file:{tmp_path}/token"\n')
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        quotes = await with_signature(tenant.tenancy, lambda: tenant.quotes(order=order))
        card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
        await tenant.tenancy.launch_detached(
            card.lease, 'mkdir out; test "$TOKEN" = of-this-job-alone; echo $? >out/met', ["out/"]
        )
        at = tenant.home_of(str(card.box)) / tenant.lease(card).work_directory / "out" / "met"
        for _ in range(600):
            if at.is_file() and at.read_text(encoding="utf-8"):
                break
            await asyncio.sleep(0.1)

        assert at.read_text(encoding="utf-8") == "0\n"
        assert b"of-this-job-alone" not in tenant.home.ledger.read_bytes()


async def test_an_order_that_changed_since_the_quote_rents_nothing(
    tenant: Tenant, tmp_path: Path
) -> None:
    order = ordered(tmp_path, f'image = "{IMAGE}"\n')
    quotes = await tenant.quotes(order=order)
    ordered(tmp_path, 'image = "ghcr.io/me/train:2"\n')

    with pytest.raises(BadRequest, match="another order") as refused:
        await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], order=order)
    assert "nothing was rented" in refused.value.message
    assert tenant.creates() == 0

    card = await tenant.tenancy.provision(
        smoke="none", quotes=quotes[:1], wait_s=3600, order="none"
    )
    assert tenant.thing(card.box).facts["image"] == IMAGE


async def test_a_variable_that_leads_nowhere_is_told_before_a_box_bills(
    tenant: Tenant, tmp_path: Path
) -> None:
    order = ordered(tmp_path, '[env]\nTOKEN = "file:nowhere/at/all"\n')
    quotes = await with_signature(tenant.tenancy, lambda: tenant.quotes(order=order))

    with pytest.raises(BadRequest, match="TOKEN leads nowhere"):
        await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], order=order)

    assert tenant.creates() == 0


async def test_a_box_that_exists_takes_no_image(tenant: Tenant, tmp_path: Path) -> None:
    order = ordered(tmp_path, f'image = "{IMAGE}"\n')

    with pytest.raises(BadRequest, match="without a quote is taken as it is"):
        await tenant.tenancy.provision("own", "me@192.0.2.1", order=order)


async def test_the_answer_of_provision_says_where_the_open_ports_are_and_after_a_resume_where_then(
    tmp_path: Path,
) -> None:
    order = ordered(tmp_path, "public_ports = ['8000/http', '9000/tcp']\n")
    async with tenant_at("runpod", tmp_path) as tenant:
        tenancy = tenant.tenancy
        quote = (await tenancy.find_offers(provider="runpod", order=order)).offers[0].quote
        assert quote is not None

        async def provision() -> Card:
            return await tenancy.provision(smoke="none", quotes=[quote], wait_s=3600, order=order)

        card = await provision()
        terms = await tenancy.change_lease(card.lease, "terms", budget_usd=Decimal(9))
        listed = (await tenancy.list_leases()).leases[0]

        assert f"{card.box}-8000.proxy.runpod.net" in card.published[0]
        assert card.published == terms.published == listed.published
        parked = await tenancy.change_lease(card.lease, "park")
        resumed = await tenancy.change_lease(card.lease, "resume")
        again = await provision()

        assert parked.published == ()
        assert again.lease == card.lease
        assert again.published[0] == card.published[0]
        assert again.published[1] != card.published[1]
        assert resumed.published in ((), again.published)
        assert again.published == (await tenancy.list_leases()).leases[0].published
