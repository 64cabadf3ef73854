"""Updates leases by what their providers show.

Every process that looks at a lease does this, so no single process is indispensable.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from gpu_tenant.box.guard_record import last_armed
from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing import newest_bill
from gpu_tenant.domain.billing_start import birth
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.cost_uncertainty import late_start, late_stop, unseen_start
from gpu_tenant.domain.end_reserve import start_words
from gpu_tenant.domain.errors import BoxTaken, LeaseHeld, PartlyListed, ProviderTrouble
from gpu_tenant.domain.ids import new_id
from gpu_tenant.domain.interruption import TURNS, fate, recorded_fate, went_on
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxState, Lease, LeaseId, LeaseState
from gpu_tenant.domain.offers import Leftover
from gpu_tenant.domain.parked import permitted
from gpu_tenant.domain.policy import LookedAfter, running_usd_h
from gpu_tenant.domain.ports import Connector, Residue, Tended
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.domain.reconcile import (
    BindBox,
    DeclareLost,
    FileReceipt,
    FinishTeardown,
    Listed,
    LookAgain,
    News,
    RaiseAlarm,
    Rest,
    VoidIntent,
    news,
    overdue,
    plan,
    rate_words,
)
from gpu_tenant.domain.rental import rental_has_moved, rental_is_over
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.terms import Terms
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.wording import usd_words
from gpu_tenant.leases.account_check import is_asking_noted
from gpu_tenant.leases.billing import (
    BILLED_WITHIN,
    ask_bills,
    billed_more,
    may_be_billed,
)
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.duplicates import Look, nobody_looks, unasked_words, was_asked_for
from gpu_tenant.leases.host_memory import remember, remember_fate
from gpu_tenant.leases.missing_boxes import (
    by_its_id,
    come_back,
    missed_once,
    note_unseen_boot,
    stand_on,
)
from gpu_tenant.leases.provider_listing import Listing, boxes_of, is_of, look, patience
from gpu_tenant.leases.ssh_access import forget_host_key
from gpu_tenant.leases.taken_step import (
    known_unclaimed,
    left_behind_step,
    recovers_words,
    start_step,
)
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.response_limits import await_list

if TYPE_CHECKING:
    from gpu_tenant.box.ownership import Seen

_ORPHAN_TERMS_H = 24
_LOOKS_ON_RECORD = timedelta(minutes=10)
"""Looks that find all as recorded are themselves recorded this far apart."""
_LIST_LATE_S = 60
"""A provider's list may be this many seconds older than its answer, besides the lag in its profile."""
PATIENCE_S = 40
"""A caller that waits for all providers waits at most this many seconds for each one.

An agent's host gives up on a call after a minute.
"""
_MARK = re.compile(
    rf"{MARK_PREFIX}(?:(?P<deployment>[0-9a-f]{{6}}):)?(?P<lease>[a-z][a-z0-9_]*-[a-z0-9]+)"
)
"""The form of our marks: labels by which we know our boxes.

Anybody can write a label, and a lease's id becomes part of a path. So a label of any other form is ignored.
"""


def deployment_of(box: Box) -> str | None:
    """Return which gpu-tenant installation the box's mark names. None if it names none."""
    marked = _MARK.fullmatch(box.mark or "")
    return marked["deployment"] if marked else None


def is_as_recorded(context: Context, lease: Lease, listing: Listing) -> bool:
    """Whether the list shows the lease's running box exactly as the ledger has it.

    If so, `settle` would change nothing.
    """
    ledger, profile = context.ledger, context.profile(lease.provider)
    box = next((box for box in listing.boxes if is_of(box, lease)), None)
    if box is None or box.state is not BoxState.READY or box.taken is not None:
        return False
    return (
        lease.lets_us_in
        and listing.asked_at >= lease.created_at
        and plan(lease, Listed(box), ledger.now(), patience(profile, lease)) == Rest()
        and news(lease, box) == News()
        and recorded_fate(ledger.events(lease.id)) is None
        and not ledger.absences(lease.id)
        and is_asking_noted(context, lease)
        and not _is_look_due(ledger, lease, ledger.now())
    )


