"""The terms of a lease that are now in force, as sentences. The program keeps to these sentences."""

from collections.abc import Iterator
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import Literal, NamedTuple

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.model import Lease, Profile
from gpu_tenant.domain.protection import Protection, way_out
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.rental import ends_the_lease, rental_words
from gpu_tenant.domain.survival import kept_words, may_keep
from gpu_tenant.domain.terms import (
    GRACE_S,
    LAST_START_S,
    RESCUE_H,
    UNASKED_GIB,
    UNSEEN_USD,
    OnFailure,
    Terms,
)
from gpu_tenant.domain.wording import until, usd_words

LookedAfter = Literal["watched", "unwatched"]
"""Whether a watchdog, or a server that acts as one, looks after leases now."""


class Policy(Record):
    """The terms of one lease that are in force."""

    lease: str
    terms: tuple[str, ...]
    if_this_computer_dies: str


def rules_of(
    lease: Lease,
    profile: Profile,
    *,
    looked_after: LookedAfter = "watched",
    now: datetime | None = None,
) -> tuple[str, ...]:
    """Return all rules for the lease from now on, one in each sentence. With `now`, they say what was spent by then.

    If no watchdog runs, each rule that only a watchdog can enforce says so, and the first rule says once that nobody
    enforces these now.
    """
    rules = tuple(_rules(lease, profile, looked_after, now))
    if looked_after == "unwatched" and any(_UNWATCHED in rule for rule in rules):
        return (
            "no watchdog runs now: rules that need one are not carried out",
            *rules,
        )
    return rules


_UNWATCHED = "by a watchdog"
END_S = 300
"""A lease is ended at least this many seconds before its budget is spent, because the budget also pays for the end."""

_SAME_DAY_S = 20 * 3600
"""A time that is at most this many seconds away is written without its date."""

_CENT = Decimal("0.01")


def _rules(
    lease: Lease, profile: Profile, looked_after: LookedAfter, now: datetime | None
) -> Iterator[str]:
    terms, by = lease.terms, "by the watchdog" if looked_after == "watched" else _UNWATCHED
    only = "" if looked_after == "watched" else f" ({_UNWATCHED})"
    if lease.parked_at is not None:
        yield _parked_deadline(lease, by)
        running = lease.model_copy(update={"parked_at": None})
        for rule in _while_it_runs(running, profile, by, only):
            yield f"once its box runs again: {rule}"
    else:
        rental = f" ({rental_words(lease)})" if ends_the_lease(lease) else ""
        ends = f"ends at {terms.deadline_at:%Y-%m-%d %H:%M} UTC{rental}: jobs are stopped"
        yield (
            f"{ends}, and the box is torn down if its files are proved"
            if not only
            else f"{ends} by the guard on the box; the box is torn down {by} if its files are proved"
        )
        yield from _while_it_runs(lease, profile, by, only)
    most = most_words(lease, profile, looked_after, now=now)
    if most is not None:
        yield most
    if profile.kind == "kubernetes" and lease.quote is not None:
        # What outlives the pod, and when the cluster ends it, as stated when the box was ordered.
        yield from lease.quote.offer.notes
    if profile.kind != "own":
        yield f"what is kept: {kept_words(profile, lease)}"
    yield from _asked_for(terms, profile, only)


def _parked_deadline(lease: Lease, by: str) -> str:
    """Say what the deadline does to a parked box. It has no jobs and no guard, so only a watchdog can act."""
    at = f"its deadline is {lease.terms.deadline_at:%Y-%m-%d %H:%M} UTC"
    if lease.touched_at is None:
        return f"{at}: its box is parked and was never used, so it is torn down then {by}, if a look shows that nobody used it"
    usd_h = lease.price_usd_h
    disk = (
        "its disk costs nothing"
        if usd_h == 0
        else f"its disk bills {'at an unknown rate' if usd_h is None else f'at {usd_h} USD/h'}"
    )
    if lease.terms.on_deadline == "waive":
        return (
            f"{at}: its box is parked, and {disk}, also after that; when {_rescue_words(lease)} more are "
            f"spent, it is destroyed {by}, as its owner has signed"
        )
    return (
        f"{at}: a box that a limit or its provider has stopped is then started once {by}, to prove its files and end it; "
        f"one that was parked on purpose is kept, and {disk} until you end it; {Command('leases')} names the commands"
    )


