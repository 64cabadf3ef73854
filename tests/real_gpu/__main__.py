"""Try this program on a real GPU, write down what was seen, and judge it: `make real-gpu`.

Every part is a process of its own with an end of its own. One that fails or hangs stops no other.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from real_gpu.record import Record, ran_of

PARTS = {"driver": 60, "load": 105, "lease": 180, "looks": 70, "memory": 90, "prepare": 75}
"""In the order of their worth, and how many seconds each may take. All together they have --minutes."""
ALONE = {"estimate": 420}
"""What is tried only if it is named: it takes as long as all the others."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="real_gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "recorded")
    parser.add_argument("--python", default="python3", help="the interpreter that has torch")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--part", choices=[*PARTS, *ALONE], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    out = asked.out.absolute()
    python = shutil.which(asked.python) or sys.executable
    if asked.part:
        return one_part(asked.part, out, python)
    names = [name for name in asked.only.split(",") if name]
    if wrong := [name for name in names if name not in PARTS | ALONE]:
        parser.error(f"no such part: {', '.join(wrong)}; there are {', '.join(PARTS | ALONE)}")
    return whole(names, out, python, asked.minutes * 60)


def one_part(name: str, out: Path, python: str) -> int:
    """The part was done, in this process."""
    record = Record(name, out / name, python)
    try:
        import_module(f"real_gpu.parts.{name}").part(record)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is a line of the table)
        record.keep("traceback.txt", traceback.format_exc())
        record.right(f"part {name}", f"{type(error).__name__}: {error}", right=False)
    return 0


def whole(names: list[str], out: Path, python: str, seconds: float) -> int:
    began, took = time.monotonic(), dict[str, float]()
    for name in names:
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        left = seconds - (time.monotonic() - began)
        started = time.monotonic()
        words = (
            in_time(name, out, python, min((PARTS | ALONE)[name], left))
            if left > 10
            else "no time left"
        )
        took[name] = round(time.monotonic() - started, 1)
        if words:
            Record(name, folder, python).right(f"part {name}", words, right=False)
        print(f"{name}: {took[name]} s{' ' * bool(words)}{words}", file=sys.stderr, flush=True)
    checks = [row for name in names for row in rows_of(out / name / "checks.jsonl")]
    try:
        from real_gpu.fixtures import make_fixtures

        made: list[str] | str = make_fixtures(out)
    except Exception as error:  # noqa: BLE001  (they need parts that may have failed, and say so themselves)
        made = f"none: {type(error).__name__}: {error}"
    wrong = [row for row in checks if row["verdict"] == "wrong"]
    summary = {
        "machine": machine(python),
        "took_s": took,
        "whole_s": round(time.monotonic() - began, 1),
        "wrong": len(wrong),
        "right": sum(row["verdict"] == "right" for row in checks),
        "fixtures": made,
        "checks": checks,
    }
    out.joinpath("summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    print(table(checks))
    print(f"\n{summary['right']} right, {len(wrong)} wrong, in {summary['whole_s']} s; see {out}")
    return 1 if wrong or not checks else 0


def in_time(name: str, out: Path, python: str, seconds: float) -> str:
    """Why the part did not come to its own end; "" if it did."""
    argv = [sys.executable, "-m", "real_gpu", "--part", name, "--out", str(out), "--python", python]
    tests = str(Path(__file__).parents[1])
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        cwd=tests,
        env=dict(os.environ),
        start_new_session=True,
    )
    try:
        status = child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        # Each of its commands has a session of its own, and is found by its parent.
        for pid in [*below(child.pid), child.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        child.wait()
        return f"it did not end in {seconds:.0f} s"
    return "" if status == 0 else f"it ended with status {status}"


def below(pid: int) -> list[int]:
    """The processes that descend from that one."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found, grew = {pid}, True
    while grew:
        more = {child for child, parent in parents.items() if parent in found} - found
        grew = bool(more)
        found |= more
    return sorted(found - {pid})


def rows_of(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def machine(python: str) -> dict[str, Any]:
    """What the figures belong to."""
    query = "--query-gpu=name,memory.total,driver_version,vbios_version,power.limit"
    gpu = ran_of(["nvidia-smi", query, "--format=csv,noheader"], timeout_s=20)
    return {
        "gpu": gpu.out.strip() or gpu.err.strip(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch_python": python,
        "cores": os.cpu_count(),
        "tools": {name: shutil.which(name) for name in ("git", "rsync", "ssh", "sshd")},
    }


def table(checks: list[dict[str, Any]]) -> str:
    """Each check on a line: part, what, seen, verdict. What is wrong comes last, where it is read."""
    order = ("told", "right", "wrong")
    lines = [
        f"{row['verdict']:5}  {row['part']:7}  {row['what'][:58]:58}  {' '.join(row['seen'].split())[:110]}"
        for row in sorted(checks, key=lambda row: order.index(row["verdict"]))
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
