"""What all leases have cost in a period: what falls into it, what is unknown, and what may grow."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import LEASE, NOON, HandClock, active, gone
from pages import require_harmless, require_square

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.faces.cli.report import _period
from gpu_tenant.faces.report import expenses_html, expenses_markdown, expenses_of
from gpu_tenant.faces.report.costs import costs_of
from gpu_tenant.leases.cards import Leases
from gpu_tenant.service import Tenancy


@pytest.fixture
def tenancy(tmp_path: Path) -> Tenancy:
    opened = open_tenancy({"GPU_TENANT_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)})
    opened.context.clock = HandClock()
    return opened


def advance(tenancy: Tenancy, hours: float) -> None:
    clock = tenancy.context.clock
    assert isinstance(clock, HandClock)
    clock.advance(hours * 3600)


def test_only_the_hours_in_the_period_are_counted(tenancy: Tenancy) -> None:
    active(tenancy.ledger)
    tenancy.ledger.note_rate(LEASE, Decimal("2.00"), at=NOON)
    advance(tenancy, 10)

    middle = expenses_of(tenancy.context, NOON + timedelta(hours=3), NOON + timedelta(hours=5))
    later = expenses_of(tenancy.context, NOON + timedelta(hours=9), NOON + timedelta(days=9))
    before = expenses_of(tenancy.context, NOON - timedelta(days=9), NOON - timedelta(days=8))

    assert (middle.total_usd, middle.running) == (Decimal("4.0000"), (LEASE,))
    assert later.total_usd == Decimal("2.0000"), "no hour that has not been is counted"
    assert (before.total_usd, before.leases) == (Decimal(0), ())


def test_what_is_unknown_is_named_and_is_no_zero(tenancy: Tenancy) -> None:
    active(tenancy.ledger)
    tenancy.ledger.note_rate(LEASE, None, at=NOON)
    advance(tenancy, 2)

    told = expenses_of(tenancy.context, NOON - timedelta(days=1), NOON + timedelta(days=1))

    (row,) = told.leases
    assert row.usd is None
    for text in (expenses_html(told, "all-x"), expenses_markdown(told, "all-x")):
        assert "unknown" in text
        assert f"counted until {told.until:%Y-%m-%d %H:%M:%S} UTC" in text
    require_harmless(expenses_html(told, "all-x"))
    require_square(expenses_markdown(told, "all-x"))


def test_a_lease_that_is_over_counts_by_its_receipt(tenancy: Tenancy) -> None:
    gone(tenancy.ledger)
    advance(tenancy, 48)
    receipt = tenancy.ledger.receipt(LEASE)
    assert receipt is not None

    told = expenses_of(tenancy.context, NOON - timedelta(days=1), NOON + timedelta(days=2))

    assert [row.usd for row in told.leases] == [receipt.cost_usd]
    assert told.running == ()


def test_a_month_is_a_period() -> None:
    assert _period("2026-12", None) == (
        datetime(2026, 12, 1, tzinfo=UTC),
        datetime(2027, 1, 1, tzinfo=UTC),
    )
    assert _period("2026-02", None)[1] == datetime(2026, 3, 1, tzinfo=UTC)
    assert _period("2026-02-03", "2026-02-03")[1] == datetime(2026, 2, 4, tzinfo=UTC)
    for since, until in (("2026-02-03", "2026-02-01"), ("soon", None), ("2026-13", None)):
        with pytest.raises(BadRequest, match="day") as told:
            _period(since, until)
        assert "report --all --since" in told.value.remedy


async def test_what_is_paid_is_told_now_today_and_this_month(tenancy: Tenancy) -> None:
    active(tenancy.ledger)
    tenancy.ledger.note_rate(LEASE, Decimal("2.00"), at=NOON - timedelta(days=1))
    advance(tenancy, 1)
    (card,) = (await tenancy.list_leases("all")).leases
    bills = {"price_usd_h": Decimal(2), "bills": "box", "state": LeaseState.ACTIVE}
    seen = Leases(
        leases=(card.model_copy(update=bills),),
        alarms=(),
        burning_usd_h=Decimal(2),
        also_billing=("the volume v: 3.00 USD a month",),
    )

    told = costs_of(tenancy.context, seen)

    assert (told.usd_h, [one.lease for one in told.leases]) == (2, [LEASE])
    assert told.today_usd == Decimal("26.0000"), "thirteen hours of today"
    assert told.month_usd == Decimal("50.0000")
    assert told.promised_month_usd is not None
    assert told.promised_month_usd >= told.month_usd
    assert list(told.by_platform.values()) == [50]
    assert told.without_a_box == ("the volume v: 3.00 USD a month",)
    assert "of 300 USD" in told.limits["usd_day"]
