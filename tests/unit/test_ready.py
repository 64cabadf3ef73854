"""A rented box is ready when it has let us in, and given up when it is broken, late or not as quoted."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON, TERMS, HandClock, context_of, offer, profile, quote
from tiny import TinyProvider, no_answer

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import (
    BoxUnreachable,
    HostKeyChanged,
    NotReady,
    PriceMoved,
    ProviderTrouble,
)
from gpu_tenant.domain.interruption import recorded_fate
from gpu_tenant.domain.model import BoxState, Lease, LeaseId, LeaseState, SshAddress
from gpu_tenant.leases.provision import make_ready
from gpu_tenant.leases.settle import settle
from gpu_tenant.ledger import Ledger

LEASE = LeaseId("tiny-abcd")
TINY = profile("tiny", list_lag_s=60).model_copy(update={"boot_timeout_s": 300, "confirm_s": 10})
CAPPED = TERMS.model_copy(update={"max_price_usd_h": Decimal("0.60")})


@pytest.fixture
async def lease(tiny: TinyProvider, ledger: Ledger) -> Lease:
    """A lease on a box that was rented at noon and boots."""
    intent = ledger.intend(
        lease_id=LEASE,
        provider="tiny",
        terms=CAPPED,
        address=None,
        price_usd_h=Decimal("0.50"),
        quote=quote(offer=offer(setup_s=60)),
        at=NOON,
    )
    box = await tiny.create(intent)
    tiny.change(box.id, state=BoxState.BOOTING)
    return ledger.bind(LEASE, tiny.boxes[box.id], at=NOON)


class Door:
    """The box's own answer, which is not its provider's."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.knocked: list[object] = []

    async def __call__(self, lease: Lease) -> None:
        self.knocked.append(lease.address)
        if self.errors:
            raise self.errors.pop(0)


@dataclass(frozen=True)
class Waiting:
    """Somebody who waits for the box."""

    tiny: TinyProvider
    ledger: Ledger
    clock: HandClock

    async def __call__(
        self, lease: Lease, door: Door | None = None, *, wait_s: float = 3600
    ) -> Lease:
        return await make_ready(
            context_of(self.ledger, TINY, self.tiny), lease, reach=door or Door(), wait_s=wait_s
        )

    @property
    def passed_s(self) -> float:
        return (self.clock.now() - NOON).total_seconds()


@pytest.fixture
def wait(tiny: TinyProvider, ledger: Ledger, clock: HandClock) -> Waiting:
    return Waiting(tiny, ledger, clock)


# The way in


async def test_a_box_is_ready_when_it_has_let_us_in_and_not_when_it_is_said_to_run(
    wait: Waiting, lease: Lease
) -> None:
    wait.tiny.later(30, lambda: wait.tiny.change(lease.box_id, state=BoxState.READY))
    door = Door(*(BoxUnreachable("refused", remedy="wait") for _ in range(4)))

    ready = await wait(lease, door)

    assert len(door.knocked) == 5
    assert ready.ready_at == wait.clock.now() == NOON + timedelta(seconds=50)
    assert wait.ledger.lease(LEASE) == ready
    assert [line.kind for line in wait.ledger.events(LEASE)][-1] == timeline.Ready.kind


async def test_a_box_that_boots_is_not_knocked_at(wait: Waiting, lease: Lease) -> None:
    door = Door()

    await wait(lease, door, wait_s=60)

    assert door.knocked == []


async def test_a_box_without_an_address_is_not_knocked_at(wait: Waiting, lease: Lease) -> None:
    wait.tiny.change(lease.box_id, state=BoxState.READY, address=None)
    door = Door()

    assert (await wait(lease, door, wait_s=60)).ready_at is None
    assert door.knocked == []


async def test_the_box_is_reached_where_its_provider_shows_it_now(
    wait: Waiting, lease: Lease
) -> None:
    moved = SshAddress(target="root@198.51.100.9:40022")
    wait.tiny.change(lease.box_id, state=BoxState.READY, address=moved)
    door = Door()

    ready = await wait(lease, door)

    assert (door.knocked, ready.address) == ([moved], moved)


async def test_a_changed_host_key_is_no_way_in(wait: Waiting, lease: Lease) -> None:
    wait.tiny.change(lease.box_id, state=BoxState.READY)
    door = Door(*(HostKeyChanged("another key", remedy="look") for _ in range(1000)))

    with pytest.raises(NotReady, match="another key"):
        await wait(lease, door)

    assert wait.ledger.lease(LEASE).ready_at is None


# How long


async def test_whoever_waits_no_longer_gets_the_lease_as_it_stands(
    wait: Waiting, lease: Lease
) -> None:
    still = await wait(lease, wait_s=20)

    assert (still.state, still.ready_at) == (LeaseState.ACTIVE, None)
    assert wait.passed_s == 20


async def test_whoever_does_not_wait_at_all_looks_once(wait: Waiting, lease: Lease) -> None:
    wait.tiny.change(lease.box_id, state=BoxState.READY)

    assert (await wait(lease, wait_s=0)).ready_at == NOON


