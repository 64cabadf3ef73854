"""Prints the offers for a person: the total cost of each, and what was left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpu_tenant.domain.expected_cost import is_paid
from gpu_tenant.domain.wording import some, span
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.output import complain, step

if TYPE_CHECKING:
    from gpu_tenant.leases.offers import Found, Ranked


_ESSENTIAL = ("QUOTE", "PROVIDER", "GPU", "USD/H", "IN ALL")
_BY_NEED = (
    *("VRAM", "KIND", "REGION", "CPUS", "RAM", "ENDS", "RELIABLE", "MBIT/S", "GPU + DISK"),
    "HOST",
)
"""The other columns. They are shown if the terminal has room; the last of them is left out first."""
_RIGHT = frozenset({"VRAM", "USD/H", "IN ALL", "RELIABLE", "CPUS", "RAM", "MBIT/S", "GPU + DISK"})

_DAYS_FROM_H = 96


def print_found(shown: Found, width: int | None = None) -> None:
    """Print a table of offers, best first.

    Below it, print what was left out, and which providers did not answer. The table has as many columns as fit in
    `width`, which is the terminal's unless it is given. A pipe gets all columns.
    """
    alike = _alike(shown.offers)
    rows = [of_a_kind[0] for of_a_kind in alike]
    cells = [_cells(row) for row in rows]
    console = Console(highlight=False, soft_wrap=True)
    if width is None and console.is_terminal:
        width = console.width
    unknown = [] if output.is_verbose() else _unknown_of_all(cells)
    left_out = list[str]()
    table = _table(cells, unknown)
    optional = [name for name in _BY_NEED if name not in unknown]
    while width is not None and cells and _wide(table) > width and optional:
        left_out.append(optional.pop())
        table = _table(cells, [*unknown, *left_out])
    if shown.offers:
        # The table gets its full width: a terminal wraps long lines, and a pipe keeps them whole.
        # Long notes are printed once, below the table.
        full = max(console.width, _wide(table))
        Console(highlight=False, soft_wrap=True, width=full).print(table)
    else:
        click.echo(_nothing_words(shown))
    if left_out:
        click.echo(f"a wider terminal shows {', '.join(reversed(left_out))}; so does --json")
    for first, *others in alike:
        if others:
            quotes = ", ".join(row.quote for row in others if row.quote)
            click.echo(f"{first.quote or _gpu(first)}: and {len(others)} more alike ({quotes})")
    for note, named in _notes_by_offer(rows).items():
        whose = "each" if len(named) == len(rows) > 1 else ", ".join(named)
        click.echo(f"note: {note} ({whose})")
    _rest(shown)


def _unknown_of_all(cells: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the columns that say nothing of any offer."""
    return [name for name in _BY_NEED if all(row[name] in ("-", "?") for row in cells)]


def _alike(offers: Sequence[Ranked]) -> list[list[Ranked]]:
    """Put together the offers of which all that is shown is the same. Each rents a box of its own."""
    kinds: dict[tuple[object, ...], list[Ranked]] = {}
    for row in offers:
        seen = {name: cell for name, cell in _cells(row).items() if name != "QUOTE"}
        kinds.setdefault((*seen.values(), row.quote is None, row.notes), []).append(row)
    return list(kinds.values())


def _nothing_words(shown: Found) -> str:
    """Say why there is no offer: none fits, or no provider answered."""
    if shown.unfit:
        return f"nothing fits: {some(sum(shown.unfit.values()), 'offer')} left out"
    if shown.troubles:
        return f"nothing is offered, because no answer came: {', '.join(shown.troubles)}"
    return "nothing is offered now"


def _table(rows: Sequence[Mapping[str, str]], left_out: Collection[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    names = [name for name in (*_ESSENTIAL, *_BY_NEED) if name not in left_out]
    for name in names:
        table.add_column(name, justify="right" if name in _RIGHT else "left")
    for row in rows:
        table.add_row(*(Text(row[name]) for name in names))
    return table


def _wide(table: Table) -> int:
    return Console(width=10_000).measure(table).maximum


def _notes_by_offer(rows: Sequence[Ranked]) -> dict[str, list[str]]:
    """Return every note, with the names of the offers that have it."""
    noted: dict[str, list[str]] = {}
    for row in rows:
        for note in dict.fromkeys(row.notes):
            noted.setdefault(note, []).append(row.quote or f"{_gpu(row)} at {row.provider}")
    return noted


def print_explained(shown: Found) -> None:
    """Print each offer with the terms that make up its expected cost."""
    if not shown.offers:
        click.echo(_nothing_words(shown))
    for row in shown.offers:
        total = "unknown" if row.expected_usd is None else f"{row.expected_usd} USD"
        risks = sum((term.usd for term in row.terms if not is_paid(term)), Decimal(0))
        counted = f"; its risks rank it as {risks} USD dearer" if risks else ""
        title = f"{row.quote or 'no quote'}: {_gpu(row)} at {row.provider}, in all {total}{counted}"
        click.echo(click.style(title, bold=True))
        width = max((len(term.name) for term in row.terms), default=0)
        for term in row.terms:
            click.echo(f"  {term.usd:>10}  {term.name:<{width}}  {term.words}")
        for note in row.notes:
            click.echo(f"  note: {note}")
    _rest(shown)


def _ends(hours: float) -> str:
    return f"in {hours / 24:.0f} d" if hours >= _DAYS_FROM_H else f"in {span(hours * 3600)}"


def _cells(row: Ranked) -> dict[str, str]:
    kind = ["interruptible"] if row.interruptible else []
    host = [f"{row.trust} host"] if row.trust == "unverified" else []
    return {
        "QUOTE": row.quote or "-",
        "PROVIDER": row.provider,
        "GPU": _gpu(row),
        "USD/H": _usd(row.running_usd_h),
        "IN ALL": "unknown" if row.expected_usd is None else f"{row.expected_usd:.2f}",
        "VRAM": _number(row.vram_gib, " GiB"),
        "KIND": "; ".join((*kind, *host)) or "-",
        "REGION": row.region or "-",
        "ENDS": "-" if row.max_hours is None else _ends(row.max_hours),
        "RELIABLE": "?" if row.reliability is None else f"{row.reliability:.1%}",
        "CPUS": _number(row.cpus),
        "RAM": _number(row.ram_gib, " GiB"),
        "MBIT/S": _number(row.download_mbps),
        "HOST": row.host or "-",
        "GPU + DISK": f"{_usd(row.price.gpu_usd_h)} + {_usd(row.price.disk_usd_h)}",
    }


def _number(value: float | None, unit: str = "") -> str:
    return "?" if value is None else f"{value:.0f}{unit}"


def _gpu(row: Ranked) -> str:
    return f"{row.gpu_count} x {row.gpu}"


def _usd(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:.4f}"


def _rest(shown: Found) -> None:
    if shown.order:
        click.echo(f"ordered: {'; '.join(shown.order)}")
    from gpu_tenant.leases.offers import trust_words

    unverified = next((row for row in shown.offers if row.trust == "unverified"), None)
    if unverified is not None:
        click.echo(f"unverified host: {trust_words(unverified)}")
    if shown.untested:
        click.echo(shown.untested)
    if shown.cheapest and shown.cheapest != shown.offers[0].quote:
        click.echo(f"cheapest by the hour: {shown.cheapest}")
    if shown.unfit:
        counted = "; ".join(f"{count} {reason}" for reason, count in shown.unfit.items())
        click.echo(f"left out: {counted}")
    click.echo(f"next: {step(shown.next)}")
    for provider, words in shown.troubles.items():
        complain(provider, words)
