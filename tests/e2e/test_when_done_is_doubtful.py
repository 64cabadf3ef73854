"""What makes it doubtful that work is done: other boxes, clocks, work that nobody knows of, a box that lies, a cell that is missing."""

import asyncio
import json
import signal
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.test_when_done import WORKS, attempts, done
from e2e.watching import Scene, scene_at

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import Unverified
from gpu_tenant.domain.model import LeaseId, LeaseState
from gpu_tenant.files.skill_files import script
from gpu_tenant.leases.end import end_verified

STARTS = ("start", "--request", "-")
RUNS = "mkdir -p out; echo 1 > out/a.txt; exec sleep 600"


# --- other boxes


async def two_boxes(tenant: Tenant) -> list[Scene]:
    """A fleet of two, each as a scene of its own."""
    quotes = await tenant.quotes(hours=1)
    card = await tenant.tenancy.provision(
        smoke="none", quotes=quotes[:1], count=2, wait_s=3600, unguarded="accept", hours=2, idle_h=0
    )
    assert card.together is not None
    scenes = [Scene(tenant) for _ in range(2)]
    for scene, lease in zip(scenes, card.together.leases, strict=True):
        scene.lease = lease
    return scenes


def fleet_news(scene: Scene) -> list[str]:
    alarms = scene.tenant.tenancy.ledger.open_alarms()
    return [x.words for x in alarms if x.lease_id is None and x.key.startswith("fleet")]


async def test_each_box_of_a_fleet_ends_with_its_own_work_and_the_last_is_told(
    tmp_path: Path,
) -> None:
    async with tenant_at("digitalocean", tmp_path, time="runs") as tenant:
        first, second = await two_boxes(tenant)
        await first.work()
        await first.tenant.tenancy.stop_run(first.lease, "train", grace_s=5)
        await second.work(WORKS)
        await second.ends()

        await second.look()
        await second.later(seconds=31)
        assert second.state is LeaseState.GONE
        assert first.state is LeaseState.ACTIVE, "what was stopped has its time"
        assert fleet_news(first) == []
        await first.later(minutes=16)
        assert first.state is LeaseState.GONE
        await first.later(minutes=1)

        (words,) = fleet_news(first)
        assert "none of its boxes bills any more" in words
        tenant.assert_nothing_bills()


async def test_a_box_whose_job_runs_on_elsewhere_waits_for_it(tmp_path: Path) -> None:
    async with tenant_at("digitalocean", tmp_path, time="runs") as tenant:
        first, second = await two_boxes(tenant)
        await first.work(WORKS)
        await second.work(RUNS)
        ganged = timeline.Together(
            job="train",
            launcher="torchrun",
            leases=(first.lease, second.lease),
            command="train.py",
            lines=("train.py", "train.py"),
            interface="eth0",
        )
        for scene in (first, second):
            tenant.tenancy.ledger.note(LeaseId(scene.lease), ganged, at=tenant.clock.now())
        await first.ends()

        await first.look()
        await first.later(minutes=10)
        assert (first.state, attempts(first)) == (LeaseState.ACTIVE, 0)
        assert f"until other work is over (train on {second.lease})" in first.alarms()["waits"][1]
        await tenant.tenancy.stop_run(second.lease, "train", grace_s=5)
        await first.look()
        await first.later(minutes=16)
        await first.later(seconds=31)

        assert {first.state, second.state} == {LeaseState.GONE}


# --- clocks


class Set:
    """The same clock, for one watchdog set forward or back."""

    shared_with_boxes = False

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.by = timedelta()

    def now(self) -> datetime:
        now: datetime = self._clock.now() + self.by
        return now

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    async def follow(self, seconds: float) -> None:
        await self.sleep(seconds)


