"""A lease moves on by what its provider shows, wherever the last process stopped."""

from datetime import timedelta
from pathlib import Path

import pytest
from arranged import (
    LEASE,
    NOON,
    HandClock,
    box,
    context_of,
    intended,
    never_used,
    profile,
    setting,
)

from gpu_tenant.domain import timeline
from gpu_tenant.domain.last_start import ends_at
from gpu_tenant.domain.model import BoxState, Lease, LeaseState
from gpu_tenant.domain.story import story_of
from gpu_tenant.leases.provider_listing import Listing
from gpu_tenant.leases.readiness import settled_if_free
from gpu_tenant.leases.settle import settle
from gpu_tenant.leases.teardown import tear_down
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.local.connector import LocalConnector, connect

LAG_S = 60.0
LOCAL = profile(list_lag_s=LAG_S)


@pytest.fixture
def connector(tmp_path: Path) -> LocalConnector:
    return connect(setting(tmp_path))


@pytest.fixture
def boxes(tmp_path: Path) -> Path:
    return tmp_path / "boxes"


async def standing(ledger: Ledger, connector: LocalConnector) -> Lease:
    return ledger.bind(LEASE, await connector.create(intended(ledger)), at=NOON)


def spirit_away(boxes: Path) -> None:
    (boxes / LEASE).rename(boxes / ".elsewhere")


async def test_an_intent_whose_box_never_came_is_void_after_two_looks(
    ledger: Ledger, connector: LocalConnector, clock: HandClock
) -> None:
    lease = intended(ledger)
    told = []
    for _ in range(3):
        clock.advance(LAG_S)
        lease, words = await settle(context_of(ledger, LOCAL, connector), lease)
        told.append((lease.state, words))

    assert told[0] == (
        LeaseState.INTENDED,
        "its box is not in the provider's list; one look proves nothing",
    )
    assert told[1] == (LeaseState.VOID, None)
    assert told[2] == told[1]


async def test_two_looks_at_once_are_one_look(
    ledger: Ledger, connector: LocalConnector, clock: HandClock
) -> None:
    lease = intended(ledger)
    clock.advance(LAG_S)

    for _ in range(5):
        lease, _ = await settle(context_of(ledger, LOCAL, connector), lease)

    assert lease.state is LeaseState.INTENDED


async def test_a_box_made_just_before_a_crash_is_bound(
    ledger: Ledger, connector: LocalConnector, clock: HandClock
) -> None:
    lease = intended(ledger)
    box = await connector.create(lease)

    bound, words = await settle(context_of(ledger, LOCAL, connector), lease)

    assert (bound.state, bound.box_id, words) == (LeaseState.ACTIVE, box.id, None)
    assert bound.address == box.address


async def test_a_box_that_vanished_is_lost_after_two_looks_and_told(
    ledger: Ledger, connector: LocalConnector, clock: HandClock, boxes: Path
) -> None:
    lease = await standing(ledger, connector)
    spirit_away(boxes)
    clock.advance(LAG_S)

    once, _ = await settle(context_of(ledger, LOCAL, connector), lease)
    clock.advance(LAG_S)
    twice, words = await settle(context_of(ledger, LOCAL, connector), once)

    assert once.state is LeaseState.ACTIVE
    assert (twice.state, words) == (
        LeaseState.LOST,
        "the box is gone, and this program did not end it",
    )
    assert ledger.receipt(LEASE) is None


async def test_a_box_that_comes_back_was_never_gone(
    ledger: Ledger, connector: LocalConnector, clock: HandClock, boxes: Path
) -> None:
    lease = await standing(ledger, connector)
    for _ in range(4):
        clock.advance(LAG_S)
        spirit_away(boxes)
        lease, _ = await settle(context_of(ledger, LOCAL, connector), lease)
        (boxes / ".elsewhere").rename(boxes / LEASE)
        lease, _ = await settle(context_of(ledger, LOCAL, connector), lease)

    assert lease.state is LeaseState.ACTIVE


