"""The watchdog: every lease is looked at on a schedule, held to its terms, and told about."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Literal

from gpu_tenant.concurrency import AT_ONCE
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.errors import LeaseHeld, TenantError
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.domain.record import Record
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.recover import may_recover
from gpu_tenant.leases.term_checks import outrun
from gpu_tenant.leases.watch_actions import look_at
from gpu_tenant.leases.watchdog_heartbeat import put_heartbeat
from gpu_tenant.notifications.notify import tell_due
from gpu_tenant.service import Tenancy
from gpu_tenant.sweeps.commands import tend_all
from gpu_tenant.watchdog.lease_check import Attendant

EVERY_S = 60
_TURN_S = 30
"""How long a lease keeps its turn.

A look takes seconds. Bringing work home and ending a lease may take hours, and must hold up nobody.
"""
ANSWERS_WITHIN_S = 20
"""How long the leases at a provider wait for its list; then they are looked at without it."""
_LIST_WITHIN_S, _ASKED_WITHIN_S = 120, 300
"""How long a provider's list may take, and how long everything that it is asked at one look may take."""
_THREADS, _LEAVE_WITHIN_S = 128, 10
_ACCOUNT = "account:"
"""How the key of an alarm about no lease begins."""


class Look(Record):
    """One look at everything."""

    leases: int
    did: tuple[str, ...]
    alarms: tuple[str, ...]


class Watchdog:
    """Looks at every lease, as often as it is asked to; any number of watchdogs may run at once.

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
    ) -> None:
        """`tell` hears what is done; a provider that does not answer within `answers_within_s` is not waited for."""
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

    async def forever(self) -> None:
        """Looks follow each other until this is cancelled; a failure in one of them does not stop them."""
        # Reading from a disk that hangs blocks a thread for as long, and a small pool would soon be used up.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "watch"))
        try:
            while True:
                try:
                    await self._look(wait="begun")
                except Exception as error:  # noqa: BLE001 - the next look may fare better
                    self._tell(f"a look failed: {error!r}")
                await self._tenancy.clock.sleep(self._every_s)
        finally:
            under_way = {
                *self._under_way.values(),
                *self._asking.values(),
                *self._over_sweeps(),
            }
            for task in under_way:
                task.cancel()
            if under_way:
                # The ledger is closed next, so they must have left it by then, whatever hangs.
                await asyncio.wait(under_way, timeout=_LEAVE_WITHIN_S)

    async def once(self) -> Look:
        """Every lease was looked at, and what was due has been done or tried."""
        return await self._look(wait="done")

    async def _look(self, *, wait: Literal["begun", "done"]) -> Look:
        self._did = []
        ledger = self._tenancy.ledger
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
        await tell_due(
            self._tenancy.home,
            self._tenancy.ledger,
            environ=self._tenancy.context.environ,
        )
        put_heartbeat(
            self._tenancy.home.watchdog,
            at=self._tenancy.clock.now(),
            every_s=self._every_s,
            unasked=self._unasked,
        )
        return Look(
            leases=len(self._under_way),
            did=tuple(self._did),
            alarms=tuple(
                f"{alarm.lease_id or 'the account'}: {alarm.words}"
                for alarm in self._tenancy.ledger.open_alarms()
            ),
        )

    def _forget_all_but(self, leases: Collection[LeaseId]) -> None:
        """Leases that are over are no longer looked at, and their alarms end too."""
        for lease_id in [known for known in self._under_way if known not in leases]:
            if self._under_way[lease_id].done():
                del self._under_way[lease_id]
        for told in {alarm.lease_id for alarm in self._tenancy.ledger.open_alarms()}:
            if told is not None and told not in leases and told not in self._under_way:
                self._end_alarms(told, but=())

    async def _look_at(self, provider: str, leases: Sequence[LeaseId]) -> None:
        """That provider was asked, and its leases are being looked at, even if it does not answer.

        A question that is still open when the next look comes goes on, and is not asked anew.
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
            known = self._under_way.get(lease_id)
            if known is None or known.done():  # a lease that takes long holds nobody else up
                self._under_way[lease_id] = asyncio.create_task(
                    self._in_turn(lease_id, cards.get(lease_id))
                )

    def _over_sweeps(self) -> tuple[asyncio.Task[None], ...]:
        """The look at sweeps that is under way, if one is."""
        return (self._sweeps,) if self._sweeps and not self._sweeps.done() else ()

    async def _tend_sweeps(self) -> None:
        """Every sweep was moved on; a failure there does not stop the watch."""
        try:
            await tend_all(self._tenancy.context)
        except Exception as error:  # noqa: BLE001 - the next look may fare better
            self._tell(f"sweeps could not be tended: {error!r}")

    async def _in_turn(self, lease_id: LeaseId, card: Card | None) -> None:
        """Like `_attend`, but only so many at a time; one that takes long gives up its turn and goes on."""
        async with self._turns:
            attending = asyncio.create_task(self._attend(lease_id, card))
            try:
                await asyncio.wait([attending], timeout=_TURN_S)
            except asyncio.CancelledError:
                attending.cancel()
                raise
        await attending

    async def _attend(self, lease_id: LeaseId, card: Card | None) -> None:
        """One lease was looked at; a failure is reported, and does not stop the watch over the others."""

        def done(words: str) -> None:
            self._did.append(f"{lease_id}: {words}")
            self._tell(f"{lease_id}: {words}")

        attendant = Attendant(self._tenancy, lease_id, card, look_s=self._every_s, done=done)
        try:
            await attendant.attend()
        except LeaseHeld:
            # Somebody is acting on it right now; the next look sees the result.
            self._tell_what_waits(attendant, lease_id)
            return
        except TenantError as trouble:
            attendant.told.alarm("broke", f"{trouble.message}; {trouble.remedy}", Level.WARNING)
        except Exception as error:  # noqa: BLE001 - nor does a surprise
            attendant.told.alarm("broke", f"looking at it failed: {error!r}", Level.URGENT)
        raised = attendant.told.raised
        if not self._tenancy.ledger.lease(lease_id).state.live:
            raised = raised & {
                "recovery",
                "broke",
                "ended",
            }  # all other alarms of a box that is no more are over
        self._end_alarms(lease_id, but=raised)

    def _tell_what_waits(self, attendant: Attendant, lease_id: LeaseId) -> None:
        """A lease past its terms that somebody holds is reported: nobody ends it meanwhile."""
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
        """The card of each of its live leases, by what the provider shows now; empty if asking failed."""
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
        """An earlier process's alarms about accounts end, once every provider has been heard."""
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
