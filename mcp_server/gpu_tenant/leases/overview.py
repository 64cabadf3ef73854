"""Lists all leases and everything that bills, after asking every provider once."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Literal

from gpu_tenant.concurrency import each
from gpu_tenant.domain.alarm import UNREACHABLE, Level
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LeaseHeld, Refused, TenantError
from gpu_tenant.domain.interruption import recorded_fate
from gpu_tenant.domain.model import Box, Lease, LeaseState
from gpu_tenant.domain.policy import LookedAfter
from gpu_tenant.domain.ports import Market
from gpu_tenant.leases import passkeys
from gpu_tenant.leases.account_check import same_account
from gpu_tenant.leases.balance import balance_alarms
from gpu_tenant.leases.cards import Card, Foreign, Leases, Spent, card, in_all
from gpu_tenant.leases.context import PAGE, Context
from gpu_tenant.leases.drift_notice import note_drift
from gpu_tenant.leases.kept_parked import only_there
from gpu_tenant.leases.launch_again import again_step, cut_off_job, newest_launched
from gpu_tenant.leases.lease_search import is_found, only
from gpu_tenant.leases.provider_listing import as_started, is_of, shown_box
from gpu_tenant.leases.readiness import (
    close_connections,
    fulfil_intent,
    reach,
    settled_if_free,
    unguarded_words,
)
from gpu_tenant.leases.reopen import (
    in_doubt,
    is_there,
    parked_in_doubt,
    reopen,
    run_on,
    told_no_more,
)
from gpu_tenant.leases.settle import PATIENCE_S, Survey, deployment_of, survey
from gpu_tenant.leases.ssh_access import refresh_hosts
from gpu_tenant.leases.taken_step import known_unclaimed, start_step
from gpu_tenant.leases.undeclared_output import what_may_be_open

if TYPE_CHECKING:
    from gpu_tenant.box.ownership import Seen
    from gpu_tenant.domain.volumes import Volume
    from gpu_tenant.ledger import Ledger


def card_of(
    context: Context,
    lease: Lease,
    alarm: str | None,
    box: Box | None = None,
    *,
    now: datetime | None = None,
) -> Card:
    """Make the lease's card from what is on record, and from its box if the box was just listed."""
    events = context.ledger.events(lease.id)
    cut_off = cut_off_job(events) or newest_launched(events)
    shown = card(
        lease,
        context.profile(lease.provider),
        jobs=context.ledger.jobs(lease.id),
        alarm=alarm,
        now=now or context.clock.now(),
        events=events,
        box=box and as_started(lease, box, ledger=context.ledger),
        again=again_step(context.ledger, lease, cut_off) if cut_off is not None else None,
        unclaimed=known_unclaimed(context.ledger, lease) if lease.state.live else (),
        protection=context.protection(lease),
        looked_after=context.looked_after,
        may_be_open=what_may_be_open(context, lease) if lease.touched_at is not None else "",
        silent_since=silent_since(context.ledger, lease) if lease.state.live else None,
    )
    if shown.terms:
        shown = shown.model_copy(update={"watched": context.watch_words()})
    if lease.state is LeaseState.ACTIVE and lease.touched_at is not None:
        shown = shown.with_unclaimed(words_of_unclaimed(context, lease))
    if lease.recovers is not None and lease.state.live:
        from gpu_tenant.leases.recovery_plan import awaits_step, awaits_work
        from gpu_tenant.leases.recovery_words import recovered_words

        recovered = recovered_words(context.ledger, lease, context.looked_after)
        shown = shown.model_copy(update={"recovered": recovered})
        if (awaits := awaits_work(context.ledger, lease, context.looked_after)) is not None:
            step = awaits_step(context.ledger, lease, context.looked_after)
            shown = shown.model_copy(update={"recovered": awaits.message})
            shown = shown.then(step, awaits.remedy)
    receipt = None if lease.state.live else context.ledger.receipt(lease.id)
    # The box was billed until it was seen gone, which was before the recorded end.
    return shown.model_copy(update={"cost_usd": receipt.cost_usd}) if receipt else shown


def silent_since(ledger: "Ledger", lease: Lease) -> datetime | None:
    """Return since when a watchdog has had no answer from the box. None if it had one, or if none looks."""
    told = ledger.open_alarms_of(lease.id)
    return next((alarm.since for alarm in told if alarm.key == UNREACHABLE), None)


