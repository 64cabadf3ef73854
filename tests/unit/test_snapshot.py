"""What is complete while a job runs comes home, proved; what is being written is left alone."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from socket import socketpair
from threading import Thread
from typing import Literal

import pytest
from arranged import LEASE, Alone, HandClock, active, eventually, job, profile, seal

from gpu_tenant.artifacts.checkpoints import newest
from gpu_tenant.artifacts.prune import Pruned, prune_box, prune_here
from gpu_tenant.artifacts.retention import Retention
from gpu_tenant.artifacts.snapshot import Snapshot, snapshot
from gpu_tenant.box.caretaker import Caretaker
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BoxUnreachable
from gpu_tenant.domain.model import Lease, LocalAddress
from gpu_tenant.domain.ports import Channel
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.skill_files import script
from gpu_tenant.ledger import Ledger
from gpu_tenant.transports.local import LocalTransport


class Running:
    """A lease whose job writes into `out/`, as a test says."""

    def __init__(self, root: Path) -> None:
        self.box, self.kept, self.clock = root / "box" / "home", root / "kept", HandClock()
        self.ledger = Ledger(root / "ledger", self.clock)
        active(self.ledger)
        self.ledger.note_address(LEASE, LocalAddress(directory=str(self.box)))
        self.ledger.note_launched(self.ledger.declare(job()), at=self.clock.now())
        self.out = self.box / self.lease.work_directory / "out"
        self.out.mkdir(parents=True)
        self.transport = Counted(self.box)

    @property
    def lease(self) -> Lease:
        return self.ledger.lease(LEASE)

    @property
    def session(self) -> Session:
        caretaker = Caretaker(self.lease, self.transport, script("caretaker.py"), key="k")
        return Session(self.lease, profile(), self.transport, caretaker)

    @property
    def here(self) -> Path:
        return self.kept / "work" / "out"

    async def look(self, quiet_s: float = 0, policy: Retention | None = None) -> Snapshot:
        """A look, some time after the one before."""
        self.clock.advance(60)
        return await snapshot(
            self.session,
            directory=self.kept,
            ledger=self.ledger,
            turn=Alone(),
            quiet_s=quiet_s,
            policy=policy,
        )

    async def can_go_on_from(self) -> dict[str, str]:
        """What the newest files hold that a job could go on from."""
        found = await newest(self.lease, ledger=self.ledger)
        files = found.files if found else {}
        return {name: path.read_text("utf-8") for name, (_, path) in files.items()}

    def saves(self, name: str, content: str) -> None:
        """As a job should: whole under its name from the first moment."""
        (self.out / f".{name}").write_text(content, encoding="utf-8")
        (self.out / f".{name}").replace(self.out / name)

    def superseded(self) -> dict[str, str]:
        found = (p for p in (self.kept / ".superseded").rglob("*") if p.is_file())
        return {str(p.relative_to(self.kept / ".superseded")): p.read_text("utf-8") for p in found}

    def looks(self) -> list[timeline.Snapped]:
        return [d for _, d in self.ledger.events(LEASE) if isinstance(d, timeline.Snapped)]


class Counted(LocalTransport):
    """The real one; every file that is asked for is told, and what happens before the box hears of it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.fetched: list[str] = []
        self.before_get: Callable[[str], object] = lambda source: None
        self.is_broken = False

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        if self.is_broken:
            raise BoxUnreachable("the link broke", remedy="look again")
        return Overheard(await super().open(argv, way=way), self, script_bytes=int(argv[-2]))

    def asked_for(self, source: str) -> None:
        """Called before the box hears of it; whoever raises an OSError here breaks the link."""
        self.fetched.append(Path(source).name)
        try:
            self.before_get(source)
        except OSError:
            self.is_broken = True
            raise


class Overheard:
    """A real channel, and whoever passes on what is asked over it."""

    def __init__(self, real: Channel, link: Counted, *, script_bytes: int) -> None:
        self._real, self._link = real, link
        self.writer, self._requests = socketpair()
        self.reader, self.hang_up = real.reader, real.hang_up
        Thread(target=self._pass_on, args=(script_bytes,), daemon=True).start()

    def _pass_on(self, script_bytes: int) -> None:
        said = self._requests.makefile("rb")
        with self._requests, said, self._real.writer, suppress(OSError):
            self._real.writer.sendall(said.read(script_bytes))
            for line in said:
                asked = json.loads(line)
                alone = [(asked["at"], 0)] if "at" in asked else []
                for source, _ in asked.get("files", alone):
                    self._link.asked_for(source)
                self._real.writer.sendall(line)
        self._real.hang_up()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.ledger.close()


