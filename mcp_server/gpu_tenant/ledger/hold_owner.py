"""Identifies the process that holds a lease. A later process with the same number is not mistaken for it."""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Holder(NamedTuple):
    """A process on some computer, identified by its number and the moment it started."""

    host: str
    pid: int
    started: str

    def alive(self) -> bool | None:
        """Whether that process still runs. None if it is on another computer, because this one cannot tell."""
        if self.host != _host():
            return None
        return _start_of(self.pid) == self.started


@cache
def _host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    # The boot id is part of the name. So a hold from before a reboot counts as another host's, and only its expiry ends
    # it.
    boot_id = boot.read_text(encoding="ascii").strip() if boot.exists() else ""
    # Two containers may share a name and a boot id, yet not see each other's processes.
    return f"{os.uname().nodename}/{boot_id}{_namespace()}"


def _namespace() -> str:
    try:
        return f"/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start_of(pid: int) -> str | None:
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        # A killed process stays in the table until its parent reaps it, but it does nothing any more.
        return None if fields[0] in "ZX" else fields[19]
    asked = subprocess.run(
        ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    state, _, started = asked.stdout.strip().partition(" ")
    return None if state.startswith("Z") else started.strip() or None


def this_process() -> Holder:
    """Return the process that calls this."""
    return Holder(host=_host(), pid=os.getpid(), started=_start_of(os.getpid()) or "")
