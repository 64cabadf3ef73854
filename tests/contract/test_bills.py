"""What Vast.ai and RunPod say of money is what their meters say, by their own forms."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import never_used
from contract.staged import Staged, on_stage
from contract.test_runpod import said

from gpu_tenant.domain.errors import CredentialRefused, ProviderSilent
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.ports import Billing, Funded

DAY_S = 86_400
SLACK = Decimal("0.01")


@pytest.fixture(params=["vastai", "runpod"])
def staged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Staged]:
    with on_stage(request.param, tmp_path) as stage:
        yield stage


async def rented(staged: Staged) -> tuple[Lease, Billing]:
    """A lease whose box runs, from now on, and who tells its bill."""
    intent, since = await staged.intent(), staged.clock.now()
    made = await staged.connector.create(intent)
    staged.wait(300)
    assert isinstance(staged.connector, Billing)
    box = {"box_id": made.id, "state": LeaseState.ACTIVE, "active_at": since}
    return intent.model_copy(update=box), staged.connector


def metered(staged: Staged, lease: Lease) -> Decimal:
    return Decimal(staged.meter["by_thing"][str(lease.box_id)])


async def test_a_bill_is_the_meter_s_by_its_parts_and_the_account_shrinks_by_it(
    staged: Staged,
) -> None:
    account = staged.connector
    assert isinstance(account, Funded)
    full = await account.balance()
    lease, books = await rented(staged)
    staged.wait(2 * 3600)

    running, less = await books.ask_bill(lease), await account.balance()
    elsewhere = await books.ask_bill(lease.model_copy(update={"box_id": "12345"}))
    if staged.stage.provider == "runpod":
        assert less is not None
        assert abs((less.spends_usd_h or 0) - staged.billing_usd_h) <= SLACK
    await staged.connector.destroy(never_used(lease))
    staged.wait(3600)
    ended = await books.ask_bill(lease)

    assert elsewhere is None, "of what is in no book nothing is said"
    for billed in (running, ended):
        assert billed is not None
        assert abs(billed.usd - metered(staged, lease)) <= SLACK
        assert abs(sum(billed.by_part.values()) - billed.usd) <= SLACK
        assert {"gpu", "disk"} <= set(billed.by_part)
        assert billed.until <= staged.clock.now()
    assert full is not None
    assert less is not None
    assert abs(full.amount_usd - less.amount_usd - metered(staged, lease)) <= SLACK
    assert "at zero" in less.words


async def test_money_that_is_told_oddly_is_no_sum(staged: Staged) -> None:
    lease, books = await rented(staged)
    row = {"source": f"instance-{lease.box_id}", "podId": lease.box_id, "totalAmount": "much"}
    odd = {"records": [row], "results": [row], "next_token": None}

    staged.fault("status", "GET", "charges|billing", status=200, body=odd)
    with pytest.raises(ProviderSilent, match="unexpected form"):
        await books.ask_bill(lease)
    staged.fault("status", "", "charges|billing", status=401, body={"error": "key"})
    with pytest.raises(CredentialRefused):
        await books.ask_bill(lease)


async def test_vast_ai_s_pages_are_followed_to_the_box_whose_bytes_are_a_part_of_its_own(
    tmp_path: Path,
) -> None:
    with on_stage("vastai", tmp_path) as staged:
        lease, books = await rented(staged)
        staged.fault("traffic", amount=100)
        staged.ask("faults", [{"do": "foreign_box"}] * 101)

        billed = await books.ask_bill(lease)

        assert billed is not None
        assert billed.by_part["bytes"] > 0
        assert billed.by_the_hour_usd == billed.usd - billed.by_part["bytes"]
        assert sum("charges" in line["path"] for line in staged.ask("requests")) == 2


async def test_runpod_s_books_are_as_its_document_has_them_by_the_hour_and_by_the_day(
    tmp_path: Path,
) -> None:
    with on_stage("runpod", tmp_path) as staged:
        lease, books = await rented(staged)
        staged.wait(5 * DAY_S)
        for size in ("hour", "day"):
            told = said(staged, "GET", f"/v2/billing/pods?podId={lease.box_id}&bucketSize={size}")
            assert told.json()["metadata"]["recordCount"] > 4

        billed = await books.ask_bill(lease)
        staged.fault(
            "status", "POST", "graphql", status=200, body={"errors": [{"message": "gone"}]}
        )

        assert billed is not None
        assert abs(billed.usd - metered(staged, lease)) <= SLACK
        assert "bucketSize=day&startTime=" in staged.ask("requests")[-1]["query"]
        assert isinstance(books, Funded)
        assert await books.balance() is None, "the older API may be gone"


async def test_a_charge_of_a_kind_that_nobody_knows_makes_no_bill_unreadable(
    tmp_path: Path,
) -> None:
    with on_stage("vastai", tmp_path) as staged:
        lease, books = await rented(staged)
        staged.fault("fee")

        billed = await books.ask_bill(lease)

        assert billed is not None
        assert billed.by_part["other"] == Decimal("0.01")
        assert {"gpu", "disk"} <= set(billed.by_part)
