"""What one call of `run` takes beside the same verbs called one by one, on a box of this computer: `make bench-errand`.

Both are called in one process, in turns, each with a work tree and a state directory of its own, and a job of one second.
Shown are the medians, and the ratio of the medians.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from gpu_tenant import Tenancy
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.faces.python import open_tenancy, run_async

COMMAND = "sh train.sh"
SMOKE = f"SMOKE=1 {COMMAND}"
TRAIN = (
    '[ -n "$SMOKE" ] && exit 0\nsleep 1\nmkdir -p out\necho \'{"weights": [1]}\' > out/model.json\n'
)
BAR = 1.05

Way = Callable[[Tenancy, Path, Path], Awaitable[None]]


async def by_one_call(tenancy: Tenancy, tree: Path, home: Path) -> None:
    standing = await run_async(
        COMMAND,
        artifacts=["out/"],
        directory=tree,
        smoke=SMOKE,
        on="local",
        to=home,
        agree=lambda plan: True,
        tenancy=tenancy,
    )
    assert standing.outcome == "done", standing


async def step_by_step(tenancy: Tenancy, tree: Path, home: Path) -> None:
    smoked = await tenancy.run_smoke(str(tree), SMOKE)
    lease = (await tenancy.provision("local", smoke=smoked.id)).lease
    await tenancy.audit(lease)
    await tenancy.push(lease, str(tree))
    job = (await tenancy.launch_detached(lease, COMMAND, ["out/"])).job
    cursor = None
    while True:
        seen = await tenancy.follow(lease, job, cursor=cursor, wait_s=5, limit_bytes=4096)
        cursor = seen.cursor
        if seen.state in ENDED:
            break
    await tenancy.collect(lease, str(home))
    ended = await tenancy.verify_and_teardown(lease)
    assert ended.receipt.ground == "verified"


async def timed(way: Way, root: Path) -> float:
    """Return the seconds of one errand."""
    tree = root / "tree"
    tree.mkdir(parents=True)
    (tree / "train.sh").write_text(TRAIN, encoding="utf-8")
    environ = os.environ | {"GPU_TENANT_HOME": str(root / "state")}
    async with open_tenancy(environ) as tenancy:
        before = time.monotonic()
        await way(tenancy, tree, root / "home")
        return time.monotonic() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    ways = (by_one_call, step_by_step)
    took: dict[str, list[float]] = {way.__name__: [] for way in ways}
    with tempfile.TemporaryDirectory() as directory:
        for turn in range(runs + 1):
            for way in ways if turn % 2 else reversed(ways):
                seconds = asyncio.run(timed(way, Path(directory) / f"{turn}-{way.__name__}"))
                if turn:  # the first of each loads modules
                    took[way.__name__].append(seconds)
    medians = {name: statistics.median(each) for name, each in took.items()}
    for name, each in took.items():
        print(f"{name:14} {medians[name]:.3f} s ({min(each):.3f} to {max(each):.3f})")
    ratio = medians["by_one_call"] / medians["step_by_step"]
    print(f"one call takes {ratio:.3f} of the sum of its steps; the bar is {BAR}")


if __name__ == "__main__":
    main()
