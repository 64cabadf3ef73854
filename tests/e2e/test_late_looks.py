"""Whoever looks late loses no money: a box that is found hours later is counted from when it was made."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from arranged import eventually
from contract.staged import RENTED
from e2e.renting import USD_STEP, Tenant, at_two, tenant_at

from gpu_tenant.domain.errors import NotReady
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.receipt import Receipt

LATE_S = 5 * 3600
PRICED = [slug for slug in RENTED if slug != "autodl"]
"""Where the provider, or a list of its prices, says what a box costs."""


def command(tenant: Tenant, *words: str) -> subprocess.Popen[bytes]:
    """That command in a process of its own, which can be killed."""
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(tenant.root),
        **tenant.stage.environment,
        "GPU_TENANT_HOME": str(tenant.home.root),
    }
    with (tenant.root / "said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "gpu_tenant", *words], env=variables, stdout=said, stderr=said
        )


async def killed_while_renting(
    tenant: Tenant, *, budget_usd: str = "100", hours: float = 12
) -> str:
    """A box was made, its answer was lost, and whoever had asked for it was killed; the box's id."""
    quotes = await tenant.quotes(hours=hours)
    await tenant.key_is_known()
    tenant.create_fails("drop_after")
    tenant.fault("list_lag", seconds=3000)
    renting = command(
        tenant,
        "provision",
        "--quote",
        quotes[0],
        "--smoke",
        "none",
        "--unguarded",
        "accept",
        "--budget-usd",
        budget_usd,
    )
    try:
        eventually(lambda: tenant.alive or renting.poll() is not None)
        assert tenant.alive, (tenant.root / "said").read_text()
    finally:
        renting.send_signal(signal.SIGKILL)
        renting.wait(30)
    (box,) = tenant.alive
    return box


def near(told: Decimal | None, metered: Decimal) -> bool:
    """Whether that is what the meter says, within 2 cents and 5 in 100."""
    return told is not None and abs(told - metered) <= Decimal("0.02") + metered * 5 / 100


@at_two(0, among=PRICED)
async def test_a_box_that_is_found_hours_later_costs_what_it_cost(tenant: Tenant) -> None:
    box = await killed_while_renting(tenant)

    tenant.wait(LATE_S)
    told = await tenant.tenancy.list_leases()

    (card,) = told.leases
    assert card.box == box
    assert near(card.cost_usd, tenant.metered(box)), (card.cost_usd, tenant.metered(box))
    assert near(told.spent_usd, tenant.metered(box))
    assert card.age_s >= LATE_S

    receipt: Receipt = (await tenant.tenancy.verify_and_teardown(card.lease)).receipt
    assert near(receipt.cost_usd, tenant.metered(box)), (receipt, tenant.metered(box))
    assert receipt.billed_usd is None or near(receipt.billed_usd, tenant.metered(box))
    assert receipt.lived_s >= LATE_S
    assert not receipt.warnings


@at_two(1, among=PRICED)
async def test_a_budget_that_was_spent_before_anybody_looked_is_told(tenant: Tenant) -> None:
    price = (await tenant.offer()).price.running_usd_h
    assert price is not None
    await killed_while_renting(tenant, hours=2, budget_usd=f"{price * 2 + USD_STEP:.2f}")

    tenant.wait(LATE_S)
    (card,) = (await tenant.tenancy.list_leases()).leases

    assert card.alarm is not None
    assert "budget" in card.alarm


async def killed_while_ending(tenant: Tenant) -> str:
    """A box was being given back, its destroy carried out, and whoever did that was killed; its lease."""
    card = await tenant.rented(hours=1, wait_s=3600)
    tenant.wait(60)
    tenant.destroy_fails("drop_after", times=1)
    ending = command(tenant, "teardown", card.lease)
    try:
        eventually(lambda: not tenant.alive or ending.poll() is not None)
    finally:
        ending.send_signal(signal.SIGKILL)
        ending.wait(30)
    assert not tenant.alive, (tenant.root / "said").read_text()
    return card.lease


@at_two(2, among=PRICED)
async def test_a_teardown_that_was_killed_costs_until_it_was_asked_and_not_until_somebody_looks(
    tenant: Tenant,
) -> None:
    lease = await killed_while_ending(tenant)
    assert tenant.lease(lease).state is LeaseState.TERMINATING
    was_missed = bool(tenant.tenancy.ledger.absences(lease))

    tenant.wait(LATE_S)
    torn = await tenant.tenancy.verify_and_teardown(lease)

    receipt, metered = torn.receipt, tenant.metered(torn.receipt.box_id)
    assert near(receipt.cost_usd, metered), (receipt, metered)
    if was_missed:
        return  # the last thing that it did was a look
    assert receipt.cost_least_usd is not None
    assert receipt.cost_most_usd is not None
    assert receipt.cost_least_usd - USD_STEP <= metered <= receipt.cost_most_usd
    assert receipt.cost_most_usd > metered * 2, "until somebody looked it may have billed"
    assert "its destroy was requested at" in (receipt.counts or "")
    assert receipt.destroy_asked_at < receipt.first_absent_at