@contextmanager
def held_open(path: Path) -> Iterator[None]:
    """Another process has the file open for writing."""
    code = "import sys; f = open(sys.argv[1], 'a'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        assert holder.stdin is not None
        holder.stdin.close()


async def test_what_is_complete_comes_home_once_with_its_time_and_what_is_not_stays(
    running: Running,
) -> None:
    running.saves("1.json", '{"step": 1}')
    os.utime(running.out / "1.json", (1_700_000_000, 1_700_000_000))
    running.saves("2.json", '{"step": 2}')
    (running.out / "latest").symlink_to("1.json")
    with held_open(running.out / "2.json"):
        first, again = await running.look(), await running.look()
    then = await running.look()

    assert (first.files, again.files, then.files) == (2, 0, 1)
    assert running.transport.fetched == ["1.json", "2.json"]
    assert (running.here / "1.json").stat().st_mtime == 1_700_000_000
    assert (running.here / "latest").readlink() == Path("1.json")
    assert then.words == ("work/out/2.json came home (11 bytes)",)
    assert [look.files for look in running.looks()] == [2, 1], "nothing new is no line"
    assert set(await running.can_go_on_from()) == {
        "work/out/1.json",
        "work/out/2.json",
        "work/out/latest",
    }


async def test_what_came_is_named_with_the_newest_first(running: Running) -> None:
    for step in range(1, 8):
        running.saves(f"{step}.json", "{}")
        os.utime(running.out / f"{step}.json", (1_000_000 + step, 1_000_000 + step))

    looked = await running.look()

    newest_first = tuple(f"work/out/{step}.json" for step in (7, 6, 5, 4, 3))
    assert (looked.names, running.looks()[-1].names) == (newest_first, newest_first)


async def test_what_was_just_written_is_left_for_the_next_look(running: Running) -> None:
    running.saves("1.json", "{}")

    assert (await running.look(quiet_s=5)).files == 0
    assert running.looks() == []


async def test_a_file_that_changes_or_vanishes_on_its_way_is_left_and_the_others_come(
    running: Running,
) -> None:
    for name in ("1", "2", "3"):
        running.saves(f"{name}.json", f'"{name}"')
        os.utime(running.out / f"{name}.json", (int(name), int(name)))

    def meanwhile(source: str) -> None:
        if source.endswith("3.json"):
            running.saves("3.json", '"other"')
        if source.endswith("2.json"):
            (running.out / "2.json").unlink()

    running.transport.before_get = meanwhile
    looked = await running.look()

    assert [path.name for path in running.here.iterdir()] == ["1.json"]
    assert (looked.files, looked.names) == (1, ("work/out/1.json",))
    assert await running.can_go_on_from() == {"work/out/1.json": '"1"'}


async def test_what_does_not_load_is_not_gone_on_from_and_not_fetched_again(
    running: Running,
) -> None:
    running.saves("state.json", '{"step": 1}')
    await running.look()
    running.saves("state.json", '{"step": ')
    looked = await running.look()
    await running.look()

    assert looked.broken == ("work/out/state.json",)
    assert running.transport.fetched == ["state.json"] * 2
    assert await running.can_go_on_from() == {"work/out/state.json": '{"step": 1}'}


async def test_of_a_file_saved_in_place_two_older_versions_stay_and_always_what_is_no_snapshot(
    running: Running,
) -> None:
    (running.here).mkdir(parents=True)
    (running.here / "state.json").write_text('"of a collect"', encoding="utf-8")
    running.ledger.keep_in(LEASE, running.kept)
    running.ledger.note(LEASE, timeline.Collected(seal=seal().digest), at=running.clock.now())
    for step in range(5):
        running.saves("state.json", str(step))
        await running.look()
        if step == 0:
            (running.here / "state.json").write_text('"mine"', encoding="utf-8")

    older = running.superseded()
    assert (running.here / "state.json").read_text("utf-8") == "4"
    assert sorted(older.values()) == ['"mine"', '"of a collect"', "2", "3"]
    snapshots = {held for name, held in older.items() if name.startswith("snapshot-")}
    assert {"2", "3"} <= snapshots
    assert '"of a collect"' not in snapshots
    assert len(list((running.kept / ".snapshots").iterdir())) == 3