def _is_look_due(ledger: Ledger, lease: Lease, now: datetime) -> bool:
    """Whether a look that finds all as recorded is to be recorded, because the last one on record is old.

    What a box costs that is found stopped or started later is in doubt since then.
    """
    seen_at = ledger.last_listed(lease.id)
    return seen_at is None or now - seen_at >= _LOOKS_ON_RECORD


async def settle(
    context: Context,
    lease: Lease,
    *,
    listing: Listing | None = None,
) -> tuple[Lease, str | None]:
    """Update the lease by what its provider's list shows. Return the lease, and what a person must hear about it.

    `listing` is that list, if the caller has just fetched it. Nothing is destroyed here. A teardown that was cut short
    is only reported, because the `teardown` command has to prove again that nothing would be lost.
    """
    profile, connector = context.profile(lease.provider), context.connector(lease)
    ledger = context.ledger
    lease = ledger.lease(
        lease.id
    )  # Another task may have ended it while this one waited for its turn.
    while True:
        if not lease.state.live:
            return lease, None
        seen = await look(context, lease, listing=listing)
        listing = None
        now = ledger.now()
        told = None
        if isinstance(seen, Listed) and lease.state in (LeaseState.ACTIVE, LeaseState.TERMINATING):
            if rental_has_moved(lease, seen.box.rental_ends_at):
                assert seen.box.rental_ends_at is not None
                lease = ledger.note_rental_end(lease.id, seen.box.rental_ends_at)
            lease, started = _note_turn(context, lease, seen.box, now)
            if lease.state is LeaseState.ACTIVE:
                _note_fate(context, lease, seen.box)
            lease, told = observe(lease, seen.box, ledger=ledger, looked_after=context.looked_after)
            told = "; ".join(filter(None, (started, told))) or None
            is_sure = seen.box.state in (BoxState.READY, BoxState.PARKED)
            if is_sure and _is_look_due(ledger, lease, now):
                ledger.saw(lease.id, listed="listed", at=now)
        match plan(lease, seen, now, patience(profile, lease)):
            case Rest():
                return lease, told
            case RaiseAlarm(words=words):
                moved = went_on(ledger.events(lease.id)) if isinstance(seen, Listed) else None
                if moved is not None:
                    words = overdue(lease, now, went_on_under=moved.by) or words
                return lease, f"{words}; {told}" if told else words
            case LookAgain(at=at):
                if at > now:
                    return lease, missed_once(lease, at, ledger)
            case BindBox(box=box):
                lease = stand_on(context, lease, box, asked_at=lease.created_at)
            case VoidIntent():
                lease = ledger.end(lease.id, "void", at=now)
            case DeclareLost():
                there = await by_its_id(lease, connector)
                if isinstance(there, str):
                    return lease, there
                if there is None:
                    remember(
                        lease, "vanished", "its provider no longer lists the box", ledger=ledger
                    )
                    return ledger.end(
                        lease.id, "lost", at=now
                    ), "the box is gone, and this program did not end it"
                ledger.saw(lease.id, listed="listed", at=now)
                lease, told = observe(
                    lease, there, ledger=ledger, looked_after=context.looked_after
                )
                words = (
                    f"its provider's list omits the box, but the provider shows it when asked for the box by its id: the "
                    f"list is late, and the box bills {rate_words(lease)}"
                )
                return lease, f"{words}; {told}" if told else words
            case FinishTeardown():
                if isinstance(connector, Tended) and connector.tends(lease.box_id):
                    return lease, (
                        f"its box may be billing {rate_words(lease)} until a person ends it: "
                        f"{Command('teardown', lease.id)} looks once more and says how to do that; then "
                        f"{Command('teardown', lease.id, ended=True)}"
                    )
                return lease, f"its teardown was cut short: {Command('teardown', lease.id)} again"
            case FileReceipt() as step:
                from gpu_tenant.leases.teardown import file_receipt

                await file_receipt(context, lease, step)
                lease = ledger.lease(lease.id)


