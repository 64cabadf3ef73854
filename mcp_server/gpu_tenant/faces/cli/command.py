"""What every command uses: the decorator, the shared options, and the choice of the lease."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.faces.cli import SUMMARIES, completion, output

if TYPE_CHECKING:
    from gpu_tenant.domain.model import Lease
    from gpu_tenant.service import Tenancy

P = ParamSpec("P")
T = TypeVar("T")

_RECENT = 20
"""A lease that has just ended is searched among this many of the newest ones."""

COMMANDS: dict[str, click.Command] = {}


as_json = click.option("--json", "as_json", is_flag=True, help="the answer as JSON, on stdout")
verbose = click.option(
    "--verbose",
    "-v",
    is_flag=True,
    expose_value=False,
    callback=lambda _, __, value: output.note_verbose(value),
    help="all of the answer, and not only what one needs next",
)
command_argument = click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
lease_option = click.option(
    "--lease",
    shell_complete=completion.leases,
    help="the same as LEASE; not needed while only one is live",
)


def lease_argument(function: Callable[P, T]) -> Callable[P, T]:
    """Let the command take its lease as an argument or as --lease."""

    def note_value(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        ctx.meta["lease"] = value

    def either(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
        return one_lease(value, ctx.meta["lease"])

    option = click.option(
        "--lease",
        "named",
        expose_value=False,
        is_eager=True,
        callback=note_value,
        shell_complete=completion.leases,
        help="the same as LEASE",
    )
    argument = click.argument(
        "lease", required=False, callback=either, shell_complete=completion.leases
    )
    return argument(option(function))


def one_lease(first: str | None, second: str | None) -> str | None:
    """Return the lease that was named in either way, or None.

    Raises:
        BadRequest: two leases were named.
    """
    if first and second and first != second:
        raise BadRequest(f"two leases are named: {first} and {second}", remedy="name one")
    return first or second


@dataclass(frozen=True, slots=True)
class Chosen:
    """The leases that were chosen on a command line: by name, by fleet, or all."""

    names: tuple[str, ...]
    fleet: str | None
    every: bool

    def leases(self, tenancy: Tenancy) -> list[str]:
        """Return the ids of the leases, each once. A fleet means its live leases. No name means the only live lease.

        Raises:
            BadRequest: no name was given, and not exactly one lease is live; or no lease of the fleet is
                live.
        """
        if self.every:
            return [lease.id for lease in tenancy.ledger.leases("live")]
        named: list[str] = []
        fleets = set(tenancy.ledger.fleets())
        for name in (*self.names, *([self.fleet] if self.fleet else [])):
            if name in fleets or name == self.fleet:
                of_it = [x.id for x in tenancy.ledger.leases_of(name) if x.state.live]
                if not of_it:
                    raise BadRequest(
                        f"no lease of a fleet {name} is live",
                        remedy=str(Command("leases", all=True)),
                    )
                named += of_it
            else:
                named.append(name)
        return list(dict.fromkeys(named)) or [the_lease(None, tenancy)]

    def or_the_newest(self, tenancy: Tenancy) -> Chosen:
        """Return the same choice. But if nothing is named and no lease is live, choose the lease that ended last."""
        if self.names or self.fleet or self.every:
            return self
        return Chosen((the_lease(None, tenancy, ended="take"),), None, every=False)

    def are_several(self, leases: list[str]) -> bool:
        """Whether more than one lease was chosen, or could have been: by a fleet or by --all."""
        named_otherwise = any(name not in leases for name in self.names)
        return self.every or self.fleet is not None or len(leases) > 1 or named_otherwise


def leases_argument(function: Callable[P, T]) -> Callable[P, T]:
    """Let the command take leases and fleets as arguments, or as --lease, --fleet and --all."""

    def note_value(ctx: click.Context, param: click.Parameter, value: object) -> None:
        ctx.meta[str(param.name)] = value

    def choose(ctx: click.Context, _: click.Parameter, value: tuple[str, ...]) -> Chosen:
        names = (*value, *ctx.meta["named"])
        given = Chosen(names, ctx.meta["fleet"], ctx.meta["every"])
        if given.every and (names or given.fleet):
            raise BadRequest(
                "--all means every live lease, so none can be named besides",
                remedy="name some leases, or say --all",
            )
        return given

    for declared, more in (
        (
            ("--lease", "named"),
            {
                "multiple": True,
                "shell_complete": completion.leases,
                "help": "the same as LEASE",
            },
        ),
        (("--fleet",), {"help": "every live lease of that fleet"}),
        (("--all", "every"), {"is_flag": True, "help": "every live lease"}),
    ):
        option = click.option(
            *declared, expose_value=False, is_eager=True, callback=note_value, **more
        )
        function = option(function)
    return click.argument(
        "leases",
        nargs=-1,
        callback=choose,
        metavar="[LEASE|FLEET]...",
        shell_complete=completion.leases,
    )(function)


class WithCommand(click.Command):
    """A command that takes another command after `--`, even if no word comes before `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--`, and keep the rest for `command_words`."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_THEN] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


