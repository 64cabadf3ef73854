"""What is in force for a lease is said in sentences, and nothing dear is left without an end."""

from decimal import Decimal
from typing import Any

import pytest
from arranged import NOON, profile, quote
from contract.staged import PROFILES, RENTED
from unit.test_term_checks import lease

from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.model import Lease, Profile
from gpu_tenant.domain.offers import Quote
from gpu_tenant.domain.policy import (
    alone_words,
    brief_of,
    ends_unseen,
    most_words,
    must_be_doable,
    must_end_unseen,
    rules_of,
)
from gpu_tenant.domain.protection import protection


def rented(at: Profile) -> Quote:
    """A quote there, whose offer says what it costs when parked, as each with a park does."""
    made = quote()
    price = made.offer.price.model_copy(update={"parked_usd_h": Decimal("0.01")})
    return made.model_copy(
        update={"offer": made.offer.model_copy(update={"provider": at.id, "price": price})}
    )


@pytest.mark.parametrize("slug", RENTED)
def test_what_is_refused_before_renting_is_what_is_told_after_it(slug: str) -> None:
    at = PROFILES[slug]

    told = protection(at, lease(quoted=rented(at)), None)

    assert ends_unseen(at) == (told.kind != "nothing"), told


def test_a_box_that_nothing_ends_is_refused_above_a_hundred_dollars_a_day() -> None:
    unwatched = PROFILES["lambda_cloud"]

    must_end_unseen(unwatched, Decimal("4.16"))
    with pytest.raises(Refused, match=r"each day that nobody notices costs 100\.08 USD") as told:
        must_end_unseen(unwatched, Decimal("4.17"))
    assert "--unguarded accept" in told.value.remedy
    with pytest.raises(Refused, match="an unknown sum"):
        must_end_unseen(unwatched, None)


def test_where_something_ends_it_no_price_is_too_high() -> None:
    must_end_unseen(PROFILES["gcp"], Decimal(100))
    must_end_unseen(profile("own"), None)


def test_every_term_is_a_sentence_and_what_is_not_said_does_not_hold() -> None:
    agreed = lease(
        budget_usd="30",
        max_price_usd_h="2.5",
        idle_h=2,
        rescue_usd="7",
        store="archive",
        recover=("same", "runpod"),
    )

    told = "\n".join(rules_of(agreed, PROFILES["vastai"]))
    bare = "\n".join(rules_of(lease(), PROFILES["own"]))

    for words in (
        "2026-",
        "budget 30 USD: the lease is ended by the watchdog while the rest of the budget still pays",
        "the most that it costs: 30 USD; the watchdog holds it to that, with one exception: what is not",
        "proved by then costs up to 1.00 USD for one last start, and an unknown sum a day of disk until you act",
        "its rescue sum of 7 USD pays for one last start, and for no more until its owner signs ahead: `gpu-tenant waive",
        "dearer than 2.5 USD/h",
        "idle for 2 h: ended",
        "it is parked, and its disk bills on; if that fails,",
        "archive",
        "the same platform, then at runpod",
        "when its work is done: the box is kept",
    ):
        assert words in told
    assert len(bare.splitlines()) == 3, (
        "until when, what comes home unasked, and that nothing here holds what it costs"
    )
    assert "what nobody declared: it comes home too, up to 2 GiB" in bare


def test_what_is_done_when_the_work_is_done_is_said_and_by_whom() -> None:
    agreed = lease(when_done="end", budget_usd="30")

    told = "\n".join(rules_of(agreed, PROFILES["vastai"]))
    alone = "\n".join(rules_of(agreed, PROFILES["vastai"], looked_after="unwatched"))

    assert "torn down once all is proved, after 30 s" in told
    assert "the most that it costs: 30 USD" in told
    assert alone.count("by a watchdog") == 4, "four rules"
    assert "no watchdog runs now: rules that need one are not carried out" in alone


def test_where_the_deadline_comes_before_the_budget_the_sum_is_that_of_the_deadline() -> None:
    agreed = lease(budget_usd="30")
    noon = agreed.created_at

    told = most_words(agreed, PROFILES["vastai"], "watched", now=noon)
    small = most_words(lease(budget_usd="3"), PROFILES["vastai"], "watched", now=noon)

    assert "the most that it costs: about 20.00 USD until 2026-" in (told or "")
    assert "UTC, and what its end takes; the watchdog" in (told or "")
    assert "the most that it costs: 3 USD; the watchdog" in (small or "")


def test_where_no_stop_keeps_the_work_the_one_exception_is_the_running_box() -> None:
    told = most_words(lease(budget_usd="3"), PROFILES["lambda_cloud"], "watched")

    assert (told or "").endswith("what is not proved by then costs 48.00 USD a day until you act")


def parked(*, price: str = "0.02", touched: bool = True, **terms: Any) -> Lease:
    stopped = {"parked_at": NOON, "touched_at": NOON if touched else None}
    return lease(price=price, **terms).model_copy(update=stopped)


