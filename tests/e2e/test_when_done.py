"""Done means over: a lease whose work is done, here and proved is ended at once, and no sooner."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from e2e.watching import Scene, scene_at

from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.errors import LeaseHeld, ProviderTrouble, Refused, StillWanted
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.leases.end import end_verified
from gpu_tenant.leases.presence import note_presence
from gpu_tenant.leases.watch_actions import park_when_done
from gpu_tenant.watchdog.loop import Watchdog

WORKS = "mkdir -p out; echo 1 > out/a.txt"
LEAVES = f"{WORKS}; echo precious > other.bin"
FAILS = f"{WORKS}; exit 3"
SELDOM_S = 6 * 3600.0
AT = pytest.mark.parametrize("provider", ["vastai", "runpod"])


async def done(scene: Scene, command: str = WORKS, **terms: Any) -> None:
    """A lease by default terms, whose only job has ended."""
    await scene.rent(when_done=terms.pop("when_done", None), **terms)
    await scene.work(command)
    await scene.ends()


def attempts(scene: Scene) -> int:
    events = scene.tenant.tenancy.ledger.events(scene.lease)
    return sum(isinstance(x, timeline.Done) and x.outcome == "begun" for _, x in events)


@AT
async def test_a_job_that_ended_well_ends_its_lease_after_a_grace(
    provider: str, tmp_path: Any
) -> None:
    async with scene_at(provider, tmp_path) as scene:
        await done(scene)

        await scene.look()
        assert scene.state is LeaseState.ACTIVE, "an agent may launch again"
        assert (scene.kept() / "out" / "a.txt").exists()
        await scene.later(seconds=31)

        receipt = scene.tenant.tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.ground == "verified"
        scene.tenant.assert_nothing_bills()
        told = scene.alarms()
        assert told["ended"][0] is Level.NOTICE
        assert "finished" in told["job train"][1]
        assert "its box is ended" in told["job train"][1]


async def test_a_lease_that_agreed_to_nothing_bills_on_and_its_job_s_end_is_told(
    tmp_path: Any,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene, when_done="keep")

        await scene.look()
        assert "goes on billing until" in scene.alarms()["job train"][1]
        await scene.later(hours=1)

        assert (scene.state, attempts(scene)) == (LeaseState.ACTIVE, 0)


async def test_the_end_of_a_job_is_no_news_where_its_owner_wants_none(tmp_path: Any) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        scene.tenant.home.configuration.parent.mkdir(parents=True, exist_ok=True)
        scene.tenant.home.configuration.write_text('[news]\njobs = "off"\n', encoding="utf-8")
        await done(scene)

        await scene.look()

        assert scene.alarms() == {}


async def test_a_job_that_failed_is_collected_at_once_and_its_box_ended_within_a_minute(
    tmp_path: Any,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene, FAILS)

        await scene.look()
        assert (scene.kept() / "out" / "a.txt").exists()
        level, words = scene.alarms()["done"]
        assert level is Level.WARNING
        assert "train is failed" in words
        assert "for 1m at " in words
        await scene.later(minutes=1.1)

        assert scene.state is LeaseState.GONE


async def test_whoever_is_there_when_a_job_fails_has_ten_minutes_to_launch_on_the_warm_box(
    tmp_path: Any,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene, FAILS)
        note_presence(scene.tenant.home, scene.tenant.clock.now())

        await scene.look()
        _, words = scene.alarms()["done"]
        assert "its box stays warm until" in words
        assert re.search(r"for 10m at [\d.]+ USD/h = 0\.\d+ USD", words)
        await scene.later(minutes=9)
        assert scene.state is LeaseState.ACTIVE
        await scene.tenant.tenancy.launch_detached(scene.lease, FAILS, ["out/"], name="again")
        await scene.job_ends("again")
        await scene.look()
        await scene.later(minutes=1.1)
        assert scene.state is LeaseState.GONE, "whoever launched it was not there any more"


async def test_a_failure_that_is_held_or_answered_by_another_launch_ends_nothing(
    tmp_path: Any,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene, FAILS, on_failure="keep")

        await scene.look()
        await scene.later(hours=1)
        assert scene.state is LeaseState.ACTIVE
        assert re.search(r"kept, as its terms say, for [\d.]+ USD a day", scene.alarms()["done"][1])
        await scene.tenant.tenancy.launch_detached(scene.lease, WORKS, ["out/"], name="again")
        await scene.job_ends("again")
        await scene.look()
        await scene.later(seconds=31)

        assert scene.state is LeaseState.GONE, "whoever launched again had seen the failure"


@AT
async def test_what_nobody_claimed_is_told_once_and_the_lease_ends_when_it_is_claimed(
    provider: str, tmp_path: Any
) -> None:
    async with scene_at(provider, tmp_path) as scene:
        await done(scene, LEAVES, hours=6, unasked_gib=0)

        await scene.look()
        await scene.later(seconds=31)
        assert scene.state is LeaseState.ACTIVE
        level, words = scene.alarms()["done"]
        assert level is Level.WARNING
        assert "other.bin" in words
        for _ in range(3):
            await scene.later(minutes=10)
        assert (attempts(scene), "done" in scene.alarms()) == (1, True)
        await scene.tenant.tenancy.collect(scene.lease, artifacts=["other.bin"])
        await scene.look()

        assert scene.state is LeaseState.GONE
        assert (scene.kept() / "other.bin").read_text() == "precious\n"


async def test_an_artifact_that_never_appeared_keeps_no_box_and_is_on_the_receipt(
    tmp_path: Any,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(when_done=None)
        await scene.work(WORKS, ("out/", "model.pt"))
        await scene.ends()

        await scene.look()
        await scene.later(seconds=31)

        receipt = scene.tenant.tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.ground == "verified"
        assert receipt.outcome is not None
        assert receipt.outcome.reasons == ("model.pt never appeared",)


async def test_while_a_second_job_runs_nothing_is_done(tmp_path: Any) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(when_done=None)
        tenancy = scene.tenant.tenancy
        await scene.work("mkdir -p out; exec sleep 600")
        await tenancy.launch_detached(scene.lease, "mkdir -p o2; echo 2 > o2/b", ["o2/"], name="b")
        await scene.job_ends("b")

        await scene.look()
        await scene.later(minutes=5)

        assert (scene.state, attempts(scene)) == (LeaseState.ACTIVE, 0)


async def test_a_hold_keeps_it_until_then_and_no_longer(tmp_path: Any) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene)
        card = await scene.tenant.tenancy.change_lease(scene.lease, "hold", hours=0.5)
        assert "held until" in (card.alarm or "")

        await scene.later(minutes=29)
        assert scene.state is LeaseState.ACTIVE
        await scene.later(minutes=1.5)

        assert scene.state is LeaseState.GONE


async def test_a_job_that_left_processes_is_told_of_and_ended_after_its_time(tmp_path: Any) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(when_done=None)
        await scene.work(f"{WORKS}; setsid -f sleep 1000 > /dev/null 2>&1 < /dev/null")
        for _ in range(100):
            if await scene.job() == "lingering":
                break
            await asyncio.sleep(0.05)

        await scene.look()
        assert "processes that it started still run" in scene.alarms()["done"][1]
        await scene.later(seconds=40)
        assert scene.state is LeaseState.ACTIVE
        await scene.later(minutes=1)

        assert scene.state is LeaseState.GONE
        assert (scene.kept() / "out" / "a.txt").exists()


async def test_what_is_launched_before_the_permit_wins_and_after_it_is_told_why(
    tmp_path: Any,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene)
        tenancy = scene.tenant.tenancy
        await tenancy.collect(scene.lease)
        decided = tenancy.ledger.newest_event()
        await tenancy.launch_detached(scene.lease, "mkdir -p o2; echo 2 > o2/b", ["o2/"], name="b")
        await scene.job_ends("b")
        await tenancy.collect(scene.lease)

        with pytest.raises(StillWanted):
            await end_verified(tenancy.context, scene.lease, unless_wanted_after_line=decided)
        assert scene.state is LeaseState.ACTIVE
        scene.tenant.assert_no_destroy_was_asked()
        await scene.look()
        await scene.later(seconds=31)
        assert scene.state is LeaseState.GONE
        with pytest.raises(Refused, match="its work was done"):
            await tenancy.launch_detached(scene.lease, WORKS, ["out/"], name="late")


async def test_a_launch_while_it_is_being_ended_runs_or_is_refused_and_never_lost(
    tmp_path: Any,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene)
        other = scene.tenant.anew_tenancy()
        await scene.look()
        await scene.tenant.clock.sleep(31)

        ending = asyncio.create_task(scene.look())
        for _ in range(6000):
            if attempts(scene):
                break
            await asyncio.sleep(0.01)
        launched: object = None
        try:
            launched = await other.launch_detached(
                scene.lease, "mkdir -p o2; exec sleep 60", ["o2/"]
            )
        except (Refused, LeaseHeld) as refused:
            launched = refused
        await ending

        if isinstance(launched, Exception):
            assert scene.state is LeaseState.GONE
            assert "its work was done" in str(launched)
        else:
            assert scene.state is LeaseState.ACTIVE
            scene.tenant.assert_no_destroy_was_asked()


async def test_a_box_under_somebody_s_hands_is_not_ended(tmp_path: Any) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene)
        await scene.look()
        home = scene.tenant.home_of(scene.tenant.lease(scene.lease).box_id or "")
        person = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            "read x",
            stdin=asyncio.subprocess.PIPE,
            cwd=home,
            env={
                "HOME": str(home),
                "SSH_CONNECTION": "192.0.2.1 5 192.0.2.2 22",
                "PATH": "/usr/bin:/bin",
            },
        )
        try:
            await scene.later(seconds=31)
            assert scene.state is LeaseState.ACTIVE
            assert "somebody is at work" in scene.alarms()["done"][1]
        finally:
            person.kill()
            await person.wait()
        await scene.later(seconds=31)

        assert scene.state is LeaseState.GONE


async def test_a_destroy_that_fails_goes_on(tmp_path: Any) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene)
        await scene.look()
        scene.tenant.destroy_fails("status", status=500)

        await scene.later(seconds=31)
        assert scene.state is LeaseState.TERMINATING
        assert scene.alarms()["teardown"][0] is Level.URGENT
        scene.tenant.all_is_well()
        await scene.later(minutes=5)

        assert scene.state is LeaseState.GONE


async def test_parked_when_done_keeps_its_disk(tmp_path: Any) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene, when_done="park")
        await scene.look()

        await scene.later(seconds=31)

        lease = scene.tenant.lease(scene.lease)
        assert (lease.state, lease.parked_at is not None) == (LeaseState.ACTIVE, True)


async def test_a_platform_that_deletes_parked_boxes_is_named_with_the_date_ever_louder(
    tmp_path: Any,
) -> None:
    async with scene_at("autodl", tmp_path) as scene:
        await done(scene, when_done="park")
        await scene.look()
        await scene.later(minutes=2)
        await scene.look()
        level, words = scene.alarms()["parked"]
        assert level is Level.NOTICE
        gone = scene.tenant.lease(scene.lease).parked_at + timedelta(days=15)
        assert f"AutoDL deletes it, data and all, at {gone:%Y-%m-%d %H:%M} UTC" in words
        (card,) = (await scene.tenant.tenancy.list_leases()).leases
        assert f"data and all, at {gone:%Y-%m-%d %H:%M} UTC" in card.next

        await scene.later(days=10)
        assert scene.alarms()["parked"][0] is Level.WARNING
        await scene.later(days=4)
        assert scene.alarms()["parked"][0] is Level.URGENT


async def test_what_is_wanted_before_the_stop_is_on_record_wins_and_after_it_is_told_why(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene, when_done="park")
        tenancy, other = scene.tenant.tenancy, scene.tenant.anew_tenancy()
        decided = tenancy.ledger.newest_event()
        await other.change_lease(scene.lease, "hold", hours=0.5)
        with pytest.raises(StillWanted):
            await park_when_done(tenancy.context, scene.lease, unless_wanted_after_line=decided)
        assert scene.tenant.lease(scene.lease).parked_at is None
        assert "parking" not in scene.kinds

        stop, refused = tenancy.context.connectors["vastai"].park, list[Refused]()

        async def while_it_stops(lease: Lease) -> None:
            with pytest.raises(Refused, match="being parked") as told:
                await other.change_lease(scene.lease, "hold", hours=0.5)
            refused.append(told.value)
            await stop(lease)

        monkeypatch.setattr(tenancy.context.connectors["vastai"], "park", while_it_stops)
        await park_when_done(
            tenancy.context, scene.lease, unless_wanted_after_line=tenancy.ledger.newest_event()
        )
        assert len(refused) == 1
        assert scene.tenant.lease(scene.lease).parked_at is not None


async def test_a_stop_that_its_provider_refused_holds_off_no_more_work(tmp_path: Any) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await done(scene, when_done="park")
        tenancy = scene.tenant.tenancy
        scene.tenant.fault("status", "PUT", "instances", status=400, times=10_000)

        with pytest.raises(ProviderTrouble):
            await park_when_done(
                tenancy.context, scene.lease, unless_wanted_after_line=tenancy.ledger.newest_event()
            )

        assert scene.kinds[-2:] == ["parking", "runs on"]
        held = await tenancy.change_lease(scene.lease, "hold", hours=0.5)
        assert "held until" in (held.alarm or "")


@pytest.mark.parametrize(
    ("also", "counted", "waits_s"), [("", "2 finished", 31), ("; [ {seed} = 1 ]", "1 failed", 91)]
)
async def test_the_cells_of_a_sweep_are_done_together_and_one_that_failed_ends_the_box_later(
    tmp_path: Any, also: str, counted: str, waits_s: int
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        tenancy = scene.tenant.tenancy
        await scene.rent(when_done=None)
        await tenancy.launch_detached(
            scene.lease,
            f"mkdir -p out/{{cell}}; echo {{seed}} > out/{{cell}}/a{also}",
            ["out/{cell}/"],
            matrix={"seed": [1, 2]},
        )
        for _ in range(200):
            seen = await tenancy.list_leases()
            if counted in str(seen.sweeps):
                break
            await asyncio.sleep(0.1)

        await scene.look()
        assert scene.state is LeaseState.ACTIVE
        await scene.later(seconds=waits_s)

        assert scene.state is LeaseState.GONE
        assert sorted(x.read_text() for x in scene.kept().glob("out/*/a")) == ["1\n", "2\n"]
        words = [alarm.words for alarm in tenancy.ledger.open_alarms() if alarm.lease_id is None]
        assert any("has ended: 2 cells" in told for told in words), words


@asynccontextmanager
async def watched_seldom(scene: Scene) -> AsyncIterator[float]:
    """A watchdog has looked once, and looks at everything again in hours; yields when, by the provider's clock."""
    clock = scene.tenant.clock

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0.1)  # so that all of it is over long before the next look
        await clock.sleep(seconds)

    dog = Watchdog(scene.tenant.anew_tenancy(), every_s=SELDOM_S, tell=lambda _: None, sleep=sleep)
    watching = asyncio.create_task(dog.forever())
    try:
        await until(scene.tenant.home.watchdog.exists)
        yield scene.tenant.stage.world.now + SELDOM_S
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it does not come")


