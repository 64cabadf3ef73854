"""Which files of a directory make up the work: `.gitignore` honoured, as git means it."""

import os
from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

_NEVER = (".git/", ".gpu-tenant/")


def files_of(directory: Path) -> dict[str, Path]:
    """The regular files below `directory` by their relative name, ignored ones left out.

    Symbolic links are not followed and not listed: what they point to may lie anywhere.
    """
    return {
        os.fspath(path.relative_to(directory)): path
        for path in _walk(directory, [(directory, GitIgnoreSpec.from_lines(_NEVER))])
    }


def _walk(directory: Path, rules: list[tuple[Path, GitIgnoreSpec]]) -> Iterator[Path]:
    ignore = directory / ".gitignore"
    if ignore.is_file():
        lines = ignore.read_text(encoding="utf-8", errors="replace").splitlines()
        rules = [*rules, (directory, GitIgnoreSpec.from_lines(lines))]
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if not _ignored(path, "/", rules):
                    yield from _walk(path, rules)
            elif entry.is_file(follow_symlinks=False) and not _ignored(path, "", rules):
                yield path


def _ignored(path: Path, suffix: str, rules: list[tuple[Path, GitIgnoreSpec]]) -> bool:
    """Whether the innermost rule that speaks of `path` says to leave it out."""
    for root, spec in reversed(rules):
        verdict = spec.check_file(os.fspath(path.relative_to(root)) + suffix).include
        if verdict is not None:
            return verdict
    return False
