"""Reads from a lease's timeline why a parked box is kept, and whether it was read in full right before its stop."""

from datetime import datetime

from gpu_tenant.domain import timeline
from gpu_tenant.domain.story import Kept, story_of
from gpu_tenant.domain.timeline import Lines


def read_at_stop(events: Lines) -> timeline.ReadAtStop | None:
    """Return what was read right before the stop. None if a recorded event may have changed the box since.

    Only its provider knows whether somebody else has started the box since.
    """
    return story_of(events).read_at_stop


def permitted(events: Lines) -> timeline.Permitted | None:
    """Return the permit to destroy the box as *verified* or *never used*, if only its stop has come since.

    None if anything recorded since may have put something new on its disk.
    """
    return story_of(events).permitted


def read_in_notice(lines: Lines) -> tuple[datetime, timeline.ReadInNotice] | None:
    """Return when the box was last read during a notice, and what was read. None if something may be new on it since.

    Only its provider knows whether the box was stopped soon after, and was not started again.
    """
    return story_of(lines).read_in_notice


def why_kept(events: Lines) -> Kept:
    """Return why a parked box is kept, from the events since it last ran."""
    return story_of(events).kept
