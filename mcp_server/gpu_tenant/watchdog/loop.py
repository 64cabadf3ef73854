"""The watchdog: looks at every lease on a schedule, enforces its terms, and reports about it.

A look at a lease is one check of it: ask its box, fetch its work, and end the lease if its terms say so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from gpu_tenant.box.guard_record import last_armed
from gpu_tenant.concurrency import AT_ONCE
from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import END_NEWS, Level
from gpu_tenant.domain.errors import LeaseHeld, ProviderSilent, TenantError
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.domain.record import Record
from gpu_tenant.leases import watch_actions
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.recover import may_recover
from gpu_tenant.leases.term_checks import outrun
from gpu_tenant.leases.wait import look_for_all
from gpu_tenant.leases.watch_actions import look_at
from gpu_tenant.leases.watchdog_heartbeat import Watcher, others_look, put_heartbeat
from gpu_tenant.notifications.notify import tell_due
from gpu_tenant.service import Tenancy
from gpu_tenant.sweeps.commands import tend_all
from gpu_tenant.watchdog.end_of_lease import SILENCE_PASSES
from gpu_tenant.watchdog.lease_check import Attendant, awaits_first_snapshot
from gpu_tenant.watchdog.work_news import tell_what_ended

EVERY_S = 60
PEEK_S = 10
"""Between two looks, the watchdog asks every `PEEK_S` seconds about each job whose end it waits for."""
_COPY_REST = 2
"""After copying from an interruptible box between two looks, nothing is copied for so many times as long.

Most of a copy is waiting until it is sure that nobody writes to a file any more: some five seconds.
"""
_TURN_S = 30
"""The number of looks that run at once is limited. A look that takes longer than this many seconds no longer counts.

Most looks take seconds. Bringing work home or ending a lease may take hours, and must not delay other leases.
"""
ANSWERS_WITHIN_S = 20
"""The looks at a provider's leases wait at most this many seconds for the provider's list of boxes.

After that, the leases are looked at without the list.
"""
_LIST_WITHIN_S, _ASKED_WITHIN_S = 120, 300
"""Limits in seconds: the first for a provider's list, the second for all requests to one provider in one look."""
_THREADS, _LEAVE_WITHIN_S = 128, 10
_WORDS = frozenset(
    each.kind
    for each in (timeline.Claimed, timeline.Accepted, timeline.NewTerms, timeline.AwaitsWork)
)
"""Events after which it may be possible to end a lease. The watchdog itself never writes one of them."""
_ACCOUNT = "account:"
"""The key of an alarm about a provider account begins with this. Such an alarm belongs to no lease."""


class WatchReport(Record):
    """What one look at all leases did and found."""

    leases: int
    did: tuple[str, ...]
    alarms: tuple[str, ...]


