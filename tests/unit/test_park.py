"""A box is stopped only where that saves money and loses nothing, and is parked when its provider shows it."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from arranged import NOON, TERMS, HandClock, context_of, job, lease, profile
from tiny import TinyParking, TinyProvider, no_answer, nothing_free

from gpu_tenant.box.caretaker import Caretaker
from gpu_tenant.domain.errors import (
    BoxUnreachable,
    JobRunning,
    Limit,
    NoCapacity,
    ProviderSilent,
    ProviderTrouble,
    Refused,
)
from gpu_tenant.domain.model import BoxState, Lease, LeaseId, Profile, SshAddress
from gpu_tenant.files.skill_files import script
from gpu_tenant.leases.kept_parked import parked_step
from gpu_tenant.leases.lifecycle import change
from gpu_tenant.leases.owner_approval import Owner
from gpu_tenant.leases.park import park, resume
from gpu_tenant.leases.settle import settle
from gpu_tenant.leases.watch_actions import park_overdue
from gpu_tenant.ledger import Allowed, Ledger, anything
from gpu_tenant.transports.local import LocalTransport

LEASE = LeaseId("tiny-abcd")
KEEPS = profile("tiny").model_copy(update={"park": "keeps", "accounted_paths": ()})
WIPES = KEEPS.model_copy(update={"park": "wipes"})


@dataclass
class Garage:
    """A lease at a provider that can park, and the real caretaker of its box's directory."""

    ledger: Ledger
    home: Path
    clock: HandClock

    def __post_init__(self) -> None:
        self.tiny = TinyParking(self.clock)

    async def lease(self, *, used: bool = False) -> Lease:
        intent = self.ledger.intend(
            lease_id=LEASE, provider="tiny", terms=TERMS, address=None, price_usd_h=None, at=NOON
        )
        self.ledger.bind(LEASE, await self.tiny.create(intent), at=NOON)
        if used:
            self.ledger.touch(LEASE, at=NOON)
            (self.home / intent.work_directory).mkdir(parents=True)
        self.clock.advance(3600)
        return self.ledger.ready(LEASE, at=NOON)

    def caretaker(self, lease: Lease) -> Caretaker:
        return Caretaker(lease, LocalTransport(self.home), script("caretaker.py"))

    async def park(
        self,
        lease: Lease,
        of: Profile = KEEPS,
        *,
        at: TinyProvider | None = None,
    ) -> Lease:
        return await park(
            context_of(
                self.ledger,
                of,
                connector=at or self.tiny,
                transport=lambda _: LocalTransport(self.home),
            ),
            lease,
        )

    async def resume(self, lease: Lease, allowed: Allowed = anything) -> Lease:
        return await resume(context_of(self.ledger, KEEPS, self.tiny), lease, allowed=allowed)


@pytest.fixture
def garage(tmp_path: Path) -> Iterator[Garage]:
    clock = HandClock()
    opened = Ledger(tmp_path / "ledger.sqlite3", clock)
    yield Garage(opened, tmp_path / "home", clock)
    opened.close()


# To park


async def test_a_parked_box_costs_what_its_provider_says_from_when_it_is_shown_as_stopped(
    garage: Garage,
) -> None:
    lease = await garage.lease()

    parked = await garage.park(lease)

    assert garage.tiny.asked == ["create", "park", "list"]
    assert (parked.parked_at, parked.price_usd_h) == (garage.clock.now(), Decimal("0.02"))
    assert parked.cost_usd(garage.clock.now() + timedelta(hours=10)) == Decimal("0.7000")
    assert garage.ledger.lease(LEASE) == parked


async def test_a_stop_that_takes_its_time_is_waited_for_and_billed_until_then(
    garage: Garage,
) -> None:
    lease = await garage.lease()
    garage.tiny.refuses("list", no_answer(), no_answer())
    asked_at = garage.clock.now()

    parked = await garage.park(lease)

    assert parked.parked_at == asked_at + timedelta(seconds=10)
    assert parked.rates[-1].at == parked.parked_at


