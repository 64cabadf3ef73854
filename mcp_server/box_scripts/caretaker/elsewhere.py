"""Finds files that were written on this box outside all directories that are accounted for."""

from __future__ import annotations

import os
import stat
import time
from collections import deque

from box_scripts.caretaker.caches import is_cache
from box_scripts.caretaker.mounts import far_mounts
from box_scripts.caretaker.paths import escape_path
from box_scripts.caretaker.processes import text_of

SYSTEM = {
    b"/bin",
    b"/boot",
    b"/dev",
    b"/etc",
    b"/lib",
    b"/lib32",
    b"/lib64",
    b"/libx32",
    b"/proc",
    b"/run",
    b"/sbin",
    b"/snap",
    b"/sys",
    b"/usr",
    b"/var",
}
ELSEWHERE_S, ELSEWHERE_FILES = 2.0, 200_000


def written_elsewhere(tops: list[bytes], since_ns: int | None) -> dict | None:
    """Find files that were written since the launch on this box's disks, outside the accounted directories `tops`.

    The search stops after two seconds. `whole` says whether it was complete by then.
    """
    if since_ns is None:
        return None
    skip = {*tops, *SYSTEM, *far_mounts(text_of("/proc/self/mountinfo"))}
    tops_there = {b"/var/tmp", *(os.path.join(b"/", name) for name in os.listdir(b"/"))}
    likely = (b"/tmp", b"/var/tmp", b"/opt", b"/srv", b"/mnt", b"/data")
    pending = deque(sorted(tops_there, key=lambda top: (top not in likely, top)))
    give_up, seen_files, found = time.monotonic() + ELSEWHERE_S, 0, []
    while pending and seen_files < ELSEWHERE_FILES and time.monotonic() < give_up:
        top = pending.popleft()
        if top in skip or os.path.islink(top):
            continue
        try:
            for entry in os.scandir(top):
                seen = entry.stat(follow_symlinks=False)
                seen_files += 1
                if stat.S_ISDIR(seen.st_mode):
                    pending.append(entry.path)
                    continue
                is_new = stat.S_ISREG(seen.st_mode) and seen.st_ctime_ns >= since_ns
                if is_new and os.geteuid() in (0, seen.st_uid) and not is_cache(entry.path):
                    found.append((seen.st_size, escape_path(entry.path)))
        except OSError:
            continue
    return {
        "count": len(found),
        "bytes": sum(size for size, _ in found),
        "largest": [{"at": at, "size": size} for size, at in sorted(found, reverse=True)[:5]],
        "whole": not pending,
    }
