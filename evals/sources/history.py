"""Replays the check over the history of a documentation's repository: what would have been reported, commit by commit."""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evals.sources.check import Finding, check_page, quotations
from evals.sources.statements import Statement, likeness, plain, statements

_FORMER_WORDING = 0.3
"""From this likeness on, a removed statement is taken for the former wording of one that came in the same commit."""

_PAGES = ("*.md", "*.mdx")
"""What documentation is written in. A copy may lack its large files, and nothing else is read."""


@dataclass(frozen=True, slots=True)
class Change:
    """One commit's change of one page that facts rest on, and what the check says of it."""

    commit: str
    day: str
    file: str
    findings: tuple[Finding, ...]

    @property
    def reported(self) -> bool:
        """Whether a person would have been asked to read again."""
        return any(finding.wants_a_person for finding in self.findings)


def replayed(repository: Path, name: str, *, since: str) -> list[Change]:
    """Return every change since that day of a page that quotations stand in, oldest first.

    Today's quotations are followed back in time. Where a commit changed one, its former wording is the removed
    statement that is most like it; where there is none, nothing rested on it before.
    """
    wordings = [quotation for quotation in quotations() if quotation.repository == name]
    changes = []
    for line in _git(
        repository, "log", "--no-merges", f"--since={since}", "--format=%h %ad", "--date=short"
    ).splitlines():
        commit, day = line.split()
        for file, former in _changed_files(repository, commit):
            here = [quotation for quotation in wordings if quotation.file == file]
            if not here:
                continue
            before = _git(repository, "show", f"{commit}^:{former}") if former else ""
            after = _git(repository, "show", f"{commit}:{file}")
            stood, stands = statements(before), {found.text for found in statements(after)}
            removed = [found for found in stood if found.text not in stands]
            earlier = [
                replace(quotation, file=former, says=says)
                for quotation in here
                if former and (says := _former_wording(quotation.says, stood, removed))
            ]
            if earlier:
                seen = frozenset(found.text for found in stood)
                changes.append(Change(commit, day, file, tuple(check_page(after, earlier, seen))))
            wordings = [quotation for quotation in wordings if quotation.file != file] + earlier
    return changes[::-1]


def seen_on(repository: Path, name: str, day: str) -> dict[str, frozenset[str]]:
    """Return what stood on each quoted page at the end of that day, by the copy's own history.

    Raises:
        RuntimeError: the copy has no history that reaches back so far.
    """
    commit = _git(repository, "log", "-1", "--format=%H", f"--before={day}T23:59:59Z").strip()
    if not commit:
        raise RuntimeError(f"no commit before {day}")
    files = dict.fromkeys(q.file for q in quotations() if q.repository == name)
    there = set(_git(repository, "ls-tree", "-r", "--name-only", commit).splitlines())
    return {
        file: frozenset(
            found.text for found in statements(_git(repository, "show", f"{commit}:{file}"))
        )
        for file in files
        if file in there
    }


def _former_wording(
    says: str, stood: Sequence[Statement], removed: Sequence[Statement]
) -> str | None:
    """Return what a quotation said before a commit. None if it was not there."""
    text = plain(says)
    if any(text in found.text for found in stood):
        return text
    best = max(removed, key=lambda found: likeness(text, found.text), default=None)
    return best.text if best and likeness(text, best.text) >= _FORMER_WORDING else None


def _changed_files(repository: Path, commit: str) -> Iterator[tuple[str, str]]:
    """Yield each page that a commit changed, and its name before. The former name is empty for a new page."""
    told = _git(
        repository,
        "diff-tree",
        "--no-commit-id",
        "--name-status",
        "-M",
        "-r",
        commit,
        "--",
        *_PAGES,
    )
    for line in told.splitlines():
        status, *names = line.split("\t")
        if status.startswith("D"):
            continue
        yield names[-1], "" if status == "A" else names[0]


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout
