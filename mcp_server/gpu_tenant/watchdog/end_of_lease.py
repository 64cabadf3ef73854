"""The end of a lease, in this order: proved and torn down, else parked, else paid for, else as its owner signed."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BoxTrouble,
    BoxUnreachable,
    LeaseHeld,
    ProviderTrouble,
    Refused,
    TenantError,
)
from gpu_tenant.domain.model import Lease, LeaseId
from gpu_tenant.domain.policy import rescue
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.domain.terms import cost_usd
from gpu_tenant.leases import watch_actions
from gpu_tenant.leases.end import awaits_owner, honoured
from gpu_tenant.leases.term_checks import Outrun, attempts, began_at, beyond, is_due, outrun
from gpu_tenant.leases.watch_actions import park_overdue
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy
from gpu_tenant.sweeps.commands import vacate

T = TypeVar("T")

STOP_GRACE_S = 60
"""The time between asking a job to save its work and killing it."""


class Told:
    """What a person hears from one look at a lease: what is wrong, and what was done about it."""

    def __init__(self, ledger: Ledger, lease_id: LeaseId, done: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._lease_id = lease_id
        self.done = done
        self.raised: set[str] = set()

    def alarm(self, key: str, words: str, level: Level) -> None:
        """A person hears of this until a look no longer raises it."""
        self.raised.add(key)
        self._ledger.raise_alarm(
            key, words, level=level, lease_id=self._lease_id, at=self._ledger.now()
        )


class DeadMan:
    """Tries to end one lease, as far as the law and its terms allow."""

    def __init__(self, tenancy: Tenancy, told: Told, *, look_s: float) -> None:
        self._tenancy = tenancy
        self._told = told
        self._look_s = look_s
        self._was_silent = False

    async def end(self, lease: Lease, cause: Outrun) -> None:
        """An attempt was made to end the lease: it was proved and torn down, or parked, or paid for."""
        tenancy, now = self._tenancy, self._tenancy.clock.now()
        tried = attempts(tenancy.ledger.events(lease.id))
        if not is_due(tried, now):
            self._told.alarm("end", f"{cause.words}; {self._stands(lease)}", Level.URGENT)
            return
        with tenancy.ledger.hold(lease.id, "end", at=now):
            pass  # while somebody else holds it, nothing is tried, and no attempt is counted
        ending = timeline.Ending(term=cause.term, words=cause.words)
        tenancy.ledger.note(lease.id, ending, at=now)
        self._told.done(f"{cause.words}: it is being ended")
        unsaved = await self._saved(lease)
        # A box that was silent just now is not waited for again while it bills. It is parked first.
        refused = unsaved if self._was_silent else await self.tear_down(lease)
        if refused is None:
            return
        why = unsaved or refused
        try:
            await park_overdue(tenancy.context, lease.id)
        except LeaseHeld:
            raise
        except (Refused, BoxTrouble, ProviderTrouble) as unparked:
            why = f"{why} (and it cannot be parked: {unparked.message})"
        else:
            self._told.done(f"parked: {cause.words}")
            await self.parked(tenancy.ledger.lease(lease.id))
            return
        lease = tenancy.ledger.lease(lease.id)
        began = began_at(lease, tenancy.ledger.events(lease.id))
        if began is not None and beyond(lease, began, tenancy.clock.now()) == "waive":
            try:
                await honoured(tenancy.context, lease.id)
            except TenantError as trouble:
                why = trouble.message
            else:
                self._ended(f"destroyed, as its owner signed: {cause.words}")
                return
        self._told.alarm("end", f"{cause.words}; {why}; {self._stands(lease)}", Level.URGENT)

    async def _saved(self, lease: Lease) -> str | None:
        """The jobs have ended, and what they wrote is here and in the store. Returns why not, or None."""
        tenancy = self._tenancy
        if lease.touched_at is None:
            return None
        met: list[str] = []
        # Otherwise the next cell would begin as soon as one is stopped.
        await _tried(vacate(tenancy.context, lease.id), met)
        standing = await _tried(watch_actions.standing(tenancy.context, lease.id), met)
        for run in standing.live if standing else ():
            await _tried(tenancy.stop_run(lease.id, run, grace_s=STOP_GRACE_S), met)
        silent: list[str] = []
        await _tried(_heard(tenancy.collect(lease.id), silent), met)
        self._was_silent = bool(silent)
        return met[0] if met else None

    async def tear_down(self, lease: Lease) -> str | None:
        """Why the lease may not be ended. None if it has ended, or its end goes on by itself."""
        try:
            torn = await self._tenancy.verify_and_teardown(lease.id)
        except LeaseHeld:
            raise
        except ProviderTrouble as trouble:
            # Its end was permitted, and every look asks again. Or a person must act, and has been
            # told how.
            self._told.alarm("teardown", f"{trouble.message}; {trouble.remedy}", Level.URGENT)
            return None
        except TenantError as refusal:
            return f"{refusal.message}; {refusal.remedy}"
        self._ended(f"ended, {torn.receipt.ground}, for {torn.receipt.cost_usd} USD")
        return None

    def _ended(self, words: str) -> None:
        """A person also hears of the end, once."""
        self._told.done(words)
        self._told.alarm("ended", words, Level.NOTICE)

    async def go_on_ending(self, lease: Lease) -> None:
        """A permitted teardown that was cut short is proved anew and goes on, at growing intervals."""
        words = awaits_owner(self._tenancy.context, lease.id)
        if words is not None:
            self._told.alarm("teardown", f"a person has to end its box: {words}", Level.URGENT)
            return
        now = self._tenancy.clock.now()
        tried = attempts(self._tenancy.ledger.events(lease.id))
        if not is_due(tried, now):
            self._told.alarm(
                "teardown", f"its teardown is not through; {self._stands(lease)}", Level.URGENT
            )
            return
        self._tenancy.ledger.note(lease.id, timeline.Ending(term="teardown"), at=now)
        refused = await self.tear_down(lease)
        if refused is None:
            return
        with suppress(Refused):  # not signed for: the alarm below tells it
            # A box that was destroyed on a signature can never be proved any more, but the
            # signature still holds.
            await honoured(self._tenancy.context, lease.id)
            self._ended("destroyed, as its owner signed")
            return
        self._told.alarm("teardown", f"{refused}; {self._stands(lease)}", Level.URGENT)

    async def parked(self, lease: Lease) -> None:
        """A parked lease is reported, and ended if it was never used.

        Past its end, what its owner signed applies.
        """
        now = self._tenancy.clock.now()
        late = outrun(lease, now, look_s=self._look_s)
        words = f"it is parked, and bills {rate_words(lease)}"
        if late is None:
            self._told.alarm("parked", words, Level.NOTICE)
            return
        ending = timeline.Ending(term=late.term, words=late.words)
        events = self._tenancy.ledger.events(lease.id)
        if lease.touched_at is None and is_due(attempts(events), now):
            self._tenancy.ledger.note(lease.id, ending, at=now)
            # This is refused if others may have used the box: it cannot be looked at while it is parked.
            if await self.tear_down(lease) is None:
                return
            lease = self._tenancy.ledger.lease(lease.id)
            events = self._tenancy.ledger.events(lease.id)
        began = began_at(lease, events)
        if began is None and now >= lease.terms.deadline_at:
            # The cost of its rescue counts from here on.
            self._tenancy.ledger.note(lease.id, ending, at=now)
        elif began is not None and beyond(lease, began, now) == "waive":
            with suppress(Refused):  # the alarm below tells it, like any other parked past its end
                await honoured(self._tenancy.context, lease.id)
                self._ended("destroyed while parked, as its owner signed")
                return
        self._told.alarm(
            "parked",
            f"{late.words}; {words}; its disk is kept: {Command('resume', lease.id, hours='1')}, then "
            "collect and teardown",
            Level.WARNING,
        )

    def _stands(self, lease: Lease) -> str:
        """Why the last attempt to end it failed, what it costs, and how much of the rescue sum is spent."""
        events = self._tenancy.ledger.events(lease.id)
        refused = [event.words for _, event in events if isinstance(event, timeline.Refused)]
        why = f"{refused[-1]}; " if refused else ""
        most, began = rescue(lease), began_at(lease, events)
        spent = began and cost_usd(lease.rates, since=began, until=self._tenancy.clock.now())
        sum_words = ""
        if most is not None and spent is not None:
            then = (
                "destroyed, as its owner signed" if lease.terms.on_deadline == "waive" else "kept"
            )
            sum_words = f", {spent:.2f} of the {most:.2f} USD since its end; then it is {then}"
        return f"{why}its box bills on {rate_words(lease)}{sum_words}"


async def _heard(step: Awaitable[T], silent: list[str]) -> T:
    """What the step returned. If the box did not answer in time, `silent` says so from now on."""
    try:
        return await step
    except BoxUnreachable as trouble:
        silent.append(trouble.message)
        raise


async def _tried(step: Awaitable[T], met: list[str]) -> T | None:
    """What the step returned. None if it failed, and then `met` says why.

    A box must not go on billing because a step failed.

    Raises:
        LeaseHeld: somebody else is acting on the lease.
    """
    try:
        return await step
    except LeaseHeld:
        raise
    except TenantError as trouble:
        met.append(trouble.message)
    except Exception as error:  # noqa: BLE001 - whatever it is, the rest is tried, and the lease ended
        met.append(f"saving its work failed: {error!r}")
    return None
