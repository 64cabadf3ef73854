"""What took a box is told apart by what its provider shows, and silence is never a fate."""

from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON, box, lease, offer, profile, quote

from gpu_tenant.domain import timeline
from gpu_tenant.domain.interruption import (
    BY_ITS_PROVIDER,
    cut_off_at,
    fate,
    recorded_fate,
    taken_words,
    who_stopped_it,
)
from gpu_tenant.domain.model import Box, BoxState, Fate, Lease, LeaseState, Profile

READY = NOON + timedelta(minutes=5)
SHOP = profile("tiny").model_copy(update={"kind": "marketplace"})
CLOUD = profile("tiny").model_copy(update={"kind": "vm"})


def shown(state: BoxState, **more: object) -> Box:
    return box().model_copy(update={"state": state, **more})


def working(**more: object) -> Lease:
    return lease(price_usd_h=Decimal(1)).model_copy(update=more)


STOPPED = shown(BoxState.PARKED)
BID = shown(BoxState.PARKED, interruptible=True)


@pytest.mark.parametrize(
    ("of", "at", "seen", "told"),
    [
        (working(), SHOP, BID, "outbid"),
        (working(), CLOUD, BID, "preempted"),
        (working(), CLOUD, STOPPED, "stopped_by_provider"),
        (working(), SHOP, shown(BoxState.UNKNOWN, taken="host_lost"), "host_lost"),
        (working(), CLOUD, shown(BoxState.BROKEN), "host_lost"),
        (lease(LeaseState.LOST), CLOUD, None, "host_lost"),
        (working(parked_at=NOON), SHOP, BID, None),
        (working(ready_at=None), CLOUD, shown(BoxState.BROKEN), None),
        (working(), SHOP, shown(BoxState.UNKNOWN), None),
        (working(), SHOP, shown(BoxState.READY, interruptible=True), None),
        (working(), SHOP, shown(BoxState.BOOTING, interruptible=True), None),
        (working(), SHOP, None, None),
        (lease(LeaseState.TERMINATING), SHOP, BID, None),
        (lease(LeaseState.GONE), SHOP, None, None),
    ],
)
def test_each_end_by_what_shows_it(
    of: Lease, at: Profile, seen: Box | None, told: Fate | None
) -> None:
    met = fate(of, at, seen, now=READY)

    assert (met.fate if met else None) == told


def test_an_empty_account_a_contract_that_ended_and_a_deadline_count_before_a_bid() -> None:
    sold = working(quote=quote(offer=offer(max_hours=2)))
    late, later = NOON + timedelta(hours=3), NOON + timedelta(hours=9)

    met = [
        fate(sold, SHOP, BID, now=READY, balance_usd=Decimal("-0.02")),
        fate(sold, SHOP, BID, now=READY, balance_usd=Decimal(3)),
        fate(sold, SHOP, BID, now=late, balance_usd=Decimal(3)),
        fate(working(), SHOP, STOPPED, now=later, balance_usd=Decimal(0)),
    ]

    assert [each.fate for each in met if each] == ["balance_zero", "outbid", "walltime", "walltime"]
    assert met[0] is not None
    assert "-0.02 USD" in met[0].words


@pytest.mark.parametrize(
    ("at", "seen", "guard_stops", "whose"),
    [
        (CLOUD, STOPPED, "", "its provider or a person at its console has stopped it"),
        (
            CLOUD,
            STOPPED,
            "if its work was done",
            "its guard has stopped it if its work was done, otherwise its provider or a person has",
        ),
        (SHOP, BID, "", "somebody pays more for its GPU; "),
        (
            SHOP,
            BID,
            "if its work was done",
            "somebody pays more for its GPU, unless its guard stopped it if its work was done; ",
        ),
        (CLOUD, BID, "", "its provider took the GPU back; "),
    ],
)
def test_a_stop_is_put_on_its_provider_alone_only_if_nobody_else_can_have_made_it(
    at: Profile, seen: Box, guard_stops: str, whose: str
) -> None:
    met = fate(working(), at, seen, now=READY, guard_stops=guard_stops)

    assert met is not None
    assert met.words.startswith(whose)
    told = who_stopped_it(met.fate, guard_stops)
    assert ("provider" in taken_words(met.fate)) == (met.fate in BY_ITS_PROVIDER)
    assert ("guard" in told) == bool(guard_stops)
    assert (told == "its provider has stopped it") == (
        met.fate in BY_ITS_PROVIDER and not guard_stops
    )


@pytest.mark.parametrize("after", [timeline.Ready(), timeline.Resumed(), timeline.Parked()])
def test_a_fate_on_record_is_over_when_the_box_runs_again_or_was_parked(
    after: timeline.Event,
) -> None:
    outbid = timeline.Line(NOON, timeline.Taken(fate="outbid"))
    woke = timeline.Line(NOON, timeline.Taken(fate=None))

    assert recorded_fate([]) is None
    assert recorded_fate([outbid]) == "outbid"
    assert recorded_fate([outbid, woke]) is None
    assert recorded_fate([outbid, timeline.Line(NOON, after)]) is None
    assert recorded_fate([outbid, woke, outbid]) == "outbid"


RAN = (0, timeline.Launched(job="train"))
TAKEN = (600, timeline.Taken(fate="outbid"))
KILLED = timeline.Progressed(job="train", state="killed")
NOTICE = timeline.Forewarned(source="metadata", at=NOON, jobs=("train",))


@pytest.mark.parametrize(
    ("events", "cut_off"),
    [
        ([RAN, TAKEN, (900, KILLED)], True),
        ([RAN, (500, KILLED), TAKEN], True),
        ([RAN, (600, timeline.Taken(fate="stopped_by_provider")), (900, KILLED)], True),
        (
            [RAN, (590, NOTICE), (595, timeline.Progressed(job="train", state="failed")), TAKEN],
            True,
        ),
        ([RAN, TAKEN], False),  # nobody has seen its end yet
        ([(-900, RAN[1]), (-60, KILLED), TAKEN], False),  # it was killed long before
        ([RAN, (500, timeline.Progressed(job="train", state="failed")), TAKEN], False),
        ([RAN, TAKEN, (900, timeline.Progressed(job="train", state="failed"))], False),
        ([RAN, TAKEN, (900, timeline.Progressed(job="train", state="finished"))], False),
        (
            [RAN, TAKEN, (900, timeline.Progressed(job="train", state="running")), (990, KILLED)],
            False,
        ),
        ([RAN, (500, timeline.Stopped(job="train")), TAKEN, (900, KILLED)], False),
        ([RAN, (500, timeline.Sealed(digest="d")), TAKEN, (900, KILLED)], False),
        ([RAN, (600, timeline.Taken(fate="walltime")), (900, KILLED)], False),
        ([RAN, TAKEN, (900, KILLED), (950, RAN[1])], False),
        ([RAN, (900, KILLED)], False),
    ],
)
def test_a_job_that_ended_with_its_box_is_told_apart_from_one_that_ended_by_itself(
    events: list[tuple[int, timeline.Event]], cut_off: bool
) -> None:
    lines = [timeline.Line(NOON + timedelta(seconds=s), event) for s, event in events]

    assert (cut_off_at(lines, "train") is not None) is cut_off
