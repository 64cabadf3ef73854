"""In a rehearsal the boxes may keep the rehearsal's time: their guards act in a leap, at the moment at which they would."""

from pathlib import Path

from e2e.renting import tenant_at
from e2e.test_guard import guard_on
from waited import over

from gpu_tenant.domain.model import LeaseState


async def test_a_guard_stops_its_box_at_the_deadline_however_far_time_leaps(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        quotes = await tenant.quotes(hours=1)
        card = await tenant.tenancy.provision(
            smoke="none", quotes=quotes[:1], hours=2, idle_h=0.0, wait_s=3600, unguarded="accept"
        )
        command = "mkdir -p out; echo 1 > out/a.txt; exec sleep 100000"
        await tenant.tenancy.launch_detached(card.lease, command, ["out/"], name="train")
        deadline = tenant.lease(card).terms.deadline_at.timestamp()
        look = guard_on(tenant, card.box)

        await tenant.clock.sleep(30 * 3600)

        stopped = [s.until for s in tenant.thing(card.box).spans if s.component == "gpu"]
        assert tenant.thing(card.box).phase == "parked"
        assert look()["why"] == "deadline"
        assert deadline <= (stopped[-1] or 0) < deadline + 60
        # What it kept comes home as after any stop by a guard.
        await tenant.tenancy.change_lease(card.lease, "resume", hours=1)
        await tenant.tenancy.collect(card.lease)
        assert (await tenant.tenancy.verify_and_teardown(card.lease)).receipt.ground == "verified"
        assert tenant.lease(card).state is LeaseState.GONE


async def test_a_box_that_nobody_works_on_is_stopped_after_its_idle_time_in_a_leap(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs", box_time="leaps") as tenant:
        quotes = await tenant.quotes(hours=1)
        card = await tenant.tenancy.provision(
            smoke="none",
            quotes=quotes[:1],
            hours=30,
            idle_h=2,
            when_done="keep",
            wait_s=3600,
            unguarded="accept",
        )
        command = "mkdir -p out; echo 1 > out/a.txt"
        await tenant.tenancy.launch_detached(card.lease, command, ["out/"], name="train")
        await over(tenant.tenancy, card.lease, "train", wait_s=0)
        ended_at, look = tenant.stage.world.now, guard_on(tenant, card.box)

        await tenant.clock.sleep(20 * 3600)

        stopped = [s.until for s in tenant.thing(card.box).spans if s.component == "gpu"]
        assert tenant.thing(card.box).phase == "parked"
        assert look()["why"] == "idle"
        assert ended_at + 7200 - 60 <= (stopped[-1] or 0) < ended_at + 3 * 7200
