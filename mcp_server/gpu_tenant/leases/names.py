"""What a lease is called: by its owner's word, or else by the pushed directory and the command of its newest job."""

from collections.abc import Sequence
from pathlib import PurePath

from pydantic import ValidationError

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.labels import UNNAMED, Labels, short_label
from gpu_tenant.domain.model import Declared, Lease
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.leases.context import Context


def must_be_labels(words: str) -> Labels:
    """Read what a lease is to be called.

    Raises:
        BadRequest: the words cannot be labels.
    """
    try:
        return Labels.parse(words)
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
    except ValueError as error:
        why = str(error)
    raise BadRequest(why, remedy="write it as in `--name 'llama/first try #paper'`")


def call_lease(context: Context, lease: Lease, labels: Labels) -> None:
    """Record what the lease is called from now on. Nothing is recorded if it is called so already."""
    if labels != labels_again(context, lease):
        event = timeline.Labelled(**labels.model_dump())
        context.ledger.note(lease.id, event, at=context.clock.now())


def labels_again(context: Context, lease: Lease) -> Labels:
    """Return the labels for a lease that continues that one: only what somebody said the old lease is called."""
    return said_labels(context.ledger.events(lease.id, timeline.Labelled)) or UNNAMED


def said_labels(events: Lines) -> Labels | None:
    """Return what somebody last said that the lease is called. None if nobody did."""
    for _, event in reversed(events):
        if isinstance(event, timeline.Labelled):
            return Labels(project=event.project, name=event.name, tags=event.tags)
    return None


def labels_of(events: Lines, jobs: Sequence[Declared]) -> Labels:
    """Return what the lease is called. A part that nobody said is the pushed directory, or the newest job's command."""
    trees = (
        event.tree.get("directory")
        for _, event in reversed(events)
        if isinstance(event, timeline.Pushed) and event.tree
    )
    directory = next((where for where in trees if isinstance(where, str)), None)
    return (said_labels(events) or UNNAMED).filled(
        project=directory and short_label(PurePath(directory).name.replace("/", " ")),
        name=short_label(jobs[-1].command) if jobs else None,
    )
