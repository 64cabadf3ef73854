"""One look at (check of) one lease: copy what its jobs produced to this computer, and enforce its terms."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from gpu_tenant.artifacts.unclaimed import claim_words, unclaimed_names, unclaimed_now
from gpu_tenant.box.caretaker import Standing
from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import UNREACHABLE, Level
from gpu_tenant.domain.billing import charged_bytes_usd, newest_bill
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.end_reserve import end_reserve_s, resume_step
from gpu_tenant.domain.errors import (
    BoxStopped,
    BoxTrouble,
    BoxUnreachable,
    JobRunning,
    LeaseHeld,
    NotReady,
    PriceMoved,
    ProviderTrouble,
    Refused,
    TenantError,
)
from gpu_tenant.domain.interruption import (
    is_being_taken,
    notice_on_record,
    recorded_fate,
    went_on,
)
from gpu_tenant.domain.last_start import last_start_at
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.parked import read_in_notice
from gpu_tenant.domain.protection import WATCHED_S
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import some
from gpu_tenant.leases import watch_actions
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.context import WAIT_S
from gpu_tenant.leases.launch_again import open_run_of
from gpu_tenant.leases.read_in_notice import needs_no_start, read_while_it_answers
from gpu_tenant.leases.readiness import why_silent
from gpu_tenant.leases.recover import may_recover, recover, waits_in_vain
from gpu_tenant.leases.recovery_plan import gone_on
from gpu_tenant.leases.taken_step import known_unclaimed, notice_step
from gpu_tenant.leases.term_checks import Outrun, as_it_was, is_near, outrun, time_left_s
from gpu_tenant.leases.watch_actions import has_news, kept_back, pull, rearm, try_ready
from gpu_tenant.leases.woken_box import cut_off_jobs, launch_cut_off_again, may_launch_again
from gpu_tenant.leases.won_back import state_words
from gpu_tenant.leases.work_done import Work
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy
from gpu_tenant.watchdog.end_of_lease import LeaseAlarms, LeaseEnder
from gpu_tenant.watchdog.work_end import WorkEnd

_LOOK_AT_LEAST_S, _LOOK_AT_MOST_S = 60.0, 1800.0
_NOTICE_LOOK_S = 5.0
"""A box that its platform is about to take back is looked at again after this time. It may have half a minute left."""
_FIRST_LOOKS, _FIRST_WITHIN = timedelta(seconds=10), timedelta(minutes=10)
"""The pause between two looks at a new job on an interruptible box, until its first checkpoint is here.

