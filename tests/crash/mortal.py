"""A tenancy whose process is killed, really, at one chosen moment: before or after one effect."""

import os
import signal
from collections.abc import AsyncIterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socketpair
from threading import Lock, Thread
from typing import Literal

from gpu_tenant.domain.model import Box, Lease, LocalAddress
from gpu_tenant.domain.permit import TeardownPermit
from gpu_tenant.domain.ports import Channel, Clock, Finished, Listener
from gpu_tenant.files.skill_files import skill_directory
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.context import Context
from gpu_tenant.ledger import Ledger
from gpu_tenant.ledger.database import Connection
from gpu_tenant.providers.local.connector import LocalConnector
from gpu_tenant.providers.profiles import load_profiles
from gpu_tenant.service import Tenancy
from gpu_tenant.transports.local import LocalTransport


class Fate:
    """Counts the moments of a story, and ends the process at the chosen one: by its number, or the first of that name."""

    def __init__(self, dies_at: int | str | None, told: Path) -> None:
        self._dies_at = dies_at
        self._told = told
        self._count = 0
        self._lock = Lock()

    def moment(self, name: str) -> None:
        """The process is still alive, and this moment is on record; also from another thread."""
        with self._lock:
            with self._told.open("a", encoding="utf-8") as log:
                log.write(f"{self._count} {name}\n")
            if self._dies_at in (self._count, name):
                os.kill(os.getpid(), signal.SIGKILL)
            self._count += 1

    @contextmanager
    def effect(self, name: str) -> Iterator[None]:
        """One effect, with a moment before it and one after."""
        self.moment(f"before {name}")
        yield
        self.moment(f"after {name}")


class MortalLedger(Ledger):
    """The real ledger; each transaction is an effect."""

    def __init__(self, path: Path, fate: Fate, clock: Clock | None = None) -> None:
        super().__init__(path, clock)
        self._fate = fate

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        if not hasattr(self, "_fate"):  # while the tables are made
            with super()._transaction() as db:
                yield db
            return
        with self._fate.effect("ledger"), super()._transaction() as db:
            yield db


class MortalChannel:
    """A real channel; its first bytes are a moment, and so is whenever eight times as many have come."""

    def __init__(self, real: Channel, fate: Fate) -> None:
        self._real, self._fate = real, fate
        self.reader, self._passed_on = socketpair()
        self.writer = real.writer
        Thread(target=self._pass_on, name="passing on", daemon=True).start()

    def hang_up(self) -> None:
        self._real.hang_up()

    def _pass_on(self) -> None:
        came, next_moment = 0, 1
        with self._real.reader, self._passed_on, suppress(OSError):
            while chunk := self._real.reader.recv(max(64, min(came, 1 << 16))):
                came += len(chunk)
                if came >= next_moment:
                    self._fate.moment("within a channel")
                    next_moment = 8 * came
                self._passed_on.sendall(chunk)


class MortalTransport:
    """The real local transport; each call is an effect, and so is much of what comes over a channel."""

    def __init__(self, real: LocalTransport, fate: Fate) -> None:
        self._real, self._fate = real, fate

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | AsyncIterable[bytes] = b"",
        timeout_s: float,
        listener: Listener | None = None,
    ) -> Finished:
        verb = argv[6] if "--home" in argv else argv[0]
        with self._fate.effect(f"run {verb}"):
            return await self._real.run(argv, stdin=stdin, timeout_s=timeout_s, listener=listener)

    async def put(self, source: Path, destination: str, *, mode: int = 0o600) -> None:
        with self._fate.effect("put"):
            await self._real.put(source, destination, mode=mode)

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        with self._fate.effect("open"):
            return MortalChannel(await self._real.open(argv, way=way), self._fate)

    async def aclose(self) -> None:
        await self._real.aclose()


class MortalConnector(LocalConnector):
    """The real local connector; each call is an effect, and what it did is told outside."""

    def __init__(self, boxes: Path, fate: Fate, world: Path) -> None:
        super().__init__(boxes)
        self._fate, self._world = fate, world

    async def create(self, lease: Lease) -> Box:
        with self._fate.effect("create"):
            return await super().create(lease)

    async def list_boxes(self) -> list[Box]:
        with self._fate.effect("list"):
            return await super().list_boxes()

    async def destroy(self, permit: TeardownPermit) -> None:
        with self._fate.effect("destroy"):
            with (self._world / "destroyed").open("a", encoding="utf-8") as log:
                kept = self._boxes.parent / "kept" / permit.lease_id / "work" / "out" / "model.json"
                safe = kept.read_text(encoding="utf-8") if kept.exists() else "nothing"
                log.write(f"{permit.lease_id} {permit.ground.name} {safe.strip()}\n")
            await super().destroy(permit)


def mortal_tenancy(root: Path, fate: Fate, world: Path) -> Tenancy:
    """A whole tenancy on local boxes below `root`, that dies by `fate`."""
    home = Home(root)
    root.mkdir(exist_ok=True)

    def open_transport(lease: Lease) -> MortalTransport:
        assert isinstance(lease.address, LocalAddress)
        return MortalTransport(LocalTransport(Path(lease.address.directory)), fate)

    profiles = load_profiles(skill_directory() / "profiles")
    return Tenancy(
        Context(
            home=home,
            ledger=MortalLedger(home.ledger, fate),
            profiles={"local": profiles["local"]},
            connectors={"local": MortalConnector(home.boxes, fate, world)},
            open_transport=open_transport,
            introduce=_nobody_asks,
            public_key=str,
            environ=dict(os.environ),
        )
    )


async def _nobody_asks(lease: Lease, password: str) -> None:
    raise AssertionError("a local box takes no password")
