"""Files come from a box whole or not at all, whatever becomes of the channels that carry them."""

import asyncio
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pytest
from arranged import eventually

from gpu_tenant.errors import BoxTrouble, BoxUnreachable
from gpu_tenant.model import SealedFile
from gpu_tenant.paths import escape
from gpu_tenant.ports import Channel
from gpu_tenant.transfer.arrival import carried
from gpu_tenant.transfer.partial import Partial, Span, held_bytes
from gpu_tenant.transfer.pieces import Coming
from gpu_tenant.transfer.proof import Arrived, Lost
from gpu_tenant.transports.local import LocalTransport

MB = 1 << 20
OPEN = Path("/proc/self/fd")
NOISE = random.Random(3).randbytes(6 * MB)


class Box(LocalTransport):
    """A real local box, whose channels are counted, can be cut, and can be somebody else."""

    def __init__(self, directory: Path, *, instead: str | None = None) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(directory)
        self.directory, self.opened = directory, list[Channel]()
        self._instead = instead

    async def open(self, argv: Sequence[str], *, way: Literal["kept", "own"]) -> Channel:
        if self._instead is not None:
            program = list(argv).index("-c") + 1
            argv = [*argv[:program], self._instead, *argv[program + 1 :]]
        channel = await super().open(argv, way=way)
        self.opened.append(channel)
        return channel

    def holds(self, name: str, content: bytes, *, at: str | None = None) -> SealedFile:
        """A file lies there; its entry."""
        path = os.fsencode(self.directory) + b"/" + os.fsencode(at or name)
        with Path(os.fsdecode(path)).open("wb") as file:
            file.write(content)
        return SealedFile(
            name=escape(name), at=escape(os.fsdecode(path)), kind="file", role="artifact", mtime_ns=1,
            size_bytes=len(content), sha256=None,
        )  # fmt: skip


COUNTING = """\
import os, sys, zlib
script = zlib.decompress(sys.stdin.buffer.read(int(sys.argv[1])))
del sys.argv[:2]
sys.argv.insert(0, "courier")
log, say = os.open("sent", os.O_WRONLY | os.O_CREAT | os.O_APPEND), os.write
def counted(call):
    def called(*words):
        count = call(*words)
        say(log, b"%d\\n" % count)
        return count
    return called
os.write, os.sendfile = counted(os.write), counted(os.sendfile)
exec(compile(script, "courier", "exec"), {"__name__": "__main__"})
"""
"""What starts the courier, and keeps a tally of what it sends."""


def sent_by(box: Box) -> int:
    """So much came over the channels of a box that keeps a tally."""
    return sum(map(int, (box.directory / "sent").read_text(encoding="utf-8").split()))


class Throttled:
    """A turn that lets so many bytes pass in a second, over so many connections."""

    def __init__(self, bytes_s: float = 1e12, most: int = 64) -> None:
        self._bytes_s, self._most, self.count = bytes_s, most, 0
        self._lock, self._free_at = threading.Lock(), 0.0

    def connections(self, wanted: int) -> int:
        return min(wanted, self._most)

    def pause_s(self, n_bytes: int) -> float:
        with self._lock:
            now = time.monotonic()
            begins = max(now, self._free_at)
            self._free_at = begins + n_bytes / self._bytes_s
            return begins - now


@pytest.fixture
def here(tmp_path: Path) -> Path:
    made = tmp_path / "here"
    made.mkdir()
    return made


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "box")


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """No thread, no process and no open file is left of any transfer."""
    threads, files = set(threading.enumerate()), len(list(OPEN.iterdir()))
    yield
    assert eventually(lambda: set(threading.enumerate()) <= threads), threading.enumerate()
    assert len(list(OPEN.iterdir())) <= files
    assert not children()


