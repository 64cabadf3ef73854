"""What a box may have cost, where nobody saw when its bill ended."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from arranged import NOON, lease

from gpu_tenant.domain.cost_uncertainty import Range, in_all
from gpu_tenant.domain.timeline import Destroyed, Lines

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