def _while_it_runs(lease: Lease, profile: Profile, by: str, only: str) -> Iterator[str]:
    """Yield the rules that can end a box which runs.

    If no watchdog runs, `only` is the remark that is added to a rule which needs one. Otherwise it is empty.
    """
    terms = lease.terms
    cap = owners_cap(lease)
    if cap is not None:
        yield f"dearer than {cap} USD/h: ended {by}"
    if terms.budget_usd is not None:
        yield (
            f"budget {terms.budget_usd} USD: the lease is ended {by} while the rest of the budget still pays "
            "for its end"
        )
    if terms.idle_h is not None:
        does = "ended as at its deadline" if terms.when_idle == "end" else "told"
        guarded = only and terms.when_idle == "end" and way_out(profile, lease) is not None
        yield f"idle for {terms.idle_h:g} h: {'stopped by its guard; ' if guarded else ''}{does}{only}"
    if terms.when_done != "keep" or profile.kind != "own":
        held = "" if terms.when_done == "keep" else only
        yield f"when its work is done: {_when_done(lease, profile)}{held}"
    yield unasked_words(terms)
    if profile.destroy == "deletes":
        yield f"unverified at its end: {_rescue(lease, profile)}{only}"


def _when_done(lease: Lease, profile: Profile) -> str:
    terms = lease.terms
    if terms.when_done == "keep":
        return "the box is kept, until another of these terms ends it"
    last = "handed back" if profile.destroy == "hands_back" else "torn down once all is proved"
    does = {"end": last, "park": "parked, and its disk bills on"}
    rule = terms.on_failure
    failed = (
        f"the box is kept, and bills {_a_day(lease)}"
        if rule.does == "hold"
        else f"{does[rule.does]} {rule.time_words}{_warm_usd(lease, rule)}".strip()
    )
    return f"{does[terms.when_done]}, after {GRACE_S} s; if a job failed, or processes that it started still run: {failed}"


def unasked_words(terms: Terms) -> str:
    """Say how much of what nobody declared comes home without a question."""
    if terms.unasked_gib is None:
        return (
            f"what nobody declared: it comes home too, up to {UNASKED_GIB:g} GiB, or what comes in 10 min if that is "
            "more; a larger rest is a question"
        )
    if not terms.unasked_gib:
        return (
            "what nobody declared: none of it comes home unasked, and it is a question at the end"
        )
    return f"what nobody declared: it comes home too, up to {terms.unasked_gib:g} GiB; a larger rest is a question"


def _a_day(lease: Lease) -> str:
    usd_h = running_usd_h(lease)
    return "an unknown sum a day" if usd_h is None else f"{usd_words(usd_h * 24)} a day"


def _warm_usd(lease: Lease, rule: OnFailure) -> str:
    """Say what it costs to keep a failed job's box for another try. Empty if it goes at once."""
    usd_h = running_usd_h(lease)
    if not rule.longest_s or not usd_h:
        return ""
    return f", for about {usd_words(usd_h * Decimal(rule.longest_s) / 3600)}"


def _rescue(lease: Lease, profile: Profile) -> str:
    parks = "it is parked, and its disk bills on; if that fails, " if may_keep(profile) else ""
    if lease.terms.on_deadline == "waive":
        return (
            f"{parks}it bills on for {_rescue_words(lease)} more; then it is destroyed, parked or not: its "
            "owner has signed for that, and any change of its terms cancels the signature"
        )
    named = lease.terms.rescue_usd
    signs = Command("waive", lease.id, at_deadline=True)
    unsigned = (
        ""
        if named is None
        else f"; its rescue sum of {named} USD pays for one last start, and for no more until its owner signs ahead: {signs}"
        if may_keep(profile)
        else f"; its rescue sum of {named} USD has no effect until its owner signs ahead: {signs}"
    )
    return f"{parks}it is kept and bills on until you act, and every alarm is urgent{unsigned}"


def _rescue_words(lease: Lease) -> str:
    most = rescue(lease)
    return f"{RESCUE_H} hours' cost" if most is None else f"{most:.2f} USD"


