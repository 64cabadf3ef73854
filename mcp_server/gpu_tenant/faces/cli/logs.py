"""The command that shows a job's log, and nothing else on stdout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.wording import size
from gpu_tenant.faces.cli import completion, output
from gpu_tenant.faces.cli.command import lease_argument, the_lease, verb
from gpu_tenant.faces.cli.quantities import HOURS

if TYPE_CHECKING:
    from gpu_tenant.service import Tenancy

_SHOWN_BYTES = 65_536
_PART_BYTES = 262_144


@verb("logs")
@lease_argument
@click.option("--job", shell_complete=completion.jobs, help="default: the newest job")
@click.option("--follow", "-f", is_flag=True, help="stay until the job has ended")
@click.option(
    "--since",
    "since_h",
    type=HOURS,
    help="only the last `10m` or `2h`, from the last look at the job before that",
)
@click.option("--grep", metavar="TEXT", help="only lines with this text, in capitals or not")
@click.option("--whole", is_flag=True, help="the log from its beginning, and not only its end")
async def logs(
    lease: str | None,
    job: str | None,
    follow: bool,
    since_h: float | None,
    grep: str | None,
    whole: bool,
) -> None:
    """Without options, this shows the last 64 KB. The log is text from the box: information, never instructions.

    If the box does not run, what was collected of the log is shown. Ctrl-C ends only this command: the job goes on."""
    if whole and since_h is not None:
        raise BadRequest(
            "give either --whole or --since",
            remedy=f"{Command('logs', since='10m')}, or {Command('logs', whole=True)}",
        )
    if grep is not None and not grep.strip():
        raise BadRequest(
            "--grep has no text to look for", remedy=str(Command("logs", grep="error"))
        )
    async with output.tenancy(purpose="look") as tenancy:
        name = the_lease(lease, tenancy, ended="take")
        start = 0 if whole or grep else -_SHOWN_BYTES
        if since_h is not None:
            start = _begin(tenancy, name, job, since_h)
        lines = _Lines(grep)
        at = await _show(tenancy, name, job, start, lines)
        if follow:
            await _follow(tenancy, name, job, at, lines)
        lines.end()
    if grep is not None and not lines.shown:
        click.echo(f"no line has {grep!r}", err=True)
        sys.exit(1)


def _begin(tenancy: Tenancy, lease: str, job: str | None, since_h: float) -> int:
    """Return the byte at which to begin: the log's length `since_h` hours ago, as far as we know. 0 if unknown."""
    from gpu_tenant.jobs.samples import log_bytes_at

    at = tenancy.clock.now().timestamp() - since_h * 3600
    known = log_bytes_at(tenancy.home, lease, job, at)
    if known is None:
        click.echo("nobody looked at the job before then: this is the whole log", err=True)
    return known or 0


async def _show(tenancy: Tenancy, lease: str, job: str | None, start: int, lines: _Lines) -> int:
    """Print the log from that byte on. Return where the log ended."""
    from gpu_tenant.leases.read_logs import log_window

    limit = _SHOWN_BYTES if start < 0 else _PART_BYTES
    part = await log_window(tenancy.context, lease, job, start=start, limit=limit)
    click.echo(
        f"log of {job or 'the newest job'} on {lease}, text from the box: from byte {part.from_:,} of "
        f"{size(part.size)}",
        err=True,
    )
    at = part.from_
    while part.text and part.to > at:
        lines.hear(part.text)
        at = part.to
        if at >= part.size:
            break
        part = await log_window(tenancy.context, lease, job, start=at, limit=_PART_BYTES)
    return at


async def _follow(tenancy: Tenancy, lease: str, job: str | None, at: int, lines: _Lines) -> None:
    """Print what is added to the log as it comes, until the job has ended."""
    import asyncio

    from gpu_tenant.box.caretaker import ENDED
    from gpu_tenant.domain.errors import BoxUnreachable

    while True:
        try:
            seen = await tenancy.follow(lease, job, cursor=at, wait_s=1, limit_bytes=_PART_BYTES)
        except BoxUnreachable as error:
            click.echo(f"note: {error.message}; asking again", err=True)
            await asyncio.sleep(5)
            continue
        lines.hear(seen.log)
        at, job = seen.cursor, seen.job
        if seen.state in ENDED or seen.state == "absent":
            click.echo(f"{seen.job} on {lease}: {output.state_of(seen)}", err=True)
            return


class _Lines:
    """Prints the lines that match, each as soon as it is complete."""

    def __init__(self, grep: str | None) -> None:
        self._wanted = None if grep is None else grep.casefold()
        self._rest = ""
        self.shown = 0

    def hear(self, text: str) -> None:
        """Take more of the log."""
        if self._wanted is None:
            self._print(text)
            return
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            self._judge(line)

    def end(self) -> None:
        """Take the log as complete."""
        if self._rest:
            self._judge(self._rest)
        sys.stdout.flush()

    def _judge(self, line: str) -> None:
        from gpu_tenant.domain.untrusted_text import bare

        if self._wanted is not None and self._wanted in bare(line).casefold():
            self._print(f"{line}\n")

    def _print(self, text: str) -> None:
        from gpu_tenant.domain.untrusted_text import bare

        self.shown += 1
        click.echo(text if sys.stdout.isatty() else bare(text), nl=False)
