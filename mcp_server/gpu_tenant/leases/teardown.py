"""The one place that destroys boxes.

It needs a permit on record, which allows it to destroy one box for one reason (the ground). A box counts as gone only
when the provider's list has omitted it twice.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from pydantic import TypeAdapter

from gpu_tenant.artifacts.unbegun_jobs import unbegun_jobs
from gpu_tenant.box.seal_request import overwritten
from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing import Billed
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.cost_uncertainty import destroy_asked_at, in_all
from gpu_tenant.domain.errors import OwnerMustAct, ProviderSilent, ProviderTrouble
from gpu_tenant.domain.evidence import Evidence
from gpu_tenant.domain.model import Lease, Profile
from gpu_tenant.domain.permit import TeardownPermit
from gpu_tenant.domain.ports import Outlived, Residue
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.domain.reconcile import (
    Blind,
    FileReceipt,
    Listed,
    LookAgain,
    Omitted,
    Seen,
    plan,
    rate_words,
)
from gpu_tenant.domain.seal import Heap, Manifest
from gpu_tenant.domain.survival import kept_by_a_stop, stop_keeps
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.trackers import OFFLINE_RUNS
from gpu_tenant.domain.waiting import wait_for
from gpu_tenant.domain.wording import some
from gpu_tenant.leases.billing import apart_words, ask_bill, counted_words, disagreement
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.external_tools import broker_of
from gpu_tenant.leases.provider_listing import look, patience
from gpu_tenant.leases.verify import formats_of
from gpu_tenant.leases.work_outcome import outcome_of
from gpu_tenant.ledger import Ledger

_WORDS: TypeAdapter[list[str]] = TypeAdapter(list[str])
_ASK_AGAIN_S = 30
_NAMED = 3
"""A sentence names at most this many files of a list. The list may have thousands."""
_GONE_WITHIN_S = 300
"""If a box is still listed this long after the destroy request, a person has to look."""


async def tear_down(
    context: Context,
    permit: TeardownPermit,
    lease: Lease,
    *,
    unless_wanted_after_line: int | None = None,
) -> Receipt:
    """Destroy the permitted box, wait until its absence is seen twice, and file the receipt.

    `unless_wanted_after_line` is the number of a line in the ledger. If somebody has brought more work after that line,
    nothing is destroyed.

    Raises:
        StillWanted: somebody has brought more work; nothing was destroyed.
        ProviderTrouble: the provider refused to destroy the box, or still lists it. The box may bill. The lease stays
            `terminating`, and the same call continues the teardown.
        LeaseHeld: this process lost its hold on the lease meanwhile; nothing was destroyed after that.
    """
    context.must_record()
    profile, connector = context.profile(lease.provider), context.connector(lease)
    ledger = context.ledger
    lease = ledger.file_permit(
        permit, at=ledger.now(), unless_wanted_after_line=unless_wanted_after_line
    )
    give_up_at = ledger.now() + _gone_within(profile)
    asked_at: datetime | None = None
    seen: Seen | None = None
    silence = ""
    while True:
        silent_s = (ledger.now() - asked_at).total_seconds() if asked_at else _ASK_AGAIN_S
        if silent_s >= _ASK_AGAIN_S and not isinstance(seen, Omitted):
            asked_at = ledger.now()
            wait_for(f"{profile.title} destroys {lease.box_id}", usd_h=lease.price_usd_h)
            ledger.must_still_hold(lease.id)
            ledger.note(lease.id, timeline.Destroyed(outcome="asked"), at=asked_at)
            try:
                await connector.destroy(permit)
            except ProviderSilent as error:
                silence = f"; the destroy: {error.message}"
                # The provider may have destroyed the box. Its list will show this, and a second request does no harm.
            except ProviderTrouble as refusal:
                ledger.note(lease.id, timeline.Destroyed(outcome="refused"), at=ledger.now())
                still_billing(refusal, lease)
                raise
        seen = await look(context, lease)
        if isinstance(seen, Listed):
            # The box is billed at least until now, whatever the answer to the destroy request was.
            ledger.saw(lease.id, listed="listed", at=ledger.now())
        step = plan(lease, seen, ledger.now(), patience(profile, lease))
        if isinstance(step, FileReceipt):
            return await file_receipt(context, lease, step)
        _tell_wait(seen, lease, give_up_at)
        if ledger.now() >= give_up_at and not isinstance(seen, Omitted):
            why = seen.reason if isinstance(seen, Blind) else "the provider's list still shows it"
            raise still_billing(ProviderSilent(f"{why}{silence}", remedy=""), lease)
        await ledger.clock.sleep(_pause_s(step, ledger.now()))


async def see_gone(
    context: Context,
    lease: Lease,
    *,
    listed: Literal["is there", "may be going"] = "is there",
) -> Receipt | None:
    """Return the receipt of a box whose destroy was requested earlier, once the provider's list has omitted it twice.

    If `listed` says that the box may be going, wait as long as the call that sent the destroy request would have
    waited. Returns None if the box is listed after all, or if there is no list. Then the ground for the teardown has to
    be proved again. Nothing is destroyed here.
    """
    profile, ledger = context.profile(lease.provider), context.ledger
    going_until = may_go_until(context, lease) if listed == "may be going" else None
    give_up_at = ledger.now() + _gone_within(profile)
    while ledger.now() < give_up_at:
        seen = await look(context, lease)
        step = plan(lease, seen, ledger.now(), patience(profile, lease))
        if isinstance(step, FileReceipt):
            return await file_receipt(context, lease, step)
        is_going = (
            isinstance(seen, Listed) and going_until is not None and ledger.now() < going_until
        )
        if not isinstance(seen, Omitted) and not is_going:
            return None
        _tell_wait(seen, lease, give_up_at)
        await ledger.clock.sleep(_pause_s(step, ledger.now()))
    return None


def _tell_wait(seen: Seen, lease: Lease, give_up_at: datetime) -> None:
    if isinstance(seen, Omitted):
        wait_for(f"{lease.box_id} is gone from its provider's list; a second look proves it")
        return
    wait_for(
        f"{lease.box_id} is going away (its provider still lists it)"
        if isinstance(seen, Listed)
        else "its provider's list: the provider does not answer",
        ends=f"{give_up_at:%H:%M:%S} UTC: then run the same command again",
        usd_h=lease.price_usd_h,
    )


def may_go_until(context: Context, lease: Lease) -> datetime | None:
    """Return until when a box may still be listed after its destroy request was sent.

    None if the request was refused or never sent.
    """
    profile = context.profile(lease.provider)
    asked_at = destroy_asked_at(context.ledger.events(lease.id))
    return None if asked_at is None else asked_at + _gone_within(profile)


def _gone_within(profile: Profile) -> timedelta:
    return timedelta(seconds=max(_GONE_WITHIN_S, 3 * profile.list_lag_s))


def still_billing(trouble: ProviderTrouble, lease: Lease) -> ProviderTrouble:
    """Return the same error, with words added that say that the box may still bill."""
    if isinstance(trouble, OwnerMustAct):
        trouble.message = f"{lease.box_id} goes on billing {rate_words(lease)}: {trouble.message}"
        return trouble
    trouble.message = f"{lease.box_id} is not proved gone, and may be billing {rate_words(lease)}: {trouble.message}"
    trouble.remedy = (
        f"{trouble.remedy + ', then ' if trouble.remedy else ''}{Command('teardown', lease.id)} again;"
        " if the box stays, end it in the provider's console"
    )
    return trouble


async def file_receipt(context: Context, lease: Lease, step: FileReceipt) -> Receipt:
    """Write the proof of the end into the ledger. From then on the lease is gone."""
    profile, ledger = context.profile(lease.provider), context.ledger
    ground, asked_at = ledger.newest_permit(lease.id)
    newest = ledger.seal(lease.id)
    seal = newest if ground != "never_used" else None
    evidence = ledger.evidence(lease.id, seal.digest) if seal else []
    first, second = step.looks[0], step.looks[-1]
    if lease.active_at is None or lease.box_id is None:
        raise ProviderTrouble(
            f"{lease.id} never had a box", remedy=str(Command("leases", all=True))
        )
    billed = await ask_bill(context, lease)
    cost = in_all(
        lease,
        ledger.events(lease.id),
        absent_at=first,
        listed_at=ledger.last_listed(lease.id),
        billed=billed,
    )
    receipt = Receipt.model_validate(
        {
            "lease_id": lease.id,
            "provider": lease.provider,
            "box_id": lease.box_id,
            "ground": ground,
            "active_at": lease.active_at,
            "destroy_asked_at": asked_at,
            "first_absent_at": first,
            "second_absent_at": second,
            "lived_s": round((first - lease.active_at).total_seconds(), 3),
            "cost_usd": cost.usd,
            "cost_least_usd": cost.least_usd,
            "cost_most_usd": cost.most_usd,
            "billed_usd": billed and billed.usd,
            "counts": "; ".join(
                filter(
                    None,
                    (
                        counted_words(lease, profile, billed),
                        cost.words,
                        _apart(lease, billed, cost.usd, first),
                    ),
                )
            ),
            "kept_files": len(evidence),
            "kept_bytes": sum(e.size_bytes for e in evidence),
            "kept_in": lease.kept_in if evidence else None,
            "formats": formats_of(evidence),
            "not_proved": (
                *unproved_words(evidence),
                *not_looked_at(lease, profile, seal),
                *_emptied_by_stops(context, lease, profile),
                *_not_counted(lease),
                *_attested_words(context, lease),
            ),
            "given_up": _given_up(lease, ground, ledger, newest),
            "warnings": (
                *_billed_otherwise(lease, billed, first),
                *said_of_each(
                    (e.verdict.format, words, e.name)
                    for e in evidence
                    for words in e.verdict.warnings
                ),
            ),
            "left_behind": await _left_behind(context, lease),
            "outcome": outcome_of(ledger, lease, seal, evidence),
        }
    )
    ledger.file_receipt(receipt, at=ledger.now())
    return receipt


def _billed_otherwise(lease: Lease, billed: Billed | None, gone_at: datetime) -> tuple[str, ...]:
    words = disagreement(lease, billed, until=gone_at) if billed else None
    return (words,) if words else ()


def _apart(
    lease: Lease, billed: Billed | None, counted: Decimal | None, gone_at: datetime
) -> str | None:
    """Say why the cost and the bill differ, unless a warning says that already."""
    return (
        None if _billed_otherwise(lease, billed, gone_at) else apart_words(lease, counted, billed)
    )


def unproved_words(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """Return what reading the kept files could not prove, in words."""
    # A file whose claimed format could not be read has a reason of its own, which is reported below.
    unread = {
        e.name
        for e in evidence
        if e.verdict.outcome == "opaque" and e.verdict.format in ("unknown", "text")
    }
    words = said_of_each(
        (e.verdict.format, reason, e.name)
        for e in evidence
        if e.name not in unread
        for reason in e.verdict.not_proved
    )
    if unread:
        words.append(
            f"{some(len(unread), 'file')} of no format we read ({_named(sorted(unread))}): "
            "the bytes were proved by hash alone"
        )
    return tuple(words)


def said_of_each(told: Iterable[tuple[str, str, str]]) -> list[str]:
    """Join remarks about files: those with the same format and words become one sentence.

    Each item of `told` is a format, the words, and a file name.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for fmt, words, name in told:
        alike.setdefault((fmt, words), []).append(name)
    return [
        f"{names[0]}: {words}"
        if len(names) == 1
        else f"each of {len(names)} {fmt} files ({_named(names)}): {words}"
        for (fmt, words), names in alike.items()
    ]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def not_looked_at(lease: Lease, profile: Profile, seal: Manifest | None) -> tuple[str, ...]:
    """Return in words what was written outside the places that we must keep, as far as the seal counted it."""
    if lease.touched_at is None:
        return ()
    places = " and ".join(("the work directory", *profile.accounted_paths))
    there = seal.elsewhere if seal else None
    if there is None:
        return (f"bytes written outside {places}: nobody looked there",)
    if not there.count and there.whole:
        return (f"bytes written outside {places}: all that was found on its disks is kept",)
    named = ", ".join(f"{x.at} ({some(x.size_bytes, 'byte')})" for x in there.largest[:3])
    largest = f": {named}" if named else ""
    least = "" if there.whole else "at least "
    return (
        f"what was written outside {places}: {least}{_heap(there)}, which nobody kept{largest}",
    )


