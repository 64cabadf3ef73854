"""How the caretaker keeps out of the way of jobs: by its share of the time, and its priority."""

from __future__ import annotations

import os
import re
import sys
import time

from box_scripts.caretaker.processes import text_of

SHARE = 0.25


class Pace:
    """Keeps this process at work for at most `share` of the time, if `rest` is called after every piece of work.

    Work is the time in which it computed, and all of the time in which it read from a disk. While it waits
    for a core that others use, it takes nothing from them.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._begin()

    def _begin(self) -> None:
        self._since, self._computed, self._read = (
            time.monotonic(),
            time.thread_time(),
            _read_bytes(),
        )

    def rest(self) -> None:
        passed = time.monotonic() - self._since
        if passed < 0.01:
            return
        worked = time.thread_time() - self._computed if _read_bytes() == self._read else passed
        time.sleep(max(0.0, worked / self._share - passed))
        self._begin()


def _read_bytes() -> str:
    """Return the kernel's line about how much this process has read from a disk. Empty if there is none."""
    found = re.search(r"^read_bytes: \d+", text_of("/proc/self/io"), re.MULTILINE)
    return found.group() if found else ""


def step_back() -> str:
    """Let all other processes go first, as far as the system allows. Return in words how far that is."""
    words = "at nice %d" % os.nice(10)
    ioprio_set = {"x86_64": 251, "aarch64": 30, "ppc64le": 273, "riscv64": 30, "s390x": 282}
    number = ioprio_set.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None or sys.maxsize < 1 << 32:  # in another ABI that number is another call
        return words
    try:
        import ctypes

        if ctypes.CDLL(None).syscall(number, 1, 0, 3 << 13) == 0:  # this process, the idle class
            return words + " and reading when the disk is idle"
    except (ImportError, OSError, AttributeError):
        pass
    return words
