"""What ends a lease's bill if this computer is gone, and what does not, as sentences.

The program does exactly what these sentences say.
"""

import ipaddress
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import JsonValue

from gpu_tenant.domain.fact_life import asks_to_read_again, stop_is_in_doubt
from gpu_tenant.domain.model import Fate, Lease, LeaseState, LocalAddress, Profile, SshAddress
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.survival import kept_by_a_stop, lost_by_a_stop, stop_keeps

END_GRACE_S = 60
"""How long a job may take to end when the guard asks it to.

This is short enough that the bill stops at most two minutes after the guard starts to end the box, if no files have to
be copied first.
"""

WATCHED_S = 90
"""For this many seconds after somebody looked at the box, its guard does not end it, because they may look again.

A watchdog looks once a minute.
"""

LAST_RESORT_S = 900
"""The guard waits at most this long after the deadline for a watchdog to end the lease.

Then it stops the box itself.
"""

UNSEEN_DONE_S = 120
"""An unwatched box is stopped this many seconds after its last job has ended.

If the store has no proved copy of the work by then, the box waits for one. A watchdog asks each box more often than
this, so it comes first.
"""


class GuardState(Record):
    """What the guard on the box will do, as far as this was tested. The state may be that no guard is armed."""

    state: Literal["armed", "not armed"]
    ends_the_meter: bool
    when_done: bool = False
    """Whether the guard also stops the box when its work is done and nobody looks."""
    has_old_instructions: bool = False
    """Whether the guard still follows older instructions, because it could not be told about later changes."""
    is_kept_from_store: bool = False
    """Whether it cannot copy the artifacts to the store."""
    until: datetime | None = None
    """Until when it lets the jobs run."""
    words: str


class Protection(Record):
    """What ends the bill of a box if this computer dies."""

    kind: Literal[
        "provider timer", "in-box credential", "in-box poweroff", "nothing needed", "nothing"
    ]
    words: str


def protection(
    profile: Profile, lease: Lease, armed: GuardState | None, *, fate: Fate | None = None
) -> Protection:
    """Return what ends the bill if this computer dies.

    `armed` is None while no guard is on the box, because the box does not exist yet, or was stopped since. `fate`
    says how the box was lost, for example because its host failed. None if it was not lost.
    """
    ends = _ends(profile, lease, armed, fate)
    if fate is not None or lease.parked_at is not None or not lease.state.live:
        return ends
    return ends.model_copy(update={"words": ends.words + _after_work(profile, lease, armed, ends)})


def stops_when_done(profile: Profile, lease: Lease) -> bool:
    """Whether the guard on the box may stop it before the deadline, when its work is done and nobody watches it.

    It may if a stop keeps the box's disk, and the lease has a store to which the work is copied first.
    """
    way = way_out(profile, lease)
    is_kept = way is not None and way["on"] == "keep"
    return is_kept and lease.terms.store is not None and lease.terms.when_done != "keep"


def _after_work(profile: Profile, lease: Lease, armed: GuardState | None, ends: Protection) -> str:
    """Say what is billed when the box's work is done and nobody looks after it any more."""
    if lease.terms.when_done == "keep" or ends.kind == "nothing needed" or profile.kind == "own":
        return ""
    if stops_when_done(profile, lease) and (armed is None or armed.when_done):
        return (
            "; when its work is done and nobody watches it, the box is stopped "
            f"{UNSEEN_DONE_S // 60} min after its last job, but not before {lease.terms.store} has a proved copy"
        )
    usd_h = _usd_h(lease)
    rate = "at an unknown rate" if usd_h is None else f"{usd_h} USD/h"
    until = f"{lease.terms.deadline_at:%Y-%m-%d %H:%M} UTC"
    way = way_out(profile, lease)
    if ends.kind == "nothing":
        until = "somebody ends it"
    elif ends.kind != "provider timer" and way is not None and way["on"] == "waive":
        until = f"{until}, and then until its rescue sum is spent, which pays for saving its files"
    return f"; when its work is done and nobody watches it, it bills {rate} until {until}"


def _ends(
    profile: Profile, lease: Lease, armed: GuardState | None, fate: Fate | None
) -> Protection:
    if profile.kind == "own" and _usd_h(lease) and lease.state.live:
        return Protection(
            kind="nothing",
            words=f"nothing ends the bill: only the machine's owner can stop its {_usd_h(lease)} USD/h; "
            "the guard on it stops the jobs",
        )
    if profile.kind == "own" or _usd_h(lease) == 0:
        return Protection(kind="nothing needed", words="nobody bills for it")
    if not lease.state.live:
        return Protection(
            kind="nothing needed", words="nothing has to end the bill: the lease has ended"
        )
    if lease.state is LeaseState.ACTIVE and (lease.parked_at is not None or fate is not None):
        return _protection_while_stopped(lease, fate)
    if profile.provider_timer != "none" and not _leaves_timer_unset(profile, lease):
        return Protection(kind="provider timer", words=profile.stops_the_meter)
    way = way_out(profile, lease)
    if way is None or (armed is not None and not armed.ends_the_meter):
        return Protection(kind="nothing", words=_nothing(profile, lease, armed))
    kind: Literal["in-box credential", "in-box poweroff"]
    kind = "in-box poweroff" if way["kind"] == "command" else "in-box credential"
    if armed is not None:
        return Protection(kind=kind, words=armed.words)
    does = "stops itself at the deadline"
    if way.get("on") == "waive":
        does = "destroys itself and its disk when its rescue sum is spent, which pays for saving its files after the deadline"
    elif stop_keeps_work(profile, lease):
        does = f"stops itself at the deadline, unless a file that is still needed lies outside of {_kept_words(profile)}"
    return Protection(
        kind=kind,
        words=f"once the box is ready and its guard is armed, it {does}; until the guard is armed, nothing ends the bill",
    )


