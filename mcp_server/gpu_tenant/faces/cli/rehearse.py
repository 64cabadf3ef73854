"""Runs a rehearsal: an emulator of the provider answers until Ctrl-C, and the terminal shows how to use it."""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import tempfile
from pathlib import Path

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.emulators.server import Stage, faults_of, lacking_package
from gpu_tenant.files.mounts import lasting_scratch

_OF_A_BOX = ("outbid", "preempted", "host_lost", "unknown_status")
"""Faults of a single box. The first of these that the provider has is shown as the example."""


def _example(provider: str) -> str:
    """Return a fault that this provider's rehearsal has."""
    known = faults_of(provider)
    return next((name for name in _OF_A_BOX if name in known), next(iter(known)))


async def rehearse(provider: str, port: int, keep: str | None, *, as_json: bool) -> None:
    """Run the rehearsal until Ctrl-C, and then end everything that belongs to it.

    Raises:
        BadRequest: that provider cannot be rehearsed.
    """
    directory = Path(
        keep or tempfile.mkdtemp(prefix=f"gpu-tenant-{provider}-", dir=lasting_scratch())
    )
    # The boxes use the rehearsal's clock, so that a guard's deadline is the same as the lease's.
    with Stage(provider, directory.absolute(), port=port, box_time="leaps") as stage:
        stage.know_rates(stage.directory / "tenant")
        if as_json:
            click.echo(json.dumps({"url": stage.url, "environment": stage.environment}))
        else:
            click.echo(f"# {provider} answers at {stage.url}; no account, no money, real boxes.")
            if line := lacking_package(provider):
                words = (
                    f"# Nothing here can ask {provider}: a package is not installed. First: {line}"
                )
                click.echo(words)
            click.echo("# In another terminal:")
            for name, value in stage.environment.items():
                click.echo(f"export {name}={shlex.quote(value)}")
            click.echo(Command("offers", hours=2).line)
            click.echo(
                "# Its clock runs like yours, and jumps where a command would wait for the platform."
            )
            click.echo(
                f"""# Let an hour pass: curl -s {stage.url}/_rehearsal/clock -d '{{"advance_s": 3600}}'"""
            )
            click.echo(f"# When it has ended: unset {' '.join(stage.environment)}")
            click.echo(f"# The meter: curl -s {stage.url}/_rehearsal/meter")
            click.echo(
                f"# Faults: {Command('rehearse', stage.provider).line} --help lists them; one is sent by "
                f"curl -s {stage.url}/_rehearsal/faults "
                f"""-d '[{{"do": "{_example(stage.provider)}", "box": "ID"}}]'"""
            )
            words = f"# Ctrl-C, or `kill {os.getpid()}`, ends it, and every box with it."
            click.echo(f"{words} What stays: {directory}", err=True)
        here = asyncio.current_task()
        assert here is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, here.cancel)
        # Ctrl-C cancels only this wait. The `with` block then ends normally, and ends the boxes.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.to_thread(stage.wait)
