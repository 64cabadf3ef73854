"""Continues the work of a box that its provider took. It uses another lease, and starts from the newest checkpoint."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from gpu_tenant.artifacts.checkpoints import Restorable, newest
from gpu_tenant.artifacts.push import push, records_of
from gpu_tenant.artifacts.restore import left_out, may_go_back, restore
from gpu_tenant.artifacts.snapshot import snapshot
from gpu_tenant.box.environment.history import activation
from gpu_tenant.box.environment.mirrors import mirrors
from gpu_tenant.box.environment.prepare import EnvironmentRequest, Setup
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.end_reserve import resume_step
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTrouble,
    CredentialRefused,
    HostLeftOut,
    LeaseHeld,
    NoCapacity,
    NotReady,
    ProviderSilent,
    ProviderTrouble,
    Refused,
)
from gpu_tenant.domain.interruption import Taken, fate, notice_on_record, recorded_fate
from gpu_tenant.domain.model import BoxState, Lease, LeaseState, SshAddress
from gpu_tenant.domain.offers import Quote, Wish
from gpu_tenant.domain.policy import must_end_unseen
from gpu_tenant.domain.ports import Funded, Market
from gpu_tenant.domain.reconcile import GOES_ON, Blind, Listed
from gpu_tenant.domain.wording import span
from gpu_tenant.files.skill_files import script
from gpu_tenant.jobs.launch import launch
from gpu_tenant.leases.audit import audit_box
from gpu_tenant.leases.cards import Card, goes_on_words
from gpu_tenant.leases.context import WAIT_S, Context
from gpu_tenant.leases.ended_words import ended_words
from gpu_tenant.leases.host_memory import hosts_faults
from gpu_tenant.leases.inspection import look_at_new_box
from gpu_tenant.leases.launch_again import again_step, cut_off_job
from gpu_tenant.leases.names import labels_again
from gpu_tenant.leases.offers import find_offers
from gpu_tenant.leases.overview import card_of
from gpu_tenant.leases.provider_listing import look
from gpu_tenant.leases.provision import new_lease_id
from gpu_tenant.leases.readiness import close_connections, fulfil_intent, made_ready, settle_lease
from gpu_tenant.leases.recovery_plan import (
    RecoverableWork,
    as_agreed,
    budget_left,
    claims_of,
    goes_on_step,
    gone_on,
    is_begun,
    keep_one_budget,
    kept_words,
    lost_usd,
    successor,
    taken_at,
    unfinished_jobs,
    wish_again,
    work_of,
)
from gpu_tenant.leases.recovery_words import ends_early_words, recovery_words
from gpu_tenant.leases.settle import return_unused
from gpu_tenant.leases.setup import LAUNCH_WAITS_S, begin_if_ordered, report_setup
from gpu_tenant.leases.watchdog_heartbeat import looks
from gpu_tenant.leases.won_back import not_yet
from gpu_tenant.providers.credentials import resolve_all
from gpu_tenant.transfer.bandwidth_share import limits_of_call

_TRIED = 3
_SEARCHED = 20
"""This many offers of a platform are considered. Some end too soon, and a later one may last long enough."""
_POLL_S = 5


def may_recover(context: Context, lease: Lease) -> bool:
    """Whether recovery is due, judged only by the ledger.

    It is due if three things hold: the box was taken or has notice of that, the lease's terms allow its work to
    continue elsewhere, and the work has not been continued yet.
    """
    terms = lease.terms
    if not terms.recover or context.clock.now() >= terms.deadline_at:
        return False
    if lease.state is not LeaseState.LOST:
        if lease.state is not LeaseState.ACTIVE or lease.parked_at is not None:
            return False
        events = context.ledger.events(lease.id)
        if recorded_fate(events) not in GOES_ON and notice_on_record(events) is None:
            return False
    return gone_on(context.ledger, lease) is None and bool(
        unfinished_jobs(context.ledger, lease.id)
    )


def waits_in_vain(context: Context, new: Lease) -> str | None:
    """Say that a box was rented to continue the work of another lease, and that no process is bringing the work there.

    None if this is not so.
    """
    ledger = context.ledger
    if new.recovers is None or new.ready_at is None:
        return None
    if any(job.launched_at is not None for job in ledger.jobs(new.id)):
        return None
    lost = ledger.lease(new.recovers)
    held = ledger.holder_of(lost.id)
    if gone_on(ledger, lost) is not None or may_recover(context, lost):
        return None
    if held is not None and held.purpose == "recover":
        return None
    over = f"{Command('teardown', new.id)} gives it up"
    if not lost.state.live and lost.state is not LeaseState.LOST:
        return (
            f"its box was rented to continue the work of {lost.id}, which has ended since: {over}"
        )
    return (
        f"its box was rented to continue the work of {lost.id}, and does not have it: "
        f"{Command('recover', lost.id)} goes on with that; or {over}"
    )


async def recover(
    context: Context,
    lease: str,
    *,
    max_price_usd_h: Decimal | None = None,
    wait_s: float = WAIT_S,
    again_s: float | None = None,
) -> Card:
    """Continue the work of a lease whose box was taken, under a new lease, from the newest checkpoint that is here.

    If an earlier call was cut short, call this again to continue; it never rents a second new box. The answer names
    what is not ready within `wait_s`. If the old box still exists, it is left as it is: it bills, and is reported,
    until it is torn down.

    If the lease's terms do not say where to continue, the work continues at the same platform. Without such a term,
    only an explicit call recovers a lease: see `may_recover`. `max_price_usd_h` is the price cap from now on. If it is
    None, the lease's own cap stays. `again_s` is the time in seconds until the caller calls again by itself. If it is
    given, the answer asks nobody to do so.

    Raises:
        Refused: the box was not taken and has no notice of it, or the deadline has passed, or the work cannot be
            continued as it was.
        SignatureWanted: the price cap is higher than what the owner has agreed to.
        NotReady: the old box is starting again by itself.
        NoCapacity, PriceMoved, ...: no box within the caps is available now.
        BoxTrouble: an operation on the new box failed. The box is kept for the next call.
    """
    lost = context.ledger.lease(lease)
    done = gone_on(context.ledger, lost)
    if done is not None:
        return card_of(context, done, None)
    _nobody_does_it(context, lost)
    with context.hold_lease(lost.id, "recover"):
        known = successor(context.ledger, lost)
        if known is not None and not known.state.live:
            # The rest of the work belongs to the successor. If the successor was lost too, it needs its own call of
            # `recover`.
            context.ledger.note(lost.id, timeline.Recovered(by=known.id), at=context.clock.now())
            return card_of(context, known, f"it continued the work of {lost.id}, and has ended")
        met = await _must_be_taken(context, lost, known)
        work = await work_of(lost, ledger=context.ledger)
        if max_price_usd_h is not None and max_price_usd_h != lost.terms.max_price_usd_h:
            lost = _capped(context, lost, max_price_usd_h)
            work = replace(work, lease=lost)
        values = [_values(context, refs) for refs in (work.setup_from, *_refs(work))]
        # The setup of the new box needs these.
        _values(context, lost.terms.order.env_from)
        kept = await _newest_of_all(context, lost)
        again = goes_on_step(lost, context.looked_after, again_s=again_s)
        new = await _find_box(context, work, kept, known, wait_s, again_s)
        if new.ready_at is None:
            return card_of(context, new, f"the new box has not let us in yet: {again}")
        if await _still_saves(context, lost):
            words = f"the box of {lost.id} is not gone yet, and its jobs may still save"
            return card_of(context, new, f"{words}: {again}")
        kept = await _newest_of_all(context, lost)
        with context.hold_lease(new.id, "recover"):
            missing = await _furnish(context, new, work, kept, values[0], wait_s)
            if missing is not None:
                return card_of(context, new, f"{missing}: {again}")
            await _launch_all(context, new, work, values[1:])
            _on_record(context, lost, new, work, met, kept)
    new = context.ledger.lease(new.id)
    alarms = filter(None, (_trust_words(lost, new), ends_early_words(new, lost.terms.deadline_at)))
    return card_of(context, new, "; ".join(alarms) or None)


async def begins_words(context: Context, lease: str) -> str:
    """Say from which checkpoint the lease's work would continue if it were recovered now, and what would stay behind.

    Empty if the work has already been continued, or cannot be.

    Raises:
        LeaseHeld: another process is recovering it now.
    """
    lost = context.ledger.lease(lease)
    if gone_on(context.ledger, lost) is not None or not unfinished_jobs(context.ledger, lost.id):
        return ""
    _nobody_does_it(context, lost)
    try:
        # If the recovery would be refused, say nothing here: the call itself says why.
        await work_of(lost, ledger=context.ledger)
    except Refused:
        return ""
    kept = await _newest_of_all(context, lost)
    return recovery_words(context.ledger, lost, kept, context.looked_after)


def _nobody_does_it(context: Context, lost: Lease) -> None:
    """Require that no other process is recovering the lease now.

    Raises:
        LeaseHeld: another process is. Then there is nothing to do.
    """
    held = context.ledger.holder_of(lost.id)
    if held is None or held.purpose != "recover":
        return
    watches = looks(context.home.watchdog, held.pid)
    who = "the watchdog" if watches else f"another process ({held.pid})"
    raise LeaseHeld(
        f"{who} is recovering {lost.id} now: nothing to do",
        remedy=f"{Command('leases')} shows under which lease its work goes on",
    )


def _capped(context: Context, lost: Lease, cap_usd_h: Decimal) -> Lease:
    """Record the price cap in the terms of the lost lease, so that the next call uses it as well.

    Raises:
        SignatureWanted: the cap is higher than before, and the owner has not signed for that yet.
    """
    terms = lost.terms.model_copy(update={"max_price_usd_h": cap_usd_h})
    signed = context.owner.signs_change(lost, terms, lost.price_usd_h, hours=None)
    return context.ledger.change_terms(lost.id, terms, at=context.clock.now(), signed=signed)


def _trust_words(lost: Lease, new: Lease) -> str | None:
    """Warn that the new host is unverified. None if it is verified, or if the old host was unverified too."""
    before, now = (lease.quote.offer.trust if lease.quote else None for lease in (lost, new))
    if now != "unverified" or before == now:
        return None
    vouched = f"; the host of {lost.id} was called {before}" if before else ""
    return f"its provider calls the host of this box unverified{vouched}"


async def _still_saves(context: Context, lost: Lease) -> bool:
    """Whether a job may still run on a box whose platform has given notice.

    While this is True, no job is launched on the new box: two copies of a job would write the same results. If this
    is False and the old box still answers, this call has copied here what its jobs saved last.
    """
    lost = context.ledger.lease(lost.id)
    if lost.state is not LeaseState.ACTIVE or recorded_fate(context.ledger.events(lost.id)):
        return False
    try:
        if (await context.caretaker(lost).standing()).live:
            return True
        with limits_of_call(context.home, None).join(lost.id, lost.price_usd_h) as turn:
            await snapshot(
                context.session(lost),
                directory=context.kept_in(lost),
                ledger=context.ledger,
                turn=turn,
                quiet_s=0,
            )
    except BoxTrouble:
        # The box cannot be asked. Only its provider can say whether it is gone.
        met = await _seen_taken(context, lost)
        return met is None or met.fate not in GOES_ON
    return False


async def _seen_taken(context: Context, lost: Lease) -> Taken | None:
    """Return how the box was taken, as its provider shows it now.

    None if it was not taken, or if the provider is silent.
    """
    seen = await look(context, lost)
    if isinstance(seen, Blind):
        return None
    box = seen.box if isinstance(seen, Listed) else None
    return fate(lost, context.profile(lost.provider), box, now=context.clock.now())


async def _must_be_taken(context: Context, lost: Lease, known: Lease | None) -> Taken:
    """Return how the box was taken.

    Raises:
        Refused: as far as the provider shows, the box was not taken; or the deadline has passed.
        NotReady: the box is starting again.
    """
    if known is None and lost.state not in (LeaseState.ACTIVE, LeaseState.LOST):
        raise _is_over(context, lost)
    if context.clock.now() >= lost.terms.deadline_at:
        raise Refused(
            f"the deadline of {lost.id} has passed",
            remedy=f"provision, push and launch again; {kept_words(lost)}",
        )
    profile, box, now = context.profile(lost.provider), None, context.clock.now()
    events = context.ledger.events(lost.id)
    on_record = recorded_fate(events)
    for _, event in reversed(events) if known is not None else ():
        if isinstance(event, timeline.Taken) and event.fate:
            # The box may have woken up since, but its work is already continued elsewhere.
            return Taken(event.fate, event.words or "")
    if (
        lost.state is LeaseState.ACTIVE
        and on_record is None
        and notice_on_record(events) is not None
    ):
        return Taken("preempted", "its platform has said ahead that it takes the box back")
    if lost.state is LeaseState.ACTIVE:
        seen = await look(context, lost)
        if isinstance(seen, Blind):
            raise Refused(
                f"{profile.title} does not answer ({seen.reason}): what became of {lost.id} is unknown",
                remedy=f"wait, then look again with {Command('leases')}",
            )
        box = seen.box if isinstance(seen, Listed) else None
    met = fate(lost, profile, box, now=now, balance_usd=await _balance_usd(context, lost))
    cut_off = cut_off_job(events)
    runs = box is not None and box.state is BoxState.READY
    if met is None and runs and (cut_off is not None or on_record in GOES_ON):
        if on_record is not None:
            # Record what the provider shows now, for the next process that reads the ledger.
            context.ledger.note(lost.id, timeline.Taken(fate=None), at=now)
        raise Refused(
            f"the box of {lost.id} was taken, and runs again",
            remedy=f"{again_step(context.ledger, lost, cut_off)} again continues from what its disk kept"
            if cut_off is not None
            else f"{Command('monitor', lost.id)} looks at its job, and says how it goes on",
        )
    if met is None and (boots := await not_yet(context, lost)) is not None:
        raise boots
    if met is None or met.fate not in GOES_ON:
        raise Refused(
            f"the box of {lost.id} was not taken" if met is None else f"{lost.id}: {met.words}",
            remedy=f"{Command('leases')} looks at the box; {resume_step(lost, events, now)} starts a box that is stopped",
        )
    if met.fate != on_record:
        context.ledger.note(lost.id, timeline.Taken(fate=met.fate, words=met.words), at=now)
    return met


def _is_over(context: Context, lost: Lease) -> Refused:
    """Return the refusal for a lease that has no box to recover. It says how to continue the work."""
    events, jobs = context.ledger.events(lost.id), context.ledger.jobs(lost.id)
    if lost.state is LeaseState.TERMINATING:
        return Refused(
            f"{lost.id} is being ended", remedy=f"{Command('teardown', lost.id)} continues that"
        )
    if lost.state is LeaseState.INTENDED:
        return Refused(
            f"{lost.id} has no box yet", remedy=f"{Command('leases')} shows whether it gets one"
        )
    fates = [x.fate for _, x in events if isinstance(x, timeline.Taken) and x.fate in GOES_ON]
    taken = f"its provider took its box ({fates[-1]}), which was torn down since" if fates else ""
    return Refused(
        "; ".join(filter(None, (ended_words(context.ledger, lost), taken))),
        remedy=goes_on_words(lost, jobs, events) or kept_words(lost),
    )


async def _balance_usd(context: Context, lease: Lease) -> Decimal | None:
    try:
        connector = context.connector(lease)
        held = await connector.balance() if isinstance(connector, Funded) else None
    except ProviderTrouble:
        return None
    return held.amount_usd if held else None


def _values(context: Context, references: tuple[str, ...]) -> Mapping[str, str]:
    return resolve_all(references, context.environ, key_places=context.key_places)


async def _newest_of_all(context: Context, lost: Lease) -> Restorable | None:
    """Find the newest checkpoint of the lease, or of an earlier lease whose work it continued."""
    for lease in context.ledger.lineage(lost):
        if (found := await newest(lease, ledger=context.ledger)) is not None:
            return found
    return None


async def _find_box(
    context: Context,
    work: RecoverableWork,
    kept: Restorable | None,
    known: Lease | None,
    wait_s: float,
    again_s: float | None,
) -> Lease:
    """Return a lease under which the work can continue. Its box may not be ready yet.

    `again_s` is as in `recover`.

    Raises:
        NoCapacity: no box that the terms allow is available.
        Limit: the available box would exceed the owner's overall limits.
        ProviderSilent: whether a box was made is not known yet; the next call finds out.
    """
    lost, refused = work.lease, list[str]()
    if known is not None and known.state is LeaseState.INTENDED:
        again = goes_on_step(lost, context.looked_after, again_s=again_s)
        known = await _found_out(context, known, wait_s, again)
    if known is not None:
        had = await _get_box(context, known, refused, wait_s)
        if had is not None:
            return had
    wish = wish_again(lost, kept.taken_at if kept else None)
    left = budget_left(context.ledger, lost, context.clock.now())
    async for quote in _quotes(context, lost, wish, left, refused):
        # The owner's signature in advance covers only the lost box, so the new lease starts with `keep`.
        terms = lost.terms.model_copy(update={"budget_usd": left, "on_deadline": "keep"})
        quote = as_agreed(lost, quote)
        profile = context.profile(quote.offer.provider)
        try:
            lease = context.ledger.intend(
                lease_id=new_lease_id(context.ledger, profile.id),
                provider=profile.id,
                terms=terms,
                address=SshAddress(target=quote.offer.id) if profile.lease == "adopted" else None,
                price_usd_h=quote.offer.price.running_usd_h,
                quote=quote,
                at=context.clock.now(),
                recovers=lost.id,
                labels=labels_again(context, lost),
                allowed=context.owner.allows,
            )
        except HostLeftOut as known_bad:
            # Another quote on the same host has failed earlier in this call.
            refused.append(known_bad.message)
            continue
        had = await _get_box(context, lease, refused, wait_s)
        if had is not None:
            return had
    dearer = await _cheapest_above(context, lost, wish, left)
    tries = "the next call tries again"
    if again_s is not None:
        tries = f"the watchdog tries again at its next look, in about {span(again_s)}"
    raise NoCapacity(
        f"no box can be had to continue the work of {lost.id}: {'; '.join(refused)}",
        remedy=(
            f"{Command('recover', lost.id, max_price_usd_h=dearer)} takes what is offered above the cap of "
            f"{wish.max_price_usd_h} USD/h; or "
            if dearer is not None
            else ""
        )
        + f"{tries}; or choose a box yourself: {Command('offers')}; {kept_words(lost)}",
    )


def _places(lost: Lease) -> list[str]:
    """Return the providers where the work may continue, in order: those of the lease's terms, else its own."""
    names = (lost.provider if name == "same" else name for name in lost.terms.recover or ("same",))
    return list(dict.fromkeys(names))


async def _cheapest_above(
    context: Context, lost: Lease, wish: Wish, left_usd: Decimal | None
) -> Decimal | None:
    """Return the lowest price at which the work could continue if there were no price cap.

    None if there is no such offer.
    """
    if wish.max_price_usd_h is None:
        return None
    wish = wish.model_copy(update={"max_price_usd_h": None})
    prices: list[Decimal] = []
    for provider in _places(lost):
        connector = context.connectors.get(provider)
        if connector is None or not isinstance(connector, Market):
            continue
        found = await find_offers(wish, {provider: connector}, ledger=context.ledger, limit=1)
        quotes = [context.ledger.quote(offered.quote) for offered in found.offers if offered.quote]
        prices += [
            quote.cap_usd_h
            for quote in quotes
            if quote is not None and _unfit(context, lost, quote, left_usd) is None
        ]
    return min(prices, default=None)


async def _found_out(context: Context, lease: Lease, wait_s: float, again: str) -> Lease | None:
    """Find out whether a call that was cut short made a box. Return its lease, or None if there is no box.

    Raises:
        ProviderSilent: after `wait_s` it is still unknown whether there is a box.
    """
    until = context.clock.now() + timedelta(seconds=wait_s)
    with context.hold_lease(lease.id, "recover"):
        while True:
            lease, _ = await settle_lease(context, lease)
            if lease.state is not LeaseState.INTENDED:
                return lease if lease.state.live else None
            if context.clock.now() >= until:
                raise ProviderSilent(
                    f"whether {lease.provider} has made a box for {lease.id} is not known yet",
                    remedy=f"{again}; nothing else is rented until that is known",
                )
            await context.clock.sleep(_POLL_S)


