"""The command that writes a report of a lease into a file to keep."""

import stat
from pathlib import Path
from typing import Literal

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.domain.record import Record
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import as_json, lease_argument, the_lease, verb
from gpu_tenant.faces.report import Report, as_html, as_markdown, mark_of, report_of
from gpu_tenant.files.replace_file import replace_file

Form = Literal["html", "md"]

_HEAD_BYTES = 512


class Reported(Record):
    """The files that were written, and what they say."""

    lease: str
    files: tuple[str, ...]
    report: Report


@verb("report")
@lease_argument
@click.option(
    "--to", type=click.Path(), help="where it goes; gpu-tenant-LEASE.html and .md when left out"
)
@click.option("--form", type=click.Choice(["html", "md", "both"]), help="by --to's ending, or both")
@as_json
async def report(lease: str | None, to: str | None, form: str | None, as_json: bool) -> None:
    """What ran, what it cost, what was proved and when, what was given up and by whom: one HTML file that
    needs nothing else, and the same in Markdown. A lease that is not over says so. Earlier reports of
    the same lease are replaced; any other file is left alone."""
    async with output.tenancy(purpose="look") as tenancy:
        told = await report_of(tenancy.context, the_lease(lease, tenancy))
    places = _places(told.lease, to, form)
    for wanted, place in places:
        _require_ours(place, told.lease, wanted)
    for wanted, place in places:
        _write(place, as_html(told) if wanted == "html" else as_markdown(told))
    written = Reported(
        lease=told.lease, files=tuple(str(place.absolute()) for _, place in places), report=told
    )
    output.answer(written, as_json, _print_written)


def _print_written(written: Reported) -> None:
    output.print_list(
        f"report of {written.lease}",
        [*(("wrote", place) for place in written.files), ("note", written.report.standing)],
    )


def _places(lease: str, to: str | None, form: str | None) -> list[tuple[Form, Path]]:
    """Choose the form and the path of each file to write.

    Raises:
        BadRequest: the file's name has the ending of another form.
    """
    given = Path(to).expanduser() if to is not None else Path()
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
    """Write all of that text into the file. After an error the file is as it was.

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
