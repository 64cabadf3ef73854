"""The Iron Law: what would be lost if the box went now, and leave to destroy it when nothing would."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from gpu_tenant.caretaker import Caretaker
from gpu_tenant.durable import DurableStore
from gpu_tenant.errors import BoxTrouble, JobRunning, Refused, Unverified
from gpu_tenant.fence import began_at, beyond
from gpu_tenant.kept import Loss, is_on_the_box, reread_all
from gpu_tenant.ledger import Event, Ledger
from gpu_tenant.model import (
    BoxId,
    Evidence,
    Lease,
    Manifest,
    Profile,
    SealedFile,
)
from gpu_tenant.permit import _SEAL, NeverUsed, TeardownPermit, Verified, Waived
from gpu_tenant.ports import Clock
from gpu_tenant.speech import some
from gpu_tenant.witness import Witness

_CLOCKS_APART_S = 60
"""A disk that is another machine's keeps another clock."""
_SHOWN = 5
"""So many losses are named in a refusal; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What stands between a box and its teardown, and what has been proved."""

    untouched: bool
    seal: Manifest | None
    evidence: Sequence[Evidence]
    losses: Sequence[Loss]

    @property
    def loss_digest(self) -> str:
        """A name for exactly these losses; a signature is for this name."""
        return sha256("\n".join(sorted(loss.what for loss in self.losses)).encode()).hexdigest()[
            :16
        ]


UNTOUCHED = Assessment(untouched=True, seal=None, evidence=(), losses=())
"""Nothing was ever pushed or launched, by the ledger, so there is nothing to lose."""


def unseen(why: str, remedy: str) -> Assessment:
    """What is known of a used box that cannot be looked at: that anything may be lost with it."""
    loss = Loss(what=f"whatever is on the box, which cannot be looked at: {why}", remedy=remedy)
    return Assessment(untouched=False, seal=None, evidence=(), losses=(loss,))


async def assess(
    lease: Lease,
    profile: Profile,
    *,
    caretaker: Caretaker,
    ledger: Ledger,
    clock: Clock,
    store: DurableStore | None = None,
) -> Assessment:
    """What is known now: the box sealed afresh, every kept file re-read from this computer's disk.

    Where the copy here proves nothing, the `store` is re-read. An unreachable box is no error here, and
    no more is a silent store: everything that only it could prove is then a loss.
    """
    if lease.touched_at is None:
        return UNTOUCHED
    collected = ledger.seal(lease.id)
    try:
        now = await reseal(lease, profile, caretaker=caretaker, ledger=ledger)
    except JobRunning as error:
        loss = Loss(what=f"a job is still running: {error.message}", remedy=error.remedy)
        return Assessment(untouched=False, seal=None, evidence=(), losses=(loss,))
    except BoxTrouble as error:
        loss = Loss(
            what="whatever is on the box: it could not be sealed "
            f"({'nothing was ever collected' if collected is None else 'it may hold more than was collected'})",
            remedy=f"{error.message}; {error.remedy}",
        )
        return Assessment(untouched=False, seal=None, evidence=(), losses=(loss,))
    losses = list(unkept(now, lease, ledger.declared(lease.id)[1]))
    began_s = ledger.began_s(lease.id)
    gone = now.since_ns is None and any(job.launched_at for job in ledger.jobs(lease.id))
    late = now.since_ns and began_s and now.since_ns > (began_s + _CLOCKS_APART_S) * 1e9
    if gone or late:
        losses.append(
            Loss(
                what="whatever the jobs wrote: the box's own record of when they began "
                + ("is gone" if gone else "is later than they did"),
                remedy=f"look at the box yourself; to end the lease all the same, its owner runs "
                f"`gpu-tenant waive {lease.id}`",
            )
        )
    if now.entries and (collected is None or collected.digest != now.digest):
        losses.append(_uncollected(now, collected, lease))
        return Assessment(untouched=False, seal=now, evidence=(), losses=tuple(losses))
    evidence: list[Evidence] = []
    witness = None if store is None else Witness(store, lease, now)
    for entry, here in zip(now.entries, await reread_all(now.entries, lease), strict=True):
        proved = here
        if isinstance(proved, Loss) and witness is not None:
            proved = await _reread_there(witness, entry, lease, proved)
        if isinstance(proved, Loss):
            losses.append(proved)
        else:
            evidence.append(proved)
            if proved.verdict.outcome == "broken":
                losses.append(
                    Loss(
                        what=f"{entry.name} does not load as {proved.verdict.format}: {proved.verdict.problem}",
                        remedy=f"make it again on the box and collect; to give it up, its owner runs "
                        f"`gpu-tenant waive {lease.id}`",
                    )
                )
    if evidence:
        ledger.file_evidence(lease.id, now.digest, evidence, at=clock.now())
    return Assessment(untouched=False, seal=now, evidence=tuple(evidence), losses=tuple(losses))


