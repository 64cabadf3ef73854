"""The command `run`, which takes a job all the way from the smoke test to the receipt (an errand)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from gpu_tenant.domain.choices import Trust
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, TenantError
from gpu_tenant.faces.cli import completion, output, prompts
from gpu_tenant.faces.cli.command import (
    WithCommand,
    as_json,
    command_words,
    join_words,
    name_option,
    verb,
    verbose,
)
from gpu_tenant.faces.cli.quantities import GIB, HOURS, HOURS_OR_NONE, ON_FAILURE, USD

if TYPE_CHECKING:
    from gpu_tenant.domain.errand import ErrandRequest
    from gpu_tenant.errands.answers import ErrandStatus, RentalPlan, Unanswered
    from gpu_tenant.errands.drive import Answers, Drive
    from gpu_tenant.jobs.monitor import Watched
    from gpu_tenant.service import Tenancy

WAITS_FOR_A_PERSON = 10
"""The exit status of a run that waits for a person's answer."""


@verb("run", WithCommand)
@click.option(
    "--dir",
    "directory",
    type=click.Path(),
    default=".",
    help="the work tree; default: this directory",
)
@click.option("--gpu", help="as in 'RTX 4090|RTX 3090', the best first; default: any")
@click.option("--hours", type=HOURS, help="how long the work takes on the first GPU; default: 1")
@click.option("--max-usd", type=USD, help="the most that it may cost in all")
@click.option(
    "--max-usd-all",
    type=USD,
    help="the most that all runs of this directory may cost together, earlier ones included",
)
@click.option("--max-price-usd-h", type=USD, help="price cap, by the hour")
@click.option("--artifact", multiple=True, help="what must be kept, as in .gitignore: out/")
@click.option("--discard", multiple=True, help="what may be lost with the box")
@click.option(
    "--smoke",
    metavar="COMMAND",
    help="another command for the smoke test, if the job's own takes long; or `none`",
)
@click.option(
    "--gate",
    metavar="TIME",
    help="how long that command is tried on the rented GPU before the job; default: 60s; or `none`",
)
@click.option(
    "--on",
    shell_complete=completion.platforms,
    help="`local`, `own`, or the only provider to rent at; default: any provider",
)
@click.option("--target", help="with --on own: user@host[:port]")
@click.option("--vram-gib", type=GIB, help="memory each GPU must have")
@click.option("--trust", type=click.Choice(get_args(Trust)), help="whose machine is good enough")
@click.option(
    "--interruptible",
    type=click.Choice(["no", "yes", "either"]),
    help="a cheaper box, which the provider may take away",
)
@click.option(
    "--recover",
    multiple=True,
    help="where the work goes on if the box is taken: `same` (provider), or another provider",
)
@click.option(
    "--on-failure",
    type=ON_FAILURE,
    metavar="WORDS",
    help="if the job failed: `park` or `keep` the box; default: `end` it, after 10 min if you are there",
)
@click.option(
    "--unasked-gib",
    type=click.FloatRange(min=0),
    help="what nobody declared comes home too, up to so much; default: 2, or what comes in ten minutes; 0: none",
)
@click.option(
    "--idle-h", type=HOURS_OR_NONE, help="how long the box may be idle; default: 2; 0: no limit"
)
@click.option(
    "--stalled-after",
    metavar="TIME",
    help="stop the job when it has written nothing for so long, as in 45m; default: it is only told",
)
@click.option("--store", help="a second place for artifacts")
@click.option("--to", type=click.Path(), help="the directory on this computer for collected files")
@click.option("--include", multiple=True, help="files to send although they are ignored")
@click.option(
    "--env",
    multiple=True,
    help="a variable for the command: NAME=env:VAR, NAME=file:PATH, NAME=keyring:S/U, NAME=ref:R or NAME=text:T",
)
@click.option(
    "--env-file",
    multiple=True,
    type=click.Path(),
    help="a file here of NAME=VALUE lines; its path is on record, and no value",
)
@name_option
@click.option("--yes", "-y", is_flag=True, help="rent without the question")
@click.option(
    "--resume",
    "again",
    is_flag=False,
    flag_value="",
    help="continue the run with this id; without an id, the newest",
)
@verbose
@as_json
async def run(
    directory: str,
    artifact: tuple[str, ...],
    yes: bool,
    again: str | None,
    as_json: bool,
    **said: Any,
) -> None:
    """gpu-tenant run --gpu "RTX 4090" --max-usd 5 --hours 10 --artifact out/ -- python3 train.py

    First the smoke test runs here. Then a box is rented, the work tree is pushed, and the command runs. At the end its
    files are collected and proved, and the box is torn down.

    The same line again continues the run, even after a crash. Options that are always the same can stand under `[run]`
    in gpu-tenant.toml. Status 10: it waits for an answer that only a person can give.
    """
    from gpu_tenant.errands.drive import Drive, begin, declare, watch_over, what_stands
    from gpu_tenant.faces.cli.limits import as_owner
    from gpu_tenant.faces.watch import watching

    words = command_words()
    if again is not None:
        _require_unchanged(words, said)
    said_late = False
    async with output.tenancy() as tenancy:
        if again is None:
            line = join_words(words) if words else ""

            async def asked() -> ErrandRequest:
                return _errand(tenancy, directory, line, {"artifacts": artifact, **said})

            name = begin(tenancy, await as_owner(tenancy, asked))
        else:
            name = again or _newest(tenancy)
            discard = said["discard"]
            if artifact or discard:
                said_late = declare(tenancy, name, artifact, discard) == "late"
        terminal = TerminalFace(tenancy, name, agrees=yes, quiet=as_json)
        if said_late:
            terminal.hear("what this line keeps and gives up is on record, and is used at the end")
        drive = Drive(tenancy, name, terminal)

        async def go_on() -> ErrandStatus:
            return await drive.go_on()

        try:
            async with watching("run"):
                tenancy.context.watches = "run"
                standing = await as_owner(tenancy, go_on)
        except asyncio.CancelledError:
            tenancy.context.watches = None
            click.echo(what_stands(tenancy, name), err=True)
            raise
        except TenantError:
            # The run ends here, and so does its watch, although its box may still bill.
            tenancy.context.watches = None
            if watch_over(tenancy, name):
                click.echo(what_stands(tenancy, name, its_box="is silent"), err=True)
            raise
        tenancy.context.watches = None
        standing = standing.model_copy(update={"watched": watch_over(tenancy, name)})
        if terminal.has_shown_log and standing.step != "smoke":
            standing = standing.model_copy(update={"log": ""})
        if terminal.has_shown_plan:
            standing = standing.model_copy(update={"plan": None})
        _tell(drive, standing, as_json)
    if standing.outcome != "done":
        sys.exit(WAITS_FOR_A_PERSON if standing.outcome == "asks" else 1)


