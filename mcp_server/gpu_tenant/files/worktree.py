"""The files of a directory that make up the work: what git would take.

These are the files that none of git's rules excludes, and those that git's index has, although a rule excludes them.
The rules are those of every `.gitignore` from the repository's top down, of `.git/info/exclude`, and of the owner's
`core.excludesFile`. If the directory itself is ignored, the rules above it say nothing of what is in it: somebody has
named it.

Ignored files and links stay on this computer. They are listed with their sizes. So missing data is noticed at
the push, and not only when a job fails.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.wording import size, some
from gpu_tenant.files.git_repository import Repository, find_repository
from gpu_tenant.files.gitignore import EntryKind, Rule, bytes_of, parse_rules
from gpu_tenant.files.owner_git import expanded, owner_settings
from gpu_tenant.files.paths import escape
from gpu_tenant.files.read_small import TooLarge, read_small

_NEVER = frozenset({".git", ".gpu-tenant"})
"""Always excluded, because `.git` may contain credentials. An ordinary rule could be undone by `!.*`."""


_COUNTED = 20_000
"""At most this many files are counted below one left-out folder. With more, the number is shown as `at least`."""
_MOST_RULES_BYTES = 1 << 20
"""A larger file of rules is refused."""


_REPORT = re.compile(r"gpu-tenant-[a-z_]+-[a-z0-9]{4}\.(html|md)")
"""The names of the files that `report` writes."""
Left = Literal["ignored", "excluded", "owner", "link", "report"]
_REASONS: dict[Left, str] = {
    "ignored": "by .gitignore",
    "excluded": "by .git/info/exclude",
    "owner": "by git's core.excludesFile",
    "link": "a link, which is not followed",
    "report": "a report of a lease",
}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or folder of the directory that is left out of the work."""

    name: str
    why: Left
    files: int
    size_bytes: int
    is_all: bool

    @property
    def words(self) -> str:
        """The entry in words, for example `data/ (201 files, 200 MB), by .gitignore`."""
        least = "" if self.is_all else "at least "
        count = f"{some(self.files, 'file')}, " if self.name.endswith("/") else ""
        return f"{escape(self.name)} ({least}{count}{size(self.size_bytes)}), {self.reason}"

    @property
    def reason(self) -> str:
        """Why it is left out, in words."""
        return _REASONS[self.why]


@dataclass(frozen=True, slots=True)
class WorkTree:
    """The files of the work by their relative names, and the files and folders that are left out."""

    files: dict[str, Path]
    left_out: list[LeftOut] = field(default_factory=list)


def files_of(directory: Path, include: Sequence[str] = ()) -> dict[str, Path]:
    """Return the files of `read_tree`, but do not measure what is left out."""
    return _read(directory, include)[0]


def read_tree(directory: Path, include: Sequence[str] = ()) -> WorkTree:
    """Return the regular files below `directory` that are not ignored, and those that `include` names.

    `include` has names of files and folders, relative to `directory`. A folder is included with everything in
    it except links and `.git`. A link is followed only if `include` names it, because it may lead anywhere.
    What is left out is sorted by size, the largest first.

    Raises:
        BadRequest: a name in `include` leads out of the directory, or nothing has that name; or a file of rules is
            too large.
    """
    files, rest = _read(directory, include)
    left_out = [
        found
        for entry, why in rest
        if (found := _measure(directory, entry, why, set(files))) is not None
    ]
    return WorkTree(files, sorted(left_out, key=lambda one: (-one.size_bytes, one.name)))


def left_out_lines(left_out: Sequence[LeftOut], *, most: int = 10) -> tuple[str, ...]:
    """Return one line for each of the `most` largest entries, and one line for all others together."""
    others = left_out[most:]
    lines = tuple(one.words for one in left_out[:most])
    if not others:
        return lines
    rest = sum(one.size_bytes for one in others)
    return (*lines, f"and {len(others)} more ({size(rest)})")


def left_out_reasons(left_out: Sequence[LeftOut], *, most: int = 100) -> dict[str, str]:
    """Return the reason for each of the `most` largest entries, by its name. A folder's name ends with a slash."""
    return {escape(one.name): one.reason for one in left_out[:most]}


