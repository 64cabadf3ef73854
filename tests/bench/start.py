"""How long a command takes to start and answer, as ratios to an idle Python: `make bench-start`.

Each run is paired with an idle Python right before it, and the median of the ratios is shown. So a slow
minute of the machine hits both. CPU time hardly depends on what else the machine does; time on the wall does.

`monitor` also runs our script on the box, and a local box is this computer: its CPU time has both sides.
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpu_tenant.app import open_tenancy

PYTHON = sys.executable
IDLE = (PYTHON, "-c", "pass")
MOST = 20
"""The bar: no everyday command takes more than so many times an idle Python."""
LEASES = 20
VERBS = (
    "--help",
    "offers --help",
    "monitor --help",
    "terms --help",
    "profiles",
    "alarms",
    "leases --older LEASE",
    "leases",
    "terms LEASE",
    "monitor LEASE",
)


def took(argv: tuple[str, ...], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of CPU and on the wall."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def ratios(
    argv: tuple[str, ...], environment: dict[str, str], runs: int
) -> tuple[float, float, float]:
    """The median ratio of CPU time and of wall time to an idle Python, and the median CPU time in seconds."""
    took(argv, environment)  # the first run compiles, and fills caches
    pairs = [(took(IDLE, environment), took(argv, environment)) for _ in range(runs)]
    cpu = statistics.median(ours[0] / idle[0] for idle, ours in pairs)
    wall = statistics.median(ours[1] / idle[1] for idle, ours in pairs)
    return cpu, wall, statistics.median(ours[0] for _, ours in pairs)


async def furnished(home: Path, environment: dict[str, str]) -> str:
    """The state directory has `LEASES` leases, the last with a job; that one's name."""
    tenancy = open_tenancy(environment)
    for _ in range(LEASES):
        card = await tenancy.provision("local", smoke="none", hours=2)
    tree = home / "tree"
    tree.mkdir()
    (tree / "job.sh").write_text("echo up\n", encoding="utf-8")
    await tenancy.push(card.lease, str(tree))
    await tenancy.launch_detached(card.lease, "sh job.sh", ["out/"], name="short")
    await tenancy.aclose()
    return card.lease


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--only", default="", help="commands that begin so")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        # A version manager's `python3` is a script of a shell, and takes as long as ten Pythons.
        plain = f"{sys.base_prefix}/bin:{os.environ['PATH']}"
        environment = {"PATH": plain, "HOME": scratch}
        fresh = environment | {"GPU_TENANT_HOME": f"{scratch}/fresh"}
        full = environment | {"GPU_TENANT_HOME": f"{scratch}/full"}
        lease = asyncio.run(furnished(Path(scratch), full))
        print(f"{'command':<28} {'state':<10} {'CPU':>6} {'wall':>6}   CPU seconds")
        for verb in VERBS:
            if not verb.startswith(asked.only):
                continue
            for state, home in (("empty", fresh), (f"{LEASES} leases", full)):
                if (state == "empty" and "LEASE" in verb) or (
                    state != "empty" and "--help" in verb
                ):
                    continue
                argv = (PYTHON, "-m", "gpu_tenant", *verb.replace("LEASE", lease).split())
                cpu, wall, seconds = ratios(argv, home, asked.runs)
                over = f"  more than {MOST}" if cpu > MOST else ""
                print(f"{verb:<28} {state:<10} {cpu:6.1f} {wall:6.1f}   {seconds:.3f}{over}")


if __name__ == "__main__":
    main()
