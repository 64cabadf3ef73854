"""The commands for a sweep, which runs a job over a grid of parameters: launch it, show its table, change its cells."""

from __future__ import annotations

import json
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.wording import span, usd_words
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import Chosen, as_json, join_words, verb

if TYPE_CHECKING:
    from gpu_tenant.service import Tenancy
    from gpu_tenant.sweeps.commands import SweepReport
    from gpu_tenant.sweeps.status import CellRow, Reckoning

_SHOWN = 40
_METRICS = 3
"""The table shows at most this many metrics. The first is the one by which it is sorted."""
_OPTIONS = ("matrix", "cells", "attempts", "slots")


def options(function: Any) -> Any:
    """Add the options of a launch that is a sweep."""
    for option in (
        click.option(
            "--matrix",
            multiple=True,
            metavar="NAME=VALUE,...",
            help="a sweep over the LEASEs that stand before COMMAND: it has {NAME} for each value, and each "
            "--artifact has {cell}",
        ),
        click.option(
            "--cells",
            type=click.Path(exists=True, dir_okay=False),
            help="instead of --matrix: a file with one JSON object of parameters a line",
        ),
        click.option(
            "--attempts",
            type=click.IntRange(1, 20),
            help="how often a cell may be tried; default: 1",
        ),
        click.option(
            "--slots",
            type=click.IntRange(1, 256),
            help="cells at once on each box; default: one for each GPU",
        ),
    ):
        function = option(function)
    return function


def take_options(over: MutableMapping[str, Any]) -> dict[str, Any] | None:
    """Take the options of a sweep out of those of a launch. None if no sweep was asked for.

    Raises:
        BadRequest: no sweep was asked for, but one of its options was given.
    """
    mine = {name: over.pop(name) for name in _OPTIONS}
    if mine["matrix"] or mine["cells"]:
        return mine
    if mine["attempts"] or mine["slots"]:
        raise BadRequest(
            "--attempts and --slots are for a sweep",
            remedy="add --matrix NAME=1,2, or leave these options out",
        )
    return None


async def launch(
    tenancy: Tenancy,
    words: Sequence[str],
    lease: str | None,
    artifact: Sequence[str],
    discard: Sequence[str],
    env: Sequence[str],
    *,
    matrix: Sequence[str],
    cells: str | None,
    attempts: int | None,
    slots: int | None,
    max_runtime_h: float | None,
    name: str | None,
    python: Literal["prepared", "image"],
) -> SweepReport:
    """Launch the sweep. `words` are first names of leases and fleets, and then the command of the cells."""
    from gpu_tenant.domain.sweep_grid import grid_of
    from gpu_tenant.files.patterns import told_apart
    from gpu_tenant.sweeps.commands import begin_sweep

    known = tenancy.ledger.lease_ids() | set(tenancy.ledger.fleets())
    count = next((n for n, word in enumerate(words) if word not in known), len(words))
    if count == len(words):
        raise BadRequest("which command?", remedy="put it last, after `--`")
    named = (*([lease] if lease else ()), *words[:count])
    kept, given_up = told_apart(artifact, discard)
    grid = grid_of(
        join_words(tuple(words[count:])),
        artifacts=kept,
        discard=given_up,
        matrix=dict(map(_parameter, matrix)),
        cells=_read_list(cells) if cells else (),
        prefix=name,
    )
    return await begin_sweep(
        tenancy.context,
        Chosen(named, None, every=False).leases(tenancy),
        grid,
        env=env,
        attempts=attempts or 1,
        slots=slots,
        max_runtime_s=None if max_runtime_h is None else max_runtime_h * 3600,
        python=python,
    )


def _parameter(said: str) -> tuple[str, Sequence[object]]:
    name, equals, values = said.partition("=")
    if not equals:
        raise BadRequest(f"{said!r} names no values", remedy="write --matrix lr=0.1,0.2")
    return name, values.split(",")


def _read_list(path: str) -> list[dict[str, object]]:
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            cell = json.loads(line)
        except ValueError:
            cell = None
        if not isinstance(cell, dict):
            raise BadRequest(
                f"line {number} of {path} is not a JSON object",
                remedy='write one cell per line: {"lr": 0.1}',
            )
        found.append(cell)
    return found