def _require_unchanged(words: Sequence[str], said: Iterable[str]) -> None:
    """Check that a command line which continues a run has no options that would be ignored.

    Raises:
        BadRequest: an option or a command was given that was fixed when the run began.
    """
    source = click.get_current_context().get_parameter_source
    named = [x for x in said if x != "discard" and source(x) is ParameterSource.COMMANDLINE]
    lost = [f"--{x.replace('_', '-')}" for x in named] + (["a command"] if words else [])
    if lost:
        raise BadRequest(
            f"a run goes on as it began, and takes no {', '.join(lost)}",
            remedy=f"a run of its own has them: {Command('run', artifact='out/', then='COMMAND')} with what you want",
        )


def _tell(drive: Drive, standing: ErrandStatus, as_json: bool) -> None:
    """Show the state. If the run has ended, record that its end was shown."""
    output.answer(standing, as_json, _print)
    sys.stdout.flush()
    drive.note_shown(standing)


def _errand(tenancy: Tenancy, directory: str, command: str, said: dict[str, Any]) -> ErrandRequest:
    """Make the request from the command line and `gpu-tenant.toml`. The command line takes precedence."""
    from gpu_tenant.errands.requests import errand_of
    from gpu_tenant.providers.credentials import of_env_files

    said["env"] = of_env_files(said.pop("env_file"), said["env"])
    return errand_of(tenancy.context, Path(directory), {"command": command, **said})


def _newest(tenancy: Tenancy) -> str:
    """Return the open run: the one with a live lease, or else the newest.

    Raises:
        BadRequest: none is open, or several have live leases.
    """
    names = tenancy.ledger.open_errands()
    live = [n for n in names if any(x.state.live for x in tenancy.ledger.leases_of_errand(n))]
    if len(live) > 1:
        raise BadRequest(
            f"which run? {', '.join(live)} are open", remedy=str(Command("run", resume=live[-1]))
        )
    if not names:
        raise BadRequest(
            "no run is open", remedy=str(Command("run", artifact="out/", then="COMMAND"))
        )
    return (live or names)[-1]


