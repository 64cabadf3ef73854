"""What a provider says that it has charged is asked for seldom, kept, and held against our count."""

from datetime import timedelta
from decimal import Decimal

import pytest
from arranged import NOON, TERMS, HandClock, context_of, lease, offer, price, profile, quote
from tiny import TinyProvider, no_answer

from gpu_tenant.box.ownership import NeverIn
from gpu_tenant.domain.billing import Billed, newest_bill
from gpu_tenant.domain.model import Lease, LeaseId
from gpu_tenant.domain.protection import protection
from gpu_tenant.leases.billing import counted_words, disagreement
from gpu_tenant.leases.cards import card
from gpu_tenant.leases.settle import survey
from gpu_tenant.leases.teardown import tear_down
from gpu_tenant.leases.verify import prove_unused
from gpu_tenant.ledger import Ledger

LEASE = LeaseId("tiny-abcd")
TINY = profile("tiny").model_copy(update={"confirm_s": 10})


class TinyBooks(TinyProvider):
    """One that tells what it has billed."""

    told: Billed | None = None

    async def ask_bill(self, lease: Lease) -> Billed | None:
        with self._carried_out("billed"):
            return self.told


@pytest.fixture
def tiny(clock: HandClock) -> TinyBooks:
    return TinyBooks(clock)


async def rented(tiny: TinyBooks, ledger: Ledger) -> Lease:
    intent = ledger.intend(
        lease_id=LEASE, provider="tiny", terms=TERMS, address=None, price_usd_h=None, at=NOON
    )
    return ledger.bind(LEASE, await tiny.create(intent), at=NOON)


def bill(usd: str, *, until_s: float = 3600, bytes_usd: str | None = None) -> Billed:
    parts = {"gpu": Decimal(usd)} | ({"bytes": Decimal(bytes_usd)} if bytes_usd else {})
    until = NOON + timedelta(seconds=until_s)
    return Billed(usd=Decimal(usd), until=until, by_part=parts, words="its books")


async def test_a_list_of_leases_asks_for_the_bill_once_an_hour_and_keeps_it(
    tiny: TinyBooks, ledger: Ledger, clock: HandClock
) -> None:
    await rented(tiny, ledger)
    for told in (None, bill("0.50")):
        tiny.told = told
        for _ in range(3):
            await survey(context_of(ledger, TINY, tiny))
        clock.advance(3600)

    assert tiny.asked.count("billed") == 2, "also where it did not say"
    assert newest_bill(ledger.events(LEASE)) == bill("0.50")


async def test_a_bill_that_is_not_told_blinds_nobody(
    tiny: TinyBooks, ledger: Ledger, clock: HandClock
) -> None:
    lease = await rented(tiny, ledger)
    tiny.refuses("billed", no_answer(), no_answer())

    found = await survey(context_of(ledger, TINY, tiny))
    clock.advance(3600)
    receipt = await tear_down(context_of(ledger, TINY, tiny), prove_unused(lease, NeverIn()), lease)

    assert (found.blind, found.alarms, len(found.listings["tiny"].boxes)) == ({}, [], 1)
    assert (receipt.billed_usd, receipt.cost_usd, receipt.warnings) == (None, Decimal("0.5000"), ())


async def test_a_receipt_has_the_bill_beside_the_cost_and_a_warning_where_they_differ(
    tiny: TinyBooks, ledger: Ledger, clock: HandClock
) -> None:
    lease = await rented(tiny, ledger)
    clock.advance(3600)
    tiny.told = bill("0.61")

    receipt = await tear_down(context_of(ledger, TINY, tiny), prove_unused(lease, NeverIn()), lease)

    (warning,) = receipt.warnings
    assert (receipt.billed_usd, receipt.cost_usd) == (Decimal("0.61"), Decimal("0.5000"))
    assert receipt.spent_usd == Decimal("0.61"), "the sum that is shown is never below the bill"
    assert receipt.sum_words == "0.61 USD billed so far; by our count 0.5000 USD"
    assert "billed 0.61 USD, but 0.5000 USD were counted: more than was quoted" in warning
    assert (
        receipt.counts
        == "compute and disk by the rate on record; bytes are not in it: their cost is unknown"
    )


async def test_a_bill_with_fewer_digits_than_our_count_is_shown_with_its_own(
    tiny: TinyBooks, ledger: Ledger, clock: HandClock
) -> None:
    lease = await rented(tiny, ledger)
    clock.advance(3600)
    tiny.told = bill("0.499")
    own = await tear_down(context_of(ledger, TINY, tiny), prove_unused(lease, NeverIn()), lease)
    same = own.model_copy(update={"billed_usd": own.cost_usd})

    assert own.sum_words == "0.5000 USD by our count; billed so far 0.499 USD"
    assert same.sum_words == "0.5000 USD, and as much is billed so far"