@at_two(3, among=PRICED)
async def test_a_look_after_a_killed_teardown_says_what_is_waited_for(tenant: Tenant) -> None:
    lease = await killed_while_ending(tenant)

    (card,) = (await tenant.tenancy.list_leases()).leases

    assert card.alarm is not None
    assert "its destroy was requested at" in card.alarm
    assert f"gpu-tenant teardown {lease}" in card.alarm
    torn = await tenant.tenancy.verify_and_teardown(lease)
    assert torn.state is LeaseState.GONE
    tenant.assert_nothing_bills()


@at_two(4, among=PRICED)
async def test_an_ordinary_end_has_one_sum_and_no_range(tenant: Tenant) -> None:
    card = await tenant.rented()
    tenant.wait(1800)

    receipt = (await tenant.tenancy.verify_and_teardown(card.lease)).receipt

    assert near(receipt.cost_usd, tenant.metered(card.box))
    assert (receipt.cost_least_usd, receipt.cost_most_usd) == (None, None)


def omitted(tenant: Tenant, box: str, *, for_s: float) -> None:
    """The provider's list omits that box for so long, while it runs and bills."""
    tenant.thing(box).listed_from = tenant.stage.world.now + for_s


@at_two(5, among=PRICED)
async def test_a_box_that_the_list_omits_is_asked_for_by_its_id_before_it_is_called_lost(
    tenant: Tenant,
) -> None:
    card = await tenant.rented()
    assert card.box is not None
    omitted(tenant, card.box, for_s=3000)

    alarms: list[str] = []
    for _ in range(5):
        tenant.wait(300)
        told = await tenant.tenancy.list_leases()
        alarms += told.alarms

    (shown,) = told.leases
    assert shown.state is LeaseState.ACTIVE
    assert any("by its id" in words for words in alarms)
    assert told.burning_usd_h == shown.price_usd_h != 0
    assert near(told.spent_usd, tenant.metered(card.box))


@at_two(6, among=PRICED)
async def test_what_the_provider_denies_twice_over_is_lost_and_comes_back_when_it_is_listed(
    tenant: Tenant,
) -> None:
    card = await tenant.rented(hours=8)
    assert card.box is not None
    terms = tenant.lease(card).terms
    thing = tenant.stage.world.state.things.pop(card.box)
    for _ in range(4):
        tenant.wait(150)
        await tenant.tenancy.list_leases()
    assert tenant.lease(card).state is LeaseState.LOST

    tenant.stage.world.state.things[card.box] = thing
    tenant.wait(3600)
    told = await tenant.tenancy.list_leases()

    (shown,) = told.leases
    assert (shown.lease, shown.state) == (card.lease, LeaseState.ACTIVE)
    assert tenant.lease(card).terms == terms
    assert any("lists the box again" in words for words in told.alarms)
    assert told.burning_usd_h == shown.price_usd_h != 0
    assert near(told.spent_usd, tenant.metered(card.box))
    receipt = (await tenant.tenancy.verify_and_teardown(card.lease)).receipt
    assert near(receipt.cost_usd, tenant.metered(card.box))
    tenant.assert_nothing_bills()


@at_two(7, among=PRICED)
async def test_a_boot_that_nobody_saw_end_costs_about_what_it_cost(tenant: Tenant) -> None:
    quotes = await tenant.quotes(hours=1)
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=0)

    tenant.wait(420)
    await tenant.tenancy.list_leases()
    receipt = (await tenant.tenancy.verify_and_teardown(card.lease)).receipt

    metered = tenant.metered(receipt.box_id)
    assert near(receipt.cost_usd, metered), (receipt, metered)
    if receipt.cost_least_usd is not None and receipt.cost_most_usd is not None:
        assert receipt.cost_least_usd <= metered <= receipt.cost_most_usd


async def test_a_box_that_is_found_stopped_is_counted_as_if_it_had_run_until_then(
    tmp_path: Path,
) -> None:
    async with tenant_at("gcp", tmp_path) as tenant:
        await killed_while_renting(tenant, hours=2)

        tenant.wait(LATE_S)  # Google's own timer stops it meanwhile
        (card,) = (await tenant.tenancy.list_leases()).leases
        metered = tenant.metered(card.box)
        assert card.cost_usd is not None
        assert card.cost_usd > metered

        receipt = (await tenant.tenancy.verify_and_teardown(card.lease)).receipt
        assert near(receipt.cost_usd, tenant.metered(card.box)), (receipt, metered)
        assert receipt.cost_most_usd is not None
        assert "found stopped" in (receipt.counts or "")


@pytest.mark.parametrize("tenant", ["autodl", "vastai"], indirect=True)
async def test_a_box_that_the_list_shows_late_is_never_called_gone_nor_free(tenant: Tenant) -> None:
    quotes = await tenant.quotes(hours=12)
    tenant.fault("list_lag", seconds=900)
    with suppress(NotReady):
        await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    (box,) = tenant.alive

    for _ in range(4):
        tenant.wait(300)
        (card,) = (await tenant.tenancy.list_leases()).leases
        assert card.state is LeaseState.ACTIVE

    torn = await tenant.tenancy.verify_and_teardown(card.lease)
    assert near(torn.receipt.cost_usd, tenant.metered(box)), (torn.receipt, tenant.metered(box))