def children() -> set[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8")
    return {int(pid) for pid in listed.split()}


def coming(here: Path, entries: Sequence[SealedFile], basis: Path | None = None) -> list[Coming]:
    """Each arrives at the place of its number."""
    return [Coming(entry, here / str(n), basis) for n, entry in enumerate(entries)]


class Told:
    """What became of a transfer."""

    def __init__(self) -> None:
        self.bytes, self.arrived, self.lost = 0, dict[str, Arrived](), dict[str, str]()

    def came(self, count: int) -> None:
        assert count > 0
        self.bytes += count

    def add(self, what: Arrived | Lost) -> None:
        name = what.coming.entry.name
        assert name not in self.arrived.keys() | self.lost.keys(), "each once"
        if isinstance(what, Arrived):
            self.arrived[name] = what
        else:
            self.lost[name] = what.why


async def fetched(
    files: Sequence[Coming],
    box: Box,
    *,
    turn: Throttled | None = None,
    meanwhile: Callable[[Told], object] = lambda told: None,
    told: Told | None = None,
    within_s: float = 20,
) -> Told:
    """The whole transfer; `meanwhile` is called when bytes have come."""
    told = told or Told()

    def came(count: int) -> None:
        told.came(count)
        meanwhile(told)

    async with asyncio.timeout(within_s):
        stream = carried(files, transport=box, turn=turn or Throttled(), on_bytes=came)
        async for what in stream:
            told.add(what)
    return told


def is_whole(arrived: Arrived, content: bytes) -> bool:
    """Whether those bytes lie where they arrived, as was told."""
    told = (arrived.size_bytes, arrived.sha256)
    at = arrived.coming.partial
    return at.read_bytes() == content and told == (len(content), sha256(content).hexdigest())


# What is there arrives


async def test_many_small_and_a_few_large_files_arrive_as_they_are(box: Box, here: Path) -> None:
    chance = random.Random(4)
    held = {f"small {n}": chance.randbytes(chance.randrange(3000)) for n in range(600)}
    held |= {"empty": b"", "edge": NOISE[:MB], "below": NOISE[1:MB], "above": NOISE[: MB + 1]}
    held |= {"large": NOISE, "text": b"the same line again\n" * 200_000}
    entries = [box.holds(name, content) for name, content in held.items()]

    told = await fetched(coming(here, entries), box)

    assert not told.lost
    assert all(is_whole(told.arrived[name], content) for name, content in held.items())
    assert told.bytes == sum(len(content) for content in held.values())


async def test_a_file_of_any_name_arrives(box: Box, here: Path) -> None:
    names = [
        "new\nline", "it's \"quoted\"", "%41", os.fsdecode(b"not\xffutf-8"), "-rf", "é" * 127, " ",
        "\\", "\x01\x7f",
    ]  # fmt: skip
    entries = [box.holds(name, name.encode("utf-8", "surrogateescape")) for name in names]
    entries += [box.holds(f"large{name[:50]}", NOISE[: MB + 7]) for name in names]

    told = await fetched(coming(here, entries), box)

    assert len(told.arrived) == 2 * len(names)
    for name in names:
        assert is_whole(told.arrived[escape(name)], name.encode("utf-8", "surrogateescape"))
        assert is_whole(told.arrived[escape(f"large{name[:50]}")], NOISE[: MB + 7])


async def test_nothing_is_no_work(box: Box) -> None:
    assert not (await fetched([], box)).arrived
    assert not box.opened


async def test_what_cannot_be_had_is_told_and_all_else_arrives(box: Box, here: Path) -> None:
    names = ("gone", "shrunk", "pipe", "directory", "link", "unharmed")
    entries = []
    for size, kind in ((1000, "small"), (2 * MB, "large")):
        entries += [box.holds(f"{kind} {name}", NOISE[:size]) for name in names]
        at = {name: box.directory / f"{kind} {name}" for name in names}
        for name in names[:-1]:
            at[name].unlink()
        at["shrunk"].write_bytes(NOISE[: size - 1])
        os.mkfifo(at["pipe"])
        at["directory"].mkdir()
        at["link"].symlink_to("gone")

    told = await fetched(coming(here, entries), box)

    assert set(told.arrived) == {"small unharmed", "large unharmed"}
    assert set(told.lost) == {f"{k} {n}" for k in ("small", "large") for n in names[:-1]}
    assert all(is_whole(one, NOISE[: one.size_bytes]) for one in told.arrived.values())


async def test_a_file_that_shrinks_while_it_is_fetched_is_lost_alone(box: Box, here: Path) -> None:
    entries = [box.holds("shrinks", NOISE), box.holds("other", NOISE[: 2 * MB])]
    shrunk = []

    def shrink(told: Told) -> None:
        if not shrunk:
            shrunk.append(os.truncate(box.directory / "shrinks", 1000))

    told = await fetched(coming(here, entries), box, turn=Throttled(8 * MB), meanwhile=shrink)

    assert set(told.lost) == {"shrinks"}
    assert is_whole(told.arrived["other"], NOISE[: 2 * MB])


async def test_a_large_file_comes_over_several_channels_where_it_may(box: Box, here: Path) -> None:
    entries = [box.holds("large", NOISE * 3)]

    told = await fetched(coming(here, entries), box, turn=Throttled(40 * MB))
    alone = Box(box.directory)
    await fetched(coming(here / "..", entries), alone, turn=Throttled(most=1))

    assert is_whole(told.arrived["large"], NOISE * 3)
    assert len(box.opened) > 1
    assert len(alone.opened) == 1


# Channels die


async def test_what_a_dead_channel_owed_comes_over_another(box: Box, here: Path) -> None:
    entries = [box.holds("large", NOISE * 2)]
    entries += [box.holds(f"small {n}", NOISE[n : n + 5000]) for n in range(300)]
    killed: list[int] = []

    def kill(told: Told) -> None:
        living = children()
        if len(killed) < 3 and told.bytes > len(killed) * 3 * MB and len(living) > 1:
            killed.append(min(living))
            os.kill(killed[-1], signal.SIGKILL)

    told = await fetched(coming(here, entries), box, turn=Throttled(16 * MB), meanwhile=kill)

    assert killed
    assert is_whole(told.arrived["large"], NOISE * 2)
    assert len(told.arrived) == 301
    assert told.bytes == sum(entry.size_bytes for entry in entries)


async def test_when_all_channels_die_the_next_call_fetches_what_is_missing_and_no_more(
    box: Box, here: Path
) -> None:
    size = len(NOISE)
    files = coming(here, [box.holds("large", NOISE), box.holds("next", NOISE[: 2 * MB])])
    first = Told()

    def kill_all(told: Told) -> None:
        if told.bytes > 2 * MB:
            box.directory = box.directory.rename(box.directory.with_name("unreachable"))
            for pid in children():
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(BoxTrouble) as met:
        await fetched(files, box, turn=Throttled(12 * MB), meanwhile=kill_all, told=first)
    assert isinstance(met.value, BoxUnreachable), met.value
    box.directory = box.directory.rename(box.directory.with_name("box"))
    here_already = sum(held_bytes(one.partial, one.entry.size_bytes) for one in files)
    told = await fetched(files, box)

    assert 2 * MB < here_already <= first.bytes
    assert told.bytes == size + 2 * MB - here_already
    assert is_whole(told.arrived["large"], NOISE)
    assert is_whole(told.arrived["next"], NOISE[: 2 * MB])


async def test_a_box_without_python_is_told_as_trouble(tmp_path: Path, here: Path) -> None:
    box = Box(tmp_path / "box", instead="import sys; sys.exit(1)")

    with pytest.raises(BoxTrouble):
        await fetched(coming(here, [box.holds("file", NOISE)]), box)


async def test_a_box_that_is_gone_is_told_as_trouble(box: Box, here: Path) -> None:
    files = coming(here, [box.holds("file", NOISE)])
    box.directory.rename(here / "elsewhere")

    with pytest.raises(BoxUnreachable):
        await fetched(files, box)


async def test_a_cancelled_transfer_goes_on_later(box: Box, here: Path) -> None:
    files = coming(here, [box.holds("large", NOISE)])
    told, some = Told(), asyncio.Event()
    loop = asyncio.get_running_loop()
    task = loop.create_task(
        fetched(files, box, told=told, turn=Throttled(8 * MB),
                meanwhile=lambda told: told.bytes > MB and some.set())
    )  # fmt: skip
    await some.wait()

    task.cancel()
    (ended,) = await asyncio.gather(task, return_exceptions=True)

    assert isinstance(ended, asyncio.CancelledError)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("courier")]
    held = held_bytes(files[0].partial, len(NOISE))
    assert held >= MB
    again = await fetched(files, box)
    assert again.bytes == len(NOISE) - held
    assert is_whole(again.arrived["large"], NOISE)