def _emptied_by_stops(context: Context, lease: Lease, profile: Profile) -> tuple[str, ...]:
    """Return in words what earlier stops of this box may have deleted before it was sealed."""
    stops = sum(isinstance(event, timeline.Parked) for _, event in context.ledger.events(lease.id))
    if not stops or lease.touched_at is None or stop_keeps(profile, lease) != "work":
        return ()
    places = " and ".join(dict.fromkeys((*kept_by_a_stop(profile), *profile.accounted_paths)))
    emptied = (
        f"what was written outside {places} before {some(stops, 'stop')}, which may have emptied it"
    )
    return (f"{emptied}: nobody looked there",)


def _heap(heap: Heap) -> str:
    return f"{some(heap.count, 'file')}, {some(heap.size_bytes, 'byte')}"


def _not_counted(lease: Lease) -> tuple[str, ...]:
    price = lease.quote.offer.price if lease.quote else None
    if price is None or price.has_free_bytes:
        return ()
    up, down = (
        "an unknown sum" if usd is None else f"{usd} USD/GB"
        for usd in (price.upload_usd_gb, price.download_usd_gb)
    )
    return (
        f"the cost of bytes, {up} to the box and {down} from the box: only its provider counts them",
    )


def _attested_words(context: Context, lease: Lease) -> tuple[str, ...]:
    """Say who stated that the box is gone, if a person did so because no provider's list can be asked."""
    profile = context.profile(lease.provider)
    said = [
        (at, event)
        for at, event in context.ledger.events(lease.id)
        if isinstance(event, timeline.Attested)
    ]
    return tuple(
        f"that {profile.title} charges nothing any more: {event.by} said at {at:%Y-%m-%d %H:%M} "
        "UTC that the box is gone, and the box no longer answered; the platform's own bill proves it"
        for at, event in said[-1:]
    )


