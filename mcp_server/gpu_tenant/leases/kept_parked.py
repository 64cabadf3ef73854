"""Says why a parked box is kept, and what the next step is. Every user interface shows these words."""

from collections.abc import Sequence
from datetime import datetime

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.next_step import AskForFiles, End, StartAgain
from gpu_tenant.domain.parked import read_at_stop, why_kept
from gpu_tenant.domain.rental import rental_is_over
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.leases.end_reserve import resume_step, start_words


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
    if kept.given_up:
        return f"it was kept, because {kept.lost}, which has been given up since"
    if kept.missing:
        return f"it is kept, because {kept.lost}"
    return f"it is kept, because this would be lost: {kept.lost}" if kept.lost else ""


def parked_next(lease: Lease, events: Lines) -> End | AskForFiles | StartAgain:
    """Return what `parked_step` says, as a value."""
    kept, read = why_kept(events), read_at_stop(events)
    if read is not None and kept.given_up:
        return End(lease.id)
    if read is not None and kept.missing:
        return AskForFiles(lease.id, kept.missing)
    return StartAgain(lease.id, "end")


def parked_step(lease: Lease, events: Lines, now: datetime, unclaimed: Sequence[str] = ()) -> str:
    """Return the commands that collect the files of a parked box and end it.

    A file that nobody has claimed prevents the teardown. So the `collect` command has patterns for the known files of
    this kind (`unclaimed`). If there are none, the words name the option for such files.
    """
    kept, read = why_kept(events), read_at_stop(events)
    if rental_is_over(lease, now):
        return start_words(lease, events, now, "")
    end = Command("teardown", lease.id)
    home = str(Command("collect", lease.id, artifact=list(unclaimed)))
    if unclaimed:
        home += f" (or {Option('discard')} instead of {Option('artifact')}, which gives up what it names)"
    else:
        home += f", with {Option('artifact', 'FILE')} for what it names as unclaimed"
    gives_up = Command("collect", lease.id, discard=list(kept.missing)) if kept.missing else None
    if read is not None and kept.given_up:
        return f"{end}: the box is ended without being started"
    if read is not None and gives_up is not None:
        return (
            f"{gives_up} gives that up, then {end} ends the lease without starting its box, because the whole "
            f"box was read before its stop; or {resume_step(lease, events, now)} continues the lease"
        )
    on = resume_step(lease, events, now)
    if gives_up is not None:
        return f"{on}, then {gives_up}, which gives that up, then {end}"
    return f"{on}, then {home}, then {end}"
