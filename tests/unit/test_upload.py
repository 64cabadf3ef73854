"""A work tree goes to a box whole or goes on from where it was cut, and nothing of it lands anywhere else."""

import asyncio
import hashlib
import json
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from arranged import LEASE, PATIENCE_S, Alone, HandClock, active, profile
from pydantic import JsonValue

from gpu_tenant.artifacts.push import Pushed, push
from gpu_tenant.artifacts.upload import hash_file, ship
from gpu_tenant.box.caretaker import Caretaker, Index
from gpu_tenant.box.session import Session
from gpu_tenant.domain.errors import BoxTrouble, BoxUnreachable, CaretakerFailed
from gpu_tenant.domain.model import Lease, LocalAddress
from gpu_tenant.domain.ports import Channel
from gpu_tenant.files.protected_files import Guarded
from gpu_tenant.files.skill_files import script
from gpu_tenant.ledger import Ledger
from gpu_tenant.transfer.bandwidth_share import CallLimits
from gpu_tenant.transports.local import LocalTransport

MB = 1 << 20
INCOMING = ".gpu-tenant-incoming"
NOISE = random.Random(5).randbytes(4 * MB)


class Way(LocalTransport):
    """The real way to a local box; what a cut does is done to its channels."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.opened, self.is_cut = list[Channel](), False

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        if self.is_cut:
            raise BoxUnreachable("the link is cut", remedy="mend it")
        channel = await super().open(argv, way=way)
        self.opened.append(channel)
        return channel

    def cut(self) -> None:
        self.is_cut = True
        for channel in self.opened:
            channel.hang_up()


class Counted(CallLimits):
    """Limits whose transfers wait for nobody; it counts what goes, and does something in between."""

    def __init__(
        self, at_bytes: int = 1 << 60, then: Callable[[], None] = lambda: None, *, most: int = 1
    ) -> None:
        self.sent_bytes, self._at_bytes, self._then, self._most = 0, at_bytes, then, most

    @contextmanager
    def join(self, lease_id: str, usd_h: object) -> Iterator["Counted"]:  # type: ignore[override]
        yield self

    def connections(self, wanted: int) -> int:
        return min(wanted, self._most)

    def pause_s(self, n_bytes: int) -> float:
        before, self.sent_bytes = self.sent_bytes, self.sent_bytes + n_bytes
        if before < self._at_bytes <= self.sent_bytes:
            self._then()
        return 0.0


class Desk:
    """A lease on a local box, and a work tree here."""

    def __init__(self, root: Path) -> None:
        self.box, self.tree, self.records = root / "box", root / "tree", root / "records"
        self.tree.mkdir()
        self.box.mkdir()
        self.clock = HandClock()
        self.ledger = Ledger(root / "ledger", self.clock)
        active(self.ledger)
        self.ledger.note_address(LEASE, LocalAddress(directory=str(self.box)))
        self.way = Way(self.box)
        # There from before: to bring it there is no part of a push.
        there = self.box / self.caretaker.path
        self.work.mkdir(parents=True)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(script("caretaker.py").read_bytes())
        self.told: list[tuple[int, int]] = []

    @property
    def lease(self) -> Lease:
        return self.ledger.lease(LEASE)

    @property
    def work(self) -> Path:
        return self.box / self.lease.work_directory

    @property
    def caretaker(self) -> Caretaker:
        return Caretaker(self.lease, self.way, script("caretaker.py"))

    @property
    def session(self) -> Session:
        return Session(self.lease, profile(), self.way, self.caretaker)

    async def push(self, limits: CallLimits) -> Pushed:
        self.told.clear()
        self.way.is_cut = False
        return await push(
            self.session,
            self.tree,
            include_secrets=(),
            guarded=Guarded((), self.box),
            ledger=self.ledger,
            limits=limits,
            records=self.records,
            progress=lambda here, total: self.told.append((here, total)),
        )

    async def cut_push(self, at_bytes: int, *, most: int = 1) -> int:
        """A push was cut when so many bytes had been asked to go; how many had been."""
        limits = Counted(at_bytes, self.way.cut, most=most)
        with pytest.raises(BoxUnreachable):
            await self.push(limits)
        return limits.sent_bytes


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.ledger.close()


async def test_large_and_small_files_arrive_as_they_are_and_leave_nothing_behind(
    desk: Desk,
) -> None:
    odd = os.fsdecode(b"d/\xe3\x80\x80\xff %.bin")
    (desk.tree / "d").mkdir()
    for name, content in (("a.bin", NOISE), (odd, NOISE[: 2 * MB + 7]), ("s\u3000.py", b"small")):
        (desk.tree / name).write_bytes(content)
    (desk.tree / "a.bin").chmod(0o755)
    limits = Counted(most=3)

    pushed = await desk.push(limits)

    for path in (p for p in desk.tree.rglob("*") if p.is_file()):
        there = desk.work / path.relative_to(desk.tree)
        assert there.read_bytes() == path.read_bytes()
        assert int(there.stat().st_mtime) == int(path.stat().st_mtime)
    assert (desk.work / "a.bin").stat().st_mode & 0o777 == 0o755
    assert (pushed.sent_files, pushed.unchanged_files) == (3, 0)
    assert len(desk.way.opened) > 1
    assert limits.sent_bytes >= pushed.sent_bytes, "the limit is asked about every byte"
    assert desk.told[0][0] == 0
    assert desk.told[-1] == (pushed.sent_bytes, pushed.sent_bytes)
    assert not (desk.work / INCOMING).exists()
    assert not desk.records.exists()
    known = json.loads((desk.work.parent / "caretaker" / "pushed.json").read_text("utf-8"))
    assert known["a.bin"] == {"size": len(NOISE), "sha256": hashlib.sha256(NOISE).hexdigest()}
    assert (await desk.push(Counted())).sent_files == 0


async def test_a_push_that_was_cut_goes_on_from_what_the_box_has(desk: Desk) -> None:
    (desk.tree / "a.bin").write_bytes(NOISE * 3)

    first = await desk.cut_push(9 * MB, most=2)
    limits = Counted(most=2)
    await desk.push(limits)

    assert (desk.work / "a.bin").read_bytes() == NOISE * 3
    assert desk.told[0][0] > 0
    assert desk.told[0][0] + limits.sent_bytes == 12 * MB
    # What two senders had under way, and no more.
    assert first + limits.sent_bytes <= 12 * MB + 2 * 3 * MB


async def test_a_file_that_changed_between_two_attempts_is_not_mixed(desk: Desk) -> None:
    (desk.tree / "a.bin").write_bytes(NOISE)
    await desk.cut_push(2 * MB)
    changed = bytes(reversed(NOISE))
    (desk.tree / "a.bin").write_bytes(changed)

    await desk.push(Counted())

    assert (desk.work / "a.bin").read_bytes() == changed
    assert not (desk.work / INCOMING).exists(), "the older version is taken away"


async def test_only_what_changed_of_a_large_file_is_sent_and_all_where_nothing_is_as_it_was(
    desk: Desk,
) -> None:
    (desk.tree / "a.bin").write_bytes(NOISE)
    await desk.push(Counted())
    changed = bytearray(NOISE + b"and some more")
    for at in (0, 3 * MB, 3 * MB + 20_000, 4 * MB - 1):
        changed[at] ^= 1
    (desk.tree / "a.bin").write_bytes(changed)
    limits = Counted()

    with (desk.work / "a.bin").open("rb") as reader:
        await desk.push(limits)
        assert reader.read() == NOISE, "a job that has it open keeps it"
    assert (desk.work / "a.bin").read_bytes() == changed
    assert limits.sent_bytes < 100_000
    (desk.tree / "a.bin").write_bytes(NOISE[1:])
    await desk.push(Counted())
    assert (desk.work / "a.bin").read_bytes() == NOISE[1:]


async def test_a_record_that_says_too_much_costs_one_more_sending(desk: Desk) -> None:
    (desk.tree / "a.bin").write_bytes(NOISE)
    await desk.cut_push(2 * MB)
    (record,) = desk.records.glob("*.json")
    held = json.loads(record.read_text("utf-8"))
    record.write_text(json.dumps({**held, "spans": [[0, len(NOISE) - 5]]}), "utf-8")

    await desk.push(Counted())

    assert (desk.work / "a.bin").read_bytes() == NOISE


async def test_a_file_that_changes_while_it_is_sent_is_never_put_in_place(desk: Desk) -> None:
    (desk.tree / "a.bin").write_bytes(NOISE)

    def write() -> None:
        with (desk.tree / "a.bin").open("r+b") as file:
            file.write(b"another")

    with pytest.raises(CaretakerFailed, match=r"a\.bin changed while it was sent"):
        await desk.push(Counted(3 * MB, write))

    assert not (desk.work / "a.bin").exists()


async def test_too_little_room_is_told_before_anything_is_sent(desk: Desk) -> None:
    (desk.tree / "a.bin").write_bytes(NOISE)
    held = hash_file(desk.tree / "a.bin")
    assert held is not None

    for room in (Index(files={}, disk_free_bytes=100), Index(files={}, inodes_free=0)):
        with pytest.raises(BoxTrouble, match="there is room for") as refused:
            await ship(
                desk.session,
                {"a.bin": held},
                room,
                turn=Alone(),
                records=desk.records,
                progress=lambda here, total: None,
            )
        assert "push again" in refused.value.remedy
    assert desk.way.opened == []


async def test_nothing_goes_through_a_link_that_lies_in_the_way(desk: Desk, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (desk.work / INCOMING).symlink_to(away)
    (desk.tree / "a.bin").write_bytes(NOISE[:MB])

    with pytest.raises(BoxTrouble, match=r"does not take a\.bin"):
        await desk.push(Counted())
    (desk.work / INCOMING).unlink()
    (desk.work / "d").symlink_to(away)
    (desk.tree / "d").mkdir()
    (desk.tree / "d" / "b.bin").write_bytes(NOISE[:MB])
    with pytest.raises(CaretakerFailed, match="leave the work directory"):
        await desk.push(Counted())

    assert list(away.iterdir()) == []


async def test_a_push_that_is_given_up_leaves_no_thread_and_can_go_on(desk: Desk) -> None:
    (desk.tree / "a.bin").write_bytes(NOISE)
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    limits = Counted(3 * MB, lambda: loop.call_soon_threadsafe(begun.set) and None)
    pushing = asyncio.create_task(desk.push(limits))
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
    pushing.cancel()
    with suppress(asyncio.CancelledError):
        await pushing

    await desk.push(Counted())

    assert (desk.work / "a.bin").read_bytes() == NOISE


# --- what the caretaker puts in place -----------------------------------------------------------


async def said_of(desk: Desk, content: bytes, **other: JsonValue) -> dict[str, JsonValue]:
    """It lies among the incoming files; what there is to say of it."""
    incoming = desk.work / INCOMING
    incoming.mkdir(parents=True, exist_ok=True)
    (incoming / ("a" * 64)).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    said: dict[str, JsonValue] = {"name": "d/a.bin", "incoming": "a" * 64, "size": len(content)}
    return {**said, "sha256": digest, "mode": 0o644, "mtime": 1_700_000_000, **other}


async def test_other_bytes_than_were_said_are_taken_away(desk: Desk) -> None:
    lies = await said_of(desk, b"content", sha256="0" * 64), await said_of(desk, b"more", size=3)
    (desk.work / INCOMING / ("b" * 64)).write_bytes(b"content")

    reply = await desk.caretaker.place([{**lies[0], "incoming": "b" * 64}, lies[1]])

    assert (reply.files, reply.other) == ({}, ("d/a.bin", "d/a.bin"))
    assert not (desk.work / "d" / "a.bin").exists()
    assert not (desk.work / INCOMING).exists()


async def test_nothing_is_placed_outside_of_the_work_directory(desk: Desk, tmp_path: Path) -> None:
    said = await said_of(desk, b"content")
    (desk.work / "away").symlink_to(tmp_path)
    before = sorted(tmp_path.iterdir())
    lies: list[dict[str, JsonValue]] = [
        {"name": "/tmp/a"},
        {"name": "away/a"},
        {"name": "."},
        {"incoming": "../x"},
        {"mode": "644"},
        {"name": "../caretaker/pushed.json"},
    ]

    for lie in lies:
        with pytest.raises(CaretakerFailed, match=r"UNSAFE|BAD_REQUEST"):
            await desk.caretaker.place([{**said, **lie}])

    assert sorted(tmp_path.iterdir()) == before
    assert sorted(path.name for path in desk.work.iterdir()) == [INCOMING, "away"]


async def test_an_incoming_link_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    said = await said_of(desk, b"content")
    (tmp_path / "secret").write_bytes(b"content")
    arrived = desk.work / INCOMING / ("a" * 64)
    arrived.unlink()
    arrived.symlink_to(tmp_path / "secret")

    assert (await desk.caretaker.place([said])).other == ("d/a.bin",)
    assert not (desk.work / "d" / "a.bin").exists()


# --- what the courier writes --------------------------------------------------------------------


def courier(*asked: tuple[dict[str, object], bytes]) -> list[bytes]:
    """The letters of the answers to those requests."""
    lines = b"".join(
        json.dumps({"id": n, **request}).encode() + b"\n" + body
        for n, (request, body) in enumerate(asked)
    )
    said = subprocess.run(
        [sys.executable, "-I", "-S", str(script("courier.py")), "mark"],
        input=lines,
        stdout=subprocess.PIPE,
        check=True,
        timeout=PATIENCE_S,
    ).stdout.removeprefix(b"mark\n")
    letters = []
    while said:
        letters.append(said[:1])
        said = said[16 + int.from_bytes(said[8:16], "big") :]
    return letters


def test_packed_bytes_are_written_as_they_were_and_spans_are_copied(tmp_path: Path) -> None:
    new, old = tmp_path / "incoming" / "new", tmp_path / "old"
    old.write_bytes(NOISE[:MB])
    packed, place = zlib.compress(b"x" * 5000), str(new)

    answers = courier(
        ({"do": "write", "at": place, "first": 10, "size": 5000, "pack": len(packed)}, packed),
        ({"do": "copy", "from": str(old), "at": place, "spans": [[0, 10], [5010, 90]]}, b""),
        ({"do": "copy", "from": str(old), "at": place, "spans": [[MB - 1, 2]]}, b""),
        ({"do": "write", "at": str(tmp_path), "first": 0, "size": 3}, b"abc"),
        ({"do": "write", "at": place, "first": 5100, "size": 3}, b"end"),
    )

    assert answers == [b"A", b"A", b"E", b"E", b"A"]
    assert new.read_bytes() == NOISE[:10] + b"x" * 5000 + NOISE[5010:5100] + b"end"


def test_what_was_hashed_knows_whether_its_file_was_touched(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    before = hash_file(path)
    path.write_bytes(b"two")
    after = hash_file(path)

    assert before
    assert after
    assert replace(before, seen=after.seen) != after
    assert before.sha256 == hashlib.sha256(b"one").hexdigest()
