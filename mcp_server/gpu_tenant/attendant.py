"""One look at one lease: what came of it is brought home, and it is held to its terms in the dead-man order."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from gpu_tenant.alarms import Level
from gpu_tenant.cards import Card
from gpu_tenant.clock import WallClock
from gpu_tenant.errors import (
    BoxTrouble,
    LeaseHeld,
    NotReady,
    PriceMoved,
    ProviderTrouble,
    Refused,
    TenantError,
)
from gpu_tenant.fence import Outrun, attempts, beyond, is_due, is_near, outrun
from gpu_tenant.ledger import Event
from gpu_tenant.model import Lease, LeaseId, LeaseState
from gpu_tenant.policy import rescue
from gpu_tenant.reconcile import rate_words
from gpu_tenant.service import Tenancy

_GRACE_S = 60
"""Between asking a job to save its work and killing it."""
_CLOCKS_APART = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at the box itself told; None is unknown, and concludes nothing."""

    idle_s: float | None = None
    apart: timedelta | None = None
    """How far this computer's clock is before the box's."""


class Attendant:
    """Looks at one lease once; what it raised is in `raised`, and what else was wrong before is over."""

    def __init__(
        self,
        tenancy: Tenancy,
        lease_id: LeaseId,
        card: Card | None,
        *,
        look_s: float,
        done: Callable[[str], None],
    ) -> None:
        self._tenancy = tenancy
        self._lease_id = lease_id
        self._card = card
        self._look_s = look_s
        self._done = done
        self.raised: set[str] = set()

    def alarm(self, key: str, words: str, level: Level) -> None:
        """A person will hear of it, until a look does not raise it again."""
        self.raised.add(key)
        self._tenancy.ledger.raise_alarm(
            key, words, level=level, lease_id=self._lease_id, at=self._tenancy.clock.now()
        )

    async def attend(self) -> None:
        """The lease was moved on, as far as its state lets it be.

        Raises:
            LeaseHeld: somebody is acting on it right now.
        """
        lease = self._tenancy.ledger.lease(self._lease_id)
        if not lease.state.live:
            await self._recover(lease)
            return
        if self._card is not None and self._card.alarm:
            self.alarm("standing", self._card.alarm, Level.WARNING)
        if lease.state is LeaseState.INTENDED:
            return  # settled with the list
        if self._tenancy.may_recover(lease):
            await self._recover(lease)
        if lease.state is LeaseState.TERMINATING:
            await self._go_on_ending(lease)
        elif lease.parked_at is not None:
            await self._parked(lease)
        else:
            await self._running(lease)

    async def _running(self, lease: Lease) -> None:
        now = self._tenancy.clock.now()
        if lease.ready_at is None:
            await self._make_ready(lease)
            lease = self._tenancy.ledger.lease(lease.id)
            if not lease.state.live or (lease.ready_at is None and now < lease.terms.deadline_at):
                return
        seen = await self._look_at_box(lease)
        cause = outrun(lease, now, look_s=self._look_s, idle_s=seen.idle_s)
        if cause is not None and seen.apart is not None and abs(seen.apart) > _CLOCKS_APART:
            # One of them is wrong, and nobody here knows which: the guard on the box counts for itself.
            self.alarm(
                "clock",
                f"{cause.words}, by this computer's clock, which is {seen.apart} before the box's: set it "
                "right, for nothing is ended on its word",
                Level.URGENT,
            )
        elif cause is not None and cause.term == "idle" and lease.terms.when_idle == "alarm":
            self.alarm("idle", f"{cause.words}, {rate_words(lease)}", Level.WARNING)
        elif cause is not None:
            await self._end(lease, cause)
        elif is_near(lease, now):
            left_s = (lease.terms.deadline_at - now).total_seconds()
            self.alarm(
                "near",
                f"it ends in {left_s / 60:.0f} min; `gpu-tenant extend {lease.id} --hours N` moves that",
                Level.WARNING,
            )

    async def _make_ready(self, lease: Lease) -> None:
        """A box that was never ready in time, or is not what was quoted, is given back unused."""
        try:
            await self._tenancy.made_ready(lease.id)
        except (NotReady, PriceMoved) as trouble:
            self.alarm("standing", trouble.message, Level.WARNING)
            if lease.touched_at is None:
                await self._tear_down(lease)

    # --- the box

    async def _look_at_box(self, lease: Lease) -> Seen:
        """What is complete on the box is here; what the look told."""
        if lease.ready_at is None:
            return Seen()
        try:
            standing = await self._tenancy.standing(lease.id)
            anew = await self._tenancy.rearmed(lease.id)
            if anew is not None:
                self._done(f"its guard was gone, as after a reboot: {anew}")
            await self._gather(lease, working=standing.live)
        except BoxTrouble as trouble:
            # Blind is not dead: nothing is concluded, and nothing is done to the box.
            self.alarm(
                "unreachable",
                f"{trouble.message}; it may be running, {rate_words(lease)}",
                Level.WARNING,
            )
            return Seen()
        apart = None
        # A rehearsal's clock is another than its boxes', and is meant to be.
        if standing.now is not None and isinstance(self._tenancy.clock, WallClock):
            apart = timedelta(seconds=self._tenancy.clock.now().timestamp() - standing.now)
        return Seen(await self._idle_s(lease), apart)

    async def _gather(self, lease: Lease, *, working: tuple[str, ...]) -> None:
        try:
            if lease.touched_at is not None and working:
                for words in (await self._tenancy.pull(lease.id)).words:
                    self._done(words)
            elif self._tenancy.has_news(lease):
                gathered = await self._tenancy.collect(lease.id)
                if gathered.fetched_files:
                    self._done(f"collected {gathered.fetched_files} files")
                if gathered.not_stored:
                    self.alarm("store", gathered.not_stored, Level.WARNING)
        except BoxTrouble:
            raise
        except TenantError as trouble:
            # What cannot be kept here is told, and is no reason to stop looking.
            self.alarm("gather", f"{trouble.message}; {trouble.remedy}", Level.WARNING)

    async def _idle_s(self, lease: Lease) -> float | None:
        if lease.terms.idle_h is None:
            return None
        try:
            activity = await self._tenancy.activity(lease.id)
        except BoxTrouble:
            return None
        if activity.phase == "suspicious":
            self.alarm("suspicious", activity.words, Level.WARNING)
        return None if activity.phase == "unknown" else activity.idle_s

    # --- the end, in the dead-man order

    async def _end(self, lease: Lease, cause: Outrun) -> None:
        """It was tried to end the lease: proved and torn down, or else parked, or else paid for."""
        tenancy, now = self._tenancy, self._tenancy.clock.now()
        tried = attempts(tenancy.ledger.events(lease.id))
        if not is_due(tried, now):
            self.alarm("end", f"{cause.words}; {_stands(lease)}", Level.URGENT)
            return
        detail: dict[str, object] = {"term": cause.term, "words": cause.words}
        tenancy.ledger.note(lease.id, Event.ENDING, detail, at=now)
        self._done(f"{cause.words}: it is being ended")
        unsaved = await self._saved(lease)
        refused = await self._tear_down(lease)
        if refused is None:
            return
        why = unsaved or refused
        try:
            await tenancy.park_overdue(lease.id)
        except LeaseHeld:
            raise
        except (Refused, BoxTrouble, ProviderTrouble) as unparked:
            why = f"{why} (and it cannot be parked: {unparked.message})"
        else:
            self._done(f"parked: {cause.words}")
            await self._parked(tenancy.ledger.lease(lease.id))
            return
        lease = tenancy.ledger.lease(lease.id)
        if beyond(lease, (tried or [now])[0], tenancy.clock.now()) == "waive":
            try:
                await tenancy.honour(lease.id)
            except TenantError as trouble:
                why = trouble.message
            else:
                self._done(f"destroyed, as its owner signed: {cause.words}")
                return
        self.alarm("end", f"{cause.words}; {why}; {_stands(lease)}", Level.URGENT)

    async def _saved(self, lease: Lease) -> str | None:
        """The jobs have ended and what they wrote is here, and in the store; or why not."""
        tenancy = self._tenancy
        if lease.touched_at is None:
            return None
        try:
            for job in (await tenancy.standing(lease.id)).live:
                await tenancy.stop_job(lease.id, job, grace_s=_GRACE_S)
            await tenancy.collect(lease.id)
        except LeaseHeld:
            raise
        except TenantError as trouble:
            return trouble.message
        return None

    async def _tear_down(self, lease: Lease) -> str | None:
        """Why the lease may not be ended; None where it has ended, or goes on ending by itself."""
        try:
            torn = await self._tenancy.verify_and_teardown(lease.id)
        except LeaseHeld:
            raise
        except ProviderTrouble as trouble:
            # Permitted, and asked again at each look; or a person's turn, who has been told how.
            self.alarm("teardown", f"{trouble.message}; {trouble.remedy}", Level.URGENT)
            return None
        except TenantError as refusal:
            return f"{refusal.message}; {refusal.remedy}"
        self._done(f"ended, {torn.receipt.ground}, for {torn.receipt.cost_usd} USD")
        return None

    async def _go_on_ending(self, lease: Lease) -> None:
        """A teardown that was permitted and cut short is proved anew and goes on, ever more seldom."""
        words = self._tenancy.awaits_owner(lease.id)
        if words is not None:
            self.alarm("teardown", f"a person has to end its box: {words}", Level.URGENT)
            return
        now = self._tenancy.clock.now()
        tried = attempts(self._tenancy.ledger.events(lease.id))
        if not is_due(tried, now):
            self.alarm("teardown", f"its teardown is not through; {_stands(lease)}", Level.URGENT)
            return
        self._tenancy.ledger.note(lease.id, Event.ENDING, {"term": "teardown"}, at=now)
        refused = await self._tear_down(lease)
        if refused is not None:
            self.alarm("teardown", f"{refused}; {_stands(lease)}", Level.URGENT)

    async def _parked(self, lease: Lease) -> None:
        now = self._tenancy.clock.now()
        late = outrun(lease, now, look_s=self._look_s)
        words = f"it is parked, and bills {rate_words(lease)}"
        if late is None:
            self.alarm("parked", words, Level.NOTICE)
            return
        if lease.touched_at is None:
            await self._tear_down(lease)
            return
        began = attempts(self._tenancy.ledger.events(lease.id)) or [lease.terms.deadline_at]
        if beyond(lease, began[0], now) == "waive":
            with suppress(Refused):  # told below, like any other that is parked past its end
                await self._tenancy.honour(lease.id)
                self._done("destroyed while parked, as its owner signed")
                return
        self.alarm(
            "parked",
            f"{late.words}; {words}; `gpu-tenant resume {lease.id}`, then collect and teardown",
            Level.WARNING,
        )

    async def _recover(self, lease: Lease) -> None:
        """The work of a lost lease goes on elsewhere, where its terms say so."""
        try:
            card = await self._tenancy.recover(lease.id)
        except LeaseHeld:
            raise
        except TenantError as trouble:
            self.alarm("recovery", f"{trouble.message}; {trouble.remedy}", Level.URGENT)
        else:
            if card.alarm:
                self.alarm("recovery", card.alarm, Level.WARNING)
            else:
                self._done(f"its work goes on under {card.lease}")


def _stands(lease: Lease) -> str:
    most = rescue(lease)
    spends = "" if most is None else f"; {most:.2f} USD may be spent to save what is on it"
    return (
        f"its box bills on {rate_words(lease)}{spends}: `gpu-tenant teardown {lease.id}` says why"
    )
