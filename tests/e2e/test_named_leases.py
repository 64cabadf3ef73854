"""Leases that have names: found, sorted, renamed, and called the same where their work goes on."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import tenant_at

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.leases.lease_search import in_order
from gpu_tenant.service import Tenancy


@pytest.fixture
async def tenancy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tenancy]:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    opened = open_tenancy()
    yield opened
    await opened.aclose()


async def test_leases_are_found_by_name_tag_project_platform_and_state(tenancy: Tenancy) -> None:
    one = await tenancy.provision(smoke="none", name="llama/first try #paper")
    other = await tenancy.provision(smoke="none", name="vit/second #paper2")
    bare = await tenancy.provision(smoke="none")

    async def found(words: str) -> set[str]:
        return {card.lease for card in (await tenancy.list_leases(search=words)).leases}

    assert one.name == "llama/first try #paper"
    assert await found("") == {one.lease, other.lease, bare.lease}
    assert await found("llama/") == {one.lease}
    assert await found("#paper") == {one.lease}, "a tag is a whole one"
    assert await found("PAPER") == {one.lease, other.lease}
    assert await found("local ready") == {one.lease, other.lease, bare.lease}
    assert await found("try llama") == {one.lease}
    assert await found(other.lease) == {other.lease}
    seen = await tenancy.list_leases(search="nothing of the kind")
    assert (seen.leases, seen.hidden) == ((), 3)

    by_name = in_order((await tenancy.list_leases()).leases, "name")
    assert [card.lease for card in by_name] == [one.lease, other.lease, bare.lease]


async def test_the_sums_are_of_all_leases_whatever_is_shown(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        await tenant.rented()
        every, some = [await tenant.tenancy.list_leases(search=words) for words in ("", "xyz")]

        assert some.leases == ()
        assert some.burning_usd_h == every.burning_usd_h > Decimal(0)


async def test_what_has_ended_is_found_however_far_back(tenancy: Tenancy) -> None:
    first = await tenancy.provision(smoke="none", name="old #paper")
    await tenancy.verify_and_teardown(first.lease)
    for _ in range(3):
        lease = (await tenancy.provision(smoke="none")).lease
        await tenancy.verify_and_teardown(lease)

    found = await tenancy.list_leases("all", 1, search="#paper")

    assert [card.lease for card in found.leases] == [first.lease]


async def test_a_new_name_changes_no_terms_and_withdraws_no_signature(tenancy: Tenancy) -> None:
    lease = (await tenancy.provision(smoke="none", name="a #b")).lease
    before = tenancy.ledger.lease(lease).terms

    card = await tenancy.change_lease(lease, "terms", name="c/d")
    again = await tenancy.change_lease(lease, "terms", name="c/d")

    assert (card.name, again.name) == ("c/d", "c/d")
    assert tenancy.ledger.lease(lease).terms == before
    assert [line.kind for line in tenancy.ledger.events(lease)].count("labelled") == 2
    assert "terms" not in [line.kind for line in tenancy.ledger.events(lease)]


async def test_a_name_that_is_none_is_refused_before_anything_is_rented(tenancy: Tenancy) -> None:
    with pytest.raises(BadRequest, match="the project comes before the /"):
        await tenancy.provision(smoke="none", name="/x")

    assert tenancy.ledger.leases() == []
