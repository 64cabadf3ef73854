"""Homes that no lease was ever in, boxes behind sshd, and nothing of either that stays behind."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from e2e.leased import end_processes
from e2e.owner import Owner
from e2e.people import NewBox, Person, World, nothing_left_on
from e2e.rehearsal import Rehearsal, nothing_left_of
from e2e.renting import Tenant, tenant_at
from parts import required
from sshd import Relay, Sshd

from gpu_tenant.transports.ssh import ensure_key


def _in_boxes_below(home: Path) -> list[int]:
    """The processes of this computer that belong to a box of that home."""
    mark, found = f"GPU_TENANT_BOX={home}/".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or it is another user's
            variables = (entry / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(mark) for variable in variables):
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty HOME; what still runs in its boxes at the end is killed."""
    directory = tmp_path_factory.mktemp("home").resolve()
    yield directory
    for pid in _in_boxes_below(directory):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def in_boxes(home: Path) -> Callable[[], list[int]]:
    """Which processes belong to a box of `home` at this instant."""
    return lambda: _in_boxes_below(home)


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    """Somebody who has gpu-tenant and its key, and no lease yet."""
    made = Person(tmp_path / "person")
    ensure_key(made.public_key.with_suffix(""))
    for name in ("HOME", "GPU_TENANT_HOME"):
        monkeypatch.setenv(name, made.environment[name])
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return made


@pytest.fixture
def new_box(tmp_path: Path, person: Person) -> Iterator[NewBox]:
    """Makes a box of that name, which lets the person in."""
    with ExitStack() as boxes:

        def make(name: str = "box", *, authorized: Path | None = None, options: str = "") -> Sshd:
            home = tmp_path / name / "home"
            boxes.enter_context(nothing_left_on(home))
            return boxes.enter_context(
                Sshd(tmp_path / name, authorized=authorized or person.public_key, options=options)
            )

        yield make


@pytest.fixture
def box(new_box: NewBox) -> Sshd:
    return new_box()


@pytest.fixture
def relay(box: Sshd) -> Iterator[Relay]:
    with Relay(box.port) as made:
        yield made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


@pytest.fixture
def heavy(tmp_path: Path) -> World:
    """One whose job makes 20 MB that no compression shortens."""
    return World(tmp_path / "heavy", weights_bytes=20_000_000)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text("print('training')\n", encoding="utf-8")
    yield Owner(tmp_path / "state", tree)
    end_processes(tmp_path / "state" / "boxes")


@pytest.fixture
async def tenant(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tenant]:
    """Somebody at the rehearsal of the provider that the test is given."""
    async with tenant_at(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def rehearse(tmp_path: Path) -> Iterator[Callable[..., Rehearsal]]:
    """Begins a rehearsal on the command line."""
    begun: list[Rehearsal] = []

    def begin(provider: str = "vastai", *, port: int = 0) -> Rehearsal:
        begun.append(Rehearsal(tmp_path, provider, port))
        return begun[-1]

    with nothing_left_of(begun):
        yield begin


@pytest.fixture
def rehearsal(rehearse: Callable[..., Rehearsal]) -> Rehearsal:
    """One of RunPod, whose boxes are behind sshd."""
    required("sshd")
    return rehearse("runpod")
