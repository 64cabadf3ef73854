"""The command that opens the dashboard."""

import os
import sys
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

import click

from gpu_tenant.faces.cli.command import verb
from gpu_tenant.process_hardening import UNATTENDED


@verb("dashboard")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="a free one when left out")
@click.option("--no-open", is_flag=True, help="only print the link; no browser is started")
@click.option("--metrics", is_flag=True, help="also answer at /metrics, for Prometheus")
async def dashboard(port: int, no_open: bool, metrics: bool) -> None:
    """On this computer alone, until Ctrl-C; the link it prints holds the token of this start.

    What the page begins goes through the same checks as the commands. A person signs there
    with a passkey, or with a code that is shown at the terminal where they started it.

    With --metrics, Prometheus may read /metrics. It needs the token of the link as its bearer token.
    """
    from gpu_tenant.app import open_tenancy
    from gpu_tenant.faces.dashboard.server import Extra, serve

    def ready(link: str, opening: Path) -> None:
        click.echo(link)
        number = urlsplit(link).port
        if "SSH_CONNECTION" in os.environ:
            click.echo(
                f"from your own computer: `ssh -L {number}:127.0.0.1:{number} HOST`, then that link",
                err=True,
            )
        click.echo("Ctrl-C ends it; boxes and jobs go on", err=True)
        if not no_open and _has_screen():
            webbrowser.open(opening.as_uri())

    def tell(words: str) -> None:
        click.echo(f"note: {words}", err=True)

    at_terminal = sys.stdin.isatty() and sys.stderr.isatty() and not os.environ.get(UNATTENDED)
    await serve(
        lambda: open_tenancy(tell=tell),
        port=port,
        extras=frozenset({Extra.METRICS} if metrics else ()),
        sign=tell if at_terminal else None,
        ready=ready,
        tell=tell,
    )


def _has_screen() -> bool:
    """Whether this computer has a screen on which a browser can open a window."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in screens)
