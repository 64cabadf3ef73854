"""Finds mounted file systems that are on another machine's disk, or on no disk."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.paths import is_below

NO_FILES = (b"/proc", b"/sys", b"/dev", b"/run")


def mount_names(mountinfo: str) -> list[str]:
    """Return a short name for each mount, in order. Two mounts at one place have two names."""
    import hashlib

    seen: dict[bytes, int] = {}
    names = []
    for place in _places(mountinfo):
        seen[place] = seen.get(place, 0) + 1
        names.append(hashlib.sha256(b"%d %s" % (seen[place], place)).hexdigest()[:16])
    return names


def later_mounts(
    mountinfo: str, known: list[str] | None, work: bytes, tops: list[bytes]
) -> list[bytes]:
    """Return the places that hide what was written there: those where something was mounted since the lease began.

    `known` are the names of the mounts from the beginning. If they were not recorded, only the work directory is
    sure to have had no mounts.
    """
    where = [work] if known is None else [work, *tops]
    return [
        place
        for place, name in zip(_places(mountinfo), mount_names(mountinfo))  # noqa: B905 - Python 3.7 knows no strict
        if name not in (known or ()) and any(is_below(place, top) for top in where)
    ]


def _places(mountinfo: str) -> list[bytes]:
    """Return where each mount is, in order, except those where no job writes files."""
    places = []
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        if system:
            place = _unquoted(mount.split()[4])
            if not any(is_below(place, top) for top in NO_FILES):
                places.append(place)
    return places


def _unquoted(place: str) -> bytes:
    return os.fsencode(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), place))


def far_mounts(mountinfo: str) -> set[bytes]:
    """Return the directories where another machine's disk is mounted, or a file system that is on no disk."""
    no_disk = ("proc", "sysfs", "cgroup", "cgroup2", "devtmpfs")
    found = mounted_systems(mountinfo).items()
    return {place for place, system in found if ELSEWHERE(system) or system in no_disk}


def mounted_systems(mountinfo: str) -> dict[bytes, str]:
    """Return the type of the file system at each mount point. If there are several, only the last one is visible."""
    found = {}
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        if system:
            found[_unquoted(mount.split()[4])] = system.split(" ")[0]
    return found


class Outliving:
    """The directories that outlive a stop. Other disks that are mounted below them do not count."""

    def __init__(self, kept: list[bytes], disks: list[bytes], mountinfo: str) -> None:
        """`kept` are the directories. Those also in `disks` count only if a disk is mounted exactly there now."""
        mounted = mounted_systems(mountinfo)
        gone = {place for place in disks if mounted.get(place, "tmpfs") in ("tmpfs", "ramfs")}
        self._kept = [os.path.realpath(place) for place in kept if place not in gone]
        self._others = [
            place
            for place in mounted
            if any(is_below(place, top) and place != top for top in self._kept)
        ]

    def has(self, path: bytes) -> bool:
        """Whether the file outlives a stop."""
        return any(is_below(path, top) for top in self._kept) and not any(
            is_below(path, other) for other in self._others
        )


ELSEWHERE = re.compile(
    r"nfs|cifs|smb|fuse|ceph|lustre|gluster|beegfs|gpfs|weka|9p|virtiofs|afs"
).match


def far_devices(mountinfo: str) -> set[int]:
    """Return the devices whose files get their times from another machine's clock."""
    found = set()
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        if ELSEWHERE(system):
            major, minor = mount.split()[2].split(":")
            found.add(os.makedev(int(major), int(minor)))
    return found