async def test_what_a_parked_box_costs_may_be_unknown_and_is_not_nothing(garage: Garage) -> None:
    lease = await garage.lease()
    garage.tiny.refuses("list", no_answer())
    garage.tiny.later(5, lambda: garage.tiny.change(lease.box_id, price_usd_h=None))

    parked = await garage.park(lease)

    assert parked.price_usd_h is None
    assert parked.cost_usd(garage.clock.now() + timedelta(hours=1)) is None


@pytest.mark.parametrize("why", ["its profile says so", "its connector cannot"])
async def test_where_no_stop_saves_money_nothing_is_asked(garage: Garage, why: str) -> None:
    lease = await garage.lease()
    without = TinyProvider(garage.clock) if why == "its connector cannot" else garage.tiny
    of = KEEPS if why == "its connector cannot" else profile("tiny")

    with pytest.raises(Refused, match="bills until it is destroyed") as told:
        await garage.park(lease, of, at=without)

    assert f"gpu-tenant teardown {LEASE}" in told.value.remedy
    assert "park" not in garage.tiny.asked
    assert garage.ledger.lease(LEASE) == lease


async def test_a_refused_stop_leaves_the_lease_as_it_was(garage: Garage) -> None:
    lease = await garage.lease()
    garage.tiny.refuses("park", ProviderTrouble("spot boxes cannot be stopped", remedy="end it"))

    with pytest.raises(ProviderTrouble, match="spot boxes"):
        await garage.park(lease)

    assert garage.ledger.lease(LEASE) == lease


async def test_a_stop_that_nobody_sees_is_told_as_billing(garage: Garage) -> None:
    lease = await garage.lease()
    began = garage.clock.now()
    garage.tiny.refuses("list", *(no_answer() for _ in range(1000)))

    with pytest.raises(ProviderSilent, match=r"it may be billing at 0\.50 USD/h"):
        await garage.park(lease)

    assert (garage.clock.now() - began).total_seconds() == 600
    assert garage.ledger.lease(LEASE) == lease


async def test_a_stop_without_an_answer_is_noticed_by_the_next_look_and_by_the_same_verb(
    garage: Garage,
) -> None:
    lease = await garage.lease()
    garage.tiny.loses("park", no_answer())
    with pytest.raises(ProviderSilent):
        await garage.park(lease)

    seen, told = await settle(context_of(garage.ledger, KEEPS, garage.tiny), lease)

    assert told is None, "it is as we have asked"
    assert (seen.parked_at, seen.price_usd_h) == (garage.clock.now(), Decimal("0.02"))
    kinds = [line.kind for line in garage.ledger.events(LEASE)]
    assert "taken" not in kinds


async def test_while_a_watchdog_waits_for_a_stop_its_owner_gets_at_the_lease(
    garage: Garage, tmp_path: Path
) -> None:
    lease = await garage.lease()
    context = context_of(
        garage.ledger, KEEPS, garage.tiny, transport=lambda _: LocalTransport(garage.home)
    )
    visits: list[float] = []

    async def visited(seconds: float) -> None:
        with owner.hold(LEASE, "collect", at=garage.clock.now()):
            visits.append(seconds)
        garage.clock.advance(seconds)
        is_stopped = BoxState.PARKED if len(visits) == 3 else BoxState.READY
        garage.tiny.change(lease.box_id, state=is_stopped)

    with closing(Ledger(tmp_path / "ledger.sqlite3", garage.clock)) as owner:
        garage.clock.sleep = visited  # type: ignore[method-assign]
        garage.tiny.refuses("list", no_answer())
        await park_overdue(context, LEASE)

    assert len(visits) == 3
    assert garage.ledger.lease(LEASE).parked_at is not None


async def test_a_stop_of_a_box_whose_host_is_lost_is_not_waited_for(garage: Garage) -> None:
    lease = await garage.lease()

    class Gone(TinyParking):
        async def park(self, lease: Lease) -> None:
            with self._carried_out("park"):
                self.change(lease.box_id, state=BoxState.UNKNOWN, taken="host_lost")

    gone = Gone(garage.clock)
    gone.boxes = garage.tiny.boxes
    asked_at = garage.clock.now()

    with pytest.raises(Refused, match="nothing is left to stop"):
        await garage.park(lease, at=gone)

    assert garage.clock.now() == asked_at


