"""How a lease ends: verified, never used, or signed for; and what a person has to do for it."""

from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import Literal

from gpu_tenant import passkeys
from gpu_tenant.cards import Leases, LossReport, TornDown
from gpu_tenant.crowd import each
from gpu_tenant.errors import (
    BoxTrouble,
    BoxUnreachable,
    HostKeyChanged,
    LeaseHeld,
    Refused,
    TenantError,
)
from gpu_tenant.ledger import Event
from gpu_tenant.ledger.signatures import wanted
from gpu_tenant.model import Lease, LeaseState, Receipt
from gpu_tenant.overview import PAGE
from gpu_tenant.permit import TeardownPermit
from gpu_tenant.ports import Tended
from gpu_tenant.renting import LeaseName
from gpu_tenant.reopening import in_doubt, is_there, reopened, told_no_more
from gpu_tenant.settle import PATIENCE_S
from gpu_tenant.signature import Asked, Signature, digest_of
from gpu_tenant.sweeping import Sweeping
from gpu_tenant.teardown import may_go_until, see_gone, tear_down
from gpu_tenant.verify import Assessment, honour, prove, sign

_LOOKS = 300
MOST_TOLD = 20
"""So many losses are named in an answer; the terminal and the page name all."""
_SILENT_S = 90
"""So long a box has to be silent before a person's word that it is gone is believed."""


