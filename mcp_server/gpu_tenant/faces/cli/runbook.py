"""The platforms' profiles at a terminal: a line for each, all of them compared, or the facts and the runbook of one."""

import json
from collections.abc import Iterator, Sequence
from typing import Literal

import click

from gpu_tenant.domain.model import Profile
from gpu_tenant.domain.platform_comparison import comparison

_EVENTS = ("reboot", "park", "destroy", "host_loss", "preempt")


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
