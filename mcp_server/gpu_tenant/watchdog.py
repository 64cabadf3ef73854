"""The watchdog: every lease is looked at on a schedule, held to its terms, and told about."""

import asyncio
import json
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Literal

from gpu_tenant.alarms import Level
from gpu_tenant.attendant import Attendant
from gpu_tenant.cards import Card
from gpu_tenant.crowd import AT_ONCE
from gpu_tenant.errors import LeaseHeld, TenantError
from gpu_tenant.fence import outrun
from gpu_tenant.model import LeaseId
from gpu_tenant.notify import tell_due
from gpu_tenant.reconcile import rate_words
from gpu_tenant.record import Record
from gpu_tenant.service import Tenancy

EVERY_S = 60
_TURN_S = 30
"""A look takes seconds; what brings home and ends a lease may take hours, and holds up nobody."""
_ACCOUNT = "account:"
"""What the key of an alarm about no lease begins with."""


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
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._did: list[str] = []
        self._sweeps: asyncio.Task[None] | None = None

    async def forever(self) -> None:
        """Looks follow each other until this is cancelled; what one of them meets ends none."""
        try:
            while True:
                try:
                    await self._look(wait="begun")
                except Exception as error:  # noqa: BLE001 - the next look may fare better
                    self._tell(f"a look failed: {error!r}")
                await self._tenancy.clock.sleep(self._every_s)
        finally:
            for task in (*self._under_way.values(), *self._over_sweeps()):
                task.cancel()

    async def once(self) -> Look:
        """Every lease was looked at, and what was due has been done or tried."""
        return await self._look(wait="done")

    async def _look(self, *, wait: Literal["begun", "done"]) -> Look:
        self._did = []
        cards = await self._ask_everybody()
        for lease in self._tenancy.ledger.leases():
            known = self._under_way.get(lease.id)
            if known is not None and not known.done():
                continue  # a lease that takes long holds nobody else up
            if lease.state.live or self._tenancy.may_recover(lease):
                self._under_way[lease.id] = asyncio.create_task(
                    self._in_turn(lease.id, cards.get(lease.id))
                )
            else:
                self._under_way.pop(lease.id, None)
                self._end_alarms(lease.id, but=())
        if not self._over_sweeps():
            self._sweeps = asyncio.create_task(self._tend_sweeps())
        if wait == "done":
            await asyncio.gather(*self._under_way.values(), *self._over_sweeps())
        await tell_due(
            self._tenancy.home, self._tenancy.ledger, environ=self._tenancy.environ,
            clock=self._tenancy.clock,
        )  # fmt: skip
        self._put_heartbeat()
        return Look(
            leases=len(self._under_way),
            did=tuple(self._did),
            alarms=tuple(
                f"{alarm.lease_id or 'the account'}: {alarm.words}"
                for alarm in self._tenancy.ledger.open_alarms()
            ),
        )

    def _over_sweeps(self) -> tuple[asyncio.Task[None], ...]:
        """The look at sweeps that is under way, if one is."""
        return (self._sweeps,) if self._sweeps and not self._sweeps.done() else ()

    async def _tend_sweeps(self) -> None:
        """Every sweep was moved on; what that met ends nobody's watch."""
        try:
            await self._tenancy.tend_all()
        except Exception as error:  # noqa: BLE001 - the next look may fare better
            self._tell(f"sweeps could not be tended: {error!r}")

    async def _in_turn(self, lease_id: LeaseId, card: Card | None) -> None:
        """As `_attend`, so many at a time; one that takes long gives up its turn, and goes on."""
        async with self._turns:
            attending = asyncio.create_task(self._attend(lease_id, card))
            try:
                await asyncio.wait([attending], timeout=_TURN_S)
            except asyncio.CancelledError:
                attending.cancel()
                raise
        await attending

    async def _attend(self, lease_id: LeaseId, card: Card | None) -> None:
        """One lease was looked at; what it met is told, and ends no other's watch."""

        def done(words: str) -> None:
            self._did.append(f"{lease_id}: {words}")
            self._tell(f"{lease_id}: {words}")

        attendant = Attendant(self._tenancy, lease_id, card, look_s=self._every_s, done=done)
        try:
            await attendant.attend()
        except LeaseHeld:
            # Somebody is acting on it right now; the next look sees what came of it.
            self._tell_what_waits(attendant, lease_id)
            return
        except TenantError as trouble:
            attendant.alarm("broke", f"{trouble.message}; {trouble.remedy}", Level.WARNING)
        except Exception as error:  # noqa: BLE001 - nor does a surprise
            attendant.alarm("broke", f"looking at it failed: {error!r}", Level.URGENT)
        raised = attendant.raised
        if not self._tenancy.ledger.lease(lease_id).state.live:
            raised = raised & {
                "recovery",
                "broke",
                "ended",
            }  # what was wrong with a box that is no more is over
        self._end_alarms(lease_id, but=raised)

    def _tell_what_waits(self, attendant: Attendant, lease_id: LeaseId) -> None:
        """A lease past its terms that somebody holds is told: nobody ends it meanwhile."""
        lease = self._tenancy.ledger.lease(lease_id)
        late = outrun(lease, self._tenancy.clock.now(), look_s=self._every_s)
        if lease.state.live and late is not None:
            attendant.alarm(
                "held",
                f"{late.words}, and another process holds it: it bills {rate_words(lease)} until that is over",
                Level.WARNING,
            )

    async def _ask_everybody(self) -> dict[str, Card]:
        """The card of every live lease, by what its provider shows now; none where nobody could be asked."""
        try:
            found = await self._tenancy.reconcile()
        except Exception as error:  # noqa: BLE001 - every lease is looked at all the same
            told = isinstance(error, TenantError)
            self._tenancy.ledger.raise_alarm(
                "account", str(error) if told else f"asking the providers failed: {error!r}",
                level=Level.WARNING if told else Level.URGENT,
                lease_id=None, at=self._tenancy.clock.now(),
            )  # fmt: skip
            return {}
        cards = {card.lease: card for card in found.leases}
        about = {f"{_ACCOUNT}{words.partition(': ')[0]}": words for words in found.alarms
                 if words.partition(": ")[0] not in cards}  # fmt: skip
        for key, words in about.items():
            self._tenancy.ledger.raise_alarm(
                key, words, level=Level.WARNING, lease_id=None, at=self._tenancy.clock.now()
            )
        for known in self._tenancy.ledger.open_alarms():
            if (
                known.lease_id is None
                and known.key.startswith("account")
                and known.key not in about
            ):
                self._end_alarm(None, known.key)
        return cards

    def _end_alarms(self, lease_id: LeaseId, *, but: Collection[str]) -> None:
        """What this look did not raise again is over."""
        for known in self._tenancy.ledger.open_alarms_of(lease_id):
            if known.key not in but:
                self._end_alarm(lease_id, known.key)

    def _end_alarm(self, lease_id: LeaseId | None, key: str) -> None:
        self._tenancy.ledger.end_alarm(key, lease_id=lease_id, at=self._tenancy.clock.now())

    def _put_heartbeat(self) -> None:
        path = self._tenancy.home.watchdog
        temporary = path.with_suffix(f".{os.getpid()}")
        now = self._tenancy.clock.now().isoformat()
        with suppress(OSError):  # a full disk must not end the watch
            temporary.write_text(
                json.dumps({"at": now, "pid": os.getpid(), "every_s": self._every_s}),
                encoding="utf-8",
            )
            temporary.replace(path)