@pytest.mark.parametrize("mark", ['{"mark": "my favourite box"}', '{"mark": null}', "{"])
async def test_a_box_that_lost_its_mark_is_not_gone(
    ledger: Ledger, connector: LocalConnector, clock: HandClock, boxes: Path, mark: str
) -> None:
    lease = await standing(ledger, connector)
    (boxes / LEASE / "box.json").write_text(mark, encoding="utf-8")

    for _ in range(3):
        clock.advance(LAG_S)
        lease, _ = await settle(context_of(ledger, LOCAL, connector), lease)

    assert lease.state is LeaseState.ACTIVE
    assert ledger.absences(LEASE) == []


async def test_a_look_from_before_the_box_was_made_does_not_count_against_it(
    ledger: Ledger, connector: LocalConnector, clock: HandClock, boxes: Path
) -> None:
    lease = intended(ledger)
    clock.advance(LAG_S)
    await settle(context_of(ledger, LOCAL, connector), lease)
    lease = ledger.bind(LEASE, await connector.create(lease), at=clock.now())
    clock.advance(LAG_S)
    spirit_away(boxes)

    lease, _ = await settle(context_of(ledger, LOCAL, connector), lease)

    assert lease.state is LeaseState.ACTIVE


async def test_a_provider_that_does_not_answer_changes_nothing(
    ledger: Ledger, connector: LocalConnector, clock: HandClock, boxes: Path
) -> None:
    lease = await standing(ledger, connector)
    (boxes / LEASE).rename(boxes.parent / "kept")
    boxes.rmdir()
    boxes.write_text("not a list of boxes", encoding="utf-8")

    for _ in range(3):
        clock.advance(LAG_S)
        lease, words = await settle(context_of(ledger, LOCAL, connector), lease)
        assert "does not answer" in (words or "")

    assert lease.state is LeaseState.ACTIVE


async def test_a_receipt_is_filed_after_a_crash_between_the_destroy_and_the_receipt(
    ledger: Ledger, connector: LocalConnector, clock: HandClock
) -> None:
    lease = await standing(ledger, connector)
    permit = never_used(lease)
    lease = ledger.file_permit(permit, at=clock.now())
    await connector.destroy(permit)
    asked_at = clock.now()

    clock.advance(LAG_S)
    lease, _ = await settle(context_of(ledger, LOCAL, connector), lease)
    assert lease.state is LeaseState.TERMINATING
    clock.advance(LAG_S)
    lease, _ = await settle(context_of(ledger, LOCAL, connector), lease)

    receipt = ledger.receipt(LEASE)
    assert lease.state is LeaseState.GONE
    assert receipt is not None
    assert (receipt.ground, receipt.destroy_asked_at) == ("never_used", asked_at)
    assert (receipt.second_absent_at - receipt.first_absent_at).total_seconds() >= LAG_S


async def test_a_crash_between_the_permit_and_the_destroy_is_told_and_destroys_nothing(
    ledger: Ledger, connector: LocalConnector, clock: HandClock
) -> None:
    lease = await standing(ledger, connector)
    lease = ledger.file_permit(never_used(lease), at=clock.now())

    lease, words = await settle(context_of(ledger, LOCAL, connector), lease)

    assert lease.state is LeaseState.TERMINATING
    assert words == f"its teardown was cut short: `gpu-tenant teardown {LEASE}` again"
    assert [box.id for box in await connector.list_boxes()] == [lease.box_id]


async def test_a_teardown_waits_for_the_second_absence(
    ledger: Ledger, connector: LocalConnector, clock: HandClock
) -> None:
    lease = await standing(ledger, connector)
    clock.advance(LAG_S)

    receipt = await tear_down(context_of(ledger, LOCAL, connector), never_used(lease), lease)

    assert (receipt.second_absent_at - receipt.first_absent_at).total_seconds() >= LAG_S
    assert ledger.lease(LEASE).state is LeaseState.GONE
    assert await connector.list_boxes() == []


