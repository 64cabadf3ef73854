"""What lies in kept directories already, by its hash, told without reading it again.

It is a cache, and it saves a collect work; what is proved before a teardown is read from the disk.
"""

import errno
import fcntl
import os
import stat
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256 as digest_of
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from gpu_tenant.domain.model import SealedFile
from gpu_tenant.files.direct_io import open_regular
from gpu_tenant.files.directory_tree import Tree
from gpu_tenant.files.paths import below, parts_of, to_bytes
from gpu_tenant.files.state_dir import CHUNK_BYTES, reread

KNOWN = ".known.json"
"""Nothing that a box sends has a name that begins so: see `paths.require_apart`."""
_APART_NS = 2_000_000_000
"""The coarsest clock that a file system keeps goes in steps of so much."""
_AT_ONCE_BYTES = 64 << 20
_FICLONE = 0x40049409
"""The same number on every Linux that runs on a PC or on ARM; elsewhere it is refused."""
_OPENED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Remembered(NamedTuple):
    """What `lstat` told of a file while it held the bytes of that hash."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int
    sha256: str

    def is_still(self, seen: os.stat_result | None) -> bool:
        """Whether what is seen now is that file, and nobody has written to it since.

        To write makes both its times the same moment. A file whose times are apart, as landing sets
        them, was therefore not written to last, and none that is written to later can look like it.
        Of a file with two times alike that may happen within one step of its clock: it is not believed.
        """
        return (
            seen is not None
            and self[:5] == _identity(seen)
            and abs(self.ctime_ns - self.mtime_ns) >= _APART_NS
        )


class Glance(NamedTuple):
    """Entries, sorted by what a look without reading tells of the places where they are kept."""

    here: list[SealedFile]
    missing: list[SealedFile]
    unread: list[SealedFile]
    """A file of that size lies there, and only `Known.is_here` can tell."""


class Known:
    """The files of one kept directory whose hash is known. For one thread at a time."""

    def __init__(self, directory: Path, records: Mapping[str, Remembered]) -> None:
        self._directory, self._records, self._saved = directory, dict(records), dict(records)

    @classmethod
    def of(cls, directory: Path) -> "Known":
        """By what was saved there; where that is damaged, foreign or missing, nothing is known."""
        return cls(directory, _read(directory))

    def glance(self, entries: Iterable[SealedFile]) -> Glance:
        """Which entries are here, which are not, and which must be read to tell; nothing is read.

        Raises:
            ValueError: the name of one cannot be kept.
        """
        told = Glance([], [], [])
        with Tree(self._directory) as tree:
            for entry in entries:
                tree.spare()
                is_here = self._told(tree, entry)
                heap = told.unread if is_here is None else told.here if is_here else told.missing
                heap.append(entry)
        return told

    def is_here(self, entry: SealedFile) -> bool:
        """Whether the entry lies here as it is, and not elsewhere behind a link; read where it must be.

        Raises:
            OSError: it cannot be read.
            ValueError: its name cannot be kept.
        """
        with Tree(self._directory) as tree:
            is_here = self._told(tree, entry)
            if is_here is not None:
                return is_here
            before = _seen(tree, entry.name)
            held = reread(below(self._directory, entry.name))
            after = _seen(tree, entry.name)
        if held is None:
            return False
        if before is not None and after is not None and _identity(before) == _identity(after):
            self._records[entry.name] = Remembered(*_identity(after), held.sha256)
        return (held.size_bytes, held.sha256) == (entry.size_bytes, entry.sha256)

    def note(self, landed: Iterable[SealedFile]) -> None:
        """The files among those, which landed just now, are known from here on.

        Each only if it has the time that landing gave it: what wrote there since has changed that.
        """
        with Tree(self._directory) as tree:
            for entry in landed:
                tree.spare()
                seen = _seen(tree, entry.name)
                self._records.pop(entry.name, None)
                if seen is None or entry.kind != "file" or entry.sha256 is None:
                    continue
                if (seen.st_size, seen.st_mtime_ns) == (entry.size_bytes, entry.mtime_ns):
                    self._records[entry.name] = Remembered(*_identity(seen), entry.sha256)

    def save(self) -> None:
        """Whoever asks next need not read; where that cannot be written down, they read."""
        if self._records == self._saved:
            return
        content = _RECORDS.dump_json(self._records)
        with suppress(OSError):
            written = self._directory / f"{KNOWN}.new"
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OPENED
            with os.fdopen(os.open(written, flags, 0o600), "wb") as file:
                file.write(_sum(content) + b"\n" + content)
            written.replace(self._directory / KNOWN)
            self._saved = dict(self._records)

    def _told(self, tree: Tree, entry: SealedFile) -> bool | None:
        """Whether the entry is here; None where only its bytes can tell."""
        if entry.kind == "link":
            return _target(tree, entry.name) == to_bytes(entry.target or "")
        seen = _seen(tree, entry.name)
        if seen is None or not stat.S_ISREG(seen.st_mode):
            self._records.pop(entry.name, None)
            return False
        if entry.sha256 is None or seen.st_size != entry.size_bytes:
            return False
        record = self._records.get(entry.name)
        return record.sha256 == entry.sha256 if record and record.is_still(seen) else None


class Brought:
    """Bytes that lie in any of several kept directories, by their hash."""

    def __init__(self, held: Mapping[Path, Mapping[str, Remembered]]) -> None:
        self._held: defaultdict[tuple[str, int], list[tuple[Path, str, Remembered]]]
        self._held = defaultdict(list)
        for directory, records in held.items():
            for name, record in records.items():
                self._held[record.sha256, record.size_bytes].append((directory, name, record))

    @classmethod
    def of(cls, directories: Sequence[Path]) -> "Brought":
        """By what was saved in each; where one is found in several, the first is asked first."""
        return cls({directory: _read(directory) for directory in directories})

    @property
    def sizes_bytes(self) -> frozenset[int]:
        """The sizes of all those files: bytes of another size were never brought."""
        return frozenset(size_bytes for _, size_bytes in self._held)

    def find(self, sha256: str, size_bytes: int) -> Path | None:
        """A file that held these bytes and that nobody has written to since; None where there is none.

        Whoever copies it (see `cloned`) proves the copy, as anything else that arrives.
        """
        for directory, name, record in self._held.get((sha256, size_bytes), ()):
            with Tree(directory) as tree:
                if record.is_still(_seen(tree, name)):
                    return below(directory, name)
        return None


def cloned(source: Path, target: Path) -> None:
    """`target` is a new file with the bytes of `source`, and one of its own: to edit one leaves the other.

    So it is never a hard link; where the file system can, the two share blocks until one is written to.
    Nothing is on the storage yet: whoever proves the copy sees to that, as for any file that arrived.

    Raises:
        OSError: there is no such regular file, something lies at `target`, or there is no room.
    """
    of = open_regular(source)
    if of is None:
        raise FileNotFoundError(errno.ENOENT, "no regular file", str(source))
    try:
        with target.open("xb", buffering=0) as to:
            try:
                _copy(of, to.fileno())
            except BaseException:
                target.unlink()
                raise
    finally:
        os.close(of)


def _copy(of: int, to: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError):  # most file systems cannot, and none can to another one
            fcntl.ioctl(to, _FICLONE, of)
            return
    if hasattr(os, "copy_file_range"):
        # What it does not do is left to the plain way, and so is telling what keeps both from it.
        with suppress(OSError):
            while os.copy_file_range(of, to, _AT_ONCE_BYTES):
                pass
    while chunk := os.read(of, CHUNK_BYTES):
        while chunk:
            chunk = chunk[os.write(to, chunk) :]


def distrust(directory: Path) -> None:
    """Nothing is known of that directory any more: its disk gave other bytes than it took."""
    with suppress(OSError):
        (directory / KNOWN).unlink(missing_ok=True)


_RECORDS = TypeAdapter(dict[str, Remembered])


def _read(directory: Path) -> Mapping[str, Remembered]:
    try:
        with os.fdopen(os.open(directory / KNOWN, os.O_RDONLY | _OPENED), "rb") as file:
            told, _, content = file.read().partition(b"\n")
        return _RECORDS.validate_json(content, strict=True) if told == _sum(content) else {}
    except (OSError, ValidationError):
        return {}


def _sum(content: bytes) -> bytes:
    return digest_of(content).hexdigest().encode()


def _seen(tree: Tree, name: str) -> os.stat_result | None:
    """What lies under that name below the tree, reached through no link."""
    parts = parts_of(name)
    try:
        above = tree.directory(parts[:-1])
        return os.stat(parts[-1], dir_fd=above, follow_symlinks=False)
    except OSError:
        return None


def _target(tree: Tree, name: str) -> bytes | None:
    parts = parts_of(name)
    try:
        return os.fsencode(os.readlink(parts[-1], dir_fd=tree.directory(parts[:-1])))
    except OSError:
        return None


def _identity(seen: os.stat_result) -> tuple[int, int, int, int, int]:
    return seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, seen.st_dev
