"""Everything that is leased, and everything that bills, in one look at every provider."""

import json
from datetime import datetime
from typing import Literal

from gpu_tenant.alarms import Level
from gpu_tenant.cards import Card, Foreign, Leases, card, in_all
from gpu_tenant.crowd import each
from gpu_tenant.errors import TenantError
from gpu_tenant.model import Box, Lease
from gpu_tenant.office import Office
from gpu_tenant.settle import Survey, deployment_of, survey
from gpu_tenant.sightings import is_of

_UNWATCHED_S = 900
_HOW = "`gpu-tenant install watchdog` has one look after every lease"


class Overview(Office):
    """The part of a tenancy that tells how everything stands."""

    def _card(self, lease: Lease, alarm: str | None, box: Box | None = None) -> Card:
        shown = card(
            lease, self._profile(lease.provider), jobs=self.ledger.jobs(lease.id), alarm=alarm,
            now=self._clock.now(), events=self.ledger.events(lease.id), box=box,
            protection=self._protection(lease),
        )  # fmt: skip
        receipt = None if lease.state.live else self.ledger.receipt(lease.id)
        # It was billed until it was seen gone, and not until that was written down.
        return shown.model_copy(update={"cost_usd": receipt.cost_usd}) if receipt else shown

    def on_card(self, lease: str) -> Card:
        """That lease by what is on record; nobody is asked."""
        return self._card(self.ledger.lease(lease), None)

    async def _overview(
        self, which: Literal["live", "all"], *, twins: Literal["give_back", "tell"] = "tell"
    ) -> Leases:
        found = await survey(
            self._connectors, self.profiles, ledger=self.ledger, clock=self._clock, twins=twins
        )
        alarms = [f"{name}: {words}" for name, words in found.alarms]
        alarms += await self._purse.alarms(found)
        leases = self.ledger.leases("all" if which == "all" else "live")
        live = [lease for lease in leases if lease.state.live]
        looked = await each(live, lambda lease: self._looked_at(lease, found))
        seen = dict(zip((lease.id for lease in live), looked, strict=True))
        cards: list[Card] = []
        for lease in leases:
            came = seen.get(lease.id)
            if came is None:
                cards.append(self._card(lease, None))
                continue
            if isinstance(came, TenantError):
                came = (self._card(lease, f"{came.message}; {came.remedy}"), "told")
            elif isinstance(came, Exception):
                raise came
            shown, words = came
            if shown.alarm:
                alarms.append(f"{lease.id}: {shown.alarm}")
            if shown.state.live or which == "all" or words:
                cards.append(shown.model_copy(update={"terms": ()}))
        shown_words = "\n".join(alarms)
        alarms += [
            f"{alarm.lease_id or 'the account'}: {alarm.words}"
            for alarm in self.ledger.open_alarms()
            if alarm.level is Level.URGENT and alarm.words not in shown_words
        ]
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
            unseen=found.unseen,
            watched=self._watched(),
            free={slug for slug, profile in self.profiles.items() if profile.kind == "own"},
        )

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

    def _watched(self) -> str:
        """When a watchdog last looked, for a person."""
        try:
            said = json.loads(self.home.watchdog.read_text(encoding="utf-8"))
            past_s = (self._clock.now() - datetime.fromisoformat(said["at"])).total_seconds()
        except (OSError, ValueError, KeyError, TypeError):
            return f"nobody: {_HOW}"
        if abs(past_s) <= _UNWATCHED_S:
            return f"a watchdog looked {max(0, past_s):.0f} s ago"
        return f"nobody since {said['at'][:16]} UTC: {_HOW}"
