"""Finds the git commit of a work tree, so that a report can say what ran."""

import subprocess
from pathlib import Path
from typing import NamedTuple

_WITHIN_S = 10


class Commit(NamedTuple):
    """A commit, and whether the files are unchanged since that commit."""

    id: str
    is_clean: bool


def commit_of(directory: Path) -> Commit | None:
    """Return the commit that is checked out in `directory`. None if git is not installed, or there is no commit."""
    at = _git(directory, "rev-parse", "--verify", "HEAD")
    changed = _git(directory, "status", "--porcelain", "--", ".")
    if not at or changed is None:
        return None
    return Commit(at.strip(), not changed.strip())


def _git(directory: Path, *words: str) -> str | None:
    # The tree's own git settings can name a program that watches its files. No program of the tree
    # may run here.
    quiet = ("--no-optional-locks", "-c", "core.fsmonitor=false")
    try:
        ran = subprocess.run(
            ["git", *quiet, "-C", str(directory), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            timeout=_WITHIN_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout
