"""One rented lease, told at a rehearsal by processes that are killed, over a network that cheats."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from contract.staged import PROFILES
from crash.mortal import Fate, MortalLedger

from gpu_tenant.app import connect
from gpu_tenant.domain.errors import BoxUnreachable, ProviderSilent
from gpu_tenant.domain.model import Box, Lease, LeaseState, LocalAddress, SshAddress
from gpu_tenant.domain.offers import Leftover, Offer, Wish
from gpu_tenant.domain.permit import TeardownPermit
from gpu_tenant.domain.ports import Transport
from gpu_tenant.emulators.rehearsal_client import RehearsalClock, really_at
from gpu_tenant.emulators.server import Stage
from gpu_tenant.files.rehearsal_marker import Rehearsal, put_rehearsal
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.lifecycle import reconcile_all
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy
from gpu_tenant.transports.local import LocalTransport

KEY_LINE = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIO5PcPo3x7yyWPCPwGCQ7FjRjKZw1L3YNyZdWpEEf6pE gpu-tenant"
)


@dataclass(frozen=True)
class Trouble:
    """What the network does to one request, and how long the provider's list lags."""

    provider: str
    fault: dict[str, object] | None
    list_lag_s: float
    name: str


class MortalConnector:
    """A real connector; each call is an effect."""

    def __init__(self, real: Any, fate: Fate) -> None:
        self._real, self._fate = real, fate

    async def create(self, lease: Lease) -> Box:
        with self._fate.effect("create"):
            box: Box = await self._real.create(lease)
            return box

    async def list_boxes(self) -> Sequence[Box]:
        with self._fate.effect("list"):
            boxes: Sequence[Box] = await self._real.list_boxes()
            return boxes

    async def destroy(self, permit: TeardownPermit) -> None:
        with self._fate.effect("destroy"):
            await self._real.destroy(permit)

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        with self._fate.effect("offers"):
            offers: Sequence[Offer] = await self._real.offers(wish)
            return offers

    async def leftovers(self) -> Sequence[Leftover]:
        with self._fate.effect("leftovers"):
            left: Sequence[Leftover] = await self._real.leftovers()
            return left


class SlowClock(RehearsalClock):
    """On a busy computer each wait lasts longer than was asked: fewer looks, and each another moment."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(6 * seconds)


class Scene:
    """A stage in a process of its own, and a state directory for the tenants who come and die."""

    def __init__(self, provider: str, directory: Path) -> None:
        self.directory = directory
        self.provider = provider
        directory.mkdir(parents=True)
        # Once, and not in every process that is forked to die.
        for module in ("httpx", *(["google.cloud.compute_v1"] if provider == "gcp" else [])):
            import_module(module)
        answers, says = os.pipe()
        self._child = os.fork()
        if not self._child:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            with Stage(provider, directory / "stage", way="local", time="frozen") as stage:
                os.write(says, json.dumps([stage.url, stage.environment]).encode())
                os.close(says)
                stage.wait()
            os._exit(0)
        os.close(says)
        with os.fdopen(answers, "rb") as pipe:
            self.url, environment = json.loads(pipe.read())
        self._environment: dict[str, str] = environment

    def close(self) -> None:
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)

    def ask(self, path: str, body: object = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"{self.url}/_rehearsal/{path}", sent), timeout=30) as answer:
            return json.load(answer)

    def home(self, case: str) -> Home:
        return Home(self.directory / case)

    def tenancy(self, case: str, fate: Fate) -> Tenancy:
        """A tenancy at this stage that dies by `fate`."""
        home, clock = self.home(case), SlowClock(self.url, really_s=0)
        home.root.mkdir(exist_ok=True)
        put_rehearsal(home.root, Rehearsal(provider=self.provider, url=self.url))
        profile = PROFILES[self.provider]
        home.client_key.parent.mkdir(exist_ok=True)
        home.client_key.write_text("never read: nobody logs in by ssh here", encoding="utf-8")
        home.client_key.with_suffix(".pub").write_text(KEY_LINE, encoding="utf-8")
        real = connect(profile, home, self._environment, clock)

        def open_transport(lease: Lease) -> Transport:
            assert isinstance(lease.address, SshAddress)
            at = really_at(self.url, lease.address.target)
            if at is None:
                raise BoxUnreachable("nobody answers there", remedy="look again")
            assert isinstance(at, LocalAddress), at
            return LocalTransport(Path(at.directory), programs=at.programs)

        return Tenancy(
            Context(
                home=home,
                ledger=MortalLedger(home.ledger, fate, clock),
                profiles={self.provider: profile},
                connectors={self.provider: MortalConnector(real, fate)},
                open_transport=open_transport,
                introduce=_nobody_asks,
                public_key=lambda: KEY_LINE,
                environ={},
            )
        )


async def _nobody_asks(lease: Lease, password: str) -> None:
    raise AssertionError("no box of a story takes a password")


async def story(tenancy: Tenancy) -> None:
    """One box is rented and given back, going on from wherever the ledger says it stands."""
    told = await tenancy.list_leases("all")
    for card in told.leases:
        if card.state.live and card.state is not LeaseState.INTENDED:
            await tenancy.verify_and_teardown(card.lease)
    states = {lease.state for lease in tenancy.ledger.leases()}
    if LeaseState.GONE in states:
        return
    if LeaseState.INTENDED not in states:
        found = await tenancy.find_offers()
        quotes = [found.cheapest] if found.cheapest else []
        assert quotes, found
        try:
            card = await tenancy.provision(smoke="none", quotes=quotes, wait_s=3600)
        except ProviderSilent:
            # As its remedy says: look again. Only when the list has shown that there is none, again.
            await story(tenancy)
        else:
            await tenancy.verify_and_teardown(card.lease)
    else:
        # Its fate shows in the provider's list by and by, and no second box is rented meanwhile.
        while any(x.state is LeaseState.INTENDED for x in tenancy.ledger.leases()):
            await tenancy.context.clock.sleep(30)
            await tenancy.list_leases()
        await story(tenancy)


def live_through(scene: Scene, case: str, dies_at: int | None, told: Path) -> int:
    """How a process of its own ended that lived through the story, or died at that moment of it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)

        async def once() -> None:
            tenancy = scene.tenancy(case, Fate(dies_at, told))
            try:
                await story(tenancy)
            finally:
                await tenancy.aclose()

        asyncio.run(once())
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        (scene.directory / f"{case}-error").write_text(repr(error), encoding="utf-8")
        os._exit(1)
    os._exit(0)


