"""What a lease will have cost is told by its deadline, and by its job's own pace where that is known."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from arranged import LEASE, NOON, TERMS, active, job, lease, quote
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing import Billed
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.jobs.cost_forecast import Mark, course_of, ends_between, forecast, keep_course
from gpu_tenant.jobs.progress import Progress
from gpu_tenant.ledger import Ledger

HOUR = Decimal("0.50")


def after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def running(**terms: object) -> Lease:
    """A lease of eight hours at half a dollar, from noon on."""
    return lease(price_usd_h=HOUR, terms=TERMS.model_copy(update=terms))


def course(*marks: tuple[float, float]) -> list[Mark]:
    return [Mark(at=after(minutes), fraction=fraction) for minutes, fraction in marks]


def test_until_its_deadline_it_costs_what_is_spent_and_the_rest_of_the_hours() -> None:
    told = forecast(running(), after(120))

    assert (told.spent_usd, told.rate_usd_h, told.to_deadline_usd) == (1, HOUR, 4)
    assert (told.to_job_end_usd, told.over_budget, told.past_deadline) == (None, None, None)


def test_what_is_parked_costs_its_parked_rate_until_then_and_its_job_is_over() -> None:
    parked = running().model_copy(update={"parked_at": NOON, "price_usd_h": Decimal("0.02")})

    told = forecast(parked, after(120), course=course((0, 0), (60, 0.5)))

    assert told.to_deadline_usd == 1 + 6 * Decimal("0.02")
    assert told.job_ends_at is None


def test_a_box_that_boots_is_foretold_at_what_it_will_cost() -> None:
    boots = running().model_copy(
        update={"ready_at": None, "quote": quote(), "price_usd_h": Decimal(0)}
    )

    assert forecast(boots, NOON).to_deadline_usd == 8 * HOUR


def test_what_is_unknown_stays_unknown_and_what_has_ended_is_not_foretold() -> None:
    unpriced = forecast(lease(), after(60), course=course((0, 0), (30, 0.5)))
    ended = forecast(lease(LeaseState.GONE, price_usd_h=HOUR), after(60))

    assert (unpriced.spent_usd, unpriced.to_deadline_usd, unpriced.to_job_end_usd) == (None,) * 3
    assert unpriced.job_ends_at == after(60), "time needs no price"
    assert (ended.to_deadline_usd, ended.rate_usd_h) == (None, None)


def test_bytes_are_in_what_is_spent_where_the_provider_has_billed_them() -> None:
    billed = Billed(
        usd=Decimal("0.70"), until=after(60), by_part={"bytes": Decimal("0.20")}, words="its books"
    )

    assert forecast(running(), after(60), billed=billed).spent_usd == Decimal("0.70")


# The job's own pace


def test_a_steady_job_ends_when_its_pace_says_and_costs_that() -> None:
    told = forecast(running(), after(60), course=course((0, 0), (30, 0.25), (60, 0.5)))

    assert (told.job_ends_at_earliest, told.job_ends_at) == (after(120), after(120))
    assert told.to_job_end_usd == 1


def test_a_job_that_grows_slower_is_told_as_a_range() -> None:
    told = forecast(running(), after(60), course=course((0, 0), (30, 0.4), (60, 0.5)))

    assert told.job_ends_at_earliest == after(120)
    assert told.job_ends_at == after(60 + 30 / 0.1 * 0.5)
    assert told.to_job_end_usd_least == 1
    assert told.to_job_end_usd == Decimal("1.75")


@pytest.mark.parametrize(
    "marks",
    [
        [],
        [(0, 0)],
        [(0, 0), (60, 0.01)],
        [(0, 0), (0.5, 0.4)],
        [(0, 0), (30, 0.5), (40, 0.1)],
        [(0, 0), (10, 1.0)],
    ],
    ids=["none", "begun", "hardly begun", "half a minute", "began anew", "should have ended"],
)
def test_too_little_foretells_nothing(marks: list[tuple[float, float]]) -> None:
    assert forecast(running(), after(60), course=course(*marks)).job_ends_at is None


def test_a_job_that_began_anew_is_measured_anew() -> None:
    marks = course((0, 0), (30, 0.9), (40, 0.1), (50, 0.2))

    assert ends_between(marks) == (after(130), after(130))


@given(st.lists(st.tuples(st.floats(0, 600), st.floats(0, 1)), max_size=12))
def test_an_end_is_never_before_the_newest_mark_and_never_a_failure(
    marks: list[tuple[float, float]],
) -> None:
    told = course(*sorted(marks))

    ends = ends_between(told)

    assert ends is None or told[-1].at <= ends[0] <= ends[1]


# What crosses the terms


def test_a_job_that_will_outrun_the_budget_or_the_deadline_is_told() -> None:
    slow = course((0, 0), (30, 0.05), (60, 0.1))

    told = forecast(running(budget_usd=Decimal(3)), after(60), course=slow)

    assert told.over_budget == (
        "at 2026-11-20 18:00 UTC the budget of 3 USD is used up, and the lease ends: its job needs about 5.00 USD, "
        "and runs until 2026-11-20 22:00 UTC, at its present pace"
    )
    assert "gpu-tenant extend local-abcd" in (told.past_deadline or "")


def test_a_budget_below_the_deadline_s_cost_is_told_when_it_is_about_to_end() -> None:
    small = running(budget_usd=Decimal(2))

    assert forecast(small, after(60)).over_budget is None, "so it was agreed"
    assert "spent at 2026-11-20 16:00 UTC" in (forecast(small, after(180)).over_budget or "")
    tiny = running(budget_usd=Decimal("0.1"))  # twelve minutes
    assert forecast(tiny, after(2)).over_budget is None, "no news from the start"
    assert "spent at 2026-11-20 12:12 UTC" in (forecast(tiny, after(10)).over_budget or "")
    assert forecast(small, after(300)).over_budget is None, "that it is spent is another's sentence"


def test_a_job_that_ends_within_the_budget_is_no_news() -> None:
    quick = course((0, 0), (100, 0.5), (200, 0.95))

    assert forecast(running(budget_usd=Decimal(2)), after(200), course=quick).over_budget is None


# What is on record


def test_a_step_of_a_hundredth_is_kept_once_a_minute_and_the_end_once(ledger: Ledger) -> None:
    active(ledger)

    def seen(seconds: float, fraction: float | None, state: str = "running") -> None:
        keep_course(
            LEASE,
            "job1",
            state,
            Progress(fraction=fraction),
            ledger=ledger,  # type: ignore[arg-type]
            at=NOON + timedelta(seconds=seconds),
        )

    for seconds, fraction in ((0, 0.1), (30, 0.2), (61, 0.105), (62, 0.2), (90, None), (130, 0.3)):
        seen(seconds, fraction)
    before = course_of(ledger.events(LEASE))
    seen(140, 0.99, "finished")
    seen(150, 0.99, "finished")

    kept = [d.fraction for _, d in ledger.events(LEASE) if isinstance(d, timeline.Progressed)]
    assert kept == [0.1, 0.2, 0.3, 0.99]
    assert before == (), "nobody launched it"


def test_the_course_is_of_the_newest_job_from_its_launch_to_its_end(ledger: Ledger) -> None:
    active(ledger)
    for name in ("job1", "job2"):
        ledger.note_launched(ledger.declare(job(name)), at=NOON)
        keep_course(LEASE, name, "running", Progress(fraction=0.2), ledger=ledger, at=after(10))

    going = course_of(ledger.events(LEASE))
    ledger.note(LEASE, timeline.Stopped(job="job2"), at=after(20))

    assert [(mark.at, mark.fraction) for mark in going] == [(NOON, 0), (after(10), 0.2)]
    assert course_of(ledger.events(LEASE)) == ()
