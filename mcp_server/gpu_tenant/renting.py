"""How a box is rented for a lease, and how a lease is extended, parked and resumed."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from gpu_tenant.cards import Card, Leases
from gpu_tenant.errors import BadRequest, BoxTrouble, ProviderTrouble, Refused
from gpu_tenant.fleet import MOST
from gpu_tenant.gpu_catalog import asked_for
from gpu_tenant.guard import arm_again, last_armed
from gpu_tenant.hiring import Hiring, must_be_one
from gpu_tenant.ledger import Allowed, anything
from gpu_tenant.market import Trust, Wish
from gpu_tenant.model import Lease
from gpu_tenant.offers import Found, find_offers
from gpu_tenant.office import WAIT_S
from gpu_tenant.park import park, resume
from gpu_tenant.policy import remarks, running_usd_h
from gpu_tenant.ports import Market, Tended, Timed
from gpu_tenant.provision import intend, must_be_hours, require_smoke
from gpu_tenant.reconcile import rate_words
from gpu_tenant.record import Amount, Hours
from gpu_tenant.terms import Asked, Terms, WhenIdle

LeaseName = Annotated[str, Field(description="lease id, as list_leases shows it")]


class Renting(Hiring):
    """The part of a tenancy that begins leases and changes their terms."""

    async def find_offers(
        self,
        gpu: Annotated[
            str | None, Field(description="as in 'RTX 4090', 'H100 SXM:8'; any when left out")
        ] = None,
        hours: Annotated[float, Field(gt=0, le=8760, description="how long the work takes")] = 1,
        max_price_usd_h: Annotated[
            Amount | None, Field(description="for the whole box, disk included")
        ] = None,
        vram_gib: Annotated[float | None, Field(description="memory each GPU must have")] = None,
        disk_gb: Annotated[int, Field(ge=8)] = 40,
        region: Annotated[str | None, Field(description="part of a region's name")] = None,
        trust: Annotated[
            Trust, Field(description="whose machine is good enough for code and data")
        ] = "any",
        interruptible: Literal["no", "yes", "either"] = "no",
        upload_gb: Annotated[float, Field(ge=0, description="to be moved to the box")] = 0,
        download_gb: Annotated[float, Field(ge=0, description="to be moved off the box")] = 0,
        provider: Annotated[str | None, Field(description="only this one")] = None,
        explain: Annotated[Literal["", "explain"], Field(description="why each is ranked so")] = "",
        limit: Annotated[int, Field(ge=1, le=50)] = 8,
    ) -> Found:
        """What could be rented now, at every provider whose key is found, and your own machines.

        Ranked by the expected cost of the finished work; each offer has a quote for provision.
        """
        name, count = asked_for(gpu) if gpu else (None, 1)
        if provider is not None:
            self._set_up(provider)
        markets = {
            slug: connector
            for slug, connector in self._connectors.items()
            if isinstance(connector, Market) and provider in (None, slug)
        }
        wish = Wish(
            gpu=name, gpu_count=count, vram_gib=vram_gib, disk_gb=disk_gb, hours=hours,
            max_price_usd_h=max_price_usd_h, region=region, trust=trust,
            interruptible=interruptible, upload_gb=upload_gb, download_gb=download_gb,
        )  # fmt: skip
        return await find_offers(
            wish, markets, ledger=self.ledger, clock=self._clock, limit=limit, explain=explain
        )

    async def provision(
        self,
        provider: Annotated[
            str,
            Field(
                description="local, own (over ssh), or whose console rented it; not with a quote"
            ),
        ] = "local",
        target: Annotated[
            str | None,
            Field(description="user@host[:port], an alias, or a pasted ssh command; or a box id"),
        ] = None,
        hours: Annotated[
            float | None, Field(description="until the deadline, when the box stops its jobs")
        ] = None,
        price_usd_h: Annotated[
            Amount | None, Field(description="what the box costs, if you know")
        ] = None,
        max_price_usd_h: Annotated[Amount | None, Field(description="price cap")] = None,
        budget_usd: Annotated[
            Amount | None, Field(description="total cap; the lease is ended before it is passed")
        ] = None,
        idle_h: Annotated[
            Hours | None, Field(description="end it when idle so long; 2 if billed; 0: never")
        ] = None,
        when_idle: WhenIdle = "end",
        rescue_usd: Annotated[
            Amount | None, Field(description="to save unverified data past the end; a day's")
        ] = None,
        store: Annotated[
            str | None, Field(description="second place for artifacts: directory, rclone:R:P, name")
        ] = None,
        recover: Annotated[
            list[str], Field(description="if the box is taken, go on at: 'same', providers")
        ] = [],  # noqa: B006 - never changed; a schema default
        unguarded: Annotated[
            Literal["refuse", "accept"],
            Field(description="nothing ends its bill if this computer dies: a person signs"),
        ] = "refuse",
        smoke: Annotated[
            str | None, Field(description="id of a passed smoke_test, or 'none' to go without")
        ] = None,
        quotes: Annotated[
            list[str], Field(description="from find_offers, tried in this order until one is had")
        ] = [],  # noqa: B006 - never changed; a schema default
        wait_s: Annotated[float, Field(ge=0, le=3600, description="for a box to boot")] = WAIT_S,
        count: Annotated[int, Field(ge=1, le=MOST, description="boxes; caps are their sum")] = 1,
    ) -> Card:
        """Have a box under a lease: rented by a quote, local, or one that exists (no smoke asked).

        The meter may run from here: always end with verify_and_teardown.
        """
        asked = Asked(
            hours=hours, max_price_usd_h=max_price_usd_h, budget_usd=budget_usd, idle_h=idle_h,
            when_idle=when_idle, rescue_usd=rescue_usd, store=self.known_store(store),
            recover=tuple(recover),
        )  # fmt: skip
        for name in recover:
            if name != "same":
                self._set_up(name)
                if not isinstance(self._connectors[name], Market):
                    raise BadRequest(
                        f"nothing can be rented at {self._profile(name).title} by this program",
                        remedy="--recover takes `same`, or a provider of `gpu-tenant offers`",
                    )
        if quotes:
            require_smoke(smoke, ledger=self.ledger, clock=self._clock)
            if count > 1:
                return await self._fleet_by(
                    quotes, asked, count, unguarded=unguarded, smoke=smoke, wait_s=wait_s
                )
            return await self._rented(
                quotes, asked, unguarded=unguarded, smoke=smoke, wait_s=wait_s
            )
        profile = self._profile(provider)
        if profile.lease == "adopted" or target is not None:
            must_be_one(count)
            return await self.adopt(provider, target, asked=asked, price_usd_h=price_usd_h)
        self._set_up(provider)
        if isinstance(self._connectors[provider], Market):
            raise BadRequest(
                f"{profile.title} rents by a quote",
                remedy="find_offers first, then provision with one of its quotes: "
                f"`gpu-tenant offers --provider {provider}`",
            )
        require_smoke(smoke, ledger=self.ledger, clock=self._clock)
        if count > 1:
            return await self._fleet_at(profile, asked, count, price_usd_h, wait_s=wait_s)
        lease = intend(
            profile, asked=asked, price_usd_h=price_usd_h, address=None, ledger=self.ledger,
            clock=self._clock, allowed=self.owner.allows,
        )  # fmt: skip
        with self._held(lease.id, "provision"):
            lease = await self._fulfilled(lease)
        return self._card(lease, None)

    async def change_lease(
        self,
        lease: LeaseName,
        action: Annotated[
            Literal["extend", "park", "resume", "terms", "recover"],
            Field(
                description="park stops the GPU meter and keeps the disk; resume starts it again; "
                "recover goes on elsewhere where its box was taken"
            ),
        ],
        hours: Annotated[
            float | None,
            Field(gt=0, description="extend, resume: the deadline is so long from now"),
        ] = None,
        address: Annotated[
            str | None, Field(description="resume: where the console shows the box now")
        ] = None,
        budget_usd: Annotated[Amount | None, Field(description="terms")] = None,
        max_price_usd_h: Annotated[Amount | None, Field(description="terms")] = None,
        idle_h: Annotated[Hours | None, Field(description="terms; 0: never")] = None,
        rescue_usd: Annotated[Amount | None, Field(description="terms")] = None,
    ) -> Card:
        """Move a lease's deadline, change its terms, park its box, or resume it. The answer says what
        it costs then.
        """
        if action == "recover":
            return await self.recover(lease)
        found = await self._with_box(lease)
        given = {"budget_usd": budget_usd, "max_price_usd_h": max_price_usd_h, "idle_h": idle_h,
                 "rescue_usd": rescue_usd}  # fmt: skip
        with self._held(found.id, action):
            if action == "terms":
                changed = await self._agreed(found, given)
            else:
                changed = await self._changed(found, action, hours=hours, address=address)
            words = await self._stopped_before(changed) if action == "extend" else None
            words = words or self._only_there(changed) or remarks(found, changed, self._clock.now())
            return self._card(changed, words)

    async def _agreed(self, lease: Lease, given: Mapping[str, object]) -> Lease:
        """The lease has the terms that were given; the others are as they were."""
        update = {name: value for name, value in given.items() if value is not None}
        if not update:
            raise BadRequest(
                "which terms?", remedy=f"`gpu-tenant terms {lease.id} --budget-usd 20`"
            )
        if not update.get("idle_h", 1):
            update["idle_h"] = None
        return await self._with_terms(lease, update)

    async def _with_terms(
        self, lease: Lease, update: Mapping[str, object], *, hours: float | None = None
    ) -> Lease:
        """The box and the ledger know the changed terms; what was signed ahead was for the old ones.

        Raises:
            BadRequest: they are none, such as a negative budget.
            SignatureWanted: they are looser than its owner has agreed to; nothing was changed.
            BoxTrouble: the box was not told of another deadline, or that it may destroy itself no more.
        """
        changed = {**lease.terms.model_dump(), **update, "on_deadline": "keep"}
        try:
            terms = Terms.model_validate(changed)
        except ValidationError as error:
            first = error.errors()[0]
            raise BadRequest(
                f"{first['loc'][0]}: {first['msg'].lower()}",
                remedy=f"`gpu-tenant terms {lease.id}` shows what is in force",
            ) from None
        signed = self.owner.signs_change(lease, terms, lease.price_usd_h, hours=hours)
        if lease.parked_at is None and (lease.touched_at or last_armed(lease, self.ledger)):
            moved = terms.deadline_at != lease.terms.deadline_at
            try:
                # The box first: a ledger that promises what the guard does not know would end jobs early.
                await arm_again(
                    lease.model_copy(update={"terms": terms}), self._profile(lease.provider),
                    caretaker=self._caretaker(lease), transport=self._transport(lease),
                    ledger=self.ledger, clock=self._clock, store=self._box_store(lease),
                )  # fmt: skip
            except BoxTrouble:
                if moved or lease.terms.on_deadline == "waive":
                    raise
            if moved:
                # Its mark keeps others off the box for as long as the lease runs.
                with suppress(BoxTrouble):
                    await self.inspection.is_the_box(lease.model_copy(update={"terms": terms}))
        return self._agreed_to(lease, terms, signed)

    def _agreed_to(self, lease: Lease, terms: Terms, signed: str | None) -> Lease:
        """The terms are in force: as signed, or inside of the owner's limits, whatever else is rented now."""
        allowed = anything
        if signed is None and terms.deadline_at > lease.terms.deadline_at:
            allowed = partial(self.owner.allows, besides=lease.id)
        return self.ledger.change_terms(
            lease.id, terms, at=self._clock.now(), allowed=allowed, signed=signed
        )

    async def _changed(
        self,
        lease: Lease,
        action: Literal["extend", "park", "resume"],
        *,
        hours: float | None,
        address: str | None,
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
                lease = await self.inspection.before_a_stop(lease)
                lease = await park(
                    lease, profile, connector=connector, caretaker=partial(self._caretaker, lease),
                    transport=partial(self._transport, lease), ledger=self.ledger,
                    clock=self._clock,
                )  # fmt: skip
                await self._close(lease)
                return lease
            case "resume":
                lease, allowed = self._in_time(lease, hours)
                by_hand = isinstance(connector, Tended) and connector.tends(lease.box_id)
                if lease.parked_at is not None and isinstance(connector, Tended) and by_hand:
                    lease = await self._back_at(lease, profile, connector, address)
                lease = await resume(
                    lease, profile, connector=connector, ledger=self.ledger, clock=self._clock,
                    # What a person has started bills already, whatever it is refused.
                    allowed=anything if by_hand else allowed,
                )  # fmt: skip
                if lease.quote is not None:
                    # A container that was stopped comes back with another host key.
                    self.home.known_hosts(lease.id).unlink(missing_ok=True)
                return await self._made_ready(lease)

    def _in_time(self, lease: Lease, hours: float | None) -> tuple[Lease, Allowed]:
        """The lease has time left, or is given some: past its deadline its guard would stop the box at once.

        With it comes what has to allow its start, in the transaction that means it: the owner's limits, as
        another box may be rented meanwhile; nothing, where a person has signed for it.

        Raises:
            Refused: it has none, and nobody said how much it needs.
        """
        now, terms = self._clock.now(), lease.terms
        # As it will cost when it runs: a stopped box has room for its disk alone.
        usd_h = lease.price_usd_h if lease.parked_at is None else running_usd_h(lease)
        if hours is None and now < terms.deadline_at:
            signed = self.owner.signs_change(lease, terms, usd_h, hours=None)
            if signed is not None:
                self.ledger.use_signature(signed, at=now)
            return lease, self._within(lease, signed)
        if hours is None:
            raise Refused(
                f"the deadline of {lease.id} has passed, and its box would be stopped again at once",
                remedy=f"`gpu-tenant resume {lease.id} --hours 1`, then collect and teardown",
            )
        must_be_hours(hours)
        terms = terms.model_copy(update={"deadline_at": now + timedelta(hours=hours)})
        signed = self.owner.signs_change(lease, terms, usd_h, hours=hours)
        return self._agreed_to(lease, terms, signed), self._within(lease, signed)

    def _within(self, lease: Lease, signed: str | None) -> Allowed:
        return anything if signed is not None else partial(self.owner.allows, besides=lease.id)

    async def _extended(self, lease: Lease, hours: float) -> Lease:
        must_be_hours(hours)
        deadline_at = self._clock.now() + timedelta(hours=hours)
        return await self._with_terms(lease, {"deadline_at": deadline_at}, hours=hours)

    async def _stopped_before(self, lease: Lease) -> str | None:
        """That the provider's own timer stops the box before its deadline; None where it does not."""
        connector = self._connector(lease)
        if not isinstance(connector, Timed) or lease.parked_at is not None:
            return None
        try:
            at = await connector.timer_at(lease)
        except ProviderTrouble:
            return None  # the deadline is moved all the same, and the timer is in the profile
        if at is None or at >= lease.terms.deadline_at:
            return None
        profile = self._profile(lease.provider)
        kept = "; its disk is kept, and resume starts it" if profile.park != "none" else ""
        return (
            f"{profile.title} itself stops the box at {at:%Y-%m-%d %H:%M} UTC, before the deadline, and "
            f"that cannot be moved while it runs{kept}"
        )

    async def reconcile(self) -> Leases:
        """As list_leases, and boxes that were rented twice by one request, never used, are given back."""
        return await self._overview("live", twins="give_back")