def most_words(
    lease: Lease, profile: Profile, looked_after: LookedAfter, *, now: datetime | None = None
) -> str | None:
    """Say what the lease can cost at most, under which condition, and what enforces that. None if it costs nothing."""
    terms = lease.terms
    if profile.destroy != "deletes":
        if running_usd_h(lease):
            return "the most that it costs: nothing limits it here, because only the machine's owner ends its bill"
        return None
    spent = lease.cost_usd(now) if now is not None else None
    if lease.parked_at is not None and lease.price_usd_h == 0:
        so_far = "" if spent is None else f"the {usd_words(spent)} spent so far, and "
        return f"the most that it costs: {so_far}nothing more while its box is parked"
    if (
        lease.parked_at is not None
        and lease.touched_at is not None
        and terms.on_deadline != "waive"
    ):
        if spent is None:
            return "the most that it costs: nothing limits it, because only you can end the bill of a parked box"
        return (
            f"the most that it costs: {usd_words(spent)} so far, and nothing limits it, because only you can end the bill of "
            "a parked box"
        )
    if looked_after == "unwatched":
        return "the most that it costs: nothing limits it while no watchdog runs"
    if spent is not None and terms.budget_usd is not None and spent >= terms.budget_usd:
        return (
            f"the most that it costs: more than the {usd_words(spent)} spent so far: it passed its budget of "
            f"{terms.budget_usd} USD, and is being ended"
        )
    bills = f"what it bills until {terms.deadline_at:%Y-%m-%d %H:%M} UTC and its end"
    # Bytes are in no price and, until a bill names them, in no budget.
    price = lease.quote.offer.price if lease.quote else None
    traffic = "" if price is None or price.has_free_bytes else " plus traffic"
    sum_words = bills if terms.budget_usd is None else f"{terms.budget_usd} USD{traffic}"
    usd, end_usd = (
        _to_deadline_usd(lease, spent, now),
        (running_usd_h(lease) or Decimal(0)) * END_S / 3600,
    )
    if usd is not None and (terms.budget_usd is None or usd + end_usd < terms.budget_usd):
        sum_words = (
            f"about {usd_words(usd)}{traffic} until {terms.deadline_at:%Y-%m-%d %H:%M} UTC, "
            "and what its end takes"
        )
    if terms.on_deadline == "waive":
        return f"the most that it costs: {sum_words}, and {_rescue_words(lease)} to rescue what is unverified"
    return (
        f"the most that it costs: {sum_words}; the watchdog holds it to that, with one exception: what is not proved "
        f"by then costs {unproved_words(lease, profile)} until you act"
    )


def unproved_words(lease: Lease, profile: Profile) -> str:
    """Say what files that are not proved at the lease's end cost from then on."""
    usd_h = running_usd_h(lease)
    if lease.terms.on_deadline == "waive":
        return f"{_rescue_words(lease)} more, and then they are lost"
    if not may_keep(profile):
        return _by_the_day(usd_h)
    disk = _by_the_day(lease.quote.offer.price.parked_usd_h if lease.quote else None)
    if usd_h is None:
        return f"{disk} of disk"
    return f"up to {_in_cents(last_start_usd(usd_h))} for one last start, and {disk} of disk"


def last_start_usd(usd_h: Decimal) -> Decimal:
    """Return the most that the one start of a stopped box after its deadline costs: its guard stops it after that."""
    return usd_h * LAST_START_S / 3600


def _by_the_day(usd_h: Decimal | None) -> str:
    return "an unknown sum a day" if usd_h is None else f"{_in_cents(usd_h * 24)} a day"


def _in_cents(usd: Decimal) -> str:
    return f"{usd.quantize(_CENT, ROUND_CEILING)} USD"


def _to_deadline_usd(lease: Lease, spent: Decimal | None, now: datetime | None) -> Decimal | None:
    """Return what the lease will have cost by its deadline, at its present price. None if unknown, or if it is parked."""
    usd_h = running_usd_h(lease)
    if now is None or spent is None or usd_h is None or lease.parked_at is not None:
        return None
    left_s = max(0.0, (lease.terms.deadline_at - now).total_seconds())
    return spent + usd_h * Decimal(str(left_s)) / 3600


