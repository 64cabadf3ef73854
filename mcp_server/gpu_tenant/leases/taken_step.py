"""What is next for work whose box was taken: on that box when it runs again, or elsewhere, where it may have gone."""

from collections.abc import Sequence
from datetime import datetime

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.interruption import cut_off_at, notice_on_record, recorded_fate, went_on
from gpu_tenant.domain.model import Fate, Lease, LeaseState
from gpu_tenant.domain.policy import LookedAfter
from gpu_tenant.domain.reconcile import way_on, ways_on
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.leases.end_reserve import resume_step
from gpu_tenant.ledger import Ledger

WAY_HOME_H = 0.05
"""So long a box whose work went on elsewhere has to run at least, to be collected and ended."""


def went_on_words(events: Lines) -> str | None:
    """Say what took the lease's box, and under which lease its work went on. None if it did not go on."""
    told = went_on(events)
    if told is None:
        return None
    why = f" ({told.fate})" if told.fate else ""
    return f"its provider took its box{why}, and its work went on under {told.by}"


def left_behind_step(
    lease: Lease, events: Lines, now: datetime, unclaimed: Sequence[str] = ()
) -> str | None:
    """Return what ends a box whose work went on elsewhere. None if it did not, or the lease has ended.

    `unclaimed` are patterns for the files on it that nobody has claimed, as far as they are known.
    """
    words = went_on_words(events)
    if words is None or lease.state is not LeaseState.ACTIVE:
        return None
    return f"{end_step(lease, events, now, unclaimed)}: {words}"


def end_step(lease: Lease, events: Lines, now: datetime, unclaimed: Sequence[str] = ()) -> str:
    """Return what ends a box whose work goes on elsewhere, or is about to.

    A file that nobody has claimed prevents the teardown. So the collect claims those that are known; it names others
    itself.
    """
    home, end = (
        Command("collect", lease.id, artifact=list(unclaimed)),
        Command("teardown", lease.id),
    )
    if recorded_fate(events) == "host_lost":
        return f"{end} gives up the box, and says what is lost with it"
    ends = f"{home}, then {end}"
    if lease.parked_at is not None or recorded_fate(events) is not None:
        on = resume_step(lease, events, now, hours=WAY_HOME_H)
        ends = f"{on}, then {ends}"
    return ends


def recovers_words(lease: Lease, fate: Fate | None, looked_after: LookedAfter) -> str | None:
    """Say that a watchdog continues the work of a box that was taken. None if nobody does that unasked."""
    if looked_after != "watched" or fate is None or way_on(lease, fate) != "recover":
        return None
    return "nothing to do: the watchdog continues its work at another box, as its terms say"


def taken_step(lease: Lease, events: Lines, job: str, now: datetime, again: Command) -> str | None:
    """Return what is next for that job, if its box was taken, or is about to be. None if it was not.

    `again` launches the job again on a box that runs again.
    """
    told = went_on(events)
    if told is not None:
        return f"{Command('monitor', str(told.by))}: {went_on_words(events)}"
    if lease.state is not LeaseState.ACTIVE or lease.parked_at is not None:
        return None
    fate = recorded_fate(events)
    if fate is not None:
        by_itself = ": a watchdog does that by itself" if way_on(lease, fate) == "recover" else ""
        return f"{ways_on(lease, fate, resume_step(lease, events, now))}{by_itself}; its box does not run ({fate})"
    if notice_on_record(events) is not None and lease.quote is not None:
        return (
            f"{Command('recover', lease.id)} goes on at another box: its platform is taking this one back; or, once it is "
            f"stopped, {resume_step(lease, events, now)}"
        )
    if cut_off_at(events, job) is not None:
        return f"{again} again continues from what its disk kept; or {Command('collect', lease.id)}"
    return None


def known_unclaimed(ledger: Ledger, lease: Lease) -> list[str]:
    """Return patterns for the files on the lease's box that nobody has claimed, as of its newest seal."""
    unclaimed = ledger.unclaimed(lease.id)
    if unclaimed is None:
        return []
    from gpu_tenant.artifacts.collect import unclaimed_patterns

    return unclaimed_patterns(lease, unclaimed)
