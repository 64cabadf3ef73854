"""Makes the permits to destroy boxes.

It finds what would be lost if a box were destroyed now. It makes a permit if nothing would be lost, or if a person has
signed for exactly these losses. This rule is called the Iron Law.
"""

import asyncio
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gpu_tenant.artifacts.local_evidence import Loss, reread_all
from gpu_tenant.artifacts.losses import (
    differs,
    so_far,
    unclaimed_by_name,
    unclaimed_versions,
    uncollected_loss,
)
from gpu_tenant.artifacts.stores.protocol import DurableStore
from gpu_tenant.artifacts.stores.remote_evidence import Witness
from gpu_tenant.artifacts.unbegun_jobs import may_begin
from gpu_tenant.box.manifest import reseal, unread_bytes
from gpu_tenant.box.ownership import Seen, unmounted_volumes, use
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.end_reserve import start_words
from gpu_tenant.domain.errors import (
    BoxTrouble,
    JobRunning,
    ProviderTrouble,
    Refused,
    Unverified,
)
from gpu_tenant.domain.evidence import Evidence
from gpu_tenant.domain.interruption import recorded_fate, who_stopped_it
from gpu_tenant.domain.model import BoxId, BoxState, Lease
from gpu_tenant.domain.parked import read_at_stop, read_in_notice
from gpu_tenant.domain.permit import (
    _SEAL,
    NeverUsed,
    TeardownPermit,
    Verified,
    VolumePermit,
    Waived,
)
from gpu_tenant.domain.ports import Chronicling, Reclaiming
from gpu_tenant.domain.reconcile import Listed
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.domain.signature import Signature, digest_of
from gpu_tenant.domain.untrusted_text import plain, quote_text
from gpu_tenant.domain.volumes import Volume
from gpu_tenant.domain.waiting import wait_for
from gpu_tenant.domain.wording import IN_WORDS, in_words, size, some
from gpu_tenant.files.artifact_directory import is_on_the_box
from gpu_tenant.files.patterns import matches_kept_name
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.provider_listing import look
from gpu_tenant.leases.term_checks import began_at, beyond
from gpu_tenant.leases.won_back import not_yet
from gpu_tenant.ledger import Ledger

_CLOCKS_APART_S = 60
"""The clocks of two machines may differ by this many seconds.

The file times on a network disk come from another machine's clock.
"""
_SOON_S = 2
"""If re-reading took longer than this, look at the box once more.

Whatever was written on it in the meantime counts.
"""
_NAMED_AT_MOST = 10_000
"""At most this many unclaimed files are listed by name. No person reads more names."""
_SHOWN = 5
"""A refusal names at most this many losses, and gives the number of the others."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What would be lost by a teardown of the box, and what has been proved about the rest."""

    untouched: bool
    seal: Manifest | None
    evidence: Sequence[Evidence]
    losses: Sequence[Loss]

    @property
    def loss_digest(self) -> str:
        """The hash of exactly these losses. A person's signature is for this hash."""
        # What a running job has written so far is not part of the hash: a signature for the job covers everything that
        # it writes.
        return digest_of([words for x in self.losses for words in (x.what, *x.names, *x.versions)])

    @property
    def words(self) -> tuple[str, ...]:
        """Every loss, by name."""
        return tuple(
            words
            for loss in self.losses
            for words in (loss.what, *(f"- {name}" for name in (*loss.names, *loss.so_far)))
        )


UNTOUCHED = Assessment(untouched=True, seal=None, evidence=(), losses=())
"""The ledger and a look at the box show that nobody used it, so there is nothing to lose."""


def _way_back(lease: Lease, ledger: Ledger) -> str | None:
    """Say how to start a box that was stopped unasked. None if it was not."""
    events = ledger.events(lease.id)
    fate = recorded_fate(events)
    if fate is None:
        return None
    again = start_words(lease, events, ledger.now(), " starts it again, if that can be had")
    return f"{who_stopped_it(fate)}: {again}"


def cannot_be_seen(why: str, remedy: str) -> Assessment:
    """Return the assessment of a used box that cannot be looked at: anything may be lost with it."""
    loss = Loss(what=f"everything on the box, which cannot be looked at: {why}", remedy=remedy)
    return Assessment(untouched=False, seal=None, evidence=(), losses=(loss,))


