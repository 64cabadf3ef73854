"""Rents a box under a lease. The lease is recorded before the box exists. The provider's list shows what exists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.end_reserve import QuotedBudget, shortest_h
from gpu_tenant.domain.errors import (
    AnotherBox,
    BadRequest,
    BoxTrouble,
    NoCapacity,
    NotReady,
    PriceMoved,
    ProviderSilent,
    ProviderTrouble,
    Refused,
)
from gpu_tenant.domain.gpu_memory import MemoryTest
from gpu_tenant.domain.ids import new_id
from gpu_tenant.domain.model import (
    Address,
    Box,
    BoxState,
    Lease,
    LeaseId,
    LeaseState,
    Profile,
    SshAddress,
)
from gpu_tenant.domain.offers import Quote
from gpu_tenant.domain.order import AtProvider
from gpu_tenant.domain.policy import must_be_doable
from gpu_tenant.domain.ports import Connector, Market
from gpu_tenant.domain.reconcile import Blind, Listed, Omitted
from gpu_tenant.domain.record import MOST_H
from gpu_tenant.domain.rental import HOME_S, latest_deadline
from gpu_tenant.domain.terms import RentRequest, Terms
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.waiting import wait_for
from gpu_tenant.domain.wording import span, usd_words
from gpu_tenant.files.disk_reserve import keep_reserve
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.account_check import remember
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.host_memory import remember_not_ready
from gpu_tenant.leases.missing_boxes import stand_on
from gpu_tenant.leases.provider_listing import look, note_clock
from gpu_tenant.leases.settle import observe, settle
from gpu_tenant.ledger import Allowed, Ledger, has_smoke

if TYPE_CHECKING:
    from gpu_tenant.jobs.smoke import SmokeReceipt
    from gpu_tenant.leases.cards import Card

DEADLINE_H = 24
"""The default deadline in hours. It is a day, because eight hours would end most overnight runs."""

_POLL_S = 5
YOUNG_LAGS = 5
"""A missing box is not replaced while it is younger than this many times the lag of the provider's list."""
_PATIENCE_S = 60
_ADDRESS_WITHIN_S = 180
"""A box that runs for so long without an address for ssh gets none any more: its host has no public port."""
_NO_ADDRESS = "it runs, and its provider shows no address for ssh"
_DEADLINE_FACTOR = 1.5
"""The default deadline of a rented box, as a multiple of the hours of work."""

_LEAST_PART = 0.5
"""A budget must pay for at least this part of the hours of work.

This does not hold for an errand (a `run` command): its plan says which hours are not paid for, and the owner agrees.
"""

_SMOKE_COUNTS_FOR = timedelta(days=7)


def intend(
    context: Context,
    provider: str,
    *,
    asked: RentRequest,
    price_usd_h: Decimal | None,
    address: Address | None,
    allowed: Allowed,
    fleet: str | None = None,
    recovers: LeaseId | None = None,
) -> Lease:
    """Record the intent to rent, with the terms that apply from now on. No box exists for it yet.

    Raises:
        BadRequest: the hours do not lead to a time in the future.
        Limit: the owner's limits leave no room for such a lease.
        Refused: the price is above the cap; or the price is unknown, and there is a cap or a budget.
    """
    profile, ledger = context.profile(provider), context.ledger
    hours = DEADLINE_H if asked.hours is None else asked.hours
    must_be_hours(hours)
    max_price_usd_h, budget_usd = asked.max_price_usd_h, asked.budget_usd
    if price_usd_h is None and (max_price_usd_h is not None or budget_usd is not None):
        raise Refused(
            "the price is unknown, so no cap and no budget can be checked",
            remedy=f"state what the box costs with {Option('price-usd-h')}, or drop "
            f"{Option('max-price-usd-h')} and {Option('budget-usd')}",
        )
    if max_price_usd_h is not None and price_usd_h is not None and price_usd_h > max_price_usd_h:
        raise Refused(
            f"{price_usd_h} USD/h is above the cap of {max_price_usd_h} USD/h",
            remedy=f"raise {Option('max-price-usd-h')}, or take a cheaper box",
        )
    now = ledger.now()
    terms = asked.terms(
        deadline_at=now + timedelta(hours=hours),
        max_price_usd_h=max_price_usd_h,
        meter="free" if profile.kind == "own" and price_usd_h is None else "billed",
        machine="own" if profile.kind == "own" else "rented",
    )
    must_be_doable(terms, profile)
    return ledger.intend(
        lease_id=new_lease_id(ledger, profile.id),
        provider=profile.id,
        terms=terms,
        address=address,
        price_usd_h=price_usd_h,
        at=now,
        fleet=fleet,
        recovers=recovers,
        errand=asked.errand,
        labels=asked.labels,
        allowed=allowed,
    )


