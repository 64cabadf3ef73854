"""Transfers from a local box whose channels are counted, cut, slow, or somebody else."""

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Literal

from arranged import PATIENCE_S, eventually

from gpu_tenant.domain.ports import Channel
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.paths import escape
from gpu_tenant.transfer.chunks import Coming
from gpu_tenant.transfer.download import carry_files
from gpu_tenant.transfer.readback import Arrived, Lost
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
            name=escape(name),
            at=escape(os.fsdecode(path)),
            kind="file",
            role="artifact",
            mtime_ns=1,
            size_bytes=len(content),
            sha256=None,
        )


COUNTING = """\
import os, sys, zlib
script = zlib.decompress(sys.stdin.buffer.read(int(sys.argv[1])))
del sys.argv[:2]
sys.argv.insert(0, "courier")
log, say = os.open(os.path.join("..", "sent"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), os.write
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
    return sum(map(int, (box.directory.parent / "sent").read_text(encoding="utf-8").split()))


class Throttled:
    """A turn that lets so many bytes pass in a second, over so many connections."""

    def __init__(self, bytes_s: float = 1e12, most: int = 2) -> None:
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


@contextmanager
def nothing_left() -> Iterator[None]:
    """No thread, no process and no open file is left of what was done in between."""
    threads, files = set(threading.enumerate()), len(list(OPEN.iterdir()))
    before = children()
    yield
    assert eventually(lambda: set(threading.enumerate()) <= threads), threading.enumerate()
    assert eventually(lambda: len(list(OPEN.iterdir())) <= files)
    assert not children() - before


def children() -> set[int]:
    """The processes that this one has started and that live."""
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
    within_s: float = PATIENCE_S,
) -> Told:
    """The whole transfer; `meanwhile` is called when bytes have come."""
    told = told or Told()

    def came(count: int) -> None:
        told.came(count)
        meanwhile(told)

    async with asyncio.timeout(within_s):
        stream = carry_files(files, transport=box, turn=turn or Throttled(), on_bytes=came)
        async for what in stream:
            told.add(what)
    return told


def is_whole(arrived: Arrived, content: bytes) -> bool:
    """Whether those bytes lie where they arrived, as was told."""
    told = (arrived.size_bytes, arrived.sha256)
    at = arrived.coming.partial
    return at.read_bytes() == content and told == (len(content), sha256(content).hexdigest())


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
    if asked["do"] == "echo":
        say(head(b"A", 0))
        continue
    for size in [s for _, s in asked.get("spans", ())] + [s for _, s in asked.get("files", ())]:
        """
"""A box that greets as it should, and then says what follows to each thing it is asked for."""
