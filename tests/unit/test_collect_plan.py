"""A collect fetches what is not here, while the box makes its seal, and nothing else lands."""

import asyncio
import os
import random
import shutil
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pytest
from arranged import eventually
from e2e.leased import end_processes
from transferring import COUNTING, LYING, MB
from waited import over

from gpu_tenant.domain.errors import BoxTrouble, JobRunning
from gpu_tenant.domain.model import Lease, LocalAddress
from gpu_tenant.domain.ports import Channel, Finished, Listener
from gpu_tenant.files.skill_files import skill_directory
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.verify import Assessment, assess
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.local.connector import LocalConnector
from gpu_tenant.providers.profiles import load_profiles
from gpu_tenant.service import Tenancy
from gpu_tenant.transfer.partial_file import Partial, Span
from gpu_tenant.transports.local import LocalTransport

NOISE = random.Random(5).randbytes(3 * MB // 2)
OTHER = random.Random(6).randbytes(3 * MB // 2)
JOB = "mkdir -p out && echo done"
LONG_AGO_NS = 1_700_000_000_123_456_789
SURE_S = 2.1
"""What was written so long before it was hashed is hashed once."""
SLOWLY = COUNTING.replace("count = call", "__import__('time').sleep(0.1); count = call")
"""What starts a courier on a box that takes its time."""


class Counted(LocalTransport):
    """The real way to a local box; what went over it is on record, and a test may act in between."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.directory = directory
        self.ran: list[tuple[Sequence[str], bytes]] = []
        self.after_manifest: list[Callable[[], Awaitable[object]]] = []
        """Each happens once, after one more manifest was made and before anything else."""
        self.program = COUNTING
        """What is started on the box to move bytes."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | AsyncIterable[bytes] = b"",
        timeout_s: float,
        listener: Listener | None = None,
    ) -> Finished:
        ended = await super().run(argv, stdin=stdin, timeout_s=timeout_s, listener=listener)
        self.ran.append((list(argv), stdin if isinstance(stdin, bytes) else b""))
        if "manifest" in argv and self.after_manifest:
            await self.after_manifest.pop(0)()
        return ended

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        program = list(argv).index("-c") + 1
        return await super().open([*argv[:program], self.program, *argv[program + 1 :]], way=way)

    @property
    def manifests(self) -> int:
        """How often the box was asked what it holds."""
        return sum("manifest" in argv for argv, _ in self.ran)

    def sent_bytes(self) -> int:
        """What came over its channels since the last time this was asked."""
        tally = self.directory.parent / "sent"  # outside of the box, where nobody is at work
        if not tally.exists():
            return 0
        sent = sum(map(int, tally.read_text(encoding="utf-8").split()))
        tally.unlink()
        return sent


@dataclass
class Scene:
    """Leases on local boxes, each with a job that has ended; the first is every test's."""

    root: Path
    ways: dict[str, Counted] = field(default_factory=dict)
    leases: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def tenancy(self) -> AsyncIterator[Tenancy]:
        home = Home(self.root)
        self.root.mkdir(exist_ok=True)
        made = Tenancy(
            Context(
                home=home,
                ledger=Ledger(home.ledger),
                profiles={"local": load_profiles(skill_directory() / "profiles")["local"]},
                connectors={"local": LocalConnector(home.boxes)},
                open_transport=self._way_to,
                introduce=_nobody_asks,
                public_key=str,
                environ={},
            )
        )
        try:
            yield made
        finally:
            await made.aclose()

    def _way_to(self, lease: Lease) -> Counted:
        assert isinstance(lease.address, LocalAddress)
        return self.ways.setdefault(lease.id, Counted(Path(lease.address.directory)))

    def out(self, lease: str) -> Path:
        return self.ways[lease].directory / "gpu-tenant" / lease / "work" / "out"

    def kept(self, lease: str) -> Path:
        return self.root / "kept" / lease / "work" / "out"

    def holds(self, lease: str, name: str, content: bytes, mtime_ns: int = LONG_AGO_NS) -> None:
        """The job wrote that."""
        path = self.out(lease) / name
        path.write_bytes(content)
        os.utime(path, ns=(mtime_ns, mtime_ns))

    def is_sure(self, lease: str) -> bool:
        """Whether a hash that is taken now need not be taken again."""
        changed = max(os.lstat(path).st_ctime for path in self.out(lease).iterdir())
        (self.root / "now").touch()
        return (self.root / "now").stat().st_ctime - changed > SURE_S


async def _nobody_asks(lease: Lease, password: str) -> None:
    raise AssertionError("no box here takes a password")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("shared") / "state")

    async def live() -> None:
        async with made.tenancy() as tenancy:
            made.leases = [await finished(tenancy)]

    asyncio.run(live())
    yield made
    end_processes(made.root / "boxes")