def _read(
    directory: Path, include: Sequence[str]
) -> tuple[dict[str, Path], list[tuple[Path, Left]]]:
    rest: list[tuple[Path, Left]] = []
    # The rules from above are about real paths.
    real = directory.resolve()
    files = {
        name: directory / name
        for path in _walk(real, _beginning(real), rest)
        if (name := os.fspath(path.relative_to(real)))
    }
    rest = [(directory / path.relative_to(real), why) for path, why in rest]
    for name in include:
        place = _include(directory, name)
        # Use the real path. Then the file that is read is the file that was checked, even if the
        # link changes later.
        real, inner = place.resolve(), place.relative_to(directory)
        if real.is_file():
            files[os.fspath(inner)] = real
        else:
            rest += [(path, "link") for path in _links_below(place)]
            files |= {os.fspath(inner / path.relative_to(real)): path for path in _all_below(real)}
    return files, rest


def _include(directory: Path, name: str) -> Path:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or _NEVER & set(pure.parts) or not pure.parts:
        raise BadRequest(
            f"{name!r} cannot be included: name a file or a folder inside the work tree",
            remedy=f"as in {Command('push', '.', include='data/')}; a link in it is followed only when it is named",
        )
    place = directory / pure
    if not place.is_file() and not place.is_dir():
        raise BadRequest(
            f"nothing in {directory} is named {name!r}",
            remedy=(
                f"{Command('push', 'DIR')} lists the files that are left out; {Option('include')} takes those "
                "names"
            ),
        )
    return place


def _all_below(folder: Path) -> Iterator[Path]:
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _NEVER)
        for name in sorted(names):
            path = Path(top, name)
            if name not in _NEVER and path.is_file() and not path.is_symlink():
                yield path


def _links_below(folder: Path) -> Iterator[Path]:
    for top, folders, names in os.walk(folder):
        yield from (path for name in (*folders, *names) if (path := Path(top, name)).is_symlink())


def _measure(directory: Path, path: Path, why: Left, taken: set[str]) -> LeftOut | None:
    """Measure what is left out at `path`. None if everything there was included."""
    name = os.fspath(path.relative_to(directory))
    if not path.is_dir():
        if name in taken:
            return None
        with suppress(OSError):
            return LeftOut(name, why, 1, path.stat().st_size, is_all=True)
        return LeftOut(name, why, 1, 0, is_all=True)
    files = total = 0
    for file in _all_below(path):
        if os.fspath(file.relative_to(directory)) in taken:
            continue
        if files == _COUNTED:
            return LeftOut(f"{name}/", why, files, total, is_all=False)
        with suppress(OSError):
            total += file.stat().st_size
        files += 1
    return LeftOut(f"{name}/", why, files, total, is_all=True) if files else None


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of one file. They are about the entries below the directory `root`."""

    root: str
    rules: Sequence[Rule]
    source: Left

    def ignore(self, path: str, *, folder: bool) -> bool | None:
        """Whether the entry is excluded. None if no rule matches it."""
        parts = bytes_of(path.removeprefix(self.root).removeprefix("/")).split("/")
        kind: EntryKind = "directory" if folder else "file"
        for rule in reversed(self.rules):
            if rule.matches(parts, kind):
                return not rule.is_negated
        return None


@dataclass(frozen=True, slots=True)
class _Scope:
    """What decides about the entries of one directory. Every path in it is real."""

    rules: tuple[_Rules, ...]
    """A later one goes before an earlier one."""
    tracked: frozenset[str] = frozenset()
    """Every file that an index has, and every directory above such a file."""
    is_excluded: bool = False
    """Whether the directory itself is excluded. Then only tracked files in it are taken."""

    def excludes(self, path: str, *, folder: bool) -> Left | None:
        """Return by which rules the entry is excluded. None if it is not."""
        for rules in reversed(self.rules):
            verdict = rules.ignore(path, folder=folder)
            if verdict is not None:
                return rules.source if verdict else None
        return None

    def entering(self, directory: Path) -> "_Scope":
        """Return what decides about the entries of `directory`, which may be a repository of its own."""
        rules, tracked = self.rules, self.tracked
        if os.path.lexists(directory / ".git"):
            inner = find_repository(directory)
            if inner is not None and inner.root == directory:
                rules += _rules_of_repository(inner)
                tracked |= _tracked(inner, directory)
        rules += _rules_of(directory / ".gitignore", directory)
        return replace(self, rules=rules, tracked=tracked)


def _beginning(directory: Path) -> _Scope:
    """Return what decides about a work tree before its own rules are read: the owner's rules, and those from above."""
    repository = find_repository(directory)
    root = directory if repository is None else repository.root
    owner = _rules_of(owner_settings()["core.excludesfile"], root, "owner", is_owners=True)
    if repository is None or root == directory:
        return _Scope(owner)
    tracked = _tracked(repository, directory)
    scope = _Scope((*owner, *_rules_of_repository(repository)), tracked)
    folder = root
    for part in directory.relative_to(root).parts:
        scope = replace(scope, rules=(*scope.rules, *_rules_of(folder / ".gitignore", folder)))
        folder /= part
        if scope.excludes(os.fspath(folder), folder=True):
            return _Scope(owner, tracked)
    return scope