def _note_turn(context: Context, lease: Lease, box: Box, now: datetime) -> tuple[Lease, str | None]:
    """Record that the box was stopped or started since the last look, whoever did it.

    Returns the lease, and what a person must hear of it. A stop of an active lease's box that nobody here asked for is
    not recorded here: it is the box's fate.
    """
    ledger = context.ledger
    if was_asked_to_stop(lease, box, ledger=ledger):
        _note_late_stop(ledger, lease, box)
        return note_stopped(ledger, lease, box), None
    ends = (
        lease.state is LeaseState.TERMINATING
        and box.state is BoxState.PARKED
        and permitted(ledger.events(lease.id)) is not None
    )
    if (stop := _stopped_itself(lease, box, now, ledger=ledger)) is not None:
        words = f"its guard stopped its box: {stop.words}"
        ledger.note(lease.id, stop, at=now)
        _note_late_stop(ledger, lease, box)
        return ledger.note_parked(lease.id, box.price_usd_h, at=now), words
    if ends and lease.parked_at is None:
        # Nothing continues on a box whose teardown has begun, so it does not matter who has stopped it.
        _note_late_stop(ledger, lease, box)
        return ledger.note_parked(lease.id, box.price_usd_h, at=now), None
    if box.state is not BoxState.READY or box.taken is not None or lease.parked_at is None:
        return lease, None
    turns = ledger.events(lease.id, timeline.Parked, timeline.Resuming)
    is_our_start = bool(turns) and isinstance(turns[-1].event, timeline.Resuming)
    late_s = _LIST_LATE_S + patience(context.profile(lease.provider), lease).list_lag_s
    if not is_our_start and now - lease.parked_at <= timedelta(seconds=late_s):
        return lease, None  # A late list still shows the box as it was before its stop.
    # Nobody can undo this start, so the lease goes on like one that was resumed: its terms hold, and every verb works.
    usd_h = box.price_usd_h or running_usd_h(lease)
    if not is_our_start:
        lease = _note_late_start(ledger, lease, usd_h, now)
    lease = ledger.note_resumed(lease.id, usd_h, at=now)
    forget_host_key(context, lease)
    who = "it was asked to start"
    if not is_our_start:
        who = "it has its GPU back" if box.interruptible else "somebody has started it"
    return lease, f"its box was parked, and {who}: it bills {rate_words(lease)}"


def observe(
    lease: Lease, box: Box, *, ledger: Ledger, looked_after: LookedAfter = "unwatched"
) -> tuple[Lease, str | None]:
    """Record what the provider shows of the box. Return the lease, and what a person must hear."""
    events = ledger.events(lease.id)
    seen = news(
        lease,
        box,
        recorded_fate(events),
        guard_stops=_guard_stops(lease, events, ledger.now()),
        on=left_behind_step(lease, events, ledger.now(), known_unclaimed(ledger, lease))
        or recovers_words(lease, recorded_fate(events), looked_after)
        or (
            start_words(lease, events, ledger.now(), "")
            if rental_is_over(lease, ledger.now())
            else None
        ),
        resume=start_step(lease, events, ledger.now()),
    )
    if seen.usd_h is not None:
        if box.state not in (BoxState.READY, BoxState.BOOTING):
            _note_late_stop(ledger, lease, box)
        if lease.price_usd_h is not None:
            change = timeline.Priced(was=str(lease.price_usd_h), now=str(seen.usd_h))
            ledger.note(lease.id, change, at=ledger.now())
        since = ledger.now()
        if lease.ready_at is None and seen.usd_h > (lease.price_usd_h or 0) and lease.rates:
            # The box went from booting to running while nobody looked. Assume the earliest possible time, which costs
            # the most.
            looked_at = ledger.last_listed(lease.id) or since
            since = max(looked_at, lease.rates[-1].at)
            doubt = unseen_start(lease, usd_h=seen.usd_h, since=since, now=ledger.now())
            if doubt is not None:
                ledger.note(lease.id, doubt, at=ledger.now())
        lease = ledger.note_rate(lease.id, seen.usd_h, at=since)
    if seen.address is not None:
        lease = ledger.note_address(lease.id, seen.address)
    return lease, seen.words


