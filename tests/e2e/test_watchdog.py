"""The watchdog at a rehearsal: every lease ends proved, or else parked, or else loud; and blind is not dead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from e2e.renting import DESTROY, EVERYTHING, FOREVER
from e2e.watching import SAVES, Scene, scene_at
from signed import with_signature

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.errors import BadRequest, BoxUnreachable, Refused
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.leases.end import waive_ahead
from gpu_tenant.leases.readiness import close_connections
from gpu_tenant.service import Tenancy
from gpu_tenant.watchdog.loop import Watchdog

# The end of a lease


@pytest.mark.parametrize("provider", ["lambda_cloud", "vastai"])
async def test_a_box_that_was_never_used_is_given_back_at_its_deadline(
    provider: str, tmp_path: Path
) -> None:
    async with scene_at(provider, tmp_path, time="frozen") as scene:
        await scene.rent()

        await scene.later(hours=1)
        assert scene.state is LeaseState.ACTIVE
        await scene.later(hours=1)

        receipt = scene.tenant.tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.ground == "never_used"
        scene.tenant.assert_nothing_bills()
        assert list(scene.alarms()) == ["ended"], "told once"
        await scene.look()
        assert scene.alarms() == {}


async def test_at_the_deadline_a_running_job_saves_its_work_and_the_box_ends_proved(
    tmp_path: Path,
) -> None:
    async with scene_at("lambda_cloud", tmp_path) as scene:
        await scene.rent()
        await scene.work()

        await scene.later(hours=2)

        receipt = scene.tenant.tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.ground == "verified"
        assert (scene.kept() / "out" / "final.txt").read_text() == "whole\n"
        scene.tenant.assert_nothing_bills()


async def test_at_the_deadline_a_cells_second_attempt_saves_its_work_whatever_else_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene_at("lambda_cloud", tmp_path) as scene:
        tenancy = scene.tenant.tenancy
        await scene.rent()
        await tenancy.launch_detached(
            scene.lease,
            "[ -e tried ] || ! touch tried || exit {seed}\n" + SAVES,
            ["out/"],
            discard=["tried"],
            matrix={"seed": [3]},
            attempts=2,
        )
        for _ in range(100):
            seen = await tenancy.monitor(scene.lease, "seed-3", wait_s=0)
            if (seen.job, seen.state) == ("seed-3.2", "running"):
                break
            await asyncio.sleep(0.1)
        assert seen.job == "seed-3.2"
        monkeypatch.setattr(
            "gpu_tenant.watchdog.end_of_lease.vacate", lambda context, lease: _surprised()
        )

        await scene.later(hours=2)

        receipt = tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.ground == "verified"
        assert (scene.kept() / "out" / "final.txt").read_text() == "whole\n"


async def test_what_nobody_claimed_is_parked_with_its_box_and_destroyed_never(
    tmp_path: Path,
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(unasked_gib=0)
        await scene.work("mkdir out; echo 1 > out/a.txt; echo precious > other.bin")
        await scene.ends()

        await scene.later(hours=2)

        lease = scene.tenant.lease(scene.lease)
        assert (lease.state, lease.parked_at is not None) == (LeaseState.ACTIVE, True)
        assert scene.tenant.thing(lease.box_id).phase == "parked"
        assert scene.alarms()["parked"][0] is Level.WARNING
        for _ in range(3):
            await scene.later(days=10)
        assert scene.tenant.thing(lease.box_id).phase == "parked"
        assert scene.asked(*DESTROY["vastai"]) == 0


async def test_where_nothing_can_be_parked_the_box_is_paid_for_and_the_alarm_is_urgent(
    tmp_path: Path,
) -> None:
    async with scene_at("lambda_cloud", tmp_path) as scene:
        await scene.rent(rescue_usd=Decimal(5), unasked_gib=0)
        await scene.work("mkdir out; echo 1 > out/a.txt; echo precious > other.bin")
        await scene.ends()

        await scene.later(hours=2)
        assert (scene.state, scene.alarms()["standing"][0]) == (LeaseState.ACTIVE, Level.URGENT)
        await scene.later(days=30)

        assert scene.state is LeaseState.ACTIVE, "no sum that was spent is leave to destroy"
        assert "other.bin" in scene.alarms()["standing"][1]
        assert scene.asked("POST", "terminate") == 0


async def test_what_its_owner_signed_for_is_destroyed_when_the_rescue_sum_is_spent(
    tmp_path: Path,
) -> None:
    async with scene_at("lambda_cloud", tmp_path) as scene:
        card = await scene.rent(rescue_usd=Decimal(5), unasked_gib=0)
        assert card.price_usd_h is not None
        await scene.work("mkdir out; echo 1 > out/a.txt; echo precious > other.bin")
        await scene.ends()
        tenancy = scene.tenant.tenancy
        await with_signature(tenancy, lambda: waive_ahead(tenancy.context, scene.lease))

        await scene.later(hours=2)
        assert scene.state is LeaseState.ACTIVE
        await scene.later(hours=float(Decimal(5) / card.price_usd_h) - 0.1)
        assert scene.state is LeaseState.ACTIVE
        await scene.later(hours=1.2)

        receipt = scene.tenant.tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.ground == "waived"
        assert any("other.bin" in words for words in receipt.given_up)
        # Every channel takes what is urgent, and what nobody has heard yet stays open at the next look.
        level, words = scene.alarms()["ended"]
        assert level is Level.URGENT
        assert words.startswith("its box was destroyed, as its owner signed; given up: ")
        assert "other.bin" in words[:200], "a message that is cut short keeps it"
        await scene.look()
        assert scene.alarms()["ended"] == (level, words)
        await scene.later(hours=25)
        assert "ended" not in scene.alarms()


async def test_a_signed_destroy_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    async with scene_at("lambda_cloud", tmp_path) as scene:
        await scene.rent(rescue_usd=Decimal(0), unasked_gib=0)
        await scene.work("mkdir out; echo 1 > out/a.txt; echo precious > other.bin")
        await scene.ends()
        tenancy = scene.tenant.tenancy
        await with_signature(tenancy, lambda: waive_ahead(tenancy.context, scene.lease))
        scene.tenant.destroy_fails("status", status=500)

        await scene.later(hours=2)
        await scene.later(hours=1)
        assert scene.state is LeaseState.TERMINATING
        scene.tenant.all_is_well()
        await scene.later(hours=1)

        receipt = scene.tenant.tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.ground == "waived"


async def test_a_signature_ahead_is_for_the_terms_that_were_signed_and_for_no_others(
    tmp_path: Path,
) -> None:
    async with scene_at("lambda_cloud", tmp_path) as scene:
        await scene.rent(rescue_usd=Decimal(500), hours=168, unasked_gib=0)
        await scene.work("mkdir out; echo 1 > out/a.txt; echo precious > other.bin")
        await scene.ends()
        tenancy = scene.tenant.tenancy
        await with_signature(tenancy, lambda: waive_ahead(tenancy.context, scene.lease))

        card = await tenancy.change_lease(scene.lease, "terms", rescue_usd=Decimal(0))
        await tenancy.change_lease(scene.lease, "extend", hours=0.001)
        await scene.later(hours=1)
        await scene.later(days=30)

        assert scene.state is LeaseState.ACTIVE
        assert "no longer counts" in (card.alarm or "")
        assert scene.asked("POST", "terminate") == 0


async def test_terms_that_are_none_are_refused_and_hide_no_lease(tmp_path: Path) -> None:
    async with scene_at("lambda_cloud", tmp_path, time="frozen") as scene:
        await scene.rent()

        with pytest.raises(BadRequest, match="budget_usd"):
            await scene.tenant.tenancy.change_lease(scene.lease, "terms", budget_usd=Decimal(-1))

        assert scene.tenant.lease(scene.lease).terms.budget_usd is None


async def test_a_surprise_at_one_provider_ends_nobody_s_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene_at("lambda_cloud", tmp_path, time="frozen") as scene:
        await scene.rent()
        monkeypatch.setattr(
            scene.tenant.tenancy.context.connectors["own"], "list_boxes", _surprised
        )

        look = await scene.later(hours=2)

        assert scene.state is LeaseState.GONE
        assert any("asking it failed" in words for words in look.alarms)


async def _surprised() -> list[Any]:
    raise KeyError("a field that was always there")


@pytest.mark.parametrize("provider", ["lambda_cloud", "gcp"])
async def test_a_budget_pays_for_the_end_too(provider: str, tmp_path: Path) -> None:
    """The whole bill, by the provider's own meter: a job that ignores its stop, its bytes, and the destroy."""
    async with scene_at(provider, tmp_path) as scene:
        card = await scene.rent(budget_usd=Decimal("100"))
        price = scene.tenant.lease(scene.lease).price_usd_h
        assert price is not None
        budget = (price * 6 / 60).quantize(Decimal("0.0001"))
        await scene.tenant.tenancy.change_lease(scene.lease, "terms", budget_usd=budget)
        await scene.work(
            "trap '' TERM; mkdir -p out; head -c 3000000 /dev/urandom > out/model.bin; "
            "while :; do sleep 0.2; done",
            ("out/model.bin",),
        )

        looks = 0
        while scene.state.live and looks < 30:
            await scene.later(minutes=1)
            looks += 1

        spent = scene.tenant.metered(card.box)
        assert scene.state is LeaseState.GONE, scene.alarms()
        assert budget / 3 <= spent <= budget, (spent, budget, looks)
        receipt = scene.tenant.tenancy.ledger.receipt(scene.lease)
        assert receipt is not None
        assert receipt.cost_usd is not None
        assert receipt.cost_usd <= budget
        assert (scene.kept() / "out" / "model.bin").stat().st_size == 3_000_000


