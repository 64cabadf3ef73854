"""The commands that are not about one lease: all leases, this computer, platforms, the server, rehearsals."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from gpu_tenant.domain.choices import SortedBy
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, LedgerCorrupt, LocalTrouble
from gpu_tenant.faces.cli import completion, lease_table, output, prompts
from gpu_tenant.faces.cli.command import (
    as_json,
    verb,
)
from gpu_tenant.faces.cli.quantities import Number

if TYPE_CHECKING:
    from gpu_tenant.doctor import Checkup
    from gpu_tenant.service import Tenancy

_EVERY_S = 15.0


@verb("leases")
@click.option("--all", "every", is_flag=True, help="ended ones too")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="with --all: show so many ended ones, the newest",
)
@click.option(
    "--older", metavar="LEASE", help="only leases that ended before this one; no provider is asked"
)
@click.option(
    "--search",
    default="",
    metavar="WORDS",
    help="only those whose name, project/, #tag, platform or state has each of the words",
)
@click.option(
    "--sort",
    "sorted_by",
    type=click.Choice(get_args(SortedBy)),
    help="sort by this column: the nearest deadline first, the largest sum first",
)
@click.option("--live", "shown", flag_value="live", help="on the whole screen, until q is pressed")
@click.option(
    "--every",
    "every_s",
    type=Number(min=5, max=3600),
    help="with --live: seconds between two looks at the providers; default: 15",
)
@as_json
async def leases(
    every: bool,
    limit: int,
    older: str | None,
    search: str,
    sorted_by: SortedBy | None,
    shown: str | None,
    every_s: float | None,
    as_json: bool,
) -> None:
    which: Literal["live", "all"] = "all" if every or older else "live"
    if shown == "live" and as_json:
        raise BadRequest(
            "--live is for a person, and --json is not", remedy=str(Command("leases", json=True))
        )
    if shown != "live" and every_s is not None:
        raise BadRequest(
            "--every goes with --live", remedy=str(Command("leases", live=True, every="30"))
        )
    if shown == "live":
        from gpu_tenant.faces.cli.live import live

        await live(which, every_s or _EVERY_S)
        return
    try:
        async with output.tenancy(purpose="look") as tenancy:
            found = await tenancy.list_leases(which, limit, older, search)
    except LedgerCorrupt:
        # If the ledger is damaged, a person above all needs to know what bills. So show what can be read.
        async with output.tenancy(purpose="salvage") as tenancy:
            output.answer(await tenancy.list_leases("all", limit), as_json, lease_table.leases)
        sys.exit(LedgerCorrupt.exit_status)
    if sorted_by is not None:
        from gpu_tenant.leases.lease_search import in_order

        found = found.model_copy(update={"leases": in_order(found.leases, sorted_by)})
    output.answer(found, as_json, lease_table.leases)


@verb("reconcile")
@click.option(
    "--same-account",
    metavar="PROVIDER",
    help="you state that the present key and address belong to the account that your boxes there "
    "belong to",
)
@as_json
async def reconcile(same_account: str | None, as_json: bool) -> None:
    """Every provider is asked. Our leases are moved forward, second boxes of one request are given back, and the rest is reported."""
    from gpu_tenant.leases.lifecycle import reconcile_all
    from gpu_tenant.leases.overview import confirm_account

    async with output.tenancy() as tenancy:
        if same_account is not None:
            tenancy.context.set_up(same_account)
            typed = prompts.signature(
                f"Type {same_account} if its key and its address of now are of the account that your boxes "
                "there are of: what its list omits is then gone",
                instead=f"run {Command('reconcile', same_account=same_account)} in a terminal",
            )
            confirm_account(tenancy.context, same_account, typed=typed)
        found = await reconcile_all(tenancy.context)
        output.answer(found, as_json, lease_table.leases)
    if found.alarms:
        sys.exit(1)


@verb("doctor")
@click.option(
    "--report",
    is_flag=True,
    help="also write a file for the maintainers: what providers answered that is not known; no key or name is in it",
)
@as_json
async def doctor(report: bool, as_json: bool) -> None:
    try:
        async with output.tenancy(purpose="look") as tenancy:
            checkup = await tenancy.doctor()
            if report:
                click.echo(f"wrote {_write_report(tenancy, checkup)}", err=as_json)
        is_damaged = any(x.subject == "ledger" and x.level == "blocker" for x in checkup.findings)
    except LedgerCorrupt:
        is_damaged = True
    if is_damaged:
        # If the ledger is damaged, a person above all needs to know which records can be read, and which boxes exist.
        async with output.tenancy(purpose="salvage") as tenancy:
            output.answer(await tenancy.doctor(), as_json, output.checkup)
        sys.exit(LedgerCorrupt.exit_status)
    output.answer(checkup, as_json, output.checkup)
    if not checkup.healthy:
        sys.exit(1)


def _write_report(tenancy: Tenancy, checkup: Checkup) -> Path:
    """Write the report for the maintainers, and return its place.

    Raises:
        LocalTrouble: the file could not be written.
    """
    from gpu_tenant.doctor import report_of
    from gpu_tenant.files.replace_file import replace_file

    place = tenancy.home.reports / "gpu-tenant-doctor.json"
    told = report_of(tenancy.home, checkup, at=tenancy.clock.now())
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(place, told.model_dump_json(indent=1) + "\n", durable="file")
    except OSError as error:
        raise LocalTrouble(
            f"{place} could not be written: {error.strerror}",
            remedy=f"make room, then {Command('doctor', report=True)} again",
        ) from error
    return place


@verb("profiles")
@click.argument("slug", required=False)
@click.option(
    "--compare", is_flag=True, help="what survives a stop and the end, and what bills then"
)
@click.option(
    "--lang",
    type=click.Choice(["en", "zh"]),
    help="the language of a runbook; that of this terminal when left out",
)
@as_json
async def profiles(
    slug: str | None, compare: bool, lang: Literal["en", "zh"] | None, as_json: bool
) -> None:
    """With SLUG: that platform's runbook."""
    from gpu_tenant.app import known_platforms
    from gpu_tenant.faces import chinese
    from gpu_tenant.faces.cli.runbook import platforms
    from gpu_tenant.files.state_dir import Home

    known = known_platforms(Home.of(os.environ))
    if slug is not None and slug not in known:
        raise BadRequest(f"no profile {slug!r}", remedy=f"{Command('profiles')} lists them")
    chosen = [profile for name, profile in known.items() if slug in (None, name)]
    shown_as: Literal["json", "lines", "runbook", "comparison"]
    shown_as = "json" if as_json else "comparison" if compare else "runbook" if slug else "lines"
    platforms(chosen, shown_as=shown_as, lang=lang or ("zh" if chinese.is_wanted() else "en"))


