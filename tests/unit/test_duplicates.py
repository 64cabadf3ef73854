"""A box that was made twice, or too late, is given back unused; one that may have been used never is."""

from decimal import Decimal

import pytest
from arranged import NOON, TERMS, HandClock, context_of, intended, profile, quote
from tiny import TinyProvider, no_answer

from gpu_tenant.box.ownership import Marked, NeverIn, OccupancyReport, Seen
from gpu_tenant.domain.errors import CredentialRefused
from gpu_tenant.domain.model import Box, Lease, LeaseId, LeaseState
from gpu_tenant.leases.duplicates import Look as Looks
from gpu_tenant.leases.duplicates import nobody_looks
from gpu_tenant.leases.settle import Survey, survey
from gpu_tenant.ledger import Ledger

LEASE, TWIN = LeaseId("tiny-abcd"), LeaseId("tiny-twin")
TINY = profile("tiny", list_lag_s=60)


@pytest.fixture
async def lease(tiny: TinyProvider, ledger: Ledger) -> Lease:
    """A lease that is at work on its box."""
    intent = ledger.intend(
        lease_id=LEASE,
        provider="tiny",
        terms=TERMS,
        address=None,
        price_usd_h=Decimal("0.50"),
        quote=quote(),
        at=NOON,
    )
    ledger.bind(LEASE, await tiny.create(intent), at=NOON)
    ledger.touch(LEASE, at=NOON)
    return ledger.lease(LEASE)


@pytest.fixture
def twin(tiny: TinyProvider, lease: Lease) -> Box:
    """A second box of the same request."""
    return tiny.rent(lease.mark)


async def empty(lease: Lease, box: Box) -> Seen:
    """A look at a box on which nothing was done."""
    return Marked(state="put", look=OccupancyReport())


async def worked_on(lease: Lease, box: Box) -> Seen:
    """A look at one where a person wrote a file."""
    return Marked(
        state="put", look=OccupancyReport(files=1, bytes=17, largest=("/root/mine/model.pt",))
    )


async def booting(lease: Lease, box: Box) -> Seen:
    """One that has let nobody in yet."""
    return NeverIn()


async def asked(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, look: Looks = empty
) -> Survey:
    return await survey(context_of(ledger, TINY, tiny), look=look)


def taken_up(ledger: Ledger, twin: Box, *, used: bool = False) -> Lease:
    """The lease that a return of the twin begins with."""
    return ledger.take_up(
        twin, lease_id=TWIN, terms=TERMS, at=NOON, touched_at=NOON if used else None
    )


