"""A launch that is cut short: the box never began the job, or it did and the answer was lost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.watching import Scene
from guarded import until

from gpu_tenant.domain.errors import BoxTrouble, BoxUnreachable, Refused
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.ports import Finished, Transport
from gpu_tenant.service import Tenancy

LATER_S = 130


class Cut:
    """The way to a box that breaks when a job is started: before the box hears of it, or before its answer is here."""

    def __init__(self, way: Transport, when: Literal["before", "after"]) -> None:
        self._way, self._when = way, when

    async def run(self, argv: Sequence[str], **more: Any) -> Finished:
        if "start" in argv and self._when == "before":
            raise BoxUnreachable("the connection broke", remedy="try again")
        finished = await self._way.run(argv, **more)
        if "start" in argv:
            raise BoxUnreachable("the connection broke", remedy="try again")
        return finished

    def __getattr__(self, name: str) -> Any:
        return getattr(self._way, name)


def _cut(tenant: Tenant, when: Literal["before", "after"]) -> Tenancy:
    """One that another process opened, which ends in the middle of its launch."""

    def cut(lease: Lease) -> Any:
        return Cut(tenant._way_to(lease), when)

    tenancy = tenant.anew_tenancy()
    tenancy.context._open_transport = cut
    return tenancy


async def _worked(tenant: Tenant, **terms: Any) -> Scene:
    scene = Scene(tenant)
    await scene.rent(**terms)
    await scene.work("mkdir -p out; echo 1 > out/a.txt")
    await scene.ends()
    return scene


async def _launch_second(tenancy: Tenancy, lease: str, command: str) -> None:
    with pytest.raises(BoxTrouble):
        await tenancy.launch_detached(lease, command, ["second/"], name="second")
    await tenancy.aclose()


async def test_what_a_launch_declared_that_never_began_is_awaited_by_nobody(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        scene = await _worked(tenant, when_done="end")
        await _launch_second(_cut(tenant, "before"), scene.lease, "mkdir second; echo 2 > second/b")

        await scene.look()
        await scene.later(seconds=LATER_S)

        assert scene.state is LeaseState.GONE, scene.alarms()
        receipt = tenant.tenancy.ledger.receipt(tenant.lease(scene.lease).id)
        assert receipt is not None
        assert receipt.ground == "verified"
        assert "the job second, whose launch was cut short before it began" in receipt.given_up
        tenant.assert_nothing_bills()


async def test_a_launch_that_was_cut_short_just_now_may_still_begin(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        scene = await _worked(tenant)
        await _launch_second(_cut(tenant, "before"), scene.lease, "mkdir second; echo 2 > second/b")
        await tenant.tenancy.collect(scene.lease)

        with pytest.raises(Refused, match="the box may still begin it"):
            await tenant.tenancy.verify_and_teardown(scene.lease)


async def test_a_job_that_began_and_whose_answer_was_lost_is_waited_for_and_kept(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        scene = await _worked(tenant, when_done="end")
        go = tmp_path / "go"
        command = f"while [ ! -e {go} ]; do sleep 0.05; done; mkdir second; echo 2 > second/b"
        await _launch_second(_cut(tenant, "after"), scene.lease, command)

        await scene.later(seconds=LATER_S)
        assert scene.state is LeaseState.ACTIVE
        assert scene.kinds.count("launched") == 2
        go.touch()
        await scene.job_ends("second")
        await scene.look()
        await scene.later(seconds=LATER_S)

        assert scene.state is LeaseState.GONE, scene.alarms()
        assert (scene.kept() / "second" / "b").read_text() == "2\n"


async def test_a_launch_that_is_under_way_is_not_taken_for_one_whose_answer_was_lost(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        scene = await _worked(tenant, when_done="end")
        await _launch_second(_cut(tenant, "after"), scene.lease, "exec sleep 600")

        with tenant.tenancy.ledger.hold(scene.lease, "launch", at=tenant.clock.now()):
            meanwhile = await scene.look()
            assert scene.kinds.count("launched") == 1
        after = await scene.look()

        assert not any("the answer was lost" in words for words in meanwhile.did)
        assert any("the answer was lost" in words for words in after.did)
        assert scene.kinds.count("launched") == 2


async def test_what_a_job_of_which_only_the_box_knows_made_is_kept_and_its_absence_is_told(
    tmp_path: Path,
) -> None:
    """By hand, and without anybody who looked at the box since."""
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        scene = await _worked(tenant)
        await _launch_second(_cut(tenant, "after"), scene.lease, "exit 3")
        top = tenant.top_of(tenant.lease(scene.lease).box_id or "")
        until(lambda: list(top.glob("gpu-tenant/*/caretaker/jobs/second/exit.json")))
        await tenant.clock.sleep(LATER_S)

        await tenant.tenancy.collect(scene.lease)

        torn = await tenant.tenancy.verify_and_teardown(scene.lease)

        assert not any("launch was cut short" in words for words in torn.receipt.given_up)
        assert (Path(torn.receipt.kept_in or "") / "log" / "second.log").exists()