@verb("guide")
@click.argument("page", required=False)
@click.argument("part", required=False)
async def guide(page: str | None, part: str | None) -> None:
    """Without PAGE, lists the pages. PART is a heading of the page: shows only the part below that heading."""
    from gpu_tenant.faces.cli.runbook import guide_page, guide_pages

    click.echo("\n".join(guide_pages()) if page is None else guide_page(page, part))


_WORDS = f"{__name__}.words"


class _WithFaults(click.Command):
    """A command whose help ends with the faults that can be rehearsed: for the named provider, or for all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words as usual, and keep them, because the help is shown before the provider is parsed."""
        ctx.meta[_WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the faults that the rehearsals offer."""
        from gpu_tenant.emulators.faults import OF_A_BOX, ON_THE_WIRE
        from gpu_tenant.emulators.gpus import FAULTS
        from gpu_tenant.emulators.server import faults_of, rehearsable_providers

        known = rehearsable_providers()
        named = [word for word in ctx.meta.get(_WORDS, ()) if word in known]
        with formatter.section("Faults, on request"):
            formatter.write_text(
                'POST [{"do": NAME}] to URL/_rehearsal/faults; also "box", "amount", "seconds", "times".'
            )
        common = {**ON_THE_WIRE, **OF_A_BOX, **FAULTS}
        with formatter.section('At a request, with "match": {"method", "path_regex", "nth"}'):
            formatter.write_dl(list(ON_THE_WIRE.items()))
        with formatter.section("Of a box"):
            formatter.write_dl(list(OF_A_BOX.items()))
        with formatter.section("Of a box's GPUs"):
            formatter.write_dl(list(FAULTS.items()))
        if not named:
            with formatter.section("Of a platform"):
                formatter.write_text(
                    f"`gpu-tenant rehearse PROVIDER --help` lists its faults: {', '.join(known)}"
                )
        for provider in named:
            its = faults_of(provider)
            with formatter.section(f"Of {provider}"):
                formatter.write_dl([(n, words) for n, words in its.items() if n not in common])


@verb("rehearse", _WithFaults)
@click.argument("provider", shell_complete=completion.platforms)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="a free one when left out")
@click.option(
    "--keep", type=click.Path(), help="a directory for its state and boxes, to go on later"
)
@as_json
async def rehearse(provider: str, port: int, keep: str | None, as_json: bool) -> None:
    """It answers until Ctrl-C. `eval "$(...)"` is not needed: copy the lines it prints."""
    from gpu_tenant.faces.cli.rehearse import rehearse as on_stage

    await on_stage(provider, port, keep, as_json=as_json)


@verb("serve")
@click.option("--read-only", is_flag=True, help="only the tools that look")
async def serve(read_only: bool) -> None:
    """For MCP hosts: `claude mcp add gpu -- gpu-tenant serve`."""
    from gpu_tenant.faces.mcp.server import make_server

    await make_server("read-only" if read_only else "full").run_stdio_async()


@verb("demo")
@click.option("--on", "provider", default="local", help="or a provider that can be rehearsed")
@click.option(
    "--keep", type=click.Path(), help="where the model goes; a temporary place when left out"
)
async def demo(provider: str, keep: str | None) -> None:
    """No account and no network: the box is real, and so are its processes."""
    from gpu_tenant.faces.cli.demo import tour

    await tour(keep, provider)
