"""A ledger of an earlier version is carried over as it was meant, once, and its boxes stay ours."""

import sqlite3
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import LEASE, NOON, TERMS, box

from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.errors import LedgerBusy
from gpu_tenant.domain.model import LeaseId, LeaseState
from gpu_tenant.domain.terms import Rate
from gpu_tenant.leases.provider_listing import is_of
from gpu_tenant.ledger import Ledger
from gpu_tenant.ledger.schema import MIGRATIONS

BOUND_AT = NOON + timedelta(minutes=5)
WAITING, ENDED, UNPRICED = LeaseId("local-wait"), LeaseId("local-gone"), LeaseId("own-free")
INTEND = (
    "INSERT INTO leases(id, provider, state, terms, price_usd_h, created_at)"
    " VALUES (?, ?, 'intended', ?, ?, ?)"
)


@pytest.fixture(params=range(1, len(MIGRATIONS)))
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def ledger_file(tmp_path: Path, version: int) -> Path:
    """A file begun by the first version and left so by `version`: a box at work, an intent, a free
    box, and an end."""
    path = tmp_path / "ledger.sqlite3"
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA synchronous=OFF")  # each statement commits; this file need not outlast us
    raw.executescript(MIGRATIONS[0])
    raw.execute("PRAGMA user_version=1")
    for lease, price in ((LEASE, "0.50"), (WAITING, "0.50"), (UNPRICED, None), (ENDED, "2")):
        provider = lease.partition("-")[0]
        raw.execute(INTEND, (lease, provider, TERMS.model_dump_json(), price, NOON.isoformat()))
        raw.execute(
            "INSERT INTO events(lease_id, kind, detail, at) VALUES (?, 'intended', '{}', ?)",
            (lease, NOON.isoformat()),
        )
        if lease != WAITING:
            raw.execute(
                "UPDATE leases SET state='active', box_id=?, active_at=?, touched_at=? WHERE id=?",
                (lease, BOUND_AT.isoformat(), BOUND_AT.isoformat(), lease),
            )
    raw.execute(
        "UPDATE leases SET state='lost', ended_at=? WHERE id=?",
        ((BOUND_AT + timedelta(hours=1)).isoformat(), ENDED),
    )
    for script in MIGRATIONS[1:version]:
        raw.executescript(script)
    raw.execute(f"PRAGMA user_version={version}")
    raw.close()
    return path


def test_a_lease_at_work_goes_on_with_its_rate_its_mark_and_its_door_open(ledger: Ledger) -> None:
    lease = ledger.lease(LEASE)

    assert (lease.state, lease.box_id) == (LeaseState.ACTIVE, LEASE)
    assert lease.mark == f"gpu-tenant:{LEASE}", "what its box carries at its provider"
    assert lease.rates == (Rate(at=BOUND_AT, usd_h=Decimal("0.50")),)
    assert lease.cost_usd(BOUND_AT + timedelta(hours=2)) == Decimal(1)
    assert (lease.ready_at, lease.parked_at, lease.quote) == (BOUND_AT, None, None)
    assert (lease.terms, lease.touched_at) == (TERMS, BOUND_AT)


def test_an_intent_has_a_mark_and_no_rate_and_has_let_nobody_in(ledger: Ledger) -> None:
    lease = ledger.lease(WAITING)

    assert (lease.state, lease.mark) == (LeaseState.INTENDED, f"gpu-tenant:{WAITING}")
    assert (lease.rates, lease.ready_at) == ((), None)
    assert lease.cost_usd(BOUND_AT) == Decimal(0)


def test_a_rate_that_was_never_known_stays_unknown(ledger: Ledger) -> None:
    lease = ledger.lease(UNPRICED)

    assert lease.rates == (Rate(at=BOUND_AT, usd_h=None),)
    assert lease.cost_usd(BOUND_AT) is None


def test_an_ended_lease_has_cost_what_it_had_cost(ledger: Ledger) -> None:
    assert ledger.lease(ENDED).cost_usd(BOUND_AT + timedelta(days=9)) == Decimal(2)


def test_a_box_that_was_marked_by_the_first_version_is_still_its_lease_s(ledger: Ledger) -> None:
    found = box(WAITING).model_copy(update={"mark": f"gpu-tenant:{WAITING}"})

    assert is_of(found, ledger.lease(WAITING))
    assert not is_of(found, ledger.lease(LEASE))
    assert ledger.bind(WAITING, found, at=BOUND_AT).mark == found.mark


def test_what_was_done_is_still_on_record(ledger: Ledger) -> None:
    assert [line.kind for line in ledger.events(LEASE)] == [timeline.Intended.kind]


def test_the_law_of_marks_holds_for_old_leases_and_new_ones(
    ledger: Ledger, ledger_file: Path
) -> None:
    raw = sqlite3.connect(ledger_file, isolation_level=None)

    with pytest.raises(sqlite3.IntegrityError, match="law: a lease keeps its mark"):
        raw.execute("UPDATE leases SET mark='another'")
    with pytest.raises(sqlite3.IntegrityError, match="law: a lease has a mark"):
        raw.execute(INTEND, ("local-new", "local", "{}", None, NOON.isoformat()))

    raw.close()


def test_it_is_carried_over_once(ledger_file: Path) -> None:
    first = Ledger(ledger_file)
    leases, deployment = first.leases(), first.deployment
    first.close()
    again = Ledger(ledger_file)

    assert (again.leases(), again.deployment) == (leases, deployment)
    again.check()
    again.close()


def test_an_old_lease_recovers_none_and_has_no_alarm_and_may_have_both(ledger: Ledger) -> None:
    assert [lease.recovers for lease in ledger.leases()] == [None] * 4
    assert ledger.open_alarms() == []

    going_on = ledger.intend(
        lease_id=LeaseId("local-next"),
        provider="local",
        terms=TERMS,
        address=None,
        price_usd_h=None,
        at=BOUND_AT,
        recovers=ENDED,
    )
    raised = ledger.raise_alarm(
        "deadline", "it is late", level=Level.URGENT, lease_id=LEASE, at=BOUND_AT
    )

    assert going_on.recovers == ENDED
    assert ledger.lease("local-next") == going_on
    assert ledger.open_alarms() == [raised]


def test_a_ledger_that_is_in_use_is_left_at_its_version_until_it_is_free(
    ledger_file: Path, version: int
) -> None:
    other = sqlite3.connect(ledger_file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(LedgerBusy):
        Ledger(ledger_file, busy_timeout_s=0.05)
    other.execute("ROLLBACK")

    assert other.execute("PRAGMA user_version").fetchone() == (version,)
    other.close()
    opened = Ledger(ledger_file)
    assert len(opened.leases()) == 4
    opened.close()


def test_a_lease_from_before_has_its_directory_in_the_home_and_keeps_it(
    ledger: Ledger,
) -> None:
    old, waiting = ledger.lease(LEASE), ledger.lease(WAITING)

    assert old.place is not None
    assert old.place.path == "~"
    assert old.work_directory == f"gpu-tenant/{LEASE}/work"
    assert waiting.place is None, "nothing of ours is on its box yet"


def test_an_old_ledger_holds_nothing_against_a_host_and_remembers_from_now_on(
    ledger: Ledger,
) -> None:
    before = ledger.host_records(at=NOON)
    ledger.report_host(LEASE, "never ready", "late", provider="vastai", host="41", at=NOON)

    assert before == {}
    assert list(ledger.host_records(at=NOON)) == ["vastai:41"]