async def assess(
    context: Context,
    lease: Lease,
    *,
    store: DurableStore | None = None,
    others: Sequence[Loss] = (),
) -> Assessment:
    """Seal the box again, and re-read every kept file from this computer's disk.

    Returns what would be lost, and what is proved. To seal a box is to list and hash its files. If the copy on this
    computer proves nothing, the copy in the `store` is re-read. An unreachable box or store is no error here:
    everything that only it could prove becomes a loss. `others` are losses of somebody else's work, which a look has
    found on the box.
    """
    if lease.touched_at is None:
        return UNTOUCHED
    ledger = context.ledger
    wait_for(
        f"the box of {lease.id} is sealed: it lists and hashes its files", usd_h=lease.price_usd_h
    )
    collected, real_s = ledger.seal(lease.id), asyncio.get_running_loop().time
    try:
        session = context.session(lease)
        # Use the hashes that the box remembers. If something was never collected, no file has to be read to refuse.
        now = await reseal(
            session,
            ledger=ledger,
            named=_NAMED_AT_MOST,
            hashes="recalled",
        )
        if not now.digest and not differs(now, collected):
            now = await reseal(
                session,
                ledger=ledger,
                named=_NAMED_AT_MOST,
                unread_bytes=unread_bytes(now),
            )
    except JobRunning as error:
        written = await _written_so_far(context, lease)
        loss = Loss(
            what=f"a job is still running: {error.message}; the job would end, and all that it writes would be lost",
            remedy=error.remedy,
            so_far=written,
        )
        return Assessment(untouched=False, seal=None, evidence=(), losses=(loss,))
    except BoxTrouble as error:
        came = (timeline.Snapped, timeline.Collected)
        nothing_came = collected is None and not ledger.events(lease.id, *came)
        boots = await not_yet(context, lease)
        silent = f"{error.message}; {_way_back(lease, ledger) or error.remedy}"
        loss = Loss(
            what="everything on the box: it could not be sealed "
            f"({'nothing was ever collected' if nothing_came else 'it may hold more than was collected'})",
            remedy=f"{f'{boots.message}; {boots.remedy}' if boots else silent}; if the box is gone for good, "
            f"its owner runs {Command('waive', lease.id)}",
        )
        return Assessment(untouched=False, seal=None, evidence=(), losses=(loss,))
    losses = [
        *others,
        *await _unmounted_losses(context, lease),
        *unkept_losses(now, lease),
        *untold_losses(now, lease, ledger, collected),
    ]
    began_s = ledger.began_s(lease.id)
    gone = now.since_ns is None and any(job.launched_at for job in ledger.jobs(lease.id))
    late = now.since_ns and began_s and now.since_ns > (began_s + _CLOCKS_APART_S) * 1e9
    if gone or late:
        losses.append(
            Loss(
                what="everything that the jobs wrote: the box's own record of when they began is gone"
                if gone
                else "everything that the jobs wrote: the box's own record says that they began later than they did",
                remedy=f"look at the box yourself; to end the lease nevertheless, its owner runs "
                f"{Command('waive', lease.id)}",
            )
        )
    if differs(now, collected):
        losses.append(uncollected_loss(now, collected, lease))
        return Assessment(
            untouched=False, seal=now if now.digest else None, evidence=(), losses=tuple(losses)
        )
    del collected  # It equals the new seal, and with many files it takes much memory.
    began_at_s = real_s()
    evidence, unproved = await _reread(now, lease, store)
    losses += unproved
    if real_s() - began_at_s > _SOON_S:
        again = partial(reseal, session, ledger=ledger, named=_NAMED_AT_MOST)
        losses += await changed_since(now, again, lease)
    if evidence:
        ledger.file_evidence(lease.id, now.digest, evidence, at=ledger.now())
    return Assessment(untouched=False, seal=now, evidence=tuple(evidence), losses=tuple(losses))


