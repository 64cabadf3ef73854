"""What was spent, as the dashboard's page adds it up: what is unknown is named, and is no 0."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from arranged import NOON, HandClock, box, profile
from tiny import TinyProvider

from gpu_tenant.domain.labels import Labels
from gpu_tenant.domain.model import Lease, LeaseId
from gpu_tenant.domain.ports import Transport
from gpu_tenant.domain.terms import Terms
from gpu_tenant.faces.dashboard.spend_history import history
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.names import call_lease
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy

TERMS = Terms(deadline_at=NOON + timedelta(days=9))


def nobody_there(lease: Lease) -> Transport:
    raise AssertionError


async def nobody_asks(lease: Lease, password: str) -> None:
    raise AssertionError


def tenancy(root: Path, clock: HandClock) -> Tenancy:
    return Tenancy(
        Context(
            home=Home(root),
            ledger=Ledger(root / "ledger", clock),
            profiles={slug: profile(slug) for slug in ("tiny", "local")},
            connectors={"tiny": TinyProvider(clock)},
            public_key=str,
            environ={},
            open_transport=nobody_there,
            introduce=nobody_asks,
        )
    )


def leased(ledger: Ledger, name: str, usd_h: str | None, *, provider: str = "tiny") -> LeaseId:
    lease = LeaseId(f"{provider}-{name}")
    intent = ledger.intend(
        lease_id=lease, provider=provider, terms=TERMS, address=None, price_usd_h=None, at=NOON
    )
    price = None if usd_h is None else Decimal(usd_h)
    made = box(lease, provider=provider).model_copy(
        update={"mark": intent.mark, "price_usd_h": price}
    )
    ledger.bind(lease, made, at=NOON)
    return lease


def test_known_hours_are_counted_and_the_others_are_named(tmp_path: Path) -> None:
    clock = HandClock()
    opened = tenancy(tmp_path, clock)
    ledger = opened.ledger
    known = leased(ledger, "known", "1")
    partly = leased(ledger, "partly", "10")
    ledger.note_parked(partly, None, at=NOON + timedelta(hours=2))
    leased(ledger, "free", None, provider="local")
    clock.advance(36 * 3600)

    told = history(opened)

    # 36 hours at 1, and 2 at 10; what it costs to be parked nobody knows.
    assert told.spent_usd == Decimal(56)
    assert told.unknown == (partly,)
    by_day = {day.day: day.usd for day in told.days}
    assert by_day[str(NOON.date())] == {"tiny": Decimal(32)}
    assert by_day[str((NOON + timedelta(days=1)).date())] == {"tiny": Decimal(24)}
    assert [(step.at, step.usd_h) for step in told.burning] == [
        (NOON.timestamp(), Decimal(11)),
        ((NOON + timedelta(hours=2)).timestamp(), Decimal(1)),
        (clock.now().timestamp(), Decimal(1)),
    ]
    assert known not in told.unknown
    ledger.close()


def test_costs_are_summed_by_project_and_by_tag_and_the_month_is_foretold(tmp_path: Path) -> None:
    clock = HandClock()
    opened = tenancy(tmp_path, clock)
    ledger = opened.ledger
    called = {"one": "llama/a #paper #x", "two": "llama/b #paper", "three": "vit/c", "bare": ""}
    for name, labels in called.items():
        lease = leased(ledger, name, "1" if name != "three" else "5")
        if labels:
            call_lease(opened.context, ledger.lease(lease), Labels.parse(labels))
    clock.advance(10 * 3600)

    told = history(opened)

    assert [(s.name, s.leases, s.usd) for s in told.projects] == [
        ("vit", 1, Decimal(50)),
        ("llama", 2, Decimal(20)),
        (None, 1, Decimal(10)),
    ]
    assert [(s.name, s.leases, s.usd) for s in told.tags] == [
        (None, 2, Decimal(60)),
        ("paper", 2, Decimal(20)),
        ("x", 1, Decimal(10)),
    ]
    # Nine days to the deadline, at 8 USD an hour together.
    assert told.month.spent_usd == Decimal(80)
    assert told.month.forecast_usd == Decimal(8 * 9 * 24)
    ledger.close()


def test_the_month_ends_with_the_month(tmp_path: Path) -> None:
    clock = HandClock()
    opened = tenancy(tmp_path, clock)
    leased(opened.ledger, "long", "1")
    clock.advance(8 * 24 * 3600)  # to the 28th; the deadline is on the 29th

    before = history(opened).month
    clock.advance(4 * 24 * 3600)  # to the 2nd of the next month

    after = history(opened).month
    assert before.forecast_usd - before.spent_usd == Decimal(24)
    assert after.spent_usd == Decimal(36), "of this month alone"
    assert after.forecast_usd == after.spent_usd, "the deadline is over"
    assert history(opened).projects == history(opened).tags == ()
    opened.ledger.close()
