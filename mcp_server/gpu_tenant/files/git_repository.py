"""Reads a git repository by hand: where it lies, which commit is checked out, and what its index lists.

git itself is never started in a work tree. A repository's own configuration can name programs (filters, hooks, a file
watcher, and more with each version of git), and whoever wrote the tree wrote the configuration. Nothing here runs any
program, and nothing outside of the tree is read because the tree says so. A linked worktree and a submodule keep
their repository elsewhere: that place must name the tree in turn, or lie in the outer repository.
"""

import os
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from gpu_tenant.files.read_small import TooLarge, read_small

_SMALL_BYTES = 64 << 10
_MOST_REF_BYTES = 32 << 20
_MOST_INDEX_BYTES = 128 << 20
_MOST_NAMES_BYTES = 256 << 20
"""All names of an index together. In version 4, a small file can stand for names without end."""
_MOST_COMMIT_BYTES = 1 << 20
_MOST_REFS = 5
"""A symbolic reference leads to another at most so many times."""
_LONGEST_NAME = 4096
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/[^\0\s]+")
_FILE_TYPE, _TREE, _GITLINK = 0o170000, 0o040000, 0o160000
_SKIPPED, _EXTENDED = 0x4000, 0x4000
_COMMIT = 1
"""The type of a commit in a pack."""


class Entry(NamedTuple):
    """One file of the index, with what `lstat` said when git last compared it with its blob."""

    mode: int
    id: str
    size: int
    stat: tuple[int, int, int, int, int]
    """Change and modification time in seconds and nanoseconds, and the inode."""
    is_skipped: bool
    """Whether a sparse checkout leaves it out of the work tree."""

    @property
    def is_gitlink(self) -> bool:
        """Whether it is a repository inside of this one."""
        return self.mode & _FILE_TYPE == _GITLINK


class GitIndex(NamedTuple):
    """The index: each file by its name relative to the top of the work tree."""

    entries: dict[str, Entry]
    tree: str | None
    """The id of the tree that it would be committed as. None if that is not on record."""
    written_ns: int


