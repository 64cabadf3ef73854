"""What a provider shows of a box is held against what was agreed and what is on record."""

from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import LEASE, NOON, TERMS, HandClock, active, box, lease, profile, quote

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Box, BoxState, Fate, Lease, LocalAddress, SshAddress
from gpu_tenant.domain.protection import Protection
from gpu_tenant.domain.reconcile import News, news
from gpu_tenant.leases.cards import card
from gpu_tenant.leases.settle import observe
from gpu_tenant.ledger import Ledger

HERE = LocalAddress(directory="/boxes/here")
PARKED_AT = NOON + timedelta(hours=1)


def shown(state: BoxState = BoxState.READY, usd_h: str | None = "0.50", **more: object) -> Box:
    price = None if usd_h is None else Decimal(usd_h)
    return box().model_copy(
        update={"state": state, "price_usd_h": price, "address": HERE, **more}, deep=True
    )


def known(**more: object) -> Lease:
    """A rented lease whose box costs what was quoted."""
    standing = lease(price_usd_h=Decimal("0.50"), address=HERE)
    return standing.model_copy(update={"quote": quote(cap_usd_h=Decimal("0.60")), **more})


def test_a_box_as_it_is_on_record_is_no_news() -> None:
    assert news(known(), shown()) == News()


@pytest.mark.parametrize("state", [BoxState.BOOTING, BoxState.READY])
def test_a_box_that_boots_or_runs_needs_no_words(state: BoxState) -> None:
    assert news(known(), shown(state)).words is None


def test_what_a_provider_says_of_a_box_that_runs_is_told() -> None:
    odd = shown(usd_h=None, words="X does not tell its price now")

    assert news(known(), odd).words == "X does not tell its price now"


def test_a_price_within_the_cap_is_news_for_the_meter_and_for_nobody_else() -> None:
    assert news(known(), shown(usd_h="0.60")) == News(usd_h=Decimal("0.60"))


def test_a_price_that_is_not_told_is_no_news_because_unknown_is_not_zero() -> None:
    assert news(known(), shown(usd_h=None)) == News()


def test_a_price_of_nothing_is_a_price() -> None:
    assert news(known(), shown(usd_h="0")).usd_h == Decimal(0)


def test_a_list_from_before_the_box_let_us_in_does_not_make_it_cheaper() -> None:
    stale = shown(BoxState.BOOTING, usd_h="0")

    assert news(known(ready_at=NOON), stale) == News()
    assert news(known(ready_at=None), stale).usd_h == Decimal(0)


def test_a_price_above_the_cap_of_the_quote_is_told_each_time() -> None:
    above = news(known(), shown(usd_h="0.61"))
    again = news(known(price_usd_h=Decimal("0.61")), shown(usd_h="0.61"))

    assert above == News(
        usd_h=Decimal("0.61"), words="it costs 0.61 USD/h, above the cap of 0.60 USD/h"
    )
    assert again == News(words=above.words)


def test_without_a_quote_the_cap_is_the_owner_s() -> None:
    capped = TERMS.model_copy(update={"max_price_usd_h": Decimal("0.55")})

    told = news(known(quote=None, terms=capped), shown(usd_h="0.56"))

    assert told.words == "it costs 0.56 USD/h, above the cap of 0.55 USD/h"
    assert news(known(quote=None), shown(usd_h="99")).words is None, "no cap was ever named"


def test_another_address_is_news_and_none_at_all_is_not() -> None:
    there = SshAddress(target="root@box:2222")

    assert news(known(), shown(address=there)) == News(address=there)
    assert news(known(), shown(address=None)) == News()


def test_a_box_that_is_being_stopped_is_no_alarm_yet() -> None:
    """Whoever announced the stop has told it. What stopped the box is told once it stands still."""
    assert news(known(), shown(BoxState.STOPPING)).words is None


@pytest.mark.parametrize(
    ("state", "parked_at", "words"),
    [
        (BoxState.PARKED, None, "its provider or a person at its console has stopped it"),
        (BoxState.READY, PARKED_AT, "it runs again although it was parked"),
        (BoxState.BROKEN, None, "its provider calls it broken"),
        (BoxState.UNKNOWN, None, "its provider calls it unknown"),
    ],
)
def test_a_box_in_another_state_than_we_left_it_is_told(
    state: BoxState, parked_at: object, words: str
) -> None:
    told = news(known(parked_at=parked_at), shown(state))

    assert words in (told.words or "")


