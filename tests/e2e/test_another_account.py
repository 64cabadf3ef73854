"""What another account's list, or another server's, omits is not gone: nothing of ours ends by it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e.renting import NearClock, Tenant, tenant_at

from gpu_tenant.domain.errors import ProviderTrouble
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.emulators.server import Stage
from gpu_tenant.emulators.world import NEW_KEY
from gpu_tenant.service import Tenancy

KEYS = {
    "vastai": "VAST_API_KEY",
    "runpod": "RUNPOD_API_KEY",
    "lambda_cloud": "LAMBDA_API_KEY",
    "digitalocean": "DIGITALOCEAN_TOKEN",
}
"""Google's boxes are a project's, whoever asks for them."""


@pytest.fixture(params=sorted(KEYS))
async def tenant(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at(request.param, tmp_path) as somebody:
        yield somebody


class TwoClocks(NearClock):
    """The first stage's; what passes there passes at the other, too."""

    def __init__(self, stage: Stage, other: Stage) -> None:
        super().__init__(stage)
        self._other = other

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self._other.world.advance(seconds)


@contextmanager
def another_stage(tenant: Tenant, root: Path) -> Iterator[Stage]:
    """The same provider with nobody's boxes; time passes at both."""
    clock = tenant.clock
    with Stage(tenant.slug, root / "other", way="local", time="frozen") as other:
        tenant.clock = TwoClocks(tenant.stage, other)  # type: ignore[assignment]
        yield other
    tenant.clock = clock


async def looked(tenant: Tenant, tenancy: Tenancy, *, times: int = 5) -> list[str]:
    """What is told in so many looks, each of which would count."""
    alarms: list[str] = []
    for _ in range(times):
        await tenant.clock.sleep(300)
        alarms += (await tenancy.list_leases()).alarms
    return alarms


async def test_another_key_of_the_same_account_goes_on_working(tenant: Tenant) -> None:
    card = await tenant.rented()
    assert card.box is not None
    renewed = tenant.anew_tenancy(**{KEYS[tenant.slug]: NEW_KEY})

    del tenant.stage.world.state.things[card.box]
    alarms = await looked(tenant, renewed)

    assert tenant.lease(card).state is LeaseState.LOST
    assert not any("account" in words for words in alarms)


async def test_another_account_s_key_loses_no_lease_and_files_no_receipt(
    tenant: Tenant, tmp_path: Path
) -> None:
    card = await tenant.rented()
    with another_stage(tenant, tmp_path) as other:
        stranger = tenant.anew_tenancy(api=other.url, **{KEYS[tenant.slug]: NEW_KEY})
        alarms = await looked(tenant, stranger)
        with pytest.raises(ProviderTrouble, match="proves nothing"):
            await stranger.verify_and_teardown(card.lease)
        alarms += await looked(tenant, stranger)

        assert tenant.lease(card).state is LeaseState.TERMINATING
        assert tenant.tenancy.ledger.receipt(card.lease) is None
        assert any("proves nothing" in words and "--same-account" in words for words in alarms)
        assert tenant.alive == [card.box]

    torn = await tenant.tenancy.verify_and_teardown(card.lease)

    assert torn.state is LeaseState.GONE
    tenant.assert_nothing_bills()
