"""`python -m evals [PART …] [--json] [--write]`: every part, or those named; status 1 when one fails."""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import cast

from rich.console import Console
from rich.table import Table

from evals.book import ROOT
from evals.report import Report, shown

PARTS = ("triggers", "answers", "mutation", "idle", "cadence", "episodes", "tasks", "endings")
_SHOWN = 60
_RULE = "| --- | --- | --- |\n"
_OPENS, _CLOSES = "<!-- generated: figures (python -m evals --write) -->\n", "<!-- end -->"


def main(arguments: Sequence[str]) -> int:
    """The exit status, when the parts have run and been shown."""
    parser = argparse.ArgumentParser(prog="python -m evals", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--json", action="store_true", help="the reports on stdout, for a program")
    parser.add_argument("--write", action="store_true", help="the figures into evals/README.md")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; choose of {', '.join(PARTS)}")
    reports = [ran for part in chosen.parts or PARTS if (ran := _run(part)) is not None]
    if chosen.json:
        sys.stdout.write(json.dumps([asdict(r) | {"passed": r.passed} for r in reports]) + "\n")
    else:
        _show(reports)
    if chosen.write:
        _write(reports)
        for report in reports:
            draw = getattr(importlib.import_module(f"evals.{report.part}"), "draw", None)
            if draw is not None:
                draw()
    return 0 if all(report.passed for report in reports) else 1


def _run(part: str) -> Report | None:
    """The part's report; None where it has no `run`, which is so for episodes until they are."""
    module = f"evals.{part}"
    if find_spec(module) is None:
        return None
    run = getattr(importlib.import_module(module), "run", None)
    return cast("Report", run()) if run else None


def _show(reports: Sequence[Report]) -> None:
    console = Console()
    table = Table("part", "figure", "value", "bar")
    for report in reports:
        for figure in report.figures:
            colour = "" if figure.met else "[red]"
            bar = "" if figure.bar is None else f"at {figure.side} {shown(figure.bar)}"
            table.add_row(report.part, figure.name, colour + shown(figure.value), bar)
    for report in reports:
        for remark in report.remarks:
            console.print(f"{report.part}: {remark}", markup=False, highlight=False)
        for problem in report.problems[:_SHOWN]:
            console.print(f"{report.part}: WRONG: {problem}", markup=False, highlight=False)
        if len(report.problems) > _SHOWN:
            console.print(f"{report.part}: and {len(report.problems) - _SHOWN} more")
    console.print(table)


def _write(reports: Sequence[Report]) -> None:
    page = ROOT / "evals" / "README.md"
    before, opening, rest = page.read_text(encoding="utf-8").partition(_OPENS)
    old, closing, after = rest.partition(_CLOSES)
    kept = old.partition(_RULE)[2]  # of the parts that did not run
    rows = {
        part: [r for r in kept.splitlines(True) if r.startswith(f"| {part} |")] for part in PARTS
    }
    for report in reports:
        rows[report.part] = [
            f"| {report.part} | {figure.name} | {shown(figure.value)} |\n"
            for figure in report.figures
        ]
    table = "| part | figure | value |\n" + _RULE + "".join(r for part in PARTS for r in rows[part])
    page.write_text(before + opening + table + closing + after, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
