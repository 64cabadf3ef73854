"""One provider, box or process that hangs holds up nothing else, and somebody hears of it."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from arranged import PATIENCE_S, HandClock, context_of
from tiny import TinyProvider

from gpu_tenant.doctor import Checkup, examine
from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Box, Lease, LeaseId, LeaseState, LocalAddress
from gpu_tenant.domain.ports import Connector, Transport
from gpu_tenant.domain.terms import Terms
from gpu_tenant.files.skill_files import skill_directory
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.settle import survey
from gpu_tenant.leases.watchdog_heartbeat import last_watch_words
from gpu_tenant.ledger import Ledger, Renewal
from gpu_tenant.providers.local.connector import LocalConnector
from gpu_tenant.providers.profiles import load_profiles
from gpu_tenant.service import Tenancy
from gpu_tenant.transports.local import LocalTransport
from gpu_tenant.watchdog.loop import Watchdog

PROFILES = load_profiles(skill_directory() / "profiles")
HOLDING = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from gpu_tenant.ledger import Ledger
with Ledger(Path(sys.argv[1])).hold(sys.argv[2], "collect", at=datetime.now(UTC)):
    print("held", flush=True)
    sys.stdin.read()
"""


class Hanging(TinyProvider):
    """A provider that takes every request, and never answers."""

    async def list_boxes(self) -> list[Box]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class Ahead:
    """This computer's clock, which a test may put forward."""

    shared_with_boxes = False

    def __init__(self) -> None:
        self.by = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.by  # noqa: TID251 - that is what it is

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def follow(self, seconds: float) -> None:
        await self.sleep(seconds)