# In brief, for a terminal


class ShortTerms(NamedTuple):
    """What a person needs to know of the terms at a glance. `rules_of` has all of them, in full."""

    ends: str
    """What ends the lease, and when."""
    left_to_you: str | None
    """What only a person can end or decide."""
    agreed: tuple[str, ...]
    """Terms that are not the usual ones."""


def brief_of(
    lease: Lease, profile: Profile, *, looked_after: LookedAfter, now: datetime
) -> ShortTerms:
    """Return the same terms as `rules_of`, in a few short lines."""
    return ShortTerms(
        ends=_ends_in_brief(lease, looked_after, now),
        left_to_you=left_to_you(lease, profile),
        agreed=tuple(_agreed(lease, profile)),
    )


def _ends_in_brief(lease: Lease, looked_after: LookedAfter, now: datetime) -> str:
    at = end_clock(lease, now)
    if (
        lease.parked_at is not None
        and lease.touched_at is not None
        and lease.terms.on_deadline == "keep"
    ):
        return f"its box is parked; if that was on purpose, only you end it, and its deadline, {at}, counts once it runs"
    if looked_after == "unwatched":
        return f"its jobs are stopped at {at}"
    return {
        "end": f"when its work is proved here, or at {at}",
        "park": f"parked when its work is done; ends at {at}",
        "keep": f"at {at}, and not when its work is done",
    }[lease.terms.when_done]


def end_clock(lease: Lease, now: datetime) -> str:
    """Write the deadline as a time of the clock, with its date if it is not soon."""
    at, left_s = lease.terms.deadline_at, (lease.terms.deadline_at - now).total_seconds()
    shown = f"{at:%H:%M} UTC" if 0 <= left_s < _SAME_DAY_S else f"{at:%Y-%m-%d %H:%M} UTC"
    rental = f"; {rental_words(lease)}" if ends_the_lease(lease) else ""
    return f"{shown}, {until(left_s)}{rental}"


def left_to_you(lease: Lease, profile: Profile) -> str | None:
    """Say what goes on billing, or is lost, at the end of the lease. None if nothing is."""
    usd_h = running_usd_h(lease)
    if profile.destroy != "deletes":
        return "its bill: only the machine's owner ends that" if usd_h else None
    if lease.parked_at is not None:
        return None
    if lease.terms.on_deadline == "waive":
        return f"what is not proved by then: it is lost after {_rescue_words(lease)} more, as was signed"
    if may_keep(profile):
        rate = lease.quote.offer.price.parked_usd_h if lease.quote else None
        bills = "its disk bills on" if rate is None else f"its disk bills {rate} USD/h"
        return f"what is not proved by then: it is parked, and {bills} until you act"
    if profile.kind == "own" and not usd_h:
        return "what is not proved by then: it stays on the box until you act"
    bills = "bills on" if usd_h is None else f"bills {usd_h} USD/h"
    return f"what is not proved by then: the box {bills} until you act"


def _agreed(lease: Lease, profile: Profile) -> Iterator[str]:
    """Yield the terms that a person named, and those that most leases do not have."""
    terms = lease.terms
    cap = owners_cap(lease)
    if cap is not None:
        words = f"it is ended if it becomes dearer than {cap} USD/h"
        handed = lease.quote is not None and lease.quote.wish.max_price_usd_h == cap
        if lease.recovers is not None and handed:
            words += f", the most agreed for {lease.recovers}, whose work it continues"
        yield words
    if profile.kind != "own" and (terms.when_done != "end" or terms.on_failure != OnFailure()):
        yield f"when its work is done: {_when_done(lease, profile)}"
    yield from _asked_for(terms, profile)


def _asked_for(terms: Terms, profile: Profile, only: str = "") -> Iterator[str]:
    """Yield the terms that a lease has only if somebody asked for them.

    `only` is the remark that only a watchdog can move the work, or it is empty.
    """
    if ordered := terms.order.words(profile.id):
        yield f"ordered: {'; '.join(ordered)}"
    if terms.store is not None:
        yield f"artifacts are copied to {terms.store} too"
    if terms.recover:
        yield f"if its provider takes the box: the work goes on at {_places(terms)}{only}"