async def test_a_budget_that_only_pays_for_the_end_is_refused(tmp_path: Path) -> None:
    async with scene_at("lambda_cloud", tmp_path) as scene:
        await scene.rent(budget_usd=Decimal("10"))
        await scene.work()

        with pytest.raises(Refused, match=r"a budget of 0\.02 USD would end the lease at once"):
            await scene.tenant.tenancy.change_lease(
                scene.lease, "terms", budget_usd=Decimal("0.02")
            )


async def test_a_budget_is_not_overshot_however_rarely_somebody_looks(tmp_path: Path) -> None:
    async with scene_at("lambda_cloud", tmp_path, time="frozen") as scene:
        scene.tenant.home.configuration.parent.mkdir(parents=True, exist_ok=True)
        scene.tenant.home.configuration.write_text("[limits]\nhours = 1000\n", encoding="utf-8")
        card = await scene.rent(budget_usd=Decimal(2), hours=1000)
        assert card.price_usd_h is not None
        every_s = 600.0

        for _ in range(40):
            await scene.tenant.clock.sleep(every_s)
            await scene.look(every_s)
            if not scene.state.live:
                break

        spent = scene.tenant.metered(card.box)
        assert scene.state is LeaseState.GONE
        assert spent <= Decimal(2)
        assert spent >= Decimal(2) - 2 * card.price_usd_h * Decimal(every_s) / 3600


