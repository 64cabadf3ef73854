"""A quote becomes one box or none, and the ledger never says more than the provider has shown."""

from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON, HandClock, context_of, offer, price, profile, quote
from tiny import TinyMarket, no_answer, nothing_free

from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTaken,
    CredentialRefused,
    NoCapacity,
    NoFunds,
    NoQuota,
    PriceMoved,
    ProviderSilent,
    ProviderTrouble,
    RateLimited,
    Refused,
)
from gpu_tenant.domain.model import BoxId, Lease, LeaseState
from gpu_tenant.domain.offers import Quote
from gpu_tenant.domain.terms import RentRequest
from gpu_tenant.leases.provision import fulfil, intend_quote
from gpu_tenant.ledger import Ledger, anything

TINY = profile("tiny", list_lag_s=60)


@pytest.fixture
def tiny(clock: HandClock) -> TinyMarket:
    return TinyMarket(clock)


def intent(
    ledger: Ledger,
    given: Quote | None = None,
    *,
    hours: float | None = None,
    budget: str | None = None,
) -> Lease:
    return intend_quote(
        context_of(ledger, TINY),
        given or quote(),
        allowed=anything,
        asked=RentRequest(hours=hours, budget_usd=None if budget is None else Decimal(budget)),
    )


async def fulfilled(lease: Lease, tiny: TinyMarket, ledger: Ledger, clock: HandClock) -> Lease:
    return await fulfil(context_of(ledger, TINY, tiny), lease)


# The intent


def test_the_intent_to_rent_a_quote_says_what_at_which_cap_and_until_when(ledger: Ledger) -> None:
    lease = intent(ledger, quote(wish={"hours": 4}))

    assert ledger.lease(lease.id) == lease
    assert (lease.state, lease.provider, lease.quote) == (
        LeaseState.INTENDED,
        "tiny",
        quote(wish={"hours": 4}),
    )
    assert lease.terms.max_price_usd_h == Decimal("0.60")
    assert lease.price_usd_h == Decimal("0.50")
    assert lease.terms.deadline_at == NOON + timedelta(hours=6), "half as long again"


@pytest.mark.parametrize(
    ("worked_h", "hours", "deadline_h"), [(1, None, 2), (4, None, 6), (4, 5, 5)]
)
def test_a_short_work_s_deadline_is_an_hour_later_and_the_owner_s_word_holds(
    ledger: Ledger, worked_h: float, hours: float | None, deadline_h: float
) -> None:
    lease = intent(ledger, quote(wish={"hours": worked_h}), hours=hours)

    assert lease.terms.deadline_at == NOON + timedelta(hours=deadline_h)


@pytest.mark.parametrize("hours", [0, -1, 24 * 365 + 1, float("inf"), float("nan")])
def test_hours_that_are_no_time_to_come_are_refused(ledger: Ledger, hours: float) -> None:
    with pytest.raises(BadRequest, match="a lease cannot last"):
        intent(ledger, hours=hours)

    assert ledger.leases() == []


def test_a_quote_is_good_until_it_expires_and_not_a_moment_longer(
    ledger: Ledger, clock: HandClock
) -> None:
    clock.advance(599)
    intent(ledger)

    clock.advance(1)
    with pytest.raises(Refused, match="the quote q-test was good until 12:10 UTC") as told:
        intent(ledger)

    assert "gpu-tenant offers" in told.value.remedy
    assert len(ledger.leases()) == 1


def test_a_quote_that_was_named_in_time_is_good_although_an_earlier_one_was_tried_first(
    ledger: Ledger, clock: HandClock
) -> None:
    clock.advance(900)

    lease = intend_quote(
        context_of(ledger, TINY), quote(), asked=RentRequest(), asked_at=NOON, allowed=anything
    )

    assert lease.created_at == clock.now()
    assert lease.terms.deadline_at == clock.now() + timedelta(hours=2), "it begins now"


