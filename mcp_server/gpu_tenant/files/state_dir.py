"""The files of one user on this computer. They are in one state directory, whichever program starts this one."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from threading import Lock
from typing import BinaryIO, NamedTuple

from gpu_tenant.domain.errors import BadRequest, DiskFull
from gpu_tenant.files.direct_io import flush, open_regular, reread_blocks
from gpu_tenant.files.directory_tree import Parts, Tree

CHUNK_BYTES = 1 << 20
_LEFT_BYTES, _LEFT_PART = 2 << 30, 0.05
_CLEARING = Lock()
"""Held while files are put in place.

Otherwise, if two threads did this at the same time, one could move away what the other has just made or is
using.
"""


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory, and the place of everything in it."""

    root: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Home":
        """Return the state directory that this environment asks for.

        The default is `~/.gpu-tenant`, whatever program started this one. Some programs remove environment
        variables or set a data directory of their own. If we followed that, boxes that were rented from one
        program would be hidden from the others.

        Raises:
            BadRequest: the environment names an empty or relative directory. With a relative one, there would
                be a separate ledger for each directory in which a command runs.
        """
        named = environ.get("GPU_TENANT_HOME")
        if named is None:
            if not environ.get("HOME", "/").startswith("/"):
                raise BadRequest(
                    "HOME is not an absolute path, so the ledger would be in another place each time",
                    remedy="set HOME to your home directory, or GPU_TENANT_HOME to the state directory",
                )
            return cls(Path.home() / ".gpu-tenant")
        place = Path(named).expanduser()
        if not place.is_absolute():
            raise BadRequest(
                f"GPU_TENANT_HOME is {named!r}, which is not an absolute path: each directory would have a ledger",
                remedy="`unset GPU_TENANT_HOME` for ~/.gpu-tenant, or set it to an absolute path",
            )
        return cls(place)

    @property
    def ledger(self) -> Path:
        """The ledger, which is an SQLite file."""
        return self.root / "ledger.sqlite3"

    @property
    def configuration(self) -> Path:
        """The owner's settings, in TOML: where keys are, the owner's own boxes, rates."""
        return self.root / "config.toml"

    @property
    def valid_profiles(self) -> Path:
        """The facts of the profiles that were found valid. If the file is missing, the profiles are checked again."""
        return self.root / "profiles.json"

    @property
    def watchdog(self) -> Path:
        """The file that records when a watchdog last checked the leases."""
        return self.root / "watchdog.json"

    @property
    def presence(self) -> Path:
        """The file whose time says when a person or an agent was last there."""
        return self.root / "presence"

    @property
    def installed(self) -> Path:
        """The list of what `gpu-tenant install` wrote into other programs' files."""
        return self.root / "installed.json"

    @property
    def boxes(self) -> Path:
        """The directory of the local boxes. Each has a directory of its own in it."""
        return self.root / "boxes"

    @property
    def lent(self) -> Path:
        """The record of which of the owner's own machines are leased now."""
        return self.root / "lent"

    @property
    def client_key(self) -> Path:
        """The ssh key with which this user logs in to boxes."""
        return self.root / "ssh" / "id_ed25519"

    def known_hosts(self, lease_id: str) -> Path:
        """Return the file with the host keys that are pinned for one lease."""
        return self.root / "ssh" / "known_hosts" / lease_id

    def channels(self, lease_id: str) -> Path:
        """Return the configuration file for the system's ssh client, which carries transfers to one lease's box."""
        return self.root / "ssh" / "channels" / lease_id

    def broker_ssh_of(self, lease_id: str) -> Path:
        """Return the directory that replaces `~/.ssh` for a box that is reached by another tool's ssh entries."""
        return self.root / "ssh" / "brokered" / lease_id

    def ssh_of(self, lease_id: str, usual: Path) -> Path:
        """Return the ssh directory for the box: the one of `broker_ssh_of` if it exists, otherwise `usual`."""
        own = self.broker_ssh_of(lease_id)
        return own if own.is_dir() else usual

    def readings(self, lease_id: str) -> Path:
        """Return the file with the readings of the lease's jobs, one on each line."""
        return self.root / "readings" / f"{lease_id}.jsonl"

    @property
    def logs(self) -> Path:
        """The directory of the parts of logs that were read on boxes, with one directory for each lease."""
        return self.root / "logs"

    def artifacts_of(self, lease_id: str) -> Path:
        """Return the directory where a lease's artifacts are kept, unless the owner names another."""
        return self.root / "kept" / lease_id

    @property
    def reports(self) -> Path:
        """The directory for reports that belong to no kept artifacts, unless the owner names another."""
        return self.root / "reports"

    def sweep(self, sweep_id: str) -> Path:
        """The directory with a link to the files of each cell of that sweep."""
        return self.root / "sweeps" / sweep_id


class Reread(NamedTuple):
    """The size and the hash of a file that was read back."""

    size_bytes: int
    sha256: str


def open_cold(path: Path) -> BinaryIO | None:
    """Open the regular file at `path` so that it is read from the disk. None if there is no such file.

    If possible, the file is first dropped from the page cache. Otherwise its bytes could come from memory.
    """
    opened = open_regular(path)
    if opened is None:
        return None
    file = os.fdopen(opened, "rb")
    try:
        flush(opened)
    except OSError:
        file.close()
        raise
    return file