async def _get_box(
    context: Context, lease: Lease, refused: list[str], wait_s: float
) -> Lease | None:
    """Return the lease with its box. None if no usable box was made; an unusable one has been given back.

    An unused box is audited first. If its host has faults that another host may not have, the box is given back.
    """
    with context.hold_lease(lease.id, "provision"):
        try:
            if lease.state is LeaseState.INTENDED:
                lease = await fulfil_intent(context, lease, wait_s)
            elif lease.ready_at is None:
                lease = await made_ready(context, lease, wait_s)
            faults = await _faults(context, lease)
            if not faults:
                return lease
            refused.append(f"{lease.provider}: {'; '.join(faults[:3])}")
        except ProviderSilent:
            raise
        except (ProviderTrouble, NotReady) as trouble:
            refused.append(f"{lease.provider}: {trouble.message}")
        standing = context.ledger.lease(lease.id)
        if standing.state.live:
            await return_unused(context, standing, await look_at_new_box(context, standing))
            await close_connections(context, standing)
    return None


async def _faults(context: Context, lease: Lease) -> list[str]:
    """Audit the box, if it is still unused. Return the faults of its host that prevent work there, in words."""
    if lease.ready_at is None or lease.touched_at is not None:
        return []
    wish = lease.quote.wish if lease.quote else None
    audited = await audit_box(
        context,
        lease,
        gpus=wish.gpu_count if wish else None,
        vram_gib=wish.vram_gib if wish else None,
    )
    return hosts_faults(audited)


async def _quotes(
    context: Context, lost: Lease, wish: Wish, left_usd: Decimal | None, refused: list[str]
) -> AsyncIterator[Quote]:
    """Yield quotes for the rest of the work, from the providers that the lease's terms name, in that order.

    Boxes whose rental ends before the lease's deadline come last, because their job would be cut off again. Why a quote
    does not fit is appended to `refused`.
    """
    ends_early: list[Quote] = []
    for provider in _places(lost):
        try:
            profile, market = context.set_up(provider), context.connectors[provider]
        except (BadRequest, CredentialRefused) as trouble:
            refused.append(trouble.message)
            continue
        if not isinstance(market, Market):
            refused.append(f"{profile.title} has no offers to rent")
            continue
        found = await find_offers(wish, {provider: market}, ledger=context.ledger, limit=_SEARCHED)
        lasting: list[Quote] = []
        for offered in found.offers:
            quote = context.ledger.quote(offered.quote) if offered.quote else None
            why = (
                "its price is unknown" if quote is None else _unfit(context, lost, quote, left_usd)
            )
            if quote is None or why is not None:
                refused.append(f"{provider}: {why}")
            elif _ends_early(quote, lost.terms.deadline_at, context.clock.now()):
                ends_early.append(quote)
            else:
                lasting.append(quote)
        for quote in lasting[:_TRIED]:
            yield quote
        if not found.offers:
            refused.append(f"{provider}: {'; '.join(found.troubles.values()) or found.next}")
    for quote in ends_early[:_TRIED]:
        yield quote


