"""All leases at once for a person: a table, the boxes that are not theirs, the alarms, and the sums."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.wording import some, span
from gpu_tenant.faces.cli.output import card, columns, complain, print_list, until, usd

if TYPE_CHECKING:
    from gpu_tenant.leases.cards import Card, Leases

_SHOWN = 3


def print_provisioned(shown: Card) -> None:
    """What was rented was printed: one lease, or of several how many there are and why."""
    card(shown)
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
    """A table of leases was printed, with the alarms and the totals."""
    if shown.leases:
        _table(shown)
    else:
        click.echo("no lease is live: no box of ours is billing that this ledger knows of")
    if shown.older:
        click.echo(f"older ones: {Command('leases', older=shown.older)}")
    for box in shown.foreign:
        rate = "an unknown rate" if box.price_usd_h is None else f"{box.price_usd_h} USD/h"
        click.echo(f"not ours, left alone: {box.box} at {box.provider}, {box.state}, {rate}")
    for words in (*shown.sweeps, *shown.waiting):
        click.echo(words)
    for words in shown.also_billing:
        click.echo(f"without a box: {words}")
    for alarm in shown.alarms:
        complain("alarm", alarm)
    if shown.leases or shown.also_billing or shown.not_counted:
        click.echo(sum_line(shown))
    if shown.watched:
        click.echo(f"watched by: {shown.watched.removeprefix('by ')}")


def _table(shown: Leases) -> None:
    in_fleets = any(row.fleet for row in shown.leases)
    rows = [
        (
            "LEASE",
            *(("FLEET",) if in_fleets else ()),
            *("STATE", "BOX", "AGE", "DEADLINE", "USD/H", "COST", "BY DEADLINE", "JOBS"),
        )
    ]
    rows += [
        (
            row.lease,
            *((row.fleet or "-",) if in_fleets else ()),
            row.phase,
            row.box or "-",
            span(row.age_s),
            until(row.deadline_in_s) if row.state.live else "-",
            "unknown" if row.price_usd_h is None else str(row.price_usd_h),
            usd(row.cost_usd),
            usd(row.forecast_deadline_usd) if row.state.live else "-",
            ", ".join(row.jobs) or "-",
        )
        for row in shown.leases
    ]
    columns(rows)


def sum_line(shown: Leases) -> str:
    """What bills, what bills unused and what is spent, in one line. Unknown sums are named."""
    burning = [row for row in shown.leases if row.state.live and row.leaking_usd_month is None]
    boxes = f"{some(len(burning), 'box')} burn{'s' if len(burning) == 1 else ''}"
    lacks = list(shown.not_counted[:_SHOWN])
    if len(shown.not_counted) > _SHOWN:
        lacks.append(f"and {len(shown.not_counted) - _SHOWN} more")
    return "; ".join(
        (
            f"{boxes} {_sum(shown.burning_usd_h)} USD/h" if burning else "no box burns",
            f"parked and left over: {_sum(shown.leaking_usd_month)} USD a month",
            f"spent {_sum(shown.spent_usd)} USD",
            *([f"not counted: {', '.join(lacks)}"] if lacks else []),
        )
    )


def _sum(amount: Decimal | None) -> str:
    """The sum in USD with two decimals, or with four if it is below 1. `unknown` for None."""
    return "unknown" if amount is None else f"{amount:.2f}" if amount >= 1 else f"{amount:.4f}"
