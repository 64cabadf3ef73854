"""What to do next about a lease, given what its provider shows. The decision is pure, and always one step."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal, NamedTuple, assert_never

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.interruption import who_stopped_it
from gpu_tenant.domain.model import Address, Box, BoxState, Fate, Lease, LeaseState


@dataclass(frozen=True, slots=True)
class Listed:
    """The provider's list shows the box."""

    box: Box


@dataclass(frozen=True, slots=True)
class Omitted:
    """The provider's list does not show the box.

    `looks` are the times of all looks since the list last showed the box.
    """

    looks: Sequence[datetime]
    listed_at: datetime | None = None
    """When the list last showed the box, or the provider last showed the box when asked for its id."""


@dataclass(frozen=True, slots=True)
class Blind:
    """The provider did not answer. A box that cannot be seen is not dead."""

    reason: str
    words: str | None = None
    """What a person must be told if the provider's list may be that of another account."""


Seen = Listed | Omitted | Blind


@dataclass(frozen=True, slots=True)
class Rest:
    """There is nothing to do."""


@dataclass(frozen=True, slots=True)
class RaiseAlarm:
    """A person must hear of this. Nothing is done to the box."""

    words: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """One absence proves nothing. Look once more, not before `at`."""

    at: datetime


@dataclass(frozen=True, slots=True)
class BindBox:
    """The box of this intent exists: record it."""

    box: Box


@dataclass(frozen=True, slots=True)
class VoidIntent:
    """The intent never became a box."""


@dataclass(frozen=True, slots=True)
class DeclareLost:
    """The box is gone, and we did not end it."""


@dataclass(frozen=True, slots=True)
class FinishTeardown:
    """A destroy was permitted and the box is still there. Prove the ground again, then destroy again."""


@dataclass(frozen=True, slots=True)
class FileReceipt:
    """A destroy was permitted and the box is gone, seen twice."""

    looks: Sequence[datetime]


Step = (
    Rest
    | RaiseAlarm
    | LookAgain
    | BindBox
    | VoidIntent
    | DeclareLost
    | FinishTeardown
    | FileReceipt
)


class Patience(NamedTuple):
    """How long a provider's list may lag behind the truth, from its profile."""

    list_lag_s: float
    """How long a box may exist before it is listed. Until then its absence proves nothing."""
    confirm_s: float
    """The least time between two looks that prove that a box is gone, if the box was listed before."""


def plan(lease: Lease, seen: Seen, now: datetime, patience: Patience) -> Step:
    """Return the one next step for `lease`."""
    if not lease.state.live:
        return Rest()
    match seen:
        case Blind(reason=reason, words=words):
            what = words or f"{lease.provider} does not answer ({reason})"
            return RaiseAlarm(f"{what}; the box may be running, {rate_words(lease)}")
        case Listed(box=box):
            return _present(lease, box, now)
        case Omitted():
            return _absent(lease, seen, now, patience)


def rate_words(lease: Lease) -> str:
    """Return what the lease costs now, as part of a sentence."""
    return "at an unknown rate" if lease.price_usd_h is None else f"at {lease.price_usd_h} USD/h"


GOES_ON: frozenset[Fate] = frozenset(
    {"preempted", "outbid", "host_lost", "balance_zero", "walltime"}
)
"""The fates after which work continues elsewhere. A stop that a person may have wanted is not among them.

After a stop of that kind, the box's disk is kept, and `resume` starts the box.
"""


def way_on(lease: Lease, fate: Fate | None) -> Literal["recover", "resume"]:
    """Decide how a stopped box's work continues.

    The work continues on another box if the box was used, was taken from us, and the terms allow it.
    Otherwise the work continues on the same box.
    """
    elsewhere = lease.terms.recover and lease.touched_at is not None and fate in GOES_ON
    return "recover" if elsewhere else "resume"


def ways_on(lease: Lease, fate: Fate | None, resume: Command) -> str:
    """Return the command that continues the work of a box that was taken. If there are two ways, return both commands.

    `resume` is the command that starts the box, with the options that its terms require.
    """
    on, elsewhere = resume, Command("recover", lease.id)
    may_go = lease.touched_at is not None and lease.quote is not None and fate in GOES_ON
    if way_on(lease, fate) == "recover" or (may_go and fate == "host_lost"):
        return str(elsewhere)
    return f"{on}, or {elsewhere} at another box" if may_go else str(on)


class News(NamedTuple):
    """What the provider shows about a lease's box that the ledger does not know yet."""

    usd_h: Decimal | None = None
    address: Address | None = None
    words: str | None = None
    """What a person must be told. None if there is nothing."""