async def test_checkpoints_are_here_while_the_job_still_writes(tmp_path: Path) -> None:
    async with scene_at("lambda_cloud", tmp_path) as scene:
        await scene.rent()
        await scene.work("mkdir -p out; echo first > out/ckpt-1.txt; exec sleep 600")
        box = scene.tenant.home_of(scene.tenant.lease(scene.lease).box_id or "")
        ckpt = box / f"gpu-tenant/{scene.lease}/work/out/ckpt-1.txt"
        for _ in range(100):
            if ckpt.exists():
                break
            await asyncio.sleep(0.05)

        for _ in range(100):
            await scene.look()
            if (scene.kept() / "out" / "ckpt-1.txt").exists():
                break
            await asyncio.sleep(0.2)

        assert (scene.kept() / "out" / "ckpt-1.txt").read_text() == "first\n"
        assert await scene.job() == "running"


async def test_each_look_is_on_the_box_and_one_look_is_no_idleness(tmp_path: Path) -> None:
    async with scene_at("lambda_cloud", tmp_path) as scene:
        await scene.rent(idle_h=0.01, hours=24)
        await scene.work("mkdir out; echo done > out/a.txt")
        await scene.ends()

        await scene.look()

        home = scene.tenant.home_of(scene.tenant.lease(scene.lease).box_id or "")
        looks = home / f"gpu-tenant/{scene.lease}/caretaker/activity.jsonl"
        assert len(looks.read_text(encoding="utf-8").splitlines()) >= 1
        assert scene.state is LeaseState.ACTIVE


