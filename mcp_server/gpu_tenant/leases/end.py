"""Ends a lease if its box is verified, if its box was never used, or if a person has signed for what is lost.

Also asks for such signatures.
"""

from contextlib import suppress
from datetime import timedelta

from gpu_tenant.artifacts.stores.protocol import DurableStore
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.end_reserve import start_words
from gpu_tenant.domain.errors import (
    BoxTrouble,
    BoxUnreachable,
    HostKeyChanged,
    LocalTrouble,
    ProviderTrouble,
    Refused,
    TenantError,
)
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.permit import TeardownPermit
from gpu_tenant.domain.ports import Tended
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.domain.signature import Signature, SignatureRequest, digest_of
from gpu_tenant.jobs.multinode.launcher import gangs
from gpu_tenant.leases.attempts import attempts_words
from gpu_tenant.leases.cards import LossReport, TornDown
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.inspection import check_before_seal, must_be_the_box, occupancy
from gpu_tenant.leases.overview import give_back_twins
from gpu_tenant.leases.read_at_stop import read_for_its_stop
from gpu_tenant.leases.read_in_notice import assess_taken
from gpu_tenant.leases.readiness import (
    arm_guard,
    close_connections,
    let_in,
    reach,
    settle_lease,
    with_box,
)
from gpu_tenant.leases.recovery_plan import must_not_be_moving
from gpu_tenant.leases.teardown import may_go_until, see_gone, tear_down
from gpu_tenant.leases.terms_in_force import policy_of
from gpu_tenant.leases.verify import (
    Assessment,
    assess,
    assess_unstarted,
    cannot_be_seen,
    honour,
    lost_words,
    prove,
    sign,
    with_reclaimed,
)
from gpu_tenant.ledger.signatures import signature_wanted

_LOOKS = 300
MOST_TOLD = 20
"""An answer names at most this many losses. The terminal and the page name all of them."""
_SILENT_S = 90
"""A person's statement that a box is gone is believed only if the box then stays silent for this many seconds."""


def _start_words(context: Context, lease: Lease) -> str:
    """Say how the lease's box is started, so that the same command can look at it."""
    events, then = context.ledger.events(lease.id), ", then run the same command again"
    return start_words(lease, events, context.clock.now(), then)


async def _assess(context: Context, lease: Lease) -> Assessment:
    return await with_reclaimed(context, lease, await _assess_box(context, lease))


async def _assess_box(context: Context, lease: Lease) -> Assessment:
    if (taken := await assess_taken(context, lease, store=_store(context, lease))) is not None:
        return taken
    lease, found = await check_before_seal(context, lease)
    if isinstance(found, Assessment):
        return found
    if lease.parked_at is not None:
        try:
            read = await read_for_its_stop(context, lease)
        except ProviderTrouble as trouble:
            return cannot_be_seen(f"it is parked, and {trouble.message}", trouble.remedy)
        if read is None:
            return cannot_be_seen("it is parked", _start_words(context, lease))
        return await assess_unstarted(context, lease, read, store=_store(context, lease))
    if lease.state is LeaseState.ACTIVE and lease.ready_at is None:
        try:
            lease = await let_in(context, lease)
        except BoxTrouble as error:
            # There is no ground to destroy the box, but a person may still sign for it although nobody can look at it.
            return cannot_be_seen(f"the box has not let us in: {error.message}", error.remedy)
    return await assess(context, lease, store=_store(context, lease), others=found)


def _store(context: Context, lease: Lease) -> DurableStore | None:
    try:
        return context.store(lease)
    except TenantError:
        return None  # Without the store, only the copies on this computer can prove anything.


async def _leave(context: Context, lease: Lease) -> None:
    """On a machine that is handed back, stop the guard and remove the lease's mark, if the machine can be reached."""
    profile = context.profile(lease.provider)
    if profile.destroy != "hands_back":
        return
    # If the machine cannot be reached, the guard ends by itself at its deadline, and the mark is no longer valid after
    # that.
    with suppress(BoxTrouble):
        if lease.touched_at is not None:
            await context.caretaker(lease).disarm()
        if lease.ready_at is not None:
            await occupancy(context, lease).leave()


def _receipt(context: Context, lease: Lease) -> Receipt:
    receipt = context.ledger.receipt(lease.id)
    if receipt is None:
        raise LocalTrouble(f"{lease.id} has no receipt", remedy=str(Command("doctor")))
    return receipt


