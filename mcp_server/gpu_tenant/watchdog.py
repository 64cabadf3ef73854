"""The watchdog: every lease is looked at on a schedule, held to its terms, and told about."""

import asyncio
import json
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime

from gpu_tenant.alarms import Level
from gpu_tenant.cards import Card
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
from gpu_tenant.notify import tell_due
from gpu_tenant.reconcile import rate_words
from gpu_tenant.record import Record
from gpu_tenant.service import Tenancy

EVERY_S = 60
_GRACE_S = 60
"""Between asking a job to save its work and killing it."""


class Look(Record):
    """One look at everything."""

    leases: int
    did: tuple[str, ...]
    alarms: tuple[str, ...]


class Watchdog:
    """Looks at every lease, as often as it is asked to; any number of them may run at once.

    It needs nothing of the process that rented a box: all it knows is in the ledger, and all it does
    are the verbs of the tenancy, under the same law.
    """

    def __init__(
        self, tenancy: Tenancy, *, every_s: float = EVERY_S, tell: Callable[[str], None]
    ) -> None:
        self._tenancy = tenancy
        self._every_s = every_s
        self._tell = tell
        self._under_way: dict[LeaseId, asyncio.Task[None]] = {}
        self._did: list[str] = []

    async def forever(self) -> None:
        """Looks follow each other until this is cancelled; what one of them meets ends none."""
        try:
            while True:
                await self._look(wait="begun")
                await self._tenancy.clock.sleep(self._every_s)
        finally:
            for task in self._under_way.values():
                task.cancel()

    async def once(self) -> Look:
        """Every lease was looked at, and what was due has been done or tried."""
        return await self._look(wait="done")

    async def _look(self, *, wait: str) -> Look:
        self._did = []
        now = self._tenancy.clock.now()
        _put_heartbeat(self._tenancy, now, self._every_s)
        cards: dict[str, Card] = {}
        try:
            found = await self._tenancy.reconcile()
        except TenantError as trouble:
            self._alarm(None, "account", trouble.message, Level.WARNING)
        else:
            self._end_alarm(None, "account")
            cards = {card.lease: card for card in found.leases}
            self._account([a for a in found.alarms if a.partition(": ")[0] not in cards])
        for lease in self._tenancy.ledger.leases():
            known = self._under_way.get(lease.id)
            if known is not None and not known.done():
                continue
            if lease.state.live or self._tenancy.may_recover(lease):
                self._under_way[lease.id] = asyncio.create_task(
                    self._attend_safely(lease.id, cards.get(lease.id))
                )
            else:
                self._under_way.pop(lease.id, None)
                self._end_alarms(lease.id, but=())
        if wait == "done":
            await asyncio.gather(*self._under_way.values())
        await tell_due(
            self._tenancy.home, self._tenancy.ledger, environ=self._tenancy.environ,
            clock=self._tenancy.clock,
        )  # fmt: skip
        return Look(
            leases=len(self._under_way),
            did=tuple(self._did),
            alarms=tuple(
                f"{alarm.lease_id or 'account'}: {alarm.words}"
                for alarm in self._tenancy.ledger.open_alarms()
            ),
        )

    # --- one lease

    async def _attend_safely(self, lease_id: LeaseId, card: Card | None) -> None:
        raised: set[str] = set()
        try:
            await self._attend(lease_id, card, raised)
        except LeaseHeld:
            return  # somebody is acting on it right now; the next look sees what came of it
        except TenantError as trouble:
            raised.add("broke")
            self._alarm(lease_id, "broke", f"{trouble.message}; {trouble.remedy}", Level.WARNING)
        except Exception as error:  # noqa: BLE001 - one lease's surprise must not end the others' watch
            raised.add("broke")
            self._alarm(lease_id, "broke", f"looking at it failed: {error!r}", Level.URGENT)
        if not self._tenancy.ledger.lease(lease_id).state.live:
            raised &= {"recovery", "broke"}  # what was wrong with a box that is no more is over
        self._end_alarms(lease_id, but=raised)

    async def _attend(self, lease_id: LeaseId, card: Card | None, raised: set[str]) -> None:
        """The lease was moved on by one look, as far as its state lets it be."""
        lease = self._tenancy.ledger.lease(lease_id)

        def alarm(key: str, words: str, level: Level) -> None:
            raised.add(key)
            self._alarm(lease_id, key, words, level)

        if not lease.state.live:
            await self._recover(lease, alarm)
            return
        now = self._tenancy.clock.now()
        if card is not None and card.alarm:
            alarm("standing", card.alarm, Level.WARNING)
        if lease.state is LeaseState.INTENDED:
            return  # settled with the list
        if self._tenancy.may_recover(lease):
            await self._recover(lease, alarm)
        if lease.state is LeaseState.TERMINATING:
            await self._go_on_ending(lease, alarm)
            return
        if lease.parked_at is None and lease.ready_at is None:
            await self._make_ready(lease, alarm)
            lease = self._tenancy.ledger.lease(lease_id)
            if lease.ready_at is None and now < lease.terms.deadline_at:
                return
        if lease.parked_at is not None:
            await self._parked(lease, alarm)
            return
        idle_s = await self._look_at_box(lease, alarm)
        cause = outrun(lease, now, look_s=self._every_s, idle_s=idle_s)
        if cause is not None and cause.term == "idle" and lease.terms.when_idle == "alarm":
            alarm("idle", f"{cause.words}, {rate_words(lease)}", Level.WARNING)
            cause = None
        if cause is not None:
            await self._end(lease, cause, alarm)
        elif is_near(lease, now):
            left_s = (lease.terms.deadline_at - now).total_seconds()
            alarm(
                "near",
                f"it ends in {left_s / 60:.0f} min; `gpu-tenant extend {lease.id} --hours N` moves that",
                Level.WARNING,
            )

    async def _make_ready(self, lease: Lease, alarm: "_Raise") -> None:
        """A box that was never ready in time, or is not what was quoted, is given back unused."""
        try:
            await self._tenancy.made_ready(lease.id)
        except (NotReady, PriceMoved) as trouble:
            alarm("standing", trouble.message, Level.WARNING)
            if lease.touched_at is None:
                await self._tear_down(lease, alarm)

    async def _look_at_box(self, lease: Lease, alarm: "_Raise") -> float | None:
        """What is complete on the box is here; how long it has been idle, None where unknown."""
        if lease.ready_at is None:
            return None
        try:
            standing = await self._tenancy.standing(lease.id)
            anew = await self._tenancy.rearmed(lease.id)
            if anew is not None:
                self._done(lease, f"its guard was gone, as after a reboot: {anew}")
            if lease.touched_at is not None and standing.live:
                for words in (await self._tenancy.pull(lease.id)).words:
                    self._done(lease, words)
            elif self._tenancy.has_news(lease):
                gathered = await self._tenancy.collect(lease.id)
                self._done(lease, f"collected {gathered.fetched_files} files")
                if gathered.not_stored:
                    alarm("store", gathered.not_stored, Level.WARNING)
        except BoxTrouble as trouble:
            # Blind is not dead: nothing is concluded, and nothing is done to the box.
            alarm(
                "unreachable",
                f"{trouble.message}; it may be running, {rate_words(lease)}",
                Level.WARNING,
            )
            return None
        except Refused as refusal:
            alarm("snapshot", f"{refusal.message}; {refusal.remedy}", Level.WARNING)
            return None
        return await self._idle_s(lease, alarm)

    async def _idle_s(self, lease: Lease, alarm: "_Raise") -> float | None:
        if lease.terms.idle_h is None:
            return None
        try:
            activity = await self._tenancy.activity(lease.id)
        except BoxTrouble:
            return None
        if activity.phase == "suspicious":
            alarm("idle", activity.words, Level.WARNING)
        return None if activity.phase == "unknown" else activity.idle_s

    # --- the end of a lease, in the dead-man order

    async def _end(self, lease: Lease, cause: Outrun, alarm: "_Raise") -> None:
        """It was tried to end the lease: proved and torn down, or else parked, or else paid for."""
        tenancy, now = self._tenancy, self._tenancy.clock.now()
        tried = attempts(tenancy.ledger.events(lease.id))
        if not is_due(tried, now):
            alarm("end", f"{cause.words}; {self._stands(lease)}", Level.URGENT)
            return
        tenancy.ledger.note(
            lease.id, Event.ENDING, {"term": cause.term, "words": cause.words}, at=now
        )
        self._tell(f"{lease.id}: {cause.words}: it is ended")
        unsaved = await self._saved(lease)
        refused = await self._tear_down(lease, alarm)
        if refused is None:
            return
        why = unsaved or refused
        with suppress(Refused, BoxTrouble, ProviderTrouble):
            await tenancy.park_overdue(lease.id)
            self._done(lease, f"parked: {cause.words}")
            lease = tenancy.ledger.lease(lease.id)
            await self._parked(lease, alarm)
            return
        lease = tenancy.ledger.lease(lease.id)
        if beyond(lease, (tried or [now])[0], tenancy.clock.now()) == "waive":
            try:
                await tenancy.honour(lease.id)
            except TenantError as trouble:
                why = trouble.message
            else:
                self._done(lease, f"destroyed, as its owner signed: {cause.words}")
                return
        alarm("end", f"{cause.words}; {why}; {self._stands(lease)}", Level.URGENT)

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

    async def _tear_down(self, lease: Lease, alarm: "_Raise") -> str | None:
        """Why the lease may not be ended; None where it has ended, or goes on ending by itself."""
        try:
            torn = await self._tenancy.verify_and_teardown(lease.id)
        except LeaseHeld:
            raise
        except ProviderTrouble as trouble:
            # Permitted, and asked again at each look; or a person's turn, who has been told how.
            alarm("teardown", f"{trouble.message}; {trouble.remedy}", Level.URGENT)
            return None
        except TenantError as refusal:
            return f"{refusal.message}; {refusal.remedy}"
        self._done(lease, f"ended, {torn.receipt.ground}, for {torn.receipt.cost_usd} USD")
        return None

    async def _go_on_ending(self, lease: Lease, alarm: "_Raise") -> None:
        """A teardown that was permitted and cut short is proved anew and goes on, ever more seldom."""
        words = self._tenancy.awaits_owner(lease.id)
        if words is not None:
            alarm("teardown", f"a person has to end its box: {words}", Level.URGENT)
            return
        now = self._tenancy.clock.now()
        tried = attempts(self._tenancy.ledger.events(lease.id))
        if not is_due(tried, now):
            alarm("teardown", f"its teardown is not through; {self._stands(lease)}", Level.URGENT)
            return
        self._tenancy.ledger.note(lease.id, Event.ENDING, {"term": "teardown"}, at=now)
        refused = await self._tear_down(lease, alarm)
        if refused is not None:
            alarm("teardown", f"{refused}; {self._stands(lease)}", Level.URGENT)

    async def _parked(self, lease: Lease, alarm: "_Raise") -> None:
        now = self._tenancy.clock.now()
        late = outrun(lease, now, look_s=self._every_s)
        words = f"it is parked, and bills {rate_words(lease)}"
        if late is None:
            alarm("parked", words, Level.NOTICE)
            return
        began = attempts(self._tenancy.ledger.events(lease.id)) or [lease.terms.deadline_at]
        if beyond(lease, began[0], now) == "waive":
            await self._tenancy.honour(lease.id)
            self._done(lease, "destroyed while parked, as its owner signed")
            return
        alarm(
            "parked",
            f"{late.words}; {words}; `gpu-tenant resume {lease.id}`, then collect and teardown",
            Level.WARNING,
        )

    def _stands(self, lease: Lease) -> str:
        rescue = lease.terms.rescue(lease.price_usd_h)
        spends = "" if rescue is None else f"; {rescue:.2f} USD may be spent to save what is on it"
        return f"its box bills on {rate_words(lease)}{spends}: `gpu-tenant teardown {lease.id}` says why"

    async def _recover(self, lease: Lease, alarm: "_Raise") -> None:
        """The work of a lost lease goes on elsewhere, where its terms say so."""
        try:
            card = await self._tenancy.recover(lease.id)
        except LeaseHeld:
            raise
        except TenantError as trouble:
            alarm("recovery", f"{trouble.message}; {trouble.remedy}", Level.URGENT)
        else:
            if card.alarm:
                alarm("recovery", card.alarm, Level.WARNING)
            else:
                self._done(lease, f"its work goes on under {card.lease}")

    # --- what a person hears

    def _done(self, lease: Lease, words: str) -> None:
        self._did.append(f"{lease.id}: {words}")
        self._tell(f"{lease.id}: {words}")

    def _account(self, alarms: list[str]) -> None:
        """What is about no lease: providers that do not answer, boxes and twins that were taken up."""
        now, open_now = (
            self._tenancy.clock.now(),
            {f"account:{a.partition(': ')[0]}" for a in alarms},
        )
        for words in alarms:
            self._alarm(None, f"account:{words.partition(': ')[0]}", words, Level.WARNING)
        for known in self._tenancy.ledger.open_alarms():
            if known.key.startswith("account:") and known.key not in open_now:
                self._tenancy.ledger.end_alarm(known.key, lease_id=None, at=now)

    def _alarm(self, lease_id: LeaseId | None, key: str, words: str, level: Level) -> None:
        self._tenancy.ledger.raise_alarm(
            key, words, level=level, lease_id=lease_id, at=self._tenancy.clock.now()
        )

    def _end_alarm(self, lease_id: LeaseId | None, key: str) -> None:
        self._tenancy.ledger.end_alarm(key, lease_id=lease_id, at=self._tenancy.clock.now())

    def _end_alarms(self, lease_id: LeaseId, *, but: Collection[str]) -> None:
        """What this look did not raise again is over."""
        for known in self._tenancy.ledger.open_alarms():
            if known.lease_id == lease_id and known.key not in but:
                self._end_alarm(lease_id, known.key)


_Raise = Callable[[str, str, Level], None]


# --- who watches


class Watched(Record):
    """When a watchdog of this user's last looked."""

    at: datetime
    pid: int
    every_s: float


def _put_heartbeat(tenancy: Tenancy, now: datetime, every_s: float) -> None:
    path = tenancy.home.watchdog
    temporary = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):  # a full disk must not end the watch
        temporary.write_text(
            json.dumps({"at": now.isoformat(), "pid": os.getpid(), "every_s": every_s}),
            encoding="utf-8",
        )
        temporary.replace(path)