class TerminalFace:
    """The face of a run at a terminal: messages go to stderr, and the job's log to stdout.

    If stderr is not a terminal, all goes to stdout. Otherwise, in two separate files, the order of the lines would be
    lost.
    """

    def __init__(self, tenancy: Tenancy, name: str, *, agrees: bool, quiet: bool) -> None:
        self._tenancy = tenancy
        self._name, self._agrees, self._quiet = name, agrees, quiet
        self._cursor: int | None = None
        self._aside = quiet or sys.stderr.isatty()
        self.has_shown_log = False
        """Whether the job's log was shown from its beginning."""
        self.has_shown_plan = False

    @property
    def agrees_ahead(self) -> bool:
        return self._agrees

    def hear(self, words: str) -> None:
        click.echo(f"{self._name}: {words}", err=self._aside)

    async def agree(self, plan: RentalPlan) -> str | None:
        can_ask = not self._quiet and prompts.is_at_terminal()
        if can_ask or self._agrees:
            _print_plan(plan, err=self._aside)
            self.has_shown_plan = True
        if self._agrees:
            return "yes"
        if not can_ask:
            return None
        while True:
            word = await prompts.choice("Rent it?", ("yes", "no", "more"), default="no")
            if word == "no":
                # The run stays open for the person. But from now on, no agent agrees in the person's place.
                self._tenancy.context.owner.note_answer(plan.spending, "nothing")
                return None
            if word == "yes":
                return "person"
            for line in plan.lines:
                for part in output.in_lines(line, 2, err=self._aside):
                    click.echo(f"  {part}", err=self._aside)

    async def follow(self, lease: str, job: str) -> Watched:
        from gpu_tenant.faces.cli import bars
        from gpu_tenant.leases.job_outlook import OutlookNews

        if not self._quiet:
            self.has_shown_log = True
            return await bars.follow(
                self._tenancy, lease, job, self._cursor or 0, then="", aside=self._aside
            )
        outlook = OutlookNews()
        while True:
            seen = await self._tenancy.follow(
                lease, job, cursor=self._cursor, wait_s=5, limit_bytes=_QUIET_BYTES
            )
            self._cursor = seen.cursor
            if news := outlook.of(seen.outlook):
                self.hear(f"forecast: {news}")
            if seen.state in _ENDED or seen.state == "absent":
                return seen

    async def answer(self, asks: Unanswered) -> Answers | None:
        """Ask once about all files that are neither declared nor discarded. Other losses need a signature instead."""
        from gpu_tenant.errands.drive import Answers

        if self._quiet or not prompts.is_at_terminal():
            return None
        _print_losses(asks, err=True)
        if not asks.unclaimed:
            return None
        word = await prompts.choice(
            "Keep what nobody has claimed, lose it, or decide later",
            ("keep", "lose", "later"),
            default="keep",  # it stops the meter, and nothing is lost
        )
        if word == "later":
            return None
        if word == "keep":
            return Answers(artifacts=asks.keeps)
        from gpu_tenant.files.patterns import literal_pattern

        return Answers(discard=[literal_pattern(name) for name in asks.unclaimed])


_QUIET_BYTES = 4096
_ENDED = frozenset({"finished", "failed", "killed", "stopped"})


def _print_losses(asks: Unanswered, *, err: bool = False) -> None:
    for loss in asks.losses:
        click.echo(f"  {loss}", err=err)
    if asks.usd_h is not None:
        click.echo(f"  the box bills {asks.usd_h} USD/h until it is ended", err=err)


def _print_plan(plan: RentalPlan, *, err: bool = False) -> None:
    output.print_list(plan.headline, list(plan.brief.items()), err=err)
    for line in plan.lines if output.is_verbose() else ():
        for part in output.in_lines(line, 2, err=err):
            click.echo(f"  {part}", err=err)


def _print(standing: ErrandStatus) -> None:
    """Print the state of the errand, with its receipt or with what it waits for."""
    if standing.log:
        click.echo(f"the end of {standing.log_of}:")
        click.echo(standing.log.rstrip("\n"))
    if standing.ended is not None:
        output.receipt(standing.ended, of_run=True)
    click.echo(f"{standing.run}: {standing.words}")
    if standing.watched:
        click.echo(f"watched from now on: {standing.watched}")
    if standing.plan is not None:
        _print_plan(standing.plan)
    if standing.asks is not None:
        _print_losses(standing.asks)
        for way in standing.asks.ways:
            click.echo(f"  answer: {way}")
    click.echo(f"next: {output.step(standing.next)}")
