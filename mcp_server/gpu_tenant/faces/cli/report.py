"""The command that writes a report of a lease into a file to keep."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.wording import some, usd_words
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import as_json, lease_argument, the_lease, verb
from gpu_tenant.faces.report import (
    Expenses,
    Report,
    as_html,
    as_markdown,
    expenses_html,
    expenses_markdown,
    expenses_of,
    mark_of,
    report_of,
)
from gpu_tenant.files.replace_file import replace_file

if TYPE_CHECKING:
    from gpu_tenant.service import Tenancy

Form = Literal["html", "md"]

_HEAD_BYTES = 512
_SUM = str(Command("report", all=True, since="YYYY-MM-DD"))


class Reported(Record):
    """The files that were written, and the report that they contain."""

    lease: str
    files: tuple[str, ...]
    report: Report


class Summed(Record):
    """The files that were written, and the sum that they show."""

    files: tuple[str, ...]
    expenses: Expenses


@verb("report")
@lease_argument
@click.option("--all", "every", is_flag=True, help="the sum of all leases; needs --since")
@click.option(
    "--since", metavar="DAY|MONTH", help="the first day, or a month, by UTC: 2026-10-01, 2026-10"
)
@click.option(
    "--until", metavar="DAY", help="the last day, by UTC; default: the month's last day, or today"
)
@click.option(
    "--to",
    type=click.Path(),
    help="where it goes; default: gpu-tenant-LEASE.html and .md, beside what was kept",
)
@click.option(
    "--form",
    type=click.Choice(["html", "md", "both"]),
    help="default: by the ending of --to, or both",
)
@as_json
async def report(
    lease: str | None,
    every: bool,
    since: str | None,
    until: str | None,
    to: str | None,
    form: str | None,
    as_json: bool,
) -> None:
    """What ran, what it cost, what was proved and when, what was given up and by whom: one HTML file that
    needs nothing else, and the same in Markdown. If the lease is not over, the report says so. Earlier reports of
    the same lease are replaced; any other file is left alone.

    `--all --since 2026-10-01` adds up what every lease has cost since that day, for an expense claim.
    `--since 2026-10` without `--until` means that month."""
    if every or since is not None or until is not None:
        await _report_all(lease, every, since, until, to=to, form=form, as_json=as_json)
        return
    async with output.tenancy(purpose="look") as tenancy:
        name = the_lease(lease, tenancy, ended="take")
        told = await report_of(tenancy.context, name)
        usual = _beside_what_was_kept(tenancy, name)
    places = _places(told.lease, to, form, usual=usual)
    for wanted, place in places:
        _require_ours(place, told.lease, wanted)
    for wanted, place in places:
        _write(place, as_html(told) if wanted == "html" else as_markdown(told))
    written = Reported(
        lease=told.lease, files=tuple(str(place.absolute()) for _, place in places), report=told
    )
    output.answer(written, as_json, _print_written)


async def _report_all(
    lease: str | None,
    every: bool,
    since: str | None,
    until: str | None,
    *,
    to: str | None,
    form: str | None,
    as_json: bool,
) -> None:
    if not every or since is None or lease is not None:
        raise BadRequest(
            "a sum is over all leases since a day",
            remedy=_SUM,
        )
    first, end = _period(since, until)
    async with output.tenancy(purpose="look") as tenancy:
        told = expenses_of(tenancy.context, first, end)
        usual = _own_place(tenancy)
    name = f"all-{first:%Y-%m-%d}"
    places = _places(name, to, form, usual=usual)
    for wanted, place in places:
        _require_ours(place, name, wanted)
    for wanted, place in places:
        html = wanted == "html"
        _write(place, expenses_html(told, name) if html else expenses_markdown(told, name))
    summed = Summed(files=tuple(str(place.absolute()) for _, place in places), expenses=told)
    output.answer(summed, as_json, _print_summed)


def _period(since: str, until: str | None) -> tuple[datetime, datetime]:
    """Return the first moment of the period, and the moment directly after it.

    Raises:
        BadRequest: a day is no date, or the last day is before the first.
    """
    is_month = len(since) == len("2026-10")
    first = _day(f"{since}-01" if is_month else since)
    if until is not None:
        end = _day(until) + timedelta(days=1)
    elif is_month:
        end = (first + timedelta(days=31)).replace(day=1)
    else:
        end = datetime.max.replace(tzinfo=UTC)
    if end <= first:
        raise BadRequest("the last day is before the first", remedy=_SUM)
    return first, end


def _day(written: str) -> datetime:
    try:
        return datetime.strptime(written, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise BadRequest(f"{written!r} is no day", remedy=_SUM) from None


def _print_summed(summed: Summed) -> None:
    told = summed.expenses
    output.print_list(
        f"{usd_words(told.total_usd)} for {some(len(told.leases), 'lease')}, "
        f"{told.since:%Y-%m-%d} to {told.last_day:%Y-%m-%d}",
        [
            *((title, usd_words(sum_usd)) for title, sum_usd in told.by_platform.items()),
            *((project, usd_words(sum_usd)) for project, sum_usd in told.by_project.items()),
            *([("unknown", ", ".join(told.unknown))] if told.unknown else []),
            *([("not over", ", ".join(told.running))] if told.running else []),
            *(("wrote", place) for place in summed.files),
        ],
    )


def _print_written(written: Reported) -> None:
    output.print_list(
        f"report of {written.lease}",
        [*(("wrote", place) for place in written.files), ("note", written.report.standing)],
    )


def _beside_what_was_kept(tenancy: Tenancy, lease: str) -> Path:
    """Return where the lease's artifacts are on this computer. If there are none, return a place for reports.

    The current directory is not used, because it is often a work tree, in which nobody wants our files.
    """
    context = tenancy.context
    kept = context.kept_in(context.ledger.lease(lease))
    return kept if kept.is_dir() else _own_place(tenancy)


def _own_place(tenancy: Tenancy) -> Path:
    """Make the directory for reports in the state directory, and return it."""
    place = tenancy.context.home.reports
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LocalTrouble(
            f"{place} could not be made: {error.strerror}",
            remedy=str(Command("report", "LEASE", to="OTHER")),
        ) from error
    return place


def _places(
    lease: str, to: str | None, form: str | None, *, usual: Path
) -> list[tuple[Form, Path]]:
    """Choose the form and the path of each file to write. Without `to`, they go to the directory `usual`.

    Raises:
        BadRequest: the file's name has the ending of another form.
    """
    given = Path(to).expanduser() if to is not None else usual
    named: dict[str, Form] = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}
    by_name = named.get(given.suffix.lower())
    forms: list[Form] = ["html", "md"]
    if form in ("html", "md"):
        forms = ["html" if form == "html" else "md"]
    elif form is None and by_name is not None:
        forms = [by_name]
    if to is None or given.is_dir():
        return [(one, given / f"gpu-tenant-{lease}.{one}") for one in forms]
    if by_name is not None and forms != [by_name]:
        raise BadRequest(
            f"{given.name} is for one form, and {form} was asked for",
            remedy=str(Command("report", lease, to=given.with_suffix(""), form=form)),
        )
    if by_name is not None:
        return [(by_name, given)]
    return [(one, given.with_name(f"{given.name}.{one}")) for one in forms]


def _require_ours(place: Path, lease: str, form: Form) -> None:
    """Check that there is nothing at `place`, or an earlier report of the same lease.

    Raises:
        BadRequest: another file is there, or something that is not a file.
        LocalTrouble: the place could not be looked at.
    """
    try:
        seen = place.lstat()
        head = b""
        if stat.S_ISREG(seen.st_mode):
            with place.open("rb") as file:
                head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise LocalTrouble(
            f"{place} cannot be looked at: {error.strerror}",
            remedy=str(Command("report", lease, to="OTHER")),
        ) from error
    if mark_of(lease, form).encode() not in head:
        raise BadRequest(
            f"{place} is not a report of {lease}, and was left alone",
            remedy=str(Command("report", lease, to="OTHER")),
        )


def _write(place: Path, text: str) -> None:
    """Write the text into the file. After an error, the file is unchanged.

    Raises:
        LocalTrouble: the file could not be written.
    """
    try:
        replace_file(place, text, durable="file")
    except OSError as error:
        raise LocalTrouble(
            f"{place} could not be written: {error.strerror}",
            remedy=f"{Command('report', 'LEASE', to='OTHER')}, in a place with room, where you may write",
        ) from error