def intend_quote(
    context: Context,
    quote: Quote,
    *,
    asked: RentRequest,
    asked_at: datetime | None = None,
    fleet: str | None = None,
    wish: str | None = None,
    smoke: str | None = None,
    instead_of: Sequence[str] = (),
    allowed: Allowed,
    signed: Sequence[str] = (),
) -> Lease:
    """Record the intent to rent exactly what was quoted. `wish` is the standing wish that it fulfils.

    `asked_at` is when the caller named the quote. It is earlier than now if other quotes were tried first. `smoke` is
    the smoke test that was named for the box, if any. If the caller wants one box by any of several quotes,
    `instead_of` names all of them.

    Raises:
        BadRequest: the hours do not lead to a time in the future.
        Refused: the quote has expired, or the hours would cost more than the budget.
        QuoteUsed: the quote has rented a box that may still exist.
        Limit: the owner's limits leave no room for such a lease.
    """
    profile, ledger = context.profile(quote.offer.provider), context.ledger
    now = ledger.now()
    if (asked_at or now) >= quote.expires_at:
        raise Refused(
            f"the quote {quote.id} was good until {quote.expires_at:%H:%M} UTC",
            remedy=f"{Command('offers')} makes new quotes",
        )
    must_be_hours(_deadline_h(quote, asked))
    _must_outlast_start(quote, asked)
    price, budget_usd = quote.offer.price.running_usd_h, asked.budget_usd
    # If the lease ends before the work is done, only the hours of the lease are paid.
    worked_h = quote.wish.hours if asked.hours is None else min(quote.wish.hours, asked.hours)
    if budget_usd is not None and (price is None or price * Decimal(str(worked_h)) > budget_usd):
        cost = "an unknown sum" if price is None else usd_words(price * Decimal(str(worked_h)))
        paid = None if price is None else QuotedBudget(quote, budget_usd, hours=worked_h)
        raise Refused(
            f"{worked_h:g} hours of work alone would cost {cost}, and the budget is {budget_usd} USD",
            remedy=paid.remedy(Option("budget-usd", paid.enough), least_h=shortest_h(quote.offer))
            if paid
            else f"{Command('offers')} shows boxes whose price is known",
        )
    if budget_usd is not None:
        least_h = 0.0 if asked.errand is not None else worked_h * _LEAST_PART
        paid = QuotedBudget(quote, budget_usd, hours=worked_h)
        _must_pay_for_work(paid, least_h, shortest_h(quote.offer))
    latest = latest_deadline(quote.offer, rented_at=now)
    if latest is not None and latest < now + timedelta(hours=worked_h):
        raise Refused(
            f"the box is offered for {quote.offer.max_hours:.2g} hours, and its lease ends {HOME_S // 60} min before that, "
            f"to bring its files home; the work takes {worked_h:g}",
            remedy=f"{Command('offers')} shows other boxes",
        )
    if quote.wish.order.volumes:
        from gpu_tenant.leases.volumes import must_be_free

        must_be_free(context, profile.id, quote.wish.order)
    terms = terms_by_quote(quote, asked, now)
    must_be_doable(terms, profile)
    return ledger.intend(
        lease_id=new_lease_id(ledger, profile.id),
        provider=profile.id,
        terms=terms,
        address=SshAddress(target=quote.offer.id) if profile.lease == "adopted" else None,
        price_usd_h=price,
        quote=quote,
        at=now,
        fleet=fleet,
        wish=wish,
        errand=asked.errand,
        labels=asked.labels,
        smoke=None if smoke == "none" else smoke,
        instead_of=instead_of,
        allowed=allowed,
        signed=signed,
    )


