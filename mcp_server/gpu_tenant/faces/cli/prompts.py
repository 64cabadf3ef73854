"""Reads input that only a person can give: a box's password, and a signature or a choice at a terminal."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence

import click

from gpu_tenant.domain.errors import BadRequest, Refused
from gpu_tenant.process_hardening import UNATTENDED


def password() -> str:
    """Read a password from the first line of stdin. At a terminal, it is typed without an echo.

    Raises:
        BadRequest: there was no line.
    """
    if sys.stdin.isatty():
        return str(click.prompt("Password of the box", hide_input=True, err=True))
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise BadRequest(
            "stdin held no password",
            remedy="run the command with `--password-stdin < FILE`, or in a terminal",
        )
    return line


def is_at_terminal() -> bool:
    """Whether a person is at a terminal, sees what is shown, and can type."""
    return not os.environ.get(UNATTENDED) and sys.stdin.isatty() and sys.stderr.isatty()


def at_terminal(*, instead: str) -> None:
    """Check that a person is at a terminal, sees what is shown, and can type.

    Raises:
        Refused: nobody is at a terminal; `instead` says what to do then.
    """
    if not is_at_terminal():
        raise Refused("a person has to sign at a terminal, but this is not one", remedy=instead)
    # asyncio would only record the first Ctrl-C, but these prompts must stop at it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def signature(question: str, *, instead: str, default: str | None = None) -> str:
    """Ask the person at the terminal, and return what they typed.

    Raises:
        Refused: nobody is at a terminal; `instead` is what to do.
    """
    at_terminal(instead=instead)
    return str(click.prompt(question, err=True, default=default, show_default=False))


async def choice(question: str, choices: Sequence[str], *, default: str) -> str:
    """Let the person at the terminal choose one of these words. The answer does not count as a signature.

    An unclear answer is asked for again. Other tasks of this process go on meanwhile.
    """
    while True:
        click.echo(f"{question} ({', '.join(choices)}) [{default}]: ", nl=False, err=True)
        typed = (await _typed_line()).strip()
        if (word := _meant(typed or default, choices)) is not None:
            return word
        click.echo(f"{typed!r} is not one of {', '.join(choices)}", err=True)


_CHINESE = {"是": "yes", "否": "no"}


def _meant(typed: str, choices: Sequence[str]) -> str | None:
    """Return the word that is meant: in any case, by the first letter that it alone has, or in Chinese. None if unclear."""
    word = _CHINESE.get(typed, typed.casefold())
    if word in choices:
        return word
    begin_so = [choice for choice in choices if choice[0] == word]
    return begin_so[0] if len(begin_so) == 1 else None


async def _typed_line() -> str:
    """Wait until the person at the terminal has typed a line, and return it. Empty at the end of the input."""
    import asyncio  # the help of a command needs none

    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    loop.add_reader(sys.stdin, is_there.set)
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()


def shown_whole(lines: Sequence[str]) -> None:
    """Show all lines at the terminal, one screen at a time."""
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