async def test_what_a_collect_brought_is_gone_on_from_after_a_later_one_was_cut_short(
    running: Running,
) -> None:
    content = b'{"step": 7}'
    running.here.mkdir(parents=True)
    (running.here / "state.json").write_bytes(content)
    held = SealedFile(
        name="work/out/state.json",
        at="out/state.json",
        kind="file",
        role="artifact",
        size_bytes=len(content),
        sha256=sha256(content).hexdigest(),
        mtime_ns=1,
    )
    now = running.clock.now()
    running.ledger.keep_in(LEASE, running.kept)
    running.ledger.file_seal(LEASE, seal("first").model_copy(update={"entries": (held,)}), at=now)
    running.ledger.note(LEASE, timeline.Collected(seal="first"), at=now)
    running.ledger.file_seal(LEASE, seal("second"), at=now)

    assert await running.can_go_on_from() == {"work/out/state.json": '{"step": 7}'}


async def test_a_look_does_not_believe_the_caretaker_that_a_job_may_have_written_over(
    running: Running,
) -> None:
    running.saves("1.json", "1")
    for place in (running.box, running.box / "gpu-tenant"):
        (
            place
            / Path(Caretaker(running.lease, running.transport, script("caretaker.py")).path).name
        ).write_text(
            'print(\'{"ok": true, "files": [], "now": 1, "login": "/"}\')', encoding="utf-8"
        )

    assert (await running.look()).files == 1


async def test_a_directory_that_was_a_link_or_a_file_comes_home_as_one(running: Running) -> None:
    running.saves("other", "x")
    (running.out / "d").symlink_to("other")
    running.saves("e", "once a file")
    await running.look()
    for name in ("d", "e"):
        (running.out / name).unlink()
        (running.out / name).mkdir()
        (running.out / name / "1.json").write_text("1", encoding="utf-8")
    await running.look()

    assert not (running.here / "d").is_symlink()
    assert {
        name: held for name, held in (await running.can_go_on_from()).items() if name[-1] == "n"
    } == {
        "work/out/d/1.json": "1",
        "work/out/e/1.json": "1",
    }


async def test_an_older_version_is_gone_on_from_where_the_newest_was_spoiled_here(
    running: Running,
) -> None:
    for step in (1, 2):
        running.saves("state.json", str(step))
        await running.look()
    (running.here / "state.json").write_text("9", encoding="utf-8")

    assert await running.can_go_on_from() == {"work/out/state.json": "1"}


async def test_what_a_job_deleted_is_not_gone_on_from_and_stays_here(running: Running) -> None:
    running.saves("1.json", "1")
    await running.look()
    (running.out / "1.json").unlink()
    running.saves("2.json", "2")
    await running.look()

    assert await running.can_go_on_from() == {"work/out/2.json": "2"}
    assert (running.here / "1.json").exists()


async def test_where_the_link_breaks_what_came_before_is_on_record(running: Running) -> None:
    large = f'"{"x" * 1_500_000}"'
    running.saves("large.json", large)
    running.saves("small.json", "1")

    def meanwhile(source: str) -> None:
        if source.endswith("small.json"):
            assert eventually((running.here / "large.json").exists)
            raise ConnectionResetError

    running.transport.before_get = meanwhile
    with pytest.raises(BoxUnreachable):
        await running.look()

    assert await running.can_go_on_from() == {"work/out/large.json": large}


def test_a_look_is_bounded_but_takes_one_file_at_least_and_the_rest_in_the_next(
    tmp_path: Path,
) -> None:
    (tmp_path / "work" / "out").mkdir(parents=True)
    for age, size in enumerate((30, 20, 10)):
        path = tmp_path / "work" / "out" / f"{size}.bin"
        path.write_bytes(b"x" * size)
        os.utime(path, (1000 - age, 1000 - age))
    asked = {
        "work": str(tmp_path / "work"),
        "artifacts": ["out/"],
        "quiet_s": 0,
        "limit_bytes": 10,
        "key": "k",
    }
    argv = [
        sys.executable,
        "-I",
        "-S",
        str(script("caretaker.py")),
        "--home",
        str(tmp_path / "h"),
        "complete",
        "--request",
        "-",
    ]

    seen = []
    for _ in range(3):
        done = subprocess.run(
            argv, input=json.dumps(asked), capture_output=True, encoding="utf-8", check=True
        )
        reply = json.loads(done.stdout)
        seen.append(([entry["size"] for entry in reply["files"]], reply["left_out"]))

    assert seen == [([30], 2), ([30, 20], 1), ([30, 20, 10], 0)]


# What a policy no longer wants


def weights(step: int) -> str:
    header = f'{{"__metadata__":{{"step":"{step}"}}}}'
    return f"{chr(len(header))}{chr(0) * 7}{header}"