async def test_the_boot_s_time_is_counted_from_the_renting_whoever_waits(
    wait: Waiting, lease: Lease
) -> None:
    wait.clock.advance(290)

    with pytest.raises(NotReady, match="not within 300 s: it is booting") as told:
        await wait(lease)

    assert wait.passed_s == 300
    assert f"gpu-tenant teardown {LEASE}" in told.value.remedy


async def test_a_price_that_changes_while_it_boots_does_not_begin_the_time_anew(
    wait: Waiting, lease: Lease
) -> None:
    for usd_h in ("0.51", "0.52"):
        wait.clock.advance(140)
        wait.tiny.change(lease.box_id, price_usd_h=Decimal(usd_h))
        lease = await wait(lease, wait_s=0)

    with pytest.raises(NotReady, match="not within 300 s"):
        await wait(lease)


async def test_a_box_that_was_started_again_has_its_whole_time_again(
    wait: Waiting, lease: Lease
) -> None:
    wait.clock.advance(5000)
    wait.ledger.note_parked(LEASE, Decimal("0.02"), at=wait.clock.now())
    wait.clock.advance(5000)
    resumed = wait.ledger.note_resumed(LEASE, Decimal("0.50"), at=wait.clock.now())

    still = await wait(resumed, wait_s=290)

    assert still.ready_at is None
    with pytest.raises(NotReady, match="not within 300 s"):
        await wait(still)


async def test_an_offer_that_is_known_to_be_slow_is_given_three_times_what_it_takes(
    wait: Waiting, lease: Lease
) -> None:
    slow = lease.model_copy(update={"quote": quote(offer=offer(setup_s=200))})

    with pytest.raises(NotReady, match="not within 600 s"):
        await wait(slow)


# What is given up at once


async def test_a_broken_box_is_given_up_at_once_with_its_provider_s_words(
    wait: Waiting, lease: Lease
) -> None:
    wait.tiny.change(lease.box_id, state=BoxState.BROKEN, words="image not found")

    with pytest.raises(NotReady, match="image not found"):
        await wait(lease)

    assert wait.passed_s == 0
    assert "destroy" not in wait.tiny.asked, "to give it back is the verb's part"


async def started_again(wait: Waiting) -> Lease:
    wait.ledger.note_parked(LEASE, Decimal("0.02"), at=wait.clock.now())
    return wait.ledger.note_resumed(LEASE, Decimal("0.50"), at=wait.clock.now())


async def test_a_box_that_was_started_again_may_still_be_shown_as_it_was_left(
    wait: Waiting, lease: Lease
) -> None:
    patient = TINY.model_copy(update={"boot_timeout_s": 1200})
    resumed = await started_again(wait)
    wait.tiny.change(lease.box_id, state=BoxState.BROKEN, words="it is called exited")
    context = context_of(wait.ledger, patient, wait.tiny)

    still = await make_ready(context, resumed, reach=Door(), wait_s=590)
    assert still.ready_at is None
    wait.tiny.change(lease.box_id, state=BoxState.READY, address=SshAddress(target="me@box"))

    ready = await make_ready(context, still, reach=Door(), wait_s=60)
    assert ready.ready_at is not None


@pytest.mark.parametrize("left", [BoxState.PARKED, BoxState.BROKEN])
async def test_a_box_that_was_just_started_is_not_called_taken_for_how_it_was_left(
    wait: Waiting, lease: Lease, left: BoxState
) -> None:
    resumed = await started_again(wait)
    wait.tiny.change(lease.box_id, state=left, price_usd_h=Decimal("0.02"))
    context = context_of(wait.ledger, TINY, wait.tiny)

    wait.clock.advance(100)
    soon, told = await settle(context, resumed)

    assert (soon.parked_at, soon.price_usd_h, told) == (None, Decimal("0.50"), None)
    assert recorded_fate(wait.ledger.events(LEASE)) is None


async def test_a_box_that_stays_stopped_after_its_start_was_stopped(
    wait: Waiting, lease: Lease
) -> None:
    resumed = await started_again(wait)
    wait.tiny.change(lease.box_id, state=BoxState.PARKED)
    wait.clock.advance(130)

    await settle(context_of(wait.ledger, TINY, wait.tiny), resumed)

    assert recorded_fate(wait.ledger.events(LEASE)) == "stopped_by_provider"


async def test_a_box_that_stays_broken_after_its_start_is_given_up_after_ten_minutes(
    wait: Waiting, lease: Lease
) -> None:
    patient = TINY.model_copy(update={"boot_timeout_s": 1200})
    resumed = await started_again(wait)
    wait.tiny.change(lease.box_id, state=BoxState.BROKEN, words="it is called exited")

    with pytest.raises(NotReady, match="it is called exited"):
        await make_ready(
            context_of(wait.ledger, patient, wait.tiny), resumed, reach=Door(), wait_s=3600
        )

    assert wait.passed_s == 600


