"""Records in the ledger what the guard on a box will do, and reads this record. The box is not asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_tenant.domain import timeline
from gpu_tenant.domain.protection import GuardState
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.timeline import Lines

if TYPE_CHECKING:
    from gpu_tenant.domain.model import Lease
    from gpu_tenant.ledger import Ledger


def record(lease: Lease, armed: GuardState, *, ledger: Ledger) -> None:
    """Record the state of the guard, if it has changed, or if the box was started again since the last record."""
    if armed_now(lease, ledger) != armed:
        now = timeline.Guarded(
            armed=armed.state == "armed",
            ends_the_meter=armed.ends_the_meter,
            when_done=armed.when_done,
            until=armed.until,
            words=armed.words,
        )
        ledger.note(lease.id, now, at=ledger.now())


def last_armed(lease: Lease, ledger: Ledger) -> GuardState | None:
    """Return the last recorded state of the lease's guard, even if the box was stopped or taken since.

    None if there is no record since we last started the box.
    """
    return _state(story_of(ledger.events(lease.id)).guard.last)


def armed_now(lease: Lease, ledger: Ledger) -> GuardState | None:
    """Return the present state of the guard on the box, by the ledger's record.

    None if there is no record since the box was last started, stopped or taken.
    """
    return armed_in(ledger.events(lease.id))


def armed_in(events: Lines) -> GuardState | None:
    """Return the same as `armed_now`, from a lease's timeline."""
    return _state(story_of(events).guard.now)


def has_lapsed(lease: Lease, events: Lines) -> bool:
    """Whether the box runs again after a stop, and its guard has not been armed since."""
    story = story_of(events)
    if lease.parked_at is not None or story.box.fate is not None:
        return False
    return story.guard.was_armed and story.guard.now is None


def _state(guarded: timeline.Guarded | None) -> GuardState | None:
    if guarded is None:
        return None
    return GuardState(
        state="armed" if guarded.armed else "not armed",
        ends_the_meter=guarded.ends_the_meter,
        when_done=guarded.when_done,
        until=guarded.until,
        words=guarded.words,
    )


def note_gone(lease: Lease, *, ledger: Ledger) -> None:
    """Record that the guard no longer runs, for example after a reboot, so nothing on the box enforces the deadline."""
    words = "not armed: its guard was gone, as after a reboot"
    armed = GuardState(state="not armed", ends_the_meter=False, words=words)
    record(lease, armed, ledger=ledger)
