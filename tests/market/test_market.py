"""Market days for a wish that waits: never above the cap, never two boxes, and what it paid. `make market` tries 100."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import median

import pytest
from e2e.renting import tenant_at
from market.days import WAIT_S, Day, day

from gpu_tenant.domain.errors import LeaseHeld
from gpu_tenant.leases.wait import look_for
from gpu_tenant.service import Tenancy

MARKET = int(os.environ.get("MARKET", "0"))
SEED = int(os.environ.get("SEED", "0"))
_SAMPLE = 4
_TICK_S = 60


@dataclass(frozen=True)
class Paid:
    """What one day came to."""

    day: Day
    boxes: int
    usd_h: float | None
    after_s: float | None


@pytest.mark.timeout(max(900, MARKET * 60))
async def test_a_wish_that_waits_pays_what_fits_and_rents_one_box(tmp_path: Path) -> None:
    seeds = range(SEED, SEED + (MARKET or _SAMPLE))
    paid = [await lived(day(seed), tmp_path / str(seed)) for seed in seeds]

    print("\n".join(table(paid)))
    assert [one for one in paid if one.boxes > 1] == []
    assert [one for one in paid if one.usd_h is not None and one.usd_h > one.day.cap_usd_h] == []
    both = [(one.usd_h, one.day.first_usd_h) for one in paid if one.usd_h and one.day.first_usd_h]
    assert both, "on no day was anything had"
    if MARKET >= 20:
        assert sum(had for had, _ in both) <= 1.05 * sum(first for _, first in both)


async def lived(of: Day, root: Path) -> Paid:
    """Two processes wait in that day, and look at once."""
    async with tenant_at("vastai", root) as tenant:
        tenant.stage.world.state.facts["market_day"] = of.asks
        first, second = tenant.tenancy, tenant.anew_tenancy()
        begun = tenant.clock.now()
        found = await first.find_offers(
            "RTX 4090", 3, Decimal(str(of.cap_usd_h)), provider="vastai", limit=1
        )
        await first.provision(
            quotes=[str(found.wish)], smoke="none", wait_h=WAIT_S / 3600, wait_s=0
        )
        wish = str(found.wish)
        while first.ledger.wish(wish).stands:
            await asyncio.gather(_looks(first, wish), _looks(second, wish))
            await tenant.clock.sleep(_TICK_S)
        leases = [lease for lease in first.ledger.leases() if lease.ready_at is not None]
        price = leases[0].price_usd_h if leases else None
        after = (leases[0].created_at - begun).total_seconds() if leases else None
        boxes = sum(thing.kind == "box" for thing in tenant.stage.world.state.things.values())
        return Paid(of, max(boxes, len(leases)), None if price is None else float(price), after)


async def _looks(tenancy: Tenancy, wish: str) -> None:
    try:
        await look_for(tenancy.context, wish, wait_s=0)
    except LeaseHeld:
        return


def table(paid: list[Paid]) -> Iterator[str]:
    """What was had, when, and how it compares with the two oracles."""
    had = [one for one in paid if one.usd_h is not None]
    could = [one for one in paid if one.day.first_usd_h is not None]
    yield f"days {len(paid)}, had on {len(had)}; an oracle: on {len(could)}; rented above the cap: 0 of {len(had)}"
    for name, price in (("the first that fits", "first_usd_h"), ("all-knowing", "best_usd_h")):
        pairs = [
            (one.usd_h or 0, getattr(one.day, price)) for one in had if getattr(one.day, price)
        ]
        more = [(usd / other - 1) * 100 for usd, other in pairs]
        total = (sum(usd for usd, _ in pairs) / sum(other for _, other in pairs) - 1) * 100
        yield f"{name:20}: paid {total:+.1f} % in all; a day: median {median(more):+.1f} %, most {max(more):+.1f} %"
    waited = sorted(one.after_s or 0 for one in had)
    yield f"waited: median {median(waited) / 60:.0f} min, most {waited[-1] / 60:.0f} min"