async def test_a_box_that_runs_without_an_address_is_given_up_after_three_minutes(
    wait: Waiting, lease: Lease
) -> None:
    wait.tiny.change(lease.box_id, state=BoxState.READY, address=None)

    with pytest.raises(NotReady, match="runs, and its provider shows no address for ssh"):
        await wait(lease)

    assert wait.passed_s == 180


async def test_the_minutes_without_an_address_are_counted_from_its_provider_s_word(
    wait: Waiting, lease: Lease
) -> None:
    wait.clock.advance(200)
    wait.tiny.change(lease.box_id, state=BoxState.READY, address=None, runs_since=NOON)

    with pytest.raises(NotReady, match="no address"):
        await wait(lease, wait_s=0)


async def test_nobody_is_told_to_give_back_unused_what_holds_work(
    wait: Waiting, lease: Lease
) -> None:
    wait.ledger.touch(LEASE, at=wait.clock.now())
    wait.tiny.change(lease.box_id, state=BoxState.BROKEN)

    with pytest.raises(NotReady) as told:
        await wait(wait.ledger.lease(LEASE))

    assert "unused" not in told.value.remedy
    assert f"audit {LEASE}" in told.value.remedy


async def test_a_box_above_the_cap_is_told_with_its_price_on_record(
    wait: Waiting, lease: Lease
) -> None:
    wait.tiny.change(lease.box_id, state=BoxState.READY, price_usd_h=Decimal("0.61"))
    door = Door()

    with pytest.raises(PriceMoved, match=r"costs 0\.61 USD/h, above the cap of 0\.60 USD/h"):
        await wait(lease, door)

    assert door.knocked == []
    assert wait.ledger.lease(LEASE).price_usd_h == Decimal("0.61")


async def test_a_box_that_costs_less_while_it_boots_is_held_to_what_it_will_cost(
    wait: Waiting, lease: Lease
) -> None:
    cheap, dear = Decimal("0.05"), Decimal("0.61")
    wait.tiny.change(lease.box_id, price_usd_h=cheap, running_usd_h=dear)

    with pytest.raises(PriceMoved, match=r"costs 0\.61 USD/h, above the cap"):
        await wait(lease)

    assert wait.ledger.lease(LEASE).price_usd_h == cheap, "what is billed now"


async def test_a_box_at_the_cap_or_of_unknown_price_is_kept(wait: Waiting, lease: Lease) -> None:
    wait.tiny.change(lease.box_id, state=BoxState.READY, price_usd_h=Decimal("0.60"))
    assert (await wait(lease)).ready_at is not None

    wait.tiny.change(lease.box_id, price_usd_h=None)
    assert (await wait(lease)).price_usd_h == Decimal("0.60")


@pytest.mark.parametrize(("quoted", "kind"), [("no", "interruptible"), ("yes", "on demand")])
async def test_a_box_of_another_kind_than_was_quoted_is_told(
    wait: Waiting, lease: Lease, quoted: str, kind: str
) -> None:
    wanted = quote(offer=offer(interruptible=quoted == "yes"))
    wait.tiny.change(lease.box_id, interruptible=quoted == "no")

    with pytest.raises(PriceMoved, match=f"was rented {kind}, which is not what was quoted"):
        await wait(lease.model_copy(update={"quote": wanted}))


# The list


async def test_a_provider_that_is_silent_for_a_while_ends_no_wait(
    wait: Waiting, lease: Lease
) -> None:
    wait.tiny.change(lease.box_id, state=BoxState.READY)
    wait.tiny.refuses("list", *(no_answer() for _ in range(6)))

    assert (await wait(lease)).ready_at == NOON + timedelta(seconds=30)


async def test_a_provider_that_stays_silent_is_why_it_was_not_ready(
    wait: Waiting, lease: Lease
) -> None:
    wait.tiny.refuses("list", *(no_answer() for _ in range(1000)))

    with pytest.raises(NotReady, match="tiny does not answer: no answer"):
        await wait(lease)

    assert wait.ledger.lease(LEASE).state is LeaseState.ACTIVE


async def test_a_box_that_is_not_listed_yet_is_waited_for(wait: Waiting, lease: Lease) -> None:
    assert lease.box_id is not None
    wait.tiny.unlisted.add(lease.box_id)
    wait.tiny.change(lease.box_id, state=BoxState.READY)
    wait.tiny.later(50, wait.tiny.unlisted.clear)

    assert (await wait(lease)).ready_at == NOON + timedelta(seconds=50)


async def test_a_box_that_is_gone_for_sure_is_trouble_and_its_lease_is_lost(
    wait: Waiting, lease: Lease
) -> None:
    wait.tiny.boxes.clear()

    with pytest.raises(
        ProviderTrouble, match="the box is gone, and this program did not end it"
    ) as told:
        await wait(lease)

    assert "the box is young, and may only be late in the provider's list" in told.value.remedy
    assert "gpu-tenant leases" in told.value.remedy
    assert wait.ledger.lease(LEASE).state is LeaseState.LOST
