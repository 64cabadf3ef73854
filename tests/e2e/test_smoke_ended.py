"""A smoke test that is ended in the middle leaves nothing behind: no process, and no copy of the data."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from arranged import eventually
from e2e.owner import command_lines
from terminal import heed_signals

LONG = "touch begun; exec sleep 600.25"


class Smoked:
    """A `gpu-tenant smoke` in a process of its own, whose command runs for long."""

    def __init__(self, root: Path, command: str = LONG) -> None:
        self.places = root / "places"
        tree = root / "tree"
        for directory in (self.places, tree):
            directory.mkdir(exist_ok=True)
        (tree / "data.bin").write_bytes(b"much")
        self.environ = {
            **os.environ,
            "HOME": str(root),
            "GPU_TENANT_HOME": str(root / "home"),
            "TMPDIR": str(self.places),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpu_tenant", "smoke", str(tree), "--", command],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            preexec_fn=heed_signals,
        )

    def passed(self) -> bool:
        self.process.communicate(timeout=60)
        return self.process.returncode == 0

    def copies(self) -> list[Path]:
        return [*self.places.glob("gpu-tenant-smoke-*")]

    def has_begun(self) -> bool:
        return any(self.places.glob("gpu-tenant-smoke-*/tree/begun"))

    def living(self) -> list[int]:
        """The processes of the test, the sandbox and the command among them."""
        ours = os.fsencode(self.places)
        return [
            pid
            for pid, line in command_lines()
            if ours in line or b"600.25" in line or ours in _environ_of(pid)
        ]


def _environ_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_smoke_test_that_is_told_to_end_leaves_no_process_and_no_copy(
    tmp_path: Path, number: signal.Signals
) -> None:
    smoked = Smoked(tmp_path)
    assert eventually(smoked.has_begun)

    smoked.process.send_signal(number)
    _, said = smoked.process.communicate(timeout=60)

    assert smoked.process.returncode in (-number, 130)
    assert smoked.copies() == []
    assert eventually(lambda: not smoked.living())
    assert "boxes and jobs go on" not in said
    assert ("its copy is removed" in said) == (number is signal.SIGINT)


def test_what_a_killed_smoke_test_leaves_ends_with_it_or_goes_with_the_next(tmp_path: Path) -> None:
    killed = Smoked(tmp_path)
    assert eventually(killed.has_begun)
    (left,) = killed.copies()
    theirs = killed.places / "gpu-tenant-smoke-mine"
    theirs.mkdir()

    killed.process.kill()
    killed.process.communicate(timeout=60)

    assert eventually(lambda: not killed.living())
    assert left.exists()
    assert Smoked(tmp_path, "true").passed()
    assert killed.copies() == [theirs], "nobody knows who made that one"


def test_the_copy_of_a_smoke_test_that_runs_is_left_alone_by_another(tmp_path: Path) -> None:
    running = Smoked(tmp_path)
    assert eventually(running.has_begun)

    assert Smoked(tmp_path, "true").passed()

    assert running.has_begun()
    running.process.terminate()
    running.process.communicate(timeout=60)
