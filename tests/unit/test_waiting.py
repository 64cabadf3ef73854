"""While a meter runs, a person reads what is waited for, since when, what it costs, and what ends it."""

from decimal import Decimal

from gpu_tenant.domain.waiting import Wait, wait_for, waits_to
from gpu_tenant.faces.cli.bars import Waiting
from gpu_tenant.transfer.eta import Eta


def test_a_wait_says_what_for_since_when_for_how_much_and_until_when() -> None:
    shown = Waiting(Eta())

    shown.waits(
        Wait("the box boots (starting)", "not in by 12:15 UTC: given back", Decimal(2)), at_s=10
    )

    assert shown.words(at_s=100) == (
        "the box boots (starting); 90 s so far, about 0.0500 USD; not in by 12:15 UTC: given back"
    )


def test_the_same_wait_goes_on_from_when_it_began_whatever_its_provider_says_meanwhile() -> None:
    shown = Waiting(Eta())

    shown.waits(Wait("the box boots (queued)"), at_s=0)
    shown.waits(Wait("the box boots (starting)"), at_s=30)
    assert shown.words(at_s=40) == "the box boots (starting); 40 s so far"

    shown.waits(Wait("the box is sealed"), at_s=40)
    assert shown.words(at_s=45) == "the box is sealed; 5 s so far"


def test_bytes_that_move_are_shown_in_place_of_what_was_waited_for_before() -> None:
    shown = Waiting(Eta())
    shown.waits(Wait("the box lists its files"), at_s=0)

    shown.eta.heard(500, 1000, at_s=1)
    shown.moves()
    assert "500" in shown.words(at_s=2)

    shown.waits(Wait("the box hashes its files"), at_s=3)
    assert "the box hashes its files" in shown.words(at_s=3)


def test_nothing_is_said_of_a_wait_that_nobody_listens_to() -> None:
    heard: list[Wait] = []
    wait_for("before")
    token = waits_to.set(heard.append)
    wait_for("then", ends="at noon", usd_h=Decimal(1))
    waits_to.reset(token)
    wait_for("after")

    assert heard == [Wait("then", "at noon", Decimal(1))]
