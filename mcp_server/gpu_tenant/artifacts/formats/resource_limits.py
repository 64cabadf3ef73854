"""Limits the memory and CPU time of a process that reads a file from a stranger.

This module can also be run as a program: `resource_limits.py PACKAGE COMPUTING_S SCRIPT FILE`. It imports the
package, sets the limits, and runs one of our scripts under them. It needs only the standard library.
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
"""A reader may use this many bytes of memory more than it has before the first file."""
NO_MEMORY = f"reading it takes more than {MOST_BYTES >> 20} MiB of memory, and was stopped"
_STACK_BYTES = 1 << 20
_STRAINED = 0.75
_taken: list[int] = []
"""The peak memory of this process when its limit was set, in bytes. Empty if no limit is set."""


def allowance_s(size_bytes: int) -> int:
    """Return how many CPU seconds the reading of a file of that size may take: many times what a good file needs.

    A small file gets ten seconds. A large file gets half an hour, and the time to hash it.
    """
    megabytes = size_bytes / 1e6
    return math.ceil(min(10 + 4 * megabytes, 1800) + megabytes / 20)


def limit_memory(most_bytes: int = MOST_BYTES) -> bool:
    """Limit this process to `most_bytes` more memory than it has now. Returns whether the system enforces that.

    Only Linux does. It counts memory that is written to, so a mapped file costs nothing. macOS accepts such a
    limit but does not enforce it. Windows has no such limit. On these systems, the parent process must watch.
    """
    if not sys.platform.startswith("linux"):
        return False
    # The sixth field is the size of the process's data and stack, which RLIMIT_DATA limits.
    fields = Path("/proc/self/statm").read_bytes().split()
    now = int(fields[5]) * os.sysconf("SC_PAGE_SIZE")
    threading.stack_size(_STACK_BYTES)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    # Lower only the soft limit. Then a process that is started for a library can raise it, and set
    # a limit of its own.
    soft = now + most_bytes
    resource.setrlimit(
        resource.RLIMIT_DATA, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
    )
    _taken.append(_peak_bytes())
    return True


def limit_computing(seconds: int) -> None:
    """Let the system end this process after `seconds` more of CPU time. Does nothing on Windows."""
    if sys.platform != "win32":
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = math.ceil(time.process_time()) + seconds
        resource.setrlimit(
            resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
        )


def lift_memory() -> None:
    """Remove the memory limit from this process, because importing a library may need more."""
    if sys.platform.startswith("linux"):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def leave_no_dump() -> None:
    """Make sure that no image of this process's memory is written if the process is killed."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def is_strained() -> bool:
    """Whether this process has come close to its memory limit."""
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