After the second time, such a job is looked at like any other.
"""
_LATE_S = 30.0
"""A look may come this many seconds later than it was due."""
_CLOCKS_APART = timedelta(minutes=5)
_BOOTS_WITHIN = timedelta(minutes=15)
"""A box that was started for its end is stopped again if it does not let us in within this time."""


@dataclass(frozen=True, slots=True)
class BoxLook:
    """What a look at the box itself showed. None in a field means unknown. Nothing is concluded from it."""

    idle_s: float | None = None
    apart: timedelta | None = None
    """How far this computer's clock is ahead of the box's clock."""
    work: Work | None = None
    """What runs on the box, and what has ended."""
    to_come_bytes: int = 0
    """How many bytes of its artifacts are not here yet."""


def awaits_first_snapshot(ledger: Ledger, lease: Lease) -> bool:
    """Whether the box is interruptible, and nothing that its newest job has written is here yet.

    False if that job was launched longer ago than `_FIRST_WITHIN`.
    """
    if lease.quote is None or not lease.quote.offer.interruptible:
        return False
    launched_at: datetime | None = None
    for at, event in ledger.events(lease.id, timeline.Launched, timeline.Snapped):
        if isinstance(event, timeline.Launched):
            launched_at = at
        elif isinstance(event, timeline.Snapped) and event.files:
            launched_at = None
    return launched_at is not None and ledger.now() - launched_at < _FIRST_WITHIN


class Attendant:
    """Looks at one lease once, and raises its alarms through `told`.

    The caller ends every alarm of the lease that this look did not raise.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        lease_id: LeaseId,
        card: Card | None,
        *,
        look_s: float,
        done: Callable[[str], None],
        provider: Literal["answers", "silent"] = "answers",
    ) -> None:
        self._tenancy = tenancy
        self._lease_id = lease_id
        self._card = card
        self._look_s = look_s
        self.told = LeaseAlarms(tenancy.ledger, lease_id, done, provider=provider)
        self._lease_ender = LeaseEnder(tenancy, self.told, look_s=look_s)
        self._work_end = WorkEnd(tenancy, self.told)
        self.is_busy = False
        """Whether a job runs on the box, and the watchdog waits for its end."""
        self.again_at: datetime | None = None
        """When to look at this lease again, if that is before the next look at all leases."""

    async def attend(self) -> None:
        """Take the next step for the lease: recover it, continue its end, report it as parked, or look at its box.

        Raises:
            LeaseHeld: another process is acting on the lease right now.
        """
        lease = self._tenancy.ledger.lease(self._lease_id)
        if not lease.state.live:
            if may_recover(self._tenancy.context, lease):
                await self._recover(lease)
            return
        if self._card is not None and self._card.alarm:
            self.told.alarm("standing", self._card.alarm, Level.WARNING)
        if lease.state is LeaseState.INTENDED:
            return  # This lease was already updated by the provider's list.
        if may_recover(self._tenancy.context, lease) and not self._has_notice(lease):
            await self._recover(lease)
        lease = self._tenancy.ledger.lease(lease.id)
        if needs_no_start(self._tenancy.context, lease) and await self._ends_what_moved(lease):
            return
        if lease.state is LeaseState.TERMINATING:
            await self._lease_ender.go_on_ending(lease)
        elif lease.parked_at is not None:
            await self._lease_ender.report_parked(lease)
        else:
            await self._running(lease)

    def _wakes(self, lease: Lease) -> bool:
        """Whether the provider had stopped the box, and its last list shows that the box is booting again."""
        boots = self._card is not None and self._card.phase == "booting"
        events = self._tenancy.ledger.events(lease.id)
        return boots and lease.ready_at is not None and recorded_fate(events) is not None

    async def _running(self, lease: Lease) -> None:
        if lease.ready_at is None:
            await self._make_ready(lease)
            lease = self._tenancy.ledger.lease(lease.id)
            now = self._tenancy.clock.now()
            if not lease.state.live or (lease.ready_at is None and now < lease.terms.deadline_at):
                return
            if lease.ready_at is None and self._boots_to_end(lease, now):
                words = "its box was started once after its end, and boots"
                self.told.alarm("boots", f"{words}; it bills {rate_words(lease)}", Level.NOTICE)
                return
        begun, since = self._tenancy.clock.now(), self._tenancy.ledger.newest_event()
        seen = BoxLook()
        if self._outrun(lease, begun, BoxLook()) is None and self._wakes(lease):
            # A box that boots cannot be asked yet. That is no error, but a person is told, because the box bills.
            if "boots" not in self.told.raised:
                words = state_words(lease, self._tenancy.ledger.events(lease.id))
                self.told.alarm("boots", words, Level.NOTICE)
            return
        if self._outrun(lease, begun, BoxLook()) is None:
            # A look may take long. Give it no more time than the lease has left.
            seen = await self._within(lease, self._look_at_box(lease))
        else:
            seen = await self._within(lease, self._look_at_clock(lease))
        # During the look, the owner may have given the lease more time or more work.
        lease, now = self._tenancy.ledger.lease(lease.id), self._tenancy.clock.now()
        if lease.state is not LeaseState.ACTIVE or lease.parked_at is not None:
            return
        if (vain := waits_in_vain(self._tenancy.context, lease)) is not None:
            self.told.alarm("no work", f"{vain}; it bills {rate_words(lease)}", Level.WARNING)
        if self._was_given_work(lease, since=begun):
            seen = replace(seen, idle_s=None)
        cause = self._outrun(lease, now, seen)
        if cause is not None and cause.term == "deadline" and self._clocks_differ(lease, seen):
            return
        if cause is not None and cause.term == "idle" and lease.terms.when_idle == "alarm":
            self.told.alarm("idle", f"{cause.words}, {rate_words(lease)}", Level.WARNING)
        elif cause is not None:
            await self._lease_ender.end(lease, cause)
            return
        if seen.work is not None and self._has_notice(lease):
            await self._heed(lease)
        elif seen.work is not None and await self._launched_again(lease, seen.work):
            self.is_busy = True
        elif seen.work is not None:
            waits = lease.terms.when_done != "keep" or self._may_be_taken(lease)
            self.is_busy = bool(seen.work.busy) and waits
            self.again_at = await self._work_end.act_on_work(lease, seen.work, after_line=since)
            if seen.work.busy and awaits_first_snapshot(self._tenancy.ledger, lease):
                # If the box is taken, the work since the newest checkpoint that is here has to be done again. So the
                # first checkpoint is fetched before the next look at all leases.
                self.is_busy, soon = False, self._tenancy.clock.now() + _FIRST_LOOKS
                self.again_at = min(filter(None, (self.again_at, soon)))
            if "done" not in self.told.raised and not seen.work.busy:
                self._tell_what_will_not_end(lease)
        if cause is None and is_near(lease, now):
            left_s = (lease.terms.deadline_at - now).total_seconds()
            self.told.alarm(
                "near",
                f"it ends in {left_s / 60:.0f} min; {Command('extend', lease.id, hours='N')} moves its deadline",
                Level.WARNING,
            )

    def _boots_to_end(self, lease: Lease, now: datetime) -> bool:
        """Whether the box was started for its end so short a time ago that it may still boot."""
        at = last_start_at(lease, self._tenancy.ledger.events(lease.id))
        return at is not None and now - at < _BOOTS_WITHIN

    def _outrun(self, lease: Lease, now: datetime, seen: BoxLook) -> Outrun | None:
        """Return the term that the lease has exceeded; None if there is none.

        The time that it takes to end the lease is reserved. `seen` is what a look has shown.
        """
        events = self._tenancy.ledger.events(lease.id)
        met = outrun(
            lease,
            now,
            look_s=self._look_s,
            end_s=end_reserve_s(lease, events, to_come_bytes=seen.to_come_bytes),
            bytes_usd=charged_bytes_usd(newest_bill(events)),
            idle_s=seen.idle_s,
        )
        return as_it_was(met, events)

    def _has_notice(self, lease: Lease) -> bool:
        """Whether the box still runs, and has the notice that its platform will take it back."""
        events, now = self._tenancy.ledger.events(lease.id), self._tenancy.clock.now()
        runs = lease.state is LeaseState.ACTIVE and lease.parked_at is None
        return runs and is_being_taken(events, now)

    def _may_be_taken(self, lease: Lease) -> bool:
        """Whether the platform may take the box, and gives notice first.

        Such a box is also asked between two looks at all leases.
        """
        firm = lease.quote is not None and not lease.quote.offer.interruptible
        return not firm and bool(self._tenancy.context.profile(lease.provider).notice_s)

    async def _heed(self, lease: Lease) -> None:
        """Tell a person of the notice, and begin to continue the work elsewhere while the box still exists."""
        heard = notice_on_record(self._tenancy.ledger.events(lease.id))
        assert heard is not None
        events, now = self._tenancy.ledger.events(lease.id), self._tenancy.clock.now()
        notice_s = self._tenancy.context.profile(lease.provider).notice_s
        words = (
            f"its platform is taking the box back: the box was told so at {heard.at:%H:%M:%S} UTC"
        )
        if heard.jobs:
            # Only the jobs' files show whether they saved.
            has = "were asked to save, and have ended" if heard.ended else "were asked to save"
            words += f": its jobs {has} ({', '.join(map(quote_text, heard.jobs[:3]))}); {self._newest_here(lease)}"
        if heard.stored_files:
            words += f"; in the store: {some(heard.stored_files, 'file')}"
        if lease.terms.recover:
            words += "; its work goes on elsewhere, as its terms say"
        else:
            words += (
                f"; {resume_step(lease, events, now)} starts it again later, where its disk is kept"
            )
        unclaimed = known_unclaimed(self._tenancy.ledger, lease)
        before = notice_step(lease, events, notice_s, now, unclaimed) if unclaimed else None
        if before is not None:
            words += f"; {before}"
        self.told.alarm("preemption", words, Level.NOTICE)
        self.again_at = self._tenancy.clock.now() + timedelta(seconds=_NOTICE_LOOK_S)
        if may_recover(self._tenancy.context, lease):
            await self._recover(lease, wait_s=0, again_s=_NOTICE_LOOK_S)
        if heard.ended or not heard.jobs:
            await self._use_the_notice(lease)

    async def _use_the_notice(self, lease: Lease) -> None:
        """Read the box in full while it still answers, and end it if its work goes on elsewhere.

        Once the box is stopped, reading it would need a start that costs money. The box is ended only if all its
        files are here. If its work does not go on elsewhere, the box is kept.
        """
        context = self._tenancy.context
        await read_while_it_answers(context, lease)
        await self._ends_what_moved(lease)

    async def _ends_what_moved(self, lease: Lease) -> bool:
        """End the box if its work goes on elsewhere and all its files are here. Return whether it has ended.

        If a teardown was refused after the box was read, do not try again.
        """
        events = self._tenancy.ledger.events(lease.id)
        if went_on(events) is None or read_in_notice(events) is None:
            return False
        for _, event in reversed(events):
            if isinstance(event, timeline.Refused):
                return False
            if isinstance(event, timeline.ReadInNotice):
                break
        return await self._lease_ender.tear_down(lease) is None

    async def _launched_again(self, lease: Lease, work: Work) -> bool:
        """If the box runs again, relaunch the jobs that were cut off when it was taken.

        Return whether any was launched.

        If the job belongs to a run (one `run` command), take the next step of that run. While another process works on
        the run, leave the step to that process.
        """
        ledger = self._tenancy.ledger
        if work.busy or not may_launch_again(self._tenancy.context, lease):
            return False
        cut, run = cut_off_jobs(ledger, lease), open_run_of(ledger, lease)
        try:
            if run is not None and any(job.id.startswith(run) for job, _ in cut):
                from gpu_tenant.errands.drive import start_again

                started = await start_again(self._tenancy, run, lease.id)
                again = [started] if started is not None else []
            else:
                again = await launch_cut_off_again(self._tenancy.context, lease.id)
        except LeaseHeld:
            return False  # the holder also sees which jobs were cut off
        except TenantError as trouble:
            words = f"its box runs again, but its job could not be launched again: {trouble.message}; {trouble.remedy}"
            self.told.alarm("relaunch", words, Level.WARNING)
            return False
        for job, name in again:
            self.told.report(
                f"its provider took its box while the job {quote_text(job)} ran, and the box runs again: the job was "
                f"launched again as {quote_text(name)}, and continues from what its disk kept"
            )
        return bool(again)

    def _newest_here(self, lease: Lease) -> str:
        """Say which of the jobs' files were copied here last, according to the ledger. The box may have newer ones."""
        came = (timeline.Snapped, timeline.Collected)
        for at, event in reversed(self._tenancy.ledger.events(lease.id, *came)):
            if isinstance(event, timeline.Collected):
                left = unclaimed_now(self._tenancy.ledger, lease)
                if left is None:
                    return f"all that it had at {at:%H:%M:%S} UTC is here"
                stays = (
                    f"1 file is not, because nobody has claimed it: {unclaimed_names(lease, left)}"
                    if left.count == 1
                    else f"{left.count:,} files are not, because nobody has claimed them: {unclaimed_names(lease, left)}"
                )
                ways = claim_words(lease, left)
                return f"all that is declared is here, as of {at:%H:%M:%S} UTC; {stays}; {ways}"
            if isinstance(event, timeline.Snapped) and event.files:
                names = [quote_text(name.removeprefix("work/")) for name in event.names[:2]]
                return f"the newest checkpoint that is here came at {at:%H:%M:%S} UTC: {', '.join(names)}"
        return "no checkpoint is here yet"

    def _was_given_work(self, lease: Lease, *, since: datetime) -> bool:
        work = timeline.Launched | timeline.Pushed | timeline.SettingUp | timeline.Preparing
        events = self._tenancy.ledger.events(lease.id)
        return any(isinstance(event, work) and at >= since for at, event in events)

    def _clocks_differ(self, lease: Lease, seen: BoxLook) -> bool:
        """Whether to ignore the deadline for now, because the box's clock says that time is left.

        If the clocks differ so, raise an alarm: one of them is wrong, and nothing here shows which. Once the alarm is a
        day old, believe this computer's clock. The guard on the box enforces the deadline by the box's own clock.
        """
        if seen.apart is None or seen.apart <= _CLOCKS_APART:
            return False
        now = self._tenancy.clock.now()
        if now - seen.apart >= lease.terms.deadline_at:
            return False
        open_now = self._tenancy.ledger.open_alarms()
        since = next((a.since for a in open_now if (a.lease_id, a.key) == (lease.id, "clock")), now)
        self.told.alarm(
            "clock",
            f"its deadline has passed by this computer's clock, which is {seen.apart} ahead of the box's: set "
            "this clock right; the guard on the box enforces the deadline by the box's own clock",
            Level.URGENT,
        )
        return now - since < timedelta(days=1)

    async def _within(self, lease: Lease, look: Awaitable[BoxLook]) -> BoxLook:
        """Await the look within the lease's remaining time. If it fails, raise an alarm and conclude nothing."""
        end_s = end_reserve_s(lease, self._tenancy.ledger.events(lease.id))
        left_s = time_left_s(lease, self._tenancy.clock.now(), end_s=end_s)
        try:
            async with asyncio.timeout(max(_LOOK_AT_LEAST_S, min(left_s, _LOOK_AT_MOST_S))):
                return await look
        except TimeoutError:
            self.told.alarm(
                "slow", "looking at its box took too long, and was given up", Level.WARNING
            )
        except LeaseHeld:
            raise
        except BoxTrouble as trouble:
            # A box that cannot be seen is not dead: conclude nothing, and do nothing to the box.
            await self._tell_unseen(lease, trouble)
        except TenantError as trouble:
            self.told.alarm("broke", f"{trouble.message}; {trouble.remedy}", Level.WARNING)
        except Exception as error:  # noqa: BLE001 - what a box answers must not keep its lease from ending
            self.told.alarm("broke", f"looking at its box failed: {error!r}", Level.URGENT)
        return BoxLook()

    async def _tell_unseen(self, lease: Lease, trouble: BoxTrouble) -> None:
        """Tell a person that the box could not be looked at, and what its provider knows of that."""
        if isinstance(trouble, BoxUnreachable):
            trouble = await why_silent(self._tenancy.context, lease, trouble)
        if isinstance(trouble, BoxStopped):
            if "standing" not in self.told.raised:  # that alarm says already that it is stopped
                self.told.alarm(UNREACHABLE, f"{trouble.message}; {trouble.remedy}", Level.WARNING)
            return
        why = f"its box may be running, {rate_words(lease)}"
        if self._has_notice(lease):
            why = f"its platform has said that it takes the box back; until it is stopped it bills {rate_words(lease)}"
        self.told.alarm(UNREACHABLE, f"{trouble.message}; {why}", Level.WARNING)

    async def _make_ready(self, lease: Lease) -> None:
        """Try to make the box ready. Give an unused box back if it was not ready in time, or is not what was quoted."""
        try:
            await try_ready(self._tenancy.context, lease.id)
        except (NotReady, PriceMoved) as trouble:
            self.told.alarm("standing", trouble.message, Level.WARNING)
            if lease.touched_at is None:
                await self._lease_ender.tear_down(lease)
        except (BoxTrouble, ProviderTrouble) as trouble:
            self.told.alarm("standing", f"{trouble.message}; {trouble.remedy}", Level.WARNING)

    # --- the box

    async def _look_at_box(self, lease: Lease) -> BoxLook:
        """Collect what is complete on the box. Returns what the look showed.

        Raises:
            BoxTrouble: the box could not be asked.
        """
        if lease.ready_at is None:
            return BoxLook()
        standing = await self._standing(lease)
        work = await self._work_end.work_seen(lease, standing)
        if self._work_end.is_due(lease, work):
            return BoxLook(
                None, self._apart(standing), work
            )  # The lease is ended right after this look, and ending it collects the work.
        anew = await rearm(self._tenancy.context, lease.id)
        if anew is not None:
            self.told.report(
                f"its guard was gone, as it is after a reboot, and was started again: {anew}"
            )
        idle_s = await self._idle_s(lease)
        to_come_bytes = await self._gather(lease, working=standing.live)
        return BoxLook(idle_s, self._apart(standing), work, to_come_bytes)

    async def _look_at_clock(self, lease: Lease) -> BoxLook:
        """Read the box's clock, and nothing else."""
        if lease.ready_at is None or lease.touched_at is None:
            return BoxLook()
        return BoxLook(None, self._apart(await self._standing(lease)))

    async def _standing(self, lease: Lease) -> Standing:
        """Ask the box for the state of its jobs.

        Also tell its guard when we will look again. That is at the deadline at the latest.
        """
        left_s = (lease.terms.deadline_at - self._tenancy.clock.now()).total_seconds()
        back_in_s = max(WATCHED_S, min(self._look_s, left_s) + _LATE_S)
        return await watch_actions.standing_of(self._tenancy.context, lease.id, back_in_s=back_in_s)

    def _apart(self, standing: Standing) -> timedelta | None:
        # In a rehearsal, our clock differs from the boxes' clocks on purpose.
        if standing.now is None or not self._tenancy.clock.shared_with_boxes:
            return None
        return timedelta(seconds=round(self._tenancy.clock.now().timestamp() - standing.now))

    async def _gather(self, lease: Lease, *, working: tuple[str, ...]) -> int:
        """Copy here what is available now. Return how many bytes of artifacts are still to come; 0 if unknown."""
        try:
            if lease.touched_at is not None and working:
                return await self._pull(lease)
            if has_news(self._tenancy.context, lease):
                gathered = await self._tenancy.collect(lease.id)
                if gathered.fetched_files:
                    aside = f"; {gathered.superseded}" if gathered.superseded else ""
                    self.told.report(f"collected {some(gathered.fetched_files, 'file')}{aside}")
                if gathered.not_stored:
                    self.told.alarm("store", gathered.not_stored, Level.WARNING)
        except JobRunning as trouble:
            if not self._has_notice(lease):
                self.told.alarm("gather", f"{trouble.message}; {trouble.remedy}", Level.WARNING)
            else:  # the queue would run the job again, but the box will be gone by then
                return await self._pull(lease)
        except BoxTrouble:
            raise
        except LeaseHeld:
            pass  # another process acts on the lease now; the next look fetches what is new
        except TenantError as trouble:
            # Report that the work cannot be fetched, and go on with the look.
            self.told.alarm("gather", f"{trouble.message}; {trouble.remedy}", Level.WARNING)
        except Exception as error:  # noqa: BLE001 - a failure here must not discard the measured idle time
            self.told.alarm("gather", f"fetching its work failed: {error!r}", Level.URGENT)
        return 0

    async def _pull(self, lease: Lease) -> int:
        seen = await pull(self._tenancy.context, lease.id)
        for words in seen.words:
            self.told.report(words)
        return seen.to_come_bytes

    def _tell_what_will_not_end(self, lease: Lease) -> None:
        """Tell the owner, while there is time, what would keep the box from being ended."""
        if not self._tenancy.ledger.lease(lease.id).state.live:
            return
        losses = kept_back(self._tenancy.context, lease.id)
        if losses:
            self.told.alarm(
                "unclaimed",
                f"its work is over, and it cannot be ended by itself, because of {'; '.join(losses)}",
                Level.WARNING,
            )

    async def _idle_s(self, lease: Lease) -> float | None:
        if lease.terms.idle_h is None:
            return None
        try:
            activity = await watch_actions.activity(self._tenancy.context, lease.id)
        except BoxTrouble:
            return None
        if activity.phase == "suspicious":
            self.told.alarm(
                "suspicious", f"the box says {quote_text(activity.words)}", Level.WARNING
            )
        return None if activity.phase == "unknown" else activity.idle_s

    async def _recover(
        self, lease: Lease, *, wait_s: float = WAIT_S, again_s: float | None = None
    ) -> None:
        """Continue the work of a lost lease on another box, if its terms say so."""
        again_s = self._look_s if again_s is None else again_s
        try:
            card = await recover(self._tenancy.context, lease.id, wait_s=wait_s, again_s=again_s)
        except LeaseHeld:
            raise
        except NotReady as boots:
            # The box has its GPU again. Once it answers, the work goes on there.
            self.told.alarm("boots", f"{boots.message}; {boots.remedy}", Level.NOTICE)
        except Refused as refused:
            # The provider may just have shown that the box runs again. Then the work goes on there, and no alarm is
            # needed.
            if may_recover(self._tenancy.context, self._tenancy.ledger.lease(lease.id)):
                self.told.alarm("recovery", f"{refused.message}; {refused.remedy}", Level.URGENT)
        except TenantError as trouble:
            self.told.alarm("recovery", f"{trouble.message}; {trouble.remedy}", Level.URGENT)
        else:
            has_gone_on = gone_on(self._tenancy.ledger, lease) is not None
            if card.alarm:
                # While it is under way, nobody has to do anything.
                level = Level.WARNING if has_gone_on else Level.NOTICE
                self.told.alarm("recovery", card.alarm, level)
            if has_gone_on:
                begins = f": {card.recovered}" if card.recovered else ""
                self.told.report(f"its work continues under the lease {card.lease}{begins}")