# An older version is here


@pytest.mark.parametrize("changed", [0, 3 * MB + 5, len(NOISE) - 1])
async def test_of_a_file_that_changed_in_one_block_about_one_block_comes(
    box: Box, here: Path, changed: int
) -> None:
    new = bytearray(NOISE)
    new[changed] ^= 1
    old = here / "old"
    old.write_bytes(NOISE)
    box = Box(box.directory, instead=COUNTING)
    entry = box.holds("large", bytes(new))

    told = await fetched(coming(here, [entry], old), box)

    assert is_whole(told.arrived["large"], bytes(new))
    assert old.read_bytes() == NOISE
    assert 16_384 <= sent_by(box) <= 16_384 + len(NOISE) // 2048 + 5000


@pytest.mark.parametrize(
    "old",
    [NOISE, NOISE[: 4 * MB + 77], NOISE + b"more" * 9999, NOISE[1:], bytes(2 * MB), b"", b"x"],
    ids=["identical", "shorter", "longer", "shifted", "zeros", "empty", "a byte"],
)
async def test_whatever_the_older_version_is_the_new_one_arrives(
    box: Box, here: Path, old: bytes
) -> None:
    (here / "old").write_bytes(old)

    told = await fetched(coming(here, [box.holds("large", NOISE)], here / "old"), box)

    assert is_whole(told.arrived["large"], NOISE)
    assert (here / "old").read_bytes() == old
    assert not (here / "old").samefile(here / "0")


