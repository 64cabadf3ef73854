"""Why a parked box is kept, and whether it was read in full right before its stop, by a lease's timeline."""

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
"""What may follow without anything new on a stopped box's disk. After any other event the box has to be read again."""


_TAKES_IT = (
    timeline.Taken
    | timeline.Forewarned
    | timeline.Recovered
    | timeline.Progressed
    | timeline.JobEnded
)
"""What its platform does when it takes a box back, and what is recorded meanwhile: nothing new on the box's disk."""


class Kept(NamedTuple):
    """Why a box was parked and is kept."""

    ending: str
    """The term that ended the lease's time, in words. Empty if a person or an agent parked it."""
    lost: str
    """What a teardown would have lost. Empty if none was refused."""
    missing: tuple[str, ...]
    """The declared artifacts that never appeared and that nobody has given up, if nothing else is in the way."""
    given_up: bool
    """Whether everything that was in the way has been given up since."""


def read_at_stop(events: Lines) -> timeline.ReadAtStop | None:
    """Return what was read right before the stop, if the ledger knows of nothing that changed the box since.

    That somebody else has not started the box is for its provider to say.
    """
    for _, event in reversed(events):
        if isinstance(event, timeline.ReadAtStop):
            return event
        if not isinstance(event, _CHANGES_NO_DISK):
            return None
    return None


def read_in_notice(lines: Lines) -> tuple[datetime, timeline.ReadInNotice] | None:
    """Return what was last read of a box that had notice, and when, if the ledger knows of nothing new on it since.

    That the box was stopped soon after, and was not started again, is for its provider to say.
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
                # Once it is parked, a teardown may be refused because it is parked. That is no reason to keep it.
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
