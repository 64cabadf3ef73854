"""Disk space that is reserved for the end of a lease, because a full disk must not prevent a teardown."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

RESERVES = {"watch": 1 << 20, "end": 4 << 20}
"""How many bytes are reserved for each purpose: for the watchdog, which must continue, and for a teardown.

A teardown may use both reserves.
"""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
WANTED_BYTES = 1 << 20
"""A disk with less free space counts as full, because the ledger's lines for one command might not fit."""


def is_read_only(directory: Path) -> bool:
    """Whether the state directory takes no new file, for another reason than a lack of space.

    A kernel that has stopped all writes to a disk after an error does not say so before the first write.
    """
    if not os.access(directory, os.W_OK):
        return True
    tried = directory / f".writable-{os.getpid()}"
    try:
        tried.touch(mode=0o600)
        tried.unlink()
    except OSError as error:
        return error.errno not in _NO_ROOM
    return False


def is_full(directory: Path) -> bool:
    """Whether the disk of `directory` has too little space for the ledger's lines for one command."""
    if free_bytes(directory) >= WANTED_BYTES:
        return False
    # Some disks keep space for root and do not report it, so try to write.
    tried = directory / f".room-{os.getpid()}"
    try:
        tried.write_bytes(os.urandom(WANTED_BYTES))
    except OSError as error:
        return error.errno in _NO_ROOM
    finally:
        with suppress(OSError):
            tried.unlink(missing_ok=True)
    return False


def free_bytes(directory: Path) -> int:
    """Return how many bytes an ordinary user may still write to the disk of `directory`."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize


def has_reserve(directory: Path) -> bool:
    """Whether `directory` has the reserve for a teardown."""
    return _reserve(directory, "end").exists()


def keep_reserve(directory: Path) -> None:
    """Make the reserve in `directory` if it is missing. If less than twice its size is free, do nothing."""
    with suppress(OSError):
        if free_bytes(directory) < 2 * sum(RESERVES.values()):
            return
        for name, size_bytes in RESERVES.items():
            _keep(_reserve(directory, name), size_bytes)


def _keep(reserve: Path, size_bytes: int) -> None:
    try:
        opened = os.open(reserve, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    try:
        # Random bytes, because some file systems store zeros without using any room.
        os.write(opened, os.urandom(size_bytes))
        os.fsync(opened)
    except OSError:
        reserve.unlink(missing_ok=True)
        raise
    finally:
        os.close(opened)


def give_up_reserve(directory: Path, purpose: Literal["watch", "end"]) -> bool:
    """If the disk of `directory` is full, delete the reserve for that purpose. Return whether there was one."""
    if not is_full(directory):
        return False
    there = [
        reserve
        for name in RESERVES
        if purpose in ("end", name) and (reserve := _reserve(directory, name)).exists()
    ]
    with suppress(OSError):
        for reserve in there:
            reserve.unlink(missing_ok=True)
    return bool(there)


def _reserve(directory: Path, name: str) -> Path:
    return directory / f".reserve-{name}"
