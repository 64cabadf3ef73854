"""Finds the git commit of a work tree, so that a report can say what ran. No program is started for it."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from hashlib import new
from pathlib import Path
from typing import Literal, NamedTuple

from gpu_tenant.files.git_repository import Entry, Repository, find_repository
from gpu_tenant.files.owner_git import owner_settings
from gpu_tenant.files.read_small import TooLarge, read_small

_MOST_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
_CONVERTS = re.compile(rb"filter(?!=lfs\b)|ident|working-tree-encoding")
"""Words of a `.gitattributes` by which a file's blob may differ from the file, in a way that only git could undo."""
_LINK = 0o120000


class Commit(NamedTuple):
    """A commit, and whether the files are unchanged since that commit. None if that cannot be told by hand."""

    id: str
    is_clean: bool | None


def commit_of(directory: Path, files: Mapping[str, Path]) -> Commit | None:
    """Return the commit that is checked out in `directory`, of which `files` are sent. None if there is none.

    A file is unchanged if git's index says so by its times, size and inode, or if its content has the id that the
    index has. Of Git LFS, that id is the pointer's, which is made from the content. Whether a file with another id
    was changed is unknown if an attribute names a filter, or if only the line ends differ.
    """
    repository = find_repository(directory)
    if repository is None or repository.head is None:
        return None
    tracked = repository.tracked_below(directory.resolve())
    if not tracked:
        # Nothing here is of that commit, for example below a home directory that is a repository.
        return None if repository.index is not None else Commit(repository.head, None)
    is_clean: bool | None = True
    for verdict in _verdicts(repository, directory, files, tracked):
        if verdict is False:
            return Commit(repository.head, is_clean=False)
        is_clean = is_clean and verdict
    return Commit(repository.head, is_clean)


def _verdicts(
    repository: Repository, directory: Path, files: Mapping[str, Path], tracked: Mapping[str, Entry]
) -> Iterator[bool | None]:
    """Yield for the index, and for each file, whether it is as in the commit. None if unknown."""
    assert repository.index is not None
    index, commit = repository.index.tree, repository.tree_of_head
    yield None if index is None or commit is None else index == commit
    inner = tuple(f"{name}/" for name, entry in tracked.items() if entry.is_gitlink)
    for name in files.keys() - tracked.keys():
        yield None if name.startswith(inner) else False
    is_converted = None
    for name, entry in tracked.items():
        if entry.is_gitlink or entry.is_skipped:
            continue
        verdict = _is_same(directory / name, entry, repository.index.written_ns)
        if verdict is False:
            if is_converted is None:
                is_converted = _may_be_converted(repository, directory, tracked)
            verdict = None if is_converted else False
        yield verdict


def _is_same(path: Path, entry: Entry, written_ns: int) -> bool | None:
    """Whether the file is what the index has. None if it differs only in its line ends."""
    try:
        seen = path.lstat()
        if entry.mode & 0o170000 == _LINK:
            blob = os.fsencode(os.readlink(path))  # noqa: PTH115 - its Path cousin changes the text
            return _id(entry, [blob], len(blob)) == entry.id
        if not stat.S_ISREG(seen.st_mode):
            return False
        times = (*divmod(seen.st_ctime_ns, 10**9), *divmod(seen.st_mtime_ns, 10**9))
        # A file that was written in the same moment as the index may have been written after it.
        if (
            (*times, seen.st_ino & 0xFFFFFFFF) == entry.stat
            and seen.st_size & 0xFFFFFFFF == entry.size
            and seen.st_mtime_ns < written_ns
        ):
            return True
        if _id(entry, _pieces(path), seen.st_size) == entry.id or _is_pointed_to(path, entry):
            return True
        if seen.st_size > _MOST_BYTES:
            return False
        content = path.read_bytes()
    except (OSError, ValueError):
        return False
    plain = content.replace(b"\r\n", b"\n")
    return None if plain != content and _id(entry, [plain], len(plain)) == entry.id else False


def _is_pointed_to(path: Path, entry: Entry) -> bool:
    """Whether the blob is the pointer that Git LFS makes of the file."""
    digest, size = new("sha256"), 0
    for piece in _pieces(path):
        digest.update(piece)
        size += len(piece)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest.hexdigest()}\nsize {size}\n"
    return _id(entry, [pointer.encode()], len(pointer)) == entry.id


def _pieces(path: Path) -> Iterator[bytes]:
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(opened, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _id(entry: Entry, pieces: Iterable[bytes], size: int) -> str:
    digest = new("sha1" if len(entry.id) == 40 else "sha256", usedforsecurity=False)
    digest.update(b"blob %d\0" % size)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _may_be_converted(
    repository: Repository, directory: Path, tracked: Mapping[str, Entry]
) -> bool:
    """Whether an attribute of the tree or of its owner may name a filter, or what works like one."""
    here = directory.resolve()
    above = [here, *here.parents][: len(here.relative_to(repository.root).parts) + 1]
    places = [folder / ".gitattributes" for folder in above]
    places += [directory / name for name in tracked if name.rpartition("/")[2] == ".gitattributes"]
    texts = [_content(place) for place in places]
    texts.append(_content(owner_settings()["core.attributesfile"], "followed"))
    try:
        texts.append(repository.read("info/attributes", _MOST_BYTES) or b"")
        if "core.attributesfile" in repository.settings:
            return True
    except TooLarge:
        return True
    return any(map(_CONVERTS.search, texts))


def _content(path: Path, links: Literal["refused", "followed"] = "refused") -> bytes:
    try:
        return read_small(path, _MOST_BYTES, links=links) or b""
    except TooLarge:
        return b"filter"  # nobody knows what else it says
