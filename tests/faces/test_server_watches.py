"""With an agent alone, its server holds leases to their terms while it runs, and says that it does."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from e2e.watching import Scene, scene_at
from mcp import Client

from gpu_tenant.domain.model import LeaseState
from gpu_tenant.faces.mcp.server import make_server
from gpu_tenant.watchdog.loop import Watchdog


async def until_kept(scene: Scene) -> None:
    for _ in range(3000):
        if (scene.kept() / "out" / "a.txt").exists():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("nobody collected")


async def until_gone(scene: Scene) -> None:
    for _ in range(3000):
        if scene.state is LeaseState.GONE:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("nobody ended it")


@pytest.mark.timeout(900)
async def test_a_server_alone_ends_a_lease_whose_work_is_done_and_says_who_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(when_done=None)
        environ = {**scene.tenant.stage.environment, "GPU_TENANT_HOME": str(scene.tenant.home.root)}
        for name, value in environ.items():
            monkeypatch.setenv(name, value)

        async with Client(make_server(watch_every_s=0.5)) as client:
            said: dict[str, Any] = {
                "lease": scene.lease,
                "command": "mkdir out; echo 1 > out/a.txt",
            }
            launched = await client.call_tool("launch_detached", {**said, "artifacts": ["out/"]})
            assert not launched.is_error, launched
            held = await client.call_tool(
                "change_lease", {"lease": scene.lease, "action": "hold", "hours": 0}
            )
            assert held.structured_content is not None
            assert held.structured_content["watched"].startswith("by this server, while it runs")
            await until_kept(scene)
            await scene.tenant.clock.sleep(31)
            await until_gone(scene)

        receipt = scene.tenant.tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.ground == "verified"
        scene.tenant.assert_nothing_bills()


async def test_terms_that_only_a_watchdog_holds_are_said_to_be_so_while_none_looks(
    tmp_path: Path,
) -> None:
    async with scene_at("vastai", tmp_path, time="frozen") as scene:
        card = await scene.rent(when_done=None, budget_usd=5)

        told = " / ".join(card.terms)
        assert told.startswith("no watchdog runs now: rules that need one are not carried out")
        assert (
            "budget 5 USD: the lease is ended by a watchdog while the rest of the budget still pays for its end /"
            in told
        )
        assert "when its work is done: torn down" in told
        assert card.watched.startswith("nobody: `gpu-tenant watchdog`")
        await scene.look()
        again = await scene.tenant.tenancy.change_lease(scene.lease, "hold", hours=0)

        assert "watchdog looks" not in " / ".join(again.terms)
        assert again.watched.startswith("a watchdog looked")


async def test_a_finished_job_says_who_ends_its_box(tmp_path: Path) -> None:
    async with scene_at("vastai", tmp_path, time="frozen") as scene:
        await scene.rent(when_done=None)
        tenancy = scene.tenant.tenancy
        await tenancy.launch_detached(scene.lease, "mkdir out; echo 1 > out/a", ["out/"], name="j")

        alone = await tenancy.monitor(scene.lease, "j", wait_s=60)
        await scene.look()
        watched = await tenancy.monitor(scene.lease, "j")

        teardown = f"then `gpu-tenant teardown {scene.lease}`: no watchdog runs"
        assert (alone.state, watched.state) == ("finished", "finished")
        assert teardown in alone.next
        assert "its box is ended 30 s after its last job" in watched.next


async def test_a_server_stands_back_while_another_process_looks_and_takes_over_when_it_stops(
    tmp_path: Path,
) -> None:
    async with scene_at("vastai", tmp_path, time="frozen") as scene:
        await scene.rent()
        tenancy = scene.tenant.tenancy
        ours = Watchdog(tenancy, every_s=60, tell=lambda _: None, by="server")
        assert not ours._stands_back()
        await ours.once()
        assert not ours._stands_back(), "its own look is no other's"
        beat = scene.tenant.home.watchdog
        theirs = {**json.loads(beat.read_text(encoding="utf-8")), "pid": 1, "host": "another"}
        beat.write_text(json.dumps(theirs), encoding="utf-8")

        assert ours._stands_back()
        assert not Watchdog(tenancy, every_s=60, tell=lambda _: None)._stands_back()
        await scene.tenant.clock.sleep(120)
        assert not ours._stands_back()