async def reseal(
    lease: Lease,
    profile: Profile,
    *,
    caretaker: Caretaker,
    ledger: Ledger,
    artifacts: Sequence[str] = (),
    discard: Sequence[str] = (),
    hashes: Literal["taken", "recalled"] = "taken",
) -> Manifest:
    """What is on the box now, by every job's declaration, the owner's later words, and these.

    With `hashes="recalled"` it is a draft: see `Caretaker.manifest`.

    Raises:
        JobRunning: something is still being written.
    """
    kept, given_up = ledger.declared(lease.id)
    # Used from its first moment on: it was taken over, and what lies there is older than any record.
    taken_over = lease.touched_at is not None and lease.touched_at == lease.created_at
    return await caretaker.manifest(
        accounted=profile.accounted_paths,
        artifacts=[*kept, *artifacts],
        discard=[*given_up, *discard],
        since="ever" if taken_over else "launch",
        hashes=hashes,
    )


def prove(lease: Lease, assessment: Assessment) -> TeardownPermit:
    """Leave to destroy the lease's box, because nothing would be lost.

    Raises:
        Unverified: something would be; the message names it, the remedy is the next call.
    """
    if assessment.losses:
        raise _refusal(lease, assessment.losses)
    if assessment.untouched:
        return _mint(lease, NeverUsed())
    if assessment.seal is None:
        raise _refusal(lease, [Loss(what="nothing was proved", remedy="collect, then try again")])
    return _mint(lease, Verified(seal_digest=assessment.seal.digest))


def unused(lease: Lease) -> TeardownPermit:
    """Leave to destroy the lease's box, because by the ledger nothing was ever pushed or launched.

    Raises:
        Unverified: something was.
    """
    if lease.touched_at is not None:
        raise _refusal(
            lease, [Loss(what="whatever was done on it", remedy=f"`gpu-tenant collect {lease.id}`")]
        )
    return _mint(lease, NeverUsed())


def sign(
    lease: Lease,
    assessment: Assessment,
    *,
    shown_digest: str,
    typed: str,
    signed_by: str,
    ledger: Ledger,
    clock: Clock,
) -> TeardownPermit:
    """Leave to destroy the lease's box, because a person signed for exactly these losses.

    Raises:
        Refused: the losses are not the ones that were shown, or the lease's id was not typed.
    """
    if shown_digest != assessment.loss_digest:
        raise Refused(
            "what would be lost has changed since it was shown; nothing was destroyed",
            remedy=f"look again: `gpu-tenant waive {lease.id}`",
        )
    if typed.strip() != lease.id:
        raise Refused(
            "the lease's id was not typed; nothing was destroyed",
            remedy=f"keep the box, or run `gpu-tenant waive {lease.id}` and type {lease.id} to sign",
        )
    return _signed(lease, assessment, signed_by=signed_by, ledger=ledger, clock=clock)


def honour(lease: Lease, assessment: Assessment, *, ledger: Ledger, clock: Clock) -> TeardownPermit:
    """Leave to destroy the lease's box past its end, because its owner has signed for that in advance.

    Raises:
        Refused: nobody has, or the lease's time and its rescue sum are not used up.
    """
    signed = [detail for _, kind, detail in ledger.events(lease.id) if kind == Event.WAIVED_AHEAD]
    if lease.terms.on_deadline != "waive" or not signed:
        raise Refused(
            f"nobody has signed in advance for what is on {lease.id}",
            remedy=f"its owner runs `gpu-tenant waive {lease.id}`",
        )
    now = clock.now()
    began = began_at(lease, ledger.events(lease.id))
    if now < lease.terms.deadline_at or began is None or beyond(lease, began, now) != "waive":
        raise Refused(
            f"{lease.id} is not past its end and its rescue sum: the signature does not hold yet",
            remedy=f"`gpu-tenant terms {lease.id}`",
        )
    return _signed(
        lease, assessment, signed_by=f"{signed[-1]['by']}, in advance", ledger=ledger, clock=clock
    )


