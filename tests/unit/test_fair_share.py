"""One link is divided so that the dearest box goes first, nobody starves, and equals are equal."""

from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_tenant.transfer.fair_share import (
    BURST_S,
    FLOOR,
    LEAST_REST,
    MOST_CONNECTIONS,
    Bucket,
    allot,
    parts_of,
    rates,
)

PRICES = st.one_of(st.none(), st.sampled_from(["0", "0.2", "0.21", "1", "4.5"]).map(Decimal))
TRANSFERS = st.lists(st.tuples(st.integers(0, 80), PRICES), min_size=1, max_size=90)
COULD = st.one_of(st.none(), st.floats(0, 1e9))


# Connections


@settings(max_examples=40)
@given(TRANSFERS)
def test_each_has_one_none_more_than_it_wants_and_all_together_are_bounded(
    transfers: list[tuple[int, Decimal | None]],
) -> None:
    wants, prices = map(list, zip(*transfers, strict=True))

    given_ = allot(wants, prices)

    assert all(1 <= got <= max(1, want) for got, want in zip(given_, wants, strict=True))
    assert sum(given_) <= max(MOST_CONNECTIONS, len(wants))


@settings(max_examples=40)
@given(TRANSFERS)
def test_of_two_that_want_the_same_the_dearer_never_has_fewer_and_equals_have_the_same(
    transfers: list[tuple[int, Decimal | None]],
) -> None:
    wants, prices = map(list, zip(*transfers, strict=True))

    given_ = allot(wants, prices)

    for i, j in product(range(len(wants)), repeat=2):
        if wants[i] == wants[j] and prices[i] == prices[j]:
            assert given_[i] == given_[j]
        a, b = prices[i], prices[j]
        if wants[i] == wants[j] and a is not None and b is not None and a > b:
            assert given_[i] >= given_[j]


@settings(max_examples=40)
@given(TRANSFERS)
def test_the_dearest_has_what_it_wants_before_any_other_has_a_second(
    transfers: list[tuple[int, Decimal | None]],
) -> None:
    wants = [want for want, _ in transfers]
    prices = [Decimal(i) for i in range(len(wants))]

    dearest = allot(wants, prices)[-1]

    room = max(MOST_CONNECTIONS, len(wants)) - (len(wants) - 1)
    assert dearest == min(max(1, wants[-1]), room)


@given(
    st.lists(st.integers(1, 64), min_size=2, max_size=8),
    st.lists(st.integers(0, 9), min_size=8, max_size=8),
    st.integers(1, 9),
)
def test_who_comes_to_cost_more_never_has_fewer_for_it(
    wants: list[int], cents: list[int], more: int
) -> None:
    before = [float(price) for price in cents[: len(wants)]]
    after = [before[0] + more, *before[1:]]

    assert allot(wants, after)[0] >= allot(wants, before)[0]


@pytest.mark.parametrize(
    ("wants", "prices", "given_"),
    [
        ([16], [1.0], [16]),
        ([64, 64], [1.0, 1.0], [32, 32]),
        ([16, 64], [2.0, 1.0], [16, 16]),
        ([2, 64], [2.0, 1.0], [2, LEAST_REST]),
        ([64, 64], [2.0, 1.0], [63, 1]),
        ([16, 16, 16], [9.0, 2.0, 1.0], [16, 10, 6]),
        ([8, 8], [None, None], [8, 8]),
        ([64, 64, 64], [None, 1.0, 1.0], [21, 21, 21]),
    ],
    ids=["alone", "equals", "half", "a slow box", "all of it", "by price", "unknown", "median"],
)
def test_these_are_divided_so(
    wants: list[int], prices: list[float | None], given_: list[int]
) -> None:
    assert allot(wants, prices) == given_


# Bytes


@settings(max_examples=40)
@given(st.lists(st.tuples(PRICES, COULD), min_size=1, max_size=20), st.floats(1e3, 1e10))
def test_the_rates_together_are_the_limit_and_nobody_has_less_than_the_floor(
    transfers: list[tuple[Decimal | None, float | None]], limit: float
) -> None:
    prices, could = map(list, zip(*transfers, strict=True))

    given_ = rates(limit, prices, could)

    assert sum(given_) == pytest.approx(limit)
    assert all(got >= 0.999 * limit * FLOOR / len(prices) for got in given_)


@given(st.lists(PRICES, min_size=1, max_size=20))
def test_the_parts_are_one_whole_and_dearer_is_more(prices: list[Decimal | None]) -> None:
    parts = parts_of(prices)

    assert sum(parts) == pytest.approx(1)
    for (a, part), (b, other) in product(zip(prices, parts, strict=True), repeat=2):
        if a is not None and b is not None and a > b:
            assert part > other


def test_what_a_slow_box_cannot_use_is_the_others() -> None:
    dear_and_slow, cheap = rates(20e6, [9.0, 1.0], [1e6, None])

    assert dear_and_slow == pytest.approx(1e6)
    assert cheap == pytest.approx(19e6)


# The bucket


@given(
    st.lists(st.tuples(st.integers(1, 1 << 20), st.floats(0, 3)), min_size=1, max_size=60),
    st.floats(1e4, 1e8),
)
def test_what_is_let_through_is_never_ahead_of_the_rate_by_more_than_the_burst_and_a_piece(
    pieces: list[tuple[int, float]], rate: float
) -> None:
    bucket, now, moved = Bucket(at_s=0), 0.0, 0

    for size_bytes, idle_s in pieces:
        now += idle_s
        now += bucket.pause_s(size_bytes, bytes_s=rate, at_s=now)
        assert moved <= rate * (now + BURST_S) + 1
        moved += size_bytes


def test_threads_that_ask_at_once_wait_one_behind_the_other() -> None:
    bucket = Bucket(at_s=0)

    waits = [bucket.pause_s(1000, bytes_s=1000, at_s=0) for _ in range(4)]

    assert waits == [0, 1, 2, 3]


def test_a_rate_that_rises_is_felt_at_the_next_piece() -> None:
    bucket = Bucket(at_s=0)
    bucket.pause_s(1000, bytes_s=100, at_s=0)

    assert bucket.pause_s(1000, bytes_s=1000, at_s=0) == 1
