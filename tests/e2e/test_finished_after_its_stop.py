"""A box that its guard stopped at the deadline is started once more, for the minutes that the proof of its files takes."""

from decimal import Decimal
from pathlib import Path
from shutil import rmtree

import pytest
from e2e.renting import tenant_at
from e2e.taken import outbid
from e2e.watching import Scene

from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.model import LeaseState, LocalAddress, SshAddress
from gpu_tenant.emulators.rehearsal_client import really_at


@pytest.mark.parametrize("provider", ["vastai", "runpod"])
async def test_a_box_that_its_guard_stopped_is_ended_by_whoever_looks_later(
    provider: str, tmp_path: Path
) -> None:
    async with tenant_at(provider, tmp_path, time="runs", box_time="leaps") as tenant:
        scene = Scene(tenant)
        await scene.rent()
        await scene.work()
        await tenant.clock.sleep(4 * 3600)  # nobody looks: its guard stops it
        assert tenant.thing(tenant.lease(scene.lease).box_id).phase == "parked"

        for _ in range(20):
            await scene.later(minutes=1)
            if scene.state is LeaseState.GONE:
                break

        receipt = tenant.tenancy.ledger.receipt(tenant.lease(scene.lease).id)
        assert receipt is not None, (scene.alarms(), scene.kinds)
        assert receipt.ground == "verified"
        assert (scene.kept() / "out" / "step.txt").exists()
        assert scene.kinds.count("resuming") == 1
        tenant.assert_nothing_bills()


@pytest.mark.parametrize("provider", ["vastai", "runpod"])
async def test_a_budget_is_held_by_the_guard_if_nobody_looks(provider: str, tmp_path: Path) -> None:
    async with tenant_at(provider, tmp_path, time="runs", box_time="leaps") as tenant:
        scene = Scene(tenant)
        await scene.rent(hours=8, budget_usd=Decimal("0.60"), max_price_usd_h=Decimal(1))
        await scene.work("mkdir -p out; echo 1 > out/one.txt; sleep 600")
        lease = tenant.lease(scene.lease)
        assert lease.price_usd_h is not None
        lasts_h = float(Decimal("0.60") / lease.price_usd_h)
        assert lasts_h < 4, "the budget ends it long before its deadline"

        await tenant.clock.sleep(lasts_h * 3600)
        thing = tenant.thing(lease.box_id)
        assert thing.phase == "parked"
        assert tenant.metered(lease.box_id) <= Decimal("0.60")

        for _ in range(20):
            await scene.later(minutes=1)
            if scene.state is LeaseState.GONE:
                break

        receipt = tenant.tenancy.ledger.receipt(lease.id)
        assert receipt is not None, (scene.alarms(), scene.kinds)
        assert receipt.ground == "verified"
        assert (scene.kept() / "out" / "one.txt").exists()
        assert scene.kinds.count("resuming") == 1
        assert scene.kinds.count("guard stop") == 1
        tenant.assert_nothing_bills()


async def test_a_box_that_was_parked_on_purpose_is_not_started(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        scene = Scene(tenant)
        await scene.rent()
        await scene.work("mkdir -p out; echo 1 > out/one.txt")
        await scene.ends()
        await tenant.tenancy.change_lease(scene.lease, "park")

        for _ in range(3):
            await scene.later(hours=2)

        assert "resuming" not in scene.kinds
        assert scene.state is LeaseState.ACTIVE
        assert "parked" in scene.alarms()


async def test_a_box_whose_start_fails_is_started_once_and_its_disk_is_told_with_its_price_a_month(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        scene = Scene(tenant)
        await scene.rent()
        await scene.work()
        await tenant.clock.sleep(4 * 3600)
        tenant.fault("status", "PUT", "/instances/", status=500, times=1000)

        for _ in range(4):
            await scene.later(hours=1)

        assert scene.kinds.count("resuming") == 1
        assert scene.state is LeaseState.ACTIVE
        tenant.assert_no_destroy_was_asked()
        assert "USD a month" in scene.alarms()["parked"][1]


async def test_what_is_asked_of_a_box_that_its_guard_stopped_is_answered_with_the_deadline(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        scene = Scene(tenant)
        await scene.rent()
        await scene.work()
        await tenant.clock.sleep(4 * 3600)
        await tenant.tenancy.list_leases()

        with pytest.raises(
            Refused, match=r"its deadline was 20.* UTC, and its box was stopped then"
        ):
            await tenant.tenancy.monitor(scene.lease, "train", wait_s=0)


async def test_an_outbid_box_is_started_and_ended_after_its_deadline(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        scene = Scene(tenant)
        command = "mkdir -p out; echo 1 > out/one.txt; sleep 600"
        scene.lease = await outbid(
            tenant, tmp_path / "tree", command, wrote="out/one.txt", hours=2, when_done="keep"
        )
        tenant.all_is_well()
        await tenant.clock.sleep(3 * 3600)

        for _ in range(20):
            await scene.later(minutes=1)
            if scene.state is LeaseState.GONE:
                break

        assert scene.state is LeaseState.GONE, (scene.alarms(), scene.kinds)
        tenant.assert_nothing_bills()


async def test_a_parked_box_whose_rental_ends_sooner_than_promised_is_started_while_that_is_possible(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        scene = Scene(tenant)
        await scene.rent(hours=8, idle_h=0.5)
        await scene.work("mkdir -p out; echo 1 > out/one.txt")
        await scene.ends()
        await tenant.clock.sleep(2 * 3600)  # nobody looks: its guard stops it as idle
        box = tenant.thing(tenant.lease(scene.lease).box_id)
        assert box.phase == "parked"
        box.facts["end_date"] = tenant.clock.now().timestamp() + 7200

        for _ in range(14):
            await scene.later(minutes=10)
            if scene.state is LeaseState.GONE:
                break

        receipt = tenant.tenancy.ledger.receipt(tenant.lease(scene.lease).id)
        assert receipt is not None, (scene.alarms(), scene.kinds)
        assert receipt.ground == "verified"
        tenant.assert_nothing_bills()


async def test_a_box_that_its_platform_stopped_is_started_and_ended_where_a_stop_needs_a_look(
    tmp_path: Path,
) -> None:
    async with tenant_at("gcp", tmp_path, time="runs", box_time="leaps") as tenant:
        scene = Scene(tenant)
        await scene.rent()
        await scene.work("mkdir -p out; echo 1 > out/one.txt; sleep 600")
        tenant.fault("host_lost", box=tenant.lease(scene.lease).box_id)
        address = tenant.lease(scene.lease).address
        assert isinstance(address, SshAddress)
        at = really_at(tenant.stage.url, address.target)
        assert isinstance(at, LocalAddress)
        box = Path(at.directory)
        away = box.rename(box.with_name("away"))  # it no longer answers
        await scene.later(minutes=2)
        await tenant.clock.sleep(3 * 3600)

        for _ in range(20):
            await scene.later(minutes=1)
            if "resuming" in scene.kinds and away.exists():
                rmtree(box, ignore_errors=True)  # its platform made it anew
                away.rename(box)
            if scene.state is LeaseState.GONE:
                break

        assert scene.state is LeaseState.GONE, (scene.alarms(), scene.kinds)
        assert (scene.kept() / "out" / "one.txt").exists()
        tenant.assert_nothing_bills()
