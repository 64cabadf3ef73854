"""Ends a lease: verify its work and tear its box down.

If that fails, park the box. If that fails too, keep the box running and try again, until the rescue sum is spent. After
that, do what the owner signed. The rescue sum is money that may be spent after the end of a lease to save its files.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Literal, TypeVar

from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import END_NEWS, Level
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.end_reserve import STOP_GRACE_S
from gpu_tenant.domain.errors import (
    BoxStopped,
    BoxTrouble,
    BoxUnreachable,
    LeaseHeld,
    ProviderTrouble,
    Refused,
    TenantError,
)
from gpu_tenant.domain.interruption import recorded_fate
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.parked import read_at_stop
from gpu_tenant.domain.policy import rescue
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.domain.rental import rental_ends_at, rental_words
from gpu_tenant.domain.stop_cause import StopCause
from gpu_tenant.domain.survival import deleted_at
from gpu_tenant.domain.terms import cost_usd
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.wording import usd_words
from gpu_tenant.leases import watch_actions
from gpu_tenant.leases.cards import TornDown
from gpu_tenant.leases.end import awaits_owner, honour_waiver
from gpu_tenant.leases.kept_parked import kept_words, not_ended_words, parked_step
from gpu_tenant.leases.last_start import start_to_end
from gpu_tenant.leases.taken_step import known_unclaimed
from gpu_tenant.leases.term_checks import (
    Outrun,
    as_it_was,
    attempts,
    began_at,
    beyond,
    is_due,
    may_start_to_end,
    outrun,
    over_while_parked,
)
from gpu_tenant.leases.watch_actions import park_overdue
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy
from gpu_tenant.sweeps.commands import vacate

T = TypeVar("T")

_NAMED = 3

_MONTH_H = 730

_LAST_DAYS, _LAST_HOURS = timedelta(days=2), timedelta(hours=2)
"""If a platform will delete a parked box in less than this time, that is an urgent alarm.

In less than three times this time, it is a warning.
"""


SILENCE_PASSES = timedelta(minutes=30)
"""A provider may be silent for this long before anybody has to look after it. Most interruptions are shorter."""
_PASSES_WITH_SILENCE = ("standing", "teardown")
"""What these alarms say may only be due to the provider's silence."""


class LeaseAlarms:
    """Tells a person what one look (one check of a lease) found wrong, and what was done about it."""

    def __init__(
        self,
        ledger: Ledger,
        lease_id: LeaseId,
        done: Callable[[str], None],
        *,
        provider: Literal["answers", "silent"] = "answers",
    ) -> None:
        self._ledger = ledger
        self._provider = provider
        self._lease_id = lease_id
        self.report = done
        """A callback for reports. Its argument says in words what was done or begun."""
        self.raised: set[str] = set()

    def alarm(self, key: str, words: str, level: Level) -> None:
        """Raise an alarm, and keep it open until a look at the lease no longer raises it.

        What its card warns of (its box does not run, its deadline has passed) and that it cannot be ended is one alarm.
        """
        waits = self._provider == "silent" and key in _PASSES_WITH_SILENCE
        key = "standing" if key == "end" and "standing" in self.raised else key
        self.raised.add(key)
        self._ledger.raise_alarm(
            key,
            words,
            level=level,
            lease_id=self._lease_id,
            at=self._ledger.now(),
            patience=SILENCE_PASSES if waits else timedelta(0),
        )


