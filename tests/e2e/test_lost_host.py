"""A box that its platform has taken away: who asks is told so, and what is lost with it can be signed for."""

from pathlib import Path

import pytest
from browser.states import Renter, renter_at
from errands import a_tree
from signed import with_signature

from gpu_tenant.domain.errors import BoxStopped, Unverified
from gpu_tenant.watchdog.loop import Watchdog


async def with_a_job_that_meets(fate: str, renter: Renter, place: Path) -> str:
    """A lease whose box was taken while its job ran."""
    async with renter.tenancy() as tenancy:
        quote = (await tenancy.find_offers(hours=4)).cheapest
        assert quote is not None
        lease = (await tenancy.provision(smoke="none", quotes=[quote], wait_s=3600)).lease
        await tenancy.push(lease, str(a_tree(place / "tree")))
        await tenancy.launch_detached(lease, "echo 1 > kept.txt; sleep 100", ["kept.txt"])
        renter.befalls(fate, box=tenancy.ledger.lease(lease).box_id)
    return lease


async def test_a_lease_ends_over_a_signature_where_nobody_can_reach_its_box_any_more(
    tmp_path: Path,
) -> None:
    with renter_at("vastai", tmp_path) as renter:
        lease = await with_a_job_that_meets("host_lost", renter, tmp_path)

        # Another command has no connection from before, and no way to the box can be opened.
        async with renter.tenancy() as tenancy:
            with pytest.raises(Unverified, match="could not be sealed") as refused:
                await tenancy.verify_and_teardown(lease)
            assert f"waive {lease}" in refused.value.remedy
            ended = await with_signature(tenancy, lambda: tenancy.waive(lease))

        assert ended.receipt.ground == "waived"
        assert renter.ask("meter")["running"] == []


async def test_a_look_at_the_job_of_an_outbid_box_says_so_and_names_the_way_on(
    tmp_path: Path,
) -> None:
    with renter_at("vastai", tmp_path) as renter:
        lease = await with_a_job_that_meets("outbid", renter, tmp_path)

        async with renter.tenancy() as tenancy:
            with pytest.raises(BoxStopped, match=f"the box of {lease} does not run") as told:
                await tenancy.monitor(lease, wait_s=0)

            with pytest.raises(Unverified) as refused:
                await tenancy.verify_and_teardown(lease)

        assert f"resume {lease}" in told.value.remedy
        assert f"resume {lease}" in refused.value.remedy


@pytest.mark.parametrize("slug", ["vastai", "runpod"])
async def test_a_box_whose_host_is_lost_is_not_called_ready_nor_said_to_bill_on(
    slug: str, tmp_path: Path
) -> None:
    with renter_at(slug, tmp_path) as renter:
        lease = await with_a_job_that_meets("host_lost", renter, tmp_path)

        async with renter.tenancy() as tenancy:
            (card,) = (await tenancy.list_leases()).leases
            with pytest.raises(BoxStopped) as told:
                await tenancy.monitor(lease, wait_s=0)
            renter.ask("clock", {"advance_s": 8 * 3600})
            await Watchdog(tenancy, tell=lambda _: None).once()
            at_its_end = {alarm.key: alarm.words for alarm in tenancy.ledger.open_alarms()}

    assert (card.phase, card.bills) == ("lost with its host", "unknown")
    assert card.condition.to_do is not None
    assert card.condition.to_do.matter == "taken"
    for words in (card.next, told.value.remedy):
        assert f"`gpu-tenant recover {lease}`" in words
        assert "resume" not in words, "such a box never comes back"
    assert list(at_its_end) == ["standing"], "one box, one alarm"
    assert "it is unknown whether its provider still bills for it" in at_its_end["standing"]
    assert "goes on billing" not in at_its_end["standing"]
