"""A lease's directory with its guard, as the tests of the guard use it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from arranged import PATIENCE_S

CARETAKER = Path(__file__).parents[1] / "scripts" / "caretaker.py"
Reply = dict[str, Any]

CLOCKED = """\
import sys, time
real, path, script = time.time, sys.argv[1], sys.argv[2]
time.time = lambda: real() + float(open(path).read())
sys.argv = sys.argv[2:]
exec(compile(open(script, "rb").read(), script, "exec"), {"__name__": "__main__", "__file__": script})
"""
"""The caretaker under a wall clock that can be set while it runs."""

TELLS = """\
import json, os, sys
sys.stdout.write(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "says")).read())
with open(os.path.abspath(__file__) + ".asked", "a") as file:
    file.write(json.dumps([sys.argv[1:], None if "look" in sys.argv else json.load(sys.stdin)]) + "\\n")
"""
"""Stands for a script beside the guard: it notes what it is asked, and says what it was told to say."""


def until(is_so: Callable[[], object], limit_s: float = PATIENCE_S) -> None:
    give_up = time.monotonic() + limit_s  # a bound, not a synchronisation
    while not is_so():
        assert time.monotonic() < give_up, "it did not become so in time"
        time.sleep(0.01)  # noqa: TID251


class Box:
    """A lease's directory, whose wall clock is in a file."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.work = root, root / "caretaker", root / "work"
        self.work.mkdir(parents=True)
        self.set_clock(0)

    def set_clock(self, offset_s: float) -> None:
        new = self.root / "clock.new"
        new.write_text(str(offset_s), encoding="utf-8")
        new.replace(self.root / "clock")

    def ask(self, verb: str, **arguments: object) -> Reply:
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                CLOCKED,
                str(self.root / "clock"),
                str(CARETAKER),
                "--home",
                str(self.home),
                verb,
                "--request",
                "-",
            ],
            input=json.dumps(arguments).encode(),
            stdout=subprocess.PIPE,
            check=False,
            timeout=120,
            env={"PATH": os.environ["PATH"], "HOME": str(self.root), "GPU_TENANT_NO_POWEROFF": "1"},
        )
        reply: Reply = json.loads(done.stdout)
        return reply

    def arm(self, left_s: float, **more: object) -> Reply:
        """As a tenant does, whose clock is right."""
        reply = self.ask("guard", deadline=time.time() + left_s, left_s=left_s, **more)  # noqa: TID251
        assert reply.get("state") == "armed", reply
        return reply

    def start(self, script: str, job: str = "j1", **more: object) -> None:
        said = self.ask("start", job=job, argv=["sh", "-c", script], cwd=str(self.work), **more)
        assert said["ok"], said

    @property
    def record(self) -> Path:
        return self.home / "guard.json"

    def stands(self) -> Reply:
        """What is on record; nothing while it is not whole."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            said: object = json.loads(self.record.read_text(encoding="utf-8"))
            return said if isinstance(said, dict) else {}
        return {}

    def turns(self) -> None:
        """The guard has gone round at least once since: it wrote its lost record again."""
        self.record.unlink()
        until(lambda: self.stands().get("state"))

    def script(self, name: str, *says: object) -> Path:
        place = self.root / name
        place.mkdir()
        (place / "says").write_text(json.dumps(says[0] if says else {}), encoding="utf-8")
        (place / f"{name}.py").write_text(TELLS, encoding="utf-8")
        return place / f"{name}.py"


def asked(script: Path) -> list[Any]:
    noted = script.with_name(script.name + ".asked")
    return [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []


@contextlib.contextmanager
def box_at(root: Path) -> Iterator[Box]:
    """One at that place, of which nothing runs any more when the block has been left."""
    box = Box(root)
    try:
        yield box
    finally:
        mark = f"HOME={box.root}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