async def test_a_bill_that_agrees_and_is_another_sum_has_its_reason_on_the_receipt(
    tiny: TinyBooks, ledger: Ledger, clock: HandClock
) -> None:
    lease = await rented(tiny, ledger)
    clock.advance(3600)
    tiny.told = bill("0.49")

    receipt = await tear_down(context_of(ledger, TINY, tiny), prove_unused(lease, NeverIn()), lease)

    assert (receipt.billed_usd, receipt.cost_usd) == (Decimal("0.49"), Decimal("0.5000"))
    assert receipt.warnings == ()
    assert receipt.sum_words == "0.5000 USD by our count; billed so far 0.49 USD"
    assert "our count goes until it was seen gone; the bill is until " in (receipt.counts or "")


async def test_a_bill_of_a_period_that_began_before_the_box_names_no_time_before_the_box(
    tiny: TinyBooks, ledger: Ledger, clock: HandClock
) -> None:
    clock.advance(960)
    lease = await rented(tiny, ledger)
    clock.advance(300)
    tiny.told = bill("0.04", until_s=0, bytes_usd="0.01")  # what the current hour has so far

    receipt = await tear_down(context_of(ledger, TINY, tiny), prove_unused(lease, NeverIn()), lease)

    assert (receipt.billed_usd, receipt.warnings) == (Decimal("0.04"), ())
    assert "the bill is of a period that is not over" in (receipt.counts or "")
    assert "0.01 USD for bytes, by its bill so far" in (receipt.counts or "")
    assert "12:00" not in (receipt.counts or "")


async def test_what_is_billed_beyond_the_count_is_told_while_it_lives_and_for_a_day_after(
    tiny: TinyBooks, ledger: Ledger, clock: HandClock
) -> None:
    lease = await rented(tiny, ledger)
    clock.advance(3600)
    tiny.told = bill("0.90")
    context = context_of(ledger, TINY, tiny)

    while_it_lives = await survey(context)
    events = ledger.events(LEASE)
    shown = card(
        lease,
        TINY,
        jobs=(),
        alarm=None,
        now=clock.now(),
        events=events,
        protection=protection(TINY, lease, None),
    )
    await tear_down(context, prove_unused(lease, NeverIn()), lease)
    just_gone = await survey(context)
    clock.advance(90_000)
    long_gone = await survey(context)

    assert "billed 0.90 USD" in (shown.alarm or "")
    assert (while_it_lives.alarms, long_gone.alarms) == ([], [])
    ((name, words),) = just_gone.alarms
    assert (name, "more than was quoted" in words) == (LEASE, True)
    assert tiny.asked.count("billed") == 2, "by the list, and by the teardown"


@pytest.mark.parametrize(
    ("billed", "said"),
    [
        (bill("0.50"), ""),
        (bill("0.51"), ""),
        (bill("0.52"), "more than was quoted"),
        (bill("0.48"), "the rest may be billed later, or never"),
        (bill("0.25", until_s=1800), ""),
        (bill("0.40", until_s=1800), ""),
        (bill("0.22", until_s=1800), "the rest may be billed later, or never"),
        (bill("0.90", bytes_usd="0.40"), ""),
    ],
    ids=["equal", "a cent", "more", "less", "behind", "not so far behind", "less so far", "bytes"],
)
def test_a_bill_agrees_that_lies_between_what_it_surely_has_and_all_of_it(
    billed: Billed, said: str
) -> None:
    rented = lease(price_usd_h=Decimal("0.50"))

    words = disagreement(rented, billed, until=NOON + timedelta(hours=1))

    assert (words is None) == (not said)
    assert said in (words or "")


def test_what_a_cost_counts_is_told_with_its_source() -> None:
    by_table = price().model_copy(update={"source": "table", "as_of": "2026-11-01"})
    in_yuan = price().model_copy(
        update={"source": "owner", "converted": "2 CNY/h at 0.14 USD for 1 CNY"}
    )

    def words(told: object, billed: Billed | None = None) -> str:
        return counted_words(
            lease().model_copy(update={"quote": quote(offer=offer(price=told))}),
            profile("tiny"),
            billed,
        )

    assert words(price()) == "compute and disk by its provider's rate; bytes are free"
    assert "a price list of 2026-11-01" in words(by_table)
    assert "its owner's word (2 CNY/h at 0.14 USD for 1 CNY)" in words(in_yuan)
    assert words(price(), bill("1", bytes_usd="0.2")).endswith(
        "0.2 USD for bytes, by its bill until 2026-11-20 13:00 UTC"
    )
