"""Which files of a directory make up the work: all that git's rules for `.gitignore` do not exclude."""

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
"""Always excluded, because a `.git` may hold credentials. If this were an ordinary rule, `!.*` could undo it."""


def files_of(directory: Path) -> dict[str, Path]:
    """The regular files below `directory` by their relative name, without ignored ones.

    Symbolic links are neither followed nor listed: what they point to may lie anywhere.
    """
    return {os.fspath(path.relative_to(directory)): path for path in _walk(directory, [])}


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of the `.gitignore` that lies in `root`."""

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

    We do not use `GitIgnoreSpec`, because it judges a file together with its folders, and so loses files in folders
    that `*`, `!*/`, `!*.py` keep. pathspec's group `ps_d` is the slash after what a rule took for a folder.
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
    """Whether `entry` is excluded by the innermost `.gitignore` that has a rule for it."""
    verdicts = (of_folder.ignore(entry) for of_folder in reversed(rules))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _patterns(ignore: Path) -> Iterator[GitIgnoreSpecPattern]:
    # Read as git reads it: a byte order mark is skipped, only a newline ends a line, any byte may be
    # part of a name, and an invalid rule matches nothing.
    text = os.fsdecode(ignore.read_bytes().removeprefix(codecs.BOM_UTF8))
    for line in text.split("\n"):
        with suppress(GitIgnorePatternError):
            yield GitIgnoreSpecPattern(line.removesuffix("\r"))
