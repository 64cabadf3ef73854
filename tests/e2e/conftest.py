"""A home that no lease was ever in, and from which nothing stays behind."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest


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
