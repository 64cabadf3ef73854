"""A budget that is too small is said before it is rented under, and while a job still runs under it."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from arranged import LEASE, NOON, TERMS, context_of, job, lease, offer, profile, quote

from gpu_tenant.domain import timeline
from gpu_tenant.domain.budget_end import budget_end
from gpu_tenant.domain.command import Option
from gpu_tenant.domain.end_reserve import QuotedBudget, resume_step, shortest_h
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.protection import protection
from gpu_tenant.domain.terms import RentRequest
from gpu_tenant.domain.timeline import Line, Lines
from gpu_tenant.leases.cards import Card, card
from gpu_tenant.leases.job_outlook import OutlookNews, job_outlook
from gpu_tenant.leases.provision import intend_quote
from gpu_tenant.ledger import Ledger, anything

HOUR = Decimal("0.50")
RUNS: Lines = (Line(NOON, timeline.Launched(job="train")),)


def after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def running(budget_usd: str | None = None, *, hours: float = 8) -> Lease:
    """A lease at half a dollar an hour, from noon on."""
    terms = {"budget_usd": budget_usd and Decimal(budget_usd), "deadline_at": after(60 * hours)}
    return lease(price_usd_h=HOUR, terms=TERMS.model_copy(update=terms))


def shown(of: Lease, now: datetime, events: Lines = RUNS) -> Card:
    at = profile()
    return card(
        of,
        at,
        jobs=[job()],
        alarm=None,
        now=now,
        events=events,
        protection=protection(at, of, None),
    )


# Before renting


def test_the_sum_that_suffices_pays_for_the_start_the_hours_one_look_and_the_end() -> None:
    small = QuotedBudget(quote(wish={"hours": 0.1}), Decimal("0.06"))
    enough = QuotedBudget(quote(wish={"hours": 0.1}), small.enough_usd)

    assert small.enough_usd == Decimal("0.10"), "0.05 for 6 min, 60 s of start and 4 min of end"
    assert (small.is_enough, enough.is_enough) == (False, True)
    assert "too small for 0.1 h" in small.words
    assert "pays for 2 min of work; 0.10 USD suffices" in small.words


def test_a_lease_with_the_sum_that_suffices_is_not_ended_by_it_before_its_hours_are_over() -> None:
    enough = QuotedBudget(quote(wish={"hours": 2}), Decimal(0)).enough_usd

    end = budget_end(running(str(enough)), (), NOON)

    assert end is not None
    assert end.acts_at >= after(2 * 60 + 1), "and a minute of start"


@pytest.mark.parametrize(("budget", "errand"), [("0.03", None), ("0.03", "run-1"), ("0.06", None)])
def test_a_budget_that_pays_for_no_useful_work_is_refused_with_a_sum_that_suffices(
    ledger: Ledger, budget: str, errand: str | None
) -> None:
    hours = 0.05 if budget == "0.03" else 0.12
    asked = RentRequest(budget_usd=Decimal(budget), errand=errand)

    with pytest.raises(Refused, match="too small for") as told:
        intend_quote(
            context_of(ledger, profile("tiny")),
            quote(wish={"hours": hours}),
            asked=asked,
            allowed=anything,
        )

    sum_usd = told.value.remedy.partition("--budget-usd ")[2].split("`")[0]
    assert QuotedBudget(quote(wish={"hours": hours}), Decimal(sum_usd)).is_enough
    assert ledger.leases() == []


def test_the_refusal_of_a_budget_below_the_hours_cost_names_a_sum_that_suffices(
    ledger: Ledger,
) -> None:
    with pytest.raises(Refused, match="would cost") as told:
        intend_quote(
            context_of(ledger, profile("tiny")),
            quote(wish={"hours": 0.1}),
            asked=RentRequest(budget_usd=Decimal("0.04")),
            allowed=anything,
        )

    assert "the same line with `--budget-usd 0.10`" in told.value.remedy


def test_hours_that_end_before_the_box_is_up_are_not_proposed() -> None:
    slow = quote(offer=offer(setup_s=180), wish={"hours": 0.1})
    paid = QuotedBudget(slow, Decimal("0.08"))

    told = paid.remedy(Option("budget-usd", paid.enough), least_h=shortest_h(slow.offer))

    assert 0 < paid.paid_h < shortest_h(slow.offer)
    assert "--hours" not in told
    assert f"`--budget-usd {paid.enough_usd}`" in told


def test_a_deadline_that_passes_before_the_box_is_up_is_refused_with_the_least_that_makes_sense(
    ledger: Ledger,
) -> None:
    context = context_of(ledger, profile("tiny"))
    slow = quote(offer=offer(setup_s=180), wish={"hours": 0.1})

    with pytest.raises(Refused, match="its deadline would pass before the box is up") as told:
        intend_quote(context, slow, asked=RentRequest(hours=0.02), allowed=anything)

    hours = float(told.value.remedy.partition("--hours ")[2].split("`")[0])
    assert ledger.leases() == []
    assert hours * 3600 > 180
    assert intend_quote(context, slow, asked=RentRequest(hours=hours), allowed=anything)


# In the list


def test_an_unused_box_past_its_deadline_is_to_be_ended_or_given_time() -> None:
    late = running(hours=0.02).model_copy(update={"ready_at": after(1), "touched_at": None})

    at = profile()
    told = card(
        late,
        at,
        jobs=[],
        alarm=None,
        now=after(2),
        events=(),
        protection=protection(at, late, None),
    ).next

    assert told.startswith(f"`gpu-tenant teardown {LEASE}`: its deadline has passed")
    assert f"`gpu-tenant extend {LEASE} --hours 1`" in told


def test_the_budget_s_end_is_named_before_the_deadline_that_follows_it() -> None:
    of = running("0.09", hours=0.18)  # spent at 10.8 min, too, but its end is kept back

    assert shown(of, after(2)).too_little is None, "so small a budget is no news at once"
    told = shown(of, after(6))

    sum_usd = told.next.partition("--budget-usd ")[2].split("`")[0]
    assert told.next.startswith(f"`gpu-tenant terms {LEASE} --budget-usd ")
    assert "gpu-tenant extend" not in told.next
    assert "its budget of 0.0900 USD ends it at 12:0" in (told.alarm or "")
    assert told.too_little == "budget"
    assert "that pays until its deadline at 12:10 UTC, and for its end and" in told.next
    raised = running(sum_usd, hours=0.18)
    assert budget_end(raised, RUNS, after(6)) is None, "it lasts until the deadline"


def test_a_budget_that_ends_after_the_job_is_no_danger() -> None:
    halves = (
        *RUNS,
        Line(after(2), timeline.Progressed(job="train", state="running", fraction=0.9)),
    )

    told = shown(running("0.09", hours=0.18), after(2), halves)

    assert told.too_little is None


# While the job runs


def outlook(of: Lease, minutes: float, fraction: float) -> str | None:
    return job_outlook(of, RUNS, after(minutes), fraction=fraction, looked_after="watched")


def test_a_job_that_ends_in_time_is_said_to() -> None:
    told = outlook(running("3"), 60, 0.5)

    assert told == (
        "its job ends at 14:00 UTC, in 60 min, at its present pace: before its budget ends the lease"
    )


def test_a_job_that_outlasts_its_budget_is_said_to_with_a_budget_that_suffices() -> None:
    told = outlook(running("1"), 60, 0.25) or ""

    sum_usd = told.partition("--budget-usd ")[2].split("`")[0]
    assert "ends at 16:00 UTC" in told
    assert "but its budget ends the lease before that" in told
    end = budget_end(running(sum_usd), RUNS, after(60))
    assert end is not None
    assert end.acts_at >= after(240)


def test_a_job_that_outlasts_its_deadline_is_said_to_with_the_hours_that_suffice() -> None:
    told = outlook(running(hours=2), 60, 0.25) or ""

    assert "but its deadline ends the lease before that" in told
    assert f"`gpu-tenant extend {LEASE} --hours 3.3`" in told, "three hours, and time to sign"


def test_a_job_that_is_too_young_to_foretell_names_what_gives_it_more_where_that_is_urgent() -> (
    None
):
    assert outlook(running("0.05", hours=1), 0.5, 0.01) is None, "nor is it so at once"
    told = outlook(running("0.05", hours=1), 1.9, 0.01) or ""

    assert "is not known yet: `gpu-tenant terms" in told
    assert outlook(running(), 0.5, 0.15) is None


def test_a_budget_that_nobody_enforces_ends_nothing() -> None:
    told = job_outlook(running("1"), RUNS, after(60), fraction=0.25, looked_after="unwatched")

    assert told is not None
    assert "before its deadline" in told


def test_whoever_watches_hears_of_a_bad_forecast_once_after_an_unknown_one_and_of_each_turn() -> (
    None
):
    news = OutlookNews()
    unknown = outlook(running("0.05", hours=1), 1.9, 0.01)
    bad, worse = outlook(running("1"), 60, 0.25), outlook(running("1", hours=2), 60, 0.25)
    good = outlook(running("3"), 60, 0.5)

    told = [news.of(words) for words in (None, unknown, unknown, bad, bad, worse, good, good, bad)]

    assert told == [None, unknown, None, bad, None, worse, good, None, bad]


# What starts a parked box


def parked(budget_usd: str, *, touched: bool = False) -> Lease:
    """A box at half a dollar an hour that was parked past its deadline, three minutes after noon."""
    more = {"parked_at": after(3), "ready_at": after(1), "quote": quote()}
    return running(budget_usd, hours=0.02).model_copy(
        update={**more, "touched_at": after(1) if touched else None}
    )


def test_an_unused_parked_box_is_started_for_what_is_left_of_its_budget_where_that_ends_it() -> (
    None
):
    step = str(resume_step(parked("0.08"), (), after(3)))

    hours = float(step.partition("--hours ")[2].split("`")[0])
    assert "--budget-usd" not in step
    assert "signature" not in step
    assert 0 < hours < 0.2


def test_a_raise_that_starts_a_parked_box_says_beforehand_that_it_takes_a_signature() -> None:
    unused, used = (
        str(resume_step(parked("0.04", touched=x), (), after(3))) for x in (False, True)
    )

    for step in (unused, used):
        assert "--budget-usd 0." in step
        assert step.endswith(" (takes a person's signature)")
    assert outlook_raise().count("(takes a person's signature)") == 1


def outlook_raise() -> str:
    return outlook(running("1"), 60, 0.25) or ""
