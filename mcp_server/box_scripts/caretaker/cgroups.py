"""Reads what the kernel counts for our cgroups: processes killed for lack of memory, and limits that were reached."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.processes import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def cgroup_files(v2: str, v1: str, controller: str = "memory") -> list[str]:
    """Return the existing files of that name (`v2` or `v1`, by version): our own cgroup's, then its parents'."""
    files = []
    for line in text_of("/proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controller in controllers.split(","):
            bases, name = ["/sys/fs/cgroup/" + controller], v1
        elif not controllers:
            bases, name = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], v2
        else:
            continue
        path = path.rstrip("/") + "/"
        while path:
            path = path.rpartition("/")[0]
            files += [base + path + "/" + name for base in bases]
    return [path for path in files if os.path.isfile(path)]


def oom_kill_counts() -> dict[str, int]:
    """Return how often the kernel killed a process for lack of memory, as counted for our cgroups and the machine."""
    paths = [*cgroup_files("memory.events", "memory.oom_control"), "/proc/vmstat"]
    return _counts_in(paths, OOM_KILL_FIELDS)


def limit_hit_counts() -> dict[str, int]:
    """Return how often our cgroups reached their own limits of memory and of processes.

    The count of kills in a cgroup also rises if the whole machine was short of memory. These counts rise only if
    the cgroup reached its own limit.
    """
    paths = cgroup_files("memory.events", "memory.failcnt")
    paths += cgroup_files("", "memory.memsw.failcnt")
    return _counts_in(paths + cgroup_files("pids.events", "pids.events", "pids"), LIMIT_HIT_FIELDS)


OOM_KILL_FIELDS = {
    "memory.events": "oom_kill ",
    "memory.oom_control": "oom_kill ",
    "vmstat": "oom_kill ",
}
LIMIT_HIT_FIELDS = {
    "memory.events": "oom ",
    "pids.events": "max ",
}  # each of the other files contains only a number


def _counts_in(paths: Iterable[str], names: dict) -> dict[str, int]:
    found = {}
    for path in paths:
        name = names.get(os.path.basename(path), "")
        match = re.search(r"^%s(\d+)$" % name, text_of(path), re.MULTILINE)
        if match:
            found[path] = int(match.group(1))
    return found


def risen_counts(before: dict, names: dict) -> dict:
    """Return the counts that are higher now. The job's files are read again, because we may be in another cgroup."""
    now = _counts_in(before, names)
    risen = [(path, count) for path, count in now.items() if count > before[path]]
    return dict(risen[:6])  # the room that was reserved for the record is limited