def _ends_early(quote: Quote, deadline_at: datetime, now: datetime) -> bool:
    """Whether a box rented by this quote now would end before the deadline, by its platform's own limit."""
    hours = quote.offer.max_hours
    return hours is not None and now + timedelta(hours=hours) < deadline_at


def _unfit(context: Context, lost: Lease, quote: Quote, left_usd: Decimal | None) -> str | None:
    """Say why the owner's terms do not allow this quote. None if they do."""
    price = quote.offer.price.running_usd_h
    cost = None if price is None else price * Decimal(str(quote.wish.hours))
    if left_usd is not None and (cost is None or cost > left_usd):
        shown = "an unknown sum" if cost is None else f"{cost:.2f} USD"
        return f"{quote.wish.hours:.2g} hours cost {shown}, and {left_usd:.2f} USD are left"
    before = lost.quote.offer.price.running_usd_h if lost.quote else None
    try:
        must_end_unseen(context.profile(quote.offer.provider), price)
    except Refused as refusal:
        with suppress(Refused):
            must_end_unseen(context.profile(lost.provider), before)
            return refusal.message
        # The owner accepted the same risk for the box that was taken.
    return None


async def _furnish(
    context: Context,
    new: Lease,
    work: RecoverableWork,
    kept: Restorable | None,
    setup: Mapping[str, str],
    wait_s: float,
) -> str | None:
    """Put the code, the environment and the checkpoint on the box. Return what is still missing, in words, or None."""
    if is_begun(context.ledger, new.id):
        return None  # By now the job may have changed those files.
    lost, session = work.lease, context.session(new)
    for tree in work.trees:
        await push(
            session,
            Path(tree.directory),
            guarded=context.key_places.guarded,
            include_secrets=tree.include_secrets,
            include=tree.include,
            ledger=context.ledger,
            limits=limits_of_call(context.home, None),
            records=records_of(context.home, new.id),
            progress=lambda done, total: None,
        )
        # Check once more: the source tree may have changed since it was last checked. If so, this raises.
        await work_of(lost, ledger=context.ledger)
    state = await begin_if_ordered(context, new, anew="if failed")
    told = await report_setup(context, new, state, wait_s=min(wait_s, LAUNCH_WAITS_S))
    if told.state == "failed":
        raise BoxTrouble(
            f"the box of {new.id} could not be set up: {told.why}", remedy=told.next, log=told.log
        )
    if told.state == "running":
        return "it is being set up"
    artifacts, discard = claims_of(context.ledger, lost.id)
    if (list(artifacts), list(discard)) != context.ledger.declarations(new.id):
        context.ledger.claim(new.id, artifacts=artifacts, discard=discard, at=context.clock.now())
    if work.in_environment:
        made = await Setup(session, script("prepare.py"), ledger=context.ledger).prepare(
            EnvironmentRequest(replay=lost.id, env_names=tuple(setup), env_from=work.setup_from),
            env={**_mirrors_at(context, new), **setup},
            wait_s=wait_s,
            hold=nullcontext,
        )
        if made.state == "running":
            return "its environment is being made"
    if kept is not None:
        context.ledger.touch(new.id, at=context.clock.now())
        await restore(
            kept,
            session,
            artifacts=context.ledger.declarations(kept.lease.id)[0],
            ledger=context.ledger,
        )
    return None