def _note_late_stop(ledger: Ledger, lease: Lease, box: Box) -> None:
    """Record the doubt about the cost of a box that stopped while nobody looked."""
    asked = ledger.events(lease.id, timeline.Parking, *TURNS)
    asked_at = asked[-1].at if asked and isinstance(asked[-1].event, timeline.Parking) else None
    doubt = late_stop(
        lease,
        ledger.events(lease.id),
        usd_h=box.price_usd_h,
        asked_at=asked_at,
        listed_at=ledger.last_listed(lease.id),
        now=ledger.now(),
    )
    if doubt is not None:
        ledger.note(lease.id, doubt, at=ledger.now())


def _note_late_start(ledger: Ledger, lease: Lease, usd_h: Decimal | None, now: datetime) -> Lease:
    """Count what a box bills that somebody has started from the earliest possible time, and record the doubt."""
    since = max(lease.rates[-1].at, ledger.last_listed(lease.id) or lease.rates[-1].at)
    doubt = late_start(lease, usd_h=usd_h, since=since, now=now)
    if doubt is None or usd_h is None:
        return lease
    ledger.note(lease.id, doubt, at=now)
    return ledger.note_rate(lease.id, usd_h, at=since)


def note_stopped(ledger: Ledger, lease: Lease, box: Box) -> Lease:
    """Record that the box was stopped as we had asked, at the rate that it bills now."""
    if lease.parked_at is not None:
        return lease
    quoted = lease.quote.offer.price.parked_usd_h if lease.quote else None
    rate = quoted if box.price_usd_h is None else box.price_usd_h
    return ledger.note_parked(lease.id, rate, at=ledger.now())


def was_asked_to_stop(lease: Lease, box: Box, *, ledger: Ledger) -> bool:
    """Whether the box is stopped because we asked for it, and the stop is not recorded yet."""
    if box.state is not BoxState.PARKED or lease.parked_at is not None:
        return False
    told = ledger.events(lease.id, timeline.Parking, timeline.RunsOn, timeline.Resuming, *TURNS)
    return bool(told) and isinstance(told[-1].event, timeline.Parking)


def _stopped_itself(
    lease: Lease, box: Box, now: datetime, *, ledger: Ledger
) -> timeline.StoppedByGuard | None:
    """Return for which term the guard on the box stopped it, as the guard had promised. None if it did not.

    If that is doubtful, this is None: a stop by the guard looks the same as a stop by the provider, and a person must
    hear of every stop by the provider.
    """
    armed, events = last_armed(lease, ledger), ledger.events(lease.id)
    if armed is None or not armed.ends_the_meter or recorded_fate(events) is not None:
        return None
    if box.state is not BoxState.PARKED or box.taken is not None or lease.parked_at is not None:
        return None
    deadline_at = lease.terms.deadline_at
    if armed.until is not None and armed.until < deadline_at and armed.until <= now:
        words = f"at {armed.until:%Y-%m-%d %H:%M} UTC its budget paid only for its end"
        return timeline.StoppedByGuard(term="budget", words=words)
    if now >= deadline_at:
        words = f"its deadline was {deadline_at:%Y-%m-%d %H:%M} UTC"
        return timeline.StoppedByGuard(term="deadline", words=words)
    idle_h, since = lease.terms.idle_h, _idle_since(lease, events)
    if idle_h is None or lease.terms.when_idle != "end" or since is None:
        return None
    if now - since < timedelta(hours=idle_h):
        return None
    return timeline.StoppedByGuard(term="idle", words=f"idle for {idle_h:g} h")


_WORK = (
    timeline.Launched,
    timeline.Pushed,
    timeline.Prepared,
    timeline.SettingUp,
    timeline.SetUp,
    timeline.Ready,
    timeline.Resumed,
)


def _idle_since(lease: Lease, events: Lines) -> datetime | None:
    """Return since when the box has had no work, as far as is recorded. None if a job may have run on."""
    jobs = story_of(events).jobs
    if any(job.launched_at is not None and not job.has_ended for job in jobs):
        return None
    times = [at for at, x in events if isinstance(x, _WORK)]
    times += [job.ended_at for job in jobs if job.ended_at is not None]
    return max(times, default=lease.ready_at)


