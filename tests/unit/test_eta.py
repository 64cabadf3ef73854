"""The rate is what this transfer moved of late, and the time left costs what the box costs."""

from decimal import Decimal

import pytest

from gpu_tenant.transfer.eta import WINDOW_S, Eta

MB = 10**6


def told(
    eta: Eta, done: int, *, total: int = 1000 * MB, since_s: int, until_s: int, rate: int
) -> int:
    """So many bytes each second, told each second; what is done then."""
    for second in range(since_s, until_s + 1):
        eta.note_progress(done, total, at_s=second)
        done += rate
    return done - rate


def test_the_rate_the_time_and_its_cost_are_those_of_the_link() -> None:
    eta = Eta(Decimal("1.80"))

    told(eta, 0, since_s=0, until_s=10, rate=10 * MB)

    assert eta.bytes_s(at_s=10) == pytest.approx(10 * MB)
    assert eta.left_s(at_s=10) == pytest.approx(90)
    assert eta.left_usd(at_s=10) == Decimal("0.0450")
    assert eta.words(at_s=10) == "100.0 MB of 1.0 GB, 10.0 MB/s, 90 s left, ≈ 0.0450 USD until done"


def test_what_was_here_already_is_no_rate() -> None:
    eta = Eta()

    told(eta, 900 * MB, since_s=0, until_s=5, rate=MB)

    assert eta.bytes_s(at_s=5) == pytest.approx(MB)
    assert eta.left_s(at_s=5) == pytest.approx(95)


def test_a_short_stall_makes_the_time_longer_and_a_long_one_unknown() -> None:
    eta = Eta(Decimal(1))
    told(eta, 0, since_s=0, until_s=20, rate=10 * MB)

    assert eta.bytes_s(at_s=20) == pytest.approx(10 * MB)
    assert 6 * MB < (eta.bytes_s(at_s=25) or 0) < 8 * MB
    assert eta.bytes_s(at_s=20 + WINDOW_S) == 0
    assert eta.left_s(at_s=60) is None
    assert eta.words(at_s=60) == "200.0 MB of 1.0 GB, nothing for 40 s"


def test_after_a_stall_the_old_rate_is_back_within_a_window() -> None:
    eta = Eta()
    done = told(eta, 0, since_s=0, until_s=20, rate=10 * MB)

    told(eta, done, since_s=60, until_s=60 + WINDOW_S, rate=10 * MB)

    assert eta.bytes_s(at_s=60 + WINDOW_S) == pytest.approx(10 * MB)


def test_what_comes_again_because_it_was_damaged_is_no_negative_rate() -> None:
    eta = Eta()
    done = told(eta, 0, since_s=0, until_s=5, rate=10 * MB)

    told(eta, done - 20 * MB, since_s=6, until_s=10, rate=10 * MB)

    rate = eta.bytes_s(at_s=10)
    assert rate is not None
    assert 8 * MB < rate <= 10 * MB


def test_another_transfer_in_the_same_call_begins_with_what_is_there_of_it() -> None:
    """As when what was collected is then copied to a store that holds most of it."""
    eta = Eta()
    told(eta, 0, total=100 * MB, since_s=0, until_s=20, rate=5 * MB)

    told(eta, 900 * MB, since_s=21, until_s=21 + WINDOW_S, rate=MB)

    assert eta.bytes_s(at_s=21 + WINDOW_S) == pytest.approx(MB)


def test_many_small_words_within_a_moment_are_one_point() -> None:
    eta = Eta()
    for n in range(1001):
        eta.note_progress(n * 10_000, 1000 * MB, at_s=n / 100)

    assert eta.bytes_s(at_s=10) == pytest.approx(MB, rel=0.01)


def test_before_there_is_a_rate_only_the_bytes_are_told() -> None:
    eta = Eta(Decimal(1))
    eta.note_progress(5 * MB, 10 * MB, at_s=0)

    assert eta.words(at_s=0.5) == "5.0 MB of 10.0 MB"


@pytest.mark.parametrize("usd_h", [None, Decimal(0), Decimal("0.0001")])
def test_a_price_that_is_unknown_or_comes_to_nothing_is_left_out(usd_h: Decimal | None) -> None:
    eta = Eta(usd_h)

    told(eta, 0, total=20 * MB, since_s=0, until_s=10, rate=MB)

    assert eta.words(at_s=10) == "10.0 MB of 20.0 MB, 1.0 MB/s, 10 s left"


def test_when_all_is_here_nothing_is_left() -> None:
    eta = Eta(Decimal(1))
    told(eta, 0, total=10 * MB, since_s=0, until_s=10, rate=MB)

    assert eta.left_s(at_s=10) is None
    assert eta.left_usd(at_s=30) is None
    assert eta.words(at_s=60) == "10.0 MB of 10.0 MB"