def _given_up(lease: Lease, ground: str, ledger: Ledger, seal: Manifest | None) -> tuple[str, ...]:
    """Return what was given up: the files of each discard pattern, or the losses that a person signed for."""
    replaced = overwritten(ledger, lease)
    if ground != "waived" and seal is not None:
        # Offline runs of experiment trackers are kept if they exist. They are missing only if somebody has demanded
        # them.
        unnamed = {*OFFLINE_RUNS} - ledger.demanded_patterns(lease.id)
        missing = {*ledger.declarations(lease.id)[1]} & {*seal.unmatched} - unnamed
        return (
            *replaced,
            *_empty(seal),
            *(
                f"{p.pattern} ({some(p.count, 'file')}, {some(p.size_bytes, 'byte')})"
                for p in seal.discarded.patterns
                if p.count
            ),
            *(f"{pattern}, which never appeared" for pattern in sorted(missing)),
            *(
                f"{lease.from_work(x.at)}, which holds no bytes ({x.detail})"
                for x in seal.not_files
                if x.why in ("special", "escapes")
            ),
            *_set_up(ledger.events(lease.id)),
            *(
                f"the job {job}, whose launch was cut short before it began"
                for job in unbegun_jobs(seal, lease.id, ledger).jobs
            ),
        )
    signed = [event for _, event in ledger.events(lease.id) if isinstance(event, timeline.Waived)]
    return (*replaced, *(signed[-1].losses if signed else ()))