def _must_outlast_start(quote: Quote, asked: RentRequest) -> None:
    """Require that the deadline leaves time for work after the box has started.

    Raises:
        Refused: it would pass while the box still starts, or right after. The remedy names the shortest useful time.
    """
    hours, least = _deadline_h(quote, asked), shortest_h(quote.offer)
    if hours >= least:
        return
    raise Refused(
        f"{hours:g} h are {span(hours * 3600)}, and such a box takes about {span(quote.offer.setup_s)} to start: its "
        "deadline would pass before the box is up, or before a job could save anything",
        remedy=f"the same line with {Option('hours', f'{least:g}')}, or more",
    )


def _must_pay_for_work(budget: QuotedBudget, least_h: float, shortest_h: float) -> None:
    """Require that a budget pays for some work, and for at least `least_h` hours of it.

    The remedy never proposes a deadline below `shortest_h` hours.

    Raises:
        Refused: it does not. The remedy names a sum that is enough.
    """
    if budget.paid_h > 0 and budget.paid_h >= least_h:
        return
    raise Refused(
        f"the budget is {budget.words}",
        remedy=budget.remedy(Option("budget-usd", budget.enough), least_h=shortest_h),
    )


def terms_by_quote(quote: Quote, asked: RentRequest, now: datetime) -> Terms:
    """Return the terms of a lease that is rented by this quote at `now`."""
    price = quote.offer.price.running_usd_h
    deadline_at = now + timedelta(hours=_deadline_h(quote, asked))
    latest = latest_deadline(quote.offer, rented_at=now)
    # The box is rented as it was quoted, so the order comes from the quote.
    return asked.model_copy(update={"order": quote.wish.order}).terms(
        deadline_at=deadline_at if latest is None else min(deadline_at, latest),
        max_price_usd_h=None if price is None else quote.cap_usd_h,
        meter="billed",
    )


def _deadline_h(quote: Quote, asked: RentRequest) -> float:
    if asked.hours is not None:
        return asked.hours
    worked_h, price = quote.wish.hours, quote.offer.price.running_usd_h
    deadline_h = max(worked_h * _DEADLINE_FACTOR, worked_h + 1)
    if asked.budget_usd is None or not price:
        return deadline_h
    # Not every guard can end the bill when the budget is spent. If nobody watches, the deadline enforces it too.
    return min(deadline_h, max(worked_h, float(asked.budget_usd / price)))


def must_be_hours(hours: float) -> None:
    """Check that a deadline in that many hours is in the future, and not too far away.

    Raises:
        BadRequest: it does not.
    """
    if not 0 < hours <= MOST_H:
        raise BadRequest(
            f"a lease cannot last {hours:g} hours",
            remedy=f"give {Option('hours')} as a number above 0, {MOST_H} at most",
        )


def new_lease_id(ledger: Ledger, provider: str) -> LeaseId:
    """Make a lease id that is easy to say and not in use: the provider and four letters."""
    return LeaseId(new_id(provider, ledger.lease_ids()))


async def fulfil(context: Context, lease: Lease) -> Lease:
    """Create the box for the intent and bind the lease to it, or make the lease void.

    Raises:
        NoCapacity, NoQuota, NoFunds, PriceMoved, ...: no box was made, and the lease is void.
        ProviderSilent: it is unknown whether a box was made. The lease stays an intent, and the next look finds out.
        BoxTaken: another live lease has the box.
    """
    context.must_record()
    if context.profile(lease.provider).kind != "own" or lease.price_usd_h:
        keep_reserve(context.home.root)
    connector, ledger = context.connector(lease), context.ledger
    try:
        await _ask_the_price_again(lease, connector)
        await remember(context, lease)
        wait_for(f"{context.profile(lease.provider).title} makes the box of {lease.id}")
        asked_at = ledger.now()
        box = await connector.create(lease)
        note_clock(context, lease)
    except ProviderSilent as silence:
        return await find_out(context, lease, silence)
    except ProviderTrouble:
        ledger.end(lease.id, "void", at=ledger.now())
        raise
    bound = stand_on(context, lease, box, asked_at=asked_at)
    # Some accounts can be recognised only by something that the first creation of a box leaves there.
    await remember(context, bound)
    return bound