async def test_a_look_that_finds_a_box_as_it_is_on_record_writes_nothing(
    ledger: Ledger, connector: LocalConnector, clock: HandClock
) -> None:
    lease = await standing(ledger, connector)
    lease = ledger.ready(lease.id, at=NOON)
    context, listing = (
        context_of(ledger, LOCAL, connector),
        Listing(await connector.list_boxes(), ledger.now()),
    )
    statements: list[str] = []
    ledger.trace(statements.append)

    assert await settled_if_free(context, lease, listing) == (lease, None)
    assert not [x for x in statements if not x.startswith(("SELECT", "PRAGMA data_version"))]

    clock.advance(LAG_S)
    spirit_away(connector._boxes)
    gone = Listing(await connector.list_boxes(), ledger.now())
    _, words = await settled_if_free(context, lease, gone)
    assert words is not None
    assert [words for words in statements if words.startswith("INSERT INTO sightings")]


@pytest.mark.parametrize(
    ("hours", "told"),
    [(0.9, None), (1.1, "budget"), (3.1, "budget")],
    ids=["before", "after it", "after the deadline too"],
)
async def test_a_stop_when_the_budget_pays_only_for_the_end_was_by_the_guard_that_promised_it(
    ledger: Ledger, connector: LocalConnector, clock: HandClock, hours: float, told: str | None
) -> None:
    lease = await standing(ledger, connector)
    until = clock.now() + timedelta(hours=1)
    deadline_at = clock.now() + timedelta(hours=3)
    terms = lease.terms.model_copy(update={"deadline_at": deadline_at})
    lease = ledger.change_terms(LEASE, terms, at=clock.now())
    armed = timeline.Guarded(armed=True, ends_the_meter=True, until=until, words="armed")
    ledger.note(LEASE, armed, at=clock.now())
    clock.advance(hours * 3600)
    stopped = box().model_copy(
        update={"id": lease.box_id, "mark": lease.mark, "state": BoxState.PARKED}
    )

    listing = Listing([stopped], clock.now())
    await settle(context_of(ledger, LOCAL, connector), lease, listing=listing)

    events = ledger.events(LEASE)
    stop = story_of(events).guard.stopped
    assert (stop.term if stop else None) == told
    over_at = ends_at(ledger.lease(LEASE), events)
    assert over_at == (deadline_at if told is None else min(deadline_at, clock.now()))


@pytest.mark.parametrize(
    ("idle_h", "told"),
    [
        (1.5, "its guard stopped its box: idle for 2 h"),
        (0.5, None),
    ],
    ids=["idle for as long as agreed", "not idle for so long"],
)
async def test_a_stop_by_our_own_guard_is_told_as_ours_and_what_may_be_its_as_a_doubt(
    ledger: Ledger, connector: LocalConnector, clock: HandClock, idle_h: float, told: str | None
) -> None:
    lease = await standing(ledger, connector)
    ledger.note(
        LEASE, timeline.Guarded(armed=True, ends_the_meter=True, words="armed"), at=clock.now()
    )
    ledger.note(LEASE, timeline.Launched(job="train"), at=clock.now())
    clock.advance(3600)
    ledger.job_ended(LEASE, timeline.JobEnded(job="train", state="finished"), at=clock.now())
    lease = ledger.change_terms(
        LEASE, lease.terms.model_copy(update={"idle_h": 2.0}), at=clock.now()
    )
    clock.advance((idle_h + 0.6) * 3600)
    stopped = box().model_copy(
        update={"id": lease.box_id, "mark": lease.mark, "state": BoxState.PARKED}
    )

    listing = Listing([stopped], clock.now())
    settled, words = await settle(context_of(ledger, LOCAL, connector), lease, listing=listing)

    if told is not None:
        assert (settled.parked_at, words) == (clock.now(), told)
        return
    assert settled.parked_at is None
    doubt = "its guard has stopped it if it was idle for 2 h, otherwise its provider or a person"
    assert doubt in (words or "")
    assert doubt in (story_of(ledger.events(LEASE)).box.fate_words or "")
