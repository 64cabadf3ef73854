"""What only a person types: a password that becomes a key, a signature at a terminal."""

import os
import signal
import sys

import click

from gpu_tenant.credentials import UNATTENDED
from gpu_tenant.errors import BadRequest, Refused


def password() -> str:
    """The first line of stdin, or what was typed unseen where stdin is a terminal.

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


def signature(question: str, *, instead: str) -> str:
    """What a person typed at a terminal.

    Raises:
        Refused: nobody is there to type; `instead` is what to do.
    """
    if os.environ.get(UNATTENDED) or not sys.stdin.isatty():
        raise Refused("a person signs at a terminal, and this is none", remedy=instead)
    # asyncio would only note the first Ctrl-C, and this prompt must heed it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return str(click.prompt(question, err=True))
