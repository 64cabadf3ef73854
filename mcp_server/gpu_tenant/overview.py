"""Everything that is leased, and everything that bills, in one look at every provider."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Literal

from gpu_tenant.alarms import Level
from gpu_tenant.cards import Card, Foreign, Leases, card, in_all
from gpu_tenant.crowd import each
from gpu_tenant.errors import Refused, TenantError
from gpu_tenant.heartbeat import watched
from gpu_tenant.model import Box, Lease
from gpu_tenant.office import Office
from gpu_tenant.settle import PATIENCE_S, Survey, deployment_of, survey
from gpu_tenant.sightings import is_of
from gpu_tenant.whose import same_account

PAGE = 50
"""So many leases that have ended are told of at a time: an agent reads every word."""


class Overview(Office):
    """The part of a tenancy that tells how everything stands."""

    def _card(
        self,
        lease: Lease,
        alarm: str | None,
        box: Box | None = None,
        *,
        now: datetime | None = None,
    ) -> Card:
        shown = card(
            lease, self._profile(lease.provider), jobs=self.ledger.jobs(lease.id), alarm=alarm,
            now=now or self._clock.now(), events=self.ledger.events(lease.id), box=box,
            protection=self._protection(lease),
        )  # fmt: skip
        receipt = None if lease.state.live else self.ledger.receipt(lease.id)
        # It was billed until it was seen gone, and not until that was written down.
        return shown.model_copy(update={"cost_usd": receipt.cost_usd}) if receipt else shown

    def on_card(self, lease: str) -> Card:
        """That lease by what is on record; nobody is asked."""
        return self._card(self.ledger.lease(lease), None)

    def same_account(self, provider: str, *, typed: str) -> int:
        """By a person's word, the provider's key and address of now are its live leases' own; of how many.

        Raises:
            Refused: the provider's name was not typed.
            BadRequest: it cannot be asked now.
        """
        self._set_up(provider)
        if typed.strip() != provider:
            raise Refused(
                f"what was typed is not {provider}: nothing was changed",
                remedy=f"`gpu-tenant reconcile --same-account {provider}`",
            )
        return same_account(
            provider, connector=self._connectors[provider], ledger=self.ledger, clock=self._clock
        )

    async def _overview(
        self,
        which: Literal["live", "all"],
        *,
        twins: Literal["give_back", "tell"] = "tell",
        at: Collection[str] | None = None,
        patience_s: float = PATIENCE_S,
        limit: int = PAGE,
    ) -> Leases:
        """As `list_leases`; of the providers `at` alone, each of which has `patience_s` to answer."""
        asked = {slug: of for slug, of in self._connectors.items() if at is None or slug in at}
        found = await survey(
            asked, self.profiles, ledger=self.ledger, clock=self._clock, twins=twins,
            patience_s=patience_s, look=self.inspection.twin,
        )  # fmt: skip
        alarms = [f"{name}: {words}" for name, words in found.alarms]
        alarms += await self._purse.alarms(found)
        leases = [
            lease for lease in self.ledger.leases("live") if at is None or lease.provider in at
        ]
        ended = self.ledger.ended(limit=limit) if which == "all" else []
        looked = await each(leases, lambda lease: self._looked_at(lease, found))
        seen = dict(zip((lease.id for lease in leases), looked, strict=True))
        now = self._clock.now()
        cards: list[Card] = []
        for lease in sorted([*ended, *leases], key=lambda lease: (lease.created_at, lease.id)):
            came = seen.get(lease.id)
            if came is None:
                cards.append(self._card(lease, None, now=now))
                continue
            if isinstance(came, TenantError):
                came = (self._card(lease, f"{came.message}; {came.remedy}"), "told")
            elif isinstance(came, Exception):
                # One lease's surprise must not hide the others.
                came = (self._card(lease, f"looking at it failed: {came!r}"), "told")
            shown, words = came
            if shown.alarm:
                alarms.append(f"{lease.id}: {shown.alarm}")
            if shown.state.live or which == "all" or words:
                cards.append(shown.model_copy(update={"terms": ()}))
        shown_words = "\n".join(alarms)
        alarms += (
            []
            if at is not None
            else [
                f"{alarm.lease_id or 'the account'}: {alarm.words}"
                for alarm in self.ledger.open_alarms()
                if alarm.level is Level.URGENT and alarm.words not in shown_words
            ]
        )
        return in_all(
            cards,
            alarms=alarms,
            foreign=[
                Foreign(
                    provider=b.provider,
                    box=b.id,
                    state=b.state,
                    price_usd_h=b.price_usd_h,
                    deployment=deployment_of(b),
                )
                for b in found.foreign
            ],
            leftovers=found.leftovers,
            strays=found.strays,
            unseen=found.unseen,
            watched=watched(self.home.watchdog, now),
            older=self._older(ended),
            free={slug for slug, profile in self.profiles.items() if profile.kind == "own"},
        )

    def _history(self, before: str, limit: int) -> Leases:
        """The leases that ended before that one; nobody is asked."""
        ended, now = self.ledger.ended(limit=limit, before=before), self._clock.now()
        return in_all(
            [self._card(lease, None, now=now).model_copy(update={"terms": ()}) for lease in ended],
            alarms=(), foreign=(), leftovers=(), unseen=(), older=self._older(ended),
            free={slug for slug, profile in self.profiles.items() if profile.kind == "own"},
        )  # fmt: skip

    def _older(self, ended: Sequence[Lease]) -> tuple[str, int] | None:
        """The oldest of them, and how many there were before it; None where they are all."""
        left = self.ledger.ended_before(ended[0].id) if ended else 0
        return (ended[0].id, left) if left else None

    async def _looked_at(self, lease: Lease, found: Survey) -> tuple[Card, str | None]:
        """The card of a live lease as its provider has just shown it, and what a person must hear."""
        words: str | None
        settled, listing = lease, found.listings.get(lease.provider)
        if lease.provider in found.blind:
            words = f"{lease.provider} does not answer: the box may be running"
        else:
            settled, words = await self._settled_if_free(lease, listing)
        boxes = listing.boxes if listing else ()
        box = next((box for box in boxes if is_of(box, settled)), None)
        return self._card(settled, words, box), words