@pytest.fixture
def scene(shared: Scene) -> Scene:
    """A lease with nothing in `out/`, of which nothing was ever brought here."""
    (lease,) = shared.leases
    shutil.rmtree(shared.out(lease))
    shared.out(lease).mkdir()
    shutil.rmtree(shared.root / "kept", ignore_errors=True)
    way = shared.ways[lease]
    shared.ways[lease] = Counted(way.directory)
    shared.ways[lease].ran = way.ran
    way.sent_bytes()
    return shared


async def assess_now(tenancy: Tenancy, lease: str) -> Assessment:
    """What stands between that box and its teardown."""
    found = tenancy.ledger.lease(lease)
    return await assess(tenancy.context, found)


async def finished(tenancy: Tenancy) -> str:
    """A lease whose job has ended."""
    lease = (await tenancy.provision(smoke="none")).lease
    await tenancy.launch_detached(lease, JOB, ["out/"], discard=["~/sent"])
    assert (await over(tenancy, lease)).state == "finished"
    return lease


async def test_what_the_box_holds_lies_here_and_costs_its_bytes_once(scene: Scene) -> None:
    async with scene.tenancy() as tenancy:
        lease = scene.leases[0]
        for n in range(20):
            scene.holds(lease, f"small {n}", NOISE[n : n + 1000])
        scene.holds(lease, "large", NOISE)
        (scene.out(lease) / "latest").symlink_to("large")

        told = await tenancy.collect(lease)

        assert told.next == f"`gpu-tenant teardown {told.lease}`"
        assert len(NOISE) <= scene.ways[lease].sent_bytes() <= len(NOISE) + 30_000
        assert (scene.kept(lease) / "large").read_bytes() == NOISE
        assert (scene.kept(lease) / "latest").readlink() == Path("large")
        assert (scene.kept(lease) / "small 7").read_bytes() == NOISE[7:1007]
        assert (scene.kept(lease) / "large").stat().st_mtime_ns == LONG_AGO_NS
        assert not list((scene.root / "kept" / lease / ".partial").iterdir())


async def test_a_collect_of_what_is_here_asks_once_and_fetches_nothing(
    scene: Scene, tmp_path: Path
) -> None:
    (tmp_path / "config.txt").write_text("rate = 1", encoding="utf-8")
    async with scene.tenancy() as tenancy:
        lease = scene.leases[0]
        await tenancy.push(lease, str(tmp_path))
        scene.holds(lease, "large", NOISE)
        scene.holds(lease, "small", b"small")
        (scene.out(lease) / "latest").symlink_to("large")
        assert eventually(lambda: scene.is_sure(lease))
        first = await tenancy.collect(lease)
        way = scene.ways[lease]
        way.sent_bytes()
        before = way.manifests

        again = await tenancy.collect(lease)

        assert (way.sent_bytes(), way.manifests) == (0, before + 1)
        assert (again.seal, again.fetched_files, again.fetched_bytes) == (first.seal, 0, 0)
        assert (again.files, again.unclaimed_files) == (first.files, 0)
        # What was pushed and changed is the job's: as long as before, it is told from that all the same.
        pushed = scene.out(lease).parent / "config.txt"
        pushed.write_text("rate = 2", encoding="utf-8")
        changed = await tenancy.collect(lease)
        assert (changed.unclaimed_files, changed.unasked) == (0, ("config.txt",))
        pushed.unlink()


