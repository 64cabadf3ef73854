"""Input that only a person types: a password that becomes a key, a signature at a terminal."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence

import click

from gpu_tenant.domain.errors import BadRequest, Refused
from gpu_tenant.providers.credentials import UNATTENDED


def password() -> str:
    """The first line of stdin. If stdin is a terminal, it was typed without echo.

    Raises:
        BadRequest: there was none.
    """
    if sys.stdin.isatty():
        return str(click.prompt("Password of the box", hide_input=True, err=True))
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise BadRequest(
            "stdin held no password",
            remedy="`... --password-stdin < FILE`, or run it in a terminal",
        )
    return line


def is_at_terminal() -> bool:
    """Whether a person is at a terminal, sees what is shown, and can type."""
    return not os.environ.get(UNATTENDED) and sys.stdin.isatty() and sys.stderr.isatty()


def at_terminal(*, instead: str) -> None:
    """A person is at a terminal, sees what is shown, and can type.

    Raises:
        Refused: nobody is; `instead` is what to do.
    """
    if not is_at_terminal():
        raise Refused("a person signs at a terminal, and this is none", remedy=instead)
    # asyncio would only record the first Ctrl-C, and these prompts must stop at it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def signature(question: str, *, instead: str, default: str | None = None) -> str:
    """What a person typed at a terminal.

    Raises:
        Refused: nobody is there to type; `instead` is what to do.
    """
    at_terminal(instead=instead)
    return str(click.prompt(question, err=True, default=default, show_default=False))


def shown_whole(lines: Sequence[str]) -> None:
    """Every line was shown at the terminal, a screenful at a time, before anything is asked."""
    columns, rows = shutil.get_terminal_size()
    room = max(rows - 2, 5)
    for number, page in enumerate(_pages(lines, columns, room)):
        if number:
            click.prompt(
                f"-- {len(lines):,} lines in all; Enter for more",
                default="",
                err=True,
                show_default=False,
                prompt_suffix=" --",
            )
        for line in page:
            click.echo(line, err=True)


def _pages(lines: Sequence[str], columns: int, rows: int) -> Iterator[list[str]]:
    page: list[str] = []
    left = rows
    for line in lines:
        takes = max(1, -(-len(line) // max(columns, 1)))
        if page and takes > left:
            yield page
            page, left = [], rows
        page.append(line)
        left -= takes
    yield page