def _set_up(events: Lines) -> tuple[str, ...]:
    """Return in words what setups have made. It is not kept, because the next setup makes it again."""
    return tuple(
        f"what the setup {event.job} made, as far as nobody changed it ({some(event.filed, 'file')})"
        for _, event in events
        if isinstance(event, timeline.SetUp) and event.filed
    )


def _empty(seal: Manifest) -> tuple[str, ...]:
    if not seal.empty.count:
        return ()
    return (f"{some(seal.empty.count, 'empty file')}: {', '.join(seal.empty.first[:5])}",)


async def _left_behind(context: Context, lease: Lease) -> str | None:
    """Return what stays on the box or at the provider, with its cost. None if nothing stays."""
    profile, connector = context.profile(lease.provider), context.connector(lease)
    if profile.destroy == "hands_back":
        broker = broker_of(context.ledger.events(lease.id))
        rate = "its meter" if lease.price_usd_h is None else f"its {lease.price_usd_h} USD/h"
        return (
            f"~/{lease.directory} on {lease.box_id}: the machine was handed back as it is, and "
            f"{rate} goes on until its owner stops it{f': {broker.ends}' if broker else ''}"
        )
    left: list[str | None] = []
    try:
        if isinstance(connector, Outlived):
            left.append(await connector.what_outlives(lease))
        if isinstance(connector, Residue):
            left += [each.words for each in await connector.leftovers() if each.mark == lease.mark]
    except ProviderTrouble as error:
        return f"unknown: {profile.title} could not be asked what else bills ({error.message})"
    return "; ".join(filter(None, left)) or None


def _pause_s(step: object, now: datetime) -> float:
    if isinstance(step, LookAgain):
        return max(0.0, (step.at - now).total_seconds())
    return 5.0
