"""The time of a rehearsal's boxes: it leaps with the rehearsal's own, and no leap passes over what a guard has to do."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu_tenant.files.replace_file import replace_file

_AGAIN_S, _WAITS_S = 0.01, 20.0
"""How often a guard is looked at that has something to do, and how long a leap waits for it, in real time."""


@dataclass(frozen=True, slots=True)
class GuardTask:
    """Something that the guard on a box has to do, in seconds of that box."""

    told: Path
    pid: int
    at: float


class BoxTime:
    """Tells the boxes below `root` how far time has leapt, and hears when their guards have something to do.

    Both go through files beside the boxes' homes, at which the marker in each home points. Nothing that runs on a
    box of a real platform has them, and its tenant does not tell its guard to look for one.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.leaps = root / "leapt"
        self._given_up: set[GuardTask] = set()
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The guards of an earlier start of the same rehearsal count on from there.
        self._leapt = float(self.leaps.read_text("utf-8")) if self.leaps.exists() else 0.0
        self._write()

    def dues_of(self, box_id: str) -> Path:
        """Where the guard on that box tells what it has to do."""
        return self._root / box_id / "due.json"

    def leap(self, seconds: float) -> None:
        """From now on so many more seconds have passed on every box."""
        self._leapt += seconds
        self._write()

    def _write(self) -> None:
        replace_file(self.leaps, repr(self._leapt), durable="none")

    def next_due(self) -> tuple[GuardTask, float] | None:
        """What is due first, and in how many seconds; None if no guard waits for anything."""
        now = _elapsed_s() + self._leapt
        dues = [due for due in self._dues() if due not in self._given_up]
        first = min(dues, key=lambda due: due.at, default=None)
        return None if first is None else (first, max(0.0, first.at - now))

    async def wait_until_done(self, due: GuardTask) -> None:
        """The guard has done what was due, or is no more, or takes too long."""
        until = asyncio.get_running_loop().time() + _WAITS_S
        while due in self._dues():
            if asyncio.get_running_loop().time() >= until:
                self._given_up.add(due)  # it is still at it, and time goes on
                return
            await asyncio.sleep(_AGAIN_S)

    def _dues(self) -> Iterator[GuardTask]:
        for told in self._root.glob("*/due.json"):
            try:
                said = json.loads(told.read_bytes())
                pid, at = int(said["pid"]), said["due"]
                os.kill(pid, 0)
            except (OSError, ValueError, KeyError, TypeError):
                continue  # it has ended, with its box or by itself
            if isinstance(at, float | int):
                yield GuardTask(told, pid, float(at))


def _elapsed_s() -> float:
    """As a guard counts: the time in which the machine sleeps counts, too."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)