async def test_a_watchdog_that_is_left_has_ended_every_look_that_it_began(tmp_path: Any) -> None:
    def looks() -> list[str]:
        names = (str(task.get_coro()) for task in asyncio.all_tasks())
        return [name for name in names if "Watchdog." in name and "forever" not in name]

    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(when_done=None, hours=24)
        tenancy = scene.tenant.anew_tenancy()
        dog = Watchdog(tenancy, every_s=SELDOM_S, tell=lambda _: None, sleep=asyncio.sleep)
        watching = asyncio.create_task(dog.forever())
        await until(lambda: any("_attend" in name for name in looks()))

        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

        assert looks() == []


async def test_what_is_launched_and_what_is_said_between_two_looks_is_heard_before_the_next(
    tmp_path: Any,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(when_done=None, hours=24, unasked_gib=0)
        world = scene.tenant.stage.world
        async with watched_seldom(scene) as next_look_at:
            await scene.work(LEAVES)
            await until(lambda: "other.bin" in scene.alarms().get("done", (0, ""))[1])
            assert world.now < next_look_at
            while scene.state is LeaseState.ACTIVE and world.now < next_look_at:
                with suppress(LeaseHeld):
                    await scene.tenant.tenancy.collect(scene.lease, artifacts=["other.bin"])
                    break
            await until(
                lambda: (
                    scene.state is LeaseState.GONE or scene.tenant.stage.world.now > next_look_at
                )
            )

            assert scene.state is LeaseState.GONE
            assert world.now < next_look_at
            assert (scene.kept() / "other.bin").read_text() == "precious\n"


async def test_a_lease_that_somebody_held_at_the_look_is_looked_at_again_soon(
    tmp_path: Any,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(when_done=None, hours=24, unasked_gib=0)
        context, world = scene.tenant.tenancy.context, scene.tenant.stage.world
        async with watched_seldom(scene) as next_look_at:
            await scene.work(LEAVES)
            await until(lambda: "other.bin" in scene.alarms().get("done", (0, ""))[1])
            async with context.held_in_turn(LeaseId(scene.lease), "collect"):
                context.ledger.claim(
                    LeaseId(scene.lease),
                    artifacts=["other.bin"],
                    discard=[],
                    at=context.clock.now(),
                )
                # The watchdog hears it, and finds the lease held.
                heard_at = world.now
                await until(lambda: world.now > heard_at + 120)
                assert scene.state is LeaseState.ACTIVE

            await until(lambda: scene.state is LeaseState.GONE)

            assert world.now < next_look_at
            assert (scene.kept() / "other.bin").read_text() == "precious\n"


async def test_what_a_platform_cannot_park_is_refused_before_it_is_rented(tmp_path: Any) -> None:
    async with scene_at("lambda_cloud", tmp_path, time="frozen") as scene:
        with pytest.raises(Refused, match="cannot be parked"):
            await scene.rent(when_done="park")
        assert scene.tenant.creates() == 0
