"""The command by which a person logs in to a box, with the ssh client of this computer."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import (
    WithCommand,
    command_words,
    join_words,
    lease_option,
    the_lease,
    verb,
)

if TYPE_CHECKING:
    from gpu_tenant.service import Tenancy

_FORWARD = re.compile(r"(\d{1,5})(?::(?:([\w.-]+):)?(\d{1,5}))?")


@verb("ssh", WithCommand)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[LEASE] [COMMAND]...")
@lease_option
@click.option(
    "--forward",
    "-L",
    "forwards",
    multiple=True,
    metavar="PORT",
    help="reach the box's PORT at 127.0.0.1:PORT here; 6006:6007 and 6006:HOST:6007 too",
)
@click.option("--ports", is_flag=True, help="the same, of every port that the order names")
@click.option("--print-config", is_flag=True, help="the entry for ~/.ssh/config, on stdout")
@click.option("--setup", is_flag=True, help="let plain `ssh LEASE`, and editors, find the leases")
async def ssh(
    words: tuple[str, ...],
    lease: str | None,
    forwards: tuple[str, ...],
    ports: bool,
    print_config: bool,
    setup: bool,
) -> None:
    """gpu-tenant ssh LEASE --forward 6006 -- nvidia-smi

    With our key, and only to the host that was pinned for the lease. Without a command: a shell.
    """
    # If --lease is given, all the words are the command. Otherwise the first word is the lease.
    name, command = (lease, words) if lease or not words else (words[0], words[1:])
    command += command_words()
    async with output.tenancy() as tenancy:
        if setup:
            _include(tenancy)
            return
        from gpu_tenant.leases import login as lease_login

        named = the_lease(name, tenancy)
        login = await lease_login.login(tenancy.context, named)
        if ports:
            forwards += _ordered_ports(tenancy, named)
    wanted = [part for forward in forwards for part in ("-L", forward_argument(forward))]
    if print_config:
        click.echo(login.entry, nl=False)
        return
    if shutil.which("ssh") is None:
        raise LocalTrouble(
            "there is no ssh client on this computer",
            remedy="install OpenSSH (`apt-get install openssh-client`), then run the same command",
        )
    if not command:
        at = login.directory if login.directory.startswith("/") else f"~/{login.directory}"
        click.echo(f"the work directory is {at}", err=True)
    options = ["-o", "ExitOnForwardFailure=yes", *wanted] if wanted else []
    line = [join_words(command)] if command else []
    _become(["ssh", "-F", login.config, *options, "--", login.lease, *line])


def _ordered_ports(tenancy: Tenancy, lease: str) -> tuple[str, ...]:
    ordered = tenancy.ledger.lease(lease).terms.order.ports
    if not ordered:
        raise BadRequest(
            f"the order of {lease} names no port", remedy="name one here: `--forward PORT`"
        )
    forwards: list[str] = []
    for port in ordered:
        here = _free_here(port)
        click.echo(f"the box's port {port} is at 127.0.0.1:{here}", err=True)
        forwards.append(f"{here}:{port}")
    return tuple(forwards)


def _free_here(port: int) -> int:
    """Return the port if it is free on this computer. Otherwise return another port that is free."""
    for wanted in (port, 0):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", wanted))
            free: int = probe.getsockname()[1]
            return free
    return port  # ssh reports what the problem is.


def forward_argument(forward: str) -> str:
    """Build the argument for ssh's -L. It listens on loopback, so that other computers cannot use it."""
    told = _FORWARD.fullmatch(forward)
    ports = [int(port) for port in (told[1], told[3] or told[1])] if told else []
    if told is None or not all(0 < port < 65536 for port in ports):
        raise BadRequest(
            f"{forward!r} forwards nothing",
            remedy="write PORT, PORT:PORT or PORT:HOST:PORT, as in --forward 6006:localhost:6007",
        )
    return f"127.0.0.1:{ports[0]}:{told[2] or '127.0.0.1'}:{ports[1]}"


def _include(tenancy: Tenancy) -> None:
    from gpu_tenant.leases.login import inclusion_of

    change = inclusion_of(tenancy.context)
    if change.done:
        click.echo(f"{change.file} has the line `{change.line}` already")
        return
    for line in difflib.unified_diff(
        change.before.splitlines(),
        change.after.splitlines(),
        str(change.file),
        str(change.file),
        lineterm="",
        n=1,
    ):
        click.echo(line)
    click.confirm("Write this?", abort=True, err=True)
    change.carry_out()
    click.echo(
        f"done: `ssh LEASE` works, also in editors; to undo, take that line out of {change.file}"
    )


def _become(argv: list[str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        # ssh replaces this process, so that ssh itself handles the terminal, signals and exit status.
        os.execvp(argv[0], argv)  # noqa: S606
    sys.exit(subprocess.call(argv))
