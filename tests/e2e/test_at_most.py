"""Whatever is called the most that a lease costs is compared with the provider's own meter, a day after its end."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from at_most import allowed_usd
from e2e.renting import tenant_at
from e2e.watching import SAVES, Scene

from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.policy import most_words, running_usd_h

ENDINGS = (
    ("vastai", "nobody looks", {}),
    ("runpod", "nobody looks", {}),
    ("vastai", "is watched", {"budget_usd": Decimal("0.40"), "hours": 3}),
    ("lambda_cloud", "is lost", {}),
    ("vastai", "is lost", {}),
)


@pytest.mark.parametrize(("provider", "ending", "terms"), ENDINGS)
async def test_the_meter_never_passes_what_was_called_the_most(
    provider: str, ending: str, terms: dict[str, Any], tmp_path: Path
) -> None:
    async with tenant_at(provider, tmp_path, time="runs", box_time="leaps") as tenant:
        scene, clock = Scene(tenant), tenant.clock
        begun = clock.now()
        await scene.rent(**terms)
        lease = tenant.lease(scene.lease)
        told = most_words(lease, tenant.tenancy.context.profile(provider), "watched", now=begun)
        await scene.work(SAVES)
        if ending == "is watched":
            for _ in range(40):
                await scene.later(minutes=5)
                if scene.state is not LeaseState.ACTIVE or tenant.lease(lease.id).parked_at:
                    break
        if ending == "is lost":
            await clock.sleep(3600)
            tenant.fault("host_lost", box=str(lease.box_id))
        await clock.sleep(
            max(0.0, (lease.terms.deadline_at - clock.now()).total_seconds()) + 4 * 3600
        )
        for _ in range(20):
            await scene.later(hours=1)

        days = Decimal((clock.now() - lease.terms.deadline_at).total_seconds()) / 86400
        most = allowed_usd(told or "", usd_h=running_usd_h(lease) or Decimal(0), days=days)
        assert most is not None, told
        assert tenant.metered(lease.box_id) <= most, (told, scene.alarms())
