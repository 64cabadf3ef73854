"""Which tests are slow, as measured: `make test` and CI leave them to `make test-slow`.

`make measure-tests` measures every test's processor time, of what it starts too, and writes the list `slow.txt`. The time on the
wall would not do: it is another one on each machine, and with each neighbour.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from statistics import fmean

import pytest

LIST = Path(__file__).with_name("slow.txt")
SLOW_S = 2.0
"""A test is slow if a case of it takes more processor time than this, on average."""
MEASURED_IN = "GPU_TENANT_MEASURED_IN"
"""The environment variable that names the directory into which a run writes what its tests took."""


def name_of(item: pytest.Item) -> str:
    """Return the test's name as the list has it: below tests/, and the same for all its cases."""
    return item.nodeid.partition("[")[0].removeprefix("tests/")


def slow_tests() -> set[str]:
    """Return the names in the list."""
    return {line.split()[1] for line in LIST.read_text(encoding="utf-8").splitlines()}


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark the slow ones."""
    slow = slow_tests()
    for item in items:
        if name_of(item) in slow:
            item.add_marker(pytest.mark.slow)


def measured(
    item: pytest.Item, nextitem: pytest.Item | None, directory: str
) -> Generator[None, object, object]:
    """Append what this test takes, in seconds of processor, to this process's file in the directory.

    The last test of a process is left out: with it ends what served all tests, such as a Kubernetes.
    """
    before = _processor_s()
    told = yield
    if nextitem is None:
        return told
    line = json.dumps([name_of(item), _processor_s() - before])
    with (Path(directory) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as kept:
        kept.write(f"{line}\n")
    return told


def _processor_s() -> float:
    """Seconds of processor that this process has used, and those of its children that have ended."""
    return sum(os.times()[:4])


def write_list(directory: Path) -> str:
    """Write the list by what a run of all tests has measured. Return what it comes to, in words."""
    took = defaultdict[str, list[float]](list)
    for path in directory.glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, seconds = json.loads(line)
            took[name].append(seconds)
    slow = {name: fmean(cases) for name, cases in took.items() if fmean(cases) > SLOW_S}
    lines = [f"{seconds:5.1f} {name}\n" for name, seconds in sorted(slow.items())]
    LIST.write_text("".join(lines), encoding="utf-8")
    all_min = sum(sum(cases) for cases in took.values()) / 60
    slow_min = sum(sum(took[name]) for name in slow) / 60
    return f"{len(slow)} of {len(took)} tests are slow, and take {slow_min:.1f} of {all_min:.1f} minutes of processor"


if __name__ == "__main__":
    print(write_list(Path(os.environ[MEASURED_IN])))
