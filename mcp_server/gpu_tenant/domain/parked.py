"""Reads from a lease's timeline why a parked box is kept, and whether it was read in full right before its stop."""

from datetime import datetime
from typing import NamedTuple

from gpu_tenant.domain import timeline
from gpu_tenant.domain.timeline import Lines

_CHANGES_NO_DISK = (
    timeline.Ending
    | timeline.Refused
    | timeline.NewTerms
    | timeline.Claimed
    | timeline.Labelled
    | timeline.Tested
    | timeline.Priced
    | timeline.Billed
    | timeline.Noticed
    | timeline.Reread
    | timeline.Stored
    | timeline.AwaitsWork
    | timeline.Waived
    | timeline.WaivedAhead
    | timeline.Permitted
    | timeline.Destroyed
)
"""Events that put nothing new on the disk of a stopped box. After any other event, the box has to be read again."""


_TAKES_IT = (
    timeline.Taken
    | timeline.Forewarned
    | timeline.Recovered
    | timeline.Progressed
    | timeline.JobEnded
)
"""Events that are recorded while a platform takes a box back. They put nothing new on its disk either."""


class Kept(NamedTuple):
    """Why a box was parked and is kept."""

    ending: str
    """The term of the lease because of which it was parked, in words. Empty if a person or an agent parked it."""
    lost: str
    """What a teardown would have lost. Empty if no teardown was refused."""
    missing: tuple[str, ...]
    """Declared artifacts that never appeared and were not given up. Empty if other things blocked the teardown."""
    given_up: bool
    """Whether everything that blocked the teardown has been given up since."""


def read_at_stop(events: Lines) -> timeline.ReadAtStop | None:
    """Return what was read right before the stop. None if a recorded event may have changed the box since.

    Only its provider knows whether somebody else has started the box since.
    """
    for _, event in reversed(events):
        if isinstance(event, timeline.ReadAtStop):
            return event
        if not isinstance(event, _CHANGES_NO_DISK):
            return None
    return None


def permitted_seal(events: Lines) -> str | None:
    """Return the seal over which the destroy of a box was permitted as *verified*, if only its stop has come since.

    None if anything recorded since may have put something new on its disk.
    """
    for _, event in reversed(events):
        if isinstance(event, timeline.Permitted):
            return event.seal if event.ground == "verified" else None
        if not isinstance(event, _CHANGES_NO_DISK | timeline.Parked):
            return None
    return None


def read_in_notice(lines: Lines) -> tuple[datetime, timeline.ReadInNotice] | None:
    """Return when the box was last read during a notice, and what was read. None if something may be new on it since.

    Only its provider knows whether the box was stopped soon after, and was not started again.
    """
    for at, event in reversed(lines):
        if isinstance(event, timeline.ReadInNotice):
            return at, event
        if not isinstance(event, _CHANGES_NO_DISK | _TAKES_IT):
            return None
    return None


def why_kept(events: Lines) -> Kept:
    """Return why a parked box is kept, from the events since it last ran."""
    ending, parked = "", False
    refused: timeline.Refused | None = None
    given_up: set[str] = set()
    for _, event in events:
        match event:
            case timeline.Ending(words=words):
                ending = words or ending
            case timeline.Refused() if event.missing or refused is None or not parked:
                # A teardown of a parked box may be refused only because the box is parked. That does not explain why it
                # is kept.
                refused = event
            case timeline.Parked():
                parked = True
            case timeline.Claimed(discard=patterns):
                given_up.update(patterns)
            case timeline.Resuming() | timeline.Resumed() | timeline.RunsOn() | timeline.Launched():
                ending, refused, parked = "", None, False
            case _:
                pass
    if refused is None:
        return Kept(ending, "", (), given_up=False)
    left = tuple(pattern for pattern in refused.missing if pattern not in given_up)
    return Kept(ending, refused.lost, left, given_up=bool(refused.missing) and not left)
