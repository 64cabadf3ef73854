"""A tenant at one provider's rehearsal, and what the provider's own meter says of it."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from urllib.request import Request, urlopen

import pytest
from contract.staged import PROFILES, RENTED, Staged
from contract.test_providers import CREATE, DESTROY, LIST

from gpu_tenant.app import connect
from gpu_tenant.domain.errors import BoxUnreachable
from gpu_tenant.domain.model import Lease, LocalAddress, SshAddress
from gpu_tenant.domain.ports import Connector, Transport
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.emulators.rehearsal_client import really_at
from gpu_tenant.emulators.server import Stage
from gpu_tenant.emulators.world import Thing
from gpu_tenant.files.rehearsal_marker import Rehearsal, put_rehearsal
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.context import Context
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.digitalocean.connector import DigitalOceanConnector
from gpu_tenant.service import Tenancy
from gpu_tenant.transports.local import LocalTransport

KEY_LINE = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIO5PcPo3x7yyWPCPwGCQ7FjRjKZw1L3YNyZdWpEEf6pE gpu-tenant"
)
FOREVER = 10_000
"""So many times that every try of every call fails."""
EVERYTHING = r"^/(?!_rehearsal)"
MOVING = [slug for slug in RENTED if slug not in ("gcp", "autodl")]
"""Where a price can move: Google's come from a table of ours, AutoDL's from its owner."""
USD_STEP = Decimal("0.01")


def at_two(turn: int, among: Sequence[str] = RENTED) -> pytest.MarkDecorator:
    """The test is tried at two of these providers, at others in another turn; with `make torture` at all.

    What every connector must hold by itself is tried at all of them, always: tests/contract.
    """
    torture = bool(os.environ.get("GPU_TENANT_TORTURE"))
    at = among if torture else [among[turn % len(among)], among[(turn + 3) % len(among)]]
    return pytest.mark.parametrize("tenant", at, indirect=True)


class QuickClock:
    """The rehearsal's clock; waiting takes no time."""

    shared_with_boxes = False

    def __init__(self, url: str) -> None:
        self._url = f"{url}/_rehearsal/clock"

    def now(self) -> datetime:
        return datetime.fromisoformat(json.loads(self._told(Request(self._url)))["now"])

    async def sleep(self, seconds: float) -> None:
        """All of it passes there, and nothing here."""
        body = json.dumps({"advance_s": seconds}).encode()
        await asyncio.to_thread(self._told, Request(self._url, body))

    async def follow(self, seconds: float) -> None:
        """As above: nobody looks on here."""
        await self.sleep(seconds)

    @staticmethod
    def _told(request: Request) -> bytes:
        with urlopen(request, timeout=600) as answer:
            told: bytes = answer.read()
            return told


class NearClock(QuickClock):
    """One that is read where it is: most of a test's requests would ask for the time."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.url)
        self._stage = stage
        self.ahead = timedelta(0)
        """By how much this computer's clock is wrong."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._stage.world.now, UTC) + self.ahead