def words_of_unclaimed(context: Context, lease: Lease) -> str:
    """Say which files nobody has claimed, as far as this is known. Empty if there are none."""
    if context.ledger.unclaimed(lease.id) is None:
        return ""
    from gpu_tenant.artifacts.unclaimed import unclaimed_now, unclaimed_words

    unclaimed = unclaimed_now(context.ledger, lease)
    if unclaimed is None:
        return ""
    events, now = context.ledger.events(lease.id), context.clock.now()
    stopped = lease.parked_at is not None or recorded_fate(events) is not None
    return unclaimed_words(
        lease, unclaimed, first=start_step(lease, events, now) if stopped else None
    )


async def with_open_ports(context: Context, shown: Card) -> Card:
    """Return the card with the addresses of the ports that its order opens, as its provider shows them now.

    The provider is asked only if the order opens ports, and the box runs. A provider that does not answer shows none.
    """
    if shown.published or shown.lease not in context.ledger.lease_ids():
        return shown
    lease = context.ledger.lease(shown.lease)
    runs = lease.state is LeaseState.ACTIVE and lease.parked_at is None
    if not runs or not lease.terms.order.public_ports:
        return shown
    box = await shown_box(context, lease)
    return shown if box is None else shown.model_copy(update={"published": box.published})


def on_card(context: Context, lease: str) -> Card:
    """Make that lease's card from what is on record. No provider is asked."""
    return card_of(context, context.ledger.lease(lease), None)


def confirm_account(context: Context, provider: str, *, typed: str) -> int:
    """Record that the provider's current key and address are those of its live leases, because a person says so.

    Returns the number of leases for which this was recorded.

    Raises:
        Refused: the provider's name was not typed.
        BadRequest: the provider cannot be asked now.
    """
    context.set_up(provider)
    if typed.strip() != provider:
        raise Refused(
            f"what was typed is not {provider}: nothing was changed",
            remedy=str(Command("reconcile", same_account=provider)),
        )
    return same_account(context, provider)


async def overview(
    context: Context,
    which: Literal["live", "all"],
    *,
    twins: Literal["give_back", "tell"] = "tell",
    at: Collection[str] | None = None,
    patience_s: float = PATIENCE_S,
    limit: int = PAGE,
    search: str = "",
) -> Leases:
    """List the leases: see `list_leases`. With `at`, ask only those providers. Each has `patience_s` to answer."""
    await _look_again(context, at)
    # The watchdog arms guards and reports alarms itself, right after this look.
    by: LookedAfter = "watched" if at is not None else context.looked_after
    found = await survey(
        context, at=at, twins=twins, patience_s=patience_s, look=partial(_look_at_twin, context)
    )
    note_drift(context)
    volumes, volume_alarms = await _volumes(context, at, patience_s)
    alarms = [f"this computer: {context.unrecorded}"] if context.unrecorded else []
    alarms += [f"{name}: {words}" for name, words in volume_alarms]
    alarms += [f"{name}: {words}" for name, words in found.alarms]
    alarms += await balance_alarms(context, found)
    leases = [
        lease for lease in context.ledger.leases("live") if at is None or lease.provider in at
    ]
    ended = _newest_ended(context, limit, search=search) if which == "all" else []
    # The watchdog raises alarms of its own about what is on record.
    on_record: Literal["tell", "omit"] = "tell" if at is None else "omit"
    looked = await each(
        leases, lambda lease: _looked_at(context, lease, found, by, on_record=on_record)
    )
    seen = dict(zip((lease.id for lease in leases), looked, strict=True))
    refresh_hosts(context)
    now = context.clock.now()
    cards: list[Card] = []
    for lease in sorted([*ended, *leases], key=lambda lease: (lease.created_at, lease.id)):
        came = seen.get(lease.id)
        if came is None:
            cards.append(card_of(context, lease, None, now=now))
            continue
        if isinstance(came, TenantError):
            came = (card_of(context, lease, f"{came.message}; {came.remedy}"), "told")
        elif isinstance(came, Exception):
            # An unexpected error at one lease must not hide the others.
            came = (card_of(context, lease, f"looking at the lease failed: {came!r}"), "told")
        shown, words = came
        if shown.alarm:
            alarms.append(f"{lease.id}: {shown.alarm}")
        if shown.state.live or which == "all" or words:
            cards.append(
                shown.model_copy(update={"watched": ""})
            )  # because it is reported once for all leases
    shown_words = "\n".join(alarms)
    alarms += (
        []
        if at is not None
        else [
            f"{alarm.lease_id or 'the account'}: {alarm.words}"
            for alarm in context.ledger.open_alarms()
            if alarm.level is Level.URGENT and alarm.words not in shown_words
        ]
    )
    return only(
        in_all(
            cards,
            alarms=alarms,
            foreign=[
                Foreign(
                    provider=b.provider,
                    box=b.id,
                    state=b.state,
                    price_usd_h=b.price_usd_h,
                    deployment=deployment_of(b),
                    name=b.name,
                    gpus=b.gpus,
                    created_at=b.created_at,
                    next=_step_of_foreign(b),
                )
                for b in found.foreign
            ],
            leftovers=found.leftovers,
            volumes={volume: words for volume, words, _ in volumes},
            in_use={volume.key for volume, _, is_used in volumes if is_used},
            strays=found.strays,
            unseen=found.unseen,
            watched=context.watch_words(),
            older=_older(context, ended),
            free=_free(context),
            before=spent_before(context),
        ),
        search,
    )


