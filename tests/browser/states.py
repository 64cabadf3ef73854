"""What there is to look at: leases on this computer, at a rehearsed provider, and behind a real sshd."""

import json
import os
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from browser.served import Dashboard
from e2e.leased import end_processes
from e2e.people import Person, nothing_left_on
from e2e.renting import QuickClock

from gpu_tenant.app import open_tenancy
from gpu_tenant.emulators.server import Stage
from gpu_tenant.service import Tenancy
from gpu_tenant.transports.ssh import ensure_key

TRAIN = """\
mkdir -p out
step=0
until [ -e "$1" ]; do
  step=$((step + 1))
  loss=$((300000 / (step + 9)))
  printf '\\033[32mstep %d/4000\\033[0m loss=%d.%04d lr=0.0003\\n' \\
    "$step" $((loss / 10000)) $((loss % 10000))
  sleep 0.05
done
echo '{"weights": [1, 2, 3]}' >out/model.json
echo '{"accuracy": 0.93}' >out/scores.json
echo "trained enough"
"""
"""Steps with a falling loss, in colours, until a file is there; then two artifacts."""


@dataclass
class Work:
    """A work tree with a job, and the file that ends the job."""

    directory: Path

    def __post_init__(self) -> None:
        self.tree = self.directory / "tree"
        self.tree.mkdir(parents=True, exist_ok=True)
        (self.tree / "train.sh").write_text(TRAIN, encoding="utf-8")

    @property
    def command(self) -> str:
        """What to launch."""
        return f"sh train.sh {shlex.quote(os.fspath(self.directory / 'enough'))}"

    def let_it_end(self) -> None:
        """The job writes its artifacts and ends."""
        (self.directory / "enough").touch()

    async def launched(
        self, tenancy: Tenancy, *, command: str | None = None, name: str = "train"
    ) -> str:
        """A lease on a box of this computer that runs the job."""
        lease = (await tenancy.provision(smoke="none")).lease
        await self.goes_on(tenancy, lease, command=command, name=name)
        return lease

    async def goes_on(
        self, tenancy: Tenancy, lease: str, *, command: str | None = None, name: str = "train"
    ) -> None:
        """The job runs on that lease's box, too."""
        await tenancy.push(lease, os.fspath(self.tree))
        await tenancy.launch_detached(lease, command or self.command, ["out/"], name=name)


@contextmanager
def somebody(root: Path) -> Iterator[Person]:
    """A person with a key and no lease; nothing of theirs runs when the block is left."""
    person = Person(root / "person")
    ensure_key(person.public_key.with_suffix(""))
    with nothing_left_on(person.home):
        try:
            yield person
        finally:
            end_processes(person.state / "boxes")


@dataclass
class Renter:
    """Somebody at a provider's rehearsal, whose boxes are real and whose money is not."""

    stage: Stage
    root: Path

    @cached_property
    def environment(self) -> dict[str, str]:
        """What their programs find in their environment."""
        plain = {
            n: v for n, v in os.environ.items() if not n.startswith(("GPU_TENANT", "VAST", "SSH_"))
        }
        home = self.root / "home"
        home.mkdir(parents=True, exist_ok=True)
        return {**plain, "GPU_TENANT_NO_POWEROFF": "1", "HOME": str(home), **self.stage.environment}

    def ask(self, path: str, body: object = None) -> Any:
        """The rehearsal's control surface."""
        sent = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"{self.stage.url}/_rehearsal/{path}", sent), timeout=20) as answer:
            return json.load(answer)

    def befalls(self, do: str, **more: object) -> None:
        """It goes wrong so at the provider."""
        self.ask("faults", [{"do": do, **more}])

    @asynccontextmanager
    async def tenancy(self) -> AsyncIterator[Tenancy]:
        """Their tenancy in this process; its waiting takes no time."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gpu_tenant.app._clock", QuickClock)
            opened = open_tenancy(self.environment)
        try:
            yield opened
        finally:
            await opened.aclose()

    async def rents(self, **wish: Any) -> str:
        """A lease on the cheapest box, which is ready."""
        async with self.tenancy() as tenancy:
            quote = (await tenancy.find_offers(**wish)).cheapest
            assert quote
            card = await tenancy.provision(smoke="none", quotes=[quote], wait_s=3600)
            assert card.phase == "ready", card
            return card.lease


@contextmanager
def renter_at(provider: str, root: Path) -> Iterator[Renter]:
    """Somebody at that provider's rehearsal; its boxes end with the block."""
    with Stage(provider, root / "stage", way="ssh") as stage:
        renter = Renter(stage, root)
        with nothing_left_on(root / "home"):
            yield renter


@contextmanager
def dashboard_of(person: Person | Renter, root: Path, **how: Any) -> Iterator[Dashboard]:
    """That person's dashboard, until the block is left."""
    with Dashboard(person.environment, root, **how) as served:
        yield served


async def many_leases(tenancy: Tenancy, count: int) -> list[str]:
    """So many leases on boxes of this computer, on which nothing was done yet."""
    return [(await tenancy.provision(smoke="none")).lease for _ in range(count)]


def long_log(mebibytes: int) -> str:
    """A command whose log is so long: numbered steps, a needle after a tenth of them, then it is done."""
    lines = mebibytes * (1 << 20) // 64
    step = f"seq -f 'step %.0f/{lines} loss=0.25 lr=0.0003 throughput=1234.5 it/s ok' "
    return (
        f"{step} 1 {lines // 10} && echo 'a needle in the hay' && {step} 1 {lines * 9 // 10} "
        "&& mkdir -p out && echo '[1]' >out/model.json"
    )
