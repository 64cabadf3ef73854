"""What a box may have cost, where nobody saw when its bill ended."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from arranged import NOON, lease

from gpu_tenant.domain.cost_uncertainty import Range, in_all, late_start, late_stop
from gpu_tenant.domain.timeline import Destroyed, Lines, Progressed

ASKED = Destroyed(outcome="asked")
REFUSED = Destroyed(outcome="refused")


def after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("told", "listed", "likely_usd"),
    [
        ([(5, ASKED)], 1, "5"),
        ([(5, ASKED)], 9, "9"),
        ([(5, ASKED), (6, REFUSED)], 1, "5"),
        ([(5, ASKED), (8, ASKED), (9, REFUSED)], 7, "8"),
    ],
    ids=[
        "it was asked for, and nobody looked afterwards",
        "the box was still listed after the request",
        "a refused request may have been carried out",
        "the last of several requests counts",
    ],
)
def test_the_bill_likely_ended_when_the_destroy_was_asked(
    told: list[tuple[float, Destroyed]], listed: float, likely_usd: str
) -> None:
    billed = lease(price_usd_h=Decimal(60))
    events: Lines = [(after(minutes), event) for minutes, event in told]

    cost = in_all(billed, events, absent_at=after(20), listed_at=after(listed))

    assert (cost.usd, cost.least_usd, cost.most_usd) == (
        Decimal(likely_usd),
        Decimal(likely_usd),
        Decimal(20),
    )
    assert cost.words is not None
    assert "its destroy was requested at" in cost.words


def test_a_box_that_was_listed_after_the_refusal_billed_until_it_was_seen_gone() -> None:
    billed = lease(price_usd_h=Decimal(60))
    events: Lines = [(after(5), ASKED), (after(6), REFUSED)]

    cost = in_all(billed, events, absent_at=after(20), listed_at=after(7))

    assert cost == Range(Decimal(20))


@pytest.mark.parametrize(
    ("asked_at", "likely_less_usd"),
    [(None, "60"), (after(30), "150")],
    ids=["its guard, at its deadline", "we, and the answer was lost"],
)
def test_a_box_that_stopped_unseen_may_have_stopped_when_it_was_last_known_to_run(
    asked_at: datetime | None, likely_less_usd: str
) -> None:
    ran = lease(price_usd_h=Decimal(60))
    ended = ran.terms.model_copy(update={"deadline_at": after(120)})
    events: Lines = [(after(20), Progressed(job="train", state="running"))]

    doubt = late_stop(
        ran.model_copy(update={"terms": ended}),
        events,
        usd_h=Decimal(0),
        asked_at=asked_at,
        listed_at=after(10),
        now=after(180),
    )

    assert doubt is not None
    assert (doubt.likely_less_usd, doubt.most_less_usd) == (Decimal(likely_less_usd), Decimal(160))


def test_what_costs_no_less_when_it_is_stopped_leaves_no_doubt() -> None:
    ran = lease(price_usd_h=Decimal(60))
    now = after(180)

    known = [
        late_stop(ran, [], usd_h=usd_h, asked_at=None, listed_at=None, now=now)
        for usd_h in (Decimal(60), None)
    ]

    assert known == [None, None]


def test_a_stopped_box_that_somebody_started_may_have_cost_less_than_is_counted() -> None:
    parked = lease(price_usd_h=Decimal(1))

    doubt = late_start(parked, usd_h=Decimal(61), since=after(10), now=after(40))

    assert doubt is not None
    assert (doubt.likely_less_usd, doubt.most_less_usd) == (Decimal(0), Decimal(30))
    assert late_start(parked, usd_h=None, since=after(10), now=after(40)) is None