class Scene:
    """A tenant with a lease on a local box, and with a key for a provider that hangs."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        root.mkdir(exist_ok=True)
        self.clock = Ahead()
        self.connectors: dict[str, Connector] = {
            "local": LocalConnector(self.home.boxes),
            "runpod": Hanging(HandClock()),
        }
        self.tenancy = Tenancy(
            Context(
                home=self.home,
                ledger=Ledger(
                    self.home.ledger,
                    self.clock,
                    renewal=Renewal(beat_s=5, patience_s=0.3, grace_s=0.3),
                ),
                profiles=PROFILES,
                connectors=self.connectors,
                open_transport=_way_to,
                introduce=_nobody_asks,
                public_key=str,
                environ={},
            )
        )
        self.lease = LeaseId("")

    async def rent(self) -> None:
        self.lease = LeaseId((await self.tenancy.provision(smoke="none", hours=1)).lease)

    @property
    def state(self) -> LeaseState:
        return self.tenancy.ledger.lease(self.lease).state

    @property
    def alarms(self) -> dict[str, str]:
        return {alarm.key: alarm.words for alarm in self.tenancy.ledger.open_alarms()}

    @asynccontextmanager
    async def watchdog(self) -> AsyncIterator[None]:
        dog = Watchdog(self.tenancy, every_s=0.3, answers_within_s=0.2, tell=lambda _: None)
        watching = asyncio.create_task(dog.forever())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


def _way_to(lease: Lease) -> Transport:
    assert isinstance(lease.address, LocalAddress)
    return LocalTransport(Path(lease.address.directory))


async def _nobody_asks(lease: Lease, password: str) -> None:
    raise AssertionError("no box here takes a password")


async def comes_true(condition: Callable[[], object], *, within_s: float = PATIENCE_S) -> bool:
    give_up = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up:
            return False
        await asyncio.sleep(0.05)
    return True


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path / "state")
    await made.rent()
    yield made
    await made.tenancy.aclose()


async def test_a_provider_that_never_answers_keeps_no_other_lease_from_its_end(
    scene: Scene,
) -> None:
    scene.clock.by = timedelta(hours=2)

    async with scene.watchdog():
        assert await comes_true(lambda: scene.state is LeaseState.GONE)
        assert await comes_true(lambda: "account:runpod" in scene.alarms)
        assert await comes_true(scene.home.watchdog.exists)

    assert "runpod: it has not answered since" in scene.alarms["account:runpod"]
    assert list(json.loads(scene.home.watchdog.read_text())["unasked"]) == ["runpod"]
    said = last_watch_words(scene.home.watchdog, scene.clock.now())
    assert "it has had no answer from runpod since" in said


async def test_a_lease_at_a_provider_that_never_answers_gets_its_turn_when_its_time_is_over(
    scene: Scene,
) -> None:
    ledger, mute = scene.tenancy.ledger, LeaseId("runpod-mute")
    ledger.intend(
        lease_id=mute,
        provider="runpod",
        address=None,
        price_usd_h=None,
        at=scene.clock.now(),
        terms=Terms(deadline_at=scene.clock.now() + timedelta(hours=1)),
    )
    box = TinyProvider(HandClock(), "runpod").rent(ledger.lease(mute).mark)
    ledger.bind(mute, box, at=scene.clock.now())
    ledger.ready(mute, at=scene.clock.now())
    scene.clock.by = timedelta(hours=2)

    async with scene.watchdog():
        assert await comes_true(
            lambda: timeline.Ending.kind in [line.kind for line in ledger.events(mute)]
        )


async def test_a_stopped_process_keeps_a_lease_from_its_end_only_until_it_is_broken_and_is_told_of(
    scene: Scene,
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLDING,
        str(scene.home.ledger),
        scene.lease,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout
        assert await process.stdout.readline() == b"held\n"
        process.send_signal(signal.SIGSTOP)
        scene.clock.by = timedelta(hours=2)

        async with scene.watchdog():
            assert await comes_true(lambda: "held" in scene.alarms)
            words = scene.alarms["held"]
            ended = await comes_true(lambda: scene.state is LeaseState.GONE)
            assert ended, scene.alarms
    finally:
        process.kill()
        await process.wait()

    assert "its deadline was" in words
    assert f"collect (process {process.pid}) has held it for " in words


async def test_the_list_of_leases_says_who_keeps_one_from_its_end(scene: Scene) -> None:
    del scene.connectors["runpod"]
    scene.clock.by = timedelta(hours=2)
    with Ledger(scene.home.ledger).hold(scene.lease, "push", at=scene.clock.now()):
        (card,) = (await scene.tenancy.list_leases()).leases

    assert card.alarm is not None
    assert "push (process" in card.alarm
    assert "has held it for " in card.alarm


async def test_a_survey_waits_for_nobody_longer_than_it_is_told(tmp_path: Path) -> None:
    clock = HandClock()
    tiny = TinyProvider(clock, "vastai")
    tiny.rent(None)
    ledger = Ledger(tmp_path / "ledger.sqlite3", clock)

    found = await survey(
        context_of(ledger, PROFILES["runpod"], Hanging(clock), (PROFILES["vastai"], tiny)),
        patience_s=0.3,
    )

    assert list(found.listings) == ["vastai"]
    assert list(found.blind) == ["runpod"]
    assert len(found.foreign) == 1


async def test_a_checkup_says_who_did_not_answer_and_what_the_others_said(tmp_path: Path) -> None:
    home = Home(tmp_path)
    clock = HandClock()
    key = {"RUNPOD_API_KEY": "x", "VAST_API_KEY": "x"}

    found: Checkup = await examine(
        home,
        ledger=Ledger(home.ledger, clock),
        environ=key,
        patience_s=0.3,
        profiles={slug: PROFILES[slug] for slug in ("runpod", "vastai")},
        connectors={"runpod": Hanging(clock), "vastai": TinyProvider(clock, "vastai")},
    )

    said = {each.subject: (each.level, each.words) for each in found.findings}
    assert said["runpod"] == ("blocker", "it has not answered within 0.3 s")
    assert said["vastai"][0] == "ok"