def news(
    lease: Lease,
    box: Box,
    fate: Fate | None = None,
    *,
    guard_stops: str = "",
    on: str | None = None,
    resume: Command | None = None,
) -> News:
    """Return how the box differs from its record in the ledger. `fate` is what took the box, if that is known.

    `guard_stops` says in words when the guard on the box may have stopped it. Empty if it stops nothing now. `on` says what is to
    be done about a stopped box. `resume` is the command that starts the box, with the options that its terms require.
    """
    price = box.price_usd_h
    moved = price if price is not None and price != lease.price_usd_h else None
    if moved is not None and box.state is BoxState.BOOTING and lease.lets_us_in:
        # This list was made before the box let us in, or the box starts again and soon costs the same.
        moved = None if moved < (lease.price_usd_h or 0) else moved
    words = []
    cap = lease.quote.cap_usd_h if lease.quote else lease.terms.max_price_usd_h
    if price is not None and cap is not None and price > cap:
        words.append(f"it costs {price} USD/h, above the cap of {cap} USD/h")
    if box.state is BoxState.PARKED and lease.parked_at is None:
        how = {
            "recover": "continues its work elsewhere",
            "resume": "starts it if its GPU is free, with what its disk kept",
        }
        way = way_on(lease, fate)
        who = who_stopped_it(fate, guard_stops)
        step = Command("recover", lease.id)
        if way == "resume":
            step = resume or Command("resume", lease.id)
        words.append(f"{who}; a parked box still bills: {on or f'{step} {how[way]}'}")
    if box.state is BoxState.BOOTING and box.taken is not None:
        words.append("it was taken back, and waits to start again")
    if box.state is BoxState.READY and lease.parked_at is not None:
        words.append("it runs again although it was parked")
    if box.state in (BoxState.BROKEN, BoxState.UNKNOWN):
        words.append(f"its provider calls it {box.state}")
    # A provider's words about a box that runs are rare, and always mean that something is odd.
    if box.words and (words or box.state is BoxState.READY):
        words.append(box.words)
    return News(
        usd_h=moved,
        address=box.address if box.address not in (None, lease.address) else None,
        words="; ".join(words) or None,
    )


def _present(lease: Lease, box: Box, now: datetime) -> Step:
    if lease.state is LeaseState.INTENDED:
        return BindBox(box)
    if lease.state is LeaseState.TERMINATING:
        return FinishTeardown()
    words = overdue(lease, now)
    return RaiseAlarm(words) if words else Rest()


def overdue(lease: Lease, now: datetime, *, went_on_under: str | None = None) -> str | None:
    """Return in words which of its terms the lease has exceeded. None if it has exceeded none.

    `went_on_under` is the lease that continues its work, and that took over most of its budget.
    """
    cost, terms = lease.cost_usd(now), lease.terms
    outrun = []
    if now >= terms.deadline_at:
        outrun.append(f"the deadline passed at {terms.deadline_at:%Y-%m-%d %H:%M} UTC")
    if cost is not None and terms.budget_usd is not None and cost >= terms.budget_usd:
        outrun.append(
            f"the budget of {terms.budget_usd} USD is spent ({cost:.2f})"
            if went_on_under is None
            else f"its work went on under {went_on_under}, and the part of the budget that this lease kept is spent"
        )
    return "; ".join(outrun) or None


def _absent(lease: Lease, seen: Omitted, now: datetime, patience: Patience) -> Step:
    lag, looks = timedelta(seconds=patience.list_lag_s), seen.looks
    # A box that was never listed may still appear. A box that was listed needs two absences, far enough apart.
    never_listed = lease.state is LeaseState.INTENDED
    apart = lag if never_listed else timedelta(seconds=patience.confirm_s)
    # The box may have been made long after the intent, if its provider kept us waiting.
    born_at = lease.active_at or lease.created_at
    if lease.state is LeaseState.ACTIVE and seen.listed_at is not None:
        # The list's lag counts from when the box was last shown, which may be later than the start of its billing.
        born_at = max(born_at, seen.listed_at)
    believed_at = max([born_at + lag, *(look + apart for look in looks[:1])])
    if len(looks) < 2:
        return LookAgain(max(believed_at, now + min(apart, lag)))
    if looks[-1] < believed_at:
        return LookAgain(max(believed_at, now))
    match lease.state:
        case LeaseState.INTENDED:
            return VoidIntent()
        case LeaseState.ACTIVE:
            return DeclareLost()
        case LeaseState.TERMINATING:
            return FileReceipt(looks)
        case LeaseState.GONE | LeaseState.VOID | LeaseState.LOST:
            return Rest()
        case _:
            assert_never(lease.state)
