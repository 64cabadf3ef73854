"""A real lease on a local box, brought to a stage once and put back there for every test."""

import asyncio
import contextlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import pytest
from arranged import eventually
from unit.formats.samples import GOOD
from waited import over

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import ProviderTrouble
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.permit import TeardownPermit
from gpu_tenant.faces.cli import main
from gpu_tenant.files.paths import escape
from gpu_tenant.providers.local.connector import BOX_VARIABLE, LocalConnector
from gpu_tenant.service import Tenancy

T = TypeVar("T")

PLAIN = (
    "state_dict.safetensors",
    "state_dict.pt",
    "array.npy",
    "results.json",
    "log.jsonl",
    "runs.sqlite",
    "run.tar.gz",
    "plot.png",
)
OPAQUE = "weights.bin"
HOSTILE = (
    b"new\nline.json",
    b'it\'s "quoted".json',
    b"..x.json",
    b"-rf.json",
    b"a space.json",
    b"%41.json",
    b"not\xffutf-8.json",
    "é".encode() * 125 + b".json",
)
LINK = "latest.json"
JOB = f"mkdir out && cp -R made/. out/ && ln -s results.json out/{LINK} && echo done"

Stage = Literal["finished", "collected", "cut short"]


def artifacts() -> dict[str, bytes]:
    """What the job writes, by file name in surrogateescape form."""
    hostile = {os.fsdecode(name): b'["%d"]' % n for n, name in enumerate(HOSTILE)}
    assert all(len(os.fsencode(name)) <= 255 for name in hostile)
    opaque = bytes(range(1, 256)) * 20
    return {name: GOOD[name] for name in PLAIN} | {OPAQUE: opaque} | hostile


@dataclass
class Destroys:
    """Every destroy that reached the connector, by the ground it had; `refuse` makes the next fail."""

    grounds: list[str] = field(default_factory=list)
    refuse: bool = False

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """The real connector destroys as ever, and it is on record here."""
        destroy = LocalConnector.destroy

        async def recorded(connector: LocalConnector, permit: TeardownPermit) -> None:
            if self.refuse:
                raise ProviderTrouble("come back later", remedy="`gpu-tenant teardown` again")
            self.grounds.append(permit.ground.name)
            await destroy(connector, permit)

        patch.setattr(LocalConnector, "destroy", recorded)


@dataclass
class Leased:
    """One lease, the directories it has here and on the box, and the ways to speak to it."""

    state: Path
    id: str = ""
    meanwhile: ExitStack = field(default_factory=ExitStack)
    """What a test has going on beside the lease; closed before it is mended."""

    @property
    def work(self) -> Path:
        """The work directory on the box."""
        return self.login / "gpu-tenant" / self.id / "work"

    @property
    def login(self) -> Path:
        """The box's home directory."""
        return self.state / "boxes" / self.id / "home"

    @property
    def out(self) -> Path:
        """The artifacts on the box."""
        return self.work / "out"

    @property
    def records(self) -> Path:
        """What the caretaker has written on the box."""
        return self.login / "gpu-tenant" / self.id / "caretaker"

    @property
    def kept(self) -> Path:
        """The directory here that collect fills."""
        return self.state / "kept" / self.id

    @property
    def here(self) -> Path:
        """The artifacts on this computer."""
        return self.kept / "work" / "out"

    def ask(self, verb: Callable[[Tenancy], Awaitable[T]]) -> T:
        """What a fresh tenancy, as another process would open it, answers."""

        async def once() -> T:
            tenancy = open_tenancy(os.environ)
            try:
                return await verb(tenancy)
            finally:
                await tenancy.aclose()

        return asyncio.run(once())

    def stands(self) -> tuple[LeaseState, int]:
        """The lease's state, and how many permits were ever filed for it."""

        async def look(tenancy: Tenancy) -> tuple[LeaseState, int]:
            kinds = [line.kind for line in tenancy.ledger.events(self.id)]
            return tenancy.ledger.lease(self.id).state, kinds.count("permitted")

        return self.ask(look)

    def on_the_box(self) -> dict[str, object]:
        """Everything in the work directory: files by their bytes, links by their targets."""
        return {os.fspath(path): _content(path) for path in sorted(self.work.rglob("*"))}

    def end_processes(self) -> None:
        """Nothing runs on the box any more."""
        end_processes(self.login)


def end_processes(boxes: Path) -> None:
    """Nothing runs any more on a local box that is, or lies below, that directory."""

    def living() -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                marks = (entry / "environ").read_bytes().split(b"\0")
                if any(mark.startswith(f"{BOX_VARIABLE}={boxes}".encode()) for mark in marks):
                    found.append(int(entry.name))
        return found

    for pid in living():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not living())


def _content(path: Path) -> object:
    if path.is_symlink():
        return path.readlink()
    return path.read_bytes() if path.is_file() else path.lstat().st_mode


class Stages:
    """One lease, and a copy of everything it had at each stage of its life."""

    def __init__(self, root: Path, destroys: Destroys) -> None:
        self._root, self._destroys = root, destroys
        self.lease = Leased(root / "state")

    def live(self) -> None:
        """The lease went through its stages, and a copy of each was taken."""
        made = self._root / "tree" / "made"
        made.mkdir(parents=True)
        for name, content in artifacts().items():
            (made / name).write_bytes(content)

        async def to_the_end_of_the_job(tenancy: Tenancy) -> str:
            lease = (await tenancy.provision(smoke="none")).lease
            await tenancy.push(lease, os.fspath(made.parent))
            await tenancy.launch_detached(lease, JOB, ["out/"])
            seen = await over(tenancy, lease)
            assert seen.state == "finished", seen
            return lease

        self.lease.id = self.lease.ask(to_the_end_of_the_job)
        self.lease.end_processes()
        self._remember("finished")
        self.lease.ask(lambda tenancy: tenancy.collect(self.lease.id))
        self._remember("collected")
        self._destroys.refuse = True
        with pytest.raises(ProviderTrouble):
            self.lease.ask(lambda tenancy: tenancy.verify_and_teardown(self.lease.id))
        self._destroys.refuse = False
        assert self.lease.stands() == (LeaseState.TERMINATING, 1)
        self._remember("cut short")

    def at(self, stage: Stage) -> Leased:
        """The lease is again as it was at that stage."""
        spoiled = self._root / "spoiled"
        self.lease.end_processes()
        self.lease.state.rename(spoiled)
        shutil.copytree(self._root / stage, self.lease.state, symlinks=True)
        shutil.rmtree(spoiled)
        return self.lease

    def _remember(self, stage: Stage) -> None:
        shutil.copytree(self.lease.state, self._root / stage, symlinks=True)


def command(*words: str) -> tuple[int, str, str]:
    """How the command line, in this process, ended: its status, stdout and stderr."""
    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["gpu-tenant", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    finally:
        sys.argv = argv
    return status, out.getvalue(), err.getvalue()


def escaped(name: bytes) -> str:
    """A file name as the program shows it."""
    return escape(os.fsdecode(name))
