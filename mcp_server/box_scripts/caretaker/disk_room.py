"""Measures how much room a file system has."""

from __future__ import annotations

import os

FULL_BELOW_BYTES = 1 << 20


def room_at(path: bytes) -> dict:
    try:
        seen = os.statvfs(path)
    except OSError:
        return {"disk_free_bytes": None, "inodes_free": None}
    inodes = seen.f_favail if seen.f_files else None  # some file systems do not count inodes
    return {"disk_free_bytes": seen.f_bavail * seen.f_frsize, "inodes_free": inodes}


def free_share(free: int, whole: int) -> float | None:
    return round(free / whole, 3) if whole else None


def what_is_full(room: dict) -> str | None:
    free, inodes = room.get("disk_free_bytes"), room.get("inodes_free")
    if free is not None and free < FULL_BELOW_BYTES:
        return "disk_full"
    return "inodes_full" if inodes is not None and inodes < 1 else None
