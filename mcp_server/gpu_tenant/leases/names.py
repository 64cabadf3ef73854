"""Names leases.

A lease has the name that somebody gave it. Without one, it is named after the pushed directory and the command of its
newest job.
"""

from collections.abc import Sequence
from pathlib import PurePath

from pydantic import ValidationError

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.labels import UNNAMED, Labels, short_label
from gpu_tenant.domain.model import Declared, Lease
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.leases.context import Context


def must_be_labels(words: str) -> Labels:
    """Parse the labels of a lease: project, name and tags.

    Raises:
        BadRequest: the words are not valid labels.
    """
    try:
        return Labels.parse(words)
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
    except ValueError as error:
        why = str(error)
    raise BadRequest(why, remedy="write it as in `--name 'llama/first try #paper'`")


def call_lease(context: Context, lease: Lease, labels: Labels) -> None:
    """Record the labels that the lease has from now on. If it has them already, record nothing."""
    if labels != labels_again(context, lease):
        event = timeline.Labelled(**labels.model_dump())
        context.ledger.note(lease.id, event, at=context.clock.now())


def labels_again(context: Context, lease: Lease) -> Labels:
    """Return the labels for a lease that continues this one: only those that somebody gave this lease."""
    return said_labels(context.ledger.events(lease.id, timeline.Labelled)) or UNNAMED


def said_labels(events: Lines) -> Labels | None:
    """Return the labels that somebody last gave the lease. None if nobody did."""
    event = story_of(events).labelled
    if event is None:
        return None
    return Labels(project=event.project, name=event.name, tags=event.tags)


def labels_of(events: Lines, jobs: Sequence[Declared]) -> Labels:
    """Return the labels of the lease.

    If nobody gave a project, it is the pushed directory. If nobody gave a name, it is the newest job's command.
    """
    directory = story_of(events).directory
    return (said_labels(events) or UNNAMED).filled(
        project=directory and short_label(PurePath(directory).name.replace("/", " ")),
        name=short_label(jobs[-1].command) if jobs else None,
    )
