"""Records in the ledger what the guard on a box will do, and reads this record. The box is not asked."""

from __future__ import annotations

from collections.abc import Iterable
from types import UnionType
from typing import TYPE_CHECKING

from gpu_tenant.domain import timeline
from gpu_tenant.domain.interruption import recorded_fate
from gpu_tenant.domain.protection import GuardState
from gpu_tenant.domain.timeline import Lines

if TYPE_CHECKING:
    from gpu_tenant.domain.model import Lease
    from gpu_tenant.ledger import Ledger

STATES = (timeline.Guarded, timeline.Resumed, timeline.Parked, timeline.Taken)
"""The events that `armed_in` needs."""


def record(lease: Lease, armed: GuardState, *, ledger: Ledger) -> None:
    """Record the state of the guard, if it has changed, or if the box was started again since the last record."""
    if armed_now(lease, ledger) != armed:
        now = timeline.Guarded(
            armed=armed.state == "armed",
            ends_the_meter=armed.ends_the_meter,
            when_done=armed.when_done,
            words=armed.words,
        )
        ledger.note(lease.id, now, at=ledger.now())


def last_armed(lease: Lease, ledger: Ledger) -> GuardState | None:
    """Return the last recorded state of the lease's guard, even if the box was stopped or taken since.

    None if there is no record since we last started the box.
    """
    return _last_state(reversed(ledger.events(lease.id, *STATES)), until=timeline.Resumed)


def armed_now(lease: Lease, ledger: Ledger) -> GuardState | None:
    """Return the present state of the guard on the box, by the ledger's record.

    None if there is no record since the box was last started, stopped or taken.
    """
    return armed_in(ledger.events(lease.id, *STATES))


def armed_in(events: Lines) -> GuardState | None:
    """Return the same as `armed_now`, from a lease's timeline."""
    # The guard is a process, so it ends when the box is stopped, whoever stops it.
    return _last_state(reversed(events), until=timeline.Resumed | timeline.Parked | timeline.Taken)


def has_lapsed(lease: Lease, events: Lines) -> bool:
    """Whether the box runs again after a stop, and its guard has not been armed since."""
    if lease.parked_at is not None or recorded_fate(events) is not None:
        return False
    guarded = any(isinstance(event, timeline.Guarded) for _, event in events)
    return guarded and armed_in(events) is None


def _last_state(events: Iterable[timeline.Line], *, until: type | UnionType) -> GuardState | None:
    for _, event in events:
        if isinstance(event, until):
            return None
        if isinstance(event, timeline.Guarded):
            return GuardState(
                state="armed" if event.armed else "not armed",
                ends_the_meter=event.ends_the_meter,
                when_done=event.when_done,
                words=event.words,
            )
    return None


def note_gone(lease: Lease, *, ledger: Ledger) -> None:
    """Record that the guard no longer runs, for example after a reboot, so nothing on the box enforces the deadline."""
    words = "not armed: its guard was gone, as after a reboot"
    armed = GuardState(state="not armed", ends_the_meter=False, words=words)
    record(lease, armed, ledger=ledger)