def _tracked(repository: Repository, directory: Path) -> frozenset[str]:
    """Return the paths below `directory` that the index has, and those of the directories above them."""
    found: set[str] = set()
    for name in repository.tracked_below(directory) or ():
        path = os.path.join(directory, name)  # noqa: PTH118 - an index has many names
        while path not in found and len(path) > len(os.fspath(directory)):
            found.add(path)
            path = path.rpartition("/")[0]
    return frozenset(found)


def _rules_of_repository(repository: Repository) -> tuple[_Rules, ...]:
    """Return the rules that the repository has for itself alone.

    A `core.excludesFile` of its configuration is read if it is in the work tree. A tree names no file outside of it.
    """
    exclude = repository.common / "info" / "exclude"
    rules: tuple[_Rules, ...] = ()
    try:
        own = repository.settings.get("core.excludesfile")
        content = repository.read("info/exclude", _MOST_RULES_BYTES)
    except TooLarge as large:
        raise _too_large(exclude) from large
    if own is not None:
        place = expanded(own, repository.root)
        if os.path.realpath(place).startswith(f"{repository.root}/"):
            rules = _rules_of(place, repository.root, "owner")
    if content:
        rules += (_Rules(os.fspath(repository.root), parse_rules(content), "excluded"),)
    return rules


def _rules_of(
    file: Path, root: Path, source: Left = "ignored", *, is_owners: bool = False
) -> tuple[_Rules, ...]:
    """Return the rules of that file. As with git, a tree's own file of rules is not read through a link.

    Raises:
        BadRequest: the file is too large.
    """
    try:
        content = read_small(file, _MOST_RULES_BYTES, links="followed" if is_owners else "refused")
    except TooLarge as large:
        raise _too_large(file) from large
    return (_Rules(os.fspath(root), parse_rules(content), source),) if content else ()


def _too_large(file: Path) -> BadRequest:
    return BadRequest(
        f"{file} is larger than {size(_MOST_RULES_BYTES)}, so what it excludes is unknown",
        remedy="shorten that file",
    )


def _walk(directory: Path, scope: _Scope, rest: list[tuple[Path, Left]]) -> Iterator[Path]:
    scope = scope.entering(directory)
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name in _NEVER:
                continue
            path, folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
            is_tracked = entry.path in scope.tracked
            why = None if scope.is_excluded else scope.excludes(entry.path, folder=folder)
            if why:
                rest.append((path, why))
            if (why or scope.is_excluded) and not is_tracked:
                continue
            if entry.is_symlink():
                if not why and not scope.is_excluded:
                    rest.append((path, "link"))
            elif folder:
                yield from _walk(
                    path, replace(scope, is_excluded=scope.is_excluded or bool(why)), rest
                )
            elif entry.is_file(follow_symlinks=False):
                # `report` writes into the directory from which it was called, and this is often the work tree.
                if _REPORT.fullmatch(entry.name) and not is_tracked:
                    rest.append((path, "report"))
                else:
                    yield path