async def test_a_twin_is_given_back_unused_with_a_receipt_and_told_with_what_it_cost(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    found = await asked(tiny, ledger, clock)

    ((name, words),) = found.alarms
    ended = ledger.lease(name)
    proof = ledger.receipt(name)
    assert list(tiny.boxes) == [lease.box_id]
    assert (ended.state, ended.box_id, ended.mark) == (LeaseState.GONE, twin.id, lease.mark)
    assert proof is not None
    assert (proof.ground, proof.box_id) == ("never_used", twin.id)
    assert words == (
        f"{twin.id} carries the mark of {LEASE}, which asked for one box; nobody used this box, and it was given back, for "
        f"{proof.cost_usd} USD"
    )
    assert ledger.lease(LEASE) == lease, "the other box goes on with its work"


async def test_what_a_twin_of_unknown_price_cost_is_not_told_as_nothing(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, twin: Box
) -> None:
    tiny.change(twin.id, price_usd_h=None)

    found = await asked(tiny, ledger, clock)

    assert "given back, for an unknown sum" in found.alarms[0][1]


async def test_a_twin_that_is_found_late_may_have_booted_for_nothing_all_the_time(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, twin: Box
) -> None:
    tiny.change(twin.id, booting_usd_h=Decimal(0))
    clock.advance(2 * 3600)

    ((name, _),) = (await asked(tiny, ledger, clock)).alarms

    proof = ledger.receipt(name)
    assert proof is not None
    likely = Decimal("0.9917")  # the quote names a minute for a boot
    assert (proof.cost_usd, proof.cost_least_usd, proof.cost_most_usd) == (likely, 0, 1)
    assert proof.counts is not None
    assert "when it finished booting is unknown" in proof.counts


async def test_two_twins_are_given_back_each(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    tiny.rent(lease.mark)

    found = await asked(tiny, ledger, clock)

    assert len(found.alarms) == 2
    assert list(tiny.boxes) == [lease.box_id]


async def test_a_box_that_comes_long_after_its_intent_was_given_up_is_given_back(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock
) -> None:
    intent = intended(ledger, LEASE, provider="tiny")
    ledger.end(LEASE, "void", at=NOON)
    clock.advance(700)
    late = await tiny.create(intent)

    found = await asked(tiny, ledger, clock)

    assert tiny.boxes == {}
    assert [ledger.lease(name).box_id for name, _ in found.alarms] == [late.id]
    assert ledger.lease(LEASE).state is LeaseState.VOID


async def test_a_twin_of_a_lease_that_is_gone_is_given_back(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    assert lease.box_id is not None
    tiny.boxes.pop(lease.box_id)
    ledger.end(LEASE, "lost", at=NOON)

    await asked(tiny, ledger, clock)

    assert tiny.boxes == {}
    assert ledger.lease(LEASE).state is LeaseState.LOST


async def test_where_a_list_is_only_to_be_shown_a_twin_is_told_and_left_to_the_verb(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    told = [
        (await survey(context_of(ledger, TINY, tiny), twins="tell", look=empty)) for _ in range(2)
    ]

    known = ledger.lease_on("tiny", twin.id)
    assert known is not None
    words = (
        f"{twin.id} carries the mark of {LEASE}, which asked for one box: "
        f"`gpu-tenant teardown {known.id}` gives it back, if nobody used it"
    )
    assert [found.alarms for found in told] == [[(known.id, words)]] * 2
    assert "destroy" not in tiny.asked
    assert (known.state, known.touched_at) == (LeaseState.ACTIVE, None)


# A return that was cut short


async def test_a_twin_s_return_that_stopped_before_its_permit_goes_on(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    taken_up(ledger, twin)

    found = await asked(tiny, ledger, clock)

    assert [name for name, _ in found.alarms] == [TWIN]
    assert ledger.lease(TWIN).state is LeaseState.GONE
    assert list(tiny.boxes) == [lease.box_id]


async def test_a_return_that_the_provider_refused_is_told_and_goes_on_the_next_time(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    tiny.refuses("destroy", CredentialRefused("this key may only read", remedy="mend the key"))

    refused = await asked(tiny, ledger, clock)
    cut_short = ledger.lease_on("tiny", twin.id)
    again = await asked(tiny, ledger, clock)

    assert cut_short is not None
    assert cut_short.state is LeaseState.TERMINATING
    ((name, words),) = refused.alarms
    assert name == twin.id
    assert "may be billing at 0.50 USD/h: this key may only read; mend the key" in words
    assert [name for name, _ in again.alarms] == [cut_short.id]
    assert list(tiny.boxes) == [lease.box_id]


async def test_trouble_with_a_twin_keeps_no_other_provider_from_being_looked_at(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, twin: Box
) -> None:
    tiny.refuses("destroy", CredentialRefused("this key may only read", remedy="mend the key"))
    other = TinyProvider(clock, "other")
    orphan = other.rent(f"gpu-tenant:{ledger.deployment}:other-zzzz")

    found = await survey(context_of(ledger, TINY, tiny, (profile("other"), other)), look=empty)

    assert [name for name, _ in found.alarms] == [twin.id, "other-zzzz"]
    assert ledger.lease("other-zzzz").box_id == orphan.id


async def test_a_destroy_without_an_answer_is_asked_again_until_the_twin_is_gone(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    tiny.refuses("destroy", no_answer())

    await asked(tiny, ledger, clock)

    assert tiny.asked.count("destroy") == 2
    assert list(tiny.boxes) == [lease.box_id]


# What is no twin


async def test_a_clone_that_a_person_made_later_is_told_and_left_alone_however_empty_it_is(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease
) -> None:
    clock.advance(720)
    clone = tiny.rent(lease.mark)

    first = await asked(tiny, ledger, clock)
    clock.advance(3600)
    again = await asked(tiny, ledger, clock)

    assert [name for name, _ in first.alarms + again.alarms] == [clone.id] * 2
    assert "not known to have asked for this box" in first.alarms[0][1]
    assert "it bills at 0.50 USD/h" in first.alarms[0][1]
    assert ledger.lease_on("tiny", clone.id) is None
    assert "destroy" not in tiny.asked


async def test_a_box_that_only_its_request_dates_is_left_alone_where_it_is_first_seen_long_after(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    tiny.change(twin.id, made_by_word_of="request")
    clock.advance(2 * 3600)

    found = await asked(tiny, ledger, clock)

    ((name, words),) = found.alarms
    assert (name, "not known to have asked for this box" in words) == (twin.id, True)
    assert "destroy" not in tiny.asked


async def test_a_box_that_only_its_request_dates_is_given_back_where_it_is_seen_at_once(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    tiny.change(twin.id, made_by_word_of="request")

    await asked(tiny, ledger, clock)

    assert list(tiny.boxes) == [lease.box_id]


async def test_a_box_of_which_its_provider_does_not_say_when_it_was_made_is_left_alone(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, twin: Box
) -> None:
    tiny.change(twin.id, created_at=None)

    found = await asked(tiny, ledger, clock)

    assert [name for name, _ in found.alarms] == [twin.id]
    assert "destroy" not in tiny.asked


@pytest.mark.parametrize(
    ("look", "why"),
    [(worked_on, "/root/mine/model.pt"), (nobody_looks, "no way to look")],
)
async def test_a_twin_that_was_used_or_cannot_be_looked_at_is_told_and_kept(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, twin: Box, look: Looks, why: str
) -> None:
    found = await asked(tiny, ledger, clock, look)

    again = await asked(tiny, ledger, clock, empty if look is worked_on else look)

    ((_, words),) = found.alarms
    assert why in words
    assert look is not worked_on or again.alarms == [], "it is an ordinary lease, and used"
    assert twin.id in tiny.boxes
    assert "destroy" not in tiny.asked


async def test_a_twin_that_has_let_nobody_in_yet_is_given_back(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    await asked(tiny, ledger, clock, booting)

    assert list(tiny.boxes) == [lease.box_id]


async def test_a_box_that_looks_like_a_twin_and_was_used_is_not_given_back(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    used = taken_up(ledger, twin, used=True)

    found = await asked(tiny, ledger, clock)

    assert found.alarms == []
    assert ledger.lease(TWIN) == used
    assert list(tiny.boxes) == [lease.box_id, twin.id]


async def test_an_unused_box_that_somebody_gave_another_lease_s_name_is_not_given_back(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease
) -> None:
    intent = intended(ledger, TWIN, provider="tiny")
    renamed = ledger.bind(TWIN, await tiny.create(intent), at=NOON)
    tiny.change(renamed.box_id, mark=lease.mark)

    await asked(tiny, ledger, clock)

    assert ledger.lease(TWIN).state is LeaseState.ACTIVE
    assert list(tiny.boxes) == [lease.box_id, renamed.box_id]


async def test_a_twin_that_another_process_is_giving_back_is_left_to_it(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, twin: Box
) -> None:
    returning = taken_up(ledger, twin)

    with ledger.hold(TWIN, "give back", at=NOON):
        found = await asked(tiny, ledger, clock)

    assert found.alarms == []
    assert ledger.lease(TWIN) == returning
    assert "destroy" not in tiny.asked


async def test_a_twin_that_is_listed_again_after_its_return_is_given_back_again(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, lease: Lease, twin: Box
) -> None:
    first = await asked(tiny, ledger, clock)
    tiny.boxes[twin.id] = twin

    again = await asked(tiny, ledger, clock)

    returns = [ledger.lease(name) for name, _ in first.alarms + again.alarms]
    assert [(x.state, x.box_id) for x in returns] == [(LeaseState.GONE, twin.id)] * 2
    assert list(tiny.boxes) == [lease.box_id]