async def _ask_the_price_again(lease: Lease, connector: Connector) -> None:
    """Check that the quoted box is still offered, at no more than the cap.

    Raises:
        NoCapacity: it is no longer offered.
        PriceMoved: its price is above the cap now.
    """
    quote = lease.quote
    if quote is None or not isinstance(connector, Market):
        return
    offers = await connector.offers(quote.wish.model_copy(update={"offer": quote.offer.id}))
    now = next((offer for offer in offers if offer.id == quote.offer.id), None)
    if now is None:
        raise NoCapacity(
            f"the offer of {quote.id} is gone",
            remedy=f"{Command('offers')} shows what there is now",
        )
    price = now.price.running_usd_h
    if now.price.source != "owner" and (price is None or price > quote.cap_usd_h):
        raise PriceMoved(
            f"{quote.offer.gpu} at {quote.offer.provider} now costs {price or 'an unknown number of'} USD/h, "
            f"but the cap is {quote.cap_usd_h} USD/h; nothing was rented",
            remedy=f"{Command('offers')} shows what there is now",
        )


async def find_out(context: Context, lease: Lease, silence: ProviderSilent) -> Lease:
    """Find out whether a request without a clear answer has made a box. If so, bind the lease to it.

    Raises:
        ProviderSilent: no box was made, or the list did not show it in time.
    """
    profile, ledger = context.profile(lease.provider), context.ledger
    give_up_at = ledger.now() + timedelta(seconds=3 * profile.list_lag_s + _PATIENCE_S)
    while ledger.now() < give_up_at:
        lease, _ = await settle(context, lease)
        if lease.state is LeaseState.ACTIVE:
            return lease
        if not lease.state.live:
            raise silence
        await ledger.clock.sleep(max(_POLL_S, profile.list_lag_s / 8))
    silence.remedy = f"a box may exist under {lease.id}: {Command('leases')} looks again"
    raise silence


async def make_ready(
    context: Context, lease: Lease, *, reach: Callable[[Lease], Awaitable[None]], wait_s: float
) -> Lease:
    """Wait, at most `wait_s`, until the box lets us in, and pin its host key.

    If a provider says *running*, the box may still not be *ready*. It is ready when `reach` gets an answer from the box
    itself. If it is not ready after `wait_s`, the lease is returned without `ready_at`.

    Raises:
        NotReady: the box is broken, or was not ready within the platform's boot time.
        PriceMoved: the box costs more than the cap, or is not what was quoted.
        ProviderTrouble: the box is gone.
        BoxTaken, AnotherBox: the machine that answers is not this lease's box.
    """
    profile, ledger = context.profile(lease.provider), context.ledger
    quoted_s = 3 * lease.quote.offer.setup_s if lease.quote else 0
    # Count from when the box was rented or started again, because an earlier call may already have waited.
    begun = ledger.events(lease.id, timeline.Bound, timeline.Resumed)
    began = begun[-1].at if begun else ledger.now()
    runs_since: datetime | None = None
    give_up_at = began + timedelta(seconds=max(profile.boot_timeout_s, quoted_s))
    until = ledger.now() + timedelta(seconds=wait_s)
    last = "its provider has not shown it yet"
    while True:
        wait_for(
            f"the box of {lease.id} boots ({last})",
            ends=f"not in by {give_up_at:%H:%M:%S} UTC: {_given_back(lease)}",
            usd_h=lease.price_usd_h,
        )
        seen = await look(context, lease)
        if isinstance(seen, Blind):
            last = f"{profile.title} does not answer: {seen.reason}"
        elif isinstance(seen, Omitted):
            lease, words = await settle(context, lease)
            if not lease.state.live:
                young = timedelta(seconds=YOUNG_LAGS * profile.list_lag_s)
                remedy = f"{Command('offers')}, and rent another"
                if lease.active_at is not None and ledger.now() - lease.active_at < young:
                    # The box may only be late in the list. A second box would cost as much again.
                    remedy = (
                        f"the box is young, and may only be late in the provider's list: before you rent another, look with {Command('leases')} from "
                        f"{lease.active_at + young:%H:%M} UTC on"
                    )
                raise ProviderTrouble(f"{lease.id}: {words}", remedy=remedy)
        else:
            lease, _ = observe(lease, seen.box, ledger=ledger)
            _must_be_as_quoted(lease, seen.box)
            last = seen.box.words or f"it is {seen.box.state}"
            if seen.box.state is BoxState.BROKEN:
                remember_not_ready(lease, last, ledger=ledger)
                raise _not_ready(lease, last, profile)
            if seen.box.state is BoxState.READY and seen.box.address is None:
                last = seen.box.words or _NO_ADDRESS
                runs_since = seen.box.runs_since or runs_since or ledger.now()
                if ledger.now() >= runs_since + timedelta(seconds=_ADDRESS_WITHIN_S):
                    remember_not_ready(lease, last, ledger=ledger)
                    raise _not_ready(lease, last, profile)
            elif seen.box.state is BoxState.READY:
                try:
                    await reach(lease)
                except AnotherBox:
                    raise
                except BoxTrouble as trouble:
                    last = f"{trouble.message}{_own_image_words(lease)}"
                else:
                    return ledger.ready(lease.id, at=ledger.now())
        if ledger.now() >= give_up_at:
            late = f"not within {(ledger.now() - began).total_seconds():.0f} s: {last}"
            if isinstance(seen, Listed):
                remember_not_ready(lease, late, ledger=ledger)
            raise _not_ready(lease, late, profile)
        if isinstance(seen, Listed) and lease.ready_at is None:
            ledger.saw(lease.id, listed="listed", at=ledger.now())
        if ledger.now() >= until:
            return lease
        await ledger.clock.sleep(_POLL_S)


