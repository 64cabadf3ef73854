"""How a box that exists comes under a lease, and comes back under it after a person stopped it."""

from datetime import timedelta
from decimal import Decimal

from gpu_tenant.cards import Card
from gpu_tenant.errors import (
    BadRequest,
    BoxTaken,
    BoxUnreachable,
    OwnerMustAct,
    TenantError,
)
from gpu_tenant.ledger import Event
from gpu_tenant.model import Lease, Profile, SshAddress
from gpu_tenant.office import WAIT_S
from gpu_tenant.overview import Overview
from gpu_tenant.pasted import address_of
from gpu_tenant.ports import Tended
from gpu_tenant.provision import DEADLINE_H, fulfil, intend, must_be_hours, new_lease_id
from gpu_tenant.settle import deployment_of
from gpu_tenant.terms import USUAL, Asked


class Adopting(Overview):
    """The part of a tenancy that takes boxes which somebody else made."""

    async def adopt(
        self,
        provider: str,
        target: str | None,
        *,
        asked: Asked = USUAL,
        price_usd_h: Decimal | None = None,
        password: str | None = None,
        over: str | None = None,
    ) -> Card:
        """A box that exists is under a lease; `password` lets our key in, once, and is forgotten.

        `over` is the lease, or the deployment, whose mark is on it and holds no more: for a person's word alone.

        Raises:
            BoxTaken: another lease stands on it, by whatever name the box is called.
        """
        profile = self._profile(provider)
        if provider not in self._connectors or "@" not in (target or ""):
            # A box that a person names by its address needs no key for the platform's API.
            self._set_up(provider)
        if not target and profile.console and profile.console.bootstrap:
            raise BadRequest(
                f"{profile.title} lets nobody in before its owner does",
                remedy=f"`gpu-tenant adopt --on {provider}` prints what to paste there",
            )
        if profile.lease == "created" or (profile.lease == "either" and "@" not in (target or "@")):
            return self._card(
                await self._take_over(profile, target or "", asked, over, price_usd_h), None
            )
        address = address_of(target or "")
        other = self.ledger.lease_on(profile.id, address.target)
        if other is not None:
            raise BoxTaken(
                f"the lease {other.id} already stands on {address.target}",
                remedy=f"use that lease, or end it first: `gpu-tenant teardown {other.id}`",
            )
        lease = intend(
            profile, asked=asked, price_usd_h=price_usd_h, address=address, ledger=self.ledger,
            clock=self._clock, allowed=self.owner.allows,
        )  # fmt: skip
        if profile.destroy == "deletes":
            # Its owner may have worked on it for a week: used from the start, all of it accounted for.
            self.ledger.touch(lease.id, at=lease.created_at)
            lease = self.ledger.lease(lease.id)
        self._in_place_of(lease, over)
        with self._held(lease.id, "adopt"):
            try:
                if password is not None:
                    await self._introduce(lease, password)
                # Nothing is lent by an address that nobody answers at, or where another lease stands.
                await self.inspection.come_in(lease)
            except TenantError:
                await self._settled(lease)
                raise
            lease = await self._fulfilled(lease)
        return self._card(lease, None)

    def bootstrap(self, provider: str) -> str | None:
        """What a person pastes into a box there so that it lets us in; None where nothing is needed."""
        console = self._profile(provider).console
        if console is None or console.bootstrap is None:
            return None
        return console.bootstrap.replace("PUBLIC_KEY", self._public_key())

    async def _fulfilled(self, lease: Lease, wait_s: float = WAIT_S) -> Lease:
        lease = await fulfil(
            lease, self._profile(lease.provider), connector=self._connector(lease),
            ledger=self.ledger, clock=self._clock,
        )  # fmt: skip
        return await self._made_ready(lease, wait_s)

    def _in_place_of(self, lease: Lease, over: str | None) -> None:
        """Whose mark shall not keep this lease off the box is on record."""
        if over is not None:
            self.ledger.note(lease.id, Event.TAKES_OVER, {"over": over}, at=self._clock.now())

    async def _take_over(
        self,
        profile: Profile,
        box_id: str,
        asked: Asked,
        over: str | None,
        price_usd_h: Decimal | None,
    ) -> Lease:
        """A box that its provider lists, and that no lease stands on, is under one; as used.

        `price_usd_h` is what it costs by its owner's word, where its provider does not say.
        """
        hours = DEADLINE_H if asked.hours is None else asked.hours
        must_be_hours(hours)
        boxes = await self._connectors[profile.id].list_boxes()
        box = next((box for box in boxes if box.id == box_id), None)
        if box is None:
            listed = ", ".join(box.id for box in boxes) or "none"
            raise BadRequest(
                f"{profile.title} lists no box {box_id} (it lists: {listed})",
                remedy="`gpu-tenant leases` shows what runs",
            )
        if box.price_usd_h is None:
            box = box.model_copy(update={"price_usd_h": price_usd_h})
        theirs = deployment_of(box)
        if theirs not in (None, self.ledger.deployment) and over is None:
            raise BoxTaken(
                f"{box_id} carries the mark of another gpu-tenant ({theirs}), which may be at work on it",
                remedy="end it where that one runs; if that one is no more, a person at a terminal takes its "
                f"place: `gpu-tenant adopt {box_id} --on {profile.id} --take-over {theirs}`",
            )
        if over is not None and over not in (theirs, (box.mark or "").rpartition(":")[2]):
            raise BadRequest(
                f"{box_id} does not carry a mark of {over}",
                remedy=f"it carries {box.mark or 'none'}: name that, or leave --take-over out",
            )
        now = self._clock.now()
        terms = asked.terms(
            deadline_at=now + timedelta(hours=hours), max_price_usd_h=asked.max_price_usd_h,
            meter="billed",
        )  # fmt: skip
        lease = self.ledger.take_up(
            box, lease_id=new_lease_id(profile, self.ledger), terms=terms, at=now, touched_at=now,
            allowed=self.owner.allows,
        )  # fmt: skip
        self._in_place_of(lease, over)
        return lease

    async def _back_at(
        self, lease: Lease, profile: Profile, connector: Tended, address: str | None
    ) -> Lease:
        """A person has started the box again, and it answers where they found it.

        Raises:
            OwnerMustAct: nobody has, or it is elsewhere now.
        """
        before, there = lease.address, lease.address
        pinned = self.home.known_hosts(lease.id)
        was = pinned.read_bytes() if pinned.exists() else None
        if address is not None:
            there = address_of(address)
            lease = self.ledger.moved(lease.id, there)
        pinned.unlink(missing_ok=True)
        try:
            await self.inspection.is_the_box(lease)
        except TenantError as trouble:
            if was is not None:
                pinned.write_bytes(was)
            if before is not None:
                self.ledger.moved(lease.id, before)
            if not isinstance(trouble, BoxUnreachable):
                raise
            raise OwnerMustAct(
                f"{lease.id} does not answer at {address or lease.box_id}; a person starts it: "
                f"{profile.console_words('resume')}",
                remedy=f"then `gpu-tenant resume {lease.id} --at 'ssh -p PORT root@HOST'` as the "
                "console shows it now",
            ) from trouble
        if isinstance(there, SshAddress):
            connector.moved(lease, there)
        return lease

    def _only_there(self, lease: Lease) -> str | None:
        """What the owner of a parked box must know of what is on it; None where it was not used."""
        if lease.parked_at is None or lease.touched_at is None:
            return None
        collected = self.ledger.seal(lease.id)
        what = (
            "nothing on it was collected"
            if collected is None
            else "what came after its last collect"
        )
        words = f"{what}: it is on that disk alone, and a start may find no GPU free"
        if lease.goes_by_address:
            words += "; that it is stopped is its silence: the console shows whether it bills"
        return words
