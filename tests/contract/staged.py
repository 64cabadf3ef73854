"""A provider on stage, frozen in time but for our waiting, and everything that a test asks of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from urllib.request import Request, urlopen

from arranged import lease as arranged_lease

from gpu_tenant.app import connect
from gpu_tenant.domain.model import Box, BoxState, Lease, LeaseId, LeaseState
from gpu_tenant.domain.offers import Offer, Quote, Wish
from gpu_tenant.domain.ports import Connector, Market
from gpu_tenant.domain.terms import Terms
from gpu_tenant.emulators.rehearsal_client import RehearsalClock
from gpu_tenant.emulators.server import Stage
from gpu_tenant.files.skill_files import skill_directory
from gpu_tenant.files.state_dir import Home
from gpu_tenant.providers.profiles import load_profiles

PROFILES = load_profiles(skill_directory() / "profiles")
SOURCES = Path(__file__).parents[2] / "mcp_server" / "gpu_tenant"
RENTED = sorted(slug for slug, p in PROFILES.items() if p.credential is not None)
"""Every platform whose boxes are rented through an API with a key."""
CLUSTERS = {slug for slug, p in PROFILES.items() if p.kind in ("scheduler", "kubernetes")}
"""They are installed and started by our own tests, and under contract there: nothing has to be rehearsed."""


@dataclass
class Staged:
    """One rehearsal, and a connector to it."""

    stage: Stage
    root: Path

    def __post_init__(self) -> None:
        self.profile = PROFILES[self.stage.provider]
        self.clock = RehearsalClock(self.stage.url, really_s=0)
        self.home = Home(self.root / "tenant")
        self.stage.begin_at(self.home.root)

    @cached_property
    def connector(self) -> Connector:
        made = self.anew()
        assert made is not None
        return made

    def anew(self) -> Connector | None:
        """A connector as another process would make it."""
        return connect(self.profile, self.home, self.stage.environment, self.clock)

    # --- the control surface

    def ask(self, path: str, body: object = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.stage.url}/_rehearsal/{path}", sent)
        with urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def fault(self, do: str, method: str = "", path: str = "", **more: object) -> None:
        """It goes wrong so: at once, or on the next request of that kind."""
        match = {"match": {"method": method, "path_regex": path}} if method or path else {}
        self.ask("faults", [{"do": do, **match, **more}])

    @property
    def own_faults(self) -> set[str]:
        return set(self.ask("faults"))

    def wait(self, seconds: float) -> None:
        self.ask("clock", {"advance_s": seconds})

    @property
    def meter(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.ask("meter"))

    @property
    def alive(self) -> list[str]:
        """The ids of every box that bills or could."""
        return [box["id"] for kind in ("running", "parked") for box in self.meter[kind]]

    @property
    def billing_usd_h(self) -> Decimal:
        return Decimal(self.meter["usd_h"])

    # --- a lease to come

    async def offer(self, **wish: object) -> Offer:
        """The cheapest of the plain offers."""
        assert isinstance(self.connector, Market)
        offers = await self.connector.offers(Wish.model_validate(wish))
        priced = [o for o in offers if o.price.running_usd_h is not None and not o.interruptible]
        assert priced, offers
        return min(priced, key=lambda o: (o.price.running_usd_h, o.id))

    async def intent(self, name: str = "aaaa", **wish: object) -> Lease:
        """A lease that wants the cheapest offer."""
        offer = await self.offer(**wish)
        assert offer.price.running_usd_h is not None
        now = self.clock.now()
        quote = Quote(
            id="q-test",
            offer=offer,
            wish=Wish.model_validate(wish),
            cap_usd_h=offer.price.running_usd_h,
            expires_at=now + timedelta(minutes=10),
        )
        slug = self.stage.provider
        return arranged_lease(
            LeaseState.INTENDED,
            lease_id=LeaseId(f"{slug}-{name}"),
            provider=slug,
            terms=Terms(deadline_at=now + timedelta(hours=8), max_price_usd_h=quote.cap_usd_h),
        ).model_copy(update={"quote": quote, "mark": f"gpu-tenant:0a1b2c:{slug}-{name}"})

    async def ready(self, intent: Lease, *, within_s: float = 1200) -> Box:
        """The box of `intent`, when its provider shows it as ready."""
        for _ in range(int(within_s / 10)):
            for box in await self.connector.list_boxes():
                if box.mark == intent.mark and box.state is BoxState.READY and box.address:
                    return box
            self.wait(10)
        raise AssertionError(await self.connector.list_boxes())


@contextmanager
def on_stage(provider: str, root: Path) -> Iterator[Staged]:
    """That provider's rehearsal, until the block is left."""
    with Stage(provider, root / "stage", way="local", time="frozen") as stage:
        yield Staged(stage, root)
