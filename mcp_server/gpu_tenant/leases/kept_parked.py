"""Says why a parked box is kept, and what the next step is. Every user interface shows these words."""

from collections.abc import Sequence
from datetime import datetime

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.end_reserve import resume_step, start_words
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.next_step import End, StartAgain
from gpu_tenant.domain.parked import read_at_stop, why_kept
from gpu_tenant.domain.rental import rental_is_over
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.leases.term_checks import may_start_to_end
from gpu_tenant.ledger import Ledger


def kept_words(lease: Lease, events: Lines) -> str:
    """Say why the box was parked, and why it was not torn down. Empty if nobody tried to end its lease."""
    ending = why_kept(events).ending if lease.parked_at is not None else ""
    parked = f"it was parked by one of its terms; {ending}" if ending else ""
    return "; ".join(filter(None, (parked, not_ended_words(lease, events))))


def not_ended_words(lease: Lease, events: Lines) -> str:
    """Say why the parked box was not torn down. Empty if no teardown was refused."""
    if lease.parked_at is None:
        return ""
    kept = why_kept(events)
    return f"it is kept, because this would be lost: {kept.lost}" if kept.lost else ""


def parked_next(lease: Lease, events: Lines) -> End | StartAgain:
    """Return what `parked_step` says, as a value."""
    return End(lease.id) if read_at_stop(events) is not None else StartAgain(lease.id, "end")


def parked_step(lease: Lease, events: Lines, now: datetime, unclaimed: Sequence[str] = ()) -> str:
    """Return the commands that collect the files of a parked box and end it.

    A file that nobody has claimed prevents the teardown. So the `collect` command has patterns for the known files of
    this kind (`unclaimed`). If there are none, the words name the option for such files.
    """
    if rental_is_over(lease, now):
        return start_words(lease, events, now, "")
    end = Command("teardown", lease.id)
    home = str(Command("collect", lease.id, artifact=list(unclaimed)))
    if unclaimed:
        home += f" (or {Option('discard')} instead of {Option('artifact')}, which gives up what it names)"
    else:
        home += f", with {Option('artifact', 'FILE')} for what it names as unclaimed"
    if read_at_stop(events) is not None:
        return f"{end}: the box is ended without being started"
    if may_start_to_end(lease, events, now) and not lease.goes_by_address:
        return (
            f"{Command('watchdog', once=True)} starts it once more, proves its files and ends it; "
            f"or {resume_step(lease, events, now)} continues the lease"
        )
    return f"{resume_step(lease, events, now)}, then {home}, then {end}"


def only_there(lease: Lease, ledger: Ledger) -> str | None:
    """Warn the owner of a parked box which files are only on its disk. None if the box was not used."""
    if lease.parked_at is None or lease.touched_at is None:
        return None
    collected = ledger.seal(lease.id)
    what = (
        "nothing on the box was collected"
        if collected is None
        else "what was written after the last collect"
    )
    words = f"{what}: those files are only on that disk, and a start may find no GPU free"
    if lease.goes_by_address:
        words += (
            "; we believe that it is stopped only because it does not answer: its console shows whether it "
            "bills"
        )
    return words
