"""The looks that judge a box by its GPU: whose memory it is, whether it works, and who stands on it; idle and loaded."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from real_gpu.record import SCRIPTS, Record, bare

LEASE = "real-gpu1"
BETWEEN_S = 7.0
"""Two looks that are nearer than five seconds tell nothing."""


def part(record: Record) -> None:
    with tempfile.TemporaryDirectory(prefix="real-gpu-") as directory:
        login = Path(directory)
        home = login / "gpu-tenant" / LEASE / "caretaker"
        (home / "jobs").mkdir(parents=True)
        environ = bare() | {"HOME": directory}
        watcher = _Looks(record, home, environ)

        watcher.memory("idle", 0)
        watcher.occupancy("idle", working=False)
        watcher.activity("idle", phases=("idle",), owners=0)
        with record.busy(90, environ) as pid:
            if pid:
                watcher.memory("load", pid)
                watcher.occupancy("load", working=True)
                watcher.activity("load", phases=("training", "evaluation"), owners=1)
        watcher.activity("after", phases=("idle",), owners=0)
        looks = home / "activity.jsonl"
        record.keep("activity.jsonl", looks.read_text(encoding="utf-8") if looks.exists() else "")


class _Looks:
    def __init__(self, record: Record, home: Path, environ: dict[str, str]) -> None:
        self._record, self._home, self._environ = record, home, environ

    def activity(self, state: str, *, phases: tuple[str, ...], owners: int) -> None:
        """Two looks, and what the judge makes of the time between them."""
        words = ("--home", str(self._home))
        first = self._run("activity.py", "look", *words)
        time.sleep(BETWEEN_S)
        second = self._run("activity.py", "look", *words)
        judged = self._run("activity.py", "judge", *words)
        self._record.keep(f"activity-{state}.json", [first, second, judged])
        gpus = second.get("look", {}).get("gpus") or [{}]
        self._record.right(
            f"{state}: the judge", judged.get("words", judged), judged.get("phase") in phases
        )
        seen = gpus[0].get("other")
        self._record.right(f"{state}: processes of ours on the GPU", gpus[0], seen == owners)

    def memory(self, state: str, pid: int) -> None:
        """Whose the memory is: the load's, by its number."""
        told = self._run("vram.py")
        self._record.keep(f"vram-{state}.json", told)
        gpu: dict[str, Any] = (told.get("gpus") or [{}])[0]
        listed = [p for p in gpu.get("processes", ()) if p["pid"] == pid]
        if pid:
            share = sum(p["mib"] or 0 for p in listed) / (gpu.get("used_mib") or 1)
            seen = f"{share:.3f} of {gpu.get('used_mib')} MiB: {gpu.get('words')}"
            self._record.right(f"{state}: memory is attributed to the load", seen, share >= 0.9)
        else:
            used = gpu.get("used_mib")
            seen = f"{gpu.get('words', told)}"
            self._record.right(
                f"{state}: little memory is used", seen, used is not None and used < 1024
            )
        self._record.right(
            f"{state}: the device file is known", gpu.get("device"), gpu.get("device")
        )

    def occupancy(self, state: str, *, working: bool) -> None:
        """Who stands on the box: the load works in its home, and is nobody's whom we started."""
        import json

        request = {
            "lease": LEASE,
            "nonce": "n",
            "deployment": "d",
            "known": False,
            "directory": False,
            "first": True,
            "until": time.time() + 600,
            "lapse_s": 60,
            "look": {"roots": ["~"], "scope": "home", "ours": []},
        }
        argv = [self._record.python, "-I", "-S", str(SCRIPTS / "occupancy.py")]
        argv += ["--home", str(self._home), "mark", "--request", "-"]
        ran = self._record.run(
            argv, timeout_s=30, environ=self._environ, stdin=json.dumps(request), cwd=Path(os.sep)
        )
        told = ran.reply() or {}
        self._record.keep(f"occupancy-{state}.json", told)
        at_work = told.get("look", {}).get("at_work")
        right = at_work is not None and bool(at_work) == working
        self._record.right(
            f"{state}: who is at work on the box",
            at_work if at_work is not None else ran.words(),
            right,
        )

    def _run(self, name: str, *words: str) -> dict[str, Any]:
        ran = self._record.script(name, *words, timeout_s=60, environ=self._environ)
        reply: dict[str, Any] = ran.reply() or {"ok": False, "message": ran.words()}
        return reply
