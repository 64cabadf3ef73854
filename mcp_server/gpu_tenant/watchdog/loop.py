"""The watchdog: every lease is looked at on a schedule, held to its terms, and reported about."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Literal

from gpu_tenant.concurrency import AT_ONCE
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.errors import LeaseHeld, TenantError
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.domain.record import Record
from gpu_tenant.leases import watch_actions
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.recover import may_recover
from gpu_tenant.leases.term_checks import outrun
from gpu_tenant.leases.watch_actions import look_at
from gpu_tenant.leases.watchdog_heartbeat import Watcher, others_look, put_heartbeat
from gpu_tenant.notifications.notify import tell_due
from gpu_tenant.service import Tenancy
from gpu_tenant.sweeps.commands import tend_all
from gpu_tenant.watchdog.lease_check import Attendant
from gpu_tenant.watchdog.work_news import tell_what_ended

EVERY_S = 60
PEEK_S = 10
"""How often a job whose end is waited for is asked after, between two looks."""
_TURN_S = 30
"""How long a lease keeps its turn.

A look takes seconds. Bringing work home and ending a lease may take hours, and must hold up nobody.
"""
ANSWERS_WITHIN_S = 20
"""How long the leases at a provider wait for its list. After that they are looked at without it."""
_LIST_WITHIN_S, _ASKED_WITHIN_S = 120, 300
"""How long a provider's list may take, and how long everything may take that it is asked at one look."""
_THREADS, _LEAVE_WITHIN_S = 128, 10
_ACCOUNT = "account:"
"""How the key of an alarm about no lease begins."""


class WatchReport(Record):
    """One look at everything."""

    leases: int
    did: tuple[str, ...]
    alarms: tuple[str, ...]


