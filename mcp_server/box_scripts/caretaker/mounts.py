"""Mounts of another machine's disks, and of what is no disk."""

from __future__ import annotations

import os
import re


def far_mounts(mountinfo: str) -> set[bytes]:
    """Return the places where something is mounted that is another machine's disk, or no disk at all."""
    found = set()
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        if ELSEWHERE(system) or system.split(" ")[0] in (
            "proc",
            "sysfs",
            "cgroup",
            "cgroup2",
            "devtmpfs",
        ):
            place = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), mount.split()[4])
            found.add(os.fsencode(place))
    return found


ELSEWHERE = re.compile(
    r"nfs|cifs|smb|fuse|ceph|lustre|gluster|beegfs|gpfs|weka|9p|virtiofs|afs"
).match


def far_devices(mountinfo: str) -> set[int]:
    """The devices whose files are dated by another machine's clock."""
    found = set()
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        if ELSEWHERE(system):
            major, minor = mount.split()[2].split(":")
            found.add(os.makedev(int(major), int(minor)))
    return found