def reread(path: Path) -> Reread | None:
    """Return the size and hash of the regular file at `path`, read from the disk. None if there is no such file."""
    blocks = reread_blocks(path)
    if blocks is None:
        return None
    digest, size = sha256(), 0
    for block in blocks:
        digest.update(block)
        size += len(block)
    return Reread(size, digest.hexdigest())


def link_target(path: Path) -> bytes | None:
    """Return the target of the symbolic link at `path`, as bytes. None if there is no link."""
    try:
        return os.fsencode(path.readlink())
    except OSError:
        return None


def is_reached(root: Path, path: Path) -> bool:
    """Whether every directory between `root` and `path` is a real one, and not a link that leads to another place."""
    between = path.parents[: len(path.relative_to(root).parts) - 1]
    try:
        return all(stat.S_ISDIR(parent.lstat().st_mode) for parent in between)
    except OSError:
        return False


class Placing:
    """Puts files in place below one root. See `open_placing`."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def file(self, arrived: Path, final: Parts, *, superseded: Parts) -> None:
        """Move the file `arrived` to `final`. Whatever was there before is moved to `superseded`."""
        os.replace(arrived, final[-1], dst_dir_fd=self._make_room(final, superseded))
        self._tree.touch(final[:-1])

    def link(self, target: str, final: Parts, *, superseded: Parts) -> None:
        """Make `final` a link to `target`. Whatever was there before is moved to `superseded`."""
        os.symlink(target, final[-1], dir_fd=self._make_room(final, superseded))
        self._tree.touch(final[:-1])

    def _make_room(self, final: Parts, superseded: Parts) -> int:
        """Move away what is at `final`. Return the descriptor of its directory, in which the name is now free."""
        self._tree.spare()
        try:
            directory = self._tree.make_directory(final[:-1])
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            directory = self._way(final, superseded)
        with suppress(FileNotFoundError):
            os.stat(final[-1], dir_fd=directory, follow_symlinks=False)
            self._away(final, superseded)
        return directory

    def _way(self, final: Parts, superseded: Parts) -> int:
        """Return the descriptor of `final`'s directory. Anything on the way that is not a directory is moved away."""
        up = len(superseded) - len(final)
        for depth in range(1, len(final)):
            try:
                self._tree.make_directory(final[:depth])
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                # A file or a link is in the way. Writing through a link could change a file in any place.
                self._away(final[:depth], superseded[: up + depth])
        return self._tree.make_directory(final[:-1])

    def _away(self, name: Parts, aside: Parts) -> None:
        there = self._tree.make_directory(aside[:-1])
        free = _free(aside[-1], there)
        self._tree.leave(name)
        os.rename(name[-1], free, src_dir_fd=self._tree.make_directory(name[:-1]), dst_dir_fd=there)
        self._tree.touch(name[:-1])
        self._tree.touch(aside[:-1])


def _free(name: str, directory: int) -> str:
    """Return a name that is free in `directory`, so that an earlier superseded file is not overwritten."""
    free = name
    with suppress(FileNotFoundError):
        for taken in count(2):
            os.stat(free, dir_fd=directory, follow_symlinks=False)
            free = f"{name}.{taken}"
    return free


@contextmanager
def open_placing(root: Path) -> Iterator[Placing]:
    """Let the block put files in place below `root`. Afterwards they are flushed to the disk, even after an error.

    No link below `root` is followed. If a link is in the way of a file, it is moved aside like any other file.
    """
    with Tree(root) as tree:
        try:
            with _CLEARING:
                yield Placing(tree)
        finally:
            tree.sync()


def place(arrived: Path, final: Path, *, root: Path, superseded: Path) -> None:
    """Move the file `arrived` to `final`, and flush that. Whatever was there before is moved to `superseded`.

    Both are below `root`. No link on the way is followed. If a link is in the way of `final`, it is moved aside
    as well.
    """
    aside = superseded.relative_to(root).parts
    with open_placing(root) as places:
        places.file(arrived, final.relative_to(root).parts, superseded=aside)


def free_bytes(directory: Path) -> int:
    """Return how much may still be written below `directory`, which need not exist yet. The reserve stays free."""
    # A name that no file system takes does not exist either. Whoever makes the directory says so.
    while not os.path.exists(directory) and directory != directory.parent:  # noqa: PTH110
        directory = directory.parent
    disk = shutil.disk_usage(directory)
    return max(0, disk.free - min(_LEFT_BYTES, int(disk.total * _LEFT_PART)))


def require_room(directory: Path, size_bytes: int, *, files: int = 0, remedy: str) -> None:
    """Check that there is room below `directory` for `size_bytes` more in `files` more files, and for a reserve.

    The reserve is for this computer itself: a full disk would stop everything, above all the ledger.

    Raises:
        DiskFull: there is not enough room.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    disk = shutil.disk_usage(directory)
    left = min(_LEFT_BYTES, int(disk.total * _LEFT_PART))
    if size_bytes > 0 and disk.free - left < size_bytes:
        raise DiskFull(
            f"{directory} has {disk.free:,} bytes free, of which {left:,} stay free for this computer, "
            f"and {size_bytes:,} are coming",
            remedy=remedy,
        )
    if not hasattr(os, "statvfs"):
        return
    room = os.statvfs(directory)
    # Some file systems create inodes as needed, and report 0 for both numbers.
    if room.f_files and room.f_favail < files:
        raise DiskFull(
            f"{directory} has room for {room.f_favail:,} files (inodes), and {files:,} are coming",
            remedy=remedy,
        )
