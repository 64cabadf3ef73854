"""A week of twenty leases in virtual time: each is rented, worked on or forgotten, and ended by its own terms.

The world's clock is the ledger's and the provider's: deadlines, budgets, `when_done`, wishes, looks, alarms and the
meter go by it, and a wait takes no time. The boxes' own processes keep real time: a job runs as long as it runs, and the
guard on a box, which counts for itself, sees minutes of this week. A guard that leapt with the world would look every ten
minutes of it, a thousand processes in all. A look comes every six hours, at every deadline, each hour while a wish waits,
and each minute while work that is done is to be ended. `make week` prints what it took.
"""

import asyncio
import os
import random
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Literal

import pytest
from e2e.renting import Tenant, tenant_at

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.domain.model import LeaseId, LeaseState
from gpu_tenant.watchdog.loop import Watchdog

SEED = int(os.environ.get("SEED", "0"))
WEEK_S = 7 * 86400
LEASES = 20
LOOK_S = 6 * 3600
_LATE_S = 600
"""How long after its due time a box may still bill: the proof and a destroy take their time."""
Kind = Literal["done", "hangs", "kept", "forgotten", "waited for"]
KINDS: tuple[Kind, ...] = ("done", "hangs", "kept", "forgotten", "waited for")
GPU = "RTX 4090"


@dataclass
class Tale:
    """One lease of the week."""

    kind: Kind
    begins_s: float
    hours: int
    lease: str = ""
    wish: str = ""
    due_s: float = field(default=0)
    """When its own terms end it, in seconds of the week."""


def tales(seed: int) -> list[Tale]:
    """What is to happen, in order."""
    dice = random.Random(f"week {seed}")
    made = [
        Tale(KINDS[n % len(KINDS)], dice.uniform(0, WEEK_S - 2 * 86400), dice.randint(2, 12))
        for n in range(LEASES)
    ]
    return sorted(made, key=lambda tale: tale.begins_s)


@pytest.mark.timeout(900)
async def test_a_week_of_twenty_leases_ends_each_by_its_terms(tmp_path: Path) -> None:
    began_s, cpu_s, load = monotonic(), _cpu_s(), os.getloadavg()[0]
    boxes_s = sum(os.times()[2:4])
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        told = tales(SEED)
        begun = tenant.stage.world.now
        dog = Watchdog(tenant.anew_tenancy(), every_s=LOOK_S, tell=lambda _: None)
        to_come, looks = list(told), 0
        while (now_s := tenant.stage.world.now - begun) < WEEK_S or any(_is_open(tenant, told)):
            assert now_s < WEEK_S + 2 * 86400, [tale for tale in told if _lives(tenant, tale)]
            while to_come and to_come[0].begins_s <= now_s:
                await _begin(tenant, to_come.pop(0), begun)
            await dog.once()
            looks += 1
            now_s = tenant.stage.world.now - begun
            soon = [LOOK_S, *(max(1.0, t.begins_s - now_s) for t in to_come[:1])]
            soon += [max(1.0, at - now_s) for tale in told for at in _deadline(tenant, tale, begun)]
            soon += [
                3600.0 for tale in told if tale.wish and _lives(tenant, tale) and not tale.lease
            ]
            soon += [60.0 for tale in told if tale.kind == "done" and _lives(tenant, tale)]
            await tenant.clock.sleep(min(soon))

        _all_ended_by_their_terms(tenant, told, begun)
        days = (tenant.stage.world.now - begun) / 86400
        print(
            f"{LEASES} leases, {days:.1f} days, {looks} looks: {monotonic() - began_s:.0f} s, "
            f"{_cpu_s() - cpu_s:.0f} s of processor, {sum(os.times()[2:4]) - boxes_s:.0f} of them on the boxes; load {load:.0f} on {os.cpu_count()} cores"
        )


async def _begin(tenant: Tenant, tale: Tale, begun: float) -> None:
    if tale.kind == "waited for":
        tenant.stage.world.state.price_factor = Decimal(2)
        found = await tenant.tenancy.find_offers(GPU, max_price_usd_h=Decimal("0.45"))
        tale.wish = str(found.wish)
        card = await tenant.tenancy.provision(
            quotes=[tale.wish], smoke="none", hours=tale.hours, wait_h=12, wait_s=0
        )
        assert card.phase == "waiting"
        tenant.stage.world.state.price_factor = Decimal(1)
        tale.due_s = tale.begins_s + 12 * 3600 + tale.hours * 3600
        return
    quotes = await tenant.quotes(gpu=GPU)
    card = await tenant.tenancy.provision(
        quotes=quotes,
        smoke="none",
        hours=tale.hours,
        idle_h=0.0,
        when_done="keep" if tale.kind == "kept" else "",
        wait_s=3600,
    )
    tale.lease = card.lease
    tale.due_s = tenant.lease(card).terms.deadline_at.timestamp() - begun
    if tale.kind == "forgotten":
        return
    ends = "sleep 100000" if tale.kind == "hangs" else "true"
    command = f"mkdir -p out; echo {card.lease} > out/w.txt; {ends}"
    await tenant.tenancy.launch_detached(card.lease, command, ["out/"], name="train")
    if tale.kind != "hangs":
        await _ends(tenant, card.lease)
    if tale.kind == "done":
        tale.due_s = tenant.stage.world.now - begun


async def _ends(tenant: Tenant, lease: str) -> None:
    for _ in range(600):
        if (await tenant.tenancy.monitor(lease, "train", wait_s=0)).state in ENDED:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the job does not end")


def _is_open(tenant: Tenant, told: list[Tale]) -> list[bool]:
    return [True for tale in told if _lives(tenant, tale)]


def _lives(tenant: Tenant, tale: Tale) -> bool:
    ledger = tenant.tenancy.ledger
    if tale.wish and not tale.lease:
        if ledger.wish(tale.wish).stands:
            return True
        had = ledger.leases_of_wish(tale.wish)
        tale.lease = had[-1].id if had else ""
    return bool(tale.lease) and tenant.lease(tale.lease).state.live


def _deadline(tenant: Tenant, tale: Tale, begun: float) -> list[float]:
    """When its lease is over at the latest, in seconds of the week; nothing if it has none that lives."""
    if not tale.lease or not _lives(tenant, tale):
        return []
    return [tenant.lease(tale.lease).terms.deadline_at.timestamp() - begun]


def _all_ended_by_their_terms(tenant: Tenant, told: list[Tale], begun: float) -> None:
    ledger = tenant.tenancy.ledger
    tenant.assert_nothing_bills()
    assert len({tale.lease for tale in told}) == LEASES
    for tale in told:
        lease, receipt = tenant.lease(tale.lease), ledger.receipt(LeaseId(tale.lease))
        assert lease.state is LeaseState.GONE, tale
        assert receipt is not None
        used = tale.kind in ("done", "hangs", "kept")
        assert receipt.ground == ("verified" if used else "never_used"), tale
        kept = tenant.home.artifacts_of(lease.id) / "work" / "out" / "w.txt"
        assert kept.exists() == used, tale
        stopped = max(span.until or 0 for span in tenant.thing(lease.box_id).spans) - begun
        assert stopped <= tale.due_s + _LATE_S, tale
    outcomes = [ledger.wish(tale.wish).outcome for tale in told if tale.wish]
    assert outcomes == ["had"] * (LEASES // len(KINDS))


def _cpu_s() -> float:
    """Seconds of processor that this process and those that it waited for have had."""
    return sum(os.times()[:4])
