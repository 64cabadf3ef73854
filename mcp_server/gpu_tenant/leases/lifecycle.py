"""How a lease is changed: extended, parked, resumed, held, or given other terms."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Literal

from pydantic import ValidationError

from gpu_tenant.box.guard import arm_again
from gpu_tenant.box.guard_record import armed_now
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.end_reserve import (
    leaves_nothing,
    lost_step,
    must_pay_for_its_end,
    resume_step,
)
from gpu_tenant.domain.errors import BadRequest, BoxTrouble, ProviderTrouble, Refused
from gpu_tenant.domain.model import Box, Lease, LeaseState
from gpu_tenant.domain.policy import must_be_doable, remarks, running_usd_h
from gpu_tenant.domain.ports import Tended, Timed
from gpu_tenant.domain.reconcile import Listed, rate_words
from gpu_tenant.domain.rental import over_words, rental_ends_at, rental_is_over, rental_words
from gpu_tenant.domain.terms import OnFailure, Terms
from gpu_tenant.leases.adopt import back_at
from gpu_tenant.leases.cards import Card, Leases
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.inspection import check_before_stop, must_be_the_box
from gpu_tenant.leases.kept_parked import only_there
from gpu_tenant.leases.overview import card_of, overview, with_open_ports
from gpu_tenant.leases.park import park, resume
from gpu_tenant.leases.provider_listing import look
from gpu_tenant.leases.provision import must_be_hours
from gpu_tenant.leases.readiness import (
    arm_guard,
    close_connections,
    made_ready,
    settle_lease,
    with_box,
)
from gpu_tenant.leases.recover import recover
from gpu_tenant.leases.settle import observe
from gpu_tenant.leases.ssh_access import forget_host_key
from gpu_tenant.ledger import Allowed, anything


async def change(
    context: Context,
    lease: str,
    action: Literal["extend", "park", "resume", "terms", "recover", "hold"],
    *,
    hours: float | None = None,
    address: str | None = None,
    terms: Mapping[str, object],
) -> Card:
    """Carry out the requested change on the lease: see `Tenancy.change_lease`."""
    if action == "recover":
        cap = terms.get("max_price_usd_h")
        return await recover(
            context, lease, max_price_usd_h=cap if isinstance(cap, Decimal) else None
        )
    if action == "hold":
        return await _hold_for(context, lease, hours)
    found = await with_box(context, lease)
    async with context.held_in_turn(found.id, action):
        found = context.ledger.lease(found.id)
        if action == "terms":
            changed = await _agree(context, found, terms)
        else:
            budget = terms.get("budget_usd") if action in ("resume", "extend") else None
            changed = await _change(
                context,
                found,
                action,
                hours=hours,
                address=address,
                budget_usd=budget if isinstance(budget, Decimal) else None,
            )
        words, box = None, None
        if action == "extend":
            words = await _stopped_before(context, changed)
        elif action == "resume" and changed.ready_at is None:
            # The start may only be queued until a GPU is free, so look at what the provider shows.
            changed, words, box = await _as_shown(context, changed)
        told = (words, only_there(changed, context.ledger), _remarks(context, found, changed))
        card = card_of(context, changed, "; ".join(filter(None, told)) or None, box)
        if action == "extend" and (idle := idle_words(changed, context.clock.now())):
            card = card.model_copy(update={"next": f"{card.next}; {idle}"})
        return await with_open_ports(context, card)


def idle_words(lease: Lease, now: datetime) -> str | None:
    """Say that the idle limit may end the box before its deadline, and how that is changed. None if it cannot."""
    terms, left_s = lease.terms, (lease.terms.deadline_at - now).total_seconds()
    if terms.idle_h is None or terms.when_idle != "end" or lease.parked_at is not None:
        return None
    if left_s <= terms.idle_h * 3600:
        return None
    return (
        f"if its box does nothing for {terms.idle_h:g} h, that ends it before this deadline; "
        f"{Command('terms', lease.id, idle_h=f'{left_s / 3600:.1f}')} moves this limit"
    )


def _remarks(context: Context, before: Lease, after: Lease) -> str | None:
    """Say what a person who has just changed the terms should notice. None if there is nothing."""
    events, now = context.ledger.events(after.id), context.clock.now()
    told = (remarks(before, after), leaves_nothing(after, events, now))
    return "; ".join(filter(None, told)) or None


async def _as_shown(context: Context, lease: Lease) -> tuple[Lease, str | None, Box | None]:
    """Return the lease and its box as the provider shows them now, and what a person must hear."""
    seen = await look(context, lease)
    if not isinstance(seen, Listed):
        return lease, None, None
    lease, words = observe(lease, seen.box, ledger=context.ledger)
    return lease, words, seen.box


def must_be_on_failure(words: str) -> str:
    """Check that the words say what happens to a box whose job failed. Returns them in their usual form.

    Raises:
        BadRequest: the words cannot be understood.
    """
    try:
        return OnFailure.parse(words).words
    except ValueError as error:
        raise BadRequest(
            str(error),
            remedy="write the term as in `--on-failure end`, `'end after 15m'`, `park` or `keep`",
        ) from None


async def _hold_for(context: Context, lease: str, hours: float | None) -> Card:
    """For `hours`, do not end the lease because its work is done.

    Its other terms stay in force. This is recorded before the box or the provider is asked, because the caller may
    have only seconds left. Then the box's guard is told, if it would stop the box by itself.

    Raises:
        BadRequest: no time was given.
        Refused: the end of the lease has begun.
    """
    found = context.ledger.lease(lease)
    if hours is None:
        raise BadRequest("for how long?", remedy=str(Command("hold", found.id, "30m")))
    now = context.clock.now()
    until = min(now + timedelta(hours=hours), max(now, found.terms.deadline_at))
    if not context.ledger.hold_until(found.id, until, by="said", at=now):
        if found.state is LeaseState.ACTIVE:
            raise Refused(
                f"{found.id} is being parked, and a hold comes too late",
                remedy=f"{Command('resume', found.id)} once it is parked",
            )
        raise Refused(
            f"{found.id} is {found.state}: its end has begun, so a hold comes too late",
            remedy=f"{Command('leases', all=True)} shows the lease; {Command('provision')} rents another box",
        )
    unaware = await _why_box_is_unaware(context, found)
    if unaware:
        words = (
            f"held here until {until:%Y-%m-%d %H:%M:%S} UTC, but its box does not know: {unaware}"
        )
    elif found.terms.when_done == "keep":
        words = (
            "the terms keep the box when its work is done anyway; the hold has no effect until that term "
            "changes"
        )
    elif until == now:
        words = "no hold is in force any more: the lease is ended once its work is done"
    else:
        words = f"held until {until:%Y-%m-%d %H:%M:%S} UTC: until then, finished work does not end the lease"
    return card_of(context, found, words)


async def _why_box_is_unaware(context: Context, lease: Lease) -> str | None:
    """Say why the guard that stops the box when its work is done does not know of a hold.

    None if it knows, or if there is no such guard.
    """
    armed = armed_now(lease, context.ledger)
    if armed is None or not armed.when_done or not lease.lets_us_in:
        return None
    told = await arm_guard(context, lease)
    return told.words if told.has_old_instructions else None


async def _agree(context: Context, lease: Lease, given: Mapping[str, object]) -> Lease:
    """Change the given terms of the lease. Its other terms stay as they were."""
    update = {name: value for name, value in given.items() if value is not None}
    if not update:
        raise BadRequest("which terms?", remedy=str(Command("terms", lease.id, budget_usd="20")))
    if not update.get("idle_h", 1):
        update["idle_h"] = None
    if "on_failure" in update:
        update["on_failure"] = OnFailure.parse(must_be_on_failure(str(update["on_failure"])))
    return await _with_terms(context, lease, update)


async def _with_terms(
    context: Context, lease: Lease, update: Mapping[str, object], *, hours: float | None = None
) -> Lease:
    """Tell the box and the ledger about the changed terms.

    If the owner has signed in advance for the old terms, that signature is no longer valid.

    Raises:
        BadRequest: the terms are not valid, such as a negative budget.
        SignatureWanted: the terms are looser than the owner has agreed to; nothing was changed.
        BoxTrouble: the box could not be told of another deadline, or that it may no longer destroy itself.
    """
    changed = {**lease.terms.model_dump(), **update, "on_deadline": "keep"}
    try:
        terms = Terms.model_validate(changed)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadRequest(
            f"{first['loc'][0]}: {first['msg'].lower()}",
            remedy=f"{Command('terms', lease.id)} shows what is in force",
        ) from None
    must_be_doable(terms, context.profile(lease.provider))
    if terms.budget_usd is not None and terms.budget_usd != lease.terms.budget_usd:
        events = context.ledger.events(lease.id)
        must_pay_for_its_end(lease, terms.budget_usd, events, context.clock.now())
    signed = context.owner.signs_change(lease, terms, lease.price_usd_h, hours=hours)
    if lease.parked_at is None and (lease.touched_at or armed_now(lease, context.ledger)):
        moved = terms.deadline_at != lease.terms.deadline_at
        try:
            # Tell the box first. If the ledger promised time that the guard does not know of, jobs
            # would end early.
            await arm_again(
                context.session(lease.model_copy(update={"terms": terms})),
                ledger=context.ledger,
                store=context.box_store(lease),
            )
        except BoxTrouble:
            if moved or lease.terms.on_deadline == "waive":
                raise
        if moved:
            # This renews the mark, which keeps others off the box for as long as the lease runs.
            with suppress(BoxTrouble):
                await must_be_the_box(context, lease.model_copy(update={"terms": terms}))
    return _agreed_to(context, lease, terms, signed)


def _agreed_to(context: Context, lease: Lease, terms: Terms, signed: str | None) -> Lease:
    """Put the terms in force.

    Unless they were signed, the owner's limits must have room for them and for all other leases.
    """
    allowed = anything
    if signed is None and terms.deadline_at > lease.terms.deadline_at:
        allowed = partial(context.owner.allows, besides=lease.id)
    if signed is None and context.owner.is_of_its_work(lease, terms):
        allowed = partial(_of_its_work, context, lease)
    return context.ledger.change_terms(
        lease.id, terms, at=context.clock.now(), allowed=allowed, signed=signed
    )


def _of_its_work(
    context: Context, lease: Lease, provider: str, terms: Terms, usd_h: Decimal | None
) -> None:
    """Check that the budget is still within what was agreed for the lease's work.

    The caller's transaction is open meanwhile, so nothing else is written.

    Raises:
        Refused: another lease of the work was given more meanwhile.
        Limit: the owner's limits have no room for it.
    """
    if not context.owner.is_of_its_work(lease, terms):
        raise Refused(
            f"what was left of the budget of the work of {lease.id} was given to another lease meanwhile",
            remedy="the same command again asks for a signature",
        )
    context.owner.allows(provider, terms, usd_h, besides=lease.id)


async def _change(
    context: Context,
    lease: Lease,
    action: Literal["extend", "park", "resume"],
    *,
    hours: float | None,
    address: str | None,
    budget_usd: Decimal | None,
) -> Lease:
    profile, connector = context.profile(lease.provider), context.connector(lease)
    match action:
        case "extend":
            if hours is None:
                raise BadRequest("until when?", remedy=str(Command("extend", lease.id, hours="8")))
            return await _extend(context, lease, hours, budget_usd)
        case "park":
            # A box that was started since the last look is at another address.
            lease, _ = await settle_lease(context, lease)
            if lease.parked_at is not None:
                raise Refused(
                    f"{lease.id} is parked already, {rate_words(lease)}",
                    remedy=str(
                        resume_step(lease, context.ledger.events(lease.id), context.clock.now())
                    ),
                )
            lease = await check_before_stop(context, lease)
            lease = await park(context, lease)
            await close_connections(context, lease)
            return lease
        case "resume":
            if rental_is_over(lease, context.clock.now()):
                raise Refused(f"{lease.id}: {over_words(lease)}", remedy=lost_step(lease))
            by_hand = isinstance(connector, Tended) and connector.tends(lease.box_id)
            # A box that a person has started bills already. Refusing it here would not help.
            if lease.parked_at is not None and not by_hand:
                _must_last(context, lease, hours, budget_usd)
            lease, allowed = _in_time(context, lease, hours, budget_usd)
            if lease.parked_at is not None and isinstance(connector, Tended) and by_hand:
                lease = await back_at(context, lease, profile, connector, address)
            lease = await resume(
                context,
                lease,
                allowed=anything if by_hand else allowed,
            )
            forget_host_key(context, lease)
            return await made_ready(context, lease)


def _must_last(
    context: Context, lease: Lease, hours: float | None, budget_usd: Decimal | None
) -> None:
    """Check that neither the deadline nor the budget would end the lease at once, if its box were started.

    Raises:
        Refused: one of them would. The remedy is the command that moves it.
    """
    events, now = context.ledger.events(lease.id), context.clock.now()
    step = resume_step(lease, events, now)
    if hours is None and now >= lease.terms.deadline_at:
        raise Refused(
            f"the deadline of {lease.id} has passed, and its box would be stopped again at once",
            remedy=f"{step}, then collect and teardown",
        )
    budget = lease.terms.budget_usd if budget_usd is None else budget_usd
    if budget is not None:
        must_pay_for_its_end(lease, budget, events, now)


def _in_time(
    context: Context, lease: Lease, hours: float | None, budget_usd: Decimal | None
) -> tuple[Lease, Allowed]:
    """Check that the lease has time left, or give it more. After its deadline, its guard would stop the box at once.

    Returns the lease, and a second check. The transaction that records the intent to start must call that check. It
    applies the owner's limits, because another box may be rented meanwhile. If a person has signed for the start, it
    allows anything.

    Raises:
        Refused: the lease has no time left, and nobody said how much it needs.
    """
    now, terms = context.clock.now(), lease.terms
    # Use the price of the running box: a stopped box is billed for its disk alone.
    usd_h = lease.price_usd_h if lease.parked_at is None else running_usd_h(lease)
    if hours is None and budget_usd is None and now < terms.deadline_at:
        signed = context.owner.signs_change(lease, terms, usd_h, hours=None)
        if signed is not None:
            context.ledger.use_signature(signed, at=now)
        return lease, _within(context, lease, signed)
    if hours is None and now >= terms.deadline_at:
        raise Refused(
            f"the deadline of {lease.id} has passed, and its box would be stopped again at once",
            remedy=f"{Command('resume', lease.id, hours='1')}, then collect and teardown",
        )
    if hours is not None:
        must_be_hours(hours)
        _must_be_rented_till(lease, now + timedelta(hours=hours), now)
        terms = terms.model_copy(update={"deadline_at": now + timedelta(hours=hours)})
    if budget_usd is not None:
        terms = terms.model_copy(update={"budget_usd": budget_usd})
    signed = context.owner.signs_change(lease, terms, usd_h, hours=hours)
    return _agreed_to(context, lease, terms, signed), _within(context, lease, signed)


def _within(context: Context, lease: Lease, signed: str | None) -> Allowed:
    return anything if signed is not None else partial(context.owner.allows, besides=lease.id)


def _must_be_rented_till(lease: Lease, deadline_at: datetime, now: datetime) -> None:
    """Require that the rental of the lease's box lasts until that deadline.

    Raises:
        Refused: it does not. The remedy names the latest deadline, or that there is none.
    """
    ends_at = rental_ends_at(lease)
    if ends_at is None or deadline_at < ends_at:
        return
    left_h = (ends_at - now).total_seconds() / 3600 - 1 / 60
    more = f"at most {Command('extend', lease.id, hours=f'{left_h:.2f}')}; " if left_h > 0 else ""
    raise Refused(
        f"{rental_words(lease)}, and no lease outlasts it; its terms are unchanged",
        remedy=f"{more}{Command('offers')} has boxes that last longer",
    )


async def _extend(
    context: Context, lease: Lease, hours: float, budget_usd: Decimal | None
) -> Lease:
    must_be_hours(hours)
    now = context.clock.now()
    _must_be_rented_till(lease, now + timedelta(hours=hours), now)
    update: dict[str, object] = {"deadline_at": now + timedelta(hours=hours)}
    if budget_usd is not None:
        update["budget_usd"] = budget_usd
    return await _with_terms(context, lease, update, hours=hours)


async def _stopped_before(context: Context, lease: Lease) -> str | None:
    """Return a warning if the provider's own timer stops the box before its deadline. None if it does not."""
    connector = context.connector(lease)
    if not isinstance(connector, Timed) or lease.parked_at is not None:
        return None
    try:
        at = await connector.timer_at(lease)
    except ProviderTrouble:
        return None  # The deadline is moved in any case, and the profile describes the timer.
    if at is None or at >= lease.terms.deadline_at:
        return None
    profile = context.profile(lease.provider)
    kept = "; its disk is kept, and resume starts it" if profile.park != "none" else ""
    return (
        f"{profile.title} itself stops the box at {at:%Y-%m-%d %H:%M} UTC, before the deadline, and "
        f"this time cannot be moved while the box runs{kept}"
    )


async def reconcile_all(context: Context) -> Leases:
    """List the leases like `list_leases`. If one request rented two boxes, also give back the one that nobody used."""
    return await overview(context, "live", twins="give_back")