def _signed(
    lease: Lease, assessment: Assessment, *, signed_by: str, ledger: Ledger, clock: Clock
) -> TeardownPermit:
    losses = [x.what for x in assessment.losses]
    detail: dict[str, object] = {"by": signed_by, "loss": assessment.loss_digest, "losses": losses}
    ledger.note(lease.id, Event.WAIVED, detail, at=clock.now())
    return _mint(lease, Waived(signed_by=signed_by, loss_digest=assessment.loss_digest))


def _mint(lease: Lease, ground: Verified | NeverUsed | Waived) -> TeardownPermit:
    if lease.box_id is None:
        raise Refused("this lease has no box", remedy=f"`gpu-tenant leases` shows {lease.id}")
    return TeardownPermit(
        lease_id=lease.id,
        provider=lease.provider,
        box_id=BoxId(lease.box_id),
        ground=ground,
        seal=_SEAL,
    )


def _refusal(lease: Lease, losses: Sequence[Loss]) -> Unverified:
    named = "; ".join(loss.what for loss in losses[:_SHOWN])
    more = f"; and {len(losses) - _SHOWN} more" if len(losses) > _SHOWN else ""
    return Unverified(
        f"{lease.id} keeps its box, because this would be lost: {named}{more}",
        remedy=losses[0].remedy,
    )


def unkept(seal: Manifest, lease: Lease, given_up: Collection[str]) -> Iterator[Loss]:
    """What the box holds that a collect cannot bring home.

    Giving a pattern up excuses only its absence: what a declared artifact matches stays an artifact,
    because to lose one takes a person's signature.
    """
    for problem in seal.problems:
        yield Loss(
            what=f"{lease.from_work(problem.at)} cannot be kept as it is: {problem.why} "
            f"({problem.detail})",
            remedy=f"mend it on the box, then `gpu-tenant collect {lease.id}`; to give it up, its owner "
            f"runs `gpu-tenant waive {lease.id}`",
        )
    for pattern in seal.unmatched:
        if pattern not in given_up:
            yield Loss(
                what=f"the declared artifact {pattern} never appeared",
                remedy=f"look at the log with `gpu-tenant monitor {lease.id}`; if it is not to be "
                f"expected any more, `gpu-tenant collect {lease.id} --discard '{pattern}'`",
            )
    if seal.unclaimed.count:
        largest = ", ".join(
            f"{lease.from_work(x.at)} ({x.size_bytes:,} bytes)" for x in seal.unclaimed.largest[:3]
        )
        yield Loss(
            what=f"{some(seal.unclaimed.count, 'file')} ({seal.unclaimed.size_bytes:,} bytes) that nobody has "
            f"claimed: {largest}",
            remedy=f"keep them with `gpu-tenant collect {lease.id} --artifact 'PATTERN'`, or give them up "
            f"with `gpu-tenant collect {lease.id} --discard 'PATTERN'`",
        )


def _uncollected(now: Manifest, collected: Manifest | None, lease: Lease) -> Loss:
    known = {(e.name, e.sha256, e.target) for e in collected.entries} if collected else set()
    new = [e for e in now.entries if (e.name, e.sha256, e.target) not in known]
    bytes_new = sum(e.size_bytes for e in new)
    names = ", ".join(e.name for e in new[:3]) or "some were removed or renamed on the box"
    return Loss(
        what=f"{some(len(new), 'file')} ({bytes_new:,} bytes) on the box differ from what was collected: {names}",
        remedy=f"`gpu-tenant collect {lease.id}`, then teardown again",
    )


async def _reread_there(
    witness: Witness, entry: SealedFile, lease: Lease, here: Loss
) -> Evidence | Loss:
    """What the durable store's copy of one entry proves, or what would be lost: neither does."""
    place = await witness.at(entry)
    if place is not None and is_on_the_box(place.parent, lease):
        return Loss(
            what=f"{here.what}, and {witness.words} is on the box itself", remedy=here.remedy
        )
    doubt = await witness.doubt()
    if doubt is not None:
        return Loss(
            what=f"{here.what}, and {witness.words} is no proof alone: {doubt}", remedy=here.remedy
        )
    proved = await witness.proves(entry)
    if isinstance(proved, Evidence):
        return proved
    return Loss(what=f"{here.what}, and {proved}", remedy=here.remedy)


def formats_of(evidence: Sequence[Evidence]) -> dict[str, int]:
    """How many files were proved to load, by format."""
    return dict(Counter(e.verdict.format for e in evidence if e.verdict.outcome == "loads"))
