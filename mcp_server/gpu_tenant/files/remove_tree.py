"""Removes a directory with everything in it, but nothing in another place."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from gpu_tenant.files.mounts import mounted_below

_OPEN = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


class Mounted(OSError):
    """Something is mounted at `place`. Its content is not ours to remove."""

    def __init__(self, place: Path) -> None:
        super().__init__(f"{place} is mounted there")
        self.place = place


def require_unmounted(directory: Path) -> None:
    """Check in this system's table of mounts that nothing is mounted at or below `directory`.

    Only the table shows every mount: a bind mount may have the same device number as its surroundings, and looks
    like a directory.

    Raises:
        Mounted: something is mounted there.
    """
    if below := mounted_below(directory):
        raise Mounted(below[0])


def remove_tree(directory: Path) -> None:
    """Remove `directory` with everything in it, but follow no link and enter no other device.

    The directory may be nested to any depth. What cannot be removed stays.

    Raises:
        Mounted: something is mounted in the directory; nothing in that mount was removed.
    """
    require_unmounted(directory)
    try:
        top = os.open(directory, _OPEN)
    except FileNotFoundError:
        return
    try:
        _empty(top, directory)
    finally:
        os.close(top)
    with suppress(OSError):
        directory.rmdir()


def _empty(top: int, directory: Path) -> None:
    """Empty the open directory. What cannot be removed stays.

    Only one directory is open at a time, on the way down and up. So 3,000 levels are no harder than three.
    """
    device = os.fstat(top).st_dev
    here, names, stuck = os.dup(top), list[str](), set[tuple[int, int]]()
    # A level is listed when it is entered, and once more when its directories are gone. Listing it
    # after each of them would take time that grows with the square of their number.
    left_on = [_clear_files(here, device, directory, stuck)]
    try:
        while True:
            left_on[-1] = left_on[-1] or _clear_files(here, device, directory, stuck)
            if left_on[-1]:
                inner = left_on[-1].pop()
                try:
                    seen = os.stat(inner, dir_fd=here, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                try:
                    here = _move_aside(here, inner)
                except OSError:
                    stuck.add((seen.st_dev, seen.st_ino))
                    continue
                names.append(inner)
                left_on.append(_clear_files(here, device, directory, stuck))
                continue
            if not names:
                return
            left_on.pop()
            left = os.fstat(here)
            here, name = _move_aside(here, ".."), names.pop()
            try:
                os.rmdir(name, dir_fd=here)
            except OSError:
                stuck.add((left.st_dev, left.st_ino))
    finally:
        os.close(here)


def _clear_files(here: int, device: int, directory: Path, stuck: set[tuple[int, int]]) -> list[str]:
    """Remove everything but directories from the open directory.

    Returns the names of the directories that must be emptied first. Those in `stuck` are left out.
    """
    left: list[str] = []
    for name in os.listdir(here):
        try:
            seen = os.stat(name, dir_fd=here, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(seen.st_mode):
            with suppress(OSError):
                os.unlink(name, dir_fd=here)
        elif seen.st_dev != device:
            raise Mounted(directory / name)
        elif (seen.st_dev, seen.st_ino) not in stuck:
            with suppress(OSError):  # its owner may have removed all its permissions
                os.chmod(name, 0o700, dir_fd=here)
            left.append(name)
    return left


def _move_aside(here: int, name: str) -> int:
    flags = _OPEN if name != ".." else _OPEN & ~getattr(os, "O_NOFOLLOW", 0)
    there = os.open(name, flags, dir_fd=here)
    os.close(here)
    return there
