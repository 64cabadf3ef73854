"""Every box that carries our mark is under a lease or was given back unused, and no other is touched."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import (
    NOON,
    TERMS,
    HandClock,
    context_of,
    intended,
    never_used,
    profile,
    quote,
    receipt,
)
from tiny import TinyProvider, TinyResidue, leftover, no_answer

from gpu_tenant.box.ownership import NeverIn
from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import Unverified
from gpu_tenant.domain.model import Box, BoxId, Lease, LeaseId, LeaseState
from gpu_tenant.leases.settle import Survey, return_unused, survey
from gpu_tenant.leases.verify import Assessment, prove
from gpu_tenant.ledger import Ledger

LEASE = LeaseId("tiny-abcd")
TINY = profile("tiny", list_lag_s=60)


async def asked(tiny: TinyProvider, ledger: Ledger, clock: HandClock) -> Survey:
    return await survey(context_of(ledger, TINY, tiny))


async def standing(tiny: TinyProvider, ledger: Ledger, *, used: bool = True) -> Lease:
    """A lease on a box that it rented."""
    intent = ledger.intend(
        lease_id=LEASE,
        provider="tiny",
        terms=TERMS,
        address=None,
        price_usd_h=Decimal("0.50"),
        quote=quote(),
        at=NOON,
    )
    lease = ledger.bind(LEASE, await tiny.create(intent), at=NOON)
    if used:
        ledger.touch(LEASE, at=NOON)
    return ledger.lease(lease.id)


def only(tiny: TinyProvider) -> list[BoxId]:
    return list(tiny.boxes)


# What is known, and what is somebody else's


async def test_a_box_under_its_lease_is_nothing_to_tell(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock
) -> None:
    lease = await standing(tiny, ledger)

    found = await asked(tiny, ledger, clock)

    assert (found.alarms, found.foreign, found.blind) == ([], [], {})
    assert [box.id for box in found.listings["tiny"].boxes] == [lease.box_id]
    assert ledger.leases() == [lease]


async def test_the_box_of_an_intent_is_left_to_the_intent(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock
) -> None:
    intent = intended(ledger, LEASE, provider="tiny")
    await tiny.create(intent)

    found = await asked(tiny, ledger, clock)

    assert found.alarms == []
    assert ledger.leases() == [intent]


@pytest.mark.parametrize(
    "mark",
    [
        *(None, "", "somebody-else", "gpu-tenant", "gpu-tenants:tiny-abcd", "gpu-tenant:"),
        *("gpu-tenant:../../etc", "gpu-tenant:tiny-abcd ", "gpu-tenant:tiny-abcd/x"),
        *("gpu-tenant:xyzxyz:tiny-abcd", "gpu-tenant:ABCDEF:tiny-abcd", "x gpu-tenant:tiny-abcd"),
    ],
)
async def test_a_box_without_a_mark_of_our_form_is_somebody_else_s(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, mark: str | None
) -> None:
    box = tiny.rent(mark)

    found = await asked(tiny, ledger, clock)

    assert (found.foreign, found.alarms) == ([box], [])
    assert ledger.leases() == []
    assert tiny.asked == ["list"]


async def test_another_deployment_s_box_is_told_and_never_touched(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, tmp_path: Path
) -> None:
    other = Ledger(tmp_path / "other.sqlite3")
    box = await tiny.create(intended(other, LEASE, provider="tiny"))
    other.close()

    found = await asked(tiny, ledger, clock)

    assert found.foreign == [box]
    (name, words), *none = found.alarms
    assert (name, none) == (box.id, [])
    assert "another gpu-tenant's" in words
    assert f"`gpu-tenant adopt {box.id} --on tiny --take-over " in words
    assert ledger.leases() == []
    assert only(tiny) == [box.id]


@pytest.mark.parametrize("mark", [None, "somebody-else", "gpu-tenant:xyzxyz:tiny-abcd"])
async def test_a_box_that_was_adopted_is_foreign_no_more(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, mark: str | None
) -> None:
    box = tiny.rent(mark)
    ledger.take_up(box, lease_id=LEASE, terms=TERMS, at=clock.now(), touched_at=clock.now())

    found = await asked(tiny, ledger, clock)

    assert found.foreign == []
    assert ledger.lease(LEASE).box_id == box.id


# Ours, and unknown


@pytest.fixture(params=["first version's", "this deployment's"])
def orphan(request: pytest.FixtureRequest, tiny: TinyProvider, ledger: Ledger) -> Box:
    """A box of ours whose line the ledger has lost."""
    ours = "" if request.param == "first version's" else f"{ledger.deployment}:"
    return tiny.rent(f"gpu-tenant:{ours}{LEASE}")


async def test_an_orphan_is_adopted_once_told_and_counts_as_used(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, orphan: Box
) -> None:
    first = await asked(tiny, ledger, clock)
    again = await asked(tiny, ledger, clock)

    lease = ledger.lease(LEASE)
    assert [name for name, _ in first.alarms] == [LEASE]
    assert again.alarms == []
    assert (lease.state, lease.box_id, lease.touched_at) == (LeaseState.ACTIVE, orphan.id, NOON)
    assert (lease.mark, lease.price_usd_h) == (orphan.mark, Decimal("0.50"))
    assert lease.terms.deadline_at == NOON + timedelta(hours=24)
    assert timeline.Noticed.kind in [line.kind for line in ledger.events(LEASE)]


async def test_nothing_but_proof_or_a_signature_ends_an_adopted_orphan(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, orphan: Box
) -> None:
    await asked(tiny, ledger, clock)
    lease = ledger.lease(LEASE)

    unproved = Assessment(untouched=False, seal=None, evidence=(), losses=())
    with pytest.raises(Unverified, match="nothing was proved"):
        prove(lease, unproved)
    with pytest.raises(Unverified, match="everything that was done on the box"):
        await return_unused(context_of(ledger, TINY, tiny), lease, NeverIn())

    assert only(tiny) == [orphan.id]


async def test_a_box_that_names_a_lease_of_another_mark_is_adopted_under_a_name_of_its_own(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock
) -> None:
    await standing(tiny, ledger)
    odd = tiny.rent(f"gpu-tenant:{LEASE}")

    await asked(tiny, ledger, clock)

    adopted = ledger.lease_on("tiny", odd.id)
    assert adopted is not None
    assert adopted.id != LEASE
    assert (adopted.touched_at, odd.id in tiny.boxes) == (NOON, True)


async def test_a_box_elsewhere_that_carries_a_lease_s_mark_is_no_twin_of_it(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock
) -> None:
    lease = await standing(tiny, ledger)
    other = TinyProvider(clock, "other")
    odd = other.rent(lease.mark)

    await survey(context_of(ledger, TINY, tiny, (profile("other"), other)))

    adopted = ledger.lease_on("other", odd.id)
    assert adopted is not None
    assert adopted.touched_at is not None, "nobody knows what it is for"
    assert list(other.boxes) == [odd.id]


async def test_boxes_of_two_providers_may_have_one_id(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock
) -> None:
    lease = await standing(tiny, ledger, used=False)
    other = TinyProvider(clock, "other")
    ours = other.rent(f"gpu-tenant:{ledger.deployment}:other-zzzz")
    assert ours.id == lease.box_id

    await survey(context_of(ledger, TINY, tiny, (profile("other"), other)))

    assert ledger.lease("other-zzzz").box_id == ours.id
    assert (only(tiny), list(other.boxes)) == ([lease.box_id], [ours.id])


# A provider that does not answer


async def test_a_provider_that_does_not_answer_is_told_and_the_others_are_asked(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock, orphan: Box
) -> None:
    dark = TinyProvider(clock, "dark")
    dark.refuses("list", no_answer())

    found = await survey(context_of(ledger, profile("dark"), dark, (TINY, tiny)))

    assert found.blind == {"dark": "no answer"}
    assert [name for name, _ in found.alarms] == ["dark", LEASE]
    assert found.alarms[0][1] == "does not answer: no answer"
    assert set(found.listings) == {"tiny"}
    assert ledger.lease(LEASE).box_id == orphan.id


async def test_what_else_bills_is_found_and_what_hides_it_hides_no_box(
    ledger: Ledger, clock: HandClock
) -> None:
    tiny = TinyResidue(clock)
    tiny.disks = [leftover("disk-1")]
    there = tiny.rent(None)
    plain = await asked(tiny, ledger, clock)
    tiny.refuses("leftovers", no_answer())

    hidden = await asked(tiny, ledger, clock)

    assert [left.words for left in plain.leftovers] == [
        "the disk disk-1, 40 GB at tiny continues to bill at 4.00 USD a month"
    ]
    assert (hidden.leftovers, hidden.unseen, hidden.blind) == ([], ["tiny"], {})
    assert hidden.alarms == [("tiny", "what bills there besides boxes is unknown: no answer")]
    assert list(hidden.listings["tiny"].boxes) == [there]


async def test_a_lost_lease_whose_box_is_listed_again_goes_on_as_it_was(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock
) -> None:
    lease = await standing(tiny, ledger)
    ledger.touch(LEASE, at=clock.now())
    ledger.end(LEASE, "lost", at=clock.now())

    found = await asked(tiny, ledger, clock)

    ((name, words),) = found.alarms
    assert name == LEASE
    assert "was never gone" in words
    assert only(tiny) == [lease.box_id]
    back = ledger.lease(LEASE)
    assert (back.state, back.ended_at, back.terms) == (LeaseState.ACTIVE, None, lease.terms)
    assert back.touched_at is not None
    assert back.rates == lease.rates, "all the while it billed"


async def test_a_box_that_is_listed_after_its_receipt_is_told_and_its_rate_is_counted(
    tiny: TinyProvider, ledger: Ledger, clock: HandClock
) -> None:
    lease = await standing(tiny, ledger, used=False)
    ledger.file_permit(never_used(lease), at=clock.now())
    for _ in range(2):
        ledger.saw(LEASE, listed="omitted", at=clock.now())
    ledger.file_receipt(receipt(LEASE), at=clock.now())

    found = await asked(tiny, ledger, clock)

    ((name, words),) = found.alarms
    assert name == LEASE
    assert "its meter may be running" in words
    assert [box.id for box in found.strays] == only(tiny) == [lease.box_id]
