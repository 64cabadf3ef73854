"""Finds the file system that a path on this computer is on, and what is mounted below a directory."""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "davfs", "afpfs", "webdav", "macfuse"}
_ESCAPED = re.compile(r"\\([0-7]{3})")
_OF_MOUNT = re.compile(r"(?P<source>.*) on (?P<point>/.*) \((?P<kind>\w+)(?:,.*)?\)")
"""A line in the output of `mount` on macOS."""


class Mount(NamedTuple):
    """One line of the table of mounts."""

    point: Path
    kind: str
    source: str

    @property
    def is_memory(self) -> bool:
        """Whether the files on this mount are lost when this computer is switched off."""
        return self.kind in _MEMORY

    @property
    def host(self) -> str | None:
        """The computer that holds the files, or the name of the remote. None if the files are on this computer."""
        if self.kind not in _NETWORK and not self.kind.startswith("fuse."):
            return None
        if named := re.match(r"(?:\w+:)?//(?:[^@/]*@)?(\[[^\]]+\]|[^/:]+)", self.source):
            return named[1].strip("[]")
        if named := re.match(r"(?:[^@/:]*@)?(\[[^\]]+\]|[^/:\[\]]+):", self.source):
            return named[1].strip("[]")
        return None


def mounts() -> list[Mount]:
    """Return every mount that this process sees, in the order in which they were made.

    Empty if this system has no list that we can read.
    """
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return _by_command()
    found = []
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        kind, source, *_ = *after.split(" "), ""
        found.append(Mount(Path(_plain(before.split(" ")[4])), kind, _plain(source)))
    return found


def mount_of(path: Path) -> Mount | None:
    """Return the mount that `path` is on, with links resolved. None if unknown. The path need not exist."""
    real = path.resolve()
    on = [each for each in mounts() if real.is_relative_to(each.point)]
    # Take the mount with the longest path. If several have that path, the newest one hides the others.
    return max(enumerate(on), key=lambda x: (len(x[1].point.parts), x[0]))[1] if on else None


def mounted_below(directory: Path) -> list[Path]:
    """Return the mount points at or below `directory`. Files on them do not belong to `directory`."""
    real = directory.resolve()
    return [each.point for each in mounts() if each.point.is_relative_to(real)]


def lasting_scratch() -> Path:
    """Return a directory for temporary data that should survive a restart of this computer."""
    usual, lasting = Path(tempfile.gettempdir()), Path("/var/tmp")  # noqa: S108 - only where `/tmp` is memory
    mount = mount_of(usual)
    return lasting if mount is not None and mount.is_memory and lasting.is_dir() else usual


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _by_command() -> list[Mount]:
    try:
        said = subprocess.run(
            ["/sbin/mount"], capture_output=True, encoding="utf-8", check=False, timeout=20
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return from_mount(said)


def from_mount(said: str) -> list[Mount]:
    """Parse the output of `mount` on macOS."""
    lines = map(_OF_MOUNT.fullmatch, said.splitlines())
    return [Mount(Path(x["point"]), x["kind"], x["source"]) for x in lines if x]
