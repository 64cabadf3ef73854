"""What a person sees while they wait: bars on stderr, for bytes that move and for a job that runs."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.domain.errors import BoxUnreachable
from gpu_tenant.domain.wording import with_dates
from gpu_tenant.faces.cli.output import progress_of, state_of, step, usd
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.leases.context import progress_to
from gpu_tenant.service import Tenancy
from gpu_tenant.transfer.eta import Eta

errors = Console(stderr=True, highlight=False)

_ASK_AGAIN_S = 5
_TOLD_EVERY_S = 10
"""How often a line is written where nobody looks at a bar, so that a log grows slowly."""


class _Words(ProgressColumn):
    """The words as of the moment they are drawn, so that a stall shows although nothing reports it."""

    def __init__(self, eta: Eta) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._eta = eta

    def render(self, task: Task) -> Text:
        return Text(self._eta.words(at_s=task.get_time()) if task.total else "")


@contextmanager
def bytes_bar(verb: str, usd_h: Decimal | None = None) -> Iterator[None]:
    """Bytes, rate, time left and what that costs, on stderr, while the block moves files."""
    eta = Eta(usd_h)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        _Words(eta),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    ) as bar:
        task, told_s = bar.add_task(verb, total=None), bar.get_time()

        def hear(done: int, total: int) -> None:
            nonlocal told_s
            at_s = bar.get_time()
            eta.note_progress(done, total, at_s=at_s)
            bar.update(task, completed=done, total=total)
            if not errors.is_terminal and at_s - told_s >= _TOLD_EVERY_S:
                told_s = at_s
                click.echo(f"{verb}: {eta.words(at_s=at_s)}", err=True)

        token = progress_to.set(hear)
        try:
            yield
        finally:
            progress_to.reset(token)


async def follow(tenancy: Tenancy, lease: str, job: str | None, cursor: int | None) -> Watched:
    """The job has ended. Its log went to stdout as it came, its progress to a bar on stderr.

    A box that does not answer is asked again until it does. The job goes on meanwhile.
    """
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[words]}"),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    ) as bar:
        task = bar.add_task(lease, total=1.0, words="")
        while True:
            try:
                seen = await tenancy.follow(lease, job, cursor=cursor, wait_s=1, limit_bytes=65_536)
            except BoxUnreachable as error:
                click.echo(f"note: {error.message}; asking again", err=True)
                await asyncio.sleep(_ASK_AGAIN_S)
                continue
            cursor, job = seen.cursor, seen.job
            if seen.log and errors.is_terminal and sys.stdout.isatty():
                # Above the bar, which would otherwise be drawn into the line.
                bar.console.print(seen.log.rstrip("\n"), markup=False, soft_wrap=True)
            elif seen.log:
                click.echo(seen.log, nl=False)
            if seen.progress is not None:
                bar.update(
                    task,
                    completed=seen.progress.fraction or 0,
                    words=f"{progress_of(seen)}  {usd(seen.cost_usd)}",
                )
            if seen.state in ENDED or seen.state == "absent":
                break
    sys.stdout.flush()
    rows = [("state", state_of(seen))] + ([("why", with_dates(seen.why))] if seen.why else [])
    rows.append(("next", step(seen.next)))
    for name, value in rows:
        click.echo(f"  {name:<6} {value}", err=True)
    return seen