@verb("sweep")
@click.argument("sweep", required=False, metavar="[SWEEP]")
@click.option("--retry", multiple=True, metavar="CELL", help="run a cell that failed once more")
@click.option("--add", multiple=True, metavar="LEASE", help="use another box for its cells")
@click.option(
    "--give-up", multiple=True, metavar="CELL", help="never run a cell that has not begun"
)
@click.option("--rest", is_flag=True, help="give up every cell that has not begun")
@click.option(
    "--settle", is_flag=True, help="accept exactly what is wrong now, so that its boxes may end"
)
@click.option("--watch", is_flag=True, help="stay until nothing more may run")
@click.option(
    "--by",
    metavar="METRIC",
    help="sort by this metric; when left out, by the one that most cells report",
)
@as_json
async def sweep(
    sweep: str | None,
    retry: tuple[str, ...],
    add: tuple[str, ...],
    give_up: tuple[str, ...],
    rest: bool,
    settle: bool,
    watch: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Every cell and what became of it. Each look also continues the sweep: what a dead client left half
    done is finished, and idle boxes are given work. Status 1 while something is wrong that nobody has accepted."""
    import asyncio

    from gpu_tenant.sweeps.commands import (
        add_to_sweep,
        give_up_cells,
        retry_cells,
        settle_sweep,
        tend,
    )

    async with output.tenancy() as tenancy:
        chosen = sweep or _newest(tenancy)
        tended = await tend(tenancy.context, chosen, by=by)
        if add:
            tended = await add_to_sweep(
                tenancy.context, chosen, Chosen(add, None, every=False).leases(tenancy)
            )
        if retry:
            tended = await retry_cells(tenancy.context, chosen, retry)
        if give_up or rest:
            tended = await give_up_cells(tenancy.context, chosen, "rest" if rest else give_up)
        while watch and tended.table.still_open:
            click.echo(tended.table.words, err=True)
            await asyncio.sleep(5)
            tended = await tend(tenancy.context, chosen, by=by)
        if settle:

            async def accept() -> Reckoning:
                return settle_sweep(tenancy.context, chosen)

            from gpu_tenant.faces.cli import sign

            settled = await sign.with_signature(tenancy, "to accept all of this", accept)
            of_now = {"settled_by": settled.settled_by, "wrong": settled.wrong}
            tended = tended.model_copy(update={"table": tended.table.model_copy(update=of_now)})
        output.answer(tended, as_json, table)
    if tended.table.wrong and not tended.table.settled_by:
        sys.exit(1)


def _newest(tenancy: Tenancy) -> str:
    known = tenancy.ledger.sweeps()
    if not known:
        raise BadRequest(
            "there is no sweep",
            remedy=str(Command("launch", "LEASE...", then="COMMAND", matrix="lr=0.1,0.2")),
        )
    return known[-1]


def table(shown: SweepReport) -> None:
    """Print the cells, the best first, then the problems, and the next step.

    Cells without a metric come last, and of these first the ones that need a person.
    """
    found = shown.table
    order = (
        "failed",
        "missing",
        "duplicate",
        "waiting",
        "running",
        "queued",
        "finished",
        "given_up",
        "verified",
    )
    metrics = [*dict.fromkeys(name for row in found.rows for name in row.metrics)]
    if found.by is not None:
        metrics.sort(key=lambda name: name != _metric(found))
    rows = [row for row in found.rows if row.metrics]
    rows += sorted(
        (row for row in found.rows if not row.metrics), key=lambda row: order.index(row.state)
    )
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False)
    shown_metrics = metrics[:_METRICS]
    for column in (
        "CELL",
        "STATE",
        *map(escape, shown_metrics),
        "TIME",
        "COST",
        "BOX",
        "RUNS",
        "WHY",
    ):
        drawn.add_column(column, no_wrap=True)
    for row in rows[:_SHOWN]:
        told_by_log = (row.metrics.get(name) for name in shown_metrics)
        said = (
            row.cell,
            row.state,
            *("-" if value is None else f"{value:g}" for value in told_by_log),
            "-" if row.took_s is None else span(row.took_s),
            "-" if row.cost_usd is None else usd_words(row.cost_usd),
            row.lease or "-",
            str(row.attempts),
            row.why or "",
        )
        drawn.add_row(*map(escape, said))
    Console(highlight=False).print(drawn)
    if len(rows) > _SHOWN:
        click.echo(f"and {len(rows) - _SHOWN} more; --json has them all")
    sorted_by = [("sorted by", found.by)] if found.by else []
    sorted_by += [("best", found.best)] if found.best else []
    told: list[tuple[str, object]] = [
        *sorted_by,
        ("cells", found.words),
        ("boxes", ", ".join(found.leases)),
        *([("files", f"{found.folder}, by cell")] if found.folder else []),
        *(("doubtful", words) for words in found.doubtful),
    ]
    told += [("wrong", words) for words in found.wrong]
    told += [("accepted", f"by {found.settled_by}")] if found.settled_by else []
    told += [("not now", words) for words in shown.troubles]
    output.print_list(f"{found.sweep}: {found.command}", [*told, ("next", next_step(found))])


def _metric(found: Reckoning) -> str:
    """Return the metric by which the table is sorted."""
    return (found.by or "").rpartition(", the ")[0]


def next_step(found: Reckoning) -> str:
    """Return the next command, as a sentence."""
    states = found.counts
    if states["running"] or states["queued"]:
        return str(Command("sweep", found.sweep, watch=True))
    if states["waiting"]:
        return f"{Command('sweep', found.sweep, add='LEASE')}: no box takes the waiting cells; `--rest` gives these cells up"
    if states["finished"]:
        return str(Command("collect", *found.leases))
    end = str(Command("teardown", *found.leases))
    if found.wrong and not found.settled_by:
        again = _first(found.rows)
        retry = f"{Command('sweep', found.sweep, retry=again)}, or " if again else ""
        return f"{retry}{end}"
    return end


def _first(rows: Sequence[CellRow]) -> str | None:
    return next((row.cell for row in rows if row.state in ("failed", "missing")), None)
