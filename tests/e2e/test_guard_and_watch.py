"""At a deadline both act: whoever looks after the lease proves and ends it, and the guard is the last resort."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.watching import Scene

from gpu_tenant.box import guard as guarding
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.protection import LAST_RESORT_S, WATCHED_S
from gpu_tenant.watchdog.loop import Watchdog


async def _at_work(tenant: Tenant) -> tuple[Scene, float]:
    """A lease whose job goes on for ever, half a minute before its deadline; and when that is."""
    scene = Scene(tenant)
    await scene.rent()
    await scene.work()
    deadline = tenant.lease(scene.lease).terms.deadline_at.timestamp()
    await tenant.clock.sleep(deadline - tenant.stage.world.now - 30)
    return scene, deadline


def _stopped_at(scene: Scene) -> float:
    box = scene.tenant.lease(scene.lease).box_id
    spans = [s for s in scene.tenant.thing(box).spans if s.component == "gpu"]
    return spans[-1].until or float("inf")


async def test_whoever_looks_after_a_lease_proves_and_ends_it_before_its_guard_stops_the_box(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        scene, deadline = await _at_work(tenant)
        await scene.look()

        await scene.later(seconds=50)

        assert scene.state is LeaseState.GONE, scene.alarms()
        receipt = tenant.tenancy.ledger.receipt(tenant.lease(scene.lease).id)
        assert receipt is not None
        assert receipt.ground == "verified"
        assert (scene.kept() / "out" / "final.txt").read_text() == "whole\n"
        assert _stopped_at(scene) < deadline + WATCHED_S
        tenant.assert_nothing_bills()


async def test_a_guard_ends_the_bill_by_itself_where_nobody_comes_back(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        scene, deadline = await _at_work(tenant)
        await scene.look()  # and never again

        await tenant.clock.sleep(3600)

        assert tenant.thing(tenant.lease(scene.lease).box_id).phase == "parked"
        assert deadline <= _stopped_at(scene) < deadline + WATCHED_S + 30


async def test_a_guard_does_not_wait_for_ever_for_those_who_look_and_end_nothing(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        scene, deadline = await _at_work(tenant)
        box = tenant.lease(scene.lease).box_id
        caretaker = tenant.tenancy.context.caretaker(tenant.lease(scene.lease))
        for _ in range(40):
            if tenant.thing(box).phase == "parked":
                break
            await caretaker.standing(back_in_s=WATCHED_S)
            await tenant.clock.sleep(60)

        assert deadline + WATCHED_S < _stopped_at(scene) < deadline + LAST_RESORT_S + 60


async def test_a_guard_waits_for_nobody_where_its_owner_pays_for_no_rescue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarding, "_rescue_s", lambda _: 0.0)
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        scene, deadline = await _at_work(tenant)
        await scene.look()

        await tenant.clock.sleep(3600)

        assert deadline <= _stopped_at(scene) < deadline + 30


async def test_a_watchdog_looks_at_the_moment_of_a_deadline_however_seldom_it_looks(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        scene = Scene(tenant)
        await scene.rent()
        await scene.work()
        deadline = tenant.lease(scene.lease).terms.deadline_at.timestamp()
        await tenant.clock.sleep(deadline - tenant.stage.world.now - 900)

        async def passes(seconds: float) -> None:
            if tenant.stage.world.now > deadline + 1200 or scene.state is not LeaseState.ACTIVE:
                raise asyncio.CancelledError
            await tenant.clock.sleep(seconds)

        dog = Watchdog(tenant.anew_tenancy(), every_s=1800, tell=lambda _: None, sleep=passes)
        with suppress(asyncio.CancelledError):
            await dog.forever()

        receipt = tenant.tenancy.ledger.receipt(tenant.lease(scene.lease).id)
        assert receipt is not None, scene.alarms()
        assert receipt.ground == "verified"
        assert _stopped_at(scene) < deadline + WATCHED_S
