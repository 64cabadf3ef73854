"""The commands for one job over several boxes: test whether the boxes can reach each other, and launch on all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import click

from gpu_tenant.domain.choices import PORT, Launcher
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.wording import some
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import P, T, as_json, join_words, verb

if TYPE_CHECKING:
    from gpu_tenant.jobs.multinode.preflight import Preflight
    from gpu_tenant.leases.multinode_launch import LaunchedTogether
    from gpu_tenant.service import Tenancy

_interface = click.option(
    "--interface",
    help="the network interface of the boxes; where its names differ, their network (10.0.0.0/16)",
)
_port = click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    default=PORT,
    show_default=True,
    help="the port at which the boxes meet, on the first of them",
)


def options(function: Callable[P, T]) -> Callable[P, T]:
    """Add the options of a launch of one job over several leases."""
    for option in (
        click.option(
            "--together",
            "launcher",
            type=click.Choice(get_args(Launcher)),
            help="one job over all LEASEs that stand before COMMAND; COMMAND is its script",
        ),
        click.option(
            "--per-node",
            "processes",
            type=click.IntRange(min=1),
            help="with --together: workers on each box; default: one for each GPU",
        ),
        _interface,
        _port,
    ):
        function = option(function)
    return function


def is_meant(over: Mapping[str, object]) -> bool:
    """Whether one job over several leases was asked for.

    Raises:
        BadRequest: it was not asked for, but one of its options was given.
    """
    if over["launcher"] is None and (over["processes"] or over["interface"]):
        raise BadRequest(
            "--per-node and --interface are for one job over several leases",
            remedy="add --together torchrun, or leave these options out",
        )
    return over["launcher"] is not None


@verb("preflight")
@click.argument("leases", nargs=-1, required=True, metavar="LEASE LEASE...")
@_interface
@_port
@as_json
async def preflight(
    leases: tuple[str, ...], interface: str | None, port: int, as_json: bool
) -> None:
    """Each box listens for some seconds, and connects to every other box. A secret proves that the right box answers."""
    from gpu_tenant.leases.multinode_launch import preflight_of

    async with output.tenancy() as tenancy:
        checked = await preflight_of(tenancy.context, leases, interface=interface, port=port)
        output.answer(checked, as_json, _print_checked)
    if not checked.passed:
        sys.exit(1)


async def launch(
    tenancy: Tenancy,
    words: Sequence[str],
    artifact: Sequence[str],
    discard: Sequence[str],
    env: Sequence[str],
    *,
    launcher: Launcher,
    processes: int | None,
    interface: str | None,
    port: int,
    max_runtime_h: float | None,
    name: str | None,
    python: Literal["prepared", "image"],
) -> LaunchedTogether:
    """Launch the job on all the leases. `words` are first lease ids, and then the job's own command."""
    from gpu_tenant.leases.multinode_launch import launch_together

    known = {lease.id for lease in tenancy.ledger.leases()}
    count = next((n for n, word in enumerate(words) if word not in known), len(words))
    return await launch_together(
        tenancy.context,
        words[:count],
        join_words(tuple(words[count:])) if words[count:] else "",
        artifact,
        discard,
        env,
        launcher=launcher,
        interface=interface,
        port=port,
        processes=processes,
        max_runtime_h=max_runtime_h,
        name=name,
        python=python,
    )


def print_launched(shown: LaunchedTogether) -> None:
    """Print what was started, and where."""
    rows: list[tuple[str, object]] = [
        (member.lease, "was already started" if member.already else member.command)
        for member in shown.members
    ]
    output.print_list(
        f"{shown.job} over {some(len(shown.members), 'lease')}, by {shown.launcher}",
        [*rows, ("next", shown.next)],
    )


def _print_checked(shown: Preflight) -> None:
    rows: list[tuple[str, object]] = [
        (spot.lease, f"{spot.interface} {spot.address}, {some(spot.gpus, 'GPU')}")
        for spot in shown.nodes
    ]
    for pair in shown.pairs:
        rate = (
            "" if pair.mb_s is None else f", {pair.mb_s:g} MB/s, {pair.rtt_ms:g} ms there and back"
        )
        rows.append((f"{pair.source} -> {pair.target}", f"{pair.words}{rate}"))
    rows += [("wrong", words) for words in shown.trouble if not shown.pairs]
    rows += [("warning", words) for words in shown.warnings]
    how = "these boxes can talk" if shown.passed else "these boxes cannot train together"
    output.print_list(f"{how}, on {shown.network}", [*rows, ("next", shown.next)])