async def assess_unstarted(
    context: Context,
    lease: Lease,
    read: timeline.ReadAtStop,
    *,
    store: DurableStore | None = None,
    by: timeline.ReadInNotice | None = None,
) -> Assessment:
    """Assess a parked box without starting it, by the seal from right before its stop.

    `read` is the ledger's record of that seal. If the box was read while its platform was taking it, `by` is the
    record instead.

    The kept files are re-read as for any teardown. At the end, the provider is asked whether somebody has started the
    box since that seal. Unless it confirms that nobody has, the box counts as one that cannot be looked at.
    """
    ledger = context.ledger
    seal = ledger.seal(lease.id)
    if seal is None or seal.digest != read.seal:
        return _parked(context, lease, "it is parked")
    losses = [
        *unkept_losses(seal, lease),
        *untold_losses(seal, lease, ledger, seal),
    ]
    evidence, unproved = await _reread(seal, lease, store)
    why = await started_since(context, lease, read)
    events = ledger.events(lease.id)
    noticed = read_in_notice(events)
    stands = (
        read_at_stop(events) == read if by is None else noticed is not None and noticed[1] == by
    )
    if why is not None or not stands:
        return _parked(context, lease, why or "it is parked")
    if evidence:
        ledger.file_evidence(lease.id, seal.digest, evidence, at=ledger.now())
    return Assessment(
        untouched=False,
        seal=seal,
        evidence=tuple(evidence),
        losses=(*losses, *unproved),
    )


async def started_since(context: Context, lease: Lease, read: timeline.ReadAtStop) -> str | None:
    """Say why a parked box may hold more than was read at its stop.

    None if its provider confirms that nobody started it. Where the provider keeps no record of starts, the ledger's looks
    have to do.
    """
    doubt = "it is parked, and whether somebody has started it since it was read is unknown"
    connector = context.connector(lease)
    chronicle = connector if isinstance(connector, Chronicling) else None
    if chronicle is None and read.last_change is not None:
        return doubt
    seen = await look(context, lease)
    if not isinstance(seen, Listed) or seen.box.state is not BoxState.PARKED:
        return doubt
    if chronicle is None:
        return None  # It was read for a permit, and no look since has shown it running.
    try:
        said = await chronicle.last_change(lease)
    except ProviderTrouble as trouble:
        return f"{doubt}: {trouble.message}"
    if said is None:
        return doubt
    if said != read.last_change:
        return (
            f"it is parked, and was started since it was read: its provider says {quote_text(said)}"
        )
    return None


def _parked(context: Context, lease: Lease, why: str) -> Assessment:
    events, then = context.ledger.events(lease.id), ", then run the same command again"
    return cannot_be_seen(why, start_words(lease, events, context.clock.now(), then))


async def _reread(
    now: Manifest, lease: Lease, store: DurableStore | None
) -> tuple[list[Evidence], list[Loss]]:
    """Re-read every kept file of the seal. Return the evidence, and a loss for each file that is not proved."""
    in_all = sum(entry.size_bytes for entry in now.entries)
    wait_for(
        f"this computer's disk is read again: {some(len(now.entries), 'file')} ({size(in_all)})",
        usd_h=lease.price_usd_h,
    )
    evidence: list[Evidence] = []
    losses: list[Loss] = []
    witness = None if store is None else Witness(store, lease, now)
    for entry, here in zip(now.entries, await reread_all(now.entries, lease), strict=True):
        proved = here
        if isinstance(proved, Loss) and witness is not None:
            proved = await _reread_there(witness, entry, lease, proved)
        if isinstance(proved, Loss):
            losses.append(proved)
        else:
            # A file that does not load is as broken on the box: this is for the outcome, and no loss.
            evidence.append(proved)
    return evidence, losses


async def _unmounted_losses(context: Context, lease: Lease) -> list[Loss]:
    """Return a loss for each place where a volume was mounted and is not any more.

    Files in such a place are on the box's own disk.
    """
    try:
        found = await unmounted_volumes(context.session(lease), ledger=context.ledger)
    except BoxTrouble as error:
        what = f"all files where its volumes were mounted: {error.message}"
        return [Loss(what=what, remedy=error.remedy)]
    return [
        Loss(
            what=f"all files below {volume.path}: the volume {volume.name} is not mounted there any more",
            remedy=f"mount it again on the box, then {Command('teardown', lease.id)}",
        )
        for volume in found
    ]


