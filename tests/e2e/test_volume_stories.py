"""Sixty lives of a volume, drawn: two boxes in turn, another region, not mounted, deleted under us, left behind, ended."""

import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from signed import with_signature

from gpu_tenant.domain.errors import Refused, TenantError
from gpu_tenant.domain.volumes import Volume
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.volumes import create_volume, destroy_volume

STORIES = 60
EVERY = 1 if os.environ.get("GPU_TENANT_TORTURE") else 9
"""Of these stories, one in so many is told with every change, and each by `make torture`.

It has no divisor in common with the number of platforms, so that none is left out.
"""
CACHE_BYTES = 5 * 10**9
REGIONS = {
    "runpod": ("EU-RO-1", "US-KS-2", "US-TX-3"),
    "digitalocean": ("atl1", "nyc2", "tor1"),
    "gcp": ("us-central1-a", "us-central1-b", "us-east1-c"),
    "lambda_cloud": ("us-east-1", "us-east-3", "us-south-1", "us-west-1"),
    "vastai": ("41", "43", "44", "46"),
}
"""Each platform's regions that have a GPU at a known price. At Google these are zones, at Vast.ai machines."""
AT = sorted(REGIONS)


class Story:
    """One volume, and who uses it."""

    def __init__(self, tenant: Tenant, seed: int) -> None:
        self.tenant, self.draw = tenant, random.Random(f"volume {seed}")
        self.regions = REGIONS[tenant.slug]
        self.region, self.size_gb = self.draw.choice(self.regions), self.draw.randint(10, 250)
        self.order = tenant.root / "gpu-tenant.toml"
        self.order.write_text('[volumes.data]\npath = "/data"\n', encoding="utf-8")

    async def made(self) -> Volume:
        """Where nobody knows its price, a person signs for that."""
        tenancy = self.tenant.tenancy
        return await with_signature(
            tenancy,
            lambda: create_volume(
                tenancy.context,
                "data",
                provider=self.tenant.slug,
                region=self.region,
                size_gb=self.size_gb,
            ),
        )

    async def boxed(self, *, wait_s: float = 3600) -> Card:
        quotes = await self.tenant.quotes(order=str(self.order))
        return await self.tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=wait_s)

    def disk(self, card: Card) -> Path:
        place = self.tenant.lease(card).place
        assert place is not None
        return Path(place.volumes[0].at)

    async def ended(self, card: Card) -> None:
        await self.tenant.tenancy.verify_and_teardown(card.lease)
        self.tenant.wait(self.draw.randint(60, 400_000))

    # --- what happens

    async def in_turn(self) -> None:
        """The second box finds the cache of the first on the same disk: not one byte of it is moved."""
        first = await self.boxed()
        cache = self.disk(first) / "cache"
        with cache.open("wb") as file:
            file.truncate(CACHE_BYTES)
        was = cache.stat()
        await self.ended(first)
        second = await self.boxed()
        now = (self.disk(second) / "cache").stat()
        assert (now.st_dev, now.st_ino, now.st_size) == (was.st_dev, was.st_ino, CACHE_BYTES)
        assert self.tenant.tenancy.ledger.sent_versions(second.lease) == {}
        with pytest.raises(Refused, match="uses the volume data"):
            await destroy_volume(self.tenant.tenancy.context, "data")
        await self.ended(second)

    async def elsewhere(self) -> None:
        """A box of another region cannot see it, and is none."""
        other = self.draw.choice([region for region in self.regions if region != self.region])
        wanted = {"host": f"vastai:{other}"} if self.tenant.slug == "vastai" else {"region": other}
        found = await self.tenant.tenancy.search_offers(order=str(self.order), **wanted)
        assert found.offers == ()

    async def not_mounted(self) -> None:
        """The platform mounts nothing there: nobody works on that box, and the volume stays."""
        with self.tenant.stage.nothing_mounted(), suppress(TenantError):
            card = await self.boxed(wait_s=400)
            assert card.phase != "ready"
        for lease in self.tenant.tenancy.ledger.leases("live"):
            await self.tenant.tenancy.verify_and_teardown(lease.id)
        assert self.tenant.alive == []

    async def by_hand(self) -> None:
        """Somebody's own box has it: it is not ended under that box, whoever signs."""
        (volume,) = self.tenant.tenancy.ledger.volumes()
        assert volume.volume_id is not None
        box = self.tenant.stage.rent_by_hand(volume.volume_id)
        with pytest.raises(Refused, match="as its provider says"):
            await self.signed_end()
        self.tenant.stage.end_by_hand(box)
        self.tenant.wait(60)

    async def signed_end(self) -> Volume:
        tenancy = self.tenant.tenancy
        return await with_signature(tenancy, lambda: destroy_volume(tenancy.context, "data"))


async def deleted_under_us(story: Story) -> None:
    (volume,) = story.tenant.tenancy.ledger.volumes()
    story.tenant.stage.world.end(story.tenant.thing(volume.volume_id), status="deleted")
    for _ in range(2):
        story.tenant.wait(60)
        await story.tenant.tenancy.list_leases()


async def left_behind(story: Story) -> None:
    story.tenant.wait(30 * 86_400)


async def ended(story: Story) -> None:
    await story.signed_end()


ENDS: tuple[Callable[[Story], Awaitable[None]], ...] = (deleted_under_us, left_behind, ended)


@pytest.mark.parametrize("seed", range(0, STORIES, EVERY))
async def test_a_volume_is_told_as_it_is(seed: int, tmp_path: Path) -> None:
    async with tenant_at(AT[seed % len(AT)], tmp_path) as tenant:
        story = Story(tenant, seed)
        await story.made()
        chapters = (story.in_turn, story.elsewhere, story.not_mounted, story.by_hand)
        for chapter in story.draw.sample(chapters, story.draw.randint(1, 3)):
            await chapter()
            assert len(tenant.stage.world.volumes()) == 1, chapter.__name__
        end = story.draw.choice(ENDS)
        await end(story)

        told = await tenant.tenancy.list_leases()
        left = tenant.stage.world.volumes()
        assert len(left) == (end is left_behind)
        assert len(told.also_billing) == len(left), told.also_billing
        unpriced = [v for v in tenant.tenancy.ledger.volumes() if v.usd_month is None]
        if not unpriced:
            # What is told is what the provider's own meter bills, to a hundredth of a cent an hour.
            assert abs(told.burning_usd_h - tenant.billing_usd_h) <= Decimal("0.0001")
        assert told.leaking_usd_month == sum(
            v.usd_month or 0 for v in tenant.tenancy.ledger.volumes()
        )
        assert len(told.not_counted) == len(unpriced), told.not_counted
