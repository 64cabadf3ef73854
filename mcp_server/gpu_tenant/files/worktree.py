"""Which files of a directory make up the work: `.gitignore` honoured, as git means it."""

import codecs
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pathspec.patterns.gitignore.base import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

_NEVER = frozenset({".git", ".gpu-tenant"})
"""Not a rule among rules, which a `!.*` would take back: a `.git` may hold credentials."""


def files_of(directory: Path) -> dict[str, Path]:
    """The regular files below `directory` by their relative name, ignored ones left out.

    Symbolic links are not followed and not listed: what they point to may lie anywhere.
    """
    return {os.fspath(path.relative_to(directory)): path for path in _walk(directory, [])}


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of the `.gitignore` that lies in `root`."""

    root: Path
    patterns: Sequence[GitIgnoreSpecPattern]

    def ignore(self, entry: os.DirEntry[str]) -> bool | None:
        """Whether `entry` is to be left out; None where no rule names it."""
        name = os.fspath(Path(entry.path).relative_to(self.root))
        folder = entry.is_dir(follow_symlinks=False)
        for pattern in reversed(self.patterns):
            if pattern.regex is not None and _names(pattern.regex, name, folder=folder):
                return pattern.include
        return None


def _names(rule: re.Pattern[str], name: str, *, folder: bool) -> bool:
    """Whether `rule` names the entry itself; the folders above it were judged before it.

    Not `GitIgnoreSpec`: it judges a file and its folders at once, and loses what `*`, `!*/`, `!*.py`
    keeps in folders. pathspec marks with `ps_d` the slash behind what a rule took for a folder.
    """
    if any(found.groupdict().get("ps_d") is None for found in rule.finditer(name)):
        return True
    itself = len(name) + 1
    return folder and any(
        found.end("ps_d") == itself
        for found in rule.finditer(name + "/")
        if found.groupdict().get("ps_d")
    )


def _walk(directory: Path, rules: list[_Rules]) -> Iterator[Path]:
    ignore = directory / ".gitignore"
    if ignore.is_file():
        rules = [*rules, _Rules(directory, tuple(_patterns(ignore)))]
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name in _NEVER or _ignored(entry, rules):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), rules)
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


def _ignored(entry: os.DirEntry[str], rules: list[_Rules]) -> bool:
    """What the innermost `.gitignore` that names `entry` says."""
    verdicts = (of_folder.ignore(entry) for of_folder in reversed(rules))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _patterns(ignore: Path) -> Iterator[GitIgnoreSpecPattern]:
    # As git reads them: a byte order mark is skipped, only a newline ends a line, any byte may be
    # part of a name, and a rule that is none names nothing.
    text = os.fsdecode(ignore.read_bytes().removeprefix(codecs.BOM_UTF8))
    for line in text.split("\n"):
        with suppress(GitIgnorePatternError):
            yield GitIgnoreSpecPattern(line.removesuffix("\r"))
