"""How a box comes under a lease, and how a lease is extended, parked and resumed."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from gpu_tenant.cards import Card, Leases
from gpu_tenant.errors import (
    BadRequest,
    BoxTaken,
    NoCapacity,
    NoQuota,
    NotReady,
    PriceMoved,
    Refused,
    TenantError,
)
from gpu_tenant.market import Quote
from gpu_tenant.model import Lease, Profile, SshAddress, Terms
from gpu_tenant.office import WAIT_S, Office
from gpu_tenant.park import park, resume
from gpu_tenant.provision import fulfil, intend, intend_quote, must_be_hours, new_lease_id
from gpu_tenant.reconcile import rate_words
from gpu_tenant.settle import return_unused

DEADLINE_H = 24
"""Eight hours would end most runs over night."""


class Renting(Office):
    """The part of a tenancy that begins leases and changes their terms."""

    async def _fulfilled(self, lease: Lease, wait_s: float = WAIT_S) -> Lease:
        lease = await fulfil(
            lease, self._profile(lease.provider), connector=self._connector(lease),
            ledger=self.ledger, clock=self._clock,
        )  # fmt: skip
        return await self._made_ready(lease, wait_s)

    async def _rented(
        self,
        quotes: Sequence[str],
        *,
        hours: float | None,
        budget_usd: Decimal | None,
        wait_s: float,
    ) -> Card:
        """A box of the first quote that can be had; never a second while the first may bill."""
        # A box that never gets ready is given back after its quotes' time, and the next is had all
        # the same: its price is asked again before it is rented.
        wanted, asked_at = [self._quote(name) for name in quotes], self._clock.now()
        refused: list[str] = []
        for quote in wanted:
            profile = self._set_up(quote.offer.provider)
            lease = intend_quote(
                quote, profile, hours=hours, budget_usd=budget_usd, ledger=self.ledger,
                clock=self._clock, asked_at=asked_at,
            )  # fmt: skip
            with self._held(lease.id, "provision"):
                try:
                    rented = await self._fulfilled(lease, wait_s)
                    return self._card(rented, "; ".join(refused) or None)
                except (NoCapacity, NoQuota, PriceMoved, NotReady) as trouble:
                    refused.append(f"{quote.id}: {trouble.message}")
                    last: TenantError = trouble
                standing = self.ledger.lease(lease.id)
                if standing.state.live:
                    receipt = await return_unused(
                        standing, profile, connector=self._connector(standing),
                        ledger=self.ledger, clock=self._clock,
                    )  # fmt: skip
                    refused[-1] += f"; it was given back unused, for {receipt.cost_usd} USD"
                    last.remedy = "`gpu-tenant offers` shows what there is now"
                    await self._close(standing)
        last.message = "; ".join(refused)
        raise last

    def _quote(self, name: str) -> Quote:
        quote = self.ledger.quote(name)
        if quote is None:
            raise BadRequest(
                f"no quote {name!r} was given", remedy="`gpu-tenant offers` gives some"
            )
        return quote

    async def _adopted(
        self,
        profile: Profile,
        target: str | None,
        *,
        hours: float,
        price_usd_h: Decimal | None,
        max_price_usd_h: Decimal | None,
        budget_usd: Decimal | None,
    ) -> Card:
        if not target or target.startswith("-") or any(c.isspace() for c in target):
            raise BadRequest(
                "no machine was named",
                remedy="`gpu-tenant adopt user@host[:port]`, or an ssh alias",
            )
        other = self.ledger.lease_on(profile.id, target)
        if other is not None:
            raise BoxTaken(
                f"the lease {other.id} already stands on {target}",
                remedy=f"use that lease, or end it first: `gpu-tenant teardown {other.id}`",
            )
        if not profile.adopted:
            return self._card(await self._take_over(profile, target, hours=hours), None)
        lease = intend(
            profile, hours=hours, price_usd_h=price_usd_h, max_price_usd_h=max_price_usd_h,
            budget_usd=budget_usd, address=SshAddress(target=target),
            ledger=self.ledger, clock=self._clock,
        )  # fmt: skip
        with self._held(lease.id, "adopt"):
            try:
                # Nothing is lent by an address that nobody answers at.
                await self._reach(lease)
            except TenantError:
                await self._settled(lease)
                raise
            lease = await self._fulfilled(lease)
        return self._card(lease, None)

    async def _take_over(self, profile: Profile, box_id: str, *, hours: float) -> Lease:
        """A box that its provider lists, and that no lease stands on, is under one; as used."""
        must_be_hours(hours)
        boxes = await self._connectors[profile.id].list_boxes()
        box = next((box for box in boxes if box.id == box_id), None)
        if box is None:
            listed = ", ".join(box.id for box in boxes) or "none"
            raise BadRequest(
                f"{profile.title} lists no box {box_id} (it lists: {listed})",
                remedy="`gpu-tenant leases` shows what runs",
            )
        now = self._clock.now()
        return self.ledger.take_up(
            box, lease_id=new_lease_id(profile, self.ledger),
            terms=Terms(deadline_at=now + timedelta(hours=hours)), at=now, touched_at=now,
        )  # fmt: skip

    async def _changed(
        self, lease: Lease, action: Literal["extend", "park", "resume"], hours: float | None
    ) -> Lease:
        profile, connector = self._profile(lease.provider), self._connector(lease)
        match action:
            case "extend":
                if hours is None:
                    raise BadRequest(
                        "until when?", remedy=f"`gpu-tenant extend {lease.id} --hours 8`"
                    )
                return await self._extended(lease, hours)
            case "park":
                if lease.parked_at is not None:
                    raise Refused(
                        f"{lease.id} is parked already, {rate_words(lease)}",
                        remedy=f"`gpu-tenant resume {lease.id}`",
                    )
                lease = await park(
                    lease, profile, connector=connector, caretaker=self._caretaker(lease),
                    ledger=self.ledger, clock=self._clock,
                )  # fmt: skip
                await self._close(lease)
                return lease
            case "resume":
                lease = await resume(
                    lease, profile, connector=connector, ledger=self.ledger, clock=self._clock
                )
                # A container that was stopped comes back with another host key.
                self.home.known_hosts(lease.id).unlink(missing_ok=True)
                return await self._made_ready(lease)

    async def _extended(self, lease: Lease, hours: float) -> Lease:
        must_be_hours(hours)
        now = self._clock.now()
        terms = lease.terms.model_copy(update={"deadline_at": now + timedelta(hours=hours)})
        if lease.touched_at is not None and lease.parked_at is None:
            # The box first: a ledger that promises what the guard does not know would end jobs early.
            await self._caretaker(lease).guard(deadline=terms.deadline_at)
        return self.ledger.change_terms(lease.id, terms, at=now)

    async def reconcile(self) -> Leases:
        """As list_leases, and boxes that were rented twice by one request, never used, are given back."""
        return await self._overview("live", twins="give_back")
