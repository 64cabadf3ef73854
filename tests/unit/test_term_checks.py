"""Which term a lease has outrun, when that is acted on again, and how far it goes."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from arranged import NOON, quote

from gpu_tenant.domain import timeline
from gpu_tenant.domain.end_reserve import end_reserve_s, leaves_nothing
from gpu_tenant.domain.last_start import ends_at, guarded_until
from gpu_tenant.domain.model import BoxId, Lease, LeaseId, LeaseState
from gpu_tenant.domain.terms import Rate, Terms
from gpu_tenant.leases.term_checks import (
    attempts,
    began_at,
    beyond,
    is_due,
    is_near,
    next_attempt_at,
    outrun,
    time_left_s,
)


def lease(*, price: str | None = "2", quoted: Any = None, **terms: Any) -> Lease:
    usd_h = None if price is None else Decimal(price)
    agreed = Terms.model_validate({"deadline_at": NOON + timedelta(hours=10), **terms})
    return Lease(
        id=LeaseId("tiny-a"),
        mark="gpu-tenant:x:tiny-a",
        provider="tiny",
        state=LeaseState.ACTIVE,
        terms=agreed,
        quote=quoted,
        box_id=BoxId("b"),
        address=None,
        price_usd_h=usd_h,
        rates=(Rate(at=NOON, usd_h=usd_h),),
        created_at=NOON,
        active_at=NOON,
        ready_at=NOON,
        parked_at=None,
        ended_at=None,
        touched_at=None,
        kept_in=None,
    )


def after(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def term(of: Lease, hours: float, *, look_s: float = 60, idle_s: float | None = None) -> str | None:
    found = outrun(of, after(hours), look_s=look_s, idle_s=idle_s)
    return found.term if found else None


# What is outrun


def test_a_lease_within_its_terms_has_outrun_none() -> None:
    assert term(lease(budget_usd="100", idle_h=2), 9.9, idle_s=7199) is None


def test_the_deadline_is_outrun_at_its_very_moment() -> None:
    assert term(lease(), 10) == "deadline"


@pytest.mark.parametrize("look_s", [60, 600])
def test_a_budget_is_outrun_one_look_before_it_is_spent(look_s: float) -> None:
    at_its_edge = 4 - look_s / 3600

    assert term(lease(budget_usd="8"), at_its_edge - 0.001, look_s=look_s) is None
    assert term(lease(budget_usd="8"), at_its_edge, look_s=look_s) == "budget"


def test_a_budget_keeps_back_what_the_end_takes_and_counts_the_bytes_that_are_billed() -> None:
    agreed, at = lease(budget_usd="8"), after(3)

    assert outrun(agreed, at, look_s=60) is None
    assert outrun(agreed, at, look_s=60, end_s=3500) is None
    found = outrun(agreed, at, look_s=60, end_s=3540)
    assert found is not None
    assert found.words == (
        "6.00 USD of its budget of 8 USD are spent, and the rest is kept back: about 1.97 USD for its end, "
        "0.0333 USD until a later look"
    )
    assert outrun(agreed, at, look_s=60, bytes_usd=Decimal(2)) is not None
    assert time_left_s(agreed, at, end_s=1800) == 1800


def test_what_an_end_takes_goes_by_what_is_not_here_and_by_the_measured_rate() -> None:
    unused, used = lease(), lease().model_copy(update={"touched_at": NOON})
    small = (NOON, timeline.Collected(seal="s", files=1, bytes=10, took_s=9.0))
    fast = (NOON, timeline.Snapped(files=1, bytes=200_000_000, took_s=4.0))

    assert end_reserve_s(unused, ()) == 120
    assert end_reserve_s(used, ()) == 180
    assert end_reserve_s(used, (small,), to_come_bytes=1_000_000_000) == 280, "not measured yet"
    assert end_reserve_s(used, (small, fast), to_come_bytes=1_000_000_000) == 200


def test_a_budget_that_pays_for_no_more_than_the_end_says_so() -> None:
    used = lease(budget_usd="2.05").model_copy(update={"touched_at": NOON})

    assert leaves_nothing(used, (), after(0.5)) is None
    told = leaves_nothing(used, (), after(1))
    assert told is not None
    assert "2.00 USD are spent and the end takes about 0.1000 USD" in told


def test_an_unknown_price_outruns_no_budget_and_no_cap() -> None:
    assert term(lease(price=None, budget_usd="1", max_price_usd_h="1"), 9) is None


def test_a_price_above_a_cap_that_a_person_named_is_outrun() -> None:
    capped = quote(wish={"max_price_usd_h": "1.5"})

    assert term(lease(max_price_usd_h="1.5"), 1) == "price"
    assert term(lease(max_price_usd_h="1.5"), 0) is None, "one look at a price is none"
    assert term(lease(quoted=capped, max_price_usd_h=capped.cap_usd_h), 1) == "price"


def test_a_cent_above_what_was_quoted_ends_no_work_where_nobody_named_a_cap() -> None:
    quoted = quote()

    assert term(lease(quoted=quoted, max_price_usd_h=quoted.cap_usd_h), 1) is None


def test_a_cap_named_later_counts_although_the_quote_had_none() -> None:
    assert term(lease(quoted=quote(), max_price_usd_h="1.99"), 1) == "price"


def test_idle_is_what_was_seen_to_be_idle_and_never_what_is_unknown() -> None:
    assert term(lease(idle_h=2), 9, idle_s=7200) == "idle"
    assert term(lease(idle_h=2), 9, idle_s=None) is None
    assert term(lease(idle_h=None), 9, idle_s=1e6) is None


def test_the_end_is_near_in_the_last_half_hour_and_never_for_most_of_a_short_lease() -> None:
    assert [is_near(lease(), after(h)) for h in (9.4, 9.6, 10)] == [False, True, False]
    short = lease(deadline_at=NOON + timedelta(minutes=20))
    assert not is_near(short, NOON + timedelta(minutes=14))
    assert is_near(short, NOON + timedelta(minutes=16))


# When it is tried again


def test_attempts_come_for_ever_and_ever_more_seldom_up_to_once_an_hour() -> None:
    tried: list[datetime] = []
    waits = []
    for _ in range(10):
        tried.append(next_attempt_at(tried) or NOON)
        waits.append((tried[-1] - tried[-2]).total_seconds() if len(tried) > 1 else 0)

    assert waits == [0, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_an_attempt_is_due_at_its_time_and_also_when_the_clock_was_set_back() -> None:
    tried = [after(1)]

    assert not is_due(tried, after(1) + timedelta(seconds=59))
    assert is_due(tried, after(1) + timedelta(seconds=60))
    assert is_due(tried, after(0)), "a clock that is behind the last attempt proves nothing"


@pytest.mark.parametrize(
    "anew",
    [timeline.NewTerms(deadline_at=NOON), timeline.Resumed(), timeline.Launched(job="job1")],
)
def test_what_was_agreed_anew_begins_the_count_anew(anew: timeline.Event) -> None:
    ending = timeline.Ending(term="deadline")
    lines = [
        timeline.Line(after(h), event)
        for h, event in enumerate([ending, ending, anew, timeline.Collected(seal="s"), ending])
    ]

    assert attempts(lines) == [after(4)]


def test_the_rescue_counts_from_the_first_attempt_at_or_past_the_deadline() -> None:
    lines = [
        timeline.Line(after(h), timeline.Ending(term=t))
        for h, t in ((2, "price"), (9, "idle"), (11, "deadline"), (12, "deadline"))
    ]

    assert began_at(lease(), lines[:2]) is None
    assert began_at(lease(), lines) == after(11)


def test_what_was_signed_for_is_lost_no_sooner_because_the_guard_stopped_for_the_budget() -> None:
    stopped = timeline.StoppedByGuard(term="budget", words="it paid only for its end")
    tried = timeline.Ending(term="budget", words="its guard stopped it")
    past = [timeline.Line(after(1), stopped), timeline.Line(after(2), tried)]

    parked = lease().model_copy(update={"parked_at": after(1)})
    assert ends_at(parked, past) == after(1)
    assert began_at(parked, past) is None


def test_the_guard_holds_the_budget_unless_its_owner_signed_for_a_loss_at_the_deadline() -> None:
    short = lease(budget_usd=Decimal(2))
    signed = lease(budget_usd=Decimal(2), on_deadline="waive")

    assert guarded_until(short, (), NOON) < short.terms.deadline_at
    assert guarded_until(signed, (), NOON) == signed.terms.deadline_at
    assert guarded_until(lease(), (), NOON) == lease().terms.deadline_at


def test_a_look_is_given_no_more_time_than_the_lease_has() -> None:
    assert time_left_s(lease(), after(9)) == 3600
    assert time_left_s(lease(budget_usd="19"), after(9)) == 1800
    assert time_left_s(lease(price=None, budget_usd="1"), after(9)) == 3600


# How far it goes


def test_unverified_data_is_paid_for_inside_the_agreed_sum_and_kept_beyond_it() -> None:
    agreed = lease(rescue_usd="6")

    assert beyond(agreed, after(10), after(12.9)) == "pay"
    assert beyond(agreed, after(10), after(13)) == "keep"


def test_only_what_its_owner_signed_for_is_destroyed_and_only_beyond_the_sum() -> None:
    signed = lease(rescue_usd="6", on_deadline="waive")

    assert beyond(signed, after(10), after(12.9)) == "pay"
    assert beyond(signed, after(10), after(13)) == "waive"


def test_the_sum_is_a_day_of_its_box_unless_somebody_says_otherwise() -> None:
    for agreed in (lease(), lease(price=None)):
        assert beyond(agreed, after(10), after(33.9)) == "pay"
        assert beyond(agreed, after(10), after(34)) == "keep"