class Watchdog:
    """Looks at every lease at a given interval. Any number of watchdogs may run at once.

    A watchdog needs nothing from the process that rented a box. It knows only what is in the ledger. It acts only
    through the operations of `Tenancy`, under the same safety rules.
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
        alarms: Literal["told", "quiet"] = "quiet",
    ) -> None:
        """`tell` is called with each thing that was done, in words. With `alarms="told"`, so is each new alarm.

        A look does not wait longer than `answers_within_s` for a provider's answer. `sleep` waits between two looks. If
        it is None, the tenancy's clock is used. Even the clock of a rehearsal does not jump over that time.
        """
        self._tenancy = tenancy
        self._every_s = every_s
        self._tell = tell
        self._under_way: dict[LeaseId, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._did: list[str] = []
        self._sweeps: asyncio.Task[None] | None = None
        self._wishes: asyncio.Task[None] | None = None
        self._answers_within_s = answers_within_s
        self._asking: dict[str, asyncio.Task[dict[str, Card]]] = {}
        self._told_by: dict[str, set[str]] = {}
        self._silent_since: dict[str, datetime] = {}
        self._sleep = sleep or tenancy.clock.follow
        self._by: Watcher = by
        self._tells_alarms = alarms == "told"
        self._alarms_told: set[int] = set()
        self._cards: dict[LeaseId, Card | None] = {}
        self._busy: set[LeaseId] = set()
        self._again: dict[LeaseId, datetime] = {}
        self._held_waits_s: dict[LeaseId, float] = {}
        self._deadlines: dict[LeaseId, datetime] = {}
        self._peeks: dict[LeaseId, asyncio.Task[None]] = {}
        self._copies_from: dict[LeaseId, float] = {}
        """When a box may be copied from again between two looks, by the event loop's clock."""
        self._heard: int | None = None
        self._spoken_of: set[LeaseId] = set()

    async def forever(self) -> None:
        """Look at all leases again and again until cancelled. A failure in one look does not stop the next."""
        # Reading from a disk that hangs blocks a thread for as long as the disk hangs. A small pool
        # of threads would soon be used up.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "watch"))
        self._alarms_told = {alarm.seq for alarm in self._tenancy.ledger.open_alarms()}
        try:
            while True:
                try:
                    if self._stands_back():
                        self._heard = None
                    else:
                        self._heard = self._tenancy.ledger.newest_event()
                        await self._look(wait="begun")
                except Exception as error:  # noqa: BLE001 - the next look may succeed
                    self._tell(f"a look failed: {error!r}")
                await self._until_next()
        finally:
            await self._leave()

    def _stands_back(self) -> bool:
        """Whether this process need not look, because no box costs anything, or because another process looks.

        The watchdog command always looks.
        """
        if self._by == "watchdog":
            return False
        profiles = self._tenancy.context.profiles
        if not self._tenancy.ledger.standing_wishes() and all(
            lease.price_usd_h is None and profiles[lease.provider].kind == "own"
            for lease in self._tenancy.ledger.leases("live")
        ):
            return True  # Nobody bills for these boxes, and their guards enforce their deadlines.
        return others_look(
            self._tenancy.home.watchdog, self._tenancy.clock.now(), every_s=self._every_s
        )

    async def _leave(self) -> None:
        """Cancel the tasks of this watchdog, and wait a short time for their end. The caller closes the ledger next."""
        under_way = {
            *self._under_way.values(),
            *self._asking.values(),
            *self._besides(),
            *self._peeks.values(),
        }
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way, timeout=_LEAVE_WITHIN_S)

    async def _until_next(self) -> None:
        """Wait until the next look at all leases is due. Meanwhile, look at each lease that is due earlier."""
        clock = self._tenancy.clock
        until = clock.now() + timedelta(seconds=self._every_s)
        left_s = self._every_s
        while left_s > 0:
            # A look that is still running may set the time of its lease's next look meanwhile.
            dues = [*self._again.values(), *self._deadlines.values()]
            to_due_s = min(((at - clock.now()).total_seconds() for at in dues), default=PEEK_S)
            wait_s = min(left_s, PEEK_S, max(1.0, to_due_s))
            await self._pass(wait_s)
            # Also count the waits ourselves, in case the clock stands still or was set back.
            left_s = min(left_s - wait_s, (until - clock.now()).total_seconds())
            self._hear()
            now = clock.now()
            due = {
                lease_id
                for lease_id, at in (*self._again.items(), *self._deadlines.items())
                if at <= now
            }
            for lease_id in due | self._spoken_of:
                if self._begin(lease_id):
                    self._again.pop(lease_id, None)
                    if self._deadlines.get(lease_id, now) <= now:
                        self._deadlines.pop(lease_id, None)
                    self._spoken_of.discard(lease_id)
            self._show_up()
            for lease_id in self._busy - set(self._again):
                self._begin_peek(lease_id)

    def _show_up(self) -> None:
        """While a look at a lease is running, show the guard on its box that somebody watches the box.

        This is needed only if the guard would stop the box when its work is done.
        """
        ledger = self._tenancy.ledger
        for lease_id in [x for x in self._under_way if self._is_under_way(x)]:
            armed = last_armed(ledger.lease(lease_id), ledger)
            if armed is not None and armed.when_done:
                self._begin_peek(lease_id)

    def _begin_peek(self, lease_id: LeaseId) -> None:
        peek = self._peeks.get(lease_id)
        if peek is None or peek.done():
            self._peeks[lease_id] = asyncio.create_task(self._peek(lease_id))

    def _hear(self) -> None:
        """Read what others have written to the ledger since the last time.

        From then on, wait for the end of each new job. Look soon at each lease that may be ended now because of what
        others wrote. No box is asked here.
        """
        if self._heard is None:
            return
        since, self._heard = self._heard, self._tenancy.ledger.newest_event()
        if self._heard == since:
            return
        for lease_id, kinds in self._tenancy.ledger.kinds_since(since).items():
            lease = self._tenancy.ledger.lease(lease_id)
            is_new = lease.state.live and timeline.Launched.kind in kinds
            if is_new and awaits_first_snapshot(self._tenancy.ledger, lease):
                self._spoken_of.add(lease_id)
                continue
            if not lease.state.live or lease.terms.when_done == "keep":
                continue
            if kinds & _WORDS or (timeline.Launched.kind in kinds and self._is_under_way(lease_id)):
                self._spoken_of.add(lease_id)  # a look that is under way may not have seen it
            elif timeline.Launched.kind in kinds:
                self._busy.add(lease_id)

    async def _pass(self, seconds: float) -> None:
        """Wait that many seconds. The clock of a rehearsal jumps over them, but not while somebody works on a lease."""
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
        """Begin a look at the lease now if its last job has just ended, or its box is about to be taken."""
        try:
            standing = await watch_actions.standing_of(self._tenancy.context, lease_id)
        except Exception:  # noqa: BLE001 - the next look tells what is wrong
            return
        runs = any(job.state in ("starting", "running") for job in standing.jobs)
        if (not runs or standing.notice is not None) and lease_id in self._busy:
            self._busy.discard(lease_id)
            self._begin(lease_id)
        elif runs:
            await self._take_copies(lease_id)

    async def _take_copies(self, lease_id: LeaseId) -> None:
        """Copy what is complete on a box that its platform may take at any moment. Each copy may be the last one."""
        lease, loop = self._tenancy.ledger.lease(lease_id), asyncio.get_running_loop()
        is_interruptible = lease.quote is not None and lease.quote.offer.interruptible
        is_early = loop.time() < self._copies_from.get(lease_id, 0.0)
        if not is_interruptible or is_early or self._is_under_way(lease_id):
            return
        began = loop.time()
        with suppress(TenantError, OSError):  # the next look tells what is wrong
            await watch_actions.pull(self._tenancy.context, lease_id)
        self._copies_from[lease_id] = loop.time() + _COPY_REST * (loop.time() - began)

    def _is_under_way(self, lease_id: LeaseId) -> bool:
        known = self._under_way.get(lease_id)
        return known is not None and not known.done()

    def _begin(self, lease_id: LeaseId) -> bool:
        """Begin a look at the lease. Return False if an earlier look at it is still running."""
        if self._is_under_way(lease_id):
            return False
        self._under_way[lease_id] = asyncio.create_task(
            self._in_turn(lease_id, self._cards.get(lease_id))
        )
        return True

    async def once(self) -> WatchReport:
        """Look at every lease, and do or try what is due."""
        return await self._look(wait="done")

    async def _look(self, *, wait: Literal["begun", "done"]) -> WatchReport:
        self._did = []
        ledger = self._tenancy.ledger
        # After the last look had sent its alarms, it may have raised more. Send those before this look can end them.
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
        if self._sweeps is None or self._sweeps.done():
            self._sweeps = asyncio.create_task(self._tend_sweeps())
        if self._wishes is None or self._wishes.done():
            self._wishes = asyncio.create_task(self._look_for_wishes())
        if wait == "done":
            await asyncio.gather(*self._under_way.values(), *self._besides())
            await asyncio.gather(*self._asking.values())
        self._tell_alarms()
        await self._tell_due()
        put_heartbeat(
            self._tenancy.home.watchdog,
            at=self._tenancy.clock.now(),
            every_s=self._every_s,
            unasked=self._silent_since,
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

    def _tell_alarms(self) -> None:
        """Tell each new alarm, unless the same words were told already as something that was done."""
        if not self._tells_alarms:
            return
        for alarm in self._tenancy.ledger.open_alarms():
            about = alarm.lease_id or "the account"
            if alarm.seq not in self._alarms_told and f"{about}: {alarm.words}" not in self._did:
                self._tell(f"{about}: {alarm.level.name.lower()}: {alarm.words}")
            self._alarms_told.add(alarm.seq)

    async def _tell_due(self) -> None:
        await tell_due(
            self._tenancy.home,
            self._tenancy.ledger,
            environ=self._tenancy.context.environ,
        )

    def _forget_all_but(self, leases: Collection[LeaseId]) -> None:
        """Stop looking at leases that are not in `leases`, and end their alarms."""
        for lease_id in [known for known in self._under_way if known not in leases]:
            if self._under_way[lease_id].done():
                del self._under_way[lease_id]
        self._busy &= set(leases)
        self._spoken_of &= set(leases)
        self._copies_from = {x: at for x, at in self._copies_from.items() if x in leases}
        self._held_waits_s = {x: s for x, s in self._held_waits_s.items() if x in leases}
        self._again = {known: at for known, at in self._again.items() if known in leases}
        self._deadlines = {known: at for known, at in self._deadlines.items() if known in leases}
        for told in {alarm.lease_id for alarm in self._tenancy.ledger.open_alarms()}:
            if told is not None and told not in leases and told not in self._under_way:
                self._end_alarms(told, but=self._unheard_end(told))

    def _unheard_end(self, lease_id: LeaseId) -> Collection[str]:
        """Return the keys of the lease's alarms that must stay open after its end.

        They say that a box was destroyed without a proved copy of its work. Each stays open until it has reached
        somebody, but at most for a day.
        """
        now = self._tenancy.clock.now()
        return {
            alarm.key
            for alarm in self._tenancy.ledger.open_alarms_of(lease_id)
            if alarm.key == END_NEWS
            and alarm.level is Level.URGENT
            and not alarm.told
            and now - alarm.since < timedelta(days=1)
        }

    async def _look_at(self, provider: str, leases: Sequence[LeaseId]) -> None:
        """Ask that provider for its list, and begin a look at each of its leases, even if the provider does not answer.

        A request that is still open from an earlier look is waited for again, and no second request is made.
        """
        asking = self._asking.get(provider)
        if asking is None or asking.done():
            asking = self._asking[provider] = asyncio.create_task(self._ask(provider))
        await asyncio.wait([asking], timeout=self._answers_within_s)
        cards = asking.result() if asking.done() else {}
        if not asking.done():
            now = self._tenancy.clock.now()
            since = self._silent_since.setdefault(provider, now)
            self._tenancy.ledger.raise_alarm(
                f"{_ACCOUNT}{provider}",
                f"{provider}: it has not answered since {since:%Y-%m-%d %H:%M} UTC or longer; until it does, "
                "the terms of its leases are enforced without its list of boxes",
                level=Level.WARNING,
                lease_id=None,
                at=now,
                patience=SILENCE_PASSES,
            )
        for lease_id in leases:
            self._cards[lease_id] = cards.get(lease_id)
            self._begin(lease_id)

    def _besides(self) -> list[asyncio.Task[None]]:
        """Return the running tasks that belong to no single lease: those for the sweeps and for the wishes."""
        return [task for task in (self._sweeps, self._wishes) if task and not task.done()]

    async def _look_for_wishes(self) -> None:
        """Take the next step for every standing wish. A failure does not stop the watch."""
        try:
            for words in await look_for_all(self._tenancy.context):
                self._did.append(words)
                self._tell(words)
        except Exception as error:  # noqa: BLE001 - the next look may fare better
            self._tell(f"the market could not be searched for the open wishes: {error!r}")

    async def _tend_sweeps(self) -> None:
        """Move every sweep on. A failure here does not stop the watch."""
        try:
            await tend_all(self._tenancy.context)
            tell_what_ended(self._tenancy)
        except Exception as error:  # noqa: BLE001 - the next look may succeed
            self._tell(f"the sweeps could not be continued: {error!r}")

    async def _in_turn(self, lease_id: LeaseId, card: Card | None) -> None:
        """Call `_attend`, for a limited number of leases at once.

        A look that takes long no longer counts toward this number, and continues.
        """
        async with self._turns:
            attending = asyncio.create_task(self._attend(lease_id, card))
            try:
                await asyncio.wait([attending], timeout=_TURN_S)
            except asyncio.CancelledError:
                attending.cancel()
                # The caller closes the ledger next, and the cancelled look may still write to it.
                await asyncio.wait([attending])
                raise
        await attending

    async def _attend(self, lease_id: LeaseId, card: Card | None) -> None:
        """Look at one lease. A failure is reported, and does not stop the watch over the other leases."""

        def note_act(words: str) -> None:
            self._did.append(f"{lease_id}: {words}")
            self._tell(f"{lease_id}: {words}")

        attendant = Attendant(
            self._tenancy,
            lease_id,
            card,
            look_s=self._every_s,
            done=note_act,
            provider="silent"
            if self._tenancy.ledger.lease(lease_id).provider in self._silent_since
            else "answers",
        )
        try:
            await attendant.attend()
            self._remember(lease_id, attendant)
        except LeaseHeld:
            # Another process is acting on the lease right now. After that, it may be possible to end the lease, so look
            # again soon. If the other process takes long, look less and less often.
            self._tell_what_waits(attendant, lease_id)
            wait_s = self._held_waits_s.get(lease_id, PEEK_S)
            self._held_waits_s[lease_id] = min(2 * wait_s, self._every_s)
            self._again[lease_id] = self._tenancy.clock.now() + timedelta(seconds=wait_s)
            return
        except TenantError as trouble:
            attendant.told.alarm("broke", f"{trouble.message}; {trouble.remedy}", Level.WARNING)
        except Exception as error:  # noqa: BLE001 - an unforeseen failure must not stop the watch either
            attendant.told.alarm("broke", f"looking at the lease failed: {error!r}", Level.URGENT)
        raised = attendant.told.raised
        told_last = {
            "recovery",
            "broke",
            END_NEWS,
            *(key for key in raised if key.startswith("job ")),
        }
        if not self._tenancy.ledger.lease(lease_id).state.live:
            raised = raised & told_last  # The box is gone, so all its other alarms are over.
        self._end_alarms(lease_id, but=raised)
        self._tell_alarms()

    def _remember(self, lease_id: LeaseId, attendant: Attendant) -> None:
        """Remember when to look at this lease again, if that is before the next look at all leases."""
        self._busy.discard(lease_id)
        self._again.pop(lease_id, None)
        self._held_waits_s.pop(lease_id, None)
        # At the deadline, the guard on the box waits only a short time for the watchdog. So look exactly then.
        lease = self._tenancy.ledger.lease(lease_id)
        if lease.state.live and lease.terms.deadline_at > self._tenancy.clock.now():
            self._deadlines[lease_id] = lease.terms.deadline_at
        if attendant.is_busy:
            self._busy.add(lease_id)
        elif attendant.again_at is not None:
            self._again[lease_id] = attendant.again_at

    def _tell_what_waits(self, attendant: Attendant, lease_id: LeaseId) -> None:
        """Raise an alarm if a lease is past its terms, but cannot be ended because another process holds it."""
        lease = self._tenancy.ledger.lease(lease_id)
        late = outrun(lease, self._tenancy.clock.now(), look_s=self._every_s)
        if lease.state.live and late is not None:
            held = self._tenancy.ledger.holder_of(lease_id)
            by = held.words if held else "another process was working on the lease just now"
            attendant.told.alarm(
                "held",
                f"{late.words}, and {by}: its box bills {rate_words(lease)} until that work is over",
                Level.WARNING,
            )

    async def _ask(self, provider: str) -> dict[str, Card]:
        """Ask the provider what it lists now. Returns a card for each of its live leases; empty if asking failed."""
        ledger, now, key = self._tenancy.ledger, self._tenancy.clock.now, f"{_ACCOUNT}{provider}"
        try:
            async with asyncio.timeout(_ASKED_WITHIN_S):
                found = await look_at(self._tenancy.context, provider, patience_s=_LIST_WITHIN_S)
        except Exception as error:  # noqa: BLE001 - the leases are looked at whether this works or not
            told = isinstance(error, TenantError)
            ledger.raise_alarm(
                key,
                f"{provider}: {error if told else f'asking it failed: {error!r}'}",
                level=Level.WARNING if told else Level.URGENT,
                lease_id=None,
                at=now(),
                patience=SILENCE_PASSES if isinstance(error, ProviderSilent) else timedelta(0),
            )
            self._silent_since.setdefault(provider, now())
            return {}
        cards = {card.lease: card for card in found.leases}
        about = {
            f"{_ACCOUNT}{words.partition(': ')[0]}": words
            for words in found.alarms
            if words.partition(": ")[0] not in cards
        }
        is_silent = about.get(key, "").startswith(f"{provider}: does not answer")
        for about_it, words in about.items():
            waits = SILENCE_PASSES if is_silent and about_it == key else timedelta(0)
            ledger.raise_alarm(
                about_it, words, level=Level.WARNING, lease_id=None, at=now(), patience=waits
            )
        for over in (self._told_by.get(provider, set()) | {key}) - set(about):
            self._end_alarm(None, over)
        self._told_by[provider] = set(about)
        if is_silent:
            self._silent_since.setdefault(provider, now())
        else:
            self._silent_since.pop(provider, None)
        return cards

    def _end_what_nobody_tells(self) -> None:
        """End the alarms about accounts that an earlier process raised, once every provider has answered."""
        if not set(self._told_by) >= self._tenancy.context.connected or self._silent_since:
            return
        told = {key for keys in self._told_by.values() for key in keys}
        for known in self._tenancy.ledger.open_alarms():
            about_account = known.lease_id is None and known.key.startswith("account")
            if about_account and known.key not in told:
                self._end_alarm(None, known.key)

    def _end_alarms(self, lease_id: LeaseId, *, but: Collection[str]) -> None:
        """End the alarms of the lease that this look did not raise."""
        for known in self._tenancy.ledger.open_alarms_of(lease_id):
            if known.key not in but:
                self._end_alarm(lease_id, known.key)

    def _end_alarm(self, lease_id: LeaseId | None, key: str) -> None:
        self._tenancy.ledger.end_alarm(key, lease_id=lease_id, at=self._tenancy.clock.now())
