"""The one start of a stopped box after the end of its lease, for the minutes that the proof of its files takes."""

from datetime import datetime, timedelta

from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.terms import LAST_START_S
from gpu_tenant.domain.timeline import Lines


def last_start_at(lease: Lease, events: Lines) -> datetime | None:
    """Return when the box was started for its end. None if it was not.

    Any other start of a box whose deadline has passed moves the deadline.
    """
    at = story_of(events).box.start_asked_at
    return at if at is not None and at >= lease.terms.deadline_at else None


def as_guarded(lease: Lease, events: Lines) -> Lease:
    """Return the lease with the deadline that its guard enforces. After a start for the end, this is a later one."""
    at = last_start_at(lease, events)
    if at is None:
        return lease
    terms = lease.terms.model_copy(update={"deadline_at": at + timedelta(seconds=LAST_START_S)})
    return lease.model_copy(update={"terms": terms})