@pytest.mark.parametrize("hours", [26, -26])
async def test_a_clock_that_jumps_while_it_is_decided_loses_nothing_and_holds_nothing(
    tmp_path: Path, hours: int
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(when_done=None, hours=48)
        clock = scene.tenant.tenancy.context.clock = Set(scene.tenant.clock)  # type: ignore[misc]
        scene.tenant.tenancy.ledger.clock = clock
        await scene.work()
        await scene.look()
        assert scene.state is LeaseState.ACTIVE

        clock.by = timedelta(hours=hours)

        await scene.look()
        await scene.later(seconds=31)
        assert (scene.state, attempts(scene)) == (LeaseState.ACTIVE, 0), "a job runs"
        home = scene.tenant.home_of(scene.tenant.lease(scene.lease).box_id or "")
        await scene.tenant.tenancy.stop_run(scene.lease, "train", grace_s=5)
        await scene.look()
        clock.by = timedelta()
        for _ in range(3):
            await scene.later(minutes=16)

        assert scene.state is LeaseState.GONE
        assert (scene.kept() / "out" / "final.txt").read_text() == "whole\n", home
        receipt = scene.tenant.tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.ground == "verified"


# --- work that nobody here knows of


def by_hand(scene: Scene, command: str, *artifacts: str) -> None:
    """Somebody starts a job on the box itself, past this ledger."""
    lease = scene.tenant.lease(scene.lease)
    home = scene.tenant.home_of(lease.box_id or "")
    asked = {
        "job": "byhand",
        "argv": ["sh", "-c", command],
        "cwd": str(home / lease.work_directory),
        "artifacts": [*artifacts],
    }
    said = subprocess.run(
        ["python3", script("caretaker.py"), "--home", home / lease.caretaker_home, *STARTS],
        input=json.dumps(asked).encode(),
        stdout=subprocess.PIPE,
        check=True,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
    )
    assert json.loads(said.stdout)["ok"]


async def test_a_job_that_was_begun_by_hand_just_before_the_end_keeps_the_box(
    tmp_path: Path,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene)
        await scene.look()
        tenancy = scene.tenant.tenancy
        decided = tenancy.ledger.newest_event()

        by_hand(scene, "mkdir -p own; echo precious > own/b; exec sleep 600", "own/")

        with pytest.raises(Unverified, match="still running"):
            await end_verified(tenancy.context, scene.lease, unless_wanted_after_line=decided)
        await scene.later(seconds=31)
        assert scene.state is LeaseState.ACTIVE
        scene.tenant.assert_no_destroy_was_asked()
        await tenancy.stop_run(scene.lease, "byhand", grace_s=5)
        for _ in range(3):
            await scene.later(minutes=16)
        if scene.state is LeaseState.GONE:
            assert (scene.kept() / "own" / "b").read_text() == "precious\n"
        else:
            assert "done" in scene.alarms(), "told, and kept"


# --- a box that lies


async def test_a_box_that_says_done_while_something_computes_there_is_not_ended(
    tmp_path: Path,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene)
        await scene.look()
        lease = scene.tenant.lease(scene.lease)
        work = scene.tenant.home_of(lease.box_id or "") / lease.work_directory
        # Without the mark that a job's processes carry: its record says that it has finished.
        computes = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            "while :; do :; done > out/more.txt",
            cwd=work,
            env={"HOME": str(work.parents[2]), "PATH": "/usr/bin:/bin"},
            start_new_session=True,
        )
        try:
            await scene.later(seconds=31)
            await scene.later(minutes=5)
            assert scene.state is LeaseState.ACTIVE
            scene.tenant.assert_no_destroy_was_asked()
            assert "done" in scene.alarms()
        finally:
            computes.send_signal(signal.SIGKILL)
            await computes.wait()
        for _ in range(3):
            await scene.later(hours=1)

        assert scene.state is LeaseState.GONE
        assert (scene.kept() / "out" / "more.txt").exists()


async def test_what_changes_after_a_job_said_that_it_is_done_is_brought_home_before_its_box_goes(
    tmp_path: Path,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene)
        await scene.look()
        assert (scene.kept() / "out" / "a.txt").read_text() == "1\n"
        lease, tenancy = scene.tenant.lease(scene.lease), scene.tenant.tenancy
        work = scene.tenant.home_of(lease.box_id or "") / lease.work_directory

        (work / "out" / "a.txt").write_text("2\n", encoding="utf-8")

        with pytest.raises(Unverified):
            await end_verified(
                tenancy.context, scene.lease, unless_wanted_after_line=tenancy.ledger.newest_event()
            )
        scene.tenant.assert_no_destroy_was_asked()
        await scene.later(seconds=31)
        assert scene.state is LeaseState.GONE
        assert (scene.kept() / "out" / "a.txt").read_text() == "2\n"


# --- a cell that is missing


async def test_a_sweep_with_a_cell_that_made_nothing_ends_and_its_receipt_names_what_lacks(
    tmp_path: Path,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        tenancy = scene.tenant.tenancy
        await scene.rent(when_done=None, hours=12)
        await tenancy.launch_detached(
            scene.lease,
            "if [ {seed} = 2 ]; then exit 0; fi; mkdir -p out/{cell}; echo {seed} > out/{cell}/a",
            ["out/{cell}/"],
            matrix={"seed": [1, 2]},
        )
        for _ in range(200):
            seen = await tenancy.list_leases()
            if "2 finished" in str(seen.sweeps):
                break
            await asyncio.sleep(0.1)

        await scene.look()
        for _ in range(3):
            await scene.later(minutes=16)

        assert scene.state is LeaseState.GONE, scene.alarms()
        receipt = tenancy.ledger.receipt(scene.tenant.lease(scene.lease).id)
        assert receipt is not None
        assert receipt.outcome is not None
        assert (receipt.ground, receipt.outcome.grade) == ("verified", "incomplete")
        assert "seed-2" in receipt.outcome.words
        assert (scene.kept() / "out" / "seed-1" / "a").read_text() == "1\n"