def _guard_stops(lease: Lease, events: Lines, now: datetime) -> str:
    """Say for which term the guard may have stopped the box before its deadline. Empty if it promised none."""
    told, terms = story_of(events).guard.last, lease.terms
    if told is None or not told.ends_the_meter:
        return ""
    if told.when_done:
        return "if its work was done"
    is_long = now - (lease.ready_at or lease.created_at) >= timedelta(hours=terms.idle_h or 0)
    if terms.idle_h is not None and terms.when_idle == "end" and is_long:
        return f"if it was idle for {terms.idle_h:g} h"
    return ""


def _note_fate(context: Context, lease: Lease, box: Box) -> None:
    """Record how the box was taken, or that it runs again. Nothing is recorded twice."""
    profile, ledger = context.profile(lease.provider), context.ledger
    guard_stops = _guard_stops(lease, ledger.events(lease.id), ledger.now())
    met = fate(lease, profile, box, now=ledger.now(), guard_stops=guard_stops)
    if met is None and box.state is not BoxState.READY:
        return  # Nothing is known about the box's fate.
    known = recorded_fate(ledger.events(lease.id))
    if known is not None and box.state is BoxState.BROKEN and box.taken is None:
        return  # A box that starts again may still be shown as its stop has left it.
    if (met.fate if met else None) != known:
        told = timeline.Taken(fate=None)
        if met is not None:
            told = timeline.Taken(fate=met.fate, words=met.words)
            if met.fate != "stopped_by_provider" or not guard_stops:
                remember_fate(lease, met, ledger=ledger)
        ledger.note(lease.id, told, at=ledger.now())


# --- the whole account ---------------------------------------------------------------------------


@dataclass(slots=True)
class Survey:
    """What every provider shows, and what of it belongs to no lease."""

    listings: dict[str, Listing] = field(default_factory=dict)
    """The list of each provider that answered."""
    blind: dict[str, str] = field(default_factory=dict)
    """The providers that did not answer, and why."""
    leftovers: list[Leftover] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """The providers that answered, but did not say what bills there besides boxes."""
    alarms: list[tuple[str, str]] = field(default_factory=list)
    strays: list[Box] = field(default_factory=list)
    """Boxes that are listed although our receipt says that they are gone. Their meters may be running."""
    foreign: list[Box] = field(default_factory=list)
    """Boxes without our mark: they belong to somebody else and are never touched."""