def _own_image_words(lease: Lease) -> str:
    if lease.terms.order.image_at(lease.provider) == AtProvider():
        return ""
    return "; its image is your own, and may keep sshd from starting"


def _given_back(lease: Lease) -> str:
    return "given back unused" if lease.quote else "this wait ends, but the lease stays"


def _must_be_as_quoted(lease: Lease, box: Box) -> None:
    cap = lease.terms.max_price_usd_h
    # Some platforms bill less while a box boots. The cap applies to the price of the running box.
    price = box.price_usd_h if box.running_usd_h is None else box.running_usd_h
    if cap is not None and price is not None and price > cap:
        raise PriceMoved(
            f"{box.id} costs {price} USD/h, above the cap of {cap} USD/h",
            remedy=f"{Command('offers')} shows what there is now",
        )
    if lease.quote is not None and box.interruptible != lease.quote.offer.interruptible:
        kind = "interruptible" if box.interruptible else "on demand"
        raise PriceMoved(
            f"{box.id} was rented {kind}, which is not what was quoted",
            remedy=f"{Command('offers')} shows what there is now",
        )


def _not_ready(lease: Lease, why: str, profile: Profile) -> NotReady:
    remedy = f"{Command('teardown', lease.id)} gives it back unused; {Command('offers')} has others"
    if lease.touched_at is not None:
        remedy = f"its work is on it, and it bills: {Command('audit', lease.id)} waits for it again"
        if profile.park != "none":
            remedy += f"; {Command('park', lease.id)} stops the meter of its GPU"
    return NotReady(
        f"the box {lease.box_id} of {lease.id} is not ready: {why}",
        remedy=remedy,
    )


def tested_memory(receipt_id: str | None, *, ledger: Ledger) -> MemoryTest | None:
    """Return the GPU memory that a job needs, as that smoke test estimated it. Without an id, use the newest test.

    None if there is no estimate, or if the test does not count for renting.
    """
    record = ledger.smoke(receipt_id) if receipt_id else ledger.newest_smoke()
    if record is None:
        return None
    from gpu_tenant.jobs.smoke import SmokeReceipt

    receipt = SmokeReceipt.model_validate_json(record)
    counts = receipt.passed and ledger.now() - receipt.at <= _SMOKE_COUNTS_FOR
    if receipt.gpu_memory is None or not counts:
        return None
    return MemoryTest(smoke=receipt.id, memory=receipt.gpu_memory)