async def with_reclaimed(context: Context, lease: Lease, assessment: Assessment) -> Assessment:
    """Return the assessment, with a loss for each volume that is deleted together with the box.

    Somebody has told the provider to do this.
    """
    connector = context.connector(lease)
    if not lease.terms.order.volumes or not isinstance(connector, Reclaiming):
        return assessment
    try:
        found = await connector.reclaimed_with(lease)
    except ProviderTrouble as trouble:
        what = f"everything on its volumes: whether they outlive the box is unknown ({trouble.message})"
        going = [Loss(what=what, remedy=trouble.remedy)]
    else:
        going = [
            Loss(
                what=f"all that is on the volume {name}: {why}",
                remedy=f"copy what counts, and keep the volume's disk; to give it up, its owner runs "
                f"{Command('waive', lease.id)}",
            )
            for name, why in found.items()
        ]
    return replace(assessment, losses=(*assessment.losses, *going))


async def changed_since(
    sealed: Manifest, again: Callable[..., Awaitable[Manifest]], lease: Lease
) -> list[Loss]:
    """Return a loss if the box has changed since it was `sealed`.

    `again` seals the box once more. This compares names, sizes and the hashes that the box remembers. If the box
    remembers no hashes, its files are read again.
    """
    remedy = f"{Command('collect', lease.id)}, then run the same command again"
    try:
        seen = await again(hashes="recalled")
        if not seen.digest:
            seen = await again()
    except (JobRunning, BoxTrouble) as error:
        what = f"everything that was written while the kept files were re-read: {error.message}"
        return [Loss(what=what, remedy=remedy)]
    if seen.digest == sealed.digest and seen.unclaimed == sealed.unclaimed:
        return []
    return [
        Loss(what="what was written on the box while the kept files were re-read", remedy=remedy)
    ]


async def _written_so_far(context: Context, lease: Lease) -> tuple[str, ...]:
    """Return the names of all files on the box while jobs run, except those with an identical copy on this computer."""
    try:
        draft = await reseal(
            context.session(lease),
            ledger=context.ledger,
            hashes="recalled",
            running="listed",
            named=_NAMED_AT_MOST,
        )
    except BoxTrouble as trouble:
        return (f"what the job has written could not be listed ({trouble.message})",)
    return so_far(draft, context.ledger.seal(lease.id), lease)


def prove(lease: Lease, assessment: Assessment) -> TeardownPermit:
    """Mint the permit to destroy the lease's box, because nothing would be lost.

    Raises:
        Unverified: something would be lost. The message names it, and the remedy names the next call.
    """
    if assessment.losses:
        raise _refusal(lease, assessment.losses)
    if assessment.untouched:
        return _mint(lease, NeverUsed())
    if assessment.seal is None:
        raise _refusal(lease, [Loss(what="nothing was proved", remedy="collect, then try again")])
    return _mint(lease, Verified(seal_digest=assessment.seal.digest))


def prove_unused(lease: Lease, seen: Seen) -> TeardownPermit:
    """Mint the permit to destroy the lease's box, because the ledger and the box itself show that nobody used it.

    Raises:
        Unverified: the box was used, or it is unknown whether it was.
    """
    why = "the box was used" if lease.touched_at is not None else use(seen)
    if why is not None:
        loss = Loss(
            what=f"everything that was done on the box ({why})",
            remedy=f"{Command('collect', lease.id)}, then {Command('teardown', lease.id)}",
        )
        raise _refusal(lease, [loss])
    return _mint(lease, NeverUsed())


def sign(
    lease: Lease,
    assessment: Assessment,
    signature: Signature | None,
    *,
    ledger: Ledger,
) -> TeardownPermit:
    """Mint the permit to destroy the lease's box, because a person signed for exactly these losses.

    Raises:
        Refused: nobody has signed, or the signature is for other losses.
    """
    of_it = ("waive", lease.id, assessment.loss_digest)
    if signature is None or (signature.kind, signature.subject, signature.digest) != of_it:
        raise Refused(
            "what would be lost has changed since it was signed for; nothing was destroyed",
            remedy=f"look again: {Command('waive', lease.id)}",
        )
    return _sign_over(
        lease,
        assessment,
        signed_by=signature.signed_by,
        signature=signature.code,
        ledger=ledger,
    )


