"""Finds out why a job has ended, from what can be seen on the box."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.cgroups import LIMIT_HIT_FIELDS, OOM_KILL_FIELDS, risen_counts
from box_scripts.caretaker.disk_room import FULL_BELOW_BYTES, free_share, room_at, what_is_full
from box_scripts.caretaker.paths import escape_path, unescape_path


def end_facts(spec: dict, log_directory: str) -> dict:
    """Return present facts of the box that may explain why a job died. Their size is limited, to fit into a record."""
    work = unescape_path(spec["cwd"])
    facts = dict(
        room_at(work),
        oom_kills=risen_counts(spec["oom_kills"], OOM_KILL_FIELDS),
        limit_hits=risen_counts(spec.get("limit_hits", {}), LIMIT_HIT_FIELDS),
        log_free_bytes=room_at(os.fsencode(log_directory))["disk_free_bytes"],
    )
    try:
        disk = os.statvfs(work)
        facts["disk_share"] = free_share(disk.f_bavail, disk.f_blocks)
        facts["inode_share"] = free_share(disk.f_favail, disk.f_files)
    except OSError:
        pass
    try:
        shm = os.statvfs("/dev/shm")  # noqa: S108
        facts["shm_free_bytes"] = shm.f_bavail * shm.f_frsize
        facts["shm_bytes"] = shm.f_blocks * shm.f_frsize
    except OSError:
        pass
    for place in (os.environ.get("TMPDIR") or "/tmp", os.path.expanduser("~")):  # noqa: S108
        full = what_is_full(room_at(os.fsencode(place)))
        if full and len(place) < 200:
            facts["full_elsewhere"] = [full, place]
    return facts


def kernel_messages(start_ticks: int) -> dict:
    """Return what the kernel's log says since the job began: the last GPU fault, and which processes were killed.

    Only processes that were killed for lack of memory count. The result is empty if we may not read the log.
    """
    told: dict = {"xid": None, "killed": {}}
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return told
    since_us = start_ticks / os.sysconf("SC_CLK_TCK") * 1e6
    for _ in range(100_000):
        try:
            prefix, _, text = os.read(fd, 8192).partition(b";")
            if b"NVRM: Xid" not in text and b"Killed process" not in text:
                continue
            if float(prefix.split(b",")[2]) < since_us:
                continue
            line = text.split(b"\n")[0].decode("utf-8", "replace")[:400]
            killed = re.search(r"ut of memory: Killed process (\d+) ", line)
            if killed:
                told["killed"][int(killed.group(1))] = line
            elif "NVRM: Xid" in line:
                told["xid"] = line
        except BrokenPipeError:  # this message was overwritten before we read it
            continue
        except (OSError, IndexError, ValueError):
            break
    os.close(fd)
    return told


def _memory_sign(spec: dict, facts: dict, killed: str | None) -> tuple[str, str] | None:
    """Return what ran out of memory when the kernel killed a process, the job's cgroup or the host, and the evidence.

    None if the kernel's counts do not show it.
    """
    risen = [
        (path, spec["oom_kills"][path], count)
        for path, count in facts.get("oom_kills", {}).items()
        if count > spec["oom_kills"].get(path, count)
    ]
    ours = [kill for kill in risen if kill[0] != "/proc/vmstat"]
    groups_seen = any(path != "/proc/vmstat" for path in spec["oom_kills"])
    hits = [path for path in facts.get("limit_hits", {}) if not path.endswith("pids.events")]
    if ours:
        counted = "%s: oom_kill went from %d to %d" % ours[0]
        within = killed.startswith("Memory cgroup") if killed else hits or "limit_hits" not in spec
        if within:
            return "cgroup_oom", counted
        return "host_oom", counted + ", and not for its own limit"
    if risen and not groups_seen:
        return "host_oom", "%s: oom_kill went from %d to %d" % risen[0]
    return None


def seek_reason(
    spec: dict, facts: dict, restart: str | None, kernel: dict, otherwise: tuple[str, str]
) -> dict:
    """Return why a job has ended that nobody asked to stop, by the strongest evidence there is.

    In the result, `signs` has all the evidence that could explain the end, for a reader who also has the log. `shares`
    says how much of the disk, of the inodes and of /dev/shm was free.
    """
    signs: dict = {}
    free, inodes = facts.get("disk_free_bytes"), facts.get("inodes_free")
    killed = list(kernel["killed"].values())[-1] if kernel["killed"] else None
    memory = _memory_sign(spec, facts, killed)
    if restart:
        signs["reboot"] = restart
    if memory:
        signs[memory[0]] = memory[1]
    if kernel["xid"]:
        signs["xid"] = kernel["xid"]
    if free is not None and free < FULL_BELOW_BYTES:
        signs["disk_full"] = "%d bytes free where the job worked" % free
    elif inodes is not None and inodes < 1:
        signs["inodes_full"] = "no inodes free where the job worked"
    shm_free = facts.get("shm_free_bytes")
    if shm_free is not None and shm_free < min(FULL_BELOW_BYTES, facts["shm_bytes"] // 8):
        signs["shm_full"] = "%d of %d bytes free in /dev/shm" % (shm_free, facts["shm_bytes"])
    code, evidence = next(iter(signs.items()), otherwise)
    if code not in ("xid", "reboot", otherwise[0]):
        evidence += "; " + otherwise[1]
    # The following signs explain an end only together with the job's own log.
    if facts.get("full_elsewhere"):
        full, place = facts["full_elsewhere"]
        signs.setdefault(full, escape_path(os.fsencode(place)) + " is full")
    for path in facts.get("limit_hits", {}):
        if path.endswith("pids.events"):
            signs["pids_full"] = path + ": the limit of processes was reached"
    if killed and "main_pid" in kernel and kernel["main_pid"] not in kernel["killed"]:
        signs["another_killed"] = killed
    if not spec["oom_kills"]:
        signs["uncounted"] = "the box does not count its kills for memory"
    log_free = facts.get("log_free_bytes")
    if log_free is not None and log_free < 4096:
        signs["log_cut"] = "the disk of the log was full"
    names = ("disk_share", "inode_share", "shm_bytes", "shm_free_bytes")
    shares = {name: facts[name] for name in names if facts.get(name) is not None}
    return {"code": code, "evidence": evidence, "signs": signs, "shares": shares}