def test_work_that_would_cost_more_than_the_budget_is_refused(ledger: Ledger) -> None:
    intent(ledger, quote(wish={"hours": 2}), budget="1.00")

    with pytest.raises(
        Refused, match=r"3 hours of work alone would cost 1\.50 USD, and the budget is 1\.00 USD"
    ):
        intent(ledger, quote(wish={"hours": 3}), budget="1.00")


def test_an_unknown_price_fills_no_budget(ledger: Ledger) -> None:
    unpriced = quote(offer=offer(price=price(None)))

    with pytest.raises(Refused, match="would cost an unknown sum"):
        intent(ledger, unpriced, budget="100")

    assert ledger.leases() == []


def test_an_offer_that_ends_before_the_work_does_is_refused(ledger: Ledger) -> None:
    with pytest.raises(
        Refused,
        match="for 3 hours, and its lease ends 10 min before that, to bring its files home; the work takes 4",
    ):
        intent(ledger, quote(offer=offer(max_hours=3), wish={"hours": 4}))

    assert ledger.leases() == []


# A clear answer


async def test_what_was_quoted_is_asked_for_again_and_rented(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock
) -> None:
    lease = intent(ledger)

    active = await fulfilled(lease, tiny, ledger, clock)

    assert tiny.asked == ["offers", "create"]
    assert tiny.wishes[0].offer == "o1"
    assert (active.state, active.ready_at) == (LeaseState.ACTIVE, None)
    assert [(box.id, box.mark) for box in tiny.boxes.values()] == [(active.box_id, lease.mark)]


@pytest.mark.parametrize(
    "refusal",
    [ProviderTrouble, NoCapacity, NoQuota, NoFunds, RateLimited, CredentialRefused, PriceMoved],
)
async def test_a_refusal_means_no_box_and_ends_the_intent(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock, refusal: type[ProviderTrouble]
) -> None:
    lease = intent(ledger)
    tiny.refuses("create", refusal("no", remedy="another"))

    with pytest.raises(refusal):
        await fulfilled(lease, tiny, ledger, clock)

    assert ledger.lease(lease.id).state is LeaseState.VOID
    assert tiny.asked.count("create") == 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyError("id"), OSError("a socket")])
async def test_after_any_other_error_a_box_may_exist_so_the_intent_stays_to_be_looked_for(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock, error: Exception
) -> None:
    lease = intent(ledger)
    tiny.loses("create", error)

    with pytest.raises(type(error)):
        await fulfilled(lease, tiny, ledger, clock)

    assert ledger.lease(lease.id).state is LeaseState.INTENDED
    assert len(tiny.boxes) == 1


async def test_a_box_on_which_another_lease_stands_is_not_had_twice(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock
) -> None:
    first, second = intent(ledger), intent(ledger, quote(id="q-more"))
    tiny.rent(second.mark)
    ledger.bind(first.id, tiny.boxes[min(tiny.boxes)], at=NOON)

    with pytest.raises(BoxTaken, match=f"{first.id} already has"):
        await fulfilled(second, tiny, ledger, clock)

    assert ledger.lease(second.id).state is LeaseState.INTENDED


# The price, asked for again


async def test_a_price_that_rose_within_the_cap_is_rented(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock
) -> None:
    tiny.shelf = [offer(price=price("0.60"))]

    assert (await fulfilled(intent(ledger), tiny, ledger, clock)).state is LeaseState.ACTIVE


@pytest.mark.parametrize(("now", "words"), [("0.6001", r"0\.6001"), (None, "an unknown number of")])
async def test_a_price_that_rose_above_the_cap_is_told_and_nothing_is_rented(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock, now: str | None, words: str
) -> None:
    lease = intent(ledger)
    tiny.shelf = [offer(price=price(now))]

    with pytest.raises(PriceMoved, match=f"now costs {words} USD/h, but the cap is 0.60 USD/h"):
        await fulfilled(lease, tiny, ledger, clock)

    assert (tiny.asked, tiny.boxes) == (["offers"], {})
    assert ledger.lease(lease.id).state is LeaseState.VOID


