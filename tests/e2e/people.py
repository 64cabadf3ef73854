"""People at computers of their own, the boxes they lease over ssh, and the jobs they train there."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from arranged import PATIENCE_S
from sshd import Relay, Sshd
from waited import over

from gpu_tenant.app import open_tenancy
from gpu_tenant.service import Tenancy

NewBox = Callable[..., Sshd]

TRAIN = """\
echo ran >>"$1/ran"
mkdir -p out
step=0
until [ -e "$1/enough" ]; do
  step=$((step + 1))
  echo "step $step: Verlust fällt, 损失在下降"
  sleep 0.03
done
head -c "$2" /dev/urandom >out/weights.bin
for n in 1 2 3 4 5 6; do echo "{\\"fold\\": $n}" >"out/fold-$n.json"; done
echo done
"""


@dataclass(frozen=True)
class Told:
    """How a command of the command line ended."""

    status: int
    out: str
    err: str


class World:
    """A work tree, and what its job tells and is told beside the box."""

    def __init__(self, directory: Path, *, weights_bytes: int = 1000) -> None:
        self.directory = directory
        self.tree = directory / "tree"
        self.tree.mkdir(parents=True)
        (self.tree / "train.sh").write_text(TRAIN, encoding="utf-8")
        self.command = f"sh train.sh {directory} {weights_bytes}"

    @property
    def runs(self) -> int:
        """How often the job was started."""
        ran = self.directory / "ran"
        return len(ran.read_text(encoding="utf-8").split()) if ran.exists() else 0

    @property
    def is_over(self) -> bool:
        """Whether the job was told to end."""
        return (self.directory / "enough").exists()

    @property
    def told(self) -> Sequence[tuple[str, float]]:
        """The phases that the story's programs have entered, and when."""
        told = self.directory / "told"
        lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
        return [(phase, float(at)) for phase, at in map(str.split, lines)]

    def let_it_end(self) -> None:
        """The job has trained enough: it writes its artifacts and ends."""
        (self.directory / "enough").touch()


class Person:
    """Somebody at a computer of their own: a home, a state directory, a command line."""

    def __init__(self, home: Path) -> None:
        self.home, self.state = home, home / "state"
        home.mkdir(parents=True)
        mine = {"HOME": str(home), "GPU_TENANT_HOME": str(self.state), "COLUMNS": "200"}
        self.environment: Mapping[str, str] = {
            **{n: v for n, v in os.environ.items() if not n.startswith(("GPU_TENANT", "SSH_"))},
            **mine,
        }

    @property
    def public_key(self) -> Path:
        """What a box must have among its authorized keys."""
        return self.state / "ssh" / "id_ed25519.pub"

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """`gpu-tenant` runs with these words, in a process group of its own."""
        return self._begin("-m", "gpu_tenant", *words)

    def gpu_tenant(self, *words: str) -> Told:
        """`gpu-tenant` has run with these words."""
        return ended(self.begin(*words))

    def tell_story(self, target: str, world: World, *, until: str) -> subprocess.Popen[str]:
        """A program tells the story; it waits for its end when it has done the phase `until`."""
        words = (target, str(world.tree), world.command, str(world.directory / "told"), until)
        return self._begin(str(Path(__file__).with_name("story.py")), *words)

    @asynccontextmanager
    async def tenancy(self) -> AsyncIterator[Tenancy]:
        """This person's tenancy in this process, with connections that are kept."""
        opened = open_tenancy(self.environment)
        try:
            yield opened
        finally:
            await opened.aclose()

    def _begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words],
            env=self.environment,
            start_new_session=True,
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def ended(process: subprocess.Popen[str], *, within_s: float = PATIENCE_S) -> Told:
    """How that process ended."""
    try:
        out, err = process.communicate(timeout=within_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return Told(process.returncode, out, err)


@contextmanager
def nothing_left_on(home: Path) -> Iterator[None]:
    """Whatever runs with that directory for its home at the end of the block is killed."""
    try:
        yield
    finally:
        for pid in living_in(home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def living_in(home: Path) -> Iterator[int]:
    """The processes that have that directory for their home."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HOME={home}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


async def until(true: Callable[[], bool], *, meanwhile: Callable[[], object] = int) -> None:
    """`true()` holds; until then everything else went on, and `meanwhile` was done."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            meanwhile()
            await asyncio.sleep(0)


async def launched(tenancy: Tenancy, target: str, world: World) -> str:
    """A lease on `target`, with the world's job running."""
    lease = (await tenancy.provision("own", target)).lease
    await tenancy.push(lease, str(world.tree))
    await tenancy.launch_detached(lease, world.command, ["out/"], name="train")
    return lease


async def trained(person: Person, target: str, world: World) -> str:
    """A lease on `target`, with the world's job at its end."""
    async with person.tenancy() as tenancy:
        lease = await launched(tenancy, target, world)
        world.let_it_end()
        assert (await over(tenancy, lease)).state == "finished"
        return lease


def log_path(box: Sshd, lease: str) -> Path:
    """Where the job writes its log."""
    return box.home / "gpu-tenant" / lease / "caretaker" / "jobs" / "train" / "log"


def log_on(box: Sshd, lease: str) -> str:
    """What the job has written so far."""
    return log_path(box, lease).read_text(encoding="utf-8")


def steps_on(box: Sshd, lease: str) -> int:
    """How far the job has come."""
    return log_on(box, lease).count("step")


def artifacts(out: Path) -> dict[str, bytes]:
    """Every file in that directory, by name."""
    return {path.name: path.read_bytes() for path in out.iterdir()}


def assert_kept(person: Person, box: Sshd, lease: str) -> None:
    """Every artifact is at home as it is on the box, and it is still there."""
    on_the_box = artifacts(box.home / "gpu-tenant" / lease / "work" / "out")
    assert len(on_the_box) == 7
    assert artifacts(person.state / "kept" / lease / "work" / "out") == on_the_box
    kept_log = (person.state / "kept" / lease / "log" / "train.log").read_text(encoding="utf-8")
    assert kept_log == log_on(box, lease)


class HangingUp(Relay):
    """One that cuts by hanging up: what it has passed on arrives, where a reset would void some of it."""

    def cut(self) -> None:
        """Every connection has ended. New ones are welcome."""
        for client, server in self._pairs:
            with suppress(OSError):
                # Its reading end stays open: what came in there would be answered with a reset.
                client.shutdown(socket.SHUT_WR)
                server.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """No socket is left open."""
        super().cut()
