"""The end of a rental is a deadline: the lease ends before it, and nobody is sent to start the box after it."""

from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON, TERMS, lease, offer, quote

from gpu_tenant.domain.end_reserve import start_words
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.policy import end_clock
from gpu_tenant.domain.rental import HOME_S, rental_has_moved, rental_is_over
from gpu_tenant.domain.terms import RentRequest, Terms
from gpu_tenant.leases.offers import unfit
from gpu_tenant.leases.provision import terms_by_quote
from gpu_tenant.leases.term_checks import outrun

HOME = timedelta(seconds=HOME_S)


def for_an_hour(terms: Terms = TERMS) -> Lease:
    """A lease whose box is rented for an hour from noon on."""
    whole = lease(terms=terms, price_usd_h=Decimal(1))
    return whole.model_copy(update={"quote": quote(offer=offer(max_hours=1.0))})


@pytest.mark.parametrize(("hours", "ends_h"), [(10.0, 1.0), (0.5, None)])
def test_a_lease_ends_before_the_rental_of_its_box(hours: float, ends_h: float | None) -> None:
    terms = terms_by_quote(quote(offer=offer(max_hours=1.0)), RentRequest(hours=hours), NOON)

    at = NOON + timedelta(hours=hours) if ends_h is None else NOON + timedelta(hours=ends_h) - HOME
    assert terms.deadline_at == at


def test_an_offer_without_an_end_changes_no_deadline() -> None:
    terms = terms_by_quote(quote(offer=offer()), RentRequest(hours=10), NOON)

    assert terms.deadline_at == NOON + timedelta(hours=10)


def test_an_offer_that_ends_while_files_come_home_does_not_fit() -> None:
    wish = quote().wish
    lasts_h = wish.hours + 0.1

    assert unfit(offer(max_hours=lasts_h), wish) == "ends before the work is done and moved"
    assert unfit(offer(max_hours=lasts_h + 1), wish) is None


def test_a_deadline_that_the_rental_sets_says_so() -> None:
    rented = for_an_hour(Terms(deadline_at=NOON + timedelta(hours=1) - HOME))

    assert "the rental of its box ends at 2026-11-20 13:00 UTC" in end_clock(rented, NOON)


def test_nobody_is_sent_to_start_a_box_whose_rental_is_over() -> None:
    rented = for_an_hour()
    before, after = NOON + timedelta(minutes=59), NOON + timedelta(minutes=61)

    assert [rental_is_over(rented, at) for at in (before, after)] == [False, True]
    assert start_words(rented, (), before, "").startswith("`gpu-tenant resume")
    told = start_words(rented, (), after, "")
    assert "resume" not in told
    assert f"`gpu-tenant waive {rented.id}`" in told


def test_what_its_provider_says_of_the_rental_counts_if_it_is_sooner() -> None:
    rented, sooner = for_an_hour(), NOON + timedelta(minutes=30)

    before_it = NOON - timedelta(days=20_000)
    said = (sooner, NOON + timedelta(minutes=59), NOON + timedelta(hours=9), before_it, None)
    assert [rental_has_moved(rented, at) for at in said] == [True, False, False, False, False]
    told = rented.model_copy(update={"rental_ends_at": sooner})
    assert rental_is_over(told, sooner)
    assert not rental_has_moved(told, sooner)
    assert rental_has_moved(told, NOON + timedelta(minutes=59)), "it was given back its time"


def test_a_lease_ends_before_a_rental_that_ends_sooner_than_its_offer_said() -> None:
    told = for_an_hour().model_copy(update={"rental_ends_at": NOON + timedelta(minutes=30)})
    early, soon = NOON + timedelta(minutes=19), NOON + timedelta(minutes=21)

    assert outrun(told, early, look_s=60) is None
    cause = outrun(told, soon, look_s=60)
    assert cause is not None
    assert cause.words == "the rental of its box ends at 2026-11-20 12:30 UTC"
    assert outrun(for_an_hour(), soon, look_s=60) is None
