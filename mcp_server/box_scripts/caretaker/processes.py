"""Lists the processes of this machine, from /proc or by ps."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import namedtuple

Process = namedtuple("Process", "pid parent session ticks")


def text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def program_of(pid: int) -> str:
    """Name the program that a process runs, and the script if there is one. No other arguments are shown."""
    words = [word for word in text_of("/proc/%d/cmdline" % pid).split("\0") if word]
    names = [os.path.basename(word) for word in words[:1]]
    names += [os.path.basename(word) for word in words[1:2] if re.search(r"\.(?:py|sh)$", word)]
    return re.sub(r"[^\w.:+ -]", "?", " ".join(names))[:60] or "unknown"


def output_of(*argv: str) -> str:
    import subprocess

    null, plain = subprocess.DEVNULL, dict(os.environ, LC_ALL="C")
    try:
        output = subprocess.check_output(argv, timeout=8, stdin=null, stderr=null, env=plain)
        return output.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return ""


def boot_id() -> str:
    """Return a text that changes when the machine restarts. Empty if the system has none."""
    if sys.platform == "darwin":
        return output_of("sysctl", "-n", "kern.bootsessionuuid").strip()
    return text_of("/proc/sys/kernel/random/boot_id").strip()


def _process(pid: int) -> Process | None:
    """Return the living process with this number. None if there is none; a zombie does not count as living."""
    if not os.path.isdir("/proc/self"):
        return _processes_by_ps().get(pid)
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # If only the main thread is dead, the process lives on in its other threads.
    if len(fields) < 20 or (fields[0] in (b"Z", b"X") and int(fields[17]) <= 1):
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def living_processes() -> dict[int, Process]:
    if not os.path.isdir("/proc/self"):
        return _processes_by_ps()
    found = (_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def _processes_by_ps() -> dict[int, Process]:
    """Return the living processes by `ps`, for systems without /proc.

    In place of the session there is the process group, and in place of the ticks, the second in which it started.
    """
    found = {}
    for line in output_of("ps", "-axo", "pid=,ppid=,pgid=,stat=,lstart=").splitlines():
        pid, parent, group, state, began = line.split(None, 4)
        if not state.startswith("Z"):
            ticks = int(time.mktime(time.strptime(began.strip())))
            found[int(pid)] = Process(int(pid), int(parent), int(group), ticks)
    return found


def ticks_of(pid: int) -> int:
    """Return when the process began, in ticks of the system's clock. 0 if there is no such process."""
    process = _process(pid)
    return process.ticks if process else 0


def started_ns(pid: int) -> int | None:
    """Return when the process began, in nanoseconds since 1970, to within about a second. None if unknown."""
    booted = re.search(r"^btime (\d+)$", text_of("/proc/stat"), re.MULTILINE)
    ticks = ticks_of(pid)
    if booted is None or ticks <= 0:
        return None
    return int((int(booted.group(1)) + ticks / os.sysconf("SC_CLK_TCK")) * 10**9)


def restarted_since(started: dict) -> str | None:
    """Say why no process of that launch can be alive any more. None if one may be alive."""
    if started["boot_id"] != boot_id():
        return "boot id was %s and is %s" % (started["boot_id"], boot_id())
    if started["init_ticks"] and ticks_of(1) not in (0, started["init_ticks"]):
        return "process 1 has been started again since: the container was restarted"
    return None
