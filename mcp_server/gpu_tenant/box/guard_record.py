"""What the guard on a box last undertook, as it is on record. Nobody is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_tenant.domain import timeline
from gpu_tenant.domain.protection import Armed

if TYPE_CHECKING:
    from gpu_tenant.domain.model import Lease
    from gpu_tenant.ledger import Ledger


def record(lease: Lease, armed: Armed, *, ledger: Ledger) -> None:
    """The state of the guard is on the timeline, if it has changed."""
    now = timeline.Guarded(
        armed=armed.state == "armed", ends_the_meter=armed.ends_the_meter, words=armed.words
    )
    said = ledger.events(lease.id, timeline.Guarded)
    if not said or said[-1].event != now:
        ledger.note(lease.id, now, at=ledger.now())


def last_armed(lease: Lease, ledger: Ledger) -> Armed | None:
    """What the guard of that lease said last. None if none was armed since the box was started."""
    for _, event in reversed(ledger.events(lease.id, timeline.Guarded, timeline.Resumed)):
        if isinstance(event, timeline.Resumed):
            return None  # the guard is a process, and ended when the box was stopped
        if isinstance(event, timeline.Guarded):
            return Armed(
                state="armed" if event.armed else "not armed",
                ends_the_meter=event.ends_the_meter,
                words=event.words,
            )
    return None


def note_gone(lease: Lease, *, ledger: Ledger) -> None:
    """It is on record that nothing on the box holds the deadline any more, for example after a reboot."""
    words = "not armed: its guard was gone, as after a reboot"
    armed = Armed(state="not armed", ends_the_meter=False, words=words)
    record(lease, armed, ledger=ledger)