def _step_of_foreign(box: Box) -> str:
    """Say what can be done about a box that is not ours. It is for a person, because only they know whose it is."""
    if deployment_of(box) is not None:
        return "its own gpu-tenant looks after it"
    adopts = Command("adopt", box.id, on=box.provider)
    return f"ask the person whose it is: {adopts} puts it under a lease, with their word; else it is left alone"


async def _volumes(
    context: Context, at: Collection[str] | None, patience_s: float
) -> tuple[list[tuple["Volume", str, bool]], list[tuple[str, str]]]:
    """Ask the providers about the volumes on record. Return the volumes, and alarms about them.

    Each volume comes with a description, and whether a lease uses it.
    """
    if not context.ledger.volumes("all"):
        return [], []
    from gpu_tenant.leases.volumes import look_at_volumes, user_of, volume_words

    seen = await look_at_volumes(context, at=at, patience_s=patience_s)
    stays = {key: f"; {words}" for key, words in seen.stays.items()}
    return [
        (
            volume,
            f"{volume_words(context, volume)}{stays.get(volume.key, '')}",
            user_of(context, volume) is not None,
        )
        for volume in seen.volumes
    ], seen.alarms


async def _look_at_twin(context: Context, lease: Lease, box: Box) -> "Seen":
    # Import this only here: twins are rare, and a look at one loads much of the program.
    from gpu_tenant.leases.inspection import look_at_twin

    return await look_at_twin(context, lease, box)


async def give_back_twins(context: Context, lease: Lease) -> str | None:
    """Ask the lease's provider for other boxes of the same request, and give back those that nobody used.

    Returns what a person must hear about them. None if there is no such box, or if the box was not rented by us.
    """
    if not isinstance(context.connectors.get(lease.provider), Market):
        return None
    found = await survey(
        context, at=(lease.provider,), twins="give_back", look=partial(_look_at_twin, context)
    )
    blind = found.blind.get(lease.provider)
    if blind is not None:
        return f"whether its request made a second box is unknown: {blind}; {Command('reconcile')} asks again"
    words = dict(found.alarms)
    return (
        "; ".join(
            words.get(
                twin.id, f"{twin.id} is a second box of its request: {Command('teardown', twin.id)}"
            )
            for twin in live_twins(context, lease)
        )
        or None
    )


def live_twins(context: Context, lease: Lease) -> Sequence[Lease]:
    """Return the live leases on other boxes of the same request, as far as the ledger knows them."""
    return [
        twin
        for twin in context.ledger.leases("live")
        if twin.id != lease.id and (twin.provider, twin.mark) == (lease.provider, lease.mark)
    ]


def history(context: Context, before: str, limit: int, *, search: str = "") -> Leases:
    """List the leases that ended before the lease `before` and match the search. No provider is asked."""
    ended, now = _newest_ended(context, limit, before=before, search=search), context.clock.now()
    return in_all(
        [card_of(context, lease, None, now=now) for lease in ended],
        alarms=(),
        foreign=(),
        leftovers=(),
        unseen=(),
        older=_older(context, ended),
        free=_free(context),
        before=Spent(spent_in_all(context), spent_before(context).unknown),
    )


def _newest_ended(
    context: Context, limit: int, *, before: str | None = None, search: str = ""
) -> list[Lease]:
    """Return the newest ended leases that match the search, at most `limit`, oldest first."""
    if not search:
        return context.ledger.newest_ended(limit=limit, before=before)
    found: list[Lease] = []
    while len(found) < limit:
        page = context.ledger.newest_ended(limit=PAGE, before=before)
        found = [lease for lease in page if is_found(on_card(context, lease.id), search)] + found
        if len(page) < PAGE:
            break
        before = page[0].id
    return found[-limit:]