@pytest.mark.parametrize(
    ("recover", "fate", "way"),
    [
        ((), "outbid", "resume"),
        (("same",), "outbid", "recover"),
        (("same",), "stopped_by_provider", "resume"),
    ],
)
def test_a_stopped_box_has_one_next_step_wherever_it_is_told(
    recover: tuple[str, ...], fate: Fate, way: str
) -> None:
    """The alarm and the card say the same; elsewhere it goes on only where the terms say where."""
    terms = known().terms.model_copy(update={"recover": recover})
    standing, stopped = known(terms=terms, touched_at=NOON), shown(BoxState.PARKED)
    told = news(standing, stopped, fate)
    shown_card = card(
        standing,
        profile(),
        jobs=(),
        alarm=told.words,
        now=NOON,
        protection=Protection(kind="nothing", words="nothing ends it"),
        events=[timeline.Line(NOON, timeline.Taken(fate=fate))],
        box=stopped,
        looked_after="unwatched",
    )

    assert f"`gpu-tenant {way} {standing.id}`" in (told.words or "")
    assert shown_card.next.startswith(f"`gpu-tenant {way} ")


def test_a_box_that_stands_still_has_no_time_at_which_its_job_ends() -> None:
    course = [timeline.Line(NOON, timeline.Launched(job="train"))]
    course += [
        timeline.Line(
            NOON + timedelta(minutes=at),
            timeline.Progressed(job="train", fraction=at / 100),
        )
        for at in (10, 20)
    ]

    def ends(box: Box) -> float | None:
        return card(
            known(touched_at=NOON),
            profile(),
            jobs=(),
            alarm=None,
            now=NOON + timedelta(minutes=21),
            protection=Protection(kind="nothing", words="nothing ends it"),
            events=course,
            box=box,
        ).job_ends_in_s

    assert ends(shown()) is not None
    assert ends(shown(BoxState.PARKED)) is None


def test_a_box_that_we_parked_is_no_news_while_it_is_parked() -> None:
    assert news(known(parked_at=PARKED_AT), shown(BoxState.PARKED)).words is None


def test_the_provider_s_own_words_come_with_what_needs_words_and_with_nothing_else() -> None:
    broken = news(known(), shown(BoxState.BROKEN, words="image not found"))
    booting = news(known(), shown(BoxState.BOOTING, words="pulling"))

    assert broken.words == "its provider calls it broken; image not found"
    assert booting.words is None


def test_everything_that_is_wrong_is_told_at_once() -> None:
    told = news(known(), shown(BoxState.PARKED, usd_h="2")).words or ""

    assert "above the cap" in told
    assert "stopped it" in told


# What is observed is on record


def test_what_is_observed_is_on_record_with_the_change_of_the_price(
    ledger: Ledger, clock: HandClock
) -> None:
    active(ledger)
    there = SshAddress(target="root@box:2222")
    first, _ = observe(ledger.lease(LEASE), shown(usd_h="0.50"), ledger=ledger)
    clock.advance(60)

    second, told = observe(first, shown(usd_h="0.70", address=there), ledger=ledger)

    assert ledger.lease(LEASE) == second
    assert (second.price_usd_h, second.address, told) == (Decimal("0.70"), there, None)
    assert [rate.usd_h for rate in second.rates] == [None, Decimal("0.50"), Decimal("0.70")]
    changes = [detail for _, detail in ledger.events(LEASE) if isinstance(detail, timeline.Priced)]
    assert changes == [timeline.Priced(was="0.50", now="0.70")]


def test_to_observe_the_same_again_writes_nothing(ledger: Ledger) -> None:
    active(ledger)
    seen, _ = observe(ledger.lease(LEASE), shown(), ledger=ledger)
    before = ledger.events(LEASE)

    again, _ = observe(seen, shown(), ledger=ledger)

    assert again == seen
    assert ledger.events(LEASE) == before