def _protection_while_stopped(lease: Lease, fate: Fate | None) -> Protection:
    """Return what protects a box that is stopped. It has no guard, because the guard was a process on it."""
    if fate == "host_lost":
        words = "it may still bill, and nothing is known to end that: its provider says that it is broken, and it is unknown whether a guard still runs on it"
        return Protection(kind="nothing", words=words)
    wakes = (
        "; if the box starts by itself, only a watchdog would end its bill"
        if fate is not None
        else ""
    )
    if lease.price_usd_h == 0:
        words = f"while the box is stopped, its provider bills nothing, so nothing has to end the bill{wakes}"
        return Protection(kind="nothing" if wakes else "nothing needed", words=words)
    words = f"nothing ends the bill for its disk: the box is stopped, and its disk bills until a teardown{wakes}"
    return Protection(kind="nothing", words=words)


def _usd_h(lease: Lease) -> Decimal | None:
    """Return what the box bills an hour while it runs.

    A future box has no rate yet, and a parked one has another rate.
    """
    return lease.quote.offer.price.running_usd_h if lease.quote else lease.price_usd_h


def _nothing(profile: Profile, lease: Lease, armed: GuardState | None) -> str:
    if armed is not None and way_out(profile, lease) is not None:
        return f"nothing ends the bill: {armed.words}"
    if profile.outlived:
        words, remedy = asks_to_read_again(profile)
        return f"nothing is known to end the bill: {words}; {remedy}"
    if profile.in_box != "none" and profile.park == "wipes":
        why = f" ({lease.place.why})" if lease.place and lease.place.why else ""
        return f"nothing ends the bill: a stop at {profile.title} empties the disk that the work is on{why}, and nobody has signed for that"
    return (
        f"nothing ends the bill: {profile.title} has no timer, and a box there cannot end its own bill; its "
        "guard stops the jobs, and a watchdog on another computer would end the bill"
    )


def way_out(profile: Profile, lease: Lease) -> Mapping[str, JsonValue] | None:
    """Return how a box of that lease could end its own bill, for `scripts/leave.py`. None if it cannot.

    A stop that may lose what is on the disk does not count, unless the owner has signed for that. A box that could be
    this computer may not switch itself off.
    """
    if profile.kind == "own" or profile.in_box == "none":
        return None
    if profile.in_box == "poweroff":
        if not _stop_keeps_all(profile, lease) or _may_be_here(lease):
            return None
        return {"kind": "command", "command": profile.park_command or "poweroff", "on": "keep"}
    if _stop_keeps_all(profile, lease) or stop_keeps_work(profile, lease):
        return {"kind": profile.id, "on": "keep"}
    return {"kind": profile.id, "on": "waive"} if lease.terms.on_deadline == "waive" else None


def stop_keeps_work(profile: Profile, lease: Lease) -> bool:
    """Whether a stop keeps the lease's directory and empties the rest. If so, the guard first looks at the rest."""
    return profile.park == "wipes" and stop_keeps(profile, lease) == "work"


def _kept_words(profile: Profile) -> str:
    return " and ".join(kept_by_a_stop(profile))


def _stop_keeps_all(profile: Profile, lease: Lease) -> bool:
    """Whether everything written on the box survives a stop, as far as we know."""
    if stop_is_in_doubt(profile):
        return False
    unsure = lost_by_a_stop(profile)
    return profile.park == "keeps" and (not unsure or _has_only_kept_disks(lease))


def _has_only_kept_disks(lease: Lease) -> bool:
    """Whether a stop keeps all disks of the box.

    This is read from the offer: it names a price for the parked box only if a stop keeps all disks.
    """
    return lease.quote is not None and lease.quote.offer.price.parked_usd_h is not None


def _leaves_timer_unset(profile: Profile, lease: Lease) -> bool:
    """Whether the provider's timer is left unset for this box, because it would empty one of the box's disks.

    A timer that the provider always sets itself, such as a walltime, gives False, because it ends every box.
    """
    is_set = profile.provider_timer == "stop"
    return is_set and lease.quote is not None and not _stop_keeps_all(profile, lease)


def _may_be_here(lease: Lease) -> bool:
    """Whether the lease's box may be this computer. `leave.py` checks again, from inside the box."""
    match lease.address:
        case LocalAddress():
            return True
        case SshAddress(target=target):
            host = target.rpartition("@")[2]
            if host.startswith("["):
                host = host[1:].partition("]")[0]
            elif host.count(":") == 1:
                host = host.partition(":")[0]
            try:
                return ipaddress.ip_address(host).is_loopback
            except ValueError:
                return host in ("localhost", "")
        case _:
            return False