# Blind is not dead


def _stopping(scene: Scene) -> list[str]:
    """Everything that was done to the box or the job."""
    done = {
        timeline.Stopped.kind,
        timeline.Parked.kind,
        timeline.Permitted.kind,
        timeline.Ending.kind,
    }
    return [kind for kind in scene.kinds if kind in done]


async def test_an_hour_of_a_provider_that_fails_ends_nothing(tmp_path: Path) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(hours=24)
        await scene.work()
        scene.tenant.fault("status", "", EVERYTHING, status=503, times=FOREVER)

        for _ in range(6):
            await scene.later(minutes=10)

        assert (await scene.job(), _stopping(scene)) == ("running", [])
        assert scene.alarms()["standing"][0] is Level.WARNING
        scene.tenant.all_is_well()
        await scene.look()
        assert scene.alarms() == {}


async def test_a_box_that_cannot_be_reached_25_times_in_a_row_goes_on_working(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent(hours=24)
        await scene.work()
        really = scene.tenant._way_to
        scene.tenant.tenancy.context._open_transport = lambda lease: _Dark()
        await close_connections(scene.tenant.tenancy.context, scene.tenant.lease(scene.lease))

        for _ in range(25):
            await scene.later(seconds=72)

        assert scene.alarms()["unreachable"][0] is Level.WARNING
        assert _stopping(scene) == []
        scene.tenant.tenancy.context._open_transport = really
        await close_connections(scene.tenant.tenancy.context, scene.tenant.lease(scene.lease))
        assert await scene.job() == "running"
        await scene.look()
        assert "unreachable" not in scene.alarms()


class _Dark:
    """A way to a box on which nothing comes back."""

    async def run(self, *_: Any, **__: Any) -> Any:
        raise BoxUnreachable("no answer within 15 s", remedy="later")

    put = get = run

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_a_box_that_cannot_be_asked_is_stopped_when_its_time_is_over(tmp_path: Path) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        await scene.rent()
        await scene.work()
        scene.tenant.tenancy.context._open_transport = lambda lease: _Dark()
        await close_connections(scene.tenant.tenancy.context, scene.tenant.lease(scene.lease))

        await scene.later(hours=2)
        await scene.later(minutes=10)  # it is started once more to be ended, which is in vain

        lease = scene.tenant.lease(scene.lease)
        assert scene.tenant.thing(lease.box_id).phase == "parked", "its disk is kept"


# More than one, and none for a while


@pytest.mark.parametrize("by", ["its provider", "a person"])
async def test_a_used_box_that_is_found_stopped_past_its_end_is_told_paid_for_and_not_destroyed(
    tmp_path: Path, by: str
) -> None:
    async with scene_at("vastai", tmp_path) as scene:
        card = await scene.rent(unasked_gib=0)
        await scene.work("mkdir out; echo 1 > out/a.txt; echo precious > other.bin")
        await scene.ends()
        await scene.tenant.clock.sleep(timedelta(hours=1).total_seconds())
        if by == "its provider":
            scene.tenant.fault("preempted", box=card.box)
        else:  # who does it in the console, where this ledger is not asked
            await scene.tenant.tenancy.context.connectors["vastai"].park(scene.tenant.lease(card))
        running_usd_h = scene.tenant.lease(card).price_usd_h

        for hours in (2, 24, 24 * 30):
            await scene.later(hours=hours)

            lease = scene.tenant.lease(card)
            assert (lease.state, lease.parked_at is not None) == (LeaseState.ACTIVE, True)
            level, words = scene.alarms()["parked"]
            assert level is Level.WARNING
            assert "its deadline was" in words
            assert f"gpu-tenant resume {card.lease}" in words
            assert scene.tenant.thing(card.box).phase == "parked"
            assert running_usd_h is not None
            assert lease.price_usd_h is not None
            assert 0 < lease.price_usd_h < running_usd_h, "its disk bills"
        assert scene.asked(*DESTROY["vastai"]) == 0
        shown = (await scene.tenant.tenancy.list_leases()).leases[0]
        assert shown.cost_usd is not None
        assert shown.cost_usd >= scene.tenant.metered(card.box)


async def test_two_watchdogs_at_once_end_a_lease_once(tmp_path: Path) -> None:
    async with scene_at("lambda_cloud", tmp_path) as scene:
        await scene.rent()
        await scene.work()
        await scene.tenant.clock.sleep(7200)
        other = Watchdog(scene.tenant.anew_tenancy(), tell=lambda _: None)

        await asyncio.gather(scene.look(), other.once())
        await scene.look()

        assert scene.state is LeaseState.GONE
        assert scene.kinds.count(timeline.Receipted.kind) == 1
        assert (scene.kept() / "out" / "final.txt").exists()


async def test_a_key_that_was_taken_away_is_told_and_forgets_no_lease(tmp_path: Path) -> None:
    async with scene_at("lambda_cloud", tmp_path, time="frozen") as scene:
        await scene.rent()
        keyless = scene.tenant.anew_tenancy()
        del keyless.context.connectors["lambda_cloud"]

        await scene.tenant.clock.sleep(7200)
        await Watchdog(keyless, tell=lambda _: None).once()

        assert scene.state is LeaseState.ACTIVE
        assert any("no key" in words for _, words in scene.alarms().values()), scene.alarms()
        await scene.later(hours=1)
        assert scene.state is LeaseState.GONE, "with the key, it goes on"


async def test_a_clock_that_jumps_back_puts_no_end_off(tmp_path: Path) -> None:
    async with scene_at("lambda_cloud", tmp_path, time="frozen") as scene:
        await scene.rent()
        scene.tenant.destroy_fails("status", status=500)
        await scene.later(hours=30)
        assert scene.state is LeaseState.TERMINATING

        scene.tenant.all_is_well()
        scene.tenant.stage.world._base -= 20 * 3600
        scene.tenant.stage.world._tell_time()
        await scene.look()
        await scene.later(minutes=20)

        assert scene.state is LeaseState.GONE


class _Ahead:
    """A computer's clock that somebody set a day and a quarter forward."""

    shared_with_boxes = True

    def now(self) -> datetime:
        return WallClock().now() + timedelta(hours=30)

    async def sleep(self, seconds: float) -> None:
        await WallClock().sleep(seconds)

    async def follow(self, seconds: float) -> None:
        await self.sleep(seconds)


async def test_a_clock_that_jumps_forward_ends_nothing_where_the_box_tells_another_time(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with opened({"GPU_TENANT_HOME": str(home)}) as tenancy:
        lease = (await tenancy.provision("local", smoke="none", hours=8)).lease
        await tenancy.launch_detached(lease, SAVES, ["out/"], name="train")
        tenancy.context.clock = _Ahead()

        await Watchdog(tenancy, tell=lambda _: None).once()

        told = {alarm.key: alarm for alarm in tenancy.ledger.open_alarms()}
        assert (await tenancy.monitor(lease, "train", wait_s=0)).state == "running"
        assert told["clock"].level is Level.URGENT
        assert "ahead of the box's" in told["clock"].words
        tenancy.context.clock = WallClock()
        await tenancy.stop_job(lease, "train")


@asynccontextmanager
async def opened(environ: dict[str, str]) -> AsyncIterator[Tenancy]:
    tenancy = open_tenancy(environ)
    try:
        yield tenancy
    finally:
        await tenancy.aclose()
