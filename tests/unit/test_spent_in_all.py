"""What all leases have cost that have ended is added up from their receipts, to the last part of a cent."""

from decimal import Decimal
from pathlib import Path

from arranged import NOON, HandClock, context_of, profile, receipt, terminating

from gpu_tenant.domain.model import LeaseId
from gpu_tenant.leases.cards import Spent
from gpu_tenant.leases.overview import spent_before
from gpu_tenant.ledger import Ledger


def ended(ledger: Ledger, name: str, provider: str, cost_usd: str | None) -> None:
    terminating(ledger, LeaseId(name), provider=provider)
    for _ in range(2):
        ledger.saw(LeaseId(name), listed="omitted", at=NOON)
    cost = None if cost_usd is None else Decimal(cost_usd)
    filed = receipt(LeaseId(name)).model_copy(update={"provider": provider, "cost_usd": cost})
    ledger.file_receipt(filed, at=NOON)


def test_receipts_are_added_up_and_what_is_unknown_is_counted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3", HandClock())
    for n in range(30):
        ended(ledger, f"tiny-a{n}", "tiny", "0.1001")
    ended(ledger, "tiny-b", "tiny", "12345678.9012")
    ended(ledger, "tiny-c", "tiny", None)
    ended(ledger, "own-d", "own", None)
    context = context_of(ledger, profile("own"))

    told = spent_before(context)
    ledger.close()

    assert told == Spent(Decimal("12345681.9042"), 1)


def test_nothing_was_spent_where_nothing_has_ended(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3", HandClock())

    assert spent_before(context_of(ledger, profile("own"))) == Spent(Decimal(0), 0)
    ledger.close()
