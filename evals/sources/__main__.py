"""`python -m evals.sources check|history DIR --of OWNER/NAME`: DIR is a clone of a vendor's published documentation.

`python -m evals.sources coverage` counts the facts of money or survival whose sentence is at hand.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from evals.book import texts
from evals.sources.check import BOOK, Finding, check_directory, quotations
from evals.sources.coverage import listed, quoted_facts, without_a_sentence
from evals.sources.history import Change, replayed, seen_on

_LABELS = Path(__file__).with_name("labels.yaml")


def main(arguments: Sequence[str]) -> int:
    """Return 1 where a fact has to be read again, or where the check missed a labelled change."""
    if arguments == ["coverage"]:
        return _coverage()
    parser = argparse.ArgumentParser(prog="python -m evals.sources", description=__doc__)
    parser.add_argument("verb", choices=("check", "history"))
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--of", required=True, choices=sorted({q.repository for q in quotations()}))
    parser.add_argument(
        "--since", default="2015-01-01", metavar="DAY", help="history: from then on"
    )
    asked = parser.parse_args(arguments)
    if asked.verb == "history":
        return _history(replayed(asked.directory, asked.of, since=asked.since), asked.of)
    day = next(q.on for q in quotations() if q.repository == asked.of)
    try:
        seen = seen_on(asked.directory, asked.of, day)
    except (RuntimeError, subprocess.SubprocessError) as error:
        print(f"no history here, so what is new is not told: {error}", file=sys.stderr)  # noqa: T201
        seen = {}
    findings = check_directory(asked.directory, asked.of, seen)
    _tell(findings)
    return int(any(finding.wants_a_person for finding in findings))


def _coverage() -> int:
    missing = without_a_sentence()
    for slug, places in missing.items():
        quoted = [fact for fact in quoted_facts() if fact.startswith(f"{slug}.")]
        print(f"{slug}: {len(quoted)} facts have a sentence, {len(places)} have no source at hand")  # noqa: T201
    return int(missing != listed())


def _tell(findings: Sequence[Finding]) -> None:
    for finding in findings:
        if finding.verdict == "stands":
            continue
        print(f"{finding.verdict}: {', '.join(finding.facts)} ({finding.file})")  # noqa: T201
        for label, words in (("was", finding.was), ("now", finding.now)):
            if words:
                print(f"  {label}: {words}")  # noqa: T201
    standing = sum(finding.verdict == "stands" for finding in findings)
    print(f"{standing} of {len(findings)} quotations and new statements stand as in {BOOK.name}")  # noqa: T201


def _history(changes: Sequence[Change], name: str) -> int:
    """Print how many of the changes labelled by hand the check reports, and how many others."""
    book = cast("dict[str, dict[str, list[str]]]", texts(_LABELS))
    touching = {tuple(line.split()) for line in book[name]["touches"]}
    reported = {(change.commit, change.file) for change in changes if change.reported}
    missed = sorted(touching - reported)
    false = {commit for commit, file in reported - touching}
    months = len({change.day[:7] for change in changes})
    print(f"{name}: {len(changes)} changes in {months} months; touch a fact: {len(touching)}")  # noqa: T201
    print(f"  reported of these: {len(touching) - len(missed)}")  # noqa: T201
    print(f"  commits reported without need: {len(false)}")  # noqa: T201
    for commit, file in missed:
        print(f"  missed: {commit} {file}")  # noqa: T201
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