def _torn_down(context: Context, lease: Lease, receipt: Receipt) -> TornDown:
    live = {other.id for other in context.ledger.leases("live")}
    words = [
        f"{gang.job} also ran on {', '.join(left)}: each of them bills until it is torn down as well"
        for gang in gangs(context.ledger.events(lease.id))
        if (left := [name for name in gang.others(lease.id) if name in live])
    ]
    return TornDown(
        lease=lease.id,
        state=lease.state,
        receipt=receipt,
        gang="; ".join(words) or None,
        attempts=attempts_words(context, lease),
    )


async def _just_torn_down(context: Context, lease: Lease, receipt: Receipt) -> TornDown:
    """Like `_torn_down`, but also give back a second box that the same request made, or report it."""
    ended = _torn_down(context, context.ledger.lease(lease.id), receipt)
    return ended.model_copy(update={"twin": await give_back_twins(context, lease)})


async def end_verified(
    context: Context, lease: str, *, unless_wanted_after_line: int | None = None
) -> TornDown:
    """End the lease without losing anything: see `Tenancy.verify_and_teardown`.

    Raises:
        StillWanted: more work came after the ledger's line `unless_wanted_after_line`; the box stays.
        Unverified: something would be lost; the box stays.
        Refused: the lease has no box.
    """
    found = context.ledger.lease(lease)
    known = context.ledger.receipt(found.id)
    if known is not None:
        return _torn_down(context, found, known)
    async with context.held_in_turn(found.id, "teardown"):
        found = context.ledger.lease(found.id)
        must_not_be_moving(context.ledger, found)
        found, words = await settle_lease(context, found)
        if found.state is LeaseState.GONE:
            return _torn_down(context, found, _receipt(context, found))
        if not found.state.live:
            raise Refused(
                f"{found.id} has no box to tear down: {words or found.state}",
                remedy=str(Command("leases", all=True)),
            )
        receipt = await _seen_gone(context, found)
        if receipt is not None:
            return await _just_torn_down(context, found, receipt)
        try:
            assessment = await _assess(context, found)
            # If the provider took the box, `_assess` may have recorded the lease as parked.
            found = context.ledger.lease(found.id)
        except BoxUnreachable as silent:
            silent.remedy += f"; if the box is gone for good, the lease's owner runs {Command('waive', found.id)}"
            raise
        try:
            permit = _permit(context, found, assessment)
        except Refused as refusal:
            told = timeline.Refused(
                words=refusal.message,
                lost=lost_words(assessment.losses),
            )
            context.ledger.note(found.id, told, at=context.clock.now())
            raise
        if unless_wanted_after_line is not None:
            context.ledger.must_be_unwanted(found.id, unless_wanted_after_line)
        was_sealed = assessment.seal is not None and found.parked_at is None
        del assessment  # It is on record now, and with many files it takes much memory.
        if was_sealed:
            # Re-reading the kept files may take hours. Meanwhile, the provider may have given the address to another
            # box.
            await must_be_the_box(context, found)
        receipt = await _end(
            context, permit, found, unless_wanted_after_line=unless_wanted_after_line
        )
    await close_connections(context, found)
    return await _just_torn_down(context, found, receipt)


async def _seen_gone(context: Context, lease: Lease) -> Receipt | None:
    """If a destroy request was sent and the provider's list omits the box now, return the receipt. Otherwise None.

    A box that is listed but does not answer may be about to disappear. Then wait for the list, not for the box.
    """
    if lease.state is not LeaseState.TERMINATING:
        return None
    may_be_going = await _may_be_going(context, lease)
    if not may_be_going and not context.ledger.absences(lease.id):
        return None
    return await see_gone(context, lease, listed="may be going" if may_be_going else "is there")


async def _may_be_going(context: Context, lease: Lease) -> bool:
    """Whether the box is probably being destroyed: the request is recent and was not refused, and the box is silent."""
    until = may_go_until(context, lease)
    if until is None or context.clock.now() >= until or context.ledger.absences(lease.id):
        return False
    try:
        await reach(context, lease)
    except (BoxUnreachable, HostKeyChanged):
        return True
    except BoxTrouble:
        return False
    return False


def _permit(context: Context, lease: Lease, assessment: Assessment) -> TeardownPermit:
    """Make the permit to destroy the box.

    Raises:
        Refused: something would be lost, and nobody has signed for exactly this loss.
    """
    signature = _waiver(context, lease, assessment) if assessment.losses else None
    if signature is None:
        return prove(lease, assessment)
    return sign(lease, assessment, signature, ledger=context.ledger)


