"""The files of one user on this computer: one state directory, whichever program started us."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from gpu_tenant.errors import DiskFull

CHUNK_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_CLEARING = Lock()
"""Or the second of two that land at once would move away what the first has just made."""


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory, and what lies where in it."""

    root: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Home":
        """The state directory that this environment means.

        `~/.gpu-tenant` for every host, because a host that strips the environment, or sets its own
        data directory, would otherwise hide the boxes it rented from all the others.
        """
        named = environ.get("GPU_TENANT_HOME")
        return cls(Path(named).expanduser().absolute() if named else Path.home() / ".gpu-tenant")

    @property
    def ledger(self) -> Path:
        """The SQLite file."""
        return self.root / "ledger.sqlite3"

    @property
    def configuration(self) -> Path:
        """What the owner has said once for all, in TOML: where keys lie, own boxes, rates."""
        return self.root / "config.toml"

    @property
    def watchdog(self) -> Path:
        """When a watchdog last looked."""
        return self.root / "watchdog.json"

    @property
    def boxes(self) -> Path:
        """The local boxes, a directory each."""
        return self.root / "boxes"

    @property
    def lent(self) -> Path:
        """Which of the owner's machines are lent to a lease."""
        return self.root / "lent"

    @property
    def client_key(self) -> Path:
        """The ssh key this user shows to boxes."""
        return self.root / "ssh" / "id_ed25519"

    def known_hosts(self, lease_id: str) -> Path:
        """The host keys pinned for one lease."""
        return self.root / "ssh" / "known_hosts" / lease_id

    def kept(self, lease_id: str) -> Path:
        """Where a lease's artifacts go unless the owner says otherwise."""
        return self.root / "kept" / lease_id


@dataclass(frozen=True, slots=True)
class Reread:
    """What a file held when it was read back."""

    size_bytes: int
    sha256: str


def open_cold(path: Path) -> BinaryIO | None:
    """The regular file at `path`, to be read from its storage; None where there is no such file.

    The page cache is dropped first where the system allows, so that the storage is asked and not
    the memory the file was written from.
    """
    try:
        # Not waiting: a named pipe that lies in a file's place would never open.
        waitless = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        opened = os.open(path, os.O_RDONLY | waitless)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        return None
    file = os.fdopen(opened, "rb")
    if hasattr(os, "posix_fadvise"):
        try:
            os.fsync(opened)
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            file.close()
            raise
    return file


def reread(path: Path) -> Reread | None:
    """What the regular file at `path` holds on its storage; None where there is no such file."""
    opened = open_cold(path)
    if opened is None:
        return None
    with opened as file:
        digest, size = sha256(), 0
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return Reread(size, digest.hexdigest())


def link_target(path: Path) -> bytes | None:
    """What the symbolic link at `path` says, in bytes; None where there is no link."""
    try:
        return os.fsencode(path.readlink())
    except OSError:
        return None


def is_reached(root: Path, path: Path) -> bool:
    """Whether all that is between `root` and `path` is directories: through a link lies another place."""
    between = path.parents[: len(path.relative_to(root).parts) - 1]
    try:
        return all(stat.S_ISDIR(parent.lstat().st_mode) for parent in between)
    except OSError:
        return False


def place(arrived: Path, final: Path, *, root: Path, superseded: Path) -> None:
    """`final` is the file that was `arrived`, durably; what lay there before is in `superseded`.

    Both are below `root`, and no link between is followed: one in the way of `final` is superseded.
    """
    with _cleared(final, root=root, superseded=superseded) as directory:
        os.replace(arrived, final.name, dst_dir_fd=directory)


def place_link(target: str, final: Path, *, root: Path, superseded: Path) -> None:
    """`final` is a link to `target`, in the same way as `place`."""
    with _cleared(final, root=root, superseded=superseded) as directory:
        os.symlink(target, final.name, dir_fd=directory)


@contextmanager
def _cleared(final: Path, *, root: Path, superseded: Path) -> Iterator[int]:
    """The open directory of `final`, in which nothing has its name; synchronised afterwards."""
    with ExitStack() as opened:

        def enter(directory: int, name: str) -> int:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=directory)
            inner = os.open(name, _DIRECTORY, dir_fd=directory)
            opened.callback(os.close, inner)
            return inner

        def away(directory: int, name: str, path: Path) -> None:
            aside = top
            for part in path.parent.relative_to(root).parts:
                aside = enter(aside, part)
            os.rename(name, path.name, src_dir_fd=directory, dst_dir_fd=aside)

        directory = top = os.open(root, os.O_RDONLY)
        opened.callback(os.close, top)
        parts = final.relative_to(root).parts
        with _CLEARING:
            for depth, part in enumerate(parts[:-1]):
                try:
                    directory = enter(directory, part)
                except OSError as error:
                    if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                        raise
                    # A link, or a file: what is written through it would lie who knows where.
                    away(directory, part, superseded.parents[len(parts) - depth - 2])
                    directory = enter(directory, part)
        with suppress(FileNotFoundError):
            os.stat(final.name, dir_fd=directory, follow_symlinks=False)
            away(directory, final.name, superseded)
        yield directory
        os.fsync(directory)


def sync_directory(directory: Path) -> None:
    """The names in `directory` are on its storage."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def require_space(directory: Path, size_bytes: int, *, remedy: str) -> None:
    """There is room for `size_bytes` more below `directory`.

    Raises:
        DiskFull: there is not.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    free = shutil.disk_usage(directory).free
    if free < size_bytes:
        raise DiskFull(
            f"{directory} has {free:,} bytes free and {size_bytes:,} are coming", remedy=remedy
        )
