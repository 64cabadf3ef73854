"""A box that its guard stopped at the deadline is started once more, for the minutes that the proof of its files takes."""

from pathlib import Path

import pytest
from e2e.renting import tenant_at
from e2e.watching import Scene

from gpu_tenant.domain.model import LeaseState


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
