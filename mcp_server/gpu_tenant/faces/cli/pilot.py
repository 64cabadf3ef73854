"""The command that tries a platform on the real account, within a small sum, and writes what it found."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.faces.cli import completion, output, prompts
from gpu_tenant.faces.cli.command import as_json, verb
from gpu_tenant.faces.cli.quantities import USD

if TYPE_CHECKING:
    from gpu_tenant.errands.answers import RentalPlan
    from gpu_tenant.errands.pilot import PilotReport


@verb("pilot")
@click.argument("provider", shell_complete=completion.platforms)
@click.option("--max-usd", type=USD, required=True, help="the most that it may cost in all")
@click.option("--yes", is_flag=True, help="rent without the question")
@click.option(
    "--to",
    type=click.Path(),
    help="where the report goes, .md or .json; default: the state directory",
)
@as_json
async def pilot(provider: str, max_usd: Any, yes: bool, to: str | None, as_json: bool) -> None:
    """gpu-tenant pilot vastai --max-usd 0.50

    For the first time at a platform, and after its API has changed. It reads the account without renting, and compares
    each answer with what is believed here. Then it asks, and rents the best tested box within the sum, runs a tiny job,
    parks and resumes where the platform can, ends the box, and looks until the bill stands still. The report has no key
    and no name in it. Status 1: something differs. Status 10: nobody has agreed.
    """
    from gpu_tenant.errands.pilot import Pilot
    from gpu_tenant.faces.cli.limits import as_owner
    from gpu_tenant.faces.watch import watching
    from gpu_tenant.files.rehearsal_marker import rehearsal_of

    def hear(words: str) -> None:
        click.echo(f"pilot: {words}", err=True)

    async def agree(plan: RentalPlan) -> str | None:
        can_ask = not as_json and prompts.is_at_terminal()
        if yes or can_ask:
            output.print_list(plan.headline, list(plan.brief.items()), err=True)
        if yes:
            return "yes"
        if not can_ask:
            return None
        word = await prompts.choice("Rent it, and end it again?", ("yes", "no"), default="no")
        return "person" if word == "yes" else None

    async with output.tenancy() as tenancy:
        one = Pilot(
            tenancy,
            provider,
            max_usd,
            hear=hear,
            agree=agree,
            agrees_ahead="yes" if yes else "",
            stage="rehearsed" if rehearsal_of(tenancy.home.root) else "real",
        )
        try:
            async with watching("run"):
                tenancy.context.watches = "run"
                report = await as_owner(tenancy, one.go)
        except asyncio.CancelledError:
            hear(f"interrupted: {Command('leases')} shows what stands, and what ends it")
            raise
        finally:
            tenancy.context.watches = None
        place = Path(to) if to else _usual_place(tenancy.home.reports, report)
        _write(place, report)
        output.answer(report, as_json, _print)
        hear(f"wrote {place}")
    if report.ended == "nothing was rented" and not report.differs:
        sys.exit(10)
    if not report.agrees:
        sys.exit(1)


def _usual_place(reports: Path, report: PilotReport) -> Path:
    return reports / f"gpu-tenant-pilot-{report.provider}-{report.at:%Y-%m-%d}.md"


def _write(place: Path, report: PilotReport) -> None:
    from gpu_tenant.files.replace_file import replace_file

    text = report.model_dump_json(indent=1) if place.suffix == ".json" else as_markdown(report)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(place, text + "\n", durable="file")
    except OSError as error:
        click.echo(text)
        raise LocalTrouble(
            f"{place} could not be written: {error.strerror}; the report is above",
            remedy="keep what is shown above",
        ) from error


def _print(report: PilotReport) -> None:
    click.echo(as_markdown(report))


def as_markdown(report: PilotReport) -> str:
    """Return the report as a page."""
    from gpu_tenant.errands.pilot import proved_facts

    stage = " (a rehearsal, which proves nothing)" if report.rehearsed else ""
    lines = [
        f"# Pilot at {report.title}{stage}",
        "",
        f"gpu-tenant {report.version}, {report.at:%Y-%m-%d}. The box: {report.ended}.",
        f"The sum: {report.most_usd} USD. Counted: {_usd(report.cost_usd)}. Billed: {_usd(report.billed_usd)}.",
        "",
        "| | what | believed | seen |",
        "|---|---|---|---|",
    ]
    marks = {"agrees": "ok", "differs": "**differs**", "not tried": "-"}
    for check in report.checks:
        cells = (marks[check.verdict], check.name, check.believed, check.seen)
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    if report.drift:
        lines += ["", "## Answers that are not known", ""]
        lines += [f"- {_cell(one.words)} ({_cell(one.where)})" for one in report.drift]
    if facts := proved_facts(report):
        lines += ["", "## Facts of the profile that this proves", ""]
        lines += [
            f"- `{fact}`: {_cell(seen)} (conf: live, on: {report.at:%Y-%m-%d})"
            for fact, seen in facts
        ]
    if report.answers:
        lines += ["", "## Open questions", ""]
        lines += [f"- {one.id} {one.asks} {_cell(one.seen)}" for one in report.answers]
    if report.open_questions:
        lines += ["", f"Still open: {', '.join(report.open_questions)}"]
    return "\n".join([*lines, "", f"Next: {report.next}"])


def _usd(usd: object) -> str:
    return "unknown" if usd is None else f"{usd} USD"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