@dataclass
class Tenant(Staged):
    """Somebody who rents at that stage, with a state directory of their own."""

    opened: list[Tenancy] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.profile = PROFILES[self.slug]
        self.clock = NearClock(self.stage)  # type: ignore[assignment]
        self.home = Home(self.root / "tenant")
        self.stage.begin_at(self.home.root)

    @property
    def slug(self) -> str:
        return self.stage.provider

    @property
    def tenancy(self) -> Tenancy:
        """Always the same one."""
        return self.opened[0] if self.opened else self.anew_tenancy()

    def anew_tenancy(self, *, api: str | None = None, **changed: str) -> Tenancy:
        """One as another process would open it; boxes are directories, and long waiting takes no time.

        `changed` is what is otherwise in its environment than the stage says; `api` is where else its
        provider is asked.
        """
        environ = {**self.stage.environment, **changed}
        self.home.root.mkdir(exist_ok=True, parents=True)
        self.home.client_key.parent.mkdir(exist_ok=True)
        self.home.client_key.write_text("never read: nobody logs in by ssh here", encoding="utf-8")
        self.home.client_key.with_suffix(".pub").write_text(KEY_LINE, encoding="utf-8")
        if api is not None:
            put_rehearsal(self.home.root, Rehearsal(provider=self.slug, url=api))
        connectors: dict[str, Connector] = {}
        for slug in (self.slug, "own"):
            made = connect(PROFILES[slug], self.home, environ, self.clock)
            assert made is not None
            connectors[slug] = made
        self.stage.begin_at(self.home.root)
        ledger = Ledger(self.home.ledger, self.clock)
        assert ledger.be_rehearsed()
        tenancy = Tenancy(
            Context(
                home=self.home,
                ledger=ledger,
                profiles={slug: PROFILES[slug] for slug in connectors},
                connectors=connectors,
                open_transport=self._way_to,
                introduce=self._introduced,
                public_key=lambda: KEY_LINE,
                environ={},
            )
        )
        self.opened.append(tenancy)
        return tenancy

    def _way_to(self, lease: Lease) -> Transport:
        if lease.address is None:  # as in `app`
            raise BoxUnreachable(f"the box of {lease.id} has no address yet", remedy="look again")
        assert isinstance(lease.address, SshAddress), "no box of this provider is at hand"
        at = really_at(self.stage.url, lease.address.target)
        assert isinstance(at, LocalAddress), (lease.address, at)
        return LocalTransport(Path(at.directory), programs=at.programs)

    async def _introduced(self, lease: Lease, password: str) -> None:
        raise AssertionError("no box that this program rents takes a password")

    # --- what goes wrong

    def create_fails(self, do: str, **more: Any) -> None:
        self.fault(do, *CREATE[self.slug], **more)

    def destroy_fails(self, do: str, **more: Any) -> None:
        self.fault(do, *DESTROY[self.slug], **{"times": FOREVER, **more})

    def list_fails(self, **more: Any) -> None:
        self.fault("status", *LIST[self.slug], **{"status": 503, "times": FOREVER, **more})

    def all_is_well(self) -> None:
        """Nothing goes wrong with any request any more."""
        self.stage.world.state.faults.clear()

    # --- what is rented

    async def quotes(self, **wish: Any) -> list[str]:
        """What can be rented, the cheapest first."""
        found = await self.tenancy.find_offers(**{"provider": self.slug, **wish})
        priced = sorted(
            (o for o in found.offers if o.quote), key=lambda o: o.running_usd_h or Decimal(0)
        )
        assert priced, found
        return [offer.quote for offer in priced if offer.quote]

    async def rented(self, *, hours: float = 1, wait_s: float = 3600) -> Card:
        """The card of the cheapest box, when it has let us in."""
        quotes = await self.quotes(hours=hours)
        card = await self.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=wait_s)
        assert card.box is not None
        return card

    def lease(self, card: Card | str) -> Lease:
        return self.tenancy.ledger.lease(card if isinstance(card, str) else card.lease)

    async def key_is_known(self) -> None:
        """The provider has known our key for a while, as after an earlier rental."""
        connector = self.tenancy.context.connectors[self.slug]
        if isinstance(connector, DigitalOceanConnector) and not self.creates():
            await connector._key_id()
            await self.clock.sleep(60)

    def creates(self) -> int:
        """How often a box was asked for."""
        method, path = CREATE[self.slug]
        return sum(
            line["method"] == method
            and re.search(path, line["path"]) is not None
            and line["status"]
            != 422  # DigitalOcean did not know the new key yet, and was asked again
            for line in self.ask("requests")
        )

    def home_of(self, box: str) -> Path:
        """The box's home directory."""
        at = really_at(self.stage.url, self.thing(box).target or "")
        assert isinstance(at, LocalAddress)
        return Path(at.directory)

    def top_of(self, box: str) -> Path:
        """The disk of the box on which leases have their directories."""
        home = self.home_of(box)
        return next((d for d in home.parent.glob("disk-*") if (d / "gpu-tenant").exists()), home)

    # --- money

    def thing(self, box: str | None) -> Thing:
        """The box as the provider's books have it."""
        assert box is not None
        return self.stage.world.state.things[box]

    def metered(self, box: str | None) -> Decimal:
        """What the provider has billed for that box."""
        return Decimal(self.meter["by_thing"][box])

    def assert_no_destroy_was_asked(self) -> None:
        method, path = DESTROY[self.slug]
        asked = [x for x in self.ask("requests") if x["method"] == method and path in x["path"]]
        assert asked == []

    def assert_nothing_bills(self) -> None:
        assert self.alive == []
        assert self.billing_usd_h == 0
        assert self.meter["leaked"] == []

    def assert_agrees(self, receipt: Receipt) -> None:
        """The receipt's sum is the meter's, but for one rounding step of each rate and for the time
        in which a box of ours was not billed in full: until it has booted, and while it goes.
        """
        assert receipt.cost_usd is not None
        lease, thing = self.lease(receipt.lease_id), self.thing(receipt.box_id)
        dearest = max(rate.usd_h or Decimal(0) for rate in lease.rates)
        tariff = self.stage.world.tariff
        steps_s = max(tariff.rounding_s, tariff.minimum_s) * len(thing.spans)
        begun = [s.since for s in thing.spans if s.component == "gpu"]
        ended = max((s.until or 0 for s in thing.spans), default=0)
        free_s = max(0.0, min(begun, default=ended) - lease.rates[0].at.timestamp())
        free_s += max(0.0, receipt.first_absent_at.timestamp() - ended)
        if not begun:  # it never ran: all of its life may have been free
            free_s = (receipt.first_absent_at - lease.rates[0].at).total_seconds()
        apart = receipt.cost_usd - self.metered(receipt.box_id)
        step = dearest * Decimal(steps_s) / 3600 + USD_STEP / 100
        assert -step <= apart <= step + dearest * Decimal(free_s) / 3600, (
            receipt.cost_usd,
            self.metered(receipt.box_id),
            thing.spans,
            lease.rates,
        )


@asynccontextmanager
async def tenant_at(
    provider: str,
    root: Path,
    *,
    time: Literal["runs", "frozen"] = "frozen",
    box_time: Literal["real", "leaps"] = "real",
) -> AsyncIterator[Tenant]:
    """Somebody at that provider's rehearsal; nothing of it runs when the block has been left.

    Where a job runs, time does too. The guard on its box goes by real time, or by the rehearsal's leaps.
    """
    if provider == "gcp":  # a busy machine takes longer than a provider is waited for
        import_module("google.cloud.compute_v1")
    with Stage(provider, root / "stage", way="local", time=time, box_time=box_time) as stage:
        tenant = Tenant(stage, root)
        try:
            yield tenant
        finally:
            for tenancy in tenant.opened:
                await tenancy.aclose()
