"""An account that is soon empty is an alarm, because boxes are stopped or deleted with it."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import HandClock, context_of, profile
from tiny import TinyProvider, leftover, no_answer

from gpu_tenant.domain.billing import Balance
from gpu_tenant.leases.balance import balance_alarms
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.provider_listing import Listing
from gpu_tenant.leases.settle import Survey
from gpu_tenant.ledger import Ledger


class TinyAccount(TinyProvider):
    """One that tells what is left."""

    holds = Balance(amount_usd=Decimal(1), spends_usd_h=None, words="boxes are deleted")

    async def balance(self) -> Balance | None:
        with self._carried_out("balance"):
            return self.holds


@pytest.fixture
def tiny(clock: HandClock) -> TinyAccount:
    return TinyAccount(clock)


@pytest.fixture
def context(tiny: TinyAccount, clock: HandClock, tmp_path: Path) -> Iterator[Context]:
    ledger = Ledger(tmp_path / "ledger.sqlite3", clock)
    yield context_of(ledger, profile("tiny"), tiny)
    ledger.close()


async def seen(tiny: TinyAccount, clock: HandClock) -> Survey:
    return Survey(listings={"tiny": Listing(await tiny.list_boxes(), clock.now())})


async def test_less_than_three_hours_of_all_that_bills_there_are_an_alarm(
    tiny: TinyAccount, clock: HandClock, context: Context
) -> None:
    tiny.rent(None)

    (words,) = await balance_alarms(context, await seen(tiny, clock))

    assert words == (
        "tiny balance: tiny holds 1.00 USD, which lasts 2.0 h at 0.5000 USD/h: add credit; boxes are deleted"
    )


async def test_what_its_provider_says_is_spent_goes_before_what_its_lists_show(
    tiny: TinyAccount, clock: HandClock, context: Context
) -> None:
    tiny.rent(None)
    tiny.holds = tiny.holds.model_copy(update={"spends_usd_h": Decimal("0.10")})

    assert await balance_alarms(context, await seen(tiny, clock)) == []


async def test_leftovers_spend_too_and_an_account_that_spends_nothing_is_not_asked(
    tiny: TinyAccount, clock: HandClock, context: Context
) -> None:
    found = await seen(tiny, clock)
    quiet = await balance_alarms(context, found)
    found.leftovers = [leftover("disk-1").model_copy(update={"usd_month": Decimal(720)})]

    assert quiet == []
    assert len(await balance_alarms(context, found)) == 1
    assert tiny.asked.count("balance") == 1


async def test_it_is_asked_every_ten_minutes_and_its_silence_is_nothing(
    tiny: TinyAccount, clock: HandClock, context: Context
) -> None:
    tiny.rent(None)
    tiny.refuses("balance", no_answer())

    first = [await balance_alarms(context, await seen(tiny, clock)) for _ in range(2)]
    clock.advance(600)
    later = await balance_alarms(context, await seen(tiny, clock))

    assert (first, len(later), tiny.asked.count("balance")) == ([[], []], 1, 2)
