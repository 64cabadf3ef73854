"""The parts of one cap and one budget: whatever is rented, given back or lost, they sum to no more."""

from decimal import Decimal

import pytest
from arranged import NOON, TERMS, lease, offer, price, quote
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.fleet_budget import boxes_had, cap_quote, fleet_of, part_of
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.terms import Rate, RentRequest

PRICES = st.integers(100, 90_000).map(lambda parts: Decimal(parts) / 10_000)
SHARES = st.integers(0, 100).map(lambda percent: Decimal(percent) / 100)


def standing(
    number: int, part: RentRequest, cap: Decimal, *, state: LeaseState, cost: Decimal = Decimal(0)
) -> Lease:
    """A lease on those terms; ended, it ran for an hour at what it cost, and was used."""
    terms = TERMS.model_copy(update={"budget_usd": part.budget_usd, "max_price_usd_h": cap})
    made = lease(state, lease_id=LeaseId(f"tiny-{number}"), terms=terms, price_usd_h=cap)
    hour_ago = NOON.replace(hour=NOON.hour - 1)
    more = {"touched_at": NOON, "rates": (Rate(at=hour_ago, usd_h=cost),)}
    return made if state.live else made.model_copy(update=more)


@settings(max_examples=50)
@given(
    count=st.integers(2, 8),
    cap=PRICES,
    budget=PRICES,
    wanted=st.lists(st.tuples(PRICES, st.booleans(), SHARES), max_size=14),
)
def test_neither_caps_nor_budgets_ever_sum_to_more_than_was_asked(
    count: int, cap: Decimal, budget: Decimal, wanted: list[tuple[Decimal, bool, Decimal]]
) -> None:
    asked = RentRequest(max_price_usd_h=cap, budget_usd=budget)
    leases: list[Lease] = []
    for number, (usd_h, is_lost, share) in enumerate(wanted):
        lacking = count - len(boxes_had(leases))
        if lacking <= 0:
            break
        try:
            part = part_of(asked, leases, count=count, now=NOON)
            offered = quote(offer=offer(price=price(str(usd_h))), cap_usd_h=usd_h)
            own = cap_quote(offered, part.max_price_usd_h, boxes=lacking).cap_usd_h
        except Refused:
            continue
        assert own >= usd_h
        state = LeaseState.GONE if is_lost else LeaseState.ACTIVE
        assert part.budget_usd is not None
        cost = (part.budget_usd * share).quantize(Decimal("0.0001"))
        leases.append(standing(number, part, own, state=state, cost=cost))

        live = [x for x in leases if x.state.live]
        spent = sum((x.cost_usd(NOON) or Decimal(0) for x in leases if x not in live), Decimal(0))
        assert sum((x.terms.max_price_usd_h or cap for x in live), Decimal(0)) <= cap
        assert sum((x.terms.budget_usd or budget for x in live), spent) <= budget


def test_a_lost_box_whose_work_may_yet_go_on_keeps_its_part_of_cap_and_budget() -> None:
    asked = RentRequest(budget_usd=Decimal(10), max_price_usd_h=Decimal(2))
    part = RentRequest(budget_usd=Decimal(5))
    lost = standing(1, part, Decimal(1), state=LeaseState.LOST, cost=Decimal("0.5"))
    lost = lost.model_copy(
        update={"terms": lost.terms.model_copy(update={"recover": ("same",)}), "ready_at": NOON}
    )
    asked_again = part_of(asked, [lost], count=2, now=NOON)
    later = part_of(asked, [lost], count=2, now=lost.terms.deadline_at)
    rest = RentRequest(budget_usd=Decimal("4.5"))
    successor = standing(2, rest, Decimal(1), state=LeaseState.ACTIVE)
    gone_on = successor.model_copy(update={"recovers": lost.id})

    assert (asked_again.budget_usd, asked_again.max_price_usd_h) == (Decimal(5), Decimal(1))
    assert (later.budget_usd, later.max_price_usd_h) == (Decimal("9.5"), Decimal(2))
    both = part_of(asked, [lost, gone_on], count=2, now=NOON)
    assert (both.budget_usd, both.max_price_usd_h) == (Decimal(5), Decimal(1))


def test_an_unknown_cost_counts_as_all_of_its_budget() -> None:
    asked = RentRequest(budget_usd=Decimal(10))
    part = part_of(asked, [], count=2, now=NOON)
    unknown = standing(1, part, Decimal(1), state=LeaseState.LOST).model_copy(
        update={"rates": (Rate(at=NOON, usd_h=None), Rate(at=NOON, usd_h=None))}
    )
    unknown = unknown.model_copy(update={"ended_at": NOON.replace(hour=NOON.hour + 1)})

    left = part_of(asked, [unknown], count=2, now=NOON.replace(hour=NOON.hour + 2))

    assert (part.budget_usd, left.budget_usd) == (Decimal(5), Decimal(5))


def test_one_that_goes_on_with_the_work_of_another_is_no_further_box() -> None:
    lost = lease(LeaseState.LOST, lease_id=LeaseId("tiny-a")).model_copy(
        update={"touched_at": NOON}
    )
    successor = lease(lease_id=LeaseId("tiny-b")).model_copy(update={"recovers": lost.id})
    given_back = lease(LeaseState.GONE, lease_id=LeaseId("tiny-c")).model_copy(
        update={"ready_at": None}
    )

    whole = fleet_of("fl-1", [lost, successor, given_back], asked=2, missing=["q-1: gone"])

    assert (whole.had, whole.leases, whole.missing) == (1, ("tiny-b",), ("q-1: gone",))
    assert "provision --count 1" in whole.next


def test_the_next_call_of_a_large_fleet_stays_short() -> None:
    boxes = [lease(lease_id=LeaseId(f"tiny-{i}")) for i in range(20)]

    whole = fleet_of("fl-1", boxes, asked=20, missing=[])

    assert whole.next == "`gpu-tenant audit tiny-0`, push and launch, and so on each of its leases"


def test_a_price_above_the_cap_or_unknown_is_refused() -> None:
    for words in (price("0.61"), price(None)):
        with pytest.raises(Refused, match="the cap leaves"):
            cap_quote(quote(offer=offer(price=words)), Decimal("0.60"))
    assert cap_quote(quote(), None) == quote()
