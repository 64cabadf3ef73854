"""A pilot rents within its sum, compares all that it sees, ends the box, and tells it without a name."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at

from gpu_tenant.errands.answers import RentalPlan
from gpu_tenant.errands.pilot import Pilot, PilotReport
from gpu_tenant.service import Tenancy


@pytest.fixture
async def renting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at(getattr(request, "param", "runpod"), tmp_path, time="runs") as tenant:
        yield tenant


def a_pilot(
    tenancy: Tenancy, provider: str, most: str = "1.00", agrees: str | None = "yes"
) -> Pilot:
    async def agree(plan: RentalPlan) -> str | None:
        return agrees

    return Pilot(
        tenancy,
        provider,
        Decimal(most),
        hear=print,
        agree=agree,
        agrees_ahead="yes" if agrees == "yes" else "",
        stage="rehearsed",
    )


@pytest.mark.parametrize(
    "renting", ["runpod", "vastai", "lambda_cloud", "digitalocean", "autodl"], indirect=True
)
async def test_where_all_is_as_believed_a_pilot_finds_no_difference(renting: Tenant) -> None:
    report: PilotReport = await a_pilot(renting.tenancy, renting.slug).go()

    assert report.differs == ()
    assert report.drift == ()
    assert report.ended == "gone"
    assert renting.creates() == 1
    renting.assert_nothing_bills()
