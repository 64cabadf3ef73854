"""One job that a platform interrupts after some notice: real processes, and what is left of its work.

The notice passes in real time. Before it, where only the job is at work, the job's own time runs ahead.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from guarded import Box, box_at, until
from metadata_server import Metadata

KEEP = Path(__file__).parents[2] / "scripts" / "keep.py"
STEP_S = 0.1
FAST = 20
"""How many times faster than the world the job works before it hears of the notice. Nothing but the job is at work then."""
HEARS_S = 5.0
"""From the notice to the signal, and from the save to the store: a poll comes every 2 s, the rest is the copy."""

JOB = """\
import json, os, pathlib, signal, sys, time
save_s, interval_s, step_s, fast = map(float, sys.argv[1:])
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
step = saved = 0
speed, before, since = fast, 0.0, time.monotonic()
def now():
    global speed, before, since
    at = before + (time.monotonic() - since) * speed
    if speed > 1 and os.path.exists("in-real-time"):
        speed, before, since = 1, at, time.monotonic()
    return at
def save():
    until = now() + save_s
    while now() < until:
        time.sleep(0.05 / speed)
    (out / ".new").write_text(json.dumps({"step": step}))
    os.replace(out / ".new", out / "state.json")
last = now()
while True:
    if asked or now() - last >= interval_s:
        if saved != step:
            save()
        saved, last = step, now()
        if asked:
            sys.exit(3)
    step += 1
    pathlib.Path("step").write_text(str(step))
    time.sleep(step_s / speed)
"""
"""It saves by the clock, and once more when it is asked to. While it saves it makes no steps."""


@dataclass(frozen=True)
class Interruption:
    """What was tried, and what came of it."""

    seed: int
    notice_s: float
    save_s: float
    interval_s: float
    disk: str
    """`kept`: what lies on the box counts; `lost`: only what is in the store."""
    lost_s: float
    """The work that is done again, in seconds of the job's own steps."""
    saved_before: bool
    """Whether the job had saved by the clock before the notice."""

    @property
    def fits(self) -> bool:
        """Whether there was time for a save and a copy, wherever the notice found the job."""
        return self.save_s + HEARS_S <= self.notice_s

    @property
    def is_within_the_bar(self) -> bool:
        """Nothing is lost where all fitted; else at most one interval, where the disk or a copy had one to lose."""
        if self.fits:
            return self.lost_s == 0
        if self.disk == "lost" and (self.notice_s < 2 * HEARS_S or not self.saved_before):
            return (
                True  # nothing off the box could have had it: the watch's copies are not tried here
            )
        return self.lost_s <= self.interval_s + 2 * STEP_S + self.interval_s * 0.1


def interrupt(seed: int, root: Path) -> Interruption:
    """A box works for a while, is given notice, and is gone when that is over."""
    dice = random.Random(seed)
    notice_s = 0.0 if dice.random() < 0.1 else dice.uniform(0, 120)
    save_s, interval_s = dice.uniform(1, 60), dice.uniform(15, 60)
    disk = dice.choice(("kept", "lost"))
    works_s = dice.uniform(3, interval_s + save_s + 10)
    store = root / "store"
    store.mkdir(parents=True)
    with Metadata() as metadata, box_at(root / "lease") as box:
        said = json.dumps({"metadata": metadata.url})
        (box.root / ".rehearsal.json").write_text(said, encoding="utf-8")
        (box.work / "job.py").write_text(JOB, encoding="utf-8")
        told = " ".join(str(x) for x in (save_s, interval_s, STEP_S, FAST))
        box.start(f"exec {sys.executable} job.py {told}", "train", artifacts=["out/state.json"])
        until((box.work / "step").exists)
        box.arm(
            36_000,
            store={"kind": "directory", "path": str(store)},
            seal={"work": str(box.work)},
            scripts={"keep": str(KEEP)},
            notice={"metadata": True, "within_s": notice_s},
        )
        time.sleep(works_s / FAST)  # noqa: TID251 - the work is time
        (box.work / "in-real-time").touch()
        time.sleep(2 * STEP_S)  # noqa: TID251 - the job looks at each step
        saved_before = (box.work / "out" / "state.json").exists()
        metadata.word = b"TRUE"
        _passes(notice_s, box)
        _gone(box)
        metadata.shutdown()
        reached = int((box.work / "step").read_text(encoding="utf-8") or 0)
        place = box.work / "out" if disk == "kept" else store
        found = [json.loads(path.read_bytes())["step"] for path in place.rglob("state.json")]
        lost_s = (reached - max(found, default=0)) * STEP_S
    return Interruption(seed, notice_s, save_s, interval_s, disk, round(lost_s, 1), saved_before)


def _passes(notice_s: float, box: Box) -> None:
    """The notice is over, or the guard has done all that it does: then the rest of the time changes nothing."""
    until_s = time.monotonic() + notice_s
    while (left_s := until_s - time.monotonic()) > 0:
        with contextlib.suppress(FileNotFoundError, ValueError):
            if "kept" in json.loads((box.home / "notice.json").read_bytes()):
                return
        time.sleep(min(0.2, left_s))  # noqa: TID251 - the notice is time


def _gone(box: Box) -> None:
    """The machine is off: of its processes none runs any more."""
    mark = f"HOME={box.root}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
