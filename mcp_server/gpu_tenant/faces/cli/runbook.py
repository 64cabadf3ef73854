"""The platforms' profiles at a terminal: a line for each, all of them compared, or the facts and the runbook of one."""

import json
from collections.abc import Iterator, Sequence
from typing import Literal

import click

from gpu_tenant.domain.model import Profile

_EVENTS = ("reboot", "park", "destroy", "host_loss", "preempt")


_HEADS = ("a reboot", "a stop", "the end", "a dead host", "being taken back")
"""The same events, in the words of the comparison."""


def platforms(
    chosen: Sequence[Profile], *, shown_as: Literal["json", "lines", "runbook", "comparison"]
) -> None:
    """Print the platforms to stdout."""
    if shown_as == "json":
        click.echo(json.dumps([profile.model_dump(mode="json") for profile in chosen], indent=2))
        return
    if shown_as == "comparison":
        click.echo(comparison(chosen))
        return
    for profile in chosen:
        if shown_as == "runbook":
            click.echo("\n".join([*_facts(profile), "", profile.runbook]))
        else:
            click.echo(f"{profile.id:<14} {profile.title}: {profile.trap}")


def comparison(profiles: Sequence[Profile]) -> str:
    """Return two Markdown tables: which path survives which event, and what bills after a stop and after the end.

    "?" stands for unknown and "-" for an event that the platform does not have.
    """
    short = {"unknown": "?", "n/a": "-"}
    paths = [
        (
            profile.id,
            f"`{place.path}`",
            *(short.get(place.survives[event], place.survives[event]) for event in _EVENTS),
        )
        for profile in profiles
        for place in profile.places
    ]
    bills = []
    for profile in profiles:
        facts = {fact.place: fact.value for fact in profile.facts}
        stop = (
            facts.get("verbs.park.bills", "?" if profile.park != "none" else "there is no stop"),
            f"{facts['verbs.park.gpu_guaranteed_after']}" if profile.park != "none" else "-",
        )
        no_credit = facts.get("billing.zero_balance", "n/a")
        bills.append(
            (
                profile.id,
                *stop,
                facts.get("billing.after_destroy") or "nothing",
                short.get(no_credit, no_credit),
            )
        )
    return (
        _table(("platform", "path", *_HEADS), paths)
        + "\n"
        + _table(
            (
                "platform",
                "a stopped box bills",
                "its GPU is kept",
                "may bill after the end",
                "with no credit",
            ),
            bills,
        )
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _facts(profile: Profile) -> Iterator[str]:
    """Yield the facts that a person in a hurry needs. The runbook does not repeat them."""
    yield f"{profile.title}, as of {profile.checked_on}"
    yield f"  ends the bill   {profile.stops}"
    yield f"  the trap        {profile.trap}"
    yield f"  if we die       {profile.stops_the_meter}"
    if profile.interruption:
        yield f"  taken back      {profile.interruption}"
    width = max(len(place.path) for place in profile.places)
    yield "  " + " " * width + "".join(f"  {event:<9}" for event in _EVENTS)
    for place in profile.places:
        cells = "".join(f"  {place.survives[event]:<9}" for event in _EVENTS)
        yield f"  {place.path:<{width}}{cells}"
    if profile.doubts:
        yield "  not confirmed: " + "; ".join(profile.doubts)