class Watchdog:
    """Looks at every lease as often as it is asked to. Any number of watchdogs may run at once.

    It needs nothing from the process that rented a box. It knows only what is in the ledger, and acts only
    through the verbs of the tenancy, under the same law.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        *,
        every_s: float = EVERY_S,
        answers_within_s: float = ANSWERS_WITHIN_S,
        tell: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] | None = None,
        by: Watcher = "watchdog",
    ) -> None:
        """`tell` hears what is done.

        A provider that does not answer within `answers_within_s` is not waited for. `sleep` passes the time between
        looks. If it is None, that goes by the tenancy's clock, on which a rehearsal's time jumps.

        """
        self._tenancy = tenancy
        self._every_s = every_s
        self._tell = tell
        self._under_way: dict[LeaseId, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._did: list[str] = []
        self._sweeps: asyncio.Task[None] | None = None
        self._answers_within_s = answers_within_s
        self._asking: dict[str, asyncio.Task[dict[str, Card]]] = {}
        self._told_by: dict[str, set[str]] = {}
        self._unasked: dict[str, datetime] = {}
        self._sleep = sleep or tenancy.clock.sleep
        self._by: Watcher = by
        self._cards: dict[LeaseId, Card | None] = {}
        self._busy: set[LeaseId] = set()
        self._again: dict[LeaseId, datetime] = {}
        self._peeks: dict[LeaseId, asyncio.Task[None]] = {}

    async def forever(self) -> None:
        """Looks follow each other until this is cancelled. A failure in one of them does not stop them."""
        # Reading from a disk that hangs blocks a thread for as long, and a small pool would soon be
        # used up.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "watch"))
        try:
            while True:
                try:
                    if not self._stands_back():
                        await self._look(wait="begun")
                except Exception as error:  # noqa: BLE001 - the next look may fare better
                    self._tell(f"a look failed: {error!r}")
                await self._until_next()
        finally:
            await self._left()

    def _stands_back(self) -> bool:
        """Whether another process looks after the same leases; a watchdog of its own always looks itself."""
        if self._by == "watchdog":
            return False
        profiles = self._tenancy.context.profiles
        if all(
            lease.price_usd_h is None and profiles[lease.provider].kind == "own"
            for lease in self._tenancy.ledger.leases("live")
        ):
            return True  # nobody bills for these, and their guards hold their deadlines
        return others_look(
            self._tenancy.home.watchdog, self._tenancy.clock.now(), every_s=self._every_s
        )

    async def _left(self) -> None:
        """Nothing of it is under way any more, or it was given up: the ledger is closed next."""
        under_way = {
            *self._under_way.values(),
            *self._asking.values(),
            *self._over_sweeps(),
            *self._peeks.values(),
        }
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way, timeout=_LEAVE_WITHIN_S)

    async def _until_next(self) -> None:
        """The time to the next look has passed; leases that were due before that were looked at."""
        clock = self._tenancy.clock
        until = clock.now() + timedelta(seconds=self._every_s)
        left_s = self._every_s
        while left_s > 0:
            due = [*self._again.values()]
            to_due_s = (min(due) - clock.now()).total_seconds() if due else PEEK_S
            wait_s = min(left_s, PEEK_S, max(1.0, to_due_s)) if self._busy or due else left_s
            await self._pass(wait_s)
            # By our own count where the clock stands still or was set back.
            left_s = min(left_s - wait_s, (until - clock.now()).total_seconds())
            for lease_id in [x for x, at in self._again.items() if at <= clock.now()]:
                del self._again[lease_id]
                self._begin(lease_id)
            for lease_id in self._busy - set(self._again):
                peek = self._peeks.get(lease_id)
                if peek is None or peek.done():
                    self._peeks[lease_id] = asyncio.create_task(self._peek(lease_id))

    async def _pass(self, seconds: float) -> None:
        """So much time has passed. A rehearsal's clock jumps, but not while a lease is being worked on."""
        clock = self._tenancy.clock
        if not clock.shared_with_boxes:
            until = clock.now() + timedelta(seconds=seconds)
            at_work = [
                t for t in (*self._under_way.values(), *self._peeks.values()) if not t.done()
            ]
            if at_work:
                await asyncio.wait(at_work, timeout=seconds)
            seconds = (until - clock.now()).total_seconds()
        if seconds > 0:
            await self._sleep(seconds)

    async def _peek(self, lease_id: LeaseId) -> None:
        """A lease whose last job has just ended, or whose box is about to be taken, is looked at now."""
        try:
            standing = await watch_actions.standing_of(self._tenancy.context, lease_id)
        except Exception:  # noqa: BLE001 - the next look tells what is wrong
            return
        runs = any(job.state in ("starting", "running") for job in standing.jobs)
        if (not runs or standing.notice is not None) and lease_id in self._busy:
            self._busy.discard(lease_id)
            self._begin(lease_id)

    def _begin(self, lease_id: LeaseId) -> None:
        """A look at that lease is under way."""
        known = self._under_way.get(lease_id)
        if known is None or known.done():  # a lease that takes long holds nobody else up
            self._under_way[lease_id] = asyncio.create_task(
                self._in_turn(lease_id, self._cards.get(lease_id))
            )

    async def once(self) -> WatchReport:
        """Every lease was looked at, and what was due has been done or tried."""
        return await self._look(wait="done")

    async def _look(self, *, wait: Literal["begun", "done"]) -> WatchReport:
        self._did = []
        ledger = self._tenancy.ledger
        # What the look before raised late is told before it may be over.
        await self._tell_due()
        leases = ledger.leases("live")
        leases += [
            lease for lease in ledger.leases("lost") if may_recover(self._tenancy.context, lease)
        ]
        at: dict[str, list[LeaseId]] = {
            provider: [] for provider in self._tenancy.context.connected
        }
        for lease in leases:
            at.setdefault(lease.provider, []).append(lease.id)
        self._forget_all_but({lease.id for lease in leases})
        await asyncio.gather(*(self._look_at(provider, its) for provider, its in at.items()))
        self._end_what_nobody_tells()
        if not self._over_sweeps():
            self._sweeps = asyncio.create_task(self._tend_sweeps())
        if wait == "done":
            await asyncio.gather(*self._under_way.values(), *self._over_sweeps())
            await asyncio.gather(*self._asking.values())
        await self._tell_due()
        put_heartbeat(
            self._tenancy.home.watchdog,
            at=self._tenancy.clock.now(),
            every_s=self._every_s,
            unasked=self._unasked,
            by=self._by,
        )
        return WatchReport(
            leases=len(self._under_way),
            did=tuple(self._did),
            alarms=tuple(
                f"{alarm.lease_id or 'the account'}: {alarm.words}"
                for alarm in self._tenancy.ledger.open_alarms()
            ),
        )

    async def _tell_due(self) -> None:
        await tell_due(
            self._tenancy.home,
            self._tenancy.ledger,
            environ=self._tenancy.context.environ,
        )

    def _forget_all_but(self, leases: Collection[LeaseId]) -> None:
        """Leases that are over are no longer looked at, and their alarms end too."""
        for lease_id in [known for known in self._under_way if known not in leases]:
            if self._under_way[lease_id].done():
                del self._under_way[lease_id]
        self._busy &= set(leases)
        self._again = {known: at for known, at in self._again.items() if known in leases}
        for told in {alarm.lease_id for alarm in self._tenancy.ledger.open_alarms()}:
            if told is not None and told not in leases and told not in self._under_way:
                self._end_alarms(told, but=())

    async def _look_at(self, provider: str, leases: Sequence[LeaseId]) -> None:
        """That provider was asked, and its leases are being looked at, even if it does not answer.

        A request that is still open when the next look comes goes on, and is not made anew.
        """
        asking = self._asking.get(provider)
        if asking is None or asking.done():
            asking = self._asking[provider] = asyncio.create_task(self._ask(provider))
        await asyncio.wait([asking], timeout=self._answers_within_s)
        cards = asking.result() if asking.done() else {}
        if not asking.done():
            now = self._tenancy.clock.now()
            since = self._unasked.setdefault(provider, now)
            self._tenancy.ledger.raise_alarm(
                f"{_ACCOUNT}{provider}",
                f"{provider}: it does not answer, since {since:%Y-%m-%d %H:%M} UTC or before; its leases are "
                "held to their terms without its list",
                level=Level.WARNING,
                lease_id=None,
                at=now,
            )
        for lease_id in leases:
            self._cards[lease_id] = cards.get(lease_id)
            self._begin(lease_id)

    def _over_sweeps(self) -> tuple[asyncio.Task[None], ...]:
        """The look at sweeps that is under way, if there is one."""
        return (self._sweeps,) if self._sweeps and not self._sweeps.done() else ()

    async def _tend_sweeps(self) -> None:
        """Every sweep was moved on. A failure there does not stop the watch."""
        try:
            await tend_all(self._tenancy.context)
            tell_what_ended(self._tenancy)
        except Exception as error:  # noqa: BLE001 - the next look may fare better
            self._tell(f"sweeps could not be tended: {error!r}")

    async def _in_turn(self, lease_id: LeaseId, card: Card | None) -> None:
        """As `_attend`, but only so many at a time. One that takes long gives up its turn and goes on."""
        async with self._turns:
            attending = asyncio.create_task(self._attend(lease_id, card))
            try:
                await asyncio.wait([attending], timeout=_TURN_S)
            except asyncio.CancelledError:
                attending.cancel()
                raise
        await attending

    async def _attend(self, lease_id: LeaseId, card: Card | None) -> None:
        """One lease was looked at. A failure is reported, and does not stop the watch over the others."""

        def done(words: str) -> None:
            self._did.append(f"{lease_id}: {words}")
            self._tell(f"{lease_id}: {words}")

        attendant = Attendant(self._tenancy, lease_id, card, look_s=self._every_s, done=done)
        try:
            await attendant.attend()
            self._remember(lease_id, attendant)
        except LeaseHeld:
            # Somebody is acting on it right now. The next look sees the result.
            self._tell_what_waits(attendant, lease_id)
            return
        except TenantError as trouble:
            attendant.told.alarm("broke", f"{trouble.message}; {trouble.remedy}", Level.WARNING)
        except Exception as error:  # noqa: BLE001 - nor does a surprise
            attendant.told.alarm("broke", f"looking at it failed: {error!r}", Level.URGENT)
        raised = attendant.told.raised
        told_last = {
            "recovery",
            "broke",
            "ended",
            *(key for key in raised if key.startswith("job ")),
        }
        if not self._tenancy.ledger.lease(lease_id).state.live:
            raised = raised & told_last  # all other alarms of a box that is no more are over
        self._end_alarms(lease_id, but=raised)

    def _remember(self, lease_id: LeaseId, attendant: Attendant) -> None:
        """When the lease is looked at again before the next look at everything."""
        self._busy.discard(lease_id)
        self._again.pop(lease_id, None)
        if attendant.is_busy:
            self._busy.add(lease_id)
        elif attendant.again_at is not None:
            self._again[lease_id] = attendant.again_at

    def _tell_what_waits(self, attendant: Attendant, lease_id: LeaseId) -> None:
        """A lease past its terms that another process holds is reported, because nobody ends it meanwhile."""
        lease = self._tenancy.ledger.lease(lease_id)
        late = outrun(lease, self._tenancy.clock.now(), look_s=self._every_s)
        if lease.state.live and late is not None:
            held = self._tenancy.ledger.held(lease_id)
            by = held.words if held else "another process held it just now"
            attendant.told.alarm(
                "held",
                f"{late.words}, and {by}: it bills {rate_words(lease)} until that is over",
                Level.WARNING,
            )

    async def _ask(self, provider: str) -> dict[str, Card]:
        """The card of each of its live leases, by what the provider shows now. Empty if asking failed."""
        ledger, now, key = self._tenancy.ledger, self._tenancy.clock.now, f"{_ACCOUNT}{provider}"
        try:
            async with asyncio.timeout(_ASKED_WITHIN_S):
                found = await look_at(self._tenancy.context, provider, patience_s=_LIST_WITHIN_S)
        except Exception as error:  # noqa: BLE001 - every lease is looked at all the same
            told = isinstance(error, TenantError)
            ledger.raise_alarm(
                key,
                f"{provider}: {error if told else f'asking it failed: {error!r}'}",
                level=Level.WARNING if told else Level.URGENT,
                lease_id=None,
                at=now(),
            )
            self._unasked.setdefault(provider, now())
            return {}
        cards = {card.lease: card for card in found.leases}
        about = {
            f"{_ACCOUNT}{words.partition(': ')[0]}": words
            for words in found.alarms
            if words.partition(": ")[0] not in cards
        }
        for about_it, words in about.items():
            ledger.raise_alarm(about_it, words, level=Level.WARNING, lease_id=None, at=now())
        for over in (self._told_by.get(provider, set()) | {key}) - set(about):
            self._end_alarm(None, over)
        self._told_by[provider] = set(about)
        if about.get(key, "").startswith(f"{provider}: does not answer"):
            self._unasked.setdefault(provider, now())
        else:
            self._unasked.pop(provider, None)
        return cards

    def _end_what_nobody_tells(self) -> None:
        """An earlier process's alarms about accounts end, once every provider has answered."""
        if not set(self._told_by) >= self._tenancy.context.connected or self._unasked:
            return
        told = {key for keys in self._told_by.values() for key in keys}
        for known in self._tenancy.ledger.open_alarms():
            about_account = known.lease_id is None and known.key.startswith("account")
            if about_account and known.key not in told:
                self._end_alarm(None, known.key)

    def _end_alarms(self, lease_id: LeaseId, *, but: Collection[str]) -> None:
        """Alarms that this look did not raise again are over."""
        for known in self._tenancy.ledger.open_alarms_of(lease_id):
            if known.key not in but:
                self._end_alarm(lease_id, known.key)

    def _end_alarm(self, lease_id: LeaseId | None, key: str) -> None:
        self._tenancy.ledger.end_alarm(key, lease_id=lease_id, at=self._tenancy.clock.now())
