"""What a lease has cost is what each rate cost while it held, and unknown is never counted as nothing."""

from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest
from arranged import LEASE, NOON, active, box, gone, intended, lease
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.terms import Rate
from gpu_tenant.ledger import Ledger

OTHER = LeaseId("local-efgh")


def after(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def rated(*rates: tuple[float, str | None], ended: float | None = None) -> Lease:
    """A lease with these rates, each from so many hours after noon on."""
    return lease().model_copy(
        update={
            "rates": tuple(
                Rate(at=after(hours), usd_h=None if usd_h is None else Decimal(usd_h))
                for hours, usd_h in rates
            ),
            "ended_at": None if ended is None else after(ended),
        }
    )


# The sum


@pytest.mark.parametrize(
    ("rates", "cost"),
    [
        ([(0, "0.50")], "2"),
        ([(0, "0.50"), (2, "1.50")], "4"),
        ([(0, "1"), (1, "0.10"), (3, "1")], "2.2"),
        ([(0, "0")], "0"),
        ([(1, "0.50")], "1.5"),
        ([(0, "0.33333")], "1.3333"),
    ],
    ids=["one", "a change", "parked for two hours", "free", "known from its binding", "cents"],
)
def test_each_rate_counts_while_it_held(rates: list[tuple[float, str]], cost: str) -> None:
    assert rated(*rates).cost_usd(after(4)) == Decimal(cost).quantize(Decimal("0.0001"))


def test_the_meter_stands_when_the_lease_has_ended() -> None:
    ended = rated((0, "0.50"), (1, "1.00"), ended=2)

    assert ended.cost_usd(after(2)) == ended.cost_usd(after(200)) == Decimal("1.5000")


def test_a_cost_up_to_a_moment_knows_nothing_of_later_rates() -> None:
    changed = rated((0, "0.50"), (2, "100"))

    assert changed.cost_usd(after(1)) == Decimal("0.5000")
    assert changed.cost_usd(after(2)) == Decimal("1.0000")


@pytest.mark.parametrize(
    "rates",
    [[(0, None)], [(0, None), (1, "1")], [(0, "1"), (1, None)], [(0, "1"), (1, None), (2, "1")]],
    ids=["always", "at first", "at last", "in between"],
)
def test_a_stretch_at_an_unknown_rate_makes_the_sum_unknown(
    rates: list[tuple[float, str | None]],
) -> None:
    assert rated(*rates).cost_usd(after(4)) is None


@pytest.mark.parametrize("state", [LeaseState.INTENDED, LeaseState.VOID])
def test_what_never_had_a_box_has_cost_nothing(state: LeaseState) -> None:
    assert lease(state, price_usd_h=Decimal(9)).cost_usd(after(4)) == Decimal(0)


moments = st.lists(st.integers(0, 10_000), min_size=2, max_size=6, unique=True).map(sorted)


@given(seconds=moments, price=st.decimals(0, 50, places=3))
def test_a_rate_that_is_noted_again_changes_no_sum(seconds: list[int], price: Decimal) -> None:
    hours = [second / 3600 for second in seconds]
    end = after(hours[-1])

    once = rated((hours[0], str(price))).cost_usd(end)
    often = rated(*((hour, str(price)) for hour in hours)).cost_usd(end)

    assert once == often


@given(seconds=moments, prices=st.lists(st.decimals(0, 50, places=3), min_size=6, max_size=6))
def test_a_cost_never_falls_as_time_passes(seconds: list[int], prices: list[Decimal]) -> None:
    hours = [second / 3600 for second in seconds]
    changing = rated(*((hour, str(usd)) for hour, usd in zip(hours, prices, strict=False)))

    costs = [changing.cost_usd(after(hour)) or Decimal(0) for hour in hours]

    assert all(earlier <= later for earlier, later in pairwise(costs))


# On record


def test_every_change_of_the_rate_is_on_record_oldest_first(ledger: Ledger) -> None:
    intended(ledger)
    ledger.bind(LEASE, box().model_copy(update={"price_usd_h": Decimal("0.50")}), at=NOON)
    ledger.note_rate(LEASE, Decimal("0.70"), at=after(1))
    ledger.note_parked(LEASE, Decimal("0.02"), at=after(2))
    resumed = ledger.note_resumed(LEASE, Decimal("0.70"), at=after(4))

    assert [(rate.at, str(rate.usd_h)) for rate in resumed.rates] == [
        (NOON, "0.50"),
        (after(1), "0.70"),
        (after(2), "0.02"),
        (after(4), "0.70"),
    ]
    assert resumed.price_usd_h == Decimal("0.70")
    assert resumed.cost_usd(after(5)) == Decimal("0.50") + Decimal("0.70") * 2 + Decimal("0.04")


def test_a_parked_box_says_since_when_and_a_resumed_one_has_yet_to_let_us_in(
    ledger: Ledger,
) -> None:
    active(ledger)
    ready = ledger.ready(LEASE, at=after(0.1))
    parked = ledger.note_parked(LEASE, None, at=after(1))
    resumed = ledger.note_resumed(LEASE, None, at=after(2))

    assert (ready.ready_at, ready.parked_at) == (after(0.1), None)
    assert (parked.ready_at, parked.parked_at) == (after(0.1), after(1))
    assert (resumed.ready_at, resumed.parked_at) == (None, None)
    assert [line.kind for line in ledger.events(LEASE)][-3:] == ["ready", "parked", "resumed"]


def test_a_box_that_may_run_again_at_an_unknown_price_has_an_unknown_cost(ledger: Ledger) -> None:
    active(ledger)
    ledger.note_parked(LEASE, Decimal("0.02"), at=after(1))

    resuming = ledger.resuming(LEASE, None, at=after(2))

    assert (resuming.price_usd_h, resuming.cost_usd(after(3))) == (None, None)


def test_a_box_is_ready_from_the_first_time_it_let_us_in(ledger: Ledger) -> None:
    active(ledger)
    ledger.ready(LEASE, at=after(1))

    assert ledger.ready(LEASE, at=after(2)).ready_at == after(1)


def test_rates_and_states_of_one_lease_are_not_another_s(ledger: Ledger) -> None:
    gone(ledger)
    other = active(ledger, OTHER)

    ledger.note_rate(other.id, Decimal(7), at=after(1))

    assert [rate.usd_h for rate in ledger.lease(LEASE).rates] == [None]
    assert [rate.usd_h for rate in ledger.lease(OTHER).rates] == [None, Decimal(7)]
