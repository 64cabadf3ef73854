"""Limits how much the caretaker slows down jobs: by a share of the time, and by a low priority."""

from __future__ import annotations

import os
import re
import sys
import time

from box_scripts.caretaker.processes import text_of

SHARE = 0.25


class Pace:
    """Keeps this process at work for at most `share` of the time. Call `rest` after every piece of work.

    Only the time in which the process computed, or read from a disk, counts as work. Waiting for a busy CPU core does
    not count, because it takes nothing from others.
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
    """Return the kernel's line with the number of bytes that this process has read from disks. Empty if unknown."""
    found = re.search(r"^read_bytes: \d+", text_of("/proc/self/io"), re.MULTILINE)
    return found.group() if found else ""


def step_back() -> str:
    """Give this process the lowest priority that the system allows. Return in words which that is."""
    words = "at nice %d" % os.nice(10)
    ioprio_set = {"x86_64": 251, "aarch64": 30, "ppc64le": 273, "riscv64": 30, "s390x": 282}
    number = ioprio_set.get(os.uname().machine) if sys.platform == "linux" else None
    # In a 32-bit ABI, the number stands for another system call.
    if number is None or sys.maxsize < 1 << 32:
        return words
    try:
        import ctypes

        if ctypes.CDLL(None).syscall(number, 1, 0, 3 << 13) == 0:  # this process, the idle class
            return words + " and reading when the disk is idle"
    except (ImportError, OSError, AttributeError):
        pass
    return words