async def test_what_changed_after_the_draft_is_here_as_the_seal_says(scene: Scene) -> None:
    async with scene.tenancy() as tenancy:
        lease = scene.leases[0]
        sizes = {"small": 1000, "large": MB + 5}
        for kind, size in sizes.items():
            for name in ("changes", "grows", "vanishes", "stays"):
                scene.holds(lease, f"{kind} {name}", NOISE[:size])

        async def change() -> None:
            for kind, size in sizes.items():
                # Its size and time are the same.
                scene.holds(lease, f"{kind} changes", OTHER[:size])
                scene.holds(lease, f"{kind} grows", NOISE[:size] + b"more")
                scene.holds(lease, f"{kind} appears", OTHER[:size])
                (scene.out(lease) / f"{kind} vanishes").unlink()

        scene.ways[lease].after_manifest.append(change)

        told = await tenancy.collect(lease)

        held = {path.name: path.read_bytes() for path in scene.kept(lease).iterdir()}
        assert held == {
            f"{kind} {name}": content
            for kind, size in sizes.items()
            for name, content in (
                ("changes", OTHER[:size]),
                ("grows", NOISE[:size] + b"more"),
                ("appears", OTHER[:size]),
                ("stays", NOISE[:size]),
            )
        }
        assert told.next == f"`gpu-tenant teardown {told.lease}`"
        assert not (await assess_now(tenancy, lease)).losses
        assert not list((scene.root / "kept" / lease / ".partial").iterdir())


async def test_other_bytes_of_an_earlier_attempt_do_not_land(scene: Scene) -> None:
    """All of it had come, and then the file changed, and neither its size nor its time did."""
    async with scene.tenancy() as tenancy:
        lease = scene.leases[0]
        scene.holds(lease, "large", NOISE)
        at = scene.root / "kept" / lease / ".partial"
        at.mkdir(parents=True)
        told = f"{len(NOISE)} {LONG_AGO_NS} work/out/large"
        partial = Partial(at / sha256(told.encode()).hexdigest(), len(NOISE))
        partial.write(memoryview(OTHER), 0)
        partial.note_filled(Span(0, len(NOISE)))
        partial.close()

        await tenancy.collect(lease)

        assert (scene.kept(lease) / "large").read_bytes() == NOISE
        assert not list(at.iterdir()), "it was met, and is gone"


async def test_what_another_lease_brought_is_not_fetched_and_is_a_copy_of_its_own(
    scene: Scene,
) -> None:
    async with scene.tenancy() as tenancy:
        one, other = scene.leases[0], await finished(tenancy)
        for lease in (one, other):
            scene.holds(lease, f"data of {lease}", NOISE)
            scene.holds(lease, "edited here", OTHER)
        await tenancy.collect(one)
        edited = scene.kept(one) / "edited here"
        edited.write_bytes(NOISE[1:] + b".")
        os.utime(edited, ns=(LONG_AGO_NS, LONG_AGO_NS))

        assert eventually(lambda: scene.is_sure(other))
        await tenancy.collect(other)

        assert len(OTHER) <= scene.ways[other].sent_bytes() < len(OTHER) + 10_000
        first, second = (scene.kept(lease) / f"data of {lease}" for lease in (one, other))
        assert first.read_bytes() == second.read_bytes() == NOISE
        with first.open("r+b") as file:
            file.write(b"changed")
        assert second.read_bytes() == NOISE
        assert (scene.kept(other) / "edited here").read_bytes() == OTHER
        assert edited.read_bytes() == NOISE[1:] + b"."
        # The same where the box knows the hashes at once, of all that it lists.
        first.write_bytes(b"changed")
        shutil.rmtree(scene.root / "kept" / other)
        await tenancy.collect(one)
        way = scene.ways[other]
        way.sent_bytes()
        before = way.manifests
        await tenancy.collect(other)
        assert way.manifests == before + 1
        assert way.sent_bytes() < 10_000