async def test_a_box_that_its_platform_stopped_is_started_again_by_the_same_verb(
    garage: Garage,
) -> None:
    lease = await garage.lease()
    garage.tiny.change(lease.box_id, state=BoxState.PARKED, price_usd_h=Decimal("0.02"))

    resumed = await garage.resume(lease)

    assert resumed.parked_at is None
    assert [rate.usd_h for rate in resumed.rates][-2:] == [Decimal("0.02"), Decimal("0.50")]


# What would be lost by it


async def test_where_a_stop_wipes_the_disk_a_used_box_is_not_stopped(garage: Garage) -> None:
    """With the disk would go the box's own record, and with it every proof of what was kept."""
    lease = await garage.lease(used=True)

    with pytest.raises(Refused, match="empties the box's own disk") as told:
        await garage.park(lease, WIPES)

    assert f"`gpu-tenant collect {lease.id}`" in told.value.remedy
    assert "park" not in garage.tiny.asked


async def test_a_box_that_was_never_used_has_nothing_to_lose(garage: Garage) -> None:
    lease = await garage.lease()

    assert (await garage.park(lease, WIPES)).parked_at is not None


async def test_a_running_job_is_not_killed_by_a_stop_also_where_the_disk_is_kept(
    garage: Garage,
) -> None:
    lease = await garage.lease(used=True)
    caretaker = garage.caretaker(lease)
    work = job().model_copy(update={"command": "exec sleep 600", "lease_id": LEASE})
    await caretaker.start(work, env={})

    try:
        with pytest.raises(JobRunning):
            await garage.park(lease)
    finally:
        await caretaker.stop(work.id, grace_s=0)

    assert "park" not in garage.tiny.asked
    assert (await garage.park(lease)).parked_at is not None


async def test_a_used_box_that_cannot_be_asked_is_not_stopped(garage: Garage) -> None:
    lease = await garage.lease(used=True)
    garage.home.rename(garage.home.with_name("elsewhere"))

    with pytest.raises(BoxUnreachable):
        await garage.park(lease)

    assert "park" not in garage.tiny.asked


# To resume


async def test_a_resumed_box_costs_what_it_cost_before_and_has_yet_to_let_us_in(
    garage: Garage,
) -> None:
    parked = await garage.park(await garage.lease())
    garage.clock.advance(7200)

    resumed = await garage.resume(parked)

    assert garage.tiny.asked[-2:] == ["resume", "list"]
    assert (resumed.parked_at, resumed.ready_at) == (None, None)
    assert resumed.price_usd_h == Decimal("0.50")
    assert resumed.cost_usd(garage.clock.now() + timedelta(hours=1)) == Decimal("1.0400")


async def test_a_resumed_box_may_cost_something_else_and_be_elsewhere(garage: Garage) -> None:
    parked = await garage.park(await garage.lease())
    elsewhere = SshAddress(target="root@198.51.100.9:40022")
    garage.tiny.after_resume = {"address": elsewhere, "price_usd_h": Decimal("0.55")}

    resumed = await garage.resume(parked)

    assert (resumed.address, resumed.price_usd_h) == (elsewhere, Decimal("0.55"))


async def test_a_gpu_that_is_somebody_else_s_now_leaves_the_box_parked(garage: Garage) -> None:
    parked = await garage.park(await garage.lease())
    garage.tiny.refuses("resume", nothing_free())

    with pytest.raises(NoCapacity):
        await garage.resume(parked)

    stays = garage.ledger.lease(LEASE)
    assert (stays.parked_at, stays.price_usd_h) == (parked.parked_at, parked.price_usd_h)
    hence = garage.clock.now() + timedelta(hours=10)
    assert stays.cost_usd(hence) == parked.cost_usd(hence)


