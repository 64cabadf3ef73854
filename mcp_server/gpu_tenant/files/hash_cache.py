"""A cache of the hashes of files in kept directories, so that these files need not be read again.

The cache only saves work for a collect. The proof before a teardown always reads the disk.
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

from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.direct_io import open_regular
from gpu_tenant.files.directory_tree import Tree
from gpu_tenant.files.paths import below, parts_of, to_bytes
from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.files.state_dir import CHUNK_BYTES, reread

KNOWN = ".known.json"
"""The file that stores the cache. No file from a box can have this name: see `paths.require_apart`."""
_APART_NS = 2_000_000_000
"""The clock of a file system moves in steps of this size or smaller."""
_AT_ONCE_BYTES = 64 << 20
_FICLONE = 0x40049409
"""This number is the same on every Linux for x86 and ARM. Other systems refuse the call."""
_OPENED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Remembered(NamedTuple):
    """What `lstat` returned for a file at the time when its content had this hash."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int
    sha256: str

    def is_still(self, seen: os.stat_result | None) -> bool:
        """Whether `seen` is the same file, and nobody has written to it since.

        A write sets mtime and ctime to the same moment. Landing sets mtime back to the time on the box, so the
        two differ. If both are unchanged, nobody has written to the file. If the two times are nearly
        equal, a later write could leave the same values, because the clock moves in steps. So such a record is
        not trusted.
        """
        return (
            seen is not None
            and self[:5] == _identity(seen)
            and abs(self.ctime_ns - self.mtime_ns) >= _APART_NS
        )


class Glance(NamedTuple):
    """Entries, sorted by what is known without reading any file."""

    here: list[SealedFile]
    missing: list[SealedFile]
    unread: list[SealedFile]
    """A file of that size is in the entry's place. Only `HashCache.is_here` can tell whether it is the same."""


class HashCache:
    """The files of one kept directory whose hashes are known. Only one thread at a time may use it."""

    def __init__(self, directory: Path, records: Mapping[str, Remembered]) -> None:
        self._directory, self._records, self._saved = directory, dict(records), dict(records)

    @classmethod
    def of(cls, directory: Path) -> "HashCache":
        """Load the cache that was saved in that directory. It is empty if the file is damaged, foreign or missing."""
        return cls(directory, _read(directory))

    def glance(self, entries: Iterable[SealedFile]) -> Glance:
        """Sort entries into those that are here, those that are missing, and those that must be read to decide.

        No file is read.

        Raises:
            ValueError: the name of an entry cannot be kept.
        """
        told = Glance([], [], [])
        with Tree(self._directory) as tree:
            for entry in entries:
                tree.spare()
                is_here = self._judge_unread(tree, entry)
                heap = told.unread if is_here is None else told.here if is_here else told.missing
                heap.append(entry)
        return told

    def is_here(self, entry: SealedFile) -> bool:
        """Whether the entry is here unchanged, and not behind a link. The file is read only if necessary.

        Raises:
            OSError: the file cannot be read.
            ValueError: the entry's name cannot be kept.
        """
        with Tree(self._directory) as tree:
            is_here = self._judge_unread(tree, entry)
            if is_here is not None:
                return is_here
            before = _stat_below(tree, entry.name)
            held = reread(below(self._directory, entry.name))
            after = _stat_below(tree, entry.name)
        if held is None:
            return False
        if before is not None and after is not None and _identity(before) == _identity(after):
            self._records[entry.name] = Remembered(*_identity(after), held.sha256)
        return (held.size_bytes, held.sha256) == (entry.size_bytes, entry.sha256)

    def note(self, landed: Iterable[SealedFile]) -> None:
        """Remember the hashes of entries that have just been put in place. Links are left out.

        An entry is remembered only if its file still has the time that it was given then. A write would have
        changed that time.
        """
        with Tree(self._directory) as tree:
            for entry in landed:
                tree.spare()
                seen = _stat_below(tree, entry.name)
                self._records.pop(entry.name, None)
                if seen is None or entry.kind != "file" or entry.sha256 is None:
                    continue
                if (seen.st_size, seen.st_mtime_ns) == (entry.size_bytes, entry.mtime_ns):
                    self._records[entry.name] = Remembered(*_identity(seen), entry.sha256)

    def save(self) -> None:
        """Save the hashes for later runs. If that fails, the files will only have to be read again."""
        if self._records == self._saved:
            return
        content = _RECORDS.dump_json(self._records)
        with suppress(OSError):
            replace_file(
                self._directory / KNOWN,
                _sum(content) + b"\n" + content,
                durable="none",
                draft=f"{KNOWN}.new",
            )
            self._saved = dict(self._records)

    def _judge_unread(self, tree: Tree, entry: SealedFile) -> bool | None:
        """Whether the entry is here. None if the file must be read to decide that."""
        if entry.kind == "link":
            return _target(tree, entry.name) == to_bytes(entry.target or "")
        seen = _stat_below(tree, entry.name)
        if seen is None or not stat.S_ISREG(seen.st_mode):
            self._records.pop(entry.name, None)
            return False
        if entry.sha256 is None or seen.st_size != entry.size_bytes:
            return False
        record = self._records.get(entry.name)
        return record.sha256 == entry.sha256 if record and record.is_still(seen) else None


class Brought:
    """The files of several kept directories, found by their hash."""

    def __init__(self, held: Mapping[Path, Mapping[str, Remembered]]) -> None:
        self._held: defaultdict[tuple[str, int], list[tuple[Path, str, Remembered]]]
        self._held = defaultdict(list)
        for directory, records in held.items():
            for name, record in records.items():
                self._held[record.sha256, record.size_bytes].append((directory, name, record))

    @classmethod
    def of(cls, directories: Sequence[Path]) -> "Brought":
        """Load the caches of these directories. If a hash is in several, they are tried in this order."""
        return cls({directory: _read(directory) for directory in directories})

    @property
    def sizes_bytes(self) -> frozenset[int]:
        """The sizes of all these files. A file of another size cannot be found here."""
        return frozenset(size_bytes for _, size_bytes in self._held)

    def find(self, sha256: str, size_bytes: int) -> Path | None:
        """Return a file that had this content and was not written to since. None if there is none.

        If the caller copies the file (see `clone_file`), it must verify the copy, as it verifies a download.
        """
        for directory, name, record in self._held.get((sha256, size_bytes), ()):
            with Tree(directory) as tree:
                if record.is_still(_stat_below(tree, name)):
                    return below(directory, name)
        return None


def clone_file(source: Path, target: Path) -> None:
    """Make `target` a new file with the bytes of `source`. Changing one of them does not change the other.

    If the file system supports it, the two files share blocks until one is written to. A hard link would not
    do, because it is the same file. The copy is not flushed: the caller does that when it verifies the copy.

    Raises:
        OSError: `source` is not a regular file, `target` exists, or there is no room.
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
        with suppress(OSError):  # few file systems can share blocks, and none with another
            fcntl.ioctl(to, _FICLONE, of)
            return
    if hasattr(os, "copy_file_range"):
        # If this call fails, the plain copy below does the rest, and raises any error that remains.
        with suppress(OSError):
            while os.copy_file_range(of, to, _AT_ONCE_BYTES):
                pass
    while chunk := os.read(of, CHUNK_BYTES):
        while chunk:
            chunk = chunk[os.write(to, chunk) :]


def distrust(directory: Path) -> None:
    """Forget all hashes of that directory, because its disk has returned wrong bytes."""
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


def _stat_below(tree: Tree, name: str) -> os.stat_result | None:
    """Return the stat of that name below the tree, without following a link. None if nothing is there."""
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
