"""The files of a directory that make up the work: all files that git's `.gitignore` rules do not exclude.

Ignored files and links stay on this computer. They are listed with their sizes. So missing data is noticed at
the push, and not only when a job fails.
"""

import codecs
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from pathspec.patterns.gitignore.base import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.wording import size, some
from gpu_tenant.files.paths import escape

_NEVER = frozenset({".git", ".gpu-tenant"})
"""Always excluded, because `.git` may contain credentials. An ordinary rule could be undone by `!.*`."""


_COUNTED = 20_000
"""At most this many files are counted below one left-out folder. With more, the number is shown as `at least`."""


_REPORT = re.compile(r"gpu-tenant-[a-z_]+-[a-z0-9]{4}\.(html|md)")
"""The names of the files that `report` writes."""
Left = Literal["ignored", "link", "report"]
_REASONS: dict[Left, str] = {
    "ignored": "by .gitignore",
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
        BadRequest: a name in `include` leads out of the directory, or nothing has that name.
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
    files = {os.fspath(path.relative_to(directory)): path for path in _walk(directory, [], rest)}
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
    """The rules of the `.gitignore` in the directory `root`."""

    root: Path
    patterns: Sequence[GitIgnoreSpecPattern]

    def ignore(self, entry: os.DirEntry[str]) -> bool | None:
        """Whether `entry` is excluded. None if no rule matches it."""
        name = os.fspath(Path(entry.path).relative_to(self.root))
        folder = entry.is_dir(follow_symlinks=False)
        for pattern in reversed(self.patterns):
            if pattern.regex is not None and _names(pattern.regex, name, folder=folder):
                return pattern.include
        return None


def _names(rule: re.Pattern[str], name: str, *, folder: bool) -> bool:
    """Whether `rule` matches the entry itself. The folders above it were judged before.

    We do not use `GitIgnoreSpec`: it excludes a file if a rule excludes a folder above it. With rules like `*`, `!*/`,
    `!*.py`, it leaves out files that these rules keep. In the patterns of pathspec, the group `ps_d` is the slash
    after a name. If the group matched, the rule matched only a folder in the name, not the whole name.
    """
    if any(found.groupdict().get("ps_d") is None for found in rule.finditer(name)):
        return True
    itself = len(name) + 1
    return folder and any(
        found.end("ps_d") == itself
        for found in rule.finditer(name + "/")
        if found.groupdict().get("ps_d")
    )


def _walk(directory: Path, rules: list[_Rules], rest: list[tuple[Path, Left]]) -> Iterator[Path]:
    ignore = directory / ".gitignore"
    if ignore.is_file():
        rules = [*rules, _Rules(directory, tuple(_patterns(ignore)))]
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name in _NEVER:
                continue
            if _is_ignored(entry, rules):
                rest.append((Path(entry.path), "ignored"))
            elif entry.is_symlink():
                rest.append((Path(entry.path), "link"))
            elif entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), rules, rest)
            elif entry.is_file(follow_symlinks=False):
                # `report` writes into the directory from which it was called, and this is often the work tree.
                if _REPORT.fullmatch(entry.name):
                    rest.append((Path(entry.path), "report"))
                else:
                    yield Path(entry.path)


def _is_ignored(entry: os.DirEntry[str], rules: list[_Rules]) -> bool:
    """Whether `entry` is excluded, by the innermost `.gitignore` that has a rule for it."""
    verdicts = (of_folder.ignore(entry) for of_folder in reversed(rules))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _patterns(ignore: Path) -> Iterator[GitIgnoreSpecPattern]:
    # Read the file as git does: a byte order mark is skipped, only a newline ends a line, a name
    # may contain any byte, and an invalid rule matches nothing.
    text = os.fsdecode(ignore.read_bytes().removeprefix(codecs.BOM_UTF8))
    for line in text.split("\n"):
        with suppress(GitIgnorePatternError):
            yield GitIgnoreSpecPattern(line.removesuffix("\r"))