def honour(lease: Lease, assessment: Assessment, *, ledger: Ledger) -> TeardownPermit:
    """Mint the permit to destroy the box of a lease past its end, because its owner signed for that in advance.

    Raises:
        Refused: nobody has signed, or the deadline has not passed, or the rescue sum is not spent.
    """
    signed = [
        event for _, event in ledger.events(lease.id) if isinstance(event, timeline.WaivedAhead)
    ]
    if lease.terms.on_deadline != "waive" or not signed:
        raise Refused(
            f"nobody has signed in advance for what is on {lease.id}",
            remedy=f"its owner runs {Command('waive', lease.id)}",
        )
    now = ledger.now()
    began = began_at(lease, ledger.events(lease.id))
    if now < lease.terms.deadline_at or began is None or beyond(lease, began, now) != "waive":
        raise Refused(
            f"{lease.id} is not past its end and its rescue sum: the signature is not valid yet",
            remedy=str(Command("terms", lease.id)),
        )
    return _sign_over(
        lease,
        assessment,
        signed_by=f"{signed[-1].by}, in advance",
        signature=signed[-1].signature,
        ledger=ledger,
    )


def sign_volume(volume: Volume, signature: Signature | None, *, digest: str) -> VolumePermit:
    """Mint the permit to destroy a volume, because a person signed for exactly this volume and all that is on it.

    Raises:
        Refused: nobody has signed, or the signature is for another volume or for an earlier state of this one.
    """
    of_it = ("volume", volume.key, digest)
    if signature is None or (signature.kind, signature.subject, signature.digest) != of_it:
        raise Refused(
            f"nobody has signed for the volume {volume.name} as it is now; nothing was destroyed",
            remedy=f"look again: {Command('volumes', destroy=volume.name)}",
        )
    if volume.volume_id is None:
        raise Refused(
            f"{volume.name} is not known to exist", remedy=f"{Command('volumes')} looks again"
        )
    return VolumePermit(
        volume=volume.key,
        provider=volume.provider,
        volume_id=volume.volume_id,
        region=volume.region,
        signature=signature.code,
        seal=_SEAL,
    )


def _sign_over(
    lease: Lease,
    assessment: Assessment,
    *,
    signed_by: str,
    signature: str,
    ledger: Ledger,
) -> TeardownPermit:
    losses, digest = [x.what for x in assessment.losses], assessment.loss_digest
    waived = timeline.Waived(by=signed_by, loss=digest, losses=tuple(losses))
    ledger.note(lease.id, waived, at=ledger.now())
    return _mint(lease, Waived(signed_by=signed_by, loss_digest=digest, signature=signature))


def _mint(lease: Lease, ground: Verified | NeverUsed | Waived) -> TeardownPermit:
    if lease.box_id is None:
        raise Refused("this lease has no box", remedy=f"{Command('leases')} shows {lease.id}")
    return TeardownPermit(
        lease_id=lease.id,
        provider=lease.provider,
        box_id=BoxId(lease.box_id),
        ground=ground,
        seal=_SEAL,
    )


def lost_words(losses: Sequence[Loss]) -> str:
    """Name the first few losses."""
    more = f"; and {len(losses) - _SHOWN} more" if len(losses) > _SHOWN else ""
    return "; ".join(loss.what for loss in losses[:_SHOWN]) + more


def _refusal(lease: Lease, losses: Sequence[Loss]) -> Unverified:
    more = len(losses) > _SHOWN
    unnamed = more or any(len(loss.names) > IN_WORDS for loss in losses)
    everything = f"; {Command('waive', lease.id)} lists all of it by name" if unnamed else ""
    return Unverified(
        f"{lease.id} keeps its box, because this would be lost: {lost_words(losses)}",
        remedy=f"{losses[0].remedy}{everything}",
    )