async def _launch_all(
    context: Context, new: Lease, work: RecoverableWork, values: Sequence[Mapping[str, str]]
) -> None:
    """Launch every job again under its own name, with the same command and outputs."""
    for job, own in zip(work.jobs, values, strict=True):
        made = activation(context.ledger, new.id) if "VIRTUAL_ENV" in job.env_names else {}
        await launch(
            context.session(new),
            job.command,
            artifacts=job.artifacts,
            discard=job.discard,
            env={**_mirrors_at(context, new), **made, **own},
            env_from=job.env_from,
            max_runtime_s=job.max_runtime_s,
            stalled_after_s=job.stalled_after_s,
            name=job.id,
            ledger=context.ledger,
            store=context.box_store(new),
        )


def _mirrors_at(context: Context, lease: Lease) -> dict[str, str]:
    return mirrors(context.profile(lease.provider), context.home.configuration, context.environ)


def _on_record(
    context: Context,
    lost: Lease,
    new: Lease,
    work: RecoverableWork,
    met: Taken,
    kept: Restorable | None,
) -> None:
    """Record in the timelines of both leases how the work continued, and what was lost."""
    now = context.clock.now()
    until = taken_at(context.ledger, lost, now)
    launched = min(job.launched_at or now for job in work.jobs)
    since = max(kept.taken_at, launched) if kept else launched
    back, left = may_go_back(kept, context.ledger.declarations(kept.lease.id)[0] if kept else ())
    files = [entry for entry, _ in back.values()]
    told = timeline.Recovered(
        fate=met.fate,
        words=met.words + left_out(left),
        jobs=tuple(job.id for job in work.jobs),
        restored_files=len(files),
        restored_bytes=sum(entry.size_bytes for entry in files),
        checkpoint_at=kept.taken_at if kept else None,
        lost_s=max(0.0, (until - since).total_seconds()),
        lost_usd=lost_usd(lost, new, since=since, until=max(since, until), now=now),
        trust=new.quote.offer.trust if new.quote else None,
        half=kept.half if kept else (),
    )
    events = context.ledger.events(new.id, timeline.Recovered)
    known = [event for _, event in events if isinstance(event, timeline.Recovered)]
    if known:
        told = told.model_copy(update={"budget_usd": known[0].budget_usd})
    else:
        whole = context.ledger.lease(lost.id).terms.budget_usd
        told = told.model_copy(update={"budget_usd": whole})
        keep_one_budget(context.ledger, lost, new, now)
        context.ledger.note(new.id, told.model_copy(update={"of": lost.id}), at=now)
    # Write this entry last, because a process that finds it takes the recovery as complete.
    context.ledger.note(lost.id, told.model_copy(update={"by": new.id}), at=now)


def _refs(work: RecoverableWork) -> list[tuple[str, ...]]:
    return [job.env_from for job in work.jobs]
