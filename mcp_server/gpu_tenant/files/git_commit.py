"""Tells which commit a work tree is at, so that a report can say what ran."""

import subprocess
from pathlib import Path
from typing import NamedTuple

_WITHIN_S = 10


class Commit(NamedTuple):
    """A commit, and whether the files are exactly the commit's."""

    id: str
    is_clean: bool


def commit_of(directory: Path) -> Commit | None:
    """Return the commit that `directory` is at. None if git is not here, or has no commit of it."""
    at = _git(directory, "rev-parse", "--verify", "HEAD")
    changed = _git(directory, "status", "--porcelain", "--", ".")
    if not at or changed is None:
        return None
    return Commit(at.strip(), not changed.strip())


def _git(directory: Path, *words: str) -> str | None:
    # A tree's own settings can name a program that watches its files: nothing of the tree's is to run here.
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
