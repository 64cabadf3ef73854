"""Limits of memory and of computing for a process that reads a stranger's file.

Run as a program, it imports a package, takes the limits on, and runs a script of ours under them:
`confined.py PACKAGE COMPUTING_S SCRIPT FILE`. It needs the standard library alone.
"""

import importlib
import math
import os
import runpy
import sys
import threading
import time
from pathlib import Path

if sys.platform != "win32":
    import resource

MOST_BYTES = 512 << 20
"""So much memory a reader may take beyond what it has before the first file."""
NO_MEMORY = f"reading it takes more than {MOST_BYTES >> 20} MiB of memory, and was stopped"
_STACK_BYTES = 1 << 20
_STRAINED = 0.75
_taken: list[int] = []
"""What this process had at most when its memory was limited; empty where it is not."""


def allowance_s(size_bytes: int) -> int:
    """How long a file of that size may be computed over: many times what a good one takes.

    A little one gets ten seconds. A large one gets half an hour and what hashing it takes.
    """
    megabytes = size_bytes / 1e6
    return math.ceil(min(10 + 4 * megabytes, 1800) + megabytes / 20)


def limit_memory(most_bytes: int = MOST_BYTES) -> bool:
    """This process gets no more than so much memory beyond what it has; whether the system holds it to that.

    Only Linux does: it counts what is written to, so that a mapped file is free. macOS takes such limits
    and does not hold them, and Windows has none of this kind: there the one who started it has to look.
    """
    if not sys.platform.startswith("linux"):
        return False
    # The sixth field is the data and stack of the process, which is what the limit is about.
    fields = Path("/proc/self/statm").read_bytes().split()
    now = int(fields[5]) * os.sysconf("SC_PAGE_SIZE")
    threading.stack_size(_STACK_BYTES)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    soft = (
        now + most_bytes
    )  # the hard one stays, or a library's own process could not be given its share
    resource.setrlimit(
        resource.RLIMIT_DATA, (soft if most == resource.RLIM_INFINITY else min(soft, most), most)
    )
    _taken.append(_peak_bytes())
    return True


def limit_computing(seconds: int) -> None:
    """From now on, this process may compute for so long before the system ends it, where that can be said."""
    if sys.platform != "win32":
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        soft = math.ceil(time.process_time()) + seconds
        resource.setrlimit(
            resource.RLIMIT_CPU, (soft if most == resource.RLIM_INFINITY else min(soft, most), most)
        )


def lift_memory() -> None:
    """This process may take memory as if none had been limited: what a library needs to be imported."""
    if sys.platform.startswith("linux"):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def leave_no_dump() -> None:
    """A process that is ended writes no image of its memory."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def is_strained() -> bool:
    """Whether this process has come near its limit of memory."""
    return bool(_taken) and _peak_bytes() - _taken[0] > _STRAINED * MOST_BYTES


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _main(package: str, computing_s: str, script: str, path: str) -> None:
    lift_memory()
    leave_no_dump()
    importlib.import_module(package)
    limit_memory()
    limit_computing(int(computing_s))
    sys.argv = [script, path]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    _main(*sys.argv[1:])
