"""Ends a lease whose work is done.

It uses the same operations and the same checks as an end at the deadline, and skips none of them.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from gpu_tenant.artifacts.unbegun_jobs import unconfirmed_jobs
from gpu_tenant.box.caretaker import ENDED, JobState, Standing
from gpu_tenant.box.setup import settle_setup
from gpu_tenant.box.setup_record import setup_jobs, setup_of
from gpu_tenant.domain import timeline
from gpu_tenant.domain.alarm import END_NEWS, Level
from gpu_tenant.domain.end_reserve import STOP_GRACE_S
from gpu_tenant.domain.errors import (
    BoxTrouble,
    JobRunning,
    LeaseHeld,
    Refused,
    StillWanted,
    StoreTrouble,
    TenantError,
)
from gpu_tenant.domain.model import JobId, Lease, LeaseState
from gpu_tenant.domain.reconcile import rate_words
from gpu_tenant.domain.rhythm import silence_of
from gpu_tenant.domain.sweep_placement import OVER
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import usd_words
from gpu_tenant.jobs.multinode.launcher import gangs
from gpu_tenant.leases import watch_actions
from gpu_tenant.leases.end import end_verified
from gpu_tenant.leases.inspection import occupancy
from gpu_tenant.leases.launch_again import again_step, cut_off_job
from gpu_tenant.leases.presence import last_there
from gpu_tenant.leases.work_done import (
    Step,
    Work,
    ends_of,
    failures,
    last_launch_at,
    lingers_since,
    next_step,
    relaunch_until,
)
from gpu_tenant.service import Tenancy
from gpu_tenant.sweeps.commands import must_be_reckoned, reckoned_of, tend_on
from gpu_tenant.watchdog.end_of_lease import LeaseAlarms
from gpu_tenant.watchdog.work_news import NEWS, wants_news

_LOG_BYTES = 32768
_LOOKS, _APART_S = 2, 2.0
"""Before it ends a box, the watchdog looks for people there this many times, this many real seconds apart."""


class WorkEnd:
    """Ends one lease once its work is done. It obeys the rule that no work may be lost, and the terms of the lease."""

    def __init__(self, tenancy: Tenancy, told: LeaseAlarms) -> None:
        self._tenancy = tenancy
        self._told = told

    async def work_seen(self, lease: Lease, standing: Standing) -> Work:
        """Return what is known of the lease's work, from what its box has just said about its jobs.

        If the ledger does not know yet that a job has ended, record it there.
        """
        ledger = self._tenancy.ledger
        await self._see_setup(lease, standing)
        self._tell_silence(standing)
        cells = self._cells(lease)
        await self._note_lost_answers(lease, standing)
        known = {end.job for end in ends_of(ledger.events(lease.id))}
        ours = {str(job.id) for job in ledger.jobs(lease.id) if job.launched_at} - cells - known
        for brief in standing.jobs:
            if brief.state in ENDED and brief.job in ours:
                await self._note_end(lease, JobId(brief.job), brief.state)
            elif brief.state == "lingering":
                ledger.job_ended(
                    lease.id, timeline.Lingers(job=brief.job), at=self._tenancy.clock.now()
                )
        if cells and not standing.live:
            await tend_on(
                self._tenancy.context, lease.id
            )  # What the sweep last heard from this box may be a minute old.
        return self._work(lease, standing)

    def _tell_silence(self, standing: Standing) -> None:
        """Tell of a job that has fallen silent. Nothing is done about it: it may wait, or log nothing on purpose."""
        for brief in standing.jobs:
            silence = silence_of(
                started_at=brief.started_at,
                log_mtime=brief.log_mtime,
                log_bytes=brief.log_bytes,
                now=standing.now or 0.0,
            )
            if brief.state == "running" and silence is not None:
                self._told.alarm(
                    f"silent:{brief.job}", f"of {brief.job}: {silence.words}", Level.NOTICE
                )

    async def _note_lost_answers(self, lease: Lease, standing: Standing) -> None:
        """If the answer to a launch was lost, but the box has started the job, record that the job was launched."""
        ledger = self._tenancy.ledger
        held = ledger.holder_of(lease.id)
        if held is not None and held.purpose == "launch":
            return  # Its answer may be on the way.
        begun = {brief.job for brief in standing.jobs if brief.state != "absent"}
        for job in unconfirmed_jobs(lease.id, ledger):
            if job.id in begun:
                status = await self._tenancy.context.caretaker(lease).status(
                    job.id, offset=0, limit=0, sample="plain"
                )
                ledger.note_launched(
                    job, at=self._tenancy.clock.now(), box_time_s=status.started_at
                )
                self._told.report(f"its box had started the job {job.id}, and the answer was lost")

    async def _see_setup(self, lease: Lease, standing: Standing) -> None:
        """If the box's setup has ended and nobody waited for it, record its end. If it failed, raise an alarm."""
        context = self._tenancy.context
        profile = context.profile(lease.provider)
        known = setup_of(context.ledger, lease, profile)
        states = {brief.job: brief.state for brief in standing.jobs}
        if known.state == "running" and states.get(str(known.job)) not in ("starting", "running"):
            known = await settle_setup(context.session(lease), ledger=context.ledger)
        if known.state == "failed":
            words = f"its box could not be set up: {known.why}; its box bills {rate_words(lease)}"
            self._told.alarm("setup", words, Level.WARNING)

    def _cells(self, lease: Lease) -> set[str]:
        """Return the jobs of the lease that are cells of a sweep. The sweep's table shows how they ended."""
        ledger = self._tenancy.ledger
        return {
            str(placement.job)
            for sweep in ledger.sweeps_on(lease.id)
            for placement in ledger.placements(sweep)
            if placement.lease_id == lease.id
        }

    async def _note_end(self, lease: Lease, job: JobId, state: JobState) -> None:
        """Write into the ledger that the job has ended: when, why, and how far it had come."""
        tenancy = self._tenancy
        told = timeline.JobEnded(job=job, state=state)
        try:
            status = await tenancy.context.caretaker(lease).status(
                job, offset=0, limit=0, sample="plain"
            )
            if status.ended_at is not None:
                ago_s = self._ago_s(lease, job, status.now - status.ended_at)
                told = told.model_copy(update={"ago_s": ago_s})
            seen = await tenancy.follow(
                lease.id, job, cursor=None, wait_s=0, limit_bytes=_LOG_BYTES
            )
            metrics = seen.progress.metrics if seen.progress else {}
            metric = next(
                (f"{quote_text(name)} {value:g}" for name, value in reversed([*metrics.items()])),
                None,
            )
            told = told.model_copy(update={"why": seen.why, "metric": metric})
        except TenantError:
            pass  # It is known that the job ended; the rest can be read in its log.
        tenancy.ledger.job_ended(lease.id, told, at=tenancy.clock.now())

    def _ago_s(self, lease: Lease, job: JobId, by_the_box: float) -> float:
        """Return how many seconds ago the job ended by the box's clock, but at most the time since its launch."""
        launched_at = next(
            (x.launched_at for x in self._tenancy.ledger.jobs(lease.id) if x.id == job), None
        )
        now = self._tenancy.clock.now()
        most_s = (now - (launched_at or now)).total_seconds()
        return round(max(0.0, min(by_the_box, most_s)), 3)

    def _work(self, lease: Lease, standing: Standing) -> Work:
        ledger = self._tenancy.ledger
        events = ledger.events(lease.id)
        launched_at, setups = last_launch_at(events), setup_jobs(events)
        ends = [end for end in ends_of(events) if end.job not in setups]
        if launched_at is None:
            return self._work_before_any_launch(lease, standing)
        since = lingers_since(events)
        lingering = [x.job for x in standing.jobs if x.state == "lingering" and x.job in since]
        busy = [job for job in standing.live if job not in lingering]
        failed = [*failures(ends, launched_at, events)]
        bad = {x.job for x in standing.jobs if x.exit_code != 0}
        failed += [
            f"the job {job} has {'failed' if job in bad else 'ended'}, but processes that it started still run"
            for job in lingering
            if job not in setups  # a service that the setup started may go on running
        ]
        over = [launched_at, *(end.at for end in ends), *(since[job] for job in lingering)]
        for sweep in ledger.sweeps_on(lease.id):
            still, wrong, heard = self._of_sweep(lease, sweep)
            busy, failed, over = [*busy, *still], [*failed, *wrong], [*over, *heard]
        for gang in gangs(events):
            still, wrong = self._of_gang(gang.job, gang.others(lease.id))
            busy, failed = [*busy, *still], [*failed, *wrong]
        return Work(
            launched=True,
            busy=tuple(busy),
            ended_at=max(over),
            failed=tuple(failed),
            relaunch_until=relaunch_until(ends, launched_at, events),
            seen_at=last_there(self._tenancy.context.home),
            lingering=tuple(lingering),
            idle=not standing.live,
        )

    def _work_before_any_launch(self, lease: Lease, standing: Standing) -> Work:
        """Return what is known of the work before any job was launched. A failed setup is treated like a failed job."""
        context = self._tenancy.context
        known = setup_of(context.ledger, lease, context.profile(lease.provider))
        if known.state != "failed" or standing.live:
            return Work(launched=False, busy=standing.live)
        ended = [at for at, x in context.ledger.events(lease.id) if isinstance(x, timeline.SetUp)]
        failed = (f"its box could not be set up: {known.why}",)
        return Work(
            launched=True,
            ended_at=max(ended),
            failed=failed,
            seen_at=last_there(self._tenancy.context.home),
            idle=True,
        )

    def _of_sweep(self, lease: Lease, sweep: str) -> tuple[list[str], list[str], list[datetime]]:
        """Return which cells of a sweep may still run on that lease, what went wrong there, and when cells ended."""
        table = reckoned_of(self._tenancy.context, sweep)
        # A cell that has not begun may still come to this box; a cell that runs on another box stays there.
        busy = [
            f"{row.cell} of {sweep}"
            for row in table.rows
            if row.state in ("waiting", "queued")
            or (row.lease == lease.id and row.state == "running")
        ]
        wrong = [
            f"the cell {row.cell} of {sweep} is {row.state}" + (f" ({row.why})" if row.why else "")
            for row in table.on(lease.id)
            if row.state == "failed" and table.settled_by is None
        ]
        heard = [
            p.said.heard_at
            for p in self._tenancy.ledger.placements(sweep)
            if p.lease_id == lease.id and p.said is not None and p.said.word in OVER
        ]
        return busy, wrong, heard

    def _of_gang(self, job: str, others: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """Return where the same job still runs on other leases, and where it failed."""
        busy: list[str] = []
        failed: list[str] = []
        for other in others:
            if not self._tenancy.ledger.lease(other).state.live:
                continue
            events = self._tenancy.ledger.events(other)
            end = next((end for end in ends_of(events) if end.job == job), None)
            if end is None:
                busy.append(f"{job} on {other}")
            elif end.state != "finished" and end.at >= (last_launch_at(events) or end.at):
                failed.append(f"the job {job} is {end.state} on {other}")
        return busy, failed

    # --- what is done about it

    def is_due(self, lease: Lease, work: Work) -> bool:
        """Whether to end or park the lease now because its work is done, and no earlier attempt has failed."""
        if any(alarm.key == "done" for alarm in self._tenancy.ledger.open_alarms_of(lease.id)):
            return False  # An alarm already says why an earlier attempt did not succeed.
        events = self._tenancy.ledger.events(lease.id)
        return next_step(lease, work, events, self._tenancy.clock.now()).does in ("end", "park")

    async def act_on_work(self, lease: Lease, work: Work, *, after_line: int) -> datetime | None:
        """Do what the lease's terms say about its work, if that is due. Return when to look at the lease again.

        `after_line` is the number of the newest line in the ledger before the box was asked. If work came after that
        line, the box is kept.
        """
        tenancy = self._tenancy
        events = tenancy.ledger.events(lease.id)
        step = next_step(lease, work, events, tenancy.clock.now())
        if step.does in ("end", "park"):
            step = await self._carried_out(lease, step, work, after_line)
        match step.because:
            case "refused":
                self._alarm(f"its work is done, but its box may not be ended: {step.words}", lease)
            case "again":
                self._alarm(
                    f"its work is done, but its box could not be ended yet: {step.words}", lease
                )
            case "failed":
                cut_off = cut_off_job(events) if work.relaunch_until is not None else None
                again = again_step(tenancy.ledger, lease, cut_off) if cut_off is not None else None
                on = f"; {again} again continues from what its disk kept" if again else ""
                self._alarm(f"{step.words}{on}", lease)
            case "busy" if work.lingering:
                self._alarm(
                    f"the job {work.lingering[0]} has ended, but processes that it started still run; {step.words}",
                    lease,
                )
            case "busy" if work.idle and step.does == "nothing":
                words = (
                    "nothing runs on its box now, but the box is kept until other work is over "
                    f"({', '.join(work.busy[:3])}); it bills {rate_words(lease)}"
                )
                self._told.alarm("waits", words, Level.NOTICE)
            case _:
                pass
        self._tell_ends(lease, step)
        return step.until

    def _alarm(self, words: str, lease: Lease) -> None:
        self._told.alarm("done", f"{words}; its box bills {rate_words(lease)}", Level.WARNING)

    async def _carried_out(self, lease: Lease, step: Step, work: Work, after_line: int) -> Step:
        """End or park the lease. If that fails, write why into the ledger. Returns what the terms ask for now."""
        ledger, clock = self._tenancy.ledger, self._tenancy.clock
        try:
            hands = await self._who_is_at_work(lease)
        except BoxTrouble as trouble:
            self._note(lease, "failed", trouble.message)
            return Step("wait", "again", trouble.message)
        if hands:
            self._alarm(
                f"its work is done, but somebody is at work on its box ({', '.join(map(quote_text, hands[:3]))}): the box is "
                "ended once they have left, or by another of the lease's terms",
                lease,
            )
            return Step("wait", "busy", "somebody is at work on its box")
        with ledger.hold(lease.id, "end", at=clock.now()):
            pass  # If another process holds the lease, stop here: this does not count as an attempt.
        self._note(
            lease,
            "begun",
            f"{step.words}; it is being {'parked' if step.does == 'park' else 'ended'}",
            step.words,
        )
        self._told.report(
            f"{step.words}: it is being {'parked' if step.does == 'park' else 'ended'}"
        )
        try:
            for job in work.lingering:
                await self._tenancy.stop_run(lease.id, job, grace_s=STOP_GRACE_S)
            await self._end_lease(lease, "park" if step.does == "park" else "end", after_line)
        except LeaseHeld:
            raise
        except StillWanted as wanted:
            self._told.report(wanted.message)
            return Step("wait", "busy", wanted.message)
        except TenantError as trouble:
            if ledger.lease(lease.id).state is not LeaseState.ACTIVE:
                # The teardown is permitted and begun. Each later look asks the provider again, unless a person has to
                # act. In that case the error says how.
                self._told.alarm("teardown", f"{trouble.message}; {trouble.remedy}", Level.URGENT)
                return step
            words = f"{trouble.message}; {trouble.remedy}"
            if await self._may_pass(lease, trouble):
                self._note(lease, "failed", words)
                return Step("wait", "again", words)
            self._note(lease, "refused", words)
            return Step("nothing", "refused", words)
        return step

    async def _may_pass(self, lease: Lease, trouble: TenantError) -> bool:
        """Whether the obstacle may disappear by itself. After most refusals, somebody has to act first."""
        if isinstance(trouble, JobRunning) or not isinstance(trouble, Refused):
            return True
        try:
            return bool((await watch_actions.standing_of(self._tenancy.context, lease.id)).live)
        except BoxTrouble:
            return True  # The end is also refused if the box cannot be asked, and the box may answer later.

    async def _who_is_at_work(self, lease: Lease) -> tuple[str, ...]:
        """Return who is logged in on the box, and which programs run there that no lease started.

        Raises:
            BoxTrouble: the box could not be asked.
        """
        if self._tenancy.context.profile(lease.provider).kind == "scheduler":
            return ()  # On a shared node, other people's logins do not concern us.
        found = set[str]()
        for look in range(_LOOKS):
            seen = await occupancy(self._tenancy.context, lease).look("others")
            now = {*seen.look.people, *seen.look.at_work} if seen.look else set[str]()
            # A login that an agent makes for one call is gone within a second; a person stays.
            found = now if not look else found & now
            if not found:
                break
            await asyncio.sleep(_APART_S)
        return tuple(sorted(found))

    async def _end_lease(self, lease: Lease, does: Literal["end", "park"], after_line: int) -> None:
        """Collect and store the lease's work. Then park its box, or prove that the work is saved and tear the box down.

        Raises:
            TenantError: something is in the way; the box is neither parked nor torn down.
        """
        tenancy = self._tenancy
        collected = await tenancy.collect(lease.id)
        if collected.superseded:
            self._told.report(collected.superseded)
        if collected.not_stored:
            raise StoreTrouble(
                collected.not_stored, remedy="the watchdog will try again to store what was kept"
            )
        if does == "park":
            await watch_actions.park_when_done(
                tenancy.context, lease.id, unless_wanted_after_line=after_line
            )
            self._told.report("its work is done, and its box is parked")
            return
        await must_be_reckoned(tenancy.context, tenancy.ledger.lease(lease.id))
        torn = await end_verified(tenancy.context, lease.id, unless_wanted_after_line=after_line)
        words = (
            f"its work is done, and its box was ended (ground: {torn.receipt.ground}); "
            f"it cost {usd_words(torn.receipt.spent_usd)}"
            f"{f'; the work: {outcome.words}' if (outcome := torn.receipt.outcome) else ''}"
        )
        self._told.report(words)
        self._told.alarm(END_NEWS, words, Level.NOTICE)

    def _note(
        self,
        lease: Lease,
        outcome: Literal["begun", "refused", "failed"],
        words: str,
        why: str | None = None,
    ) -> None:
        done = timeline.Done(outcome=outcome, words=words, why=why)
        self._tenancy.ledger.note(lease.id, done, at=self._tenancy.clock.now())

    # --- the news

    def _tell_ends(self, lease: Lease, step: Step) -> None:
        """Tell a person of each job that has just ended: its outcome, its progress, its cost, and what comes next."""
        if not wants_news(self._tenancy):
            return
        now, lease = self._tenancy.clock.now(), self._tenancy.ledger.lease(lease.id)
        for at, event in self._tenancy.ledger.events(lease.id):
            if isinstance(event, timeline.JobEnded) and now - at < NEWS:
                said = [f"the job {event.job} has ended: {event.state}"]
                said += filter(None, (event.why, event.metric))
                cost = self._tenancy.ledger.cost_usd(lease, now)
                said.append(f"{usd_words(cost, 'an unknown sum')} so far")
                back = watch_actions.kept_back(self._tenancy.context, lease.id)
                said.append(_next_words(lease, step, back))
                self._told.alarm(f"job {event.job}", "; ".join(said), Level.NOTICE)


def _next_words(lease: Lease, step: Step, kept_back: Sequence[str]) -> str:
    if not lease.state.live:
        return "its box is ended"
    if lease.parked_at is not None:
        return "its box is parked"
    match step.because:
        case "grace" | "done" if kept_back and lease.terms.when_done != "park":
            return f"its box cannot be ended by itself, because of {'; '.join(kept_back)}"
        case "grace" | "done":
            return (
                f"its box will be {'parked' if lease.terms.when_done == 'park' else 'ended'} next"
            )
        case "busy":
            return "its box is kept while there is more to do"
        case "keep" | "unused":
            return f"its box goes on billing until {lease.terms.deadline_at:%Y-%m-%d %H:%M} UTC, or until another term ends it"
        case _:
            return step.words
