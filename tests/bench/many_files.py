"""A collect of very many small files from a local box, and its teardown: time and memory.

`python tests/bench/many_files.py [FILES] [--at DIRECTORY]`: on a disk, because what lies in memory would be measured as
memory. Each command is a process of its own, which tells the most memory that it and that one of its children took.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FILES = 300_000
MAKES = """
import os, sys
for number in range(int(sys.argv[1])):
    directory = f"out/{number // 1000:04}"
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/{number:07}.txt", "w") as into:
        into.write(f"sample {number}\\n")
"""
MEASURED = """
import resource, sys
from gpu_tenant.__main__ import main
try:
    main()
finally:
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor_s = sum(one.ru_utime + one.ru_stime for one in of)
    print(round(processor_s, 1), *(round(one.ru_maxrss / 1000) for one in of), file=sys.stderr)
"""


class Person:
    """Somebody with a home of their own, who types commands."""

    def __init__(self, root: Path) -> None:
        home = {"HOME": str(root), "GPU_TENANT_HOME": str(root / "state")}
        self._environment = {"PATH": os.environ["PATH"], "TMPDIR": str(root), **home}

    def does(self, verb: str, *words: str) -> tuple[list[object], Any]:
        """Run that command to its end. Returns what it took, and what it said."""
        began = time.perf_counter()
        ran = subprocess.run(
            [sys.executable, "-c", MEASURED, verb, "--json", *words],
            env=self._environment,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        took_s = round(time.perf_counter() - began, 1)
        if ran.returncode:
            said = f"{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
            raise SystemExit(f"{verb}: status {ran.returncode} after {took_s} s\n{said}")
        return [took_s, *ran.stderr.splitlines()[-1].split()], json.loads(ran.stdout)


def measure(files: int, at: Path) -> None:
    """Print a row for each command."""
    root = Path(tempfile.mkdtemp(prefix="many-files-", dir=at))
    try:
        person = Person(root)
        project = root / "project"
        project.mkdir()
        (project / "make.py").write_text(MAKES, encoding="utf-8")
        person.does("provision", "--smoke", "none", "--hours", "12")
        person.does("push", str(project))
        person.does("launch", "--artifact", "out/", "--", sys.executable, "make.py", str(files))
        while person.does("monitor", "--wait-s", "45")[1]["state"] == "running":
            continue
        print(
            f"| {files:,} files | seconds | of a processor | MB of its own | MB of its largest child |"
        )
        print("| --- | --- | --- | --- | --- |")
        for verb in ("collect", "collect", "teardown"):
            took, said = person.does(verb)
            print(f"| `{verb}` | {' | '.join(map(str, took))} |", flush=True)
            kept = said["receipt"]["kept_files"] if verb == "teardown" else said["files"]
            if kept < files:
                raise SystemExit(f"{kept} files of {files}")
    finally:
        shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=int, nargs="?", default=FILES)
    parser.add_argument("--at", type=Path, default=Path("/var/tmp"))
    asked = parser.parse_args()
    measure(asked.files, asked.at)


if __name__ == "__main__":
    main()