@contextmanager
def begun(scene: Scene, trouble: Trouble, case: str) -> Iterator[None]:
    """The stage is as new, with that trouble ahead."""
    scene.ask("reset", {})
    faults = [{"do": "list_lag", "seconds": trouble.list_lag_s}]
    scene.ask("faults", faults + ([trouble.fault] if trouble.fault else []))
    yield


def moments(scene: Scene, trouble: Trouble, case: str) -> tuple[list[str], list[str]]:
    """The moments of an undisturbed life under that trouble, and what was wrong at its end."""
    told = scene.directory / f"{case}-moments"
    with begun(scene, trouble, case):
        if live_through(scene, case, None, told) != 0:
            return [], [(scene.directory / f"{case}-error").read_text(encoding="utf-8")]
        return told.read_text(encoding="utf-8").splitlines(), wrongs(scene, case)


def die_and_go_on(scene: Scene, trouble: Trouble, case: str, moment: int) -> list[str]:
    """What is wrong after a process died at that moment and another took over."""
    with begun(scene, trouble, case):
        live_through(scene, case, moment, scene.directory / f"{case}-cut")
        if live_through(scene, case, None, scene.directory / f"{case}-on") != 0:
            return [(scene.directory / f"{case}-error").read_text(encoding="utf-8")]
        return wrongs(scene, case)


def wrongs(scene: Scene, case: str) -> list[str]:
    """Every invariant that does not hold when everything late has happened, and one reconcile."""
    for _ in range(2):  # what comes late, and then its place in a list that lags
        scene.ask("clock", {"advance_s": 1200})
    asyncio.run(_reconcile(scene, case))
    meter = scene.ask("meter")
    ledger = Ledger(scene.home(case).ledger)
    leases = ledger.leases()
    found = []
    if meter["running"] or meter["parked"] or meter["leaked"] or Decimal(meter["usd_h"]):
        found.append(f"something bills: {meter}")
    if any(lease.state.live for lease in leases):
        found.append(f"a lease is live: {[(x.id, x.state) for x in leases]}")
    gone = [lease for lease in leases if lease.state is LeaseState.GONE]
    if not gone:
        found.append("no lease ended with a receipt")
    billed = {box for box, usd in meter["by_thing"].items() if Decimal(usd) > 0}
    known = {lease.box_id for lease in leases}
    unknown = {box for box in billed if box not in known and not box.startswith("disk")}
    if unknown:
        found.append(f"billed and in no ledger line: {unknown}")
    wanted = [x for x in gone if x.quote is not None]
    if len(wanted) > 1:
        found.append(f"{len(wanted)} boxes were rented where one was asked for")
    for lease in gone:
        receipt = ledger.receipt(lease.id)
        if receipt is None or receipt.ground != "never_used" or receipt.cost_usd is None:
            found.append(f"a receipt that says too little: {receipt}")
    ledger.close()
    return found


async def _reconcile(scene: Scene, case: str) -> None:
    tenancy = scene.tenancy(case, Fate(None, scene.directory / f"{case}-last"))
    try:
        await reconcile_all(tenancy.context)
    finally:
        await tenancy.aclose()
