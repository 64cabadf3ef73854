"""What the kernel counts in our cgroups: kills for memory, and limits that were reached."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.processes import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def cgroup_files(v2: str, v1: str, controller: str = "memory") -> list[str]:
    """Return the existing files of that name: first our own cgroup's, then those of the cgroups around it."""
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
    """How often the kernel killed for want of memory, as our cgroups and the whole machine count it."""
    paths = [*cgroup_files("memory.events", "memory.oom_control"), "/proc/vmstat"]
    return _counts_in(paths, OOM_KILL_FIELDS)


def limit_hit_counts() -> dict[str, int]:
    """How often our cgroups reached their own limits of memory and of processes.

    A cgroup's count of kills also rises if the whole machine was short of memory. These counts rise only if
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
}  # the other files hold nothing but a number


def _counts_in(paths: Iterable[str], names: dict) -> dict[str, int]:
    found = {}
    for path in paths:
        name = names.get(os.path.basename(path), "")
        match = re.search(r"^%s(\d+)$" % name, text_of(path), re.MULTILINE)
        if match:
            found[path] = int(match.group(1))
    return found


def risen_counts(before: dict, names: dict) -> dict:
    """Which of these counts are higher now. We read the same files: we may be in another cgroup than the job was."""
    now = _counts_in(before, names)
    risen = [(path, count) for path, count in now.items() if count > before[path]]
    return dict(risen[:6])  # the record has to fit into the room that was reserved for it