class LeaseEnder:
    """Tries to end one lease. It obeys the rule that no work may be lost, and the terms of the lease."""

    def __init__(self, tenancy: Tenancy, told: LeaseAlarms, *, look_s: float) -> None:
        self._tenancy = tenancy
        self._told = told
        self._look_s = look_s
        self._was_silent = False

    async def end(self, lease: Lease, cause: Outrun) -> None:
        """Try to end the lease: verify and tear it down, else park it, else raise an alarm while it bills.

        If the next attempt is not due yet, only raise an alarm that says how the last attempt went.

        Raises:
            LeaseHeld: another process is acting on the lease.
        """
        tenancy, now = self._tenancy, self._tenancy.clock.now()
        tried = attempts(tenancy.ledger.events(lease.id))
        if not is_due(tried, now):
            self._told.alarm("end", f"{cause.words}; {self._stands(lease)}", Level.URGENT)
            return
        with tenancy.ledger.hold(lease.id, "end", at=now):
            pass  # If another process holds the lease, stop here: this does not count as an attempt.
        ending = timeline.Ending(term=cause.term, words=cause.words)
        tenancy.ledger.note(lease.id, ending, at=now)
        self._told.report(
            f"{cause.words}: its end is tried again"
            if tried
            else f"{cause.words}: it is being ended"
        )
        unsaved = await self._save_work(lease, cause)
        # If the box did not answer just now, do not wait for it again while it bills: park it first.
        refused = unsaved if self._was_silent else await self.tear_down(lease)
        if refused is None:
            return
        why = unsaved or refused
        try:
            await park_overdue(tenancy.context, lease.id)
        except LeaseHeld:
            raise
        except (Refused, BoxTrouble, ProviderTrouble) as unparked:
            stopped = tenancy.ledger.lease(lease.id)
            if stopped.parked_at is not None:
                # It was stopped meanwhile, by its guard or its platform's timer.
                await self.report_parked(stopped)
                return
            why = f"{why} (and it cannot be parked: {unparked.message})"
        else:
            parked = tenancy.ledger.lease(lease.id)
            kept = kept_words(parked, tenancy.ledger.events(lease.id))
            self._told.report(f"parked: {kept or cause.words}")
            await self.report_parked(parked)
            return
        lease = tenancy.ledger.lease(lease.id)
        began = began_at(lease, tenancy.ledger.events(lease.id))
        if began is not None and beyond(lease, began, tenancy.clock.now()) == "waive":
            try:
                torn = await honour_waiver(tenancy.context, lease.id)
            except TenantError as trouble:
                why = trouble.message
            else:
                self._report_destroyed(torn, cause.words)
                return
        self._told.alarm(
            "end", f"{cause.words}; {why}; {self._stands(lease, but=why)}", Level.URGENT
        )

    async def _save_work(self, lease: Lease, cause: Outrun) -> str | None:
        """Stop the lease's jobs, and copy what they wrote to this computer and into the store.

        Returns the first failure in words. None if there was no failure.
        """
        tenancy = self._tenancy
        if lease.touched_at is None:
            return None
        met: list[str] = []
        # Take the lease out of its sweeps first. Otherwise stopping one cell would start the next.
        await _try_step(vacate(tenancy.context, lease.id), met)
        standing = await _try_step(watch_actions.standing_of(tenancy.context, lease.id), met)
        for run in standing.live if standing else ():
            why = StopCause(cause.term, cause.words)
            stop = tenancy.stop_run(lease.id, run, grace_s=STOP_GRACE_S, cause=why)
            await _try_step(stop, met)
        silent: list[str] = []
        await _try_step(_hear(tenancy.collect(lease.id), silent), met)
        self._was_silent = bool(silent)
        return met[0] if met else None

    async def tear_down(self, lease: Lease) -> str | None:
        """Verify the lease's work and tear its box down.

        Returns why the teardown was refused. None if the box is torn down. None also if the teardown is permitted but
        not complete; then later looks complete it.
        """
        try:
            torn = await self._tenancy.verify_and_teardown(lease.id)
        except LeaseHeld:
            raise
        except ProviderTrouble as trouble:
            # The teardown is permitted and begun. Each later look asks the provider again, unless a person has to act.
            # In that case the error says how.
            self._told.alarm("teardown", f"{trouble.message}; {trouble.remedy}", Level.URGENT)
            return None
        except TenantError as refusal:
            return f"{refusal.message}; {refusal.remedy}"
        self._report_end(
            f"its box was ended (ground: {torn.receipt.ground}); it cost {usd_words(torn.receipt.spent_usd)}"
            f"{f'; the work: {outcome.words}' if (outcome := torn.receipt.outcome) else ''}"
        )
        return None

    def _report_end(self, words: str) -> None:
        """Report the end of the lease, and notify a person of it."""
        self._told.report(words)
        self._told.alarm(END_NEWS, words, Level.NOTICE)

    def _report_destroyed(self, torn: TornDown, why: str) -> None:
        """Report that work without a proved copy was destroyed, because the owner had signed for that.

        The report names the losses first, and goes to every channel.
        """
        given_up = torn.receipt.given_up
        more = f" and {len(given_up) - _NAMED} more" if len(given_up) > _NAMED else ""
        lost = f"{'; '.join(given_up[:_NAMED])}{more}" or "nothing that was known"
        words = (
            f"its box was destroyed, as its owner signed; given up: {lost}; {why}; "
            f"{Command('report', torn.lease)} shows all of it"
        )
        self._told.report(words)
        self._told.alarm(END_NEWS, words, Level.URGENT)

    async def go_on_ending(self, lease: Lease) -> None:
        """Continue a permitted teardown that was cut short, after checking the proofs again.

        Attempts come at growing intervals.
        """
        words = awaits_owner(self._tenancy.context, lease.id)
        if words is not None:
            self._told.alarm("teardown", f"a person has to end its box: {words}", Level.URGENT)
            return
        now = self._tenancy.clock.now()
        tried = attempts(self._tenancy.ledger.events(lease.id))
        if not is_due(tried, now):
            # An attempt that was refused has raised this alarm at its own level, which does not fall.
            self._told.alarm(
                "teardown", f"its teardown is not complete; {self._stands(lease)}", Level.NOTICE
            )
            return
        self._tenancy.ledger.note(lease.id, timeline.Ending(term="teardown"), at=now)
        refused = await self.tear_down(lease)
        if refused is None:
            return
        with suppress(Refused):  # Without a signature this is refused: the alarm below says so.
            # What was on a box that is already destroyed can never be proved again, but the
            # owner's signature is still valid.
            torn = await honour_waiver(self._tenancy.context, lease.id)
            self._report_destroyed(torn, "its teardown was cut short before")
            return
        self._told.alarm("teardown", f"{refused}; {self._stands(lease, but=refused)}", Level.URGENT)

    async def report_parked(self, lease: Lease) -> None:
        """Report a parked lease, and end it if its box was never used.

        If the deadline has passed and the rescue sum is spent, destroy the box if its owner has signed for that.
        """
        now = self._tenancy.clock.now()
        events = self._tenancy.ledger.events(lease.id)
        met = outrun(lease, now, look_s=self._look_s) or over_while_parked(lease, events, now)
        late = as_it_was(met, events)
        words = f"it is parked, and bills {rate_words(lease)}"
        rescued = parked_step(lease, events, now, known_unclaimed(self._tenancy.ledger, lease))
        deleted, level = self._deletion_words(lease)
        kept = kept_words(lease, events)
        if await self._try_to_end_parked(lease, events):
            return
        if late is None and kept:
            # A parked box costs less, so the lease may be within its budget again for some time.
            told = f"{words}; {kept}; {deleted or 'its disk is kept'}; {rescued}"
            self._told.alarm("parked", told, max(level, Level.WARNING))
            return
        if late is None:
            words += f"; {deleted}: before then, {rescued}" if deleted else ""
            self._told.alarm("parked", words, level)
            return
        if lease.price_usd_h:
            words += f", {usd_words(lease.price_usd_h * _MONTH_H)} a month"
        ending = timeline.Ending(term=late.term, words=late.words)
        if lease.touched_at is None and is_due(attempts(events), now):
            self._tenancy.ledger.note(lease.id, ending, at=now)
            # This is refused if others may have used the box. Nobody can check that while the box is parked.
            if await self.tear_down(lease) is None:
                return
            lease = self._tenancy.ledger.lease(lease.id)
            events = self._tenancy.ledger.events(lease.id)
        if may_start_to_end(lease, events, now):
            self._tenancy.ledger.note(lease.id, ending, at=now)
            if await self._start_to_end(lease, late):
                return
            lease = self._tenancy.ledger.lease(lease.id)
            events = self._tenancy.ledger.events(lease.id)
        began = began_at(lease, events)
        if began is None and now >= lease.terms.deadline_at:
            # From now on, the costs count against the rescue sum.
            self._tenancy.ledger.note(lease.id, ending, at=now)
        elif began is not None and beyond(lease, began, now) == "waive":
            # If this is refused, the alarm below says so, as for every lease that is parked past its end.
            with suppress(Refused):
                torn = await honour_waiver(self._tenancy.context, lease.id)
                self._report_destroyed(torn, f"{late.words}, and it was parked")
                return
        why = not_ended_words(lease, events)
        self._told.alarm(
            "parked",
            "; ".join(
                filter(
                    None, (late.words, words, why, f"{deleted or 'its disk is kept'}; {rescued}")
                )
            ),
            max(level, Level.WARNING),
        )

    async def _start_to_end(self, lease: Lease, late: Outrun) -> bool:
        """Start a stopped box once, for the minutes that the proof of its files takes. Return whether it was started.

        If it lets us in now, end its lease. Otherwise the next look does.
        """
        ledger = self._tenancy.ledger
        try:
            is_started = await start_to_end(self._tenancy.context, lease)
        except LeaseHeld:
            raise
        except TenantError as trouble:
            self._told.report(f"it could not be started to be ended: {trouble.message}")
            return False
        if not is_started:
            return False
        words = f"{late.words}, and its box was stopped: it was started once more, to prove its files and to end it"
        self._told.report(words)
        lease = ledger.lease(lease.id)
        if lease.state is LeaseState.ACTIVE and lease.ready_at is not None and not lease.parked_at:
            await self.end(lease, late)
        else:
            self._told.alarm("boots", f"{words}; it bills {rate_words(lease)}", Level.NOTICE)
        return True

    async def _try_to_end_parked(self, lease: Lease, events: Lines) -> bool:
        """Try to end a parked box, without starting it, if nothing prevents that any more. Return whether it has ended.

        The box was parked because its lease exceeded one of its terms, and was read in full right before.
        """
        ledger, now = self._tenancy.ledger, self._tenancy.clock.now()
        if read_at_stop(events) is None:
            return False
        told = [x for _, x in events if isinstance(x, timeline.Ending) and x.words]
        if not told or not is_due(attempts(events), now):
            return False
        ledger.note(lease.id, timeline.Ending(term=told[-1].term, words=told[-1].words), at=now)
        return await self.tear_down(lease) is None

    def _deletion_words(self, lease: Lease) -> tuple[str | None, Level]:
        """Say from when on nobody can read the parked box any more, and how urgent that is by now."""
        if lease.touched_at is None:
            return None, Level.NOTICE
        profile, now = self._tenancy.context.profile(lease.provider), self._tenancy.clock.now()
        until, ends_at = deleted_at(profile, lease), rental_ends_at(lease)
        if ends_at is not None and now < ends_at and (until is None or ends_at < until):
            left = ends_at - now
            level = Level.URGENT if left < _LAST_HOURS else Level.WARNING
            ends = f"{rental_words(lease)}, and nobody can start it after that"
            return (ends, level) if left < _LAST_DAYS else (None, Level.NOTICE)
        if until is None:
            return None, Level.NOTICE
        left = until - now
        urgent = left < _LAST_DAYS
        level = Level.URGENT if urgent else Level.WARNING if left < 3 * _LAST_DAYS else Level.NOTICE
        return f"{profile.title} deletes it, data and all, at {until:%Y-%m-%d %H:%M} UTC", level

    def _stands(self, lease: Lease, *, but: str = "") -> str:
        """Say why the last attempt to end the lease failed, what its box costs, and how much rescue sum is spent.

        `but` has been told already, and is not repeated.
        """
        events = self._tenancy.ledger.events(lease.id)
        refused = [event.words for _, event in events if isinstance(event, timeline.Refused)]
        why = f"{refused[-1]}; " if refused and str(refused[-1]) not in but else ""
        most, began = rescue(lease), began_at(lease, events)
        spent = began and cost_usd(lease.rates, since=began, until=self._tenancy.clock.now())
        sum_words = ""
        if most is not None and spent is not None:
            then = (
                "destroyed, as its owner signed" if lease.terms.on_deadline == "waive" else "kept"
            )
            sum_words = f"; {spent:.2f} of its rescue sum of {most:.2f} USD ({Option('rescue-usd')}, else a day at its price, to save what is on it) are spent, and when all of it is spent, the box is {then}"
        if recorded_fate(events) == "host_lost":
            return (
                f"{why}its host is lost, and it is unknown whether its provider still bills for it"
            )
        return f"{why}its box goes on billing, {rate_words(lease)}{sum_words}"


async def _hear(step: Awaitable[T], silent: list[str]) -> T:
    """Await the step and return its result. If the box did not answer in time, also append why to `silent`."""
    try:
        return await step
    except (BoxUnreachable, BoxStopped) as trouble:
        silent.append(trouble.message)
        raise


async def _try_step(step: Awaitable[T], met: list[str]) -> T | None:
    """Await the step and return its result. If it failed, append why to `met` and return None.

    The failure of one step must not keep the box billing.

    Raises:
        LeaseHeld: another process is acting on the lease.
    """
    try:
        return await step
    except LeaseHeld:
        raise
    except TenantError as trouble:
        met.append(trouble.message)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other steps and the teardown are still tried
        met.append(f"saving its work failed: {error!r}")
    return None
