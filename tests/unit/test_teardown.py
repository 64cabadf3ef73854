"""A permitted destroy is asked until the list has omitted the box twice, or a person is told what bills."""

from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON, TERMS, HandClock, context_of, profile
from tiny import TinyProvider, TinyResidue, leftover, no_answer

from gpu_tenant.box.ownership import NeverIn
from gpu_tenant.domain.errors import CredentialRefused, ProviderSilent, ProviderTrouble, RateLimited
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState, Profile
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.leases.settle import settle
from gpu_tenant.leases.teardown import tear_down
from gpu_tenant.leases.verify import prove_unused
from gpu_tenant.ledger import Ledger

LEASE = LeaseId("tiny-abcd")
TINY = profile("tiny", list_lag_s=60).model_copy(update={"confirm_s": 10})


@pytest.fixture
def tiny(clock: HandClock) -> TinyResidue:
    return TinyResidue(clock)


@pytest.fixture
async def lease(tiny: TinyProvider, ledger: Ledger, clock: HandClock) -> Lease:
    """A lease that was rented at noon, an hour ago."""
    intent = ledger.intend(
        lease_id=LEASE, provider="tiny", terms=TERMS, address=None, price_usd_h=None, at=NOON
    )
    bound = ledger.bind(LEASE, await tiny.create(intent), at=NOON)
    clock.advance(3600)
    return bound


async def ended(
    lease: Lease, tiny: TinyProvider, ledger: Ledger, clock: HandClock, of: Profile = TINY
) -> Receipt:
    return await tear_down(context_of(ledger, of, tiny), prove_unused(lease, NeverIn()), lease)