def spent_before(context: Context) -> Spent:
    """Return what all ended leases have cost."""
    free = _free(context)
    usd, unknown = context.ledger.receipts_sum(free=free)
    ledger, now = context.ledger, context.clock.now()
    lost = [(x, ledger.cost_usd(x, now)) for x in ledger.leases("lost")]
    return Spent(
        usd=sum((cost for _, cost in lost if cost is not None), usd),
        unknown=unknown + sum(cost is None and x.provider not in free for x, cost in lost),
    )


def spent_in_all(context: Context) -> Decimal:
    """Return what all leases have cost so far, according to the ledger. Unknown costs are not included."""
    now = context.clock.now()
    live = (context.ledger.cost_usd(lease, now) for lease in context.ledger.leases("live"))
    return sum((cost for cost in live if cost is not None), spent_before(context).usd)


def _free(context: Context) -> set[str]:
    return {slug for slug, profile in context.profiles.items() if profile.kind == "own"}


def _older(context: Context, ended: Sequence[Lease]) -> str | None:
    """Return the id of the oldest of these leases if the ledger has older ones, else None."""
    return ended[0].id if ended and context.ledger.ended_before(ended[0].id) else None


async def _looked_at(
    context: Context,
    lease: Lease,
    found: Survey,
    by: LookedAfter,
    *,
    on_record: Literal["tell", "omit"],
) -> tuple[Card, str | None]:
    """Return the card of a live lease as its provider has just shown it, and what a person must hear."""
    words: str | None
    settled, listing = lease, found.listings.get(lease.provider)
    if lease.provider in found.blind:
        words = f"{lease.provider} does not answer: the box may be running"
    else:
        settled, words = await settled_if_free(context, lease, listing)
    boxes = listing.boxes if listing else ()
    box = next((box for box in boxes if is_of(box, settled)), None)
    if by == "unwatched":
        unguarded = unguarded_words(context, settled, box)
        words = "; ".join(filter(None, (words, unguarded))) or None
    if on_record == "tell":
        words = "; ".join(filter(None, (words, *_on_record(context, settled)))) or None
    return card_of(context, settled, words, box), words


def _on_record(context: Context, lease: Lease) -> Iterator[str]:
    """Yield what is known to be wrong with a lease, although its provider's list does not show it."""
    if lease.state is not LeaseState.ACTIVE:
        return
    if lease.parked_at is None:
        since = silent_since(context.ledger, lease)
        if since is not None:
            yield f"its box has not answered since {since:%Y-%m-%d %H:%M} UTC"
    elif context.ledger.seal(lease.id) is None and (words := only_there(lease, context.ledger)):
        yield words


async def _look_at_parked(context: Context, at: Collection[str] | None) -> None:
    """Ask each box that counts as parked only because it was silent. If it answers, record that it runs."""
    parked = [lease for lease in parked_in_doubt(context) if at is None or lease.provider in at]
    there = await each(parked, lambda lease: is_there(lease, partial(reach, context)))
    for lease, answers in zip(parked, there, strict=True):
        if answers is not True:
            await close_connections(context, lease)
            continue
        with suppress(LeaseHeld, TenantError), context.hold_lease(lease.id, "look"):
            await run_on(context, context.ledger.lease(lease.id))


async def _look_again(context: Context, at: Collection[str] | None) -> None:
    """Ask each box that counts as gone only because a person said so. If it answers, put it under a lease again."""
    doubted = [
        lease
        for lease in in_doubt(context.ledger, context.clock.now())
        if at is None or lease.provider in at
    ]
    there = await each(doubted, lambda lease: is_there(lease, partial(reach, context)))
    for lease, answers in zip(doubted, there, strict=True):
        await close_connections(context, lease)
        if answers is not True:
            continue
        with suppress(LeaseHeld), context.hold_lease(lease.id, "look"):
            if lease not in in_doubt(context.ledger, context.clock.now()):
                continue  # Another process was quicker.
            again = reopen(context, lease)
            pins = context.home.known_hosts(lease.id)
            if pins.exists():
                context.home.known_hosts(again.id).write_bytes(pins.read_bytes())
            with suppress(TenantError):  # The alarm stays open, and the next look tries again.
                await fulfil_intent(context, again, wait_s=0)
    await _look_at_parked(context, at)
    told_no_more(context.ledger, context.clock.now())
    passkeys.alarm_on_changes(context.ledger, at=context.clock.now())