async def test_an_older_version_is_of_use_to_an_attempt_that_goes_on(here: Path) -> None:
    box = Box(here / "box", instead=COUNTING)
    new = bytearray(NOISE)
    new[5 * MB] ^= 1
    (here / "old").write_bytes(NOISE)
    files = coming(here, [box.holds("large", bytes(new))], here / "old")
    begun = Partial(files[0].partial, len(NOISE))
    begun.write(memoryview(NOISE[: MB + 100]), 0)
    begun.filled(Span(0, MB + 100))
    begun.close()

    told = await fetched(files, box)

    assert is_whole(told.arrived["large"], bytes(new))
    assert sent_by(box) < 4 * 16_384


async def test_where_no_more_fits_here_it_is_told_and_goes_on_later(box: Box, here: Path) -> None:
    files = coming(here, [box.holds("large", NOISE)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(told: Told) -> None:
        # All that is written from now on, at any place behind, finds no room.
        resource.setrlimit(resource.RLIMIT_FSIZE, (MB, hard))

    try:
        with pytest.raises(OSError, match="too large"):
            await fetched(files, box, turn=Throttled(8 * MB), meanwhile=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    held = held_bytes(files[0].partial, len(NOISE))
    told = await fetched(files, box)

    assert told.bytes == len(NOISE) - held < len(NOISE)
    assert is_whole(told.arrived["large"], NOISE)


# A box that lies

LYING = """\
import json, os, struct, sys, time, zlib
sys.stdin.buffer.read(int(sys.argv[1]))
def say(content):
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(0)
def head(letter, size):
    return struct.pack(">cxxxIQ", letter, asked["id"], size)
say(b"Welcome!\\n" + sys.argv[2].encode() + b"\\n")
for line in sys.stdin.buffer:
    asked = json.loads(line.decode())
    for size in [s for _, s in asked.get("spans", ())] + [s for _, s in asked.get("files", ())]:
        """
"""A box that greets as it should, and then says what follows to each thing it is asked for."""


@pytest.mark.parametrize("size_bytes", [1000, 3 * MB // 2], ids=["small", "large"])
@pytest.mark.parametrize(
    "says",
    [
        "say(head(b'Q', size) + bytes(size))",
        "say(b'HTTP/1.1 400 Bad Request')",
        "say(head(b'A', 2) + b'{}')",
        "say(head(b'S', 8) + bytes(8))",
        "say(head(b'D', size - 1) + bytes(size - 1))",
        "say(head(b'D', size + 1) + bytes(size + 1))",
        "say(head(b'D', 1 << 62)); [say(bytes(1 << 20)) for _ in range(10 ** 9)]",
        "say(head(b'E', 1 << 62)); [say(bytes(1 << 20)) for _ in range(10 ** 9)]",
        "say(head(b'Z', 1 << 62)); [say(bytes(1 << 20)) for _ in range(10 ** 9)]",
        "say(head(b'D', size) + bytes(size // 2)); os._exit(0)",
        "say(head(b'Z', 30) + b'this is nothing that unpacks..')",
        "bomb = zlib.compress(bytes(100 << 20)); say(head(b'Z', len(bomb)) + bomb)",
        "torn = zlib.compress(os.urandom(size))[:-3]; say(head(b'Z', len(torn)) + torn)",
        "os._exit(1)",
    ],
)
async def test_an_answer_that_is_none_ends_the_conversation_and_nothing_arrives(
    tmp_path: Path, here: Path, says: str, size_bytes: int
) -> None:
    box = Box(tmp_path / "box", instead=LYING + says)
    told = Told()

    with pytest.raises(BoxUnreachable):
        await fetched(coming(here, [box.holds("file", NOISE[:size_bytes])]), box, told=told)

    assert (told.arrived, told.lost) == ({}, {})


async def test_other_bytes_than_the_file_s_are_told_as_what_they_are(
    tmp_path: Path, here: Path
) -> None:
    box = Box(tmp_path / "box", instead=LYING + "say(head(b'D', size) + b'x' * size)")
    sizes = {"small": 1000, "large": 3 * MB // 2}
    entries = [box.holds(name, NOISE[:size]) for name, size in sizes.items()]

    told = await fetched(coming(here, entries), box)

    assert all(is_whole(told.arrived[name], b"x" * size) for name, size in sizes.items())


@pytest.mark.parametrize("why", ["b'not even JSON'", "bytes(range(256)) * 9999", "b''"])
async def test_whatever_a_refusal_says_the_file_is_lost(
    tmp_path: Path, here: Path, why: str
) -> None:
    box = Box(tmp_path / "box", instead=f"{LYING}why = {why}; say(head(b'E', len(why)) + why)")
    entries = [box.holds("small", NOISE[:1000]), box.holds("large", NOISE[: 3 * MB // 2])]

    told = await fetched(coming(here, entries), box)

    assert set(told.lost) == {"small", "large"}


async def test_wrong_digests_cost_time_and_spoil_nothing(tmp_path: Path, here: Path) -> None:
    """They say of every block that it is as it was: then the hash tells that the file is another one."""
    says = "pass\n    blocks = asked['size'] // 16384; from hashlib import sha256"
    says += "\n    say(head(b'S', 8 * blocks) + sha256(bytes(16384)).digest()[:8] * blocks)"
    box = Box(tmp_path / "box", instead=LYING + says)
    (here / "old").write_bytes(bytes(3 * MB // 2))

    told = await fetched(
        coming(here, [box.holds("large", NOISE[: 3 * MB // 2])], here / "old"), box
    )

    assert is_whole(told.arrived["large"], bytes(3 * MB // 2)), "and not what the box holds"


async def test_memory_does_not_grow_with_what_is_fetched(box: Box, here: Path) -> None:
    entries = [box.holds(f"large {n}", b"") for n in range(4)]
    for n in range(4):
        os.truncate(box.directory / f"large {n}", 48 * MB)
    entries = [entry.model_copy(update={"size_bytes": 48 * MB}) for entry in entries]

    def resident() -> int:
        pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()
        return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")

    before, most = resident(), 0

    def look(told: Told) -> None:
        nonlocal most
        most = max(most, resident())

    told = await fetched(coming(here, entries), box, meanwhile=look)

    assert len(told.arrived) == 4
    assert most - before < 128 * MB
