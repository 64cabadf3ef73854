"""The owner's decisions at the terminal: the spending limits, and actions that need the owner's consent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, Limit, Refused, SignatureWanted
from gpu_tenant.domain.record import Record
from gpu_tenant.faces.cli import output, prompts
from gpu_tenant.faces.cli.command import as_json, verb
from gpu_tenant.faces.cli.quantities import HOURS, USD
from gpu_tenant.faces.cli.sign import sign_here

if TYPE_CHECKING:
    from gpu_tenant.service import Tenancy

T = TypeVar("T")

_AT_A_TERMINAL = (
    "run it in a terminal, or write it below [limits] in config.toml; nothing was changed"
)


class OneLimit(Record):
    """One limit, and how much of it is used."""

    name: str
    value: str
    by: str
    used: str


class Shown(Record):
    """Every limit of the owner."""

    limits: tuple[OneLimit, ...]


@verb("limits")
@click.option("--usd-h", type=USD, help="an hour, all boxes together")
@click.option("--usd-day", type=USD, help="in a day")
@click.option("--usd-month", type=USD, help="in a month")
@click.option("--boxes", type=click.IntRange(min=0), help="how many may bill at the same time")
@click.option("--hours", type=HOURS, help="from now to a lease's deadline")
@click.option("--box-usd-h", type=USD, help="an hour, for one box")
@click.option("--volumes-usd-month", type=USD, help="in a month, all volumes together")
@click.option(
    "--unguarded",
    type=click.Choice(["signed", "allowed"]),
    help="whether renting an expensive box that nothing ends if this computer dies needs a signature (signed) or not (allowed)",
)
@click.option(
    "--smoke",
    type=click.Choice(["asked", "needed"]),
    help="whether renting without a smoke test needs a signature (needed) or not (asked)",
)
@click.option(
    "--ask",
    metavar="RULE",
    help="when a person is asked before an agent rents: always, never, 'where possible', or 'above 20 USD' in a day",
)
@as_json
async def limits(as_json: bool, **given: Any) -> None:
    """Show the limits that no agent can exceed, and how much of each is used.

    To change a limit, give its option at a terminal. The limit is then written into config.toml.
    """
    changes = {name: value for name, value in given.items() if value is not None}
    async with output.tenancy(purpose="work" if changes else "look") as tenancy:
        if changes:
            _set(tenancy, changes)
        output.answer(_show_limits(tenancy), as_json, _print_limits)


async def as_owner(tenancy: Tenancy, act: Callable[[], Awaitable[T]]) -> T:
    """Run `act` and return its result. If it is refused for want of the owner's consent, ask for it and run it again.

    Raises:
        Limit, SignatureWanted: nobody is at a terminal, or the person did not agree.
    """
    while True:
        try:
            return await act()
        except Limit as limit:
            if not (_somebody_is_here() and _ask_for_new_limit(tenancy, limit)):
                raise
        except SignatureWanted as wanted:
            if not _somebody_is_here():
                raise
            sign_here(tenancy, tenancy.ledger.request_of(wanted.asked), "to sign for this")


def _somebody_is_here() -> bool:
    try:
        prompts.at_terminal(instead="")
    except Refused:
        return False
    return True


def _ask_for_new_limit(tenancy: Tenancy, limit: Limit) -> bool:
    """Ask the owner for a new value of the limit. Return whether they set one."""
    from gpu_tenant.leases.spending_limits import TABLE
    from gpu_tenant.providers.credentials import read_table

    written = limit.name in read_table(tenancy.home.configuration, TABLE)
    by = "you wrote it" if written else "a careful default: nothing is written yet"
    click.echo(f"{limit.message}\n{limit.name} is {limit.value}: {by}", err=True)
    typed = prompts.signature(
        f"Set {limit.name} to (Enter leaves it at {limit.value})",
        instead=_AT_A_TERMINAL,
        default=limit.value,
    ).strip()
    if typed == limit.value:
        return False
    _write(tenancy, {limit.name: typed})
    return True


def _set(tenancy: Tenancy, changes: dict[str, Any]) -> None:
    from gpu_tenant.leases.spending_limits import TABLE

    prompts.at_terminal(instead=_AT_A_TERMINAL)
    for name, value in changes.items():
        click.echo(
            f"{name}: {_plain(getattr(tenancy.context.owner.limits, name))} -> {_plain(value)}",
            err=True,
        )
    typed = prompts.signature(f"Type {TABLE} to set that", instead=_AT_A_TERMINAL)
    if typed.strip() != TABLE:
        raise Refused(
            f"what was typed is not {TABLE}: nothing was changed",
            remedy=f"{Command('limits')} shows them",
        )
    _write(tenancy, changes)


def _write(tenancy: Tenancy, changes: dict[str, Any]) -> None:
    from gpu_tenant.files.config_edit import write_settings
    from gpu_tenant.leases.spending_limits import TABLE, Limits

    try:
        Limits.model_validate({k: int(v) if k == "boxes" else v for k, v in changes.items()})
    except ValueError as error:
        from pydantic import ValidationError

        told = (
            error.errors()[0]["msg"].lower() if isinstance(error, ValidationError) else str(error)
        )
        raise BadRequest(
            f"{', '.join(changes)}: {told}",
            remedy=f"{Command('limits')} shows them; nothing was changed",
        ) from None
    write_settings(
        tenancy.home.configuration,
        TABLE,
        {name: _number(str(value)) for name, value in changes.items()},
    )


def _number(value: str) -> str | int | float:
    try:
        number = Decimal(value)
    except ArithmeticError:
        return value
    return int(number) if number == int(number) else float(number)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _show_limits(tenancy: Tenancy) -> Shown:
    from gpu_tenant.leases.spending_limits import TABLE, Limits, signatures_wanted_now
    from gpu_tenant.providers.credentials import read_table

    now, written = tenancy.context.owner.limits, read_table(tenancy.home.configuration, TABLE)
    used: dict[str, str] = {use.name: use.words for use in tenancy.context.owner.usage()}
    used |= signatures_wanted_now(now)
    return Shown(
        limits=tuple(
            OneLimit(
                name=name,
                value=_plain(getattr(now, name)),
                by="you" if name in written else "default",
                used=used.get(name) or str(field.description),
            )
            for name, field in Limits.model_fields.items()
        )
    )


def _print_limits(shown: Shown) -> None:
    width = max(len(limit.name) for limit in shown.limits)
    for limit in shown.limits:
        click.echo(f"{limit.name:<{width}}  {limit.value:>8}  {limit.by:<7}  {limit.used}")
    click.echo(
        f"to change a limit, run this at a terminal: {Command('limits', usd_day='500')}; an agent cannot change one"
    )