class AfterLeases(click.Command):
    """A command that takes leases and another command, which may be parted by `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words, and keep those that stand before `--` for `words_before`."""
        after = len(args) - args.index("--") - 1 if "--" in args else None
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("command") or ()
        ctx.meta[_BEFORE] = () if after is None else words[: len(words) - after]
        return rest


_THEN, _BEFORE = f"{__name__}.then", f"{__name__}.before"


def words_before() -> tuple[str, ...]:
    """Return the words before `--` that are no options."""
    words: tuple[str, ...] = click.get_current_context().meta[_BEFORE]
    return words


def command_words() -> tuple[str, ...]:
    """Return the words after `--`."""
    words: tuple[str, ...] = click.get_current_context().meta[_THEN]
    return words


def verb(
    name: str, cls: type[click.Command] = click.Command
) -> Callable[[Callable[P, Awaitable[None]]], click.Command]:
    """Make a command of that name from the coroutine, with its summary, and add it to the list of commands."""

    def wrap(function: Callable[P, Awaitable[None]]) -> click.Command:
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            async def once() -> None:
                await function(*args, **kwargs)

            import asyncio

            asyncio.run(once())

        run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        help_text = "\n\n".join([SUMMARIES[name], inspect.cleandoc(function.__doc__ or "")])
        command = click.command(
            name, cls, help=help_text, context_settings={"ignore_unknown_options": False}
        )(run)
        COMMANDS[name] = command
        return command

    return wrap


def join_words(words: tuple[str, ...]) -> str:
    """Return the words as one command line. A single word is taken as it is; several words are quoted for the shell."""
    import shlex

    return words[0] if len(words) == 1 else shlex.join(words)


def the_lease(
    named: str | None, tenancy: Tenancy, *, ended: Literal["refuse", "take"] = "refuse"
) -> str:
    """Return the lease that was named, or the only live lease.

    If no lease is live, a command that reads what an ended lease has left takes the newest one.

    Raises:
        BadRequest: no lease was named, and it is not clear which one is meant.
    """
    if named is not None:
        return named
    live = [lease.id for lease in tenancy.ledger.leases() if lease.state.live]
    if len(live) == 1:
        return live[0]
    if not live and ended == "take" and (newest := _newest_ended(tenancy)) is not None:
        return newest.id
    if not live and (gone := _just_ended(tenancy)) is not None:
        from gpu_tenant.leases.ended_words import ended_words

        raise BadRequest(
            f"no lease is live any more: {ended_words(tenancy.ledger, gone)}",
            remedy=f"{Command('report', gone.id)} shows its receipt; `leases --all` lists ended ones",
        )
    raise BadRequest(
        f"which lease? {', '.join(live)} are live" if live else "no lease is live",
        remedy=f"name one; {Command('leases')} lists them"
        if live
        else f"{Command('provision')} or {Command('adopt')} makes one; `leases --all` lists ended ones",
    )


def _just_ended(tenancy: Tenancy) -> Lease | None:
    """Return the lease that has ended last, if that was within the last day. Otherwise None."""
    newest, since = _newest_ended(tenancy), tenancy.clock.now() - timedelta(days=1)
    is_recent = newest is not None and newest.ended_at is not None and newest.ended_at >= since
    return newest if is_recent else None


def _newest_ended(tenancy: Tenancy) -> Lease | None:
    """Return the lease that has ended last. None if none has ended."""
    ended = [
        (lease.ended_at, lease)
        for lease in tenancy.ledger.newest_ended(limit=_RECENT)
        if lease.ended_at is not None
    ]
    return max(ended, key=lambda each: each[0])[1] if ended else None


name_option = click.option(
    "--name",
    default="",
    metavar="PROJECT/NAME #TAG",
    help="your name for the lease, for lists and sums; default: the pushed directory and the command",
)