async def survey(
    context: Context,
    *,
    at: Collection[str] | None = None,
    look: Look = nobody_looks,
    twins: Literal["give_back", "tell"] = "give_back",
    patience_s: float = PATIENCE_S,
) -> Survey:
    """Ask every provider once. Put every box with our mark under a lease, or report it.

    If `at` is given, only those providers are asked. Each one has `patience_s` to answer. A provider that
    takes longer counts as blind, and delays no other.

    A twin is a second box that a provider made for one request of a lease in this ledger. The lease has the first box.
    If a `look` at the twin shows that nobody used it, it is given back, or only reported, as `twins` says. If a box
    has the mark of a lease that did not ask for it (for example a clone), it is reported and left alone. Any other box
    without a lease counts as used from the start, because nobody knows what it is for.
    """
    found, ledger = Survey(), context.ledger
    connectors = {slug: of for slug, of in context.connectors.items() if at is None or slug in at}

    async def ask(provider: str, connector: Connector) -> None:
        try:
            asked_at = ledger.now()
            boxes = await await_list(connector.list_boxes(), "its list")
            found.listings[provider] = Listing(boxes, asked_at)
        except PartlyListed as part:
            found.listings[provider] = Listing(boxes_of(part), asked_at, part.message)
            found.alarms.append((provider, part.message))
        except ProviderTrouble as error:
            found.blind[provider] = error.message
            found.alarms.append((provider, f"does not answer: {error.message}"))
            return
        try:
            if isinstance(connector, Residue):
                found.leftovers += await connector.leftovers()
        except ProviderTrouble as error:
            # The provider's list of boxes still counts.
            found.unseen.append(provider)
            found.alarms.append(
                (provider, f"what bills there besides boxes is unknown: {error.message}")
            )
        rented = ledger.leases_at(provider, ended_since=ledger.now() - BILLED_WITHIN)
        await ask_bills(context, provider, rented)
        found.alarms += _billed_late(rented, ledger=ledger)

    async def ask_safely(provider: str, connector: Connector) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await ask(provider, connector)
        except TimeoutError:
            if provider in found.listings:
                found.unseen.append(provider)
                found.alarms.append(
                    (provider, "what bills there besides boxes is unknown: too slow")
                )
            else:
                words = f"it has not answered within {patience_s:g} s"
                found.blind[provider] = words
                found.alarms.append((provider, f"does not answer: {words}"))
        except Exception as error:  # noqa: BLE001 - one provider's unforeseen answer must not hide the others
            found.listings.pop(provider, None)
            found.blind[provider] = f"its answer was not understood ({type(error).__name__})"
            found.alarms.append((provider, f"asking it failed: {error!r}"))

    async with asyncio.TaskGroup() as asking:
        for provider, connector in connectors.items():
            asking.create_task(ask_safely(provider, connector))
    for provider, listing in found.listings.items():
        for box in listing.boxes:
            lost = ledger.lost_on(provider, box.id)
            if lost is not None and is_of(box, lost):
                found.alarms += come_back(lost, ledger=ledger)
            marked = _MARK.fullmatch(box.mark or "")
            is_ours = marked is not None and marked["deployment"] in (None, ledger.deployment)
            if not is_ours and ledger.lease_on(provider, box.id) is not None:
                continue  # The box was adopted, and keeps whatever mark it had.
            if marked is None:
                found.foreign.append(box)
            elif marked["deployment"] not in (None, ledger.deployment):
                found.foreign.append(box)
                found.alarms.append((box.id, _another_s(box, marked["deployment"], ledger=ledger)))
            else:
                try:
                    words = await _take_up(
                        context,
                        box,
                        LeaseId(marked["lease"]),
                        twins=twins,
                        strays=found.strays,
                        look=look,
                    )
                except ProviderTrouble as error:
                    words = (box.id, f"{error.message}; {error.remedy}")
                except (BoxTaken, LeaseHeld):
                    words = None  # Another process is working on the box's lease.
                except Exception as error:  # noqa: BLE001 - one box's failure must not hide the other boxes either
                    words = (box.id, f"the box could not be put under a lease: {error!r}")
                if words is not None:
                    found.alarms.append(words)
    return found


