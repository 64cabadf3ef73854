"""The market as a person sees it: offers, what each would cost in the end, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpu_tenant.faces.cli.output import complain, step

if TYPE_CHECKING:
    from gpu_tenant.leases.offers import Found, Ranked


def print_found(shown: Found) -> None:
    """Print a table of offers, the best first, then what was left out, and who did not answer."""
    table = Table(box=None, pad_edge=False)
    for column, justify in (
        *(("QUOTE", "left"), ("PROVIDER", "left"), ("GPU", "left"), ("REGION", "left")),
        *(("USD/H", "right"), ("GPU + DISK", "right"), ("IN ALL", "right")),
        *(("RELIABLE", "right"), ("KIND", "left")),
    ):
        table.add_column(column, justify="right" if justify == "right" else "left")
    for row in shown.offers:
        table.add_row(*(Text(cell) for cell in _cells(row)))
    if shown.offers:
        # Print at full width: a terminal wraps a long line, and a pipe keeps it whole. Print long
        # notes once, below the table.
        width = max(Console().width, Console(width=10_000).measure(table).maximum)
        Console(highlight=False, soft_wrap=True, width=width).print(table)
    else:
        click.echo("nothing fits")
    for note, rows in _notes_by_offer(shown.offers).items():
        whose = "each" if len(rows) == len(shown.offers) > 1 else ", ".join(rows)
        click.echo(f"note: {note} ({whose})")
    _rest(shown)


def _notes_by_offer(rows: Sequence[Ranked]) -> dict[str, list[str]]:
    """Collect every note, with the offers that it is about."""
    noted: dict[str, list[str]] = {}
    for row in rows:
        for note in dict.fromkeys(row.notes):
            noted.setdefault(note, []).append(row.quote or f"{_gpu(row)} at {row.provider}")
    return noted


def print_explained(shown: Found) -> None:
    """Print each offer with the terms that make up its expected cost."""
    for row in shown.offers:
        total = "unknown" if row.expected_usd is None else f"{row.expected_usd} USD"
        title = f"{row.quote or 'no quote'}: {_gpu(row)} at {row.provider}, in all {total}"
        click.echo(click.style(title, bold=True))
        width = max((len(term.name) for term in row.terms), default=0)
        for term in row.terms:
            click.echo(f"  {term.usd:>10}  {term.name:<{width}}  {term.words}")
        for note in row.notes:
            click.echo(f"  note: {note}")
    _rest(shown)


def _cells(row: Ranked) -> tuple[str, ...]:
    kind = ["interruptible"] if row.interruptible else []
    host = [f"{row.trust} host"] if row.trust == "unverified" else []
    ends = [] if row.max_hours is None else [f"for {row.max_hours:g} h at most"]
    return (
        row.quote or "-",
        row.provider,
        _gpu(row),
        row.region or "-",
        _usd(row.running_usd_h),
        f"{_usd(row.price.gpu_usd_h)} + {_usd(row.price.disk_usd_h)}",
        "unknown" if row.expected_usd is None else f"{row.expected_usd:.2f}",
        "unknown" if row.reliability is None else f"{row.reliability:.1%}",
        "; ".join((*kind, *host, *ends)) or "-",
    )


def _gpu(row: Ranked) -> str:
    return f"{row.gpu_count} x {row.gpu}"


def _usd(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:.4f}"


def _rest(shown: Found) -> None:
    if shown.cheapest:
        click.echo(f"cheapest by the hour: {shown.cheapest}")
    if shown.unfit:
        counted = "; ".join(f"{count} {reason}" for reason, count in shown.unfit.items())
        click.echo(f"left out: {counted}")
    click.echo(f"next: {step(shown.next)}")
    for provider, words in shown.troubles.items():
        complain(provider, words)