def written(running: Running, *steps: int) -> None:
    for step in steps:
        running.saves(f"ckpt-{step}.safetensors", weights(step))
        os.utime(running.out / f"ckpt-{step}.safetensors", (step, step))


def steps(place: Path) -> list[int]:
    return sorted(int(path.stem.rpartition("-")[2]) for path in place.glob("ckpt-*"))


async def prune(running: Running, keep: int) -> tuple[str, ...]:
    kept = Retention(keep_last=keep)
    pruned = await prune_here(running.lease, kept, directory=running.kept, ledger=running.ledger)
    return pruned.here


async def test_older_checkpoints_that_snapshots_brought_go_and_are_not_fetched_again(
    running: Running,
) -> None:
    written(running, 1, 2, 3)
    await running.look()
    first = await prune(running, 2)
    written(running, 4)
    again = await running.look(policy=Retention(keep_last=2))
    second = await prune(running, 2)

    assert (first, second) == (
        ("work/out/ckpt-1.safetensors",),
        ("work/out/ckpt-2.safetensors",),
    )
    assert (again.files, again.not_wanted) == (
        1,
        ("work/out/ckpt-1.safetensors", "work/out/ckpt-2.safetensors"),
    )
    assert steps(running.here) == [3, 4]
    assert steps(running.out) == [1, 2, 3, 4], "the box is left alone"
    assert len(await running.can_go_on_from()) == 2


async def test_where_the_newest_does_not_load_an_older_one_is_fetched_and_kept(
    running: Running,
) -> None:
    written(running, 1, 2)
    running.saves("ckpt-3.safetensors", "broken")
    looked = await running.look(policy=Retention(keep_last=1))
    await prune(running, 1)

    assert looked.broken == ("work/out/ckpt-3.safetensors",)
    assert steps(running.here) == [2]


async def test_what_a_job_deleted_itself_is_pruned_here_too_and_what_a_person_changed_is_not(
    running: Running,
) -> None:
    written(running, 1, 2)
    await running.look()
    for step in (1, 2):
        (running.out / f"ckpt-{step}.safetensors").unlink()
    written(running, 3, 4)
    await running.look()
    (running.here / "ckpt-2.safetensors").write_text("mine", encoding="utf-8")
    await prune(running, 1)

    assert steps(running.here) == [2, 4]


async def test_nothing_that_a_collect_counted_on_is_pruned(running: Running) -> None:
    written(running, 1, 2, 3)
    await running.look()
    running.ledger.note(LEASE, timeline.Collected(seal=seal().digest), at=running.clock.now())

    assert await prune(running, 1) == ()
    assert steps(running.here) == [1, 2, 3]


async def prune_there(running: Running, keep: int) -> Pruned:
    return await prune_box(
        running.session,
        Retention(keep_last=keep),
        directory=running.kept,
        ledger=running.ledger,
        quiet_s=0,
    )


async def test_what_goes_from_the_box_was_proved_here_in_that_call_and_stays_here_for_good(
    running: Running,
) -> None:
    written(running, 1, 2, 3, 4)
    await running.look()
    (running.here / "ckpt-2.safetensors").write_text("spoiled", encoding="utf-8")
    pruned = await prune_there(running, 2)
    await running.look(policy=Retention(keep_last=2))
    here = await prune(running, 1)

    assert pruned.on_the_box == ("work/out/ckpt-1.safetensors",)
    assert pruned.stayed == (
        "work/out/ckpt-2.safetensors: the checkpoint is not complete on this computer",
    )
    assert steps(running.out) == [2, 3, 4]
    assert (running.here / "ckpt-1.safetensors").read_text("utf-8") == weights(1)
    assert "work/out/ckpt-1.safetensors" not in here
    assert set(await running.can_go_on_from()) == {"work/out/ckpt-4.safetensors"}


async def test_nothing_goes_from_the_box_that_is_not_here(running: Running) -> None:
    written(running, 1, 2, 3)
    await running.look(policy=Retention(keep_last=1))

    assert await prune_there(running, 1) == Pruned(
        stayed=(
            "all: each checkpoint with a proved copy here is one that the policy keeps: the last 1",
        )
    )
    assert steps(running.out) == [1, 2, 3]


async def test_a_collect_to_another_place_that_was_cut_short_hides_no_checkpoint(
    running: Running, tmp_path: Path
) -> None:
    running.kept = running.ledger.directory / "kept" / LEASE
    running.saves("state.json", "7")
    await running.look()

    running.ledger.keep_in(LEASE, tmp_path / "results")

    assert await running.can_go_on_from() == {"work/out/state.json": "7"}