def unkept_losses(seal: Manifest, lease: Lease) -> Iterator[Loss]:
    """Return a loss for every file on the box that a collect cannot copy to this computer.

    What never appeared is no loss, and neither is a link or a pipe, which hold no bytes.
    """
    for problem in seal.unsealed:
        mend = "correct that on the box"
        if problem.why == "mounted_over":
            place = problem.at if problem.at[:1] == "/" else f"{lease.work_directory}/{problem.at}"
            mend = f"`umount {shlex.quote(plain(place))}` on the box"
        yield Loss(
            what=f"{quote_text(lease.from_work(problem.at))} cannot be kept as it is: "
            f"{quote_text(problem.why)} ({quote_text(problem.detail)})",
            remedy=f"{mend}, then {Command('collect', lease.id)}; to give the file up, its owner "
            f"runs {Command('waive', lease.id)}",
        )
    if not seal.unclaimed.count:
        return
    keep = Command("collect", lease.id, artifact="PATTERN")
    lose = Command("collect", lease.id, discard="PATTERN")
    if not seal.unclaimed.size_bytes:
        what = (
            f"{some(seal.unclaimed.count, 'empty file')} that nobody has claimed, whose names alone may "
            f"matter: {_unclaimed_in_words(seal, lease)}"
        )
    else:
        what = (
            f"{some(seal.unclaimed.count, 'file')} ({some(seal.unclaimed.size_bytes, 'byte')}) that nobody has "
            f"claimed: {_unclaimed_in_words(seal, lease)}"
        )
    yield Loss(
        what=what,
        names=unclaimed_by_name(seal, lease) if seal.unclaimed.count > IN_WORDS else (),
        versions=unclaimed_versions(seal),
        remedy=f"keep them with {keep}; {lose} gives them up, if the person signs",
    )


def _unclaimed_in_words(seal: Manifest, lease: Lease) -> str:
    """Name the largest unclaimed files, and say how many more there are. A box may name fewer than it counts."""
    named = [
        f"{quote_text(lease.from_work(x.at))} ({some(x.size_bytes, 'byte')})"
        for x in seal.unclaimed.largest
    ]
    return in_words(named, seal.unclaimed.count)


def untold_losses(
    now: Manifest, lease: Lease, ledger: Ledger, collected: Manifest | None
) -> Iterator[Loss]:
    """Return a loss for each launched job and each declared artifact that the box should report and does not."""
    names = {entry.name for entry in now.entries}
    waived = ledger.never_ran(lease.id)
    for job in ledger.jobs(lease.id):
        if job.launched_at is None or job.id in waived or f"log/{job.id}.log" in names:
            continue
        yield Loss(
            what=f"everything that {job.id} wrote: that job was launched, but the box does not know it",
            remedy=f"look at the box yourself; to end the lease nevertheless, its owner runs "
            f"{Command('waive', lease.id)}",
        )
    for name in may_begin(now, lease.id, ledger):
        yield Loss(
            what=f"everything that {name} writes: its launch was cut short just now, and the box may still begin it",
            remedy=f"{Command('teardown', lease.id)} again in two minutes",
        )
    kept, given_up = ledger.declarations(lease.id)
    told_bad = {problem.at for problem in now.problems}
    for pattern in kept:
        if pattern in now.unmatched or pattern in given_up or pattern in told_bad:
            continue
        if not any(matches_kept_name(pattern, name) for name in names):
            yield Loss(
                what=f"the declared artifact {pattern}, for which the box lists no file",
                remedy=f"{Command('collect', lease.id)}, then look at what was collected",
            )


async def _reread_there(
    witness: Witness, entry: SealedFile, lease: Lease, here: Loss
) -> Evidence | Loss:
    """Return the evidence from the durable store's copy of one entry, or a loss if that copy proves nothing either."""
    place = await witness.at(entry)
    if place is not None and is_on_the_box(place.parent, lease):
        return Loss(
            what=f"{here.what}, and {witness.words} is on the box itself", remedy=here.remedy
        )
    doubt = await witness.doubt()
    if doubt is not None:
        return Loss(
            what=f"{here.what}, and {witness.words} is no proof by itself: {doubt}",
            remedy=here.remedy,
        )
    proved = await witness.proves(entry)
    if isinstance(proved, Evidence):
        return proved
    return Loss(what=f"{here.what}, and {proved}", remedy=here.remedy)


def formats_of(evidence: Sequence[Evidence]) -> dict[str, int]:
    """Return how many files were proved to load, by format."""
    return dict(Counter(e.verdict.format for e in evidence if e.verdict.outcome == "loads"))
