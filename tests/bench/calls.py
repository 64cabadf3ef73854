"""The processor time of one call of the caretaker on a box, beside an idle Python: `make bench-calls`.

Each call is paired with an idle Python right before it, and the median of the pairs is shown. `--against FILE`
calls another version of the script in the same run.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = (sys.executable, "-I", "-S")
IDLE = (*PYTHON, "-c", "pass")
BAR_MS = 25
"""More than an idle Python takes, and no more, for what is asked often."""


def took_ms(argv: tuple[str, ...], stdin: bytes = b"") -> float:
    """Milliseconds of processor time, with all that it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, input=stdin, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(scripts: list[Path], box: Path, runs: int) -> None:
    """Print a line for each call, and in it the times of each script."""
    work = box / "work"
    work.mkdir()
    (work / "a.txt").write_text("a", encoding="utf-8")
    armed: dict[str, object] = {"deadline": 4e9}
    calls: list[tuple[str, str, dict[str, object]]] = [
        ("arm a guard", "guard", armed),
        ("guard, renewed as it is", "guard", armed),
        ("guard, a look", "guard", {}),
        ("status", "status", {"tenant": True}),
        ("index", "index", {"work": str(work), "paths": ["a.txt"]}),
        ("patterns", "patterns", {"work": str(work), "artifacts": ["*.txt"]}),
        ("complete", "complete", {"work": str(work), "artifacts": ["*.txt"], "share": 1}),
        ("manifest", "manifest", {"work": str(work), "artifacts": ["*.txt"], "ever": True}),
        ("let the guard go", "guard", {"disarm": True}),
    ]
    for told, verb, request in calls:
        cells = []
        for script in scripts:
            argv = (*PYTHON, str(script), "--home", str(box / script.stem), verb, "--request", "-")
            more = []
            for turn in range(runs):
                asked = {**request, "grace_s": turn} if told == "arm a guard" else request
                idle = took_ms(IDLE)
                more.append(took_ms(argv, json.dumps(asked).encode()) - idle)
            if told == "arm a guard":  # as the next line asks again
                took_ms(argv, json.dumps(armed).encode())
            cells.append(statistics.median(more))
        print(f"{told:26}" + "".join(f"{ms:10.1f}" for ms in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--against", type=Path, help="another version of scripts/caretaker.py")
    given = parser.parse_args()
    scripts = [ROOT / "scripts" / "caretaker.py"]
    scripts += [given.against.resolve()] if given.against else []
    idle = statistics.median(took_ms(IDLE) for _ in range(given.runs))
    print(
        f"ms of processor time beyond an idle Python's {idle:.1f}; the bar for a look is {BAR_MS}"
    )
    print(f"{'':26}" + "".join(f"{script.stem[:9]:>10}" for script in scripts))
    with tempfile.TemporaryDirectory() as box:
        measure(scripts, Path(box), given.runs)


if __name__ == "__main__":
    main()
