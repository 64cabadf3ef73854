"""A tenant at a rehearsal who has one lease, and whoever looks after it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from e2e.renting import Tenant, tenant_at

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.leases.cards import Card
from gpu_tenant.watchdog.loop import Watchdog, WatchReport

SAVES = """\
trap 'echo whole > out/final.txt; exit 0' TERM
mkdir -p out; n=0
while :; do n=$((n+1)); echo $n > out/.new; mv out/.new out/step.txt; sleep 0.05; done
"""
"""A job that never ends by itself, and saves its work when it is asked to go."""


class Scene:
    """A tenant who has one lease, and the watchdog that looks after it."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.lease = ""

    async def rent(self, **terms: Any) -> Card:
        quotes = await self.tenant.quotes(hours=1)
        card = await self.tenant.tenancy.provision(
            smoke="none",
            quotes=quotes[:1],
            wait_s=3600,
            unguarded="accept",
            **{"hours": 2, "idle_h": 0.0, "when_done": "keep", **terms},
        )
        self.lease = card.lease
        return card

    async def work(self, command: str = SAVES, artifacts: tuple[str, ...] = ("out/",)) -> None:
        await self.tenant.tenancy.launch_detached(
            self.lease, command, list(artifacts), name="train"
        )

    async def job(self) -> str:
        return (await self.tenant.tenancy.monitor(self.lease, "train", wait_s=0)).state

    async def ends(self) -> None:
        await self.job_ends("train")

    async def job_ends(self, name: str) -> None:
        for _ in range(100):
            if (await self.tenant.tenancy.monitor(self.lease, name, wait_s=0)).state in ENDED:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the job does not end")

    async def look(self, every_s: float = 60) -> WatchReport:
        return await Watchdog(self.tenant.tenancy, every_s=every_s, tell=lambda _: None).once()

    async def later(self, **time: float) -> WatchReport:
        """A look after that much time, of a watchdog that knows nothing of the one before."""
        await self.tenant.clock.sleep(timedelta(**time).total_seconds())
        return await self.look()

    @property
    def state(self) -> LeaseState:
        return self.tenant.lease(self.lease).state

    @property
    def kinds(self) -> list[str]:
        return [line.kind for line in self.tenant.tenancy.ledger.events(self.lease)]

    def alarms(self) -> dict[str, tuple[Level, str]]:
        return {
            alarm.key: (alarm.level, alarm.words)
            for alarm in self.tenant.tenancy.ledger.open_alarms()
            if alarm.lease_id == self.lease
        }

    def kept(self) -> Path:
        return self.tenant.home.artifacts_of(self.lease) / "work"

    def asked(self, method: str, path: str) -> int:
        return sum(
            line["method"] == method and path in line["path"]
            for line in self.tenant.ask("requests")
        )


@asynccontextmanager
async def scene_at(provider: str, root: Path, *, time: Any = "runs") -> AsyncIterator[Scene]:
    async with tenant_at(provider, root, time=time) as tenant:
        yield Scene(tenant)