async def test_a_destroyed_box_is_believed_gone_after_two_looks_that_lie_apart(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    receipt = await ended(lease, tiny, ledger, clock)

    assert tiny.asked == ["create", "destroy", "list", "list", "leftovers"]
    assert (receipt.second_absent_at - receipt.first_absent_at).total_seconds() == 10
    assert (receipt.lived_s, receipt.cost_usd) == (3600, Decimal("0.5000"))
    assert receipt.left_behind is None
    assert ledger.lease(LEASE).state is LeaseState.GONE


async def test_a_newborn_box_is_believed_gone_when_the_list_must_know_it(
    tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    intent = ledger.intend(
        lease_id=LEASE, provider="tiny", terms=TERMS, address=None, price_usd_h=None, at=NOON
    )
    newborn = ledger.bind(LEASE, await tiny.create(intent), at=clock.now())

    receipt = await ended(newborn, tiny, ledger, clock)

    assert receipt.second_absent_at >= NOON + timedelta(seconds=TINY.list_lag_s)


# No clear answer


async def test_a_destroy_without_an_answer_is_looked_after_and_not_asked_for_again_when_it_worked(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    tiny.loses("destroy", no_answer())

    await ended(lease, tiny, ledger, clock)

    assert tiny.asked.count("destroy") == 1


async def test_a_destroy_that_never_arrived_is_asked_for_again(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    tiny.refuses("destroy", no_answer(), no_answer())

    receipt = await ended(lease, tiny, ledger, clock)

    assert tiny.asked.count("destroy") == 3
    assert receipt.first_absent_at - receipt.destroy_asked_at >= timedelta(seconds=60)


async def test_a_slow_destroy_is_not_asked_for_at_every_look(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    assert lease.box_id is not None
    tiny.immortal.add(lease.box_id)
    tiny.later(95, tiny.boxes.clear)

    await ended(lease, tiny, ledger, clock)

    assert tiny.asked.count("destroy") == 4, "one in thirty seconds"


async def test_a_list_that_is_dark_for_a_while_proves_nothing_and_ends_nothing(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    tiny.refuses("list", *(no_answer() for _ in range(10)))

    receipt = await ended(lease, tiny, ledger, clock)

    assert receipt.first_absent_at - receipt.destroy_asked_at >= timedelta(seconds=50)


async def test_a_box_that_shows_itself_between_two_absences_is_not_gone_yet(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    (box,) = tiny.boxes.values()
    tiny.later(8, lambda: tiny.boxes.update({box.id: box}))

    receipt = await ended(lease, tiny, ledger, clock)

    assert tiny.asked.count("destroy") == 2
    assert receipt.first_absent_at > receipt.destroy_asked_at


# What is not proved gone is told as billing


@pytest.mark.parametrize("refusal", [ProviderTrouble, CredentialRefused, RateLimited])
async def test_a_refusal_keeps_the_lease_and_tells_what_bills_and_what_to_do(
    lease: Lease,
    tiny: TinyResidue,
    ledger: Ledger,
    clock: HandClock,
    refusal: type[ProviderTrouble],
) -> None:
    tiny.refuses("destroy", refusal("no", remedy="mend it"))

    with pytest.raises(refusal) as told:
        await ended(lease, tiny, ledger, clock)

    assert told.value.message == (
        f"{lease.box_id} is not proved gone, and may be billing at 0.50 USD/h: no"
    )
    assert told.value.remedy.startswith(f"mend it, then `gpu-tenant teardown {LEASE}` again; ")
    assert "console" in told.value.remedy
    assert ledger.lease(LEASE).state is LeaseState.TERMINATING
    assert ledger.receipt(LEASE) is None


async def test_the_same_call_goes_on_after_a_refusal(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    tiny.refuses("destroy", RateLimited("slow down", remedy="wait"))
    with pytest.raises(RateLimited):
        await ended(lease, tiny, ledger, clock)

    await ended(ledger.lease(LEASE), tiny, ledger, clock)

    assert ledger.lease(LEASE).state is LeaseState.GONE


async def test_a_box_that_is_still_listed_after_five_minutes_is_trouble(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    assert lease.box_id is not None
    tiny.immortal.add(lease.box_id)
    began = clock.now()

    with pytest.raises(ProviderSilent, match="the provider's list still shows it"):
        await ended(lease, tiny, ledger, clock)

    assert (clock.now() - began).total_seconds() == 300
    assert ledger.lease(LEASE).state is LeaseState.TERMINATING


async def test_a_slow_list_is_given_three_times_its_lag(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    assert lease.box_id is not None
    tiny.immortal.add(lease.box_id)
    began = clock.now()
    slow = TINY.model_copy(update={"list_lag_s": 200})

    with pytest.raises(ProviderSilent):
        await ended(lease, tiny, ledger, clock, slow)

    assert (clock.now() - began).total_seconds() == 600


async def test_a_list_that_stays_dark_is_trouble_and_no_proof(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    tiny.refuses("list", *(no_answer() for _ in range(1000)))

    with pytest.raises(ProviderSilent, match=r"at 0\.50 USD/h: no answer"):
        await ended(lease, tiny, ledger, clock)

    assert ledger.absences(LEASE) == []


async def test_a_box_that_vanishes_at_the_last_moment_gets_its_second_look(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    assert lease.box_id is not None
    tiny.immortal.add(lease.box_id)
    tiny.later(300, tiny.boxes.clear)

    receipt = await ended(lease, tiny, ledger, clock)

    assert receipt.second_absent_at > receipt.first_absent_at


# What stays


async def test_what_a_box_leaves_behind_is_named_with_what_it_costs(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    tiny.disks = [leftover("disk-1", mark=lease.mark), leftover("disk-2", mark="another's")]

    receipt = await ended(lease, tiny, ledger, clock)

    assert (
        receipt.left_behind
        == "the disk disk-1, 40 GB at tiny continues to bill at 4.00 USD a month"
    )


async def test_what_could_not_be_looked_for_is_unknown_and_not_nothing(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    tiny.refuses("leftovers", no_answer())

    receipt = await ended(lease, tiny, ledger, clock)

    assert receipt.left_behind == "unknown: tiny could not be asked what else bills (no answer)"


async def test_a_lease_whose_price_was_never_known_says_so_in_its_receipt(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    ledger.note_parked(LEASE, None, at=clock.now())
    clock.advance(60)

    receipt = await ended(ledger.lease(LEASE), tiny, ledger, clock)

    assert receipt.cost_usd is None


async def test_a_receipt_that_a_crash_kept_from_being_filed_is_filed_by_the_next_looks(
    lease: Lease, tiny: TinyResidue, ledger: Ledger, clock: HandClock
) -> None:
    permit = prove_unused(lease, NeverIn())
    cut_short = ledger.file_permit(permit, at=clock.now())
    await tiny.destroy(permit)

    once, _ = await settle(context_of(ledger, TINY, tiny), cut_short)
    clock.advance(10)
    twice, _ = await settle(context_of(ledger, TINY, tiny), once)

    assert (once.state, twice.state) == (LeaseState.TERMINATING, LeaseState.GONE)