def is_signed(context: Context, kind: str, lease: str) -> bool:
    """Whether a person has given that kind of signature for the lease, and it has not been used yet."""
    return bool(context.ledger.signed_for(kind, lease, at=context.clock.now()))


async def ask_owner(context: Context, lease: str) -> SignatureRequest | None:
    """Ask the owner to sign for what keeps the lease from ending.

    Returns None if nothing does, or if the owner has already signed.
    """
    found = context.ledger.lease(lease)
    if not found.state.live:
        return None
    if awaits_owner(context, found.id) is not None:
        return (
            None if is_signed(context, "attest", found.id) else ask_attestation(context, found.id)
        )
    found = await with_box(context, found.id)
    assessment = await _assess(context, found)
    if not assessment.losses or _waiver(context, found, assessment) is not None:
        return None
    return asked_to_waive(context, _loss_report(found, assessment))


def _waiver(context: Context, lease: Lease, assessment: Assessment) -> Signature | None:
    return context.ledger.waiver(lease.id, assessment.loss_digest, at=context.clock.now())


def asked_to_waive(context: Context, report: LossReport) -> SignatureRequest:
    """Ask the lease's owner to sign for exactly that loss."""
    return context.ledger.ask_signature(
        kind="waive",
        subject=report.lease,
        digest=report.digest,
        words=report.losses,
        would=f"destroying {report.lease} would lose this for good",
        at=context.clock.now(),
    )


def ask_ahead(context: Context, lease: str) -> SignatureRequest:
    """Ask the owner to sign in advance: when the lease's terms have run out, files that cannot be saved may be lost."""
    found = context.ledger.lease(lease)
    words = policy_of(context, found.id).terms
    return context.ledger.ask_signature(
        kind="waive_ahead",
        subject=found.id,
        digest=_of_terms(found),
        words=words,
        would=f"after its deadline, once its rescue sum is spent, {found.id} would be destroyed with everything on it",
        at=context.clock.now(),
    )


def ask_attestation(context: Context, lease: str) -> SignatureRequest:
    """Ask the owner to sign that they have ended the box in the provider's console.

    Raises:
        Refused: the lease's teardown was not permitted yet.
    """
    found, words = context.ledger.lease(lease), awaits_owner(context, lease)
    if words is None:
        raise Refused(
            f"{found.id} is {found.state}: no person has to end its box by hand yet",
            remedy=f"{Command('teardown', found.id)} first verifies what was kept, and then says what to do",
        )
    return context.ledger.ask_signature(
        kind="attest",
        subject=found.id,
        digest=digest_of((str(found.box_id),)),
        words=(words, "sign only when the console shows that it is gone"),
        would=f"{found.id} would be on record as ended, at your word that its box is gone",
        at=context.clock.now(),
    )


def awaits_owner(context: Context, lease: str) -> str | None:
    """Say what a person must do in the provider's console to complete this teardown. None if nothing."""
    found = context.ledger.lease(lease)
    if found.state is not LeaseState.TERMINATING:
        return None
    connector = context.connector(found)
    if isinstance(connector, Tended) and connector.tends(found.box_id):
        return context.profile(found.provider).console_words("destroy")
    return None


async def attest(context: Context, lease: str) -> TornDown:
    """End a lease whose box a person has ended in its console, on that person's signature.

    Raises:
        Refused: the teardown was not permitted yet, nobody has signed, or the box still answers.
    """
    found = context.ledger.lease(lease)
    if context.ledger.receipt(found.id) is None:
        signed = context.ledger.signed_for("attest", found.id, at=context.clock.now())
        if not signed:
            raise signature_wanted(ask_attestation(context, found.id))
        with context.hold_lease(found.id, "attest"):
            try:
                await _is_silent(context, found)
            except Refused:
                # The statement was false. Use up the signature, so that it is not believed when the box is silent
                # later.
                context.ledger.use_signature(signed[0].code, at=context.clock.now())
                raise
            connector = context.connectors[found.provider]
            assert isinstance(connector, Tended)
            context.ledger.attest(found.id, signed[0], at=context.clock.now())
            connector.note_ended(found)
            # The box is missing from our own list now. It must be seen missing twice, at the interval of the profile.
            for _ in range(_LOOKS):
                found, _words = await settle_lease(context, found)
                if not found.state.live:
                    break
                await context.clock.sleep(1)
        await close_connections(context, found)
    return _torn_down(context, found, _receipt(context, found))


