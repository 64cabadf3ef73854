"""With nobody alive: the box stops itself once its work is done and stored, or what it bills was said when it was rented."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from arranged import eventually
from e2e.renting import Tenant, tenant_at
from e2e.test_guard import guard_on
from waited import over

from gpu_tenant.box import guard as guarding
from gpu_tenant.box.guard_record import last_armed
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.leases import context as holding

WORKS = "mkdir -p out; echo 1 > out/a.txt"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A box waits for two seconds for somebody to look: guards keep real time."""
    monkeypatch.setattr(guarding, "UNSEEN_DONE_S", 2)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory stands for the bucket that a box could reach."""
    place = tmp_path / "store"
    place.mkdir()
    from gpu_tenant.leases.context import Context

    monkeypatch.setattr(Context, "box_store", lambda *_: {"kind": "directory", "path": str(place)})
    return place


async def rented(tenant: Tenant, place: Path, **terms: Any) -> Any:
    quotes = await tenant.quotes(hours=1)
    said = {"hours": 2, "idle_h": 0.0, "unguarded": "accept", "store": str(place), **terms}
    return await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600, **said)


@pytest.mark.usefixtures("soon")
async def test_a_box_that_nobody_looks_after_stops_itself_once_the_store_has_its_work(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await rented(tenant, store)
        assert "2 min after its last job, but not before" in card.stops_the_meter
        await tenant.tenancy.launch_detached(card.lease, WORKS, ["out/"], name="train")

        look = guard_on(tenant, card.box)
        assert eventually(lambda: tenant.thing(card.box).phase == "parked")

        (kept,) = store.rglob("a.txt")
        assert kept.read_text() == "1\n"
        assert look()["why"] == "done"
        (shown,) = (await tenant.tenancy.list_leases()).leases
        assert "its guard has stopped it if its work was done" in (shown.alarm or "")
        monkeypatch.setattr(guarding, "UNSEEN_DONE_S", 120)
        await tenant.tenancy.change_lease(card.lease, "resume")
        await tenant.tenancy.collect(card.lease)
        assert (await tenant.tenancy.verify_and_teardown(card.lease)).receipt.ground == "verified"
        assert tenant.lease(card).state is LeaseState.GONE


async def test_a_box_is_not_stopped_while_somebody_works_on_its_lease_here(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A teardown by hand that reads for long what was kept asks nothing of the box meanwhile."""
    monkeypatch.setattr(guarding, "UNSEEN_DONE_S", 5)
    monkeypatch.setattr(holding, "SHOWS_UP_S", 0.3)
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await rented(tenant, store)
        await tenant.tenancy.launch_detached(card.lease, WORKS, ["out/"], name="train")
        await over(tenant.tenancy, card.lease, "train", wait_s=0)
        ended_at = tenant.stage.world.now
        async with tenant.tenancy.context.held_in_turn(card.lease, "teardown"):
            await asyncio.sleep(ended_at + 12 - tenant.stage.world.now)

            assert guard_on(tenant, card.box)()["state"] == "armed"
            assert tenant.thing(card.box).phase == "running"

        assert eventually(lambda: tenant.thing(card.box).phase == "parked")


@pytest.mark.usefixtures("soon")
async def test_a_hold_is_heard_by_the_guard_and_so_is_its_end(tmp_path: Path, store: Path) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await rented(tenant, store)
        await tenant.tenancy.change_lease(card.lease, "hold", hours=1)
        await tenant.tenancy.launch_detached(card.lease, WORKS, ["out/"], name="train")
        look = guard_on(tenant, card.box)
        assert look()["when_done"]["not_before_s"] > 3000

        await tenant.tenancy.change_lease(card.lease, "hold", hours=0)

        assert look()["when_done"]["not_before_s"] == 0
        assert eventually(lambda: tenant.thing(card.box).phase == "parked")


@pytest.mark.parametrize(
    ("provider", "terms", "armed"),
    [
        ("vastai", {}, True),
        ("vastai", {"store": None}, False),
        ("vastai", {"when_done": "keep"}, False),
        ("runpod", {}, True),
        ("lambda_cloud", {}, False),
    ],
)
async def test_a_guard_is_told_to_stop_what_is_done_only_where_that_loses_nothing(
    tmp_path: Path, store: Path, provider: str, terms: dict[str, Any], armed: bool
) -> None:
    async with tenant_at(provider, tmp_path, time="runs") as tenant:
        card = await rented(tenant, store, **terms)
        await tenant.tenancy.launch_detached(card.lease, "exec sleep 600", ["out/"])

        said = last_armed(tenant.lease(card), tenant.tenancy.ledger)

        assert said is not None
        assert said.when_done is armed
        assert (guard_on(tenant, card.box)()["when_done"] is not None) is armed
        (shown,) = (await tenant.tenancy.list_leases()).leases
        promised = "2 min after its last job" in shown.stops_the_meter
        assert promised is armed
        if not armed and terms.get("when_done") != "keep":
            rate = tenant.lease(card).quote.offer.price.running_usd_h  # type: ignore[union-attr]
            assert (
                f"when its work is done and nobody watches it, it bills {rate} USD/h until"
                in shown.stops_the_meter
            )