class Ending(Sweeping):
    """The part of a tenancy that ends leases, each over a permit."""

    async def verify_and_teardown(self, lease: LeaseName) -> TornDown:
        """End the lease: re-read every kept file, compare with the box, and destroy it only if nothing
        would be lost. A refusal names what would be, and the next call. Repeat until a receipt comes.
        """
        found = self.ledger.lease(lease)
        known = self.ledger.receipt(found.id)
        if known is not None:
            return self._torn_down(found, known)
        if not self.is_signed("waive", found.id):
            await self._must_be_reckoned(found)
        with self._held(found.id, "teardown"):
            found, words = await self._settled(found)
            if found.state is LeaseState.GONE:
                return self._torn_down(found, self._receipt(found))
            if not found.state.live:
                raise Refused(
                    f"{found.id} has no box to tear down: {words or found.state}",
                    remedy="`gpu-tenant leases --all`",
                )
            receipt = await self._seen_gone(found)
            if receipt is not None:
                return self._torn_down(self.ledger.lease(found.id), receipt)
            assessment = await self._assess(found)
            try:
                permit = self._permit(found, assessment)
            except Refused as refusal:
                self.ledger.note(
                    found.id, Event.REFUSED, {"words": refusal.message}, at=self._clock.now()
                )
                raise
            if assessment.seal is not None:
                # Re-reading what was kept may take hours, and an address may be another's by now.
                await self.inspection.is_the_box(found)
            receipt = await self._end(permit, found)
        await self._close(found)
        return self._torn_down(self.ledger.lease(found.id), receipt)

    async def _seen_gone(self, lease: Lease) -> Receipt | None:
        """The receipt of a box whose destroy was asked for before, and that its list omits; or None.

        One that is listed and does not answer may be on its way out: then its list is waited for, not the box.
        """
        if lease.state is not LeaseState.TERMINATING:
            return None
        may_be_going = await self._may_be_going(lease)
        if not may_be_going and not self.ledger.absences(lease.id):
            return None
        return await see_gone(
            lease, self._profile(lease.provider), connector=self._connector(lease),
            ledger=self.ledger, clock=self._clock, listed="may be going" if may_be_going else "is there",
        )  # fmt: skip

    async def _may_be_going(self, lease: Lease) -> bool:
        """Whether its destroy was just sent and not refused, and the box does not answer any more."""
        until = may_go_until(lease, self._profile(lease.provider), self.ledger)
        if until is None or self._clock.now() >= until or self.ledger.absences(lease.id):
            return False
        try:
            await self._reach(lease)
        except (BoxUnreachable, HostKeyChanged):
            return True
        except BoxTrouble:
            return False
        return False

    def _permit(self, lease: Lease, assessment: Assessment) -> TeardownPermit:
        """Leave to destroy it: nothing would be lost, or a person has signed for exactly that."""
        signature = self._waiver(lease, assessment) if assessment.losses else None
        if signature is None:
            return prove(lease, assessment)
        return sign(lease, assessment, signature, ledger=self.ledger, clock=self._clock)

    def is_signed(self, kind: str, lease: str) -> bool:
        """Whether a person has signed for that about the lease, and nothing was done over it yet."""
        return bool(self.ledger.signed_for(kind, lease, at=self._clock.now()))

    async def ask_owner(self, lease: str) -> Asked | None:
        """Its owner is asked to sign for what stands between the lease and its end; None where nothing does,
        or where they have signed."""
        found = self.ledger.lease(lease)
        if not found.state.live:
            return None
        if self.awaits_owner(found.id) is not None:
            return None if self.is_signed("attest", found.id) else self.ask_attestation(found.id)
        found = await self._with_box(found.id)
        assessment = await self._assess(found)
        if not assessment.losses or self._waiver(found, assessment) is not None:
            return None
        return self.asked_to_waive(_reported(found, assessment))

    def _waiver(self, lease: Lease, assessment: Assessment) -> Signature | None:
        return self.ledger.waiver(lease.id, assessment.loss_digest, at=self._clock.now())

    def asked_to_waive(self, report: LossReport) -> Asked:
        """The lease's owner is asked to sign for exactly that loss."""
        return self.ledger.ask_signature(
            kind="waive", subject=report.lease, digest=report.digest, words=report.losses,
            would=f"destroying {report.lease} would lose this for good", at=self._clock.now(),
        )  # fmt: skip

    def ask_ahead(self, lease: str) -> Asked:
        """Its owner is asked to sign, for these terms, for what cannot be saved when they have run out."""
        found = self.ledger.lease(lease)
        words = self.policy(found.id).terms
        return self.ledger.ask_signature(
            kind="waive_ahead", subject=found.id, digest=_of_terms(found), words=words,
            would=f"past its end and its rescue sum, {found.id} would be destroyed with whatever is on it",
            at=self._clock.now(),
        )  # fmt: skip

    def ask_attestation(self, lease: str) -> Asked:
        """Its owner is asked to sign that they have ended the box in its console.

        Raises:
            Refused: its teardown was not permitted yet.
        """
        found, words = self.ledger.lease(lease), self.awaits_owner(lease)
        if words is None:
            raise Refused(
                f"{found.id} is {found.state}: nobody is asked to end its box by hand",
                remedy=f"`gpu-tenant teardown {found.id}` verifies first, and says what to do",
            )
        return self.ledger.ask_signature(
            kind="attest", subject=found.id, digest=digest_of((str(found.box_id),)),
            words=(words, "sign only when the console shows that it is gone"),
            would=f"{found.id} would be on record as ended, at your word that its box is gone",
            at=self._clock.now(),
        )  # fmt: skip

    def awaits_owner(self, lease: str) -> str | None:
        """What a person must do in a console before this teardown can end; None where nothing."""
        found = self.ledger.lease(lease)
        if found.state is not LeaseState.TERMINATING:
            return None
        connector = self._connector(found)
        if isinstance(connector, Tended) and connector.tends(found.box_id):
            return self._profile(found.provider).console_words("destroy")
        return None

    async def attest(self, lease: str) -> TornDown:
        """End a lease whose box a person has ended in its console, over that person's signature.

        Raises:
            Refused: its teardown was not permitted yet, nobody signed, or the box still answers.
        """
        found = self.ledger.lease(lease)
        if self.ledger.receipt(found.id) is None:
            signed = self.ledger.signed_for("attest", found.id, at=self._clock.now())
            if not signed:
                raise wanted(self.ask_attestation(found.id))
            with self._held(found.id, "attest"):
                try:
                    await self._is_silent(found)
                except Refused:
                    # What was said was not so: it must not be believed at a later silence.
                    self.ledger.use_signature(signed[0].code, at=self._clock.now())
                    raise
                connector = self._connectors[found.provider]
                assert isinstance(connector, Tended)
                self.ledger.attest(found.id, signed[0], at=self._clock.now())
                connector.ended(found)
                # Two looks at our own list, as far apart as the profile asks.
                for _ in range(_LOOKS):
                    found, _words = await self._settled(found)
                    if not found.state.live:
                        break
                    await self._clock.sleep(1)
            await self._close(found)
        return self._torn_down(found, self._receipt(found))

    async def _is_silent(self, lease: Lease) -> None:
        """The box has not answered for longer than a job could keep its sshd from it unnoticed.

        Raises:
            Refused: it answers.
        """
        until = self._clock.now() + timedelta(seconds=_SILENT_S)
        while True:
            try:
                await self._reach(lease)
            except (BoxUnreachable, HostKeyChanged):
                pass  # silent, or its address is somebody else's by now
            except BoxTrouble as trouble:
                raise self._still_there(lease) from trouble
            else:
                raise self._still_there(lease)
            if self._clock.now() >= until:
                return
            await self._clock.sleep(_SILENT_S / 6)

    async def _overview(
        self,
        which: Literal["live", "all"],
        *,
        twins: Literal["give_back", "tell"] = "tell",
        at: Collection[str] | None = None,
        patience_s: float = PATIENCE_S,
        limit: int = PAGE,
    ) -> Leases:
        await self._look_again(at)
        return await super()._overview(
            which, twins=twins, at=at, patience_s=patience_s, limit=limit
        )

    async def _look_again(self, at: Collection[str] | None) -> None:
        """Every box whose end rests on a person's word was looked at; one that answers is under a lease again."""
        doubted = [
            lease
            for lease in in_doubt(self.ledger, self._clock.now())
            if at is None or lease.provider in at
        ]
        there = await each(doubted, lambda lease: is_there(lease, self._reach))
        for lease, answers in zip(doubted, there, strict=True):
            await self._close(lease)
            if answers is not True:
                continue
            with suppress(LeaseHeld), self._held(lease.id, "look"):
                if lease not in in_doubt(self.ledger, self._clock.now()):
                    continue  # another process was quicker
                profile = self._profile(lease.provider)
                again = reopened(lease, profile, ledger=self.ledger, at=self._clock.now())
                pins = self.home.known_hosts(lease.id)
                if pins.exists():
                    self.home.known_hosts(again.id).write_bytes(pins.read_bytes())
                with suppress(TenantError):  # the alarm stands, and the next look goes on with it
                    await self._fulfilled(again, wait_s=0)
        told_no_more(self.ledger, self._clock.now())
        passkeys.told(self.ledger, at=self._clock.now())

    def _still_there(self, lease: Lease) -> Refused:
        return Refused(
            f"{lease.id} still answers at {lease.box_id}: it is not gone, and bills",
            remedy=f"`gpu-tenant teardown {lease.id}` looks once more and says how it is ended; "
            "then the same command again",
        )

    async def assess_loss(self, lease: str) -> LossReport:
        """What would be gone for good if the box were destroyed now; nothing is changed."""
        found = await self._with_box(lease)
        return _reported(found, await self._assess(found))

    async def waive(self, lease: str) -> TornDown:
        """Destroy a box although something would be lost, over a person's signature for exactly that.

        Raises:
            SignatureWanted: nobody has signed for what would be lost now.
        """
        found = await self._with_box(lease)
        with self._held(found.id, "waive"):
            assessment = await self._assess(found)
            if assessment.losses:
                signature = self._waiver(found, assessment)
                if signature is None:
                    trouble = wanted(
                        self.asked_to_waive(_reported(found, assessment)), most=MOST_TOLD
                    )
                    if self.is_signed("waive", found.id):
                        trouble.message = f"this is not what was signed for: {trouble.message}"
                    raise trouble
                permit = sign(found, assessment, signature, ledger=self.ledger, clock=self._clock)
                receipt = await self._end(permit, found)
        if not assessment.losses:
            return await self.verify_and_teardown(lease)
        await self._close(found)
        return self._torn_down(self.ledger.lease(found.id), receipt)

    async def waive_ahead(self, lease: str) -> None:
        """What cannot be saved when the lease and its rescue sum have run out may be lost: it is signed.

        Raises:
            Refused: nobody has signed for the terms as they are.
        """
        found = await self._with_box(lease)
        at = self._clock.now()
        signature = self.ledger.signed("waive_ahead", found.id, _of_terms(found), at=at)
        if signature is None:
            raise wanted(self.ask_ahead(found.id))
        with self._held(found.id, "waive"):
            signed = self.ledger.sign_ahead(found.id, signature, at=at)
            if signed.ready_at is not None and signed.parked_at is None:
                # What its owner has signed for, the guard on the box may do.
                await self._armed(signed)

    async def honour(self, lease: str) -> TornDown:
        """The box of a lease past its end and its rescue sum is destroyed, as its owner signed before.

        Raises:
            Refused: nobody has signed, or it is not so far.
        """
        found = await self._with_box(lease)
        with self._held(found.id, "waive"):
            assessment = await self._assess(found)
            permit = honour(found, assessment, ledger=self.ledger, clock=self._clock)
            receipt = await self._end(permit, found)
        await self._close(found)
        return self._torn_down(self.ledger.lease(found.id), receipt)

    async def _end(self, permit: TeardownPermit, lease: Lease) -> Receipt:
        await self._leave(lease)
        return await tear_down(
            permit, lease, self._profile(lease.provider),
            connector=self._connector(lease), ledger=self.ledger, clock=self._clock,
        )  # fmt: skip


def _of_terms(lease: Lease) -> str:
    """A name for the terms of the lease as they are; whoever signs ahead signs for these."""
    return digest_of((lease.terms.model_copy(update={"on_deadline": "keep"}).model_dump_json(),))


def _reported(lease: Lease, assessment: Assessment) -> LossReport:
    return LossReport(
        lease=lease.id,
        losses=assessment.words,
        digest=assessment.loss_digest,
    )
