"""The command by which a person signs."""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import Refused, SignatureWanted
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.signature import Signature, SignatureRequest
from gpu_tenant.faces.cli import output, prompts
from gpu_tenant.faces.cli.command import as_json, verb

if TYPE_CHECKING:
    from gpu_tenant.service import Tenancy

T = TypeVar("T")


class OpenRequests(Record):
    """The requests that wait for a person's signature."""

    open: tuple[SignatureRequest, ...]


@verb("sign")
@click.argument("code", required=False)
@click.option(
    "--lost-passkey",
    is_flag=True,
    help="let the passkeys end a day from now, so that a terminal signs again",
)
@as_json
async def sign(code: str | None, lost_passkey: bool, as_json: bool) -> None:
    """Everything that is signed for is listed by name, and its subject must be typed at a terminal.

    Without a code, what waits for a signature is listed.
    """
    async with output.tenancy(purpose="end") as tenancy:
        if lost_passkey:
            from gpu_tenant.leases.passkeys import alarm_on_changes, end_passkeys

            async def end() -> datetime:
                return end_passkeys(tenancy.ledger, at=tenancy.clock.now())

            ends_at = await with_signature(tenancy, "if you have lost it", end)
            alarm_on_changes(tenancy.ledger, at=tenancy.clock.now())
            click.echo(
                f"the passkeys end at {ends_at:%Y-%m-%d %H:%M} UTC, unless one of them is kept"
            )
            return
        if code is None:
            waiting = OpenRequests(open=tuple(tenancy.ledger.all_asked(tenancy.clock.now())))
            output.answer(waiting, as_json, _print_requests)
            return
        asked = tenancy.ledger.request_of(code)
        output.answer(sign_here(tenancy, asked, "to sign for this"), as_json, _print_signed)


async def with_signature(tenancy: Tenancy, purpose: str, act: Callable[[], Awaitable[T]]) -> T:
    """Run `act` and return its result. If it needs a signature, ask the person at this terminal, and run it again.

    Raises:
        SignatureWanted: nobody is at a terminal.
        Refused: the person typed something else than what signs.
    """
    try:
        return await act()
    except SignatureWanted as wanted:
        if not prompts.is_at_terminal():
            raise
        sign_here(tenancy, tenancy.ledger.request_of(wanted.asked), purpose)
    return await act()


def sign_here(tenancy: Tenancy, asked: SignatureRequest, purpose: str) -> Signature:
    """Show the whole list to the person at this terminal. Typing its subject signs it. Return the signature.

    Raises:
        Refused: nobody is at a terminal, or something else was typed.
    """
    instead = f"run {Command('sign', asked.code)} in a terminal; nothing was signed"
    prompts.at_terminal(instead=instead)
    prompts.shown_whole(_lines(asked))
    typed = prompts.signature(f"Type {asked.subject} {purpose}", instead=instead)
    if typed.strip() != asked.subject:
        raise Refused(
            f"what was typed is not {asked.subject}: nothing was signed, and nothing was done",
            remedy=f"{Command('sign', asked.code)} shows it once more",
        )
    return tenancy.ledger.sign(asked, by=getpass.getuser(), form="terminal", at=tenancy.clock.now())


def _lines(asked: SignatureRequest) -> list[str]:
    return [
        f"{asked.would} (as of {asked.as_of:%Y-%m-%d %H:%M} UTC):",
        *(f"  {line}" for line in asked.words),
    ]


def _print_requests(waiting: OpenRequests) -> None:
    if not waiting.open:
        click.echo("nothing waits for a signature")
    for asked in waiting.open:
        click.echo(
            f"{asked.code}  {asked.subject}: {asked.would}"
            f" (asked {asked.asked_at:%Y-%m-%d %H:%M}, until {asked.expires_at:%Y-%m-%d %H:%M} UTC)"
        )


def _print_signed(signature: Signature) -> None:
    click.echo(
        f"{signature.code} is signed by {signature.signed_by}; "
        "repeat the call that asked for the signature, and it will continue"
    )