async def _is_silent(context: Context, lease: Lease) -> None:
    """Check that the box stays silent for `_SILENT_S`. No busy job keeps its sshd from answering for so long.

    Raises:
        Refused: the box answers.
    """
    until = context.clock.now() + timedelta(seconds=_SILENT_S)
    while True:
        try:
            await reach(context, lease)
        except (BoxUnreachable, HostKeyChanged):
            pass  # The box is silent, or its address belongs to somebody else by now.
        except BoxTrouble as trouble:
            raise _still_there(context, lease) from trouble
        else:
            raise _still_there(context, lease)
        if context.clock.now() >= until:
            return
        await context.clock.sleep(_SILENT_S / 6)


def _still_there(context: Context, lease: Lease) -> Refused:
    return Refused(
        f"{lease.id} still answers at {lease.box_id}: its box is not gone, and bills",
        remedy=f"{Command('teardown', lease.id)} looks once more and says how the box is ended; "
        "then run the same command again",
    )


async def assess_loss(context: Context, lease: str) -> LossReport:
    """List what would be gone for good if the box were destroyed now. Nothing is changed."""
    found = await with_box(context, lease)
    return _loss_report(found, await _assess(context, found))


async def waive(context: Context, lease: str) -> TornDown | None:
    """Destroy a box although something would be lost. A person must have signed for exactly that loss.

    If nothing would be lost, destroy nothing and return None: such a lease needs no signature to end.

    Raises:
        SignatureWanted: nobody has signed for what would be lost now.
    """
    found = await with_box(context, lease)
    async with context.held_in_turn(found.id, "waive"):
        found = context.ledger.lease(found.id)
        known = context.ledger.receipt(found.id)
        if known is not None:
            return _torn_down(context, found, known)
        must_not_be_moving(context.ledger, found)
        assessment = await _assess(context, found)
        if assessment.losses:
            signature = _waiver(context, found, assessment)
            if signature is None:
                trouble = signature_wanted(
                    asked_to_waive(context, _loss_report(found, assessment)), most=MOST_TOLD
                )
                if is_signed(context, "waive", found.id):
                    trouble.message = f"this is not what was signed for: {trouble.message}"
                raise trouble
            permit = sign(found, assessment, signature, ledger=context.ledger)
            receipt = await _end(context, permit, found)
    if not assessment.losses:
        return None
    await close_connections(context, found)
    return await _just_torn_down(context, found, receipt)


async def waive_ahead(context: Context, lease: str) -> None:
    """Record the owner's signature in advance: files that cannot be saved may be lost.

    It takes effect when the lease's deadline has passed and its rescue sum is spent.

    Raises:
        Refused: nobody has signed for the lease's current terms.
    """
    found = await with_box(context, lease)
    at = context.clock.now()
    signature = context.ledger.unused_signature("waive_ahead", found.id, _of_terms(found), at=at)
    if signature is None:
        raise signature_wanted(ask_ahead(context, found.id))
    with context.hold_lease(found.id, "waive"):
        signed = context.ledger.sign_ahead(found.id, signature, at=at)
        if signed.ready_at is not None and signed.parked_at is None:
            # The guard on the box may now do what the owner has signed for.
            await arm_guard(context, signed)


async def honour_waiver(context: Context, lease: str) -> TornDown:
    """Destroy the box of a lease as its owner signed in advance.

    Raises:
        Refused: nobody has signed, or the deadline has not passed, or the rescue sum is not spent.
    """
    found = await with_box(context, lease)
    with context.hold_lease(found.id, "waive"):
        assessment = await _assess(context, found)
        permit = honour(found, assessment, ledger=context.ledger)
        receipt = await _end(context, permit, found)
    await close_connections(context, found)
    return await _just_torn_down(context, found, receipt)


async def _end(
    context: Context,
    permit: TeardownPermit,
    lease: Lease,
    *,
    unless_wanted_after_line: int | None = None,
) -> Receipt:
    await _leave(context, lease)
    return await tear_down(
        context, permit, lease, unless_wanted_after_line=unless_wanted_after_line
    )


def _of_terms(lease: Lease) -> str:
    """Return the hash of the lease's current terms. A signature in advance is valid only for these terms."""
    return digest_of((lease.terms.model_copy(update={"on_deadline": "keep"}).model_dump_json(),))


def _loss_report(lease: Lease, assessment: Assessment) -> LossReport:
    return LossReport(
        lease=lease.id,
        losses=assessment.words,
        digest=assessment.loss_digest,
    )
