"""What a plan calls the most is the sum on the dearest of its offers, with what it does not cover and who holds it."""

from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON, quote

from gpu_tenant.domain.terms import RentRequest
from gpu_tenant.leases.rental_plan import most_by_quotes
from gpu_tenant.leases.spending_plan import SpendingPlan, most_usd


def test_the_most_that_a_plan_costs_is_that_of_its_dearest_offer() -> None:
    cheap = quote(cap_usd_h=Decimal(1))
    dear = quote(cap_usd_h=Decimal(4))

    most = most_by_quotes([cheap, dear], RentRequest(hours=2), NOON)

    assert most == most_by_quotes([dear], RentRequest(hours=2), NOON) == Decimal("8.00")


def test_a_budget_is_the_most_only_where_it_is_less_than_the_price_until_the_deadline() -> None:
    left = timedelta(hours=2)

    assert most_usd(Decimal(4), left, Decimal(5)) == Decimal(5)
    assert most_usd(Decimal(4), left, Decimal(9)) == Decimal("8.00")


@pytest.mark.parametrize(
    ("kind", "told", "words"),
    [
        ("rent", {"has_free_bytes": True}, "at most 8.00 USD by its deadline"),
        ("rent", {}, "at most 8.00 USD plus traffic by its deadline"),
        (
            "rent",
            {"is_budget": True, "has_free_bytes": True},
            "at most 8.00 USD by its deadline, as long as a watchdog runs",
        ),
        ("extend", {"has_free_bytes": True}, "at most 8.00 USD more by its deadline"),
    ],
)
def test_a_plan_says_what_its_sum_does_not_cover_and_who_holds_it(
    kind: str, told: dict[str, bool], words: str
) -> None:
    plan = SpendingPlan(kind=kind, subjects=("q-1",), would="rent", usd=Decimal(8), **told)  # type: ignore[arg-type]

    assert plan.cost == words
