"""What is asked often costs the same whether ten leases have ended or ten thousand."""

import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import pytest
from bench.history import fill

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import UnknownLease
from gpu_tenant.leases.watch_actions import look_at
from gpu_tenant.service import Tenancy

Asks = Callable[[Tenancy], Awaitable[object]]


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ledgers of so many leases, by their number."""
    made = tmp_path_factory.mktemp("histories")
    for leases in (2, 12, 60):
        # Before this month, which the owner's limits count.
        fill(made / str(leases) / "ledger.sqlite3", leases, days_ago=60)
    return made


@asynccontextmanager
async def tenancy_of(root: Path) -> AsyncIterator[Tenancy]:
    home = str(root)
    tenancy = open_tenancy({"GPU_TENANT_HOME": home, "HOME": home, "PATH": "/usr/bin:/bin"})
    try:
        yield tenancy
    finally:
        await tenancy.aclose()


async def rows_read(root: Path, asks: Asks) -> tuple[int, int]:
    """How many statements were run, and how many leases were made of rows, with such a history."""
    async with tenancy_of(root) as tenancy:
        statements: list[str] = []
        tenancy.ledger.trace(statements.append)
        made: list[object] = []

        def count(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_name == "_lease":
                made.append(frame)

        sys.setprofile(count)
        try:
            await asks(tenancy)
        finally:
            sys.setprofile(None)
        return len(statements), len(made)


@pytest.mark.parametrize(
    ("what", "asks"),
    [
        ("doctor", lambda tenancy: tenancy.doctor()),
        ("leases", lambda tenancy: tenancy.list_leases()),
        ("leases --all", lambda tenancy: tenancy.list_leases("all", 5)),
        ("the watchdog's look", lambda tenancy: look_at(tenancy.context, "local", patience_s=5)),
    ],
)
async def test_no_answer_takes_more_work_with_more_history(
    histories: Path, what: str, asks: Asks
) -> None:
    few = await rows_read(histories / "12", asks)
    many = await rows_read(histories / "60", asks)

    assert many == few, what


async def test_history_is_told_page_by_page_to_its_first_lease(histories: Path) -> None:
    async with tenancy_of(histories / "12") as tenancy:
        page = await tenancy.list_leases("all", 5)
        told = [card.lease for card in page.leases]
        assert page.older == told[0]
        in_all = page.spent_usd
        while page.older is not None:
            page = await tenancy.list_leases("all", 5, page.older)
            told = [*(card.lease for card in page.leases), *told]
            assert page.spent_usd == in_all

        assert (await tenancy.list_leases()).spent_usd == in_all
        assert told == [lease.id for lease in tenancy.ledger.leases()]


async def test_a_page_before_a_lease_that_never_was_is_an_error(histories: Path) -> None:
    async with tenancy_of(histories / "2") as tenancy:
        with pytest.raises(UnknownLease):
            await tenancy.list_leases("all", 5, "local-nope")


def test_the_generator_writes_leases_that_the_law_would_have_let_in(tmp_path: Path) -> None:
    fill(tmp_path / "ledger.sqlite3", 3)

    with sqlite3.connect(tmp_path / "ledger.sqlite3") as db:
        triggers = db.execute("SELECT count(*) FROM sqlite_master WHERE type='trigger'").fetchone()
        receipts = db.execute("SELECT count(*) FROM receipts").fetchone()
    db.close()
    assert receipts == (3,)
    assert triggers[0] > 20
