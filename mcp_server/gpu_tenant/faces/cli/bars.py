"""Shows progress bars on stderr while a person waits for a transfer or a job."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Literal

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.domain.errors import BoxUnreachable
from gpu_tenant.domain.waiting import Wait, waits_to
from gpu_tenant.domain.wording import span, usd_words
from gpu_tenant.faces.cli.output import cost_of, progress_of, state_of, step, why_of
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.leases.context import progress_to
from gpu_tenant.leases.job_outlook import OutlookNews
from gpu_tenant.service import Tenancy
from gpu_tenant.transfer.eta import Eta

errors = Console(stderr=True, highlight=False)

_ASK_AGAIN_S = 5
_TOLD_EVERY_S = 10
"""If stderr is not a terminal, a line is written this often, in seconds. This is rare, so that a log grows slowly."""


class Waiting:
    """The state of a wait: how many bytes have moved; or what is waited for, since when, its cost, and what ends it."""

    def __init__(self, eta: Eta) -> None:
        self.eta = eta
        self._wait: Wait | None = None
        self._since_s = 0.0
        self._is_moving = False

    def waits(self, wait: Wait, *, at_s: float) -> None:
        """Record what is waited for now. If it is the same thing as before, its time goes on counting."""
        self._is_moving = False
        if self._wait is None or _subject(wait) != _subject(self._wait):
            self._since_s = at_s
        self._wait = wait

    def moves(self) -> None:
        """Record that bytes are moving now."""
        self._is_moving = True

    def words(self, *, at_s: float) -> str:
        """Return the state in one line. Empty if nothing is known yet."""
        if self._is_moving and self.eta.total_bytes:
            return self.eta.words(at_s=at_s)
        if self._wait is None:
            return ""
        past_s = max(0.0, at_s - self._since_s)
        told = f"{self._wait.words}; {span(past_s)} so far"
        if self._wait.usd_h:
            told += f", about {usd_words(self._wait.usd_h * Decimal(past_s) / 3600)}"
        return f"{told}; {self._wait.ends}" if self._wait.ends else told


def _subject(wait: Wait) -> str:
    """Return what is waited for, without the news in brackets."""
    return wait.words.partition(" (")[0]


class _Words(ProgressColumn):
    """The text of a bar. It is computed each time that the bar is drawn, so that times count on even in a stall."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__(table_column=Column(overflow="fold"))
        self._waiting = waiting

    def render(self, task: Task) -> Text:
        return Text(self._waiting.words(at_s=task.get_time()))


@contextmanager
def bytes_bar(verb: str, usd_h: Decimal | None = None) -> Iterator[None]:
    """Show on stderr, while the block moves files: bytes, rate, time left, what this costs, and what is waited for."""
    with _show(verb, usd_h, BarColumn(bar_width=None)):
        yield


@contextmanager
def waits(verb: str) -> Iterator[None]:
    """Show on stderr what the block waits for, since when, what that costs, and what ends it."""
    with _show(verb, None, SpinnerColumn()):
        yield


@contextmanager
def _show(verb: str, usd_h: Decimal | None, column: ProgressColumn) -> Iterator[None]:
    waiting = Waiting(Eta(usd_h))
    with Progress(
        TextColumn("{task.description}"),
        column,
        _Words(waiting),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    ) as bar:
        task = bar.add_task(verb, total=None)

        def hear(done: int, total: int) -> None:
            waiting.eta.note_progress(done, total, at_s=bar.get_time())
            waiting.moves()
            bar.update(task, completed=done, total=total)

        moving = progress_to.set(hear)
        waited = waits_to.set(lambda wait: waiting.waits(wait, at_s=bar.get_time()))
        telling = None if errors.is_terminal else asyncio.create_task(_tell(verb, waiting, bar))
        try:
            yield
        finally:
            if telling is not None:
                telling.cancel()
            waits_to.reset(waited)
            progress_to.reset(moving)


async def _tell(verb: str, waiting: Waiting, bar: Progress) -> None:
    """Write the state in a line every few seconds. This is for a stderr that is not a terminal."""
    while True:
        await asyncio.sleep(_TOLD_EVERY_S)
        if words := waiting.words(at_s=bar.get_time()):
            click.echo(f"{verb}: {words}", err=True)


async def follow(
    tenancy: Tenancy,
    lease: str,
    job: str | None,
    cursor: int | None,
    *,
    then: Literal["next", ""] = "next",
    aside: bool = True,
) -> Watched:
    """Follow the job until it has ended. Its log goes to stdout as it comes, its progress to a bar on stderr.

    At the end, the next step is printed, unless `then` is empty. With `aside`, the outcome of the job goes to stderr,
    otherwise to stdout.

    If the box does not answer, it is asked again until it does. Meanwhile, the job runs on.
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
        is_first, outlook = True, OutlookNews()
        while True:
            try:
                seen = await tenancy.follow(lease, job, cursor=cursor, wait_s=1, limit_bytes=65_536)
            except BoxUnreachable as error:
                click.echo(f"note: {error.message}; asking again", err=aside)
                await asyncio.sleep(_ASK_AGAIN_S)
                continue
            cursor, job = seen.cursor, seen.job
            if is_first and seen.budget_end:
                click.echo(f"  budget {seen.budget_end}", err=aside)
            is_first = False
            if news := outlook.of(seen.outlook):
                click.echo(f"  forecast {news}", err=aside)
            if seen.log and errors.is_terminal and sys.stdout.isatty():
                # Print above the bar. Otherwise the bar would be drawn into the line.
                bar.console.print(seen.log.rstrip("\n"), markup=False, soft_wrap=True)
            elif seen.log:
                click.echo(seen.log, nl=False)
            if seen.progress is not None:
                bar.update(
                    task,
                    completed=seen.progress.fraction or 0,
                    words=f"{progress_of(seen)}  {cost_of(seen)}",
                )
            if seen.state in ENDED or seen.state == "absent":
                break
    sys.stdout.flush()
    rows = [("state", state_of(seen))] + ([("why", why_of(seen))] if seen.why else [])
    rows += [("next", step(seen.next))] if then else []
    for name, value in rows:
        click.echo(f"  {name:<6} {value}", err=aside)
    return seen