def edited(path: Path) -> None:
    path.write_bytes(OTHER[: path.stat().st_size])


def edited_unseen(path: Path) -> None:
    edited(path)
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))


def a_link(path: Path) -> None:
    path.rename(path.with_name(f"{path.name} elsewhere"))
    path.symlink_to(f"{path.name} elsewhere")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


async def test_what_is_not_here_any_more_as_it_came_comes_again(scene: Scene) -> None:
    harms = (edited, edited_unseen, Path.unlink, a_link, a_pipe, a_directory)
    large = (edited_unseen, Path.unlink, a_link)
    done = [*((1000, harm) for harm in harms), *((MB + 5, harm) for harm in large)]
    names = [f"{size} {harm.__name__}" for size, harm in done]
    async with scene.tenancy() as tenancy:
        lease = scene.leases[0]
        for name in names:
            scene.holds(lease, name, NOISE[: int(name.split()[0])])
        await tenancy.collect(lease)
        for name, (_, harm) in zip(names, done, strict=True):
            harm(scene.kept(lease) / name)

        told = await tenancy.collect(lease)

        for name in names:
            kept = scene.kept(lease) / name
            assert not kept.is_symlink()
            assert kept.read_bytes() == NOISE[: int(name.split()[0])]
        assert told.fetched_files == len(names)
        aside = {path.name for path in (scene.root / "kept" / lease / ".superseded").rglob("*")}
        assert aside >= {name for name in names if "unlink" not in name}, "nothing is lost to it"


async def test_where_other_bytes_come_than_the_box_sealed_nothing_lands(scene: Scene) -> None:
    async with scene.tenancy() as tenancy:
        lease = scene.leases[0]
        scene.holds(lease, "small", b"small")
        scene.holds(lease, "large", NOISE)
        scene.ways[lease].program = LYING + "say(head(b'D', size) + b'x' * size)"

        with pytest.raises(BoxTrouble, match="changed on the box while it was fetched"):
            await tenancy.collect(lease)

        assert not list((scene.root / "kept" / lease).glob("work/**/*"))
        assert not list((scene.root / "kept" / lease / ".partial").iterdir())


def at_work() -> list[str]:
    """The threads that move or prove bytes."""
    named = [thread.name for thread in threading.enumerate()]
    return [name for name in named if name.startswith(("courier", "prover"))]


async def test_when_a_collect_has_ended_with_an_error_none_of_its_threads_is_at_work(
    scene: Scene,
) -> None:
    met: list[str] = []

    async def nothing() -> None:
        pass

    async def refused() -> None:
        met.extend(at_work())
        raise JobRunning("a job was started while the seal was made", remedy="seal again")

    async with scene.tenancy() as tenancy:
        lease = scene.leases[0]
        for n in range(4):
            scene.holds(lease, f"large {n}", NOISE)
        scene.ways[lease].program = SLOWLY
        scene.ways[lease].after_manifest += [nothing, refused]

        with pytest.raises(JobRunning):
            await tenancy.collect(lease)

        assert met
        assert not at_work()


async def test_a_job_that_starts_while_bytes_flow_ends_it_and_nothing_lies_half_there(
    scene: Scene,
) -> None:
    async with scene.tenancy() as tenancy:
        lease = scene.leases[0]
        scene.holds(lease, "large", NOISE)
        way = scene.ways[lease]
        (argv, stdin) = next((argv, stdin) for argv, stdin in way.ran if "start" in argv)

        async def start() -> None:
            again = [word.replace("job1", "again").replace(JOB, "sleep 60") for word in argv]
            told = stdin.replace(b"job1", b"again").replace(JOB.encode(), b"sleep 60")
            ended = await way.run(again, stdin=told, timeout_s=20)
            assert ended.exit_status == 0, ended

        way.after_manifest.append(start)
        before = tenancy.ledger.seal(lease)

        with pytest.raises(JobRunning):
            await tenancy.collect(lease)

        assert not list((scene.root / "kept" / lease).glob("work/**/*"))
        assert tenancy.ledger.seal(lease) == before