def memory_wanted(lease: Lease, *, ledger: Ledger) -> MemoryTest | None:
    """Return the GPU memory that the job needs, as estimated by the smoke test that was named when renting.

    None if there is no estimate, or if no test was named.
    """
    from gpu_tenant.jobs.smoke import SmokeReceipt

    named = [e.smoke for _, e in ledger.events(lease.id) if isinstance(e, timeline.Tested)]
    record = ledger.smoke(named[-1]) if named else None
    if record is None:
        return None
    receipt = SmokeReceipt.model_validate_json(record)
    if receipt.gpu_memory is None:
        return None
    return MemoryTest(smoke=receipt.id, memory=receipt.gpu_memory)


def counted_smoke(receipt_id: str | None, *, ledger: Ledger) -> str | None:
    """Return the id of that smoke test if `provision` accepts it, else None. Without an id, use the newest test."""
    record = ledger.smoke(receipt_id) if receipt_id else ledger.newest_smoke()
    if record is None:
        return None
    from gpu_tenant.jobs.smoke import SmokeReceipt

    receipt = SmokeReceipt.model_validate_json(record)
    counts = receipt.passed and ledger.now() - receipt.at <= _SMOKE_COUNTS_FOR
    return receipt.id if counts else None


def memory_noted(card: Card, smoke: str | None, *, ledger: Ledger) -> Card:
    """Return the card, with a warning if the rented GPU may have too little memory for the job of that smoke test."""
    tested = tested_memory(smoke, ledger=ledger) if smoke else None
    # A card may also belong to a standing wish instead of a lease.
    is_lease = card.lease in ledger.lease_ids()
    quote = ledger.lease(LeaseId(card.lease)).quote if tested and is_lease else None
    if tested is None or quote is None:
        return card
    warning = tested.memory.warning(quote.offer.vram_gib, tested.smoke)
    return card.model_copy(update={"memory": warning}) if warning else card


def _elsewhere(receipt_id: str, ledger: Ledger) -> str:
    """Say where that smoke receipt may be instead. Empty if unknown."""
    usual = Home.of({}).ledger
    if usual != ledger.path and has_smoke(usual, receipt_id):
        return f": it is in {usual.parent}, and this terminal has a state directory of its own"
    if usual == ledger.path:
        return "; a rehearsal has a state directory of its own, which its `export` lines name"
    return ""


def require_smoke(receipt_id: str | None, *, ledger: Ledger) -> SmokeReceipt | None:
    """Return the receipt of a smoke test passed in the last week, or None if the caller chose to go without one.

    Raises:
        Refused: neither is the case. A bug that is found while a box bills costs more than one that is found here.
    """
    remedy = f"run {Command('smoke', 'DIR', then='COMMAND')} first, or say that you go without a smoke test: {Option('smoke', 'none')}"
    if receipt_id == "none":
        return None
    from gpu_tenant.jobs.smoke import SmokeReceipt

    if receipt_id is None:
        newest = ledger.newest_smoke()
        tested = SmokeReceipt.model_validate_json(newest) if newest else None
        if tested and tested.passed and ledger.now() - tested.at <= _SMOKE_COUNTS_FOR:
            age = span((ledger.now() - tested.at).total_seconds())
            shown = f"{Option('smoke', tested.id)} shows the one that passed {age} ago"
            remedy = f"{shown} ({plain(tested.command, max_line=60)}); or {remedy}"
        raise Refused("no smoke test was named", remedy=remedy)
    record = ledger.smoke(receipt_id)
    if record is None:
        raise Refused(
            f"there is no smoke receipt {receipt_id} in {ledger.path.parent}{_elsewhere(receipt_id, ledger)}",
            remedy=remedy,
        )
    receipt = SmokeReceipt.model_validate_json(record)
    if not receipt.passed:
        raise Refused(f"the smoke test {receipt_id} did not pass", remedy=remedy)
    if ledger.now() - receipt.at > _SMOKE_COUNTS_FOR:
        raise Refused(f"the smoke test {receipt_id} is older than a week", remedy=remedy)
    return receipt