def _billed_late(leases: Sequence[Lease], *, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Report what was billed for boxes that are gone, if it is more than their receipts say.

    The bill of a live box is shown on its card.
    """
    now = ledger.now()
    for lease in leases:
        if not lease.state.live and lease.box_id is not None and may_be_billed(lease, now):
            words = billed_more(lease, newest_bill(ledger.events(lease.id, timeline.Billed)), now)
            if words is not None:
                yield lease.id, words


async def _take_up(
    context: Context,
    box: Box,
    named: LeaseId,
    *,
    twins: Literal["give_back", "tell"],
    strays: list[Box],
    look: Look,
) -> tuple[str, str] | None:
    """Put the box under a lease, if it has none. Return what a person must hear: a lease or a box, and words."""
    ledger, profile = context.ledger, context.profile(box.provider)
    # Search by provider and id: two providers may use the same id.
    standing = ledger.lease_on(box.provider, box.id)
    if standing is not None and standing.id == named:
        return None
    # Read the ledger after the list, because a lease is written down before its box is made. Then ask once more which
    # lease has the box, because one may have been bound to it since.
    known = ledger.find_lease(named)
    standing = ledger.lease_on(box.provider, box.id)
    if standing is None:
        if known is None or known.mark != box.mark or known.provider != box.provider:
            return _adopt(context, box, named)
        if known.state is LeaseState.INTENDED:
            # The lease is bound to the box by the call that asked for the box, or when the lease is settled.
            return None
        if known.box_id == box.id:
            strays.append(box)
            return known.id, _back(known)
        if not was_asked_for(context, box, known, seen_at=ledger.now()):
            return box.id, unasked_words(box, known)
        # The provider carried out a request twice, or after we had given it up. The box gets a lease of its own,
        # because only leases are billed and protected here.
        now = ledger.now()
        since = birth(box, asked_at=known.created_at, now=now, list_lag_s=profile.list_lag_s).at
        standing = ledger.take_up(
            box,
            lease_id=LeaseId(new_id(known.provider, ledger.lease_ids())),
            terms=known.terms.model_copy(update={"on_deadline": "keep"}),
            at=now,
            touched_at=None,
            since=since,
        )
        note_unseen_boot(standing, box, known.quote, since=since, ledger=ledger, at=now)
    # A person may have given this mark to a box of another lease. Such a box is no twin, even if it is unused.
    is_twin = known is not None and standing.id != named and standing.mark == box.mark
    if not is_twin or standing.touched_at is not None:
        return None
    assert known is not None
    if not was_asked_for(context, box, known, seen_at=standing.created_at):
        return standing.id, unasked_words(box, known)
    twin = f"{box.id} carries the mark of {named}, which asked for one box"
    if twins == "tell":
        return (
            standing.id,
            f"{twin}: {Command('teardown', standing.id)} gives it back, if nobody used it",
        )
    with ledger.hold(standing.id, "give back", at=ledger.now()):
        standing = ledger.lease(standing.id)
        if not standing.state.live or standing.touched_at is not None:
            return None  # Another process was quicker.
        seen = await look(standing, box)
        from gpu_tenant.box.ownership import Marked, use

        why = use(seen)
        if why is not None:
            words = (
                f"{twin}; this box is kept, because {why}: it bills {rate_words(standing)}; "
                f"{Command('teardown', standing.id)} says what would be lost"
            )
            if isinstance(seen, Marked):
                # Record the use now. A person who is logged in now may be gone at the next look.
                ledger.touch(standing.id, at=ledger.now())
                ledger.note(standing.id, timeline.Noticed(words=words), at=ledger.now())
            return standing.id, words
        receipt = await return_unused(context, standing, seen)
    cost = usd_words(receipt.spent_usd, "an unknown sum")
    return standing.id, f"{twin}; nobody used this box, and it was given back, for {cost}"


async def return_unused(context: Context, lease: Lease, seen: Seen) -> Receipt:
    """Destroy the unused box of a lease, with a permit on the ground *never used*. Return the receipt.

    Raises:
        Unverified: the box was used.
        ProviderTrouble: the box is not proved gone, and may still bill.
    """
    from gpu_tenant.leases.teardown import tear_down
    from gpu_tenant.leases.verify import prove_unused

    return await tear_down(context, prove_unused(lease, seen), lease)


def _adopt(context: Context, box: Box, named: LeaseId) -> tuple[str, str]:
    ledger, profile = context.ledger, context.profile(box.provider)
    now = ledger.now()
    # It is not known when the box was asked for, but its provider may know when it was made.
    born = birth(box, asked_at=box.created_at or now, now=now, list_lag_s=profile.list_lag_s)
    taken = ledger.lease_ids()
    lease = ledger.take_up(
        box,
        lease_id=named if named not in taken else LeaseId(new_id(box.provider, taken)),
        terms=Terms(deadline_at=now + timedelta(hours=_ORPHAN_TERMS_H)),
        at=now,
        touched_at=now,
        since=born.at,
    )
    note_unseen_boot(lease, box, None, since=born.at, ledger=ledger, at=now)
    words = (
        "this box carries our mark, but no lease in the ledger was on it: it is under a lease again"
    )
    ledger.note(lease.id, timeline.Noticed(words=words), at=now)
    return lease.id, words


def _another_s(box: Box, deployment: str, *, ledger: Ledger) -> str:
    if ledger.is_salvaged:  # the ledger may have lost the name of its own deployment
        return (
            f"a box at {box.provider} carries the mark of the deployment {deployment}, which may be this damaged "
            "ledger's own: it was left alone, and may be billing"
        )
    return (
        f"a box at {box.provider} is another gpu-tenant's (deployment {deployment}), and was left alone; "
        f"if that gpu-tenant no longer exists: {Command('adopt', box.id, on=box.provider, take_over=deployment)}"
    )


def _back(ended: Lease) -> str:
    return (
        f"its lease is {ended.state}, and {ended.provider} lists its box again: its meter may be running,"
        f" and only you can end the box, where you rented it; {Command('adopt', ended.box_id, on=ended.provider)}"
        " puts the box under a new lease"
    )