async def test_a_start_without_an_answer_is_noticed_by_the_next_look(garage: Garage) -> None:
    parked = await garage.park(await garage.lease())
    garage.tiny.loses("resume", no_answer())
    with pytest.raises(ProviderSilent):
        await garage.resume(parked)
    garage.tiny.change(parked.box_id, state=BoxState.READY)

    seen, told = await settle(context_of(garage.ledger, KEEPS, garage.tiny), parked)

    assert told == "its box was parked, and it was asked to start: it bills at 0.50 USD/h"
    assert seen.price_usd_h == Decimal("0.50"), "the meter knows before anybody acts on it"


async def test_what_is_not_parked_is_not_resumed(garage: Garage) -> None:
    lease = await garage.lease()

    with pytest.raises(Refused, match=f"{LEASE} is not parked"):
        await garage.resume(lease)

    assert "resume" not in garage.tiny.asked


# What the owner allows in all, while another process rents


def owner_of(ledger: Ledger, configuration: Path) -> Owner:
    """One who allows half a dollar and a little an hour."""
    configuration.write_text("[limits]\nusd_h = 0.60\n", encoding="utf-8")
    return Owner(configuration, {"tiny": KEEPS}, ledger=ledger)


def rents_another(garage: Garage) -> None:
    """Another process asks for a box of half a dollar an hour, over a connection of its own."""
    with closing(Ledger(garage.home.with_name("ledger.sqlite3"), garage.clock)) as ledger:
        ledger.intend(
            lease_id=LeaseId("tiny-other"),
            provider="tiny",
            terms=TERMS,
            address=None,
            price_usd_h=Decimal("0.50"),
            at=garage.clock.now(),
            allowed=owner_of(ledger, garage.home.with_name("other.toml")).allows,
        )


async def test_what_is_rented_while_a_box_is_being_started_sees_that_it_will_run(
    garage: Garage,
) -> None:
    parked = await garage.park(await garage.lease())
    told: list[Exception] = []

    class Slow(TinyParking):
        async def resume(self, lease: Lease) -> None:
            with pytest.raises(Limit) as passed:
                await asyncio.to_thread(rents_another, garage)
            told.append(passed.value)
            await super().resume(lease)

    slow = Slow(garage.clock)
    slow.boxes = garage.tiny.boxes
    garage.tiny = slow
    owner = owner_of(garage.ledger, garage.home.with_name("config.toml"))

    resumed = await garage.resume(parked, partial(owner.allows, besides=LEASE))

    assert resumed.parked_at is None
    assert "usd_h" in str(told)


async def test_a_box_is_not_started_where_another_was_rented_since_that_was_allowed(
    garage: Garage,
) -> None:
    parked = await garage.park(await garage.lease())
    owner = owner_of(garage.ledger, garage.home.with_name("config.toml"))
    owner.allows("tiny", parked.terms, Decimal("0.50"), besides=LEASE)
    await asyncio.to_thread(rents_another, garage)

    with pytest.raises(Limit):
        await garage.resume(parked, partial(owner.allows, besides=LEASE))

    assert garage.ledger.lease(LEASE) == parked
    assert "resume" not in garage.tiny.asked


async def test_a_start_that_is_only_queued_is_said_to_be(garage: Garage) -> None:
    lease = await garage.lease()
    parked = await garage.park(lease)
    waits = "it waits for its GPU, and starts, and bills, as soon as that is free"
    garage.tiny.after_resume = {
        "state": BoxState.PARKED,
        "price_usd_h": Decimal("0.02"),
        "words": waits,
    }

    told = await change(
        context_of(garage.ledger, KEEPS, garage.tiny), parked.id, "resume", terms={}
    )

    assert waits in (told.alarm or "")
    assert told.phase == "stopped"
    assert "nothing ends the bill for its disk" in told.stops_the_meter


def test_what_ends_a_parked_box_names_the_files_that_nobody_has_claimed() -> None:
    parked = lease().model_copy(update={"parked_at": NOON})

    known = parked_step(parked, (), NOON, ["notes.txt"])
    unknown = parked_step(parked, (), NOON)

    assert "then `gpu-tenant collect" in known
    assert "--artifact 'notes.txt'` (or `--discard` instead of `--artifact`" in known
    assert (
        "`--artifact 'FILE'` for what it names as unclaimed, then `gpu-tenant teardown" in unknown
    )