@dataclass(frozen=True)
class Repository:
    """A repository, and the top directory of its work tree."""

    root: Path
    place: Path
    """The directory of `HEAD` and `index`."""
    common: Path
    """The directory of everything that linked worktrees share."""

    def read(self, name: str, most_bytes: int = _SMALL_BYTES) -> bytes | None:
        """Return the content of a file of the shared directory. None if it leads elsewhere or cannot be read.

        Raises:
            TooLarge: it has more than `most_bytes`.
        """
        return _read_inside(self.common, name, most_bytes)

    @cached_property
    def settings(self) -> dict[str, str]:
        """What its configuration says, by names such as `core.excludesfile`. Other files are not included.

        Raises:
            TooLarge: the configuration is too large.
        """
        return dict(config_values(os.fsdecode(self.read("config") or b"")))

    @cached_property
    def head(self) -> str | None:
        """The id of the commit that is checked out. None if there is none, or it cannot be told."""
        place, name = self.place, "HEAD"
        for _ in range(_MOST_REFS):
            text = _text_inside(place, name)
            if text is None and name != "HEAD":
                return self._packed(name)
            text = (text or "").strip()
            if _ID.fullmatch(text):
                return text
            ref = text.removeprefix("ref:").strip()
            if not text.startswith("ref:") or not _REF.fullmatch(ref) or ".." in ref.split("/"):
                return None
            place, name = self.common, ref
        return None

    def _packed(self, ref: str) -> str | None:
        text = _text_inside(self.common, "packed-refs", _MOST_REF_BYTES) or ""
        for line in text.splitlines():
            found, _, name = line.partition(" ")
            if name == ref and _ID.fullmatch(found):
                return found
        return None

    @cached_property
    def index(self) -> GitIndex | None:
        """The index. None if there is none, or if it cannot be read as a whole."""
        with suppress(TooLarge, ValueError, struct.error, IndexError, OSError):
            content = _read_inside(self.place, "index", _MOST_INDEX_BYTES)
            if content is not None:
                written_ns = (self.place / "index").stat().st_mtime_ns
                return _parse_index(content, len(self.head or "x" * 40) // 2, written_ns)
        return None

    def tracked_below(self, directory: Path) -> dict[str, Entry] | None:
        """Return the entries of the index below `directory`, by their names relative to it. None if that is unknown."""
        if self.index is None:
            return None
        before = "" if directory == self.root else f"{directory.relative_to(self.root)}/"
        return {
            name[len(before) :]: entry
            for name, entry in self.index.entries.items()
            if name.startswith(before)
        }

    @cached_property
    def tree_of_head(self) -> str | None:
        """The id of the tree of the commit that is checked out. None if the commit cannot be read by hand.

        Only this one object is read. In a pack it is read if it is stored whole, which the newest commit usually is.
        """
        if self.head is None:
            return None
        found = None
        with suppress(TooLarge, ValueError, struct.error, IndexError, OSError, zlib.error):
            found = self._loose(self.head) or self._in_packs(self.head)
        if found is None or not found.startswith(b"tree "):
            return None
        id_ = found[5 : 5 + len(self.head)].decode("ascii", "replace")
        return id_ if _ID.fullmatch(id_) else None

    def _loose(self, id_: str) -> bytes | None:
        content = self.read(f"objects/{id_[:2]}/{id_[2:]}", _MOST_COMMIT_BYTES)
        if content is None:
            return None
        head, _, body = _unpacked(content).partition(b"\0")
        return body if head.startswith(b"commit ") else None

    def _in_packs(self, id_: str) -> bytes | None:
        folder = self.common / "objects" / "pack"
        if not _is_inside(folder, self.common):
            return None
        for listed in sorted(folder.glob("*.idx")):
            with suppress(OSError), _opened(listed) as file:
                at = _offset_in_pack(file, bytes.fromhex(id_))
                if at is not None:
                    with _opened(listed.with_suffix(".pack")) as pack:
                        return _whole_commit(os.pread(pack, _SMALL_BYTES, at))
        return None


def find_repository(directory: Path) -> Repository | None:
    """Return the repository whose work tree contains `directory`. None if there is none, or its place is not believed.

    A directory that only has the files of a bare repository is no repository here. git would take it for one.
    """
    here = directory.resolve()
    for place in (here, *here.parents):
        git = place / ".git"
        is_empty = git.is_dir() and not os.path.lexists(git / "HEAD")  # git goes on upwards, too
        if os.path.lexists(git) and not is_empty:
            return _repository_at(place)
    return None


def _repository_at(root: Path) -> Repository | None:
    git = root / ".git"
    if git.is_symlink():
        return None
    if git.is_dir():
        return Repository(root, git, git)
    text = _text_inside(root, ".git") or ""
    if not text.startswith("gitdir:"):
        return None
    try:
        place = Path(os.path.realpath(root / text.removeprefix("gitdir:").strip()))
    except (OSError, ValueError):
        return None
    if place.parent.name == "worktrees":
        back = (_text_inside(place, "gitdir") or "").strip()
        names_us = bool(back) and os.path.realpath(place / back) == str(git)
        return Repository(root, place, place.parent.parent) if names_us else None
    outer = find_repository(root.parent)
    if outer is not None and place.is_relative_to(outer.place / "modules"):
        return Repository(root, place, place)
    return None


def _is_inside(path: Path, directory: Path) -> bool:
    try:
        return path.resolve().is_relative_to(directory.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def _read_inside(directory: Path, name: str, most_bytes: int) -> bytes | None:
    path = directory / name
    return read_small(path, most_bytes) if _is_inside(path, directory) else None


def _text_inside(directory: Path, name: str, most_bytes: int = _SMALL_BYTES) -> str | None:
    try:
        content = _read_inside(directory, name, most_bytes)
    except TooLarge:
        return None
    return None if content is None else os.fsdecode(content)


# The index. Its format is described in git's own gitformat-index.


def _parse_index(content: bytes, id_bytes: int, written_ns: int) -> GitIndex:
    """Parse an index of version 2, 3 or 4.

    Raises:
        ValueError, struct.error, IndexError: it is none, is cut, or needs another file.
    """
    signature, version, count = struct.unpack_from(">4sII", content)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError
    entries: dict[str, Entry] = {}
    at, name, total = 12, b"", 0
    for _ in range(count):
        begin = at
        ctime_s, ctime_ns, mtime_s, mtime_ns, _, inode, mode, _, _, size = struct.unpack_from(
            ">10I", content, at
        )
        at += 40
        id_ = content[at : at + id_bytes].hex()
        at += id_bytes
        (flags,) = struct.unpack_from(">H", content, at)
        at += 2
        more = 0
        if flags & _EXTENDED:
            (more,) = struct.unpack_from(">H", content, at)
            at += 2
        if version == 4:
            cut, at = _varint(content, at)
            end = content.index(b"\0", at)
            if cut > len(name):
                raise ValueError
            name = name[: len(name) - cut] + content[at:end]
            at = end + 1
        else:
            end = content.index(b"\0", at)
            name = content[at:end]
            at = begin + ((end - begin) // 8 + 1) * 8
        total += len(name)
        if len(name) > _LONGEST_NAME or total > _MOST_NAMES_BYTES or len(id_) != 2 * id_bytes:
            raise ValueError
        if mode & _FILE_TYPE != _TREE:  # a directory stands for what a sparse checkout leaves out
            stat = (ctime_s, ctime_ns, mtime_s, mtime_ns, inode)
            entries[os.fsdecode(name)] = Entry(mode, id_, size, stat, bool(more & _SKIPPED))
    return GitIndex(entries, _cached_tree(content, at, id_bytes), written_ns)


def _cached_tree(content: bytes, at: int, id_bytes: int) -> str | None:
    """Return the id of the tree that the index holds, from its extension `TREE`.

    Raises:
        ValueError: the index needs another file (a split index), or something else that is not known here.
    """
    found = None
    while at + 8 <= len(content) - id_bytes:
        signature, length = struct.unpack_from(">4sI", content, at)
        at += 8
        # A small first letter says that the index cannot be understood without the extension.
        if signature[:1].islower() and signature != b"sdir":
            raise ValueError
        if signature == b"TREE":
            _, _, rest = content[at : at + length].partition(b"\0")
            counts, _, rest = rest.partition(b"\n")
            if not counts.startswith(b"-"):
                found = rest[:id_bytes].hex()
        at += length
    return found


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = content[at] & 0x7F
    while content[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (content[at] & 0x7F)
        if value > _LONGEST_NAME:
            raise ValueError
    return value, at + 1


# Objects: only the one commit


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a regular file for reading at any place."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _offset_in_pack(index: int, id_: bytes) -> int | None:
    """Return where the object lies in the pack of that index (version 2). None if the pack does not have it."""
    head = os.pread(index, 8 + 1024, 0)
    if head[:8] != b"\xfftOc\0\0\0\2":
        return None
    fan = struct.unpack_from(">256I", head, 8)
    low, high, count = fan[id_[0] - 1] if id_[0] else 0, fan[id_[0]], fan[255]
    while low < high:
        middle = (low + high) // 2
        found = os.pread(index, len(id_), 1032 + middle * len(id_))
        if found == id_:
            at = 1032 + count * (len(id_) + 4) + middle * 4
            (offset,) = struct.unpack(">I", os.pread(index, 4, at))
            return offset if offset < 1 << 31 else None
        low, high = (middle + 1, high) if found < id_ else (low, middle)
    return None


def _whole_commit(packed: bytes) -> bytes | None:
    """Return the commit, if it is stored whole. None if it is stored as a difference to another."""
    at = 0
    if packed[at] >> 4 & 7 != _COMMIT:
        return None
    while packed[at] & 0x80:
        at += 1
    return _unpacked(packed[at + 1 :])


def _unpacked(content: bytes) -> bytes:
    return zlib.decompressobj().decompress(content, _MOST_COMMIT_BYTES)


# Configuration


def config_values(text: str) -> Iterator[tuple[str, str]]:
    """Yield each setting of a git configuration: its name, such as `core.excludesfile`, and its value.

    Names are in small letters. A section with a subsection is left out: nothing here asks for one.
    """
    section = ""
    for line in text.replace("\\\n", "").splitlines():
        line = line.strip()
        if heading := re.match(r"\[\s*([\w.-]+)\s*(\"(?:[^\"\\]|\\.)*\")?\s*\]", line):
            section = "" if heading[2] else heading[1].lower()
            line = line[heading.end() :].strip()
        name, _, value = line.partition("=")
        if section and re.fullmatch(r"[A-Za-z][\w-]*", name := name.strip()):
            yield f"{section}.{name.lower()}", _plain(value.strip())


def _plain(value: str) -> str:
    """Return the value without its quotes, escapes and comment."""
    found, is_quoted, at = [], False, 0
    while at < len(value):
        letter = value[at]
        if letter == "\\" and at + 1 < len(value):
            at += 1
            found.append({"n": "\n", "t": "\t", "b": "\b"}.get(value[at], value[at]))
        elif letter == '"':
            is_quoted = not is_quoted
        elif letter in "#;" and not is_quoted:
            break
        else:
            found.append(letter)
        at += 1
    return "".join(found).rstrip() if not is_quoted else "".join(found)