def _places(terms: Terms) -> str:
    named = ("the same platform" if name == "same" else name for name in terms.recover)
    return ", then at ".join(named)


def alone_words(protection: Protection, *, guard: Literal["armed", "not armed"]) -> str | None:
    """Say in few words what ends the bill if this computer dies. None if nothing has to end it."""
    match protection.kind:
        case "provider timer":
            return "if this computer dies, its platform ends it at the deadline"
        case "in-box credential" | "in-box poweroff":
            first = "" if guard == "armed" else ", once that is armed"
            return f"if this computer dies, its guard stops it at the deadline{first}"
        case "nothing":
            return "if this computer dies, nothing ends its bill"
        case "nothing needed":
            return None


def remarks(before: Lease, after: Lease) -> str | None:
    """Return what a person who has just changed the terms should notice. None if there is nothing."""
    told = []
    if after.terms.deadline_at < before.terms.deadline_at:
        told.append(
            f"the deadline was {before.terms.deadline_at:%Y-%m-%d %H:%M} UTC: it is earlier now"
        )
    if before.terms.on_deadline == "waive":
        told.append("what was signed ahead was for the old terms, and no longer counts")
    return "; ".join(told) or None


def owners_cap(lease: Lease) -> Decimal | None:
    """Return the price cap that a person named. None if nobody named one.

    Without such a cap, the quoted price is the cap, but only for renting. If the price rises later, the rise is
    reported, and no work is ended because of it.
    """
    if lease.quote is not None and lease.quote.wish.max_price_usd_h is None:
        own = lease.terms.max_price_usd_h
        return None if own == lease.quote.cap_usd_h else own
    return lease.terms.max_price_usd_h


def rescue(lease: Lease) -> Decimal | None:
    """Return how much may be spent after the lease's end to save what is on its box. None if unknown.

    The sum is based on the price while running: at the parked price, a day would cost next to nothing.
    """
    return lease.terms.rescue(running_usd_h(lease))


def running_usd_h(lease: Lease) -> Decimal | None:
    """Return what the lease's box costs an hour while it runs. Without a quote, this is its highest rate so far."""
    if lease.quote is not None:
        return lease.quote.offer.price.running_usd_h
    known = [rate.usd_h for rate in lease.rates if rate.usd_h is not None]
    return max(known) if known else lease.price_usd_h


def must_be_doable(terms: Terms, profile: Profile) -> None:
    """Require that the platform can do what the terms say about a box whose work is done.

    Raises:
        Refused: the box is to be parked, but no stop at this platform keeps its disk.
    """
    parks = terms.when_done == "park" or (
        terms.when_done != "keep" and terms.on_failure.does == "park"
    )
    if parks and not may_keep(profile):
        raise Refused(
            f"a box at {profile.title} cannot be parked when its work is done: no stop there keeps its work",
            remedy="say `--when-done end` (torn down once all is proved) or `--when-done keep`, and "
            "`--on-failure end` or `keep`",
        )


def ends_unseen(profile: Profile) -> bool:
    """Whether something at the platform ends the bill (except that of the disk) even if nobody looks any more."""
    if profile.kind == "own" or profile.provider_timer in ("stop", "delete"):
        return True
    # A stop that loses the work on the disk does not count, because the guard does not use such a stop.
    return profile.in_box != "none" and may_keep(profile)


def must_end_unseen(profile: Profile, usd_h: Decimal | None) -> None:
    """Require that something stops the meter if this computer dies, or that a day costs at most `UNSEEN_USD`.

    Raises:
        Refused: neither is the case, or the price is unknown.
    """
    if ends_unseen(profile) or (usd_h is not None and usd_h * 24 <= UNSEEN_USD):
        return
    day = "an unknown sum" if usd_h is None else f"{usd_h * 24:.2f} USD"
    raise Refused(
        (
            f"if this computer dies, nothing ends the bill at {profile.title}: each day that nobody notices "
            f"costs {day}"
        ),
        remedy=f"take an offer elsewhere, or accept this risk: provision with {Option('unguarded', 'accept')}, "
        f"for which a person signs; {Command('install', 'watchdog')} on a machine that stays on looks "
        "after the box",
    )