@pytest.mark.parametrize("looked", ["watched", "unwatched"])
def test_the_deadline_of_a_parked_box_ends_nothing_and_its_other_terms_wait(looked: Any) -> None:
    kept = parked(budget_usd="30", idle_h=2, when_done="end")
    vastai = PROFILES["vastai"]

    told = rules_of(kept, vastai, looked_after=looked, now=NOON)
    brief = brief_of(kept, vastai, looked_after=looked, now=NOON)

    (deadline,) = (rule for rule in told if "deadline is 2026-" in rule)
    assert (
        "parked on purpose is kept, and its disk bills at 0.02 USD/h until you end it" in deadline
    )
    assert "`gpu-tenant leases`" in deadline
    for rule in ("budget", "idle", "when its work is done", "unverified"):
        assert any(line.startswith(f"once its box runs again: {rule}") for line in told)
    assert "jobs are stopped, and the box is torn down" not in "\n".join(told)
    assert any("only you can end the bill of a parked box" in rule for rule in told)
    assert brief.ends.startswith("its box is parked; if that was on purpose, only you end it")


def test_a_parked_box_that_is_ended_after_all_says_when_and_why() -> None:
    vastai = PROFILES["vastai"]

    unused = "\n".join(rules_of(parked(touched=False), vastai))
    signed = "\n".join(rules_of(parked(on_deadline="waive", rescue_usd="7"), vastai))
    free = "\n".join(rules_of(parked(price="0"), vastai))

    assert "was never used, so it is torn down then by the watchdog" in unused
    assert "when 7.00 USD more are spent, it is destroyed by the watchdog, as its owner" in signed
    assert "and its disk costs nothing until you end it" in free
    assert "the most that it costs: nothing more while its box is parked" in free


def test_in_brief_only_what_differs_from_the_usual_terms_is_told_besides_the_end() -> None:
    usual, noon = lease(when_done="end", budget_usd="30"), lease().created_at
    agreed = lease(
        when_done="park", budget_usd="30", max_price_usd_h="2.5", recover=("same",), store="/nas"
    )
    vastai = PROFILES["vastai"]

    plain = brief_of(usual, vastai, looked_after="watched", now=noon)
    told = brief_of(agreed, vastai, looked_after="watched", now=noon)
    alone = brief_of(usual, vastai, looked_after="unwatched", now=noon)

    assert plain.agreed == ()
    assert plain.ends.startswith("when its work is proved here, or at ")
    assert "it is parked, and its disk bills" in (plain.left_to_you or "")
    assert [words.partition(" ")[0] for words in told.agreed] == ["it", "when", "artifacts", "if"]
    assert told.ends.startswith("parked when its work is done; ends at ")
    assert alone.ends.startswith("its jobs are stopped at ")


def test_a_guard_that_is_not_armed_yet_is_no_promise() -> None:
    stops = protection(PROFILES["vastai"], lease(), None)

    assert alone_words(stops, guard="armed") == (
        "if this computer dies, its guard stops it at the deadline"
    )
    assert alone_words(stops, guard="not armed") == (
        "if this computer dies, its guard stops it at the deadline, once that is armed"
    )


def test_every_rule_that_only_a_watchdog_holds_says_so_while_none_looks() -> None:
    agreed = lease(budget_usd="30", max_price_usd_h="2.5", idle_h=2, recover=("same",))

    told = rules_of(agreed, PROFILES["vastai"], looked_after="unwatched")

    assert [rule for rule in told if "no watchdog runs now" in rule] == [told[0]], "said once"
    alone = [rule for rule in told if "by a watchdog" in rule]
    assert set(told) - set(alone) == {
        "no watchdog runs now: rules that need one are not carried out",
        "when its work is done: the box is kept, until another of these terms ends it",
        "what is kept: park keeps every disk at an unknown rate; teardown keeps nothing",
        (
            "what nobody declared: it comes home too, up to 2 GiB, or what comes in 10 min if that is more; a larger rest "
            "is a question"
        ),
        "the most that it costs: nothing limits it while no watchdog runs",
    }
    assert "at most" not in "\n".join(told), "nobody holds it"
    assert "jobs are stopped by the guard on the box; the box is torn down by a watch" in told[1]
    assert any(rule.startswith("idle for 2 h: stopped by its guard; ") for rule in told)


def test_nothing_is_to_be_parked_where_no_stop_keeps_a_disk() -> None:
    for parked in (
        {"when_done": "park"},
        {"when_done": "end", "on_failure": {"does": "park", "after_s": 900}},
    ):
        with pytest.raises(Refused, match="no stop there keeps its work"):
            must_be_doable(lease(**parked).terms, PROFILES["lambda_cloud"])
        must_be_doable(lease(**parked).terms, PROFILES["vastai"])


def test_what_its_owner_signed_for_is_said_as_plainly_as_it_is() -> None:
    told = "\n".join(rules_of(lease(on_deadline="waive"), PROFILES["lambda_cloud"]))

    assert "48.00 USD more; then it is destroyed, parked or not" in told
    assert "UTC and its end, and 48.00 USD to rescue what is unverified" in told
    assert "any change of its terms cancels the signature" in told
