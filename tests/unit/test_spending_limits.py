"""The owner's limits: an ordinary lease or two fit, what nobody meant does not, and all that is live counts."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import NOON, quote

from gpu_tenant.domain.errors import Limit, LocalTrouble
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, LeaseId
from gpu_tenant.domain.terms import Terms
from gpu_tenant.leases.spending_limits import (
    Limits,
    Wanted,
    limits_of,
    must_be_within,
    since,
    used_of,
)
from gpu_tenant.ledger import Ledger

FREE = {"local", "own"}
D = Decimal


def terms(hours: float, **more: object) -> Terms:
    return Terms.model_validate({"deadline_at": NOON + timedelta(hours=hours), **more})


def rented(
    ledger: Ledger, usd_h: str | None, hours: float, *, at: datetime = NOON, **more: object
) -> Lease:
    name = LeaseId(f"runpod-{len(ledger.leases())}")
    until = Terms.model_validate({"deadline_at": at + timedelta(hours=hours), **more})
    price = None if usd_h is None else D(usd_h)
    ledger.intend(
        lease_id=name,
        provider="runpod",
        terms=until,
        address=None,
        price_usd_h=price,
        at=at,
        quote=quote(id=f"q-{name}") if usd_h else None,
    )
    box = Box(
        provider="runpod",
        id=BoxId(f"b-{name}"),
        mark=None,
        state=BoxState.READY,
        address=None,
        price_usd_h=price,
    )
    ledger.bind(name, box, at=at)
    return ledger.ready(name, at=at)


def check(
    ledger: Ledger, usd_h: str | None, wanted: Terms, limits: Limits | None = None, **more: object
) -> None:
    price = None if usd_h is None else D(usd_h)
    must_be_within(
        limits or Limits(),
        Wanted("runpod", wanted, price, **more),  # type: ignore[arg-type]
        ledger.leases_since(since(NOON)),
        free=FREE,
        now=NOON,
        configuration=Path("config.toml"),
    )


def refused(ledger: Ledger, usd_h: str | None, wanted: Terms, **more: object) -> Limit:
    with pytest.raises(Limit) as told:
        check(ledger, usd_h, wanted, **more)  # type: ignore[arg-type]
    return told.value


def test_two_boxes_of_a_few_dollars_for_a_day_meet_no_limit(ledger: Ledger) -> None:
    rented(ledger, "4.50", 36)

    check(ledger, "4.50", terms(36))


def test_what_nobody_meant_is_refused_by_name_with_what_is_used(ledger: Ledger) -> None:
    assert refused(ledger, "27.92", terms(8000), count=4).name == "box_usd_h"
    assert refused(ledger, "2", terms(8000)).name == "hours"
    assert refused(ledger, "8", terms(24), count=4).name == "usd_h"
    assert refused(ledger, "0.1", terms(24), count=17).name == "boxes"
    rented(ledger, "13", 2)

    told = refused(ledger, "8", terms(1))

    assert told.name == "usd_h"
    assert "cost 21 USD/h" in told.message
    assert "of which 13 are used" in told.message
    assert "config.toml" in told.remedy
    assert "`gpu-tenant limits` at a terminal" in told.remedy


def test_a_day_counts_what_was_spent_and_all_that_may_be_up_to_every_deadline(
    ledger: Ledger,
) -> None:
    ended = rented(ledger, "12", 20, at=NOON - timedelta(hours=11))
    ledger.end(ended.id, "lost", at=NOON - timedelta(hours=1))
    spent, left_today_h = D(120), 12

    with_it = Limits(usd_day=spent + 5 * left_today_h)
    check(ledger, "5", terms(20), with_it)
    assert refused(ledger, "5.01", terms(20), limits=with_it).name == "usd_day"
    check(ledger, "9", terms(20, budget_usd=59), with_it)
    told = refused(ledger, "9", terms(10, budget_usd=59, rescue_usd=50), limits=Limits(usd_day=180))
    assert told.name == "usd_day"
    assert "of which 120.00 are spent or promised" in told.message


def test_a_month_is_counted_into_the_next_ones(ledger: Ledger) -> None:
    assert (
        refused(ledger, "4", terms(168, budget_usd=900), limits=Limits(usd_month=600)).name
        == "usd_month"
    )
    in_the_next = terms(24 * 40)

    told = refused(ledger, "1", in_the_next, limits=Limits(hours=8000, usd_month=500))

    assert told.name == "usd_month"


def test_what_is_free_meets_no_limit_and_an_unknown_price_counts_as_its_cap(ledger: Ledger) -> None:
    nothing = Limits(usd_h=D(0), boxes=0, usd_day=D(0))
    must_be_within(
        nothing, Wanted("own", terms(8000), None), [], free=FREE, now=NOON, configuration=Path("c")
    )
    must_be_within(
        nothing,
        Wanted("slurm", terms(8000), D(0)),
        [],
        free=FREE,
        now=NOON,
        configuration=Path("c"),
    )
    rented(ledger, None, 24, max_price_usd_h=15)

    assert refused(ledger, "6", terms(1)).name == "usd_h"


def test_a_box_that_is_past_its_deadline_bills_on_and_counts(ledger: Ledger) -> None:
    rented(ledger, "10", 1, at=NOON - timedelta(hours=5))

    uses = {use.name: use for use in used_of(Limits(), ledger.leases(), free=FREE, now=NOON)}

    assert uses["usd_h"].used == 10
    assert uses["usd_day"].used == 50 + 10 * 12


def test_what_is_written_holds_and_what_is_not_is_careful(tmp_path: Path) -> None:
    written = tmp_path / "config.toml"

    assert limits_of(written) == Limits()
    written.write_text("[limits]\nusd_h = 45.5\nunguarded = 'allowed'\n", encoding="utf-8")
    assert limits_of(written) == Limits(usd_h=D("45.5"), unguarded="allowed")


@pytest.mark.parametrize(
    "line",
    [
        "usd_h = -1",
        "usd_h = inf",
        "usd_hour = 5",
        "boxes = 1.5",
        "boxes = true",
        "hours = 0",
        "unguarded = 'yes'",
        "usd_h = 'much'",
        "usd_day = 1e300",
    ],
)
def test_a_limit_that_is_none_is_told_and_nothing_is_taken_for_no_limit(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "config.toml").write_text(f"[limits]\n{line}\n", encoding="utf-8")

    with pytest.raises(LocalTrouble, match=r"\[limits\]"):
        limits_of(tmp_path / "config.toml")


def test_the_turn_of_a_year_is_a_month_like_others(ledger: Ledger) -> None:
    assert since(datetime(2026, 12, 31, 23, tzinfo=UTC)) == datetime(2026, 12, 1, tzinfo=UTC)


def test_a_box_whose_price_nobody_knows_is_told_until_it_has_a_cap(ledger: Ledger) -> None:
    lease = rented(ledger, None, 24)
    rented(ledger, "1", 24)

    def told() -> str:
        leases = ledger.leases_since(since(NOON))
        return used_of(Limits(), leases, free=FREE, now=NOON)[0].words

    before = told()
    ledger.change_terms(lease.id, lease.terms.model_copy(update={"max_price_usd_h": D(3)}), at=NOON)

    assert before == "1 of 20 USD/h, besides 1 box at an unknown price"
    assert told() == "4 of 20 USD/h"
