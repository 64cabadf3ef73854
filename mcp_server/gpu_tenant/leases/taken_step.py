"""Says the next step for work whose box was taken: on that box, if it runs again, or on another box."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.end_reserve import resume_step, start_words
from gpu_tenant.domain.interruption import (
    cut_off_at,
    is_being_taken,
    notice_on_record,
    recorded_fate,
    taken_words,
    went_on,
)
from gpu_tenant.domain.model import Fate, Lease, LeaseState
from gpu_tenant.domain.next_step import BringHome, End, StartAgain
from gpu_tenant.domain.parked import read_in_notice
from gpu_tenant.domain.policy import LookedAfter
from gpu_tenant.domain.reconcile import way_on, ways_on
from gpu_tenant.domain.rental import over_words, rental_is_over
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.ledger import Ledger

WAY_HOME_H = 0.05
"""A box whose work went on elsewhere must run for at least this many hours to be collected and ended."""


def went_on_words(events: Lines) -> str | None:
    """Say how the lease's box was taken, and under which lease its work went on. None if it did not go on."""
    told = went_on(events)
    if told is None:
        return None
    why = f" ({told.fate})" if told.fate else ""
    return f"its provider took its box{why}, and its work went on under {told.by}"


def left_behind_step(
    lease: Lease, events: Lines, now: datetime, unclaimed: Sequence[str] = ()
) -> str | None:
    """Return the next step to end a box whose work went on elsewhere. None if it did not, or if the lease has ended.

    `unclaimed` are patterns for the files on the box that nobody has claimed, as far as they are known.
    """
    words = went_on_words(events)
    if words is None or lease.state is not LeaseState.ACTIVE:
        return None
    return f"{end_step(lease, events, now, unclaimed)}: {words}"


def left_behind(lease: Lease, events: Lines) -> End | StartAgain | BringHome:
    """Return what `left_behind_step` says, as a value."""
    fate = recorded_fate(events)
    if fate == "host_lost" or (fate == "preempted" and read_in_notice(events) is not None):
        return End(lease.id)
    if lease.parked_at is not None or fate is not None:
        return StartAgain(lease.id, "end")
    return BringHome(lease.id)


def end_step(lease: Lease, events: Lines, now: datetime, unclaimed: Sequence[str] = ()) -> str:
    """Return the commands that end a box whose work goes on elsewhere, or will.

    A file that nobody has claimed prevents the teardown. So the `collect` command claims the known files of this kind
    (`unclaimed`). It names others when it runs.
    """
    home, end = (
        Command("collect", lease.id, artifact=list(unclaimed)),
        Command("teardown", lease.id),
    )
    if recorded_fate(events) == "host_lost":
        return f"{end} gives up the box, and says what is lost with it"
    keeps = (
        "" if unclaimed else f", with {Option('artifact', 'FILE')} for what it names as unclaimed"
    )
    ends = f"{home}{keeps}, then {end}"
    if recorded_fate(events) == "preempted" and read_in_notice(events) is not None:
        return (
            f"{end} ends it without a start, because the whole box was read before it was stopped"
        )
    if lease.parked_at is not None or recorded_fate(events) is not None:
        if rental_is_over(lease, now):
            return start_words(lease, events, now, "")
        ends = f"{start_step(lease, events, now)}, then {ends}"
    return ends


def start_step(lease: Lease, events: Lines, now: datetime) -> Command:
    """Return the command that starts the stopped box of that lease, with the options that its terms need.

    If the work went on elsewhere, the box is started only for a short time, to be collected and ended.
    """
    if went_on(events) is not None:
        return resume_step(lease, events, now, hours=WAY_HOME_H)
    return resume_step(lease, events, now)


def stops_at(events: Lines, notice_s: float | None) -> datetime | None:
    """Return until when a box with notice from its platform will answer. None if there is no notice."""
    heard = notice_on_record(events)
    return None if heard is None or notice_s is None else heard.at + timedelta(seconds=notice_s)


def stops_words(events: Lines, notice_s: float | None, now: datetime) -> str | None:
    """Say until when a box with notice from its platform will answer. None if there is no notice, or if it is over."""
    until = stops_at(events, notice_s)
    if until is None or not is_being_taken(events, now):
        return None
    left_s = round((until - now).total_seconds())
    if left_s <= 0:
        return "its box stops at any moment; after that, it must be started again to be read"
    return f"its box stops about {until:%H:%M:%S} UTC, in {left_s} s; after that, it must be started again to be read"


def notice_step(
    lease: Lease,
    events: Lines,
    notice_s: float | None,
    now: datetime,
    unclaimed: Sequence[str] = (),
) -> str | None:
    """Say until when a box with notice will answer, and which command to run before then. None if there is no notice.

    While a job on the box still saves, nothing can be collected. `unclaimed` are patterns for the files on the box that
    nobody has claimed.
    """
    stops, heard = stops_words(events, notice_s, now), notice_on_record(events)
    if stops is None or heard is None or lease.state is not LeaseState.ACTIVE:
        return None
    home = Command("collect", lease.id, artifact=list(unclaimed))
    keeps = (
        "" if unclaimed else f", with {Option('artifact', 'FILE')} for what it names as unclaimed"
    )
    when = "before that" if heard.ended or not heard.jobs else "before that, once its job has saved"
    return f"{stops}; {when}: {home}{keeps}"


def recovers_words(lease: Lease, fate: Fate | None, looked_after: LookedAfter) -> str | None:
    """Say that a watchdog will continue the work of a box that was taken. None if no watchdog does this."""
    if looked_after != "watched" or fate is None or way_on(lease, fate) != "recover":
        return None
    return "nothing to do: the watchdog continues its work at another box, as its terms say"


def taken_step(
    lease: Lease,
    events: Lines,
    job: str,
    now: datetime,
    again: Command,
    *,
    before: str | None = None,
) -> str | None:
    """Return the next step for that job, if its box was taken or will be. None otherwise.

    `again` is the command that launches the job again once the box runs again. `before` says what to do on a box that
    is about to be taken.
    """
    told = went_on(events)
    if told is not None:
        return f"{Command('monitor', str(told.by))}: {went_on_words(events)}"
    if lease.state is not LeaseState.ACTIVE or lease.parked_at is not None:
        return None
    fate = recorded_fate(events)
    if fate is not None:
        by_itself = ": a watchdog does that by itself" if way_on(lease, fate) == "recover" else ""
        if rental_is_over(lease, now):
            return f"{Command('recover', lease.id)}{by_itself}; {over_words(lease)}"
        return f"{ways_on(lease, fate, resume_step(lease, events, now))}{by_itself}; its box does not run: {taken_words(fate)}"
    if notice_on_record(events) is not None and lease.quote is not None:
        return (
            f"{Command('recover', lease.id)} goes on at another box: its platform is taking this one back; or, once it is "
            f"stopped, {resume_step(lease, events, now)}"
            f"{f'; {before}' if before else ''}"
        )
    if cut_off_at(events, job) is not None:
        return f"{again} again continues from what its disk kept; or {Command('collect', lease.id)}"
    return None


def known_unclaimed(ledger: Ledger, lease: Lease) -> list[str]:
    """Return patterns for the files on the lease's box that nobody has claimed, as far as they are known."""
    if ledger.unclaimed(lease.id) is None:
        return []
    from gpu_tenant.artifacts.unclaimed import unclaimed_now, unclaimed_patterns

    unclaimed = unclaimed_now(ledger, lease)
    return [] if unclaimed is None else unclaimed_patterns(lease, unclaimed)
