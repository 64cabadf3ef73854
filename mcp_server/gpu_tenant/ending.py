"""How a lease ends: verified, never used, or signed for; and what a person has to do for it."""

from gpu_tenant.cards import LossReport, TornDown
from gpu_tenant.errors import BoxTrouble, BoxUnreachable, HostKeyChanged, Refused
from gpu_tenant.ledger import Event
from gpu_tenant.model import Lease, LeaseState, Receipt
from gpu_tenant.permit import TeardownPermit
from gpu_tenant.ports import Tended
from gpu_tenant.renting import LeaseName
from gpu_tenant.sweeping import Sweeping
from gpu_tenant.teardown import tear_down
from gpu_tenant.verify import honour, prove, sign

_LOOKS = 300


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
            assessment = await self._assess(found)
            try:
                permit = prove(found, assessment)
            except Refused as refusal:
                self.ledger.note(
                    found.id, Event.REFUSED, {"words": refusal.message}, at=self._clock.now()
                )
                raise
            receipt = await self._end(permit, found)
        await self._close(found)
        return self._torn_down(self.ledger.lease(found.id), receipt)

    def awaits_owner(self, lease: str) -> str | None:
        """What a person must do in a console before this teardown can end; None where nothing."""
        found = self.ledger.lease(lease)
        if found.state is not LeaseState.TERMINATING:
            return None
        connector = self._connector(found)
        if isinstance(connector, Tended) and connector.tends(found.box_id):
            return self._profile(found.provider).console_words("destroy")
        return None

    async def attest(self, lease: str, *, typed: str, signed_by: str) -> TornDown:
        """End a lease whose box a person has ended in its console, at that person's word.

        Raises:
            Refused: its teardown was not permitted yet, nobody signed, or the box still answers.
        """
        found = self.ledger.lease(lease)
        if self.ledger.receipt(found.id) is None and self.awaits_owner(lease) is None:
            raise Refused(
                f"{found.id} is {found.state}: nobody is asked to end its box by hand",
                remedy=f"`gpu-tenant teardown {found.id}` verifies first, and says what to do",
            )
        if typed.strip() != found.id:
            raise Refused(
                f"what was typed is not {found.id}: nothing was attested",
                remedy=f"`gpu-tenant teardown {found.id} --ended`",
            )
        with self._held(found.id, "attest"):
            try:
                await self._reach(found)
            except (BoxUnreachable, HostKeyChanged):
                pass  # silent, or its address is somebody else's by now
            except BoxTrouble as trouble:
                raise self._still_there(found) from trouble
            else:
                raise self._still_there(found)
            connector = self._connectors[found.provider]
            assert isinstance(connector, Tended)
            self.ledger.note(found.id, Event.ATTESTED, {"by": signed_by}, at=self._clock.now())
            connector.ended(found)
            # Two looks at our own list, as far apart as the profile asks.
            for _ in range(_LOOKS):
                found, _words = await self._settled(found)
                if not found.state.live:
                    break
                await self._clock.sleep(1)
        await self._close(found)
        return self._torn_down(found, self._receipt(found))

    def _still_there(self, lease: Lease) -> Refused:
        return Refused(
            f"{lease.id} still answers at {lease.box_id}: it is not gone, and bills",
            remedy=f"`gpu-tenant teardown {lease.id}` looks once more and says how it is ended; "
            "then the same command again",
        )

    async def assess_loss(self, lease: str) -> LossReport:
        """What would be gone for good if the box were destroyed now; nothing is changed."""
        found = await self._with_box(lease)
        assessment = await self._assess(found)
        return LossReport(
            lease=found.id,
            losses=tuple(loss.what for loss in assessment.losses),
            digest=assessment.loss_digest,
        )

    async def waive(self, lease: str, *, shown_digest: str, typed: str, signed_by: str) -> TornDown:
        """Destroy a box although something would be lost, over a person's signature for exactly that."""
        found = await self._with_box(lease)
        with self._held(found.id, "waive"):
            assessment = await self._assess(found)
            permit = sign(
                found, assessment, shown_digest=shown_digest, typed=typed, signed_by=signed_by,
                ledger=self.ledger, clock=self._clock,
            )  # fmt: skip
            receipt = await self._end(permit, found)
        await self._close(found)
        return self._torn_down(self.ledger.lease(found.id), receipt)

    async def waive_ahead(self, lease: str, *, typed: str, signed_by: str) -> None:
        """What cannot be saved when the lease and its rescue sum have run out may be lost: it is signed.

        Raises:
            Refused: the lease's id was not typed.
        """
        found = await self._with_box(lease)
        if typed.strip() != found.id:
            raise Refused(
                "the lease's id was not typed; nothing was signed",
                remedy=f"`gpu-tenant waive {found.id} --at-deadline`",
            )
        with self._held(found.id, "waive"):
            signed = self.ledger.sign_ahead(found.id, signed_by=signed_by, at=self._clock.now())
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