async def test_an_offer_that_is_gone_is_told_and_nothing_is_rented(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock
) -> None:
    lease = intent(ledger)
    tiny.shelf = [offer(id="another")]

    with pytest.raises(NoCapacity, match="the offer of q-test is gone"):
        await fulfilled(lease, tiny, ledger, clock)

    assert (tiny.asked, tiny.boxes) == (["offers"], {})
    assert ledger.lease(lease.id).state is LeaseState.VOID


# No clear answer: exactly one of three ends, and the list says which


async def test_a_box_that_was_made_although_nobody_answered_is_found_and_bound(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock
) -> None:
    lease = intent(ledger)
    tiny.loses("create", no_answer())

    active = await fulfilled(lease, tiny, ledger, clock)

    assert (active.state, [active.box_id]) == (LeaseState.ACTIVE, list(tiny.boxes))
    assert tiny.asked.count("create") == 1, "whoever asks twice may pay twice"


async def test_a_box_that_is_listed_late_is_waited_for_and_bound(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock
) -> None:
    lease = intent(ledger)
    tiny.loses("create", no_answer())
    tiny.unlisted.add(BoxId("b1"))
    tiny.later(59, tiny.unlisted.clear)

    active = await fulfilled(lease, tiny, ledger, clock)

    assert active.box_id in tiny.boxes


async def test_a_request_that_never_arrived_leaves_no_lease_and_says_so(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock
) -> None:
    lease = intent(ledger)
    tiny.refuses("create", no_answer())

    with pytest.raises(ProviderSilent):
        await fulfilled(lease, tiny, ledger, clock)

    assert ledger.lease(lease.id).state is LeaseState.VOID
    assert (clock.now() - NOON).total_seconds() >= TINY.list_lag_s


async def test_without_a_list_nothing_is_concluded_and_the_next_look_tells(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock
) -> None:
    lease = intent(ledger)
    tiny.loses("create", no_answer())
    tiny.refuses("list", *(no_answer() for _ in range(1000)))

    with pytest.raises(ProviderSilent) as told:
        await fulfilled(lease, tiny, ledger, clock)

    assert ledger.lease(lease.id).state is LeaseState.INTENDED
    assert told.value.remedy == f"a box may exist under {lease.id}: `gpu-tenant leases` looks again"
    assert ledger.absences(lease.id) == [], "blind is no look"


async def test_a_price_that_could_not_be_asked_for_rents_nothing(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock
) -> None:
    lease = intent(ledger)
    tiny.refuses("offers", no_answer())

    with pytest.raises(ProviderSilent):
        await fulfilled(lease, tiny, ledger, clock)

    assert "create" not in tiny.asked
    assert ledger.lease(lease.id).state is LeaseState.VOID


async def test_a_refused_offer_may_be_tried_again_by_the_same_quote(
    tiny: TinyMarket, ledger: Ledger, clock: HandClock
) -> None:
    first = intent(ledger)
    tiny.refuses("create", nothing_free())
    with pytest.raises(NoCapacity):
        await fulfilled(first, tiny, ledger, clock)

    second = await fulfilled(intent(ledger), tiny, ledger, clock)

    assert second.state is LeaseState.ACTIVE


def test_a_lease_that_is_shorter_than_its_quote_has_to_pay_for_no_more_than_it_lasts(
    ledger: Ledger,
) -> None:
    asked = RentRequest(hours=0.17, budget_usd=Decimal("0.09"))

    lease = intend_quote(
        context_of(ledger, TINY), quote(wish={"hours": 1}), asked=asked, allowed=anything
    )

    assert lease.terms.deadline_at == NOON + timedelta(hours=0.17)


def test_a_lease_that_outlasts_its_quote_pays_for_the_work_alone_as_before(ledger: Ledger) -> None:
    asked = RentRequest(hours=9, budget_usd=Decimal("1.00"))

    lease = intend_quote(
        context_of(ledger, TINY), quote(wish={"hours": 2}), asked=asked, allowed=anything
    )

    assert lease.terms.budget_usd == Decimal("1.00")
