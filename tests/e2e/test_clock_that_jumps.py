"""A clock of this computer that jumps while a box bills is told from the provider's time, and makes the receipt a range."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from e2e.renting import Tenant, tenant_at

from gpu_tenant.domain.receipt import Receipt


async def _ended(tenant: Tenant, jump: timedelta) -> Receipt:
    card = await tenant.rented()
    await tenant.clock.sleep(600)
    clock: Any = tenant.clock
    clock.ahead = jump
    await tenant.tenancy.list_leases()
    await tenant.clock.sleep(600)
    return (await tenant.tenancy.verify_and_teardown(card.lease)).receipt


@pytest.mark.parametrize("provider", ["vastai", "lambda_cloud"])
@pytest.mark.parametrize("hours", [6, -1])
async def test_a_jump_makes_the_receipt_a_range_that_has_the_real_sum(
    provider: str, hours: float, tmp_path: Path
) -> None:
    async with tenant_at(provider, tmp_path, time="runs") as tenant:
        receipt = await _ended(tenant, timedelta(hours=hours))

        real = tenant.metered(receipt.box_id)
        assert "this computer's clock jumped" in receipt.counts
        assert receipt.cost_least_usd is not None
        assert receipt.cost_most_usd is not None
        slack = Decimal("0.02")
        assert receipt.cost_least_usd - slack <= real <= receipt.cost_most_usd + slack


async def test_a_clock_that_does_not_jump_makes_no_range(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        receipt = await _ended(tenant, timedelta(seconds=30))

        assert "clock" not in receipt.counts


async def test_a_clock_that_was_always_wrong_makes_no_range(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        clock: Any = tenant.clock
        clock.ahead = timedelta(hours=3)

        receipt = await _ended(tenant, timedelta(hours=3))

        assert "jumped" not in receipt.counts
