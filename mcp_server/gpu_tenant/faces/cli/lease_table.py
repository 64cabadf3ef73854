"""Prints all leases for a person: a table, boxes in the account that are not ours, the alarms, and the sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.wording import NOBODY_BILLS, cost_words, some, span, until, usd_words
from gpu_tenant.faces.cli.output import card_in, columns, complain, print_list
from gpu_tenant.faces.to_do_text import matter_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpu_tenant.leases.cards import Card, Leases
    from gpu_tenant.service import Tenancy

_SHOWN = 3
"""At most this many of the costs that are not in the sum are named."""
_WIDEST_NAME = 32


def provisioned_in(tenancy: Tenancy) -> Callable[[Card], None]:
    """Return the function that prints the answer to `provision`."""
    return lambda shown: _provisioned(shown, card_in(tenancy))


def _provisioned(shown: Card, one: Callable[[Card], None]) -> None:
    """Print what was rented: one lease, or for a fleet how many boxes there are, and why others are missing."""
    one(shown)
    whole = shown.together
    if whole is None:
        return
    rows: list[tuple[str, object]] = [
        ("leases", ", ".join(whole.leases)),
        ("price", "unknown" if whole.usd_h is None else f"{whole.usd_h} USD/h together"),
        *([("not ready yet", ", ".join(whole.not_ready))] if whole.not_ready else []),
        *(("missing", words) for words in whole.missing),
        ("next", whole.next),
    ]
    print_list(f"{whole.fleet}: {whole.had} of {whole.asked}", rows)


def leases(shown: Leases) -> None:
    """Print a table of leases, with the alarms and the totals."""
    for words in to_do(shown.leases):
        click.echo(f"do this: {words}")
    for row in shown.leases:
        if row.phase == "parked" and row.condition.to_do is None:
            click.echo(f"{row.lease}: {row.next}")  # the disk bills until somebody takes this step
        if row.unclaimed and not (row.condition.to_do and row.unclaimed in row.next):
            click.echo(f"{row.lease}: {row.unclaimed}")
        for port in row.published:
            click.echo(f"{row.lease}: open to the internet: {port}")
    if shown.leases:
        _table(shown)
    elif not shown.hidden:
        click.echo("no lease is live: no box of ours is billing that this ledger knows of")
    if shown.hidden:
        click.echo(f"not found by the search: {some(shown.hidden, 'lease')}; the sums are of all")
    if shown.older:
        click.echo(f"older ones: {Command('leases', older=shown.older)}")
    for box in shown.foreign:
        rate = "an unknown rate" if box.price_usd_h is None else f"{box.price_usd_h} USD/h"
        named = "".join(f", {words}" for words in (box.name, box.gpus) if words)
        click.echo(f"not ours, left alone: {box.box} at {box.provider}{named}, {box.state}, {rate}")
        click.echo(f"  {box.next}")
    for words in (*shown.sweeps, *shown.waiting):
        click.echo(words)
    for words in shown.also_billing:
        click.echo(f"without a box: {words}")
    for alarm in shown.alarms:
        complain("alarm", _without_step(alarm, shown.leases))
    if shown.leases or shown.also_billing or shown.foreign or shown.not_counted:
        click.echo(sum_line(shown))
    if shown.watched:
        click.echo(f"watched by: {shown.watched.removeprefix('by ')}")


def _without_step(alarm: str, rows: Sequence[Card]) -> str:
    """Return the alarm without its next step, if the same step is shown above as the lease's."""
    for row in rows:
        step = row.next.partition("; a parked box ")[0]
        if row.condition.to_do is not None and alarm.startswith(f"{row.lease}: "):
            told, found, rest = alarm.partition(f": {step}")
            alarm = told + rest if found and rest[:1] in ("", ";") else alarm
    return alarm


def _table(shown: Leases) -> None:
    in_fleets = any(row.fleet for row in shown.leases)
    named = any(row.name for row in shown.leases)
    rows = [
        (
            "LEASE",
            *(("NAME",) if named else ()),
            *(("FLEET",) if in_fleets else ()),
            *("STATE", "BOX", "AGE", "DEADLINE", "USD/H", "COST", "BY DEADLINE", "JOBS"),
        )
    ]
    rows += [
        (
            row.lease,
            *((short(row.name) or "-",) if named else ()),
            *((row.fleet or "-",) if in_fleets else ()),
            row.condition.word + (", bills on" if row.condition.is_wasted else ""),
            row.box or "-",
            span(row.age_s),
            "-" if row.deadline_in_s is None else until(row.deadline_in_s),
            rate_words(row),
            spent_words(row),
            usd_words(row.forecast_deadline_usd)
            if row.bills in ("box", "disk", "unknown")
            else "-",
            ", ".join(row.jobs) or "-",
        )
        for row in shown.leases
    ]
    columns(rows)


def short(name: str) -> str:
    """Shorten a lease's name for a column."""
    return name if len(name) <= _WIDEST_NAME else f"{name[: _WIDEST_NAME - 1]}…"


def to_do(cards: Iterable[Card]) -> Iterator[str]:
    """Say for each lease that needs a person: what, since when, what it has cost since, and the next command."""
    from gpu_tenant.leases.cards import WORK_HAS_ENDED

    for row in cards:
        if row.condition.to_do is not None:
            step = row.next.removesuffix(f": {WORK_HAS_ENDED}")  # which the matter says already
            yield f"{row.lease}: {matter_words(row, row.condition.to_do)}: {step}"


def rate_words(row: Card) -> str:
    """Write what the lease costs an hour now, for a column: a number, or why there is none."""
    if row.bills in ("nobody", "no more"):
        return NOBODY_BILLS if row.bills == "nobody" else "-"
    return "unknown" if row.price_usd_h is None else f"{row.price_usd_h.normalize():f}"


def spent_words(row: Card) -> str:
    """Write what the lease has cost so far, for a column."""
    if row.bills == "nobody" and not row.cost_usd:
        return NOBODY_BILLS
    return cost_words(row.cost_usd, row.counts)


def sum_line(shown: Leases) -> str:
    """Write in one line what bills, what bills although it is unused, and what is spent. Name unknown costs."""
    burning = [row for row in shown.leases if row.bills in ("box", "unknown")]
    boxes = f"{some(len(burning), 'box')} burn{'s' if len(burning) == 1 else ''}"
    lacks = list(shown.not_counted[:_SHOWN])
    if len(shown.not_counted) > _SHOWN:
        lacks.append(f"and {len(shown.not_counted) - _SHOWN} more")
    return "; ".join(
        (
            f"{boxes if burning else 'no box burns'}{_in_all(shown, burning)}",
            *([f"not ours: {usd_words(shown.foreign_usd_h)}/h"] if shown.foreign_usd_h else []),
            *(
                [f"parked and left over: {usd_words(shown.leaking_usd_month)} a month"]
                if shown.leaking_usd_month
                else []
            ),
            f"spent in all {usd_words(shown.spent_usd)}",
            *([f"not counted: {', '.join(lacks)}"] if lacks else []),
        )
    )


def _in_all(shown: Leases, burning: Sequence[Card]) -> str:
    """Write the rate of everything that bills by the hour, and say that it includes the disks of stopped boxes."""
    disks = sum(row.bills == "disk" for row in shown.leases)
    if not burning and not disks:
        return ""
    held = f" with the disks of {some(disks, 'stopped box')}" if disks else ""
    return f"{',' if not burning else ''} {usd_words(shown.burning_usd_h)}/h{held}"
