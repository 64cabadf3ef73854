"""Drives an errand: derives the next step from the ledger, carries it out, and repeats this until the errand ends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from gpu_tenant.artifacts.left_behind import left_out_words, missing_on_box, reasons_of
from gpu_tenant.artifacts.push import ASKS, sendable
from gpu_tenant.artifacts.unclaimed import unclaimed_patterns
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.end_reserve import QuotedBudget, lost_step, resume_step
from gpu_tenant.domain.errand import (
    RENTED,
    Agreed,
    EndShown,
    ErrandRequest,
    Gated,
    MoreDeclared,
    Smoked,
    Unprepared,
)
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTrouble,
    BoxUnreachable,
    CredentialRefused,
    HostLeftOut,
    JobRunning,
    LeaseHeld,
    Limit,
    NoCapacity,
    NoQuota,
    NotReady,
    OwnerMustAct,
    PriceMoved,
    ProviderSilent,
    ProviderTrouble,
    RateLimited,
    Refused,
    TenantError,
    Unverified,
)
from gpu_tenant.domain.interruption import (
    BY_ITS_PROVIDER,
    fate_met,
    is_being_taken,
    recorded_fate,
    who_stopped_it,
)
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.offers import Quote
from gpu_tenant.domain.outcome import Grade
from gpu_tenant.domain.ports import Market
from gpu_tenant.domain.reconcile import GOES_ON, rate_words
from gpu_tenant.domain.rental import over_words, rental_is_over
from gpu_tenant.domain.stop_cause import Term
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.terms import OnFailure, RentRequest, is_there, seconds_of, unasked_bytes
from gpu_tenant.domain.trackers import kept_by_default
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import in_words, some, span, usd_words
from gpu_tenant.errands.answers import ILL_ENDED, ErrandStatus, RentalPlan, Unanswered
from gpu_tenant.errands.plan import Planned, too_small
from gpu_tenant.errands.steps import MOST_BOXES_TRIED, WORDS, Known, Step, next_step
from gpu_tenant.files.patterns import (
    literal_pattern,
    matches_kept_name,
    patterns_alike,
    require_narrow,
    require_patterns,
    told_apart,
)
from gpu_tenant.files.requirements_text import paths_of_a_computer
from gpu_tenant.files.worktree import LeftOut, left_out_reasons
from gpu_tenant.jobs.cost_forecast import whole_s
from gpu_tenant.jobs.launch import pipe_words
from gpu_tenant.leases.attempts import Attempts, attempts_at, attempts_words
from gpu_tenant.leases.cards import TornDown
from gpu_tenant.leases.condition import recorded_end
from gpu_tenant.leases.last_start import LETS_IN_S, start_to_end
from gpu_tenant.leases.offers import Found, Ranked, lacks_every_key
from gpu_tenant.leases.presence import last_there, note_presence
from gpu_tenant.leases.provision import terms_by_quote
from gpu_tenant.leases.read_in_notice import needs_no_start, read_while_it_answers
from gpu_tenant.leases.recovery_plan import gone_on, successor
from gpu_tenant.leases.recovery_words import tree_words
from gpu_tenant.leases.rental_plan import most_by_quotes
from gpu_tenant.leases.speaker import speaker
from gpu_tenant.leases.taken_step import WAY_HOME_H, known_unclaimed, notice_step
from gpu_tenant.leases.unasked import takes_words
from gpu_tenant.leases.wanted_place import copy_line
from gpu_tenant.leases.watch_actions import has_news, park_overdue, standing_of
from gpu_tenant.leases.watchdog_heartbeat import others_look
from gpu_tenant.leases.whole_work import whole_work_words
from gpu_tenant.leases.won_back import not_yet
from gpu_tenant.leases.work_done import warm_words

if TYPE_CHECKING:
    from gpu_tenant.artifacts.collect import Collected
    from gpu_tenant.domain.receipt import Receipt
    from gpu_tenant.errands.verbs import Verbs
    from gpu_tenant.jobs.monitor import Watched
    from gpu_tenant.jobs.smoke import SmokeReceipt

_TURN_S = 1.0
"""A process that waits for another process with the same errand checks this often, in real time."""
_AGAIN_S, _TRIES = 10.0, 60
"""After a temporary failure, a step is tried again after this many seconds, at most this many times in a row."""
_TOLD_EACH = 6
"""While a step is tried again and again, this is said once for this many tries: about once a minute."""
_TWIN_TRIES = 6
"""At the end, a second box of the same request is given back. At most this many attempts are made."""
_LOG_BYTES = 2000
_SMOKE_LIMIT_S = 120.0
_BOOT_S = 3600.0
_LEAST_GATE_S = 20.0
"""With less time left in this call, the try on the GPU waits for the next call."""
_PREPARE_S = 45.0
_SAYS_WITHIN = timedelta(seconds=60)
"""After a job was killed, its box's provider is asked for this long whether it took the box."""
_AHEAD = ("yes", "agent")
"""An agreement by one of these may have been given before the plan was seen.

Such an agreement does not cover a sum that is too small for the work.
"""
_SOON_OVER = (BoxUnreachable, ProviderSilent, RateLimited, NotReady)
_NOT_HAD = (NoCapacity, NoQuota, PriceMoved, NotReady, HostLeftOut)
_PLACES = 3
"""At most this many artifacts are named with their place on this computer. The others are next to them."""
_NEWER = 3
"""At most this many of the files that changed since the smoke test are named."""
_QUOTES = 3
"""At most this many quotes are tried, the best first."""


class Face(Protocol):
    """How an errand communicates with the person or agent who asked for it."""

    @property
    def agrees_ahead(self) -> bool:
        """Whether they have agreed to the plan before they see it."""

    def hear(self, words: str) -> None:
        """Report what is being done now."""

    async def agree(self, plan: RentalPlan) -> str | None:
        """Return who agrees to the plan. None if nobody agrees now."""

    async def follow(self, lease: str, job: str) -> Watched:
        """Watch the job until it has ended, or as long as the face has time."""

    async def answer(self, asks: Unanswered) -> Answers | None:
        """Return a person's answer about files that are neither declared nor discarded. None if there is no answer."""


class Answers:
    """A person's answer about undeclared files, as patterns: what is kept, and what may be lost."""

    def __init__(self, artifacts: Sequence[str] = (), discard: Sequence[str] = ()) -> None:
        self.artifacts, self.discard = tuple(artifacts), tuple(discard)


def earlier_attempts(
    tenancy: Verbs, run: str, directory: str, live: Literal["spent", "promised"] = "spent"
) -> Attempts:
    """Add up what the leases with that work tree have cost, those of the errand itself left out. See `attempts_at`."""
    own = frozenset(lease.id for lease in tenancy.ledger.leases_of_errand(run))
    return attempts_at(tenancy.context, directory, but=own, live=live)


def errand_now(tenancy: Verbs, run: str) -> ErrandRequest:
    """Return the errand. If it has a sum for all runs of its directory, it may spend what the others have left of it."""
    errand = tenancy.ledger.errand(run)
    if errand.max_usd_all is None:
        return errand
    others = earlier_attempts(tenancy, run, errand.directory, "promised")
    left = max(Decimal(0), errand.max_usd_all - others.usd)
    return errand.model_copy(
        update={"max_usd": left if errand.max_usd is None else min(left, errand.max_usd)}
    )


def facts_of(tenancy: Verbs, run: str) -> Known:
    """Read everything that the ledger has recorded about the errand."""
    from gpu_tenant.leases.recover import may_recover

    ledger = tenancy.ledger
    leases = ledger.leases_of_errand(run)
    lease = _current(tenancy, leases)
    jobs = [job for job in ledger.jobs(lease.id) if _is_of(job.id, run)] if lease else []
    begun = successor(ledger, lease) if lease else None
    return Known(
        errand=errand_now(tenancy, run),
        events=ledger.errand_events(run),
        leases=leases,
        lease=lease,
        lines=ledger.events(lease.id) if lease else (),
        job=jobs[-1] if jobs else None,
        may_recover=lease is not None
        and (may_recover(tenancy.context, lease) or (begun is not None and begun.state.live)),
        may_relaunch=lease is not None and tenancy.clock.now() < lease.terms.deadline_at,
        is_being_taken=lease is not None
        and is_being_taken(ledger.events(lease.id), tenancy.clock.now()),
    )


def _is_of(job: str, run: str) -> bool:
    """Whether the job belongs to the errand: it is the first one, or one that was launched again on the same box."""
    return job == run or (job.startswith(f"{run}-") and job.removeprefix(f"{run}-").isdigit())


def _try_again(facts: Known, run: str) -> str:
    """Say how the work of a failed job is tried again on its box, as long as that stays."""
    assert facts.lease is not None
    if facts.tried_tree is not None:
        again = Command("run", resume=run)
        return f"correct it here, then {again}, or the same line, tries again there"
    lease = facts.lease.id
    again = Command("launch", lease=lease, artifact="PATTERN", then="COMMAND")
    return f"{Command('push', 'DIR', lease)}, then {again} tries again there"


def _ends_now(lease: str) -> str:
    return f"{Command('teardown', lease)} ends it now"


def _name_again(job: str, run: str) -> str:
    """Return the name under which the job is launched again on the same box. A box starts each name only once."""
    count = job.removeprefix(run).removeprefix("-")
    return f"{run}-{int(count or 1) + 1}"


def _current(tenancy: Verbs, leases: Sequence[Lease]) -> Lease | None:
    """Return the lease under which the work is done.

    A lease that got no box, or whose box was given back unused, does not count.
    """
    had = [
        lease
        for lease in leases
        if lease.recovers is None and (lease.state.live or lease.touched_at is not None)
    ]
    lease = had[-1] if had else None
    while lease is not None and (later := gone_on(tenancy.ledger, lease)) is not None:
        lease = later
    return lease


async def _start(tenancy: Verbs, facts: Known, run: str) -> str:
    """Start the errand's job on its box, or start it again there after an interruption. Returns the job's name."""
    errand, name = facts.errand, facts.job.id if facts.job is not None else run
    assert facts.lease is not None
    if facts.was_cut_off or facts.job_state in ENDED:
        name = _name_again(name, run)
    kept, given_up = kept_by_default(facts.artifacts, facts.discard)
    await tenancy.launch_detached(
        facts.lease.id,
        errand.command,
        list(kept),
        list(given_up),
        list(errand.env),
        None,
        name,
        stalled_after_s=seconds_of(errand.stalled_after) if errand.stalled_after else None,
    )
    return name


async def start_again(tenancy: Verbs, run: str, lease: str) -> tuple[str, str] | None:
    """Launch the errand's job again on its box, after the provider took the box and it runs again.

    Returns the old and the new name of the job. None if this is not the errand's next step. Nobody else can work on the
    errand at the same time, and the new name is the one that the errand itself would choose.

    Raises:
        LeaseHeld: another process works on the errand or on its lease, and will do this.
    """
    with tenancy.context.hold_lease(run, "run"):
        facts = facts_of(tenancy, run)
        if facts.lease is None or facts.lease.id != lease or facts.job is None:
            return None
        if not facts.was_cut_off or next_step(facts) != "launch":
            return None
        return facts.job.id, await _start(tenancy, facts, run)


class Drive:
    """One process's work on one errand."""

    def __init__(
        self, tenancy: Verbs, run: str, face: Face, *, wait_s: float | None = None
    ) -> None:
        self._tenancy, self._run, self._face = tenancy, run, face
        self._errand = errand_now(tenancy, run)
        self._until_s = None if wait_s is None else asyncio.get_running_loop().time() + wait_s
        self._answered: set[str] = set()
        self._told: set[str] = set()
        self._is_compared = False
        """Whether this process has checked that the files are those that the smoke test tried."""
        self._is_kept = False
        """Whether this process has collected the files of a failed job whose box is kept for some time."""
        self._named: str | None = None
        """The lease that was named in a message last."""
        self._not_again = ""
        """Why the smoke test of the corrected files failed, in words. Empty if it did not."""
        self._began_over = False
        """Whether the job had ended when this call began: then a call is a new try, if its files were corrected."""

    async def go_on(self) -> ErrandStatus:
        """Continue the errand until it ends, needs an answer, or the time of this call is over. Returns its state.

        Only one process at a time works on an errand. Another process waits for its turn, and then continues from
        what the first one has done.

        Raises:
            LeaseHeld: another process works on the errand, and there was no time to wait for it.
            TenantError: a step was refused. The errand stays at this step, and calling again continues it.
        """
        told = False
        while True:
            try:
                with self._tenancy.context.hold_lease(self._run, "run"):
                    return await self._steps()
            except LeaseHeld as busy:
                holder = self._tenancy.ledger.holder_of(self._run)
                if holder is None and not self._has_time():
                    raise
                if not self._has_time():
                    return self._standing("under way", next_step(self._facts()), busy.message)
                if holder is not None and not told:
                    self._face.hear(f"{holder.words}; this call waits, and then shows the result")
                    told = True
            await asyncio.sleep(_TURN_S)

    def note_shown(self, standing: ErrandStatus) -> None:
        """Record that the end was shown. From now on, the same command line begins a new errand."""
        if standing.step == "show":
            outcome = "receipt" if standing.ended else "lost"
            self._tenancy.ledger.note_errand(
                self._run, EndShown(outcome=outcome), at=self._tenancy.clock.now()
            )

    # --- the steps

    def _facts(self) -> Known:
        return facts_of(self._tenancy, self._run)

    def _has_time(self) -> bool:
        return self._until_s is None or asyncio.get_running_loop().time() < self._until_s

    def left_s(self, most: float) -> float:
        """Return how many seconds this call may still wait, but at most `most`."""
        if self._until_s is None:
            return most
        return max(0.0, min(most, self._until_s - asyncio.get_running_loop().time()))

    async def _steps(self) -> ErrandStatus:
        last: Step | None = None
        tries = 0
        self._began_over = next_step(self._facts()) == "end"
        while True:
            facts = self._facts()
            step = next_step(facts)
            if step != last:
                last, tries = step, 0
                if step not in ("smoke", "launch", "show", "over"):
                    self._face.hear(self._words(facts, step))
            try:
                standing = await self._do(facts, step)
            except (*_SOON_OVER, LeaseHeld) as trouble:
                # The box may answer later, or another process may be acting on its lease now.
                tries += 1
                if not self._has_time():
                    return self._standing("under way", step, trouble.message)
                if tries > _TRIES and not isinstance(trouble, LeaseHeld):
                    raise
                if tries % _TOLD_EACH == 1:
                    again = "trying again" if tries == 1 else f"still trying, {tries} times so far"
                    self._face.hear(f"{trouble.message}; {again}")
                await self._wait_a_little(trouble)
                continue
            except Refused:
                # Meanwhile, the watchdog may have done this step, or ended the lease.
                if next_step(self._facts()) == step:
                    raise
                continue
            if standing is not None:
                return standing
            if not self._has_time() and next_step(self._facts()) not in ("show", "over"):
                return self._standing("under way", next_step(self._facts()), "")

    async def _wait_a_little(self, trouble: TenantError) -> None:
        if isinstance(trouble, LeaseHeld):
            await asyncio.sleep(_TURN_S)
            return
        await self._tenancy.clock.sleep(_AGAIN_S)
        await asyncio.sleep(_TURN_S)

    async def _do(self, facts: Known, step: Step) -> ErrandStatus | None:
        """Carry out the step. Return None if the next step may follow, else the state in which this call must end."""
        match step:
            case "smoke":
                return await self._smoke()
            case "choose" | "rent" if not await self._is_as_tried(facts):
                return await self._smoke()
            case "choose":
                return await self._choose(facts)
            case "rent":
                return await self._rent(facts)
            case "boot":
                return await self._boot(facts)
            case "push":
                return await self._push(facts)
            case "prepare":
                return await self._prepare(facts)
            case "gate":
                return await self._gate(facts)
            case "launch":
                return await self._launch(facts)
            case "follow":
                return await self._follow(facts)
            case "recover":
                return await self._recover(facts)
            case "end":
                return await self._end(facts)
            case "show" | "over" if (said_no := self._declined(facts)) is not None:
                return said_no
            case "show":
                if (left := await self._end_earlier_boxes(facts)) is not None:
                    return left
                twin = await self._without_twin(facts)
                return await self._with_its_log(self._over(facts, step, twin=twin))
            case "over":
                return await self._with_its_log(self._over(facts, step))

    async def _smoke(self) -> ErrandStatus | None:
        errand, tenancy = self._errand, self._tenancy
        # These raise the errors that a push or a renting would raise later. A smoke test may take minutes.
        files, left_out = await self._sendable()
        await self._must_be_rentable()
        if self._is_market():
            await asyncio.to_thread(_refuse_paths_of_this_computer, files)
        if (pipe := pipe_words(errand.command)) is not None:
            self._face.hear(f"of the job's command: {pipe}")
        if errand.smoke == "none":
            self._note(Smoked(receipt="none"))
            return None
        from gpu_tenant.jobs.smoke import fingerprint, passed_before

        tree, newest_ns = await asyncio.to_thread(fingerprint, files)
        command = errand.smoke or errand.command
        known = passed_before(
            errand.directory, command, errand.include, tree, ledger=tenancy.ledger
        )
        if known is not None:
            ago = span((tenancy.clock.now() - known.at).total_seconds())
            self._face.hear(f"the smoke test of these files and this command passed {ago} ago")
            self._hear_of_doubts(known)
            self._note(Smoked(receipt=known.id, tree=tree, newest_ns=newest_ns))
            return None
        self._face.hear(WORDS["smoke"])
        if not errand.smoke:
            self._face.hear(
                f"the job's own command is its smoke test, and is stopped after {span(_SMOKE_LIMIT_S)}; "
                f"{Option('smoke', 'COMMAND')} names a shorter one"
            )
        receipt = await tenancy.run_smoke(
            errand.directory,
            command,
            _SMOKE_LIMIT_S,
            include=errand.include,
            hear=self._hear_of_smoke,
        )
        self._hear_of_doubts(receipt)
        if receipt.passed:
            self._note(Smoked(receipt=receipt.id, tree=tree, newest_ns=newest_ns))
            return None
        ended = (
            f"ran into its time limit: name a shorter command for it ({Option('smoke', 'COMMAND')})"
            if receipt.exit_status is None
            else f"ended with status {receipt.exit_status}"
        )
        lease = self._facts().lease
        costs = "nothing was rented, and it cost nothing"
        if lease is not None:
            costs = f"nothing was launched on {lease.id}"
        stays = ""
        then = f"correct it here, then {Command('run', resume=self._run)} or the same line again"
        if receipt.missing:
            reasons = reasons_of(receipt.missing, left_out_reasons(left_out))
            stays = f"; {left_out_words(receipt.missing, reasons, 'its copy, like a push,')}"
            then = _with_included(receipt.missing)
        elif receipt.left_out:
            stays = f"; its copy, like a push, left out: {'; '.join(receipt.left_out)}"
            then += (
                f"; if it needs what was left out: the same line with {Option('include', 'NAME')}"
            )
        return ErrandStatus(
            run=self._run,
            outcome="failed",
            step="smoke",
            words=f"the smoke test {ended}; {costs}{stays}",
            log=receipt.log_tail,
            log_of="the smoke test's log, from here",
            next=then,
        )

    def _hear_of_doubts(self, receipt: SmokeReceipt) -> None:
        for doubt in receipt.doubtful:
            self._face.hear(f"a job that ends like its smoke test would be doubted: {doubt}")

    async def _sendable(self) -> tuple[dict[str, Path], list[LeftOut]]:
        """Return the files that the push of this run would send now, and what it would leave out."""
        tenancy = self._tenancy
        return await sendable(
            Path(self._errand.directory),
            include=self._errand.include,
            include_secrets=(),
            guarded=tenancy.context.key_places.guarded,
            ledger=tenancy.ledger,
        )

    async def _is_as_tried(self, facts: Known) -> bool:
        """Whether the files are those that the smoke test tried. Also True if these are not on record."""
        tried = facts.tried_tree
        if self._is_compared or tried is None:
            return True
        files, _ = await self._sendable()
        from gpu_tenant.jobs.smoke import fingerprint

        tree, _ = await asyncio.to_thread(fingerprint, files)
        if tree == tried.tree:
            self._is_compared = True
            return True
        newer = await asyncio.to_thread(_newer, files, tried.newest_ns)
        named = in_words([quote_text(name) for name in newer[:_NEWER]], len(newer))
        which = f": {named}" if newer else ""
        self._face.hear(f"the files changed since the smoke test{which}; it runs again here")
        return False

    def _hear_of_smoke(self, seconds: float, last_line: str) -> None:
        """Report that the smoke test still runs, and how far it has come."""
        log = f"; its log says {quote_text(last_line)}" if last_line else "; its log is empty"
        self._face.hear(f"the smoke test has run for {span(seconds)}{log}")

    async def _choose(self, facts: Known) -> ErrandStatus | None:
        if facts.tried >= MOST_BOXES_TRIED:
            raise NoCapacity(
                f"{facts.tried} boxes were given back unused: none passed the audit",
                remedy=f"{Command('hosts')} says why; change the order, and start a new run",
            )
        if not self._is_market():
            self._note(Agreed(by="free"))
            return None
        plan, before = await self._plan(facts), facts.agreed
        stands = (
            before is not None
            and before.most_usd_h is not None
            and plan.most_usd_h is not None
            and plan.most_usd_h <= before.most_usd_h
        )
        if not stands and await self._hear_of_undeclared(plan):
            return None  # the plan is made again, with the new declarations
        by = before.by if stands and before is not None else await self._face.agree(plan)
        if plan.too_small and by in _AHEAD:
            raise Refused(plan.lines[0], remedy=plan.too_small)
        if by is not None and not stands:
            self._tenancy.context.owner.must_be_agreed(plan.spending)
        if by is None:
            return ErrandStatus(
                run=self._run,
                outcome="asks",
                step="choose",
                words="nothing is rented before somebody agrees to this",
                plan=plan,
                next=_agree_words(plan),
            )
        most = before.most_usd_h if stands and before is not None else plan.most_usd_h
        self._note(Agreed(quotes=plan.quotes, most_usd_h=most, by=by))
        return None

    def _is_market(self) -> bool:
        """Whether the box is rented by a quote, and not taken from the owner or from a provider without offers."""
        if self._errand.on == RENTED:
            return True
        if self._errand.target is not None:
            return False
        context = self._tenancy.context
        context.set_up(self._errand.on)
        return isinstance(context.connectors[self._errand.on], Market)

    async def _plan(self, facts: Known) -> RentalPlan:
        """Search the offers, and return the plan: which ones would be rented, and on which terms.

        Raises:
            NoCapacity: no offer fits.
            Refused: all fitting offers cost more than the sum that may be spent.
        """
        errand, tenancy = self._errand, self._tenancy
        found, chosen, quotes = await self._fitting(facts)
        context, smoked = tenancy.context, self._smoke_receipt(facts)
        from gpu_tenant.jobs.smoke import undeclared

        limit = unasked_bytes(errand.unasked_gib)
        loose = undeclared(smoked, facts.artifacts, facts.discard, limit=limit)
        planned = Planned(context, facts, chosen, quotes[0], self._asked(is_market=True), smoked)
        lines = planned.lines(
            order=found.order,
            earlier=earlier_attempts(tenancy, self._run, errand.directory),
            undeclared=loose,
        )
        return RentalPlan(
            run=self._run,
            lines=tuple(lines),
            headline=planned.headline(),
            brief=planned.brief(undeclared=loose),
            quotes=tuple(quote.id for quote in quotes),
            most_usd_h=max(quote.cap_usd_h for quote in quotes),
            most_usd=errand.max_usd,
            by_deadline_usd=most_by_quotes(
                quotes, self._asked(is_market=True), self._tenancy.clock.now()
            ),
            has_free_bytes=all(quote.offer.price.has_free_bytes for quote in quotes),
            too_small=planned.what_suffices,
            undeclared=tuple(loose),
        )

    def _must_leave_money(self) -> None:
        """Check that the other runs of the directory leave this one what it was planned with, if they have a common sum.

        Raises:
            Limit: they leave less.
        """
        most = self._errand.max_usd_all
        if most is None:
            return
        left, planned = errand_now(self._tenancy, self._run).max_usd, self._errand.max_usd
        if left and planned and left >= planned:
            return
        others = earlier_attempts(self._tenancy, self._run, self._errand.directory, "promised")
        raise Limit(
            f"the other runs of {self._errand.directory} cost {others.usd_words}, and together they may cost at most "
            f"{usd_words(most)}",
            remedy=f"the same line with a higher {Option('max-usd-all')}, or without it",
        )

    async def _must_be_rentable(self) -> None:
        """Check that a box for the errand could be rented now, as far as this is known before the smoke test.

        Raises:
            BadRequest: its names or its terms are wrong.
            CredentialRefused: no platform can be asked, because there is no key.
            NoCapacity: no offer fits.
            Refused: all fitting offers cost more than the sum that may be spent.
            Limit: the owner's limits leave no room for any of them.
        """
        facts, is_market = self._facts(), self._is_market()
        asked = self._asked(is_market=is_market)
        if not is_market or facts.lease is not None or facts.agreed is not None:
            return
        self._must_leave_money()
        _, _, quotes = await self._fitting(facts)
        most, paid = self._errand.max_usd, None
        if most is not None and self._face.agrees_ahead:
            paid = QuotedBudget(quotes[0], most)
        if paid is not None and not paid.is_enough:
            words, remedy = too_small(paid)
            raise Refused(words, remedy=remedy)
        limits = list[Limit]()
        for quote in quotes:
            terms = terms_by_quote(quote, asked, self._tenancy.clock.now())
            try:
                self._tenancy.context.owner.allows(
                    quote.offer.provider, terms, quote.offer.price.running_usd_h
                )
            except Limit as limit:
                limits.append(limit)
        if len(limits) == len(quotes):
            raise limits[0]

    async def _fitting(self, facts: Known) -> tuple[Found, list[Ranked], list[Quote]]:
        """Search the offers. Return the best of those that fit, and their quotes.

        Raises:
            CredentialRefused, NoCapacity, Refused: as `_must_be_rentable`.
        """
        errand, tenancy = self._errand, self._tenancy
        found = await tenancy.search_offers(
            errand.gpu,
            provider=None if errand.on == RENTED else errand.on,
            order=errand.order,
            hours=errand.hours,
            max_price_usd_h=errand.max_price_usd_h,
            vram_gib=errand.vram_gib,
            trust=errand.trust,
            interruptible=errand.interruptible,
            smoke=facts.smoked or "none",
        )
        connectors = tenancy.context.connectors
        markets = [name for name, connector in connectors.items() if isinstance(connector, Market)]
        if errand.on == RENTED and not found.offers and lacks_every_key(markets):
            raise CredentialRefused("no platform was asked: no key was found", remedy=found.next)
        fitting = [offer for offer in found.offers if self._fits(offer)]
        if not fitting:
            if found.offers and errand.max_usd is not None:
                raise self._too_dear(found.offers, errand.max_usd)
            why = [f"{count} left out as {reason}" for reason, count in found.unfit.items()][:3]
            why += [f"{who}: {words}" for who, words in found.troubles.items()][:3]
            reasons = f": {'; '.join(why)}" if why else ""
            from gpu_tenant.providers.gpu_catalog import is_unknown

            is_shown = bool(found.offers or found.troubles)
            if errand.gpu and not is_shown and is_unknown(errand.gpu):
                raise BadRequest(
                    f"no GPU is known as {errand.gpu!r}, and nobody offers one", remedy=found.next
                )
            raise NoCapacity(
                f"nothing that fits is offered now{reasons}",
                remedy=f"{found.next}; then the same line again",
            )
        chosen = fitting[:_QUOTES]
        quoted = [tenancy.ledger.quote(str(offer.quote)) for offer in chosen]
        return found, chosen, [quote for quote in quoted if quote is not None]

    def _smoke_receipt(self, facts: Known) -> SmokeReceipt | None:
        """Return the receipt of the smoke test. None if none was run."""
        from gpu_tenant.jobs.smoke import SmokeReceipt

        record = self._tenancy.ledger.smoke(facts.smoked) if facts.smoked else None
        return None if record is None else SmokeReceipt.model_validate_json(record)

    async def _hear_of_undeclared(self, plan: RentalPlan) -> bool:
        """Ask about files that the smoke test wrote and nobody declared. Return whether there was an answer."""
        names = plan.undeclared
        if not names:
            return False
        asks = Unanswered(
            lease=None,
            losses=(plan.lines[-1],),
            unclaimed=names,
            keeps=tuple(patterns_alike(names)),
            ways=_ways(
                self._run,
                patterns_alike(names),
                [literal_pattern(name) for name in names],
                is_written=False,
            ),
        )
        said = await self._face.answer(asks)
        if said is None or not (said.artifacts or said.discard):
            return False
        # The job may never write these files. So each one is also a discard: its absence must not keep the box.
        may_be_absent = (
            p for p in said.artifacts if any(matches_kept_name(p, f"work/{n}") for n in names)
        )
        declare(self._tenancy, self._run, said.artifacts, (*said.discard, *may_be_absent))
        return True

    def _too_dear(self, offers: Sequence[Ranked], most: Decimal) -> Refused:
        """Return the error that says what the cheapest offer would cost, and which options would allow it."""
        costs = [
            (offer.running_usd_h * Decimal(str(quote.wish.hours)), quote, offer)
            for offer in offers
            if (quote := self._tenancy.ledger.quote(offer.quote) if offer.quote else None)
            and offer.running_usd_h
        ]
        if not costs:
            return Refused(
                f"what the offers would cost is unknown, and at most {most} USD may be spent",
                remedy="other GPUs, or another platform",
            )
        usd, quote, cheapest = min(costs, key=lambda each: each[0])
        paid, hours = QuotedBudget(quote, most), quote.wish.hours
        assumed = "" if "hours" in self._errand.model_fields_set else " (assumed)"
        said = (
            f"the cheapest, {cheapest.gpu_count} x {cheapest.gpu} at {cheapest.provider} for "
            f"{cheapest.running_usd_h} USD/h, would cost {usd_words(usd)} for {hours:g} h{assumed}, which is more than the "
            f"{usd_words(most)} that may be spent"
        )
        if usd <= most:
            said = (
                f"{Option('max-usd')} is {paid.words}, on the cheapest, {cheapest.gpu_count} x {cheapest.gpu} at "
                f"{cheapest.provider} for {cheapest.running_usd_h} USD/h"
            )
        return Refused(said, remedy=paid.remedy(Option("max-usd", paid.enough)))

    def _fits(self, offer: Ranked) -> bool:
        """Whether the offer has a quote, and the cost of the work on it is within the sum that may be spent."""
        quote = self._tenancy.ledger.quote(offer.quote) if offer.quote else None
        if quote is None:
            return False
        most, price = self._errand.max_usd, offer.running_usd_h
        return most is None or (
            price is not None
            and price * Decimal(str(quote.wish.hours)) <= most
            and QuotedBudget(quote, most).paid_h > 0
        )

    async def _rent(self, facts: Known) -> ErrandStatus | None:
        errand, agreed = self._errand, facts.agreed
        assert agreed is not None
        is_market = bool(agreed.quotes)
        if is_market and self._has_expired(agreed.quotes):
            words = "the quotes have expired"
            self._choose_again(agreed, NoCapacity(words, remedy=str(Command("offers"))))
            return None
        if is_market:
            self._must_leave_money()
        on = "local" if errand.on == RENTED else errand.on
        from gpu_tenant.leases.orders import order_for

        order = order_for(self._tenancy.context, on, agreed.quotes, errand.order)
        asked = self._asked(is_market=is_market).model_copy(update={"order": order})
        try:
            await self._tenancy.rent(
                asked,
                provider=on,
                target=errand.target,
                quotes=agreed.quotes,
                smoke=facts.smoked,
                wait_s=self.left_s(_BOOT_S),
            )
        except _NOT_HAD as trouble:
            if not is_market:
                raise
            self._choose_again(agreed, trouble)
        return None

    def _asked(self, *, is_market: bool) -> RentRequest:
        """Return the terms that the errand asks for, without its order."""
        from gpu_tenant.leases.names import must_be_labels

        errand = self._errand
        return RentRequest(
            hours=None if is_market else max(1.5 * errand.hours, errand.hours + 1),
            budget_usd=errand.max_usd if is_market else None,
            max_price_usd_h=errand.max_price_usd_h if is_market else None,
            idle_h=errand.idle_h,
            when_done=None,
            on_failure=self._on_failure.words,
            unasked_gib=errand.unasked_gib,
            store=self._tenancy.context.known_store(errand.store),
            recover=errand.recover if is_market else (),
            errand=self._run,
            labels=must_be_labels(errand.name),
        )

    @property
    def _on_failure(self) -> OnFailure:
        """What happens to the box of a failed job."""
        said = self._errand.on_failure
        return OnFailure.parse(said) if said else OnFailure()

    def _has_expired(self, quotes: Sequence[str]) -> bool:
        """Whether these quotes are too old to rent by, and nothing was rented by them."""
        ledger, now = self._tenancy.ledger, self._tenancy.clock.now()
        if ledger.rented_by(quotes):
            return False
        return any(quote is None or now >= quote.expires_at for quote in map(ledger.quote, quotes))

    def _choose_again(self, agreed: Agreed, trouble: TenantError) -> None:
        """Record that these quotes cannot be used any more, so that others are chosen.

        The agreement also holds for other quotes, if these cost no more.
        """
        self._face.hear(f"{trouble.message}; searching again")
        self._note(Agreed(quotes=(), most_usd_h=agreed.most_usd_h, by=agreed.by))

    async def _boot(self, facts: Known) -> ErrandStatus | None:
        from gpu_tenant.leases.rent import as_far_as_it_goes

        lease, refused = facts.lease, list[str]()
        assert lease is not None
        context = self._tenancy.context
        async with context.held_in_turn(lease.id, "provision"):
            now = context.ledger.lease(lease.id)
            if now.state.live and now.ready_at is None:
                now = await as_far_as_it_goes(context, now, refused, self.left_s(_BOOT_S))
        if not now.state.live and facts.agreed is not None and facts.agreed.quotes:
            words = "; ".join(refused) or f"{now.id} got no box"
            self._choose_again(facts.agreed, NoCapacity(words, remedy=str(Command("offers"))))
        if now.state.live and now.ready_at is None and not self._has_time():
            return self._standing("under way", "boot", "the box boots")
        return None

    async def _push(self, facts: Known) -> ErrandStatus | None:
        lease, errand = facts.lease, self._errand
        assert lease is not None
        if lease.touched_at is None:
            wish = lease.quote.wish if lease.quote else None
            audited = await self._tenancy.audit(
                lease.id,
                wish.gpu_count if wish else None,
                wish.vram_gib if wish else None,
            )
            if audited.blockers:
                seen = [f"{x.subject}: {x.seen}" for x in audited.findings if x.level == "blocker"]
                await self._tenancy.verify_and_teardown(lease.id)
                words = f"{lease.id} was given back unused: {'; '.join(seen[:3])}"
                if lease.quote is None or facts.agreed is None:
                    raise Refused(
                        words, remedy="correct what the audit names, then run the same line again"
                    )
                self._choose_again(facts.agreed, NoCapacity(words, remedy=str(Command("offers"))))
                return None
        await self._tenancy.push(lease.id, errand.directory, include=list(errand.include))
        if not self._asks_for_packages():
            self._note(Unprepared(words="the tree asks for no packages"))
        return None

    def _asks_for_packages(self) -> bool:
        return any((Path(self._errand.directory) / name).is_file() for name in ASKS)

    async def _prepare(self, facts: Known) -> ErrandStatus | None:
        assert facts.lease is not None
        try:
            made = await self._tenancy.prepare(
                facts.lease.id, env=list(self._errand.env), wait_s=self.left_s(_PREPARE_S)
            )
            if made.state == "nothing to do":
                self._note(Unprepared(words="; ".join(made.notes)))
        except BadRequest as nothing:
            self._note(Unprepared(words=nothing.message))
            self._face.hear(f"no packages: {nothing.message}")
        except (BoxUnreachable, NotReady):
            raise
        except BoxTrouble as trouble:
            # Without its packages the job cannot run, so end the box. It holds only files that came from this computer.
            ended = await self._bring_home(facts.lease)
            if isinstance(ended, ErrandStatus):
                return ended
            return self._over(self._facts(), "show", words=f"no job was started: {trouble.message}")
        return None

    async def _gate(self, facts: Known) -> ErrandStatus | None:
        """Try the smoke test's command on the box. What differs there is seen before the job begins, and not at night."""
        lease, errand = facts.lease, self._errand
        assert lease is not None
        assert errand.smoke is not None
        limit_s = self.left_s(errand.gate_s)
        if limit_s < min(_LEAST_GATE_S, errand.gate_s):
            return self._standing("under way", "gate", "")
        tried = await self._tenancy.try_on_gpu(lease.id, errand.smoke, limit_s)
        if tried.state != "failed":
            self._face.hear(
                f"{errand.smoke!r}: {tried.words}"
                if tried.state == "passed"
                else f"the smoke test's command was not tried on the box: {tried.words}"
            )
            self._note(Gated(lease=lease.id, words=tried.words))
            return None
        words = f"no job was started: {tried.words}"
        if self._on_failure.does != "end":
            kept = await self._keep(lease, self._on_failure, "not started")
            return kept.model_copy(update={"words": f"{words}; {kept.words}", "log": tried.log})
        ended = await self._bring_home(lease)
        if not isinstance(ended, ErrandStatus):
            ended = self._over(self._facts(), "show", words=words)
        return ended.model_copy(update={"log": tried.log})

    async def _launch(self, facts: Known) -> ErrandStatus | None:
        if facts.was_cut_off and facts.job is not None:
            name = _name_again(facts.job.id, self._run)
            self._face.hear(
                f"its provider took the box while the job ran, and the box runs again: the job is launched again as "
                f"{name}, and continues from what its disk kept"
            )
        await _start(self._tenancy, facts, self._run)
        if facts.lease is not None and (words := tree_words(self._tenancy.ledger, facts.lease)):
            self._face.hear(words)
        return None

    async def _follow(self, facts: Known) -> ErrandStatus | None:
        lease, job = facts.lease, facts.job
        assert lease is not None
        assert job is not None
        if facts.was_taken or facts.was_cut_off:
            # The recorded state may be old: by now the box may be stopped, or run again.
            await self._tenancy.list_leases()
            facts = self._facts()
            if next_step(facts) != "follow":
                return None
            if facts.was_taken:
                if (boots := await not_yet(self._tenancy.context, lease)) is not None:
                    raise boots
                return self._asks_for_its_box(facts)
            if facts.was_cut_off:
                return await self._wait_for_its_stop(lease)
        elif lease.parked_at is not None and rental_is_over(lease, self._tenancy.clock.now()):
            return self._asks_for_its_box(facts)
        try:
            seen = await self._face.follow(lease.id, job.id)
        except (BoxTrouble, Refused):
            # Only the provider knows whether the box still exists.
            await self._tenancy.list_leases()
            if next_step(self._facts()) != "follow" or self._facts().was_taken:
                return None
            if await self._is_started_to_end(lease):
                return None
            raise
        if seen.state == "absent":
            return await self._launch(facts)
        if seen.state not in ENDED and not self._has_time():
            progress = (
                ""
                if seen.progress is None or seen.progress.fraction is None
                else f", {seen.progress.fraction:.0%}"
            )
            words = f"the job is {seen.state}{progress}; {usd_words(seen.cost_usd)} so far"
            words += f"; {seen.budget_end}" if seen.budget_end else ""
            # The links come from the box, as the log does. They are added to it, so that they are fenced with it.
            named = (f"its log names {link}" for link in seen.trackers)
            return self._standing("under way", "follow", words, log="\n".join((seen.log, *named)))
        return None

    async def _wait_for_its_stop(self, lease: Lease) -> ErrandStatus | None:
        """Wait until the provider stops the box, as it has announced. The job was asked to save, and has ended.

        Meanwhile, collect what the job saved, and list all files on the box, so that the box can later be ended without
        starting it again.
        """
        context = self._tenancy.context
        with suppress(BoxTrouble, JobRunning):
            if has_news(context, lease):
                await self._tenancy.collect(lease.id, self._to(lease))
            await read_while_it_answers(context, lease)
        words = "the job is not over: its provider is taking its box back, and stops it soon"
        if words not in self._told:
            self._told.add(words)
            events, now = context.ledger.events(lease.id), self._tenancy.clock.now()
            notice_s, unclaimed = (
                context.profile(lease.provider).notice_s,
                known_unclaimed(context.ledger, lease),
            )
            before = notice_step(lease, events, notice_s, now, unclaimed)
            self._face.hear(f"{words}; {before}" if before and unclaimed else words)
        if not self._has_time():
            return self._standing("under way", "follow", words)
        await self._tenancy.clock.sleep(_AGAIN_S)
        await asyncio.sleep(_TURN_S)
        return None

    def _asks_for_its_box(self, facts: Known) -> ErrandStatus:
        """Say that the box is stopped, and which commands continue its work. Each costs money, so a person chooses."""
        lease, fate = facts.lease, recorded_fate(facts.lines)
        assert lease is not None
        again, ways = Command("run", resume=self._run), list[str]()
        on = resume_step(lease, facts.lines, self._tenancy.clock.now())
        is_over = rental_is_over(lease, self._tenancy.clock.now())
        if is_over:
            ways.append(lost_step(lease))
        elif fate != "host_lost":
            ways.append(f"{on}, then {again}, launches the job again on this box")
        if fate in GOES_ON and lease.parked_at is None and lease.quote is not None:
            elsewhere = Command("recover", lease.id)
            ways.append(f"{elsewhere}, then {again}, continues on another box")
        why = "its box is parked"
        if lease.parked_at is None:
            whose = f" ({fate})" if fate in BY_ITS_PROVIDER else ""
            why = f"its box does not run: {who_stopped_it(fate)}{whose}"
        words = f"the job is not over: {why}, which bills {rate_words(lease)} while it is stopped"
        if fate == "host_lost":
            words = "the job did not end: the host of its box is lost, and nothing says that it comes back"
        if is_over:
            words = f"the job did not end: {over_words(lease)}; its disk bills {rate_words(lease)}"
        asks = Unanswered(lease=lease.id, losses=(), ways=tuple(ways), usd_h=lease.price_usd_h)
        asking = self._asking(
            asks, words, then=f"one of these, as the person decides: {'; or '.join(ways)}"
        )
        # Nobody can start such a box, so its job has failed, whatever a person decides of its disk.
        outcome = "failed" if is_over or fate == "host_lost" else "asks"
        return asking.model_copy(update={"step": "follow", "outcome": outcome})

    async def _recover(self, facts: Known) -> ErrandStatus | None:
        from gpu_tenant.leases.recover import begins_words, recover

        assert facts.lease is not None
        words = await begins_words(self._tenancy.context, facts.lease.id)
        if words and words not in self._told:
            self._told.add(words)
            self._face.hear(words)
        await recover(self._tenancy.context, facts.lease.id, wait_s=self.left_s(_BOOT_S))
        if gone_on(self._tenancy.ledger, self._tenancy.ledger.lease(facts.lease.id)) is None:
            if not self._has_time():
                return self._standing("under way", "recover", "")
            await self._tenancy.clock.sleep(_AGAIN_S)
        return None

    async def _end(self, facts: Known) -> ErrandStatus | None:
        lease, state = facts.lease, facts.job_state
        assert lease is not None
        if await self._hears_of_a_taking(facts) or await self._waits_for_its_provider(facts):
            return None
        if state in ENDED and state != "finished":
            if (again := self._tried_again(facts)) is not None:
                return again
            until, rule = self._kept_until(facts), self._on_failure
            if until is not None and await self._is_corrected(facts):
                return await self._try_again_here(facts)
            if until is not None:
                return await self._wait_for_a_look(facts, str(state), until)
            if rule.does != "end":
                return await self._keep(lease, rule, str(state))
        try:
            # End this box before the errand's earlier boxes, because it costs most. Its proof needs no other box.
            ended = await self._bring_home(lease)
        except BoxTrouble:
            await self._tenancy.list_leases()
            if next_step(self._facts()) == "recover":
                return None
            # Its guard may have stopped the box just now, for the same term that has ended the job.
            if await self._is_started_to_end(self._tenancy.ledger.lease(lease.id)):
                return None
            raise
        return await self._with_its_log(ended) if isinstance(ended, ErrandStatus) else None

    async def _with_its_log(self, standing: ErrandStatus) -> ErrandStatus:
        """If the job ended badly, add the end of its log, which is read on the box or on this computer."""
        from gpu_tenant.leases.read_logs import log_window

        job, lease = self._facts().job, standing.lease
        ill_ended = standing.job_state in ILL_ENDED or standing.outcome == "failed"
        if job is None or lease is None or not ill_ended:
            return standing
        try:
            end = await log_window(
                self._tenancy.context, lease, job.id, start=-_LOG_BYTES, limit=_LOG_BYTES
            )
        except TenantError:
            return standing  # the log cannot be read; the state of the job is reported without it
        standing = standing.model_copy(update={"log": end.text})
        ledger = self._tenancy.ledger
        missing = missing_on_box(ledger.lease(lease), end.text, ledger=ledger)
        if missing is None or standing.job_state != "failed":
            return standing
        told = {"words": f"{standing.words}; {missing.words}"}
        if standing.step in ("show", "over"):
            told["mend"] = _with_included(missing.names)
            told["next"] = f"{told['mend']}; {Command('report', lease)} has the rest"
        return standing.model_copy(update=told)

    async def _hears_of_a_taking(self, facts: Known) -> bool:
        """Ask a failed job's box whether its provider is taking it back. Return whether that changes the next step."""
        lease, context = facts.lease, self._tenancy.context
        assert lease is not None
        if facts.job_state not in ILL_ENDED or lease.state is not LeaseState.ACTIVE:
            return False
        if lease.quote is None or not lease.quote.offer.interruptible:
            return False
        if lease.parked_at is not None or not context.profile(lease.provider).notice_s:
            return False
        with suppress(BoxTrouble):
            await standing_of(context, lease.id)
        return next_step(self._facts()) != "end"

    async def _waits_for_its_provider(self, facts: Known) -> bool:
        """Whether the job may have been killed because its provider took the box. Then the errand must not end yet.

        The box knows only that the job was killed. For some time, the provider is asked whether it took the box. If it
        did, the work continues.
        """
        lease, clock = facts.lease, self._tenancy.clock
        assert lease is not None
        if facts.job_state != "killed" or lease.state is not LeaseState.ACTIVE:
            return False
        is_interruptible = lease.quote is not None and lease.quote.offer.interruptible
        if not (lease.terms.recover or is_interruptible):
            return False
        if clock.now() >= lease.terms.deadline_at:
            return False
        await self._tenancy.list_leases()
        if next_step(self._facts()) != "end":
            return True
        ended_at = recorded_end(facts.lines)
        if not is_interruptible or ended_at is None or clock.now() - ended_at >= _SAYS_WITHIN:
            return False
        await clock.sleep(_AGAIN_S)
        return True

    def _kept_until(self, facts: Known) -> datetime | None:
        """Return until when the box of a failed job stays for another try. None if it does not stay, or no longer.

        If nobody is there to try again, the files are proved first, which takes a while, and nothing is waited for.
        """
        rule, ended_at, now = self._on_failure, recorded_end(facts.lines), self._tenancy.clock.now()
        if rule.does == "hold" or ended_at is None or facts.lease is None or facts.stopped_for:
            return None
        home = self._tenancy.context.home
        seen_at = now if speaker.get() == "person" else last_there(home)
        if rule.after_s is None and not is_there(seen_at, ended_at):
            return None
        if speaker.get() == "person":
            note_presence(home, now)  # the watchdog has to judge the same
        until = ended_at + timedelta(seconds=rule.wait_s(seen_at, ended_at))
        return until if ended_at <= now < min(until, facts.lease.terms.deadline_at) else None

    def _tried_again(self, facts: Known) -> ErrandStatus | None:
        """Return how this errand ends if somebody has launched another job on its box after its own had failed."""
        newest = story_of(facts.lines).newest_job
        if newest is None or facts.job is None or facts.lease is None or newest.id == facts.job.id:
            return None
        if _is_of(newest.id, self._run):
            return None
        lease = facts.lease.id
        return ErrandStatus(
            run=self._run,
            outcome="failed",
            step="end",
            words=f"the job is {facts.job_state}; its box works on for {newest.id}, and the terms of {lease} end it",
            lease=lease,
            job_state=facts.job_state,
            next=str(Command("monitor", lease, job=newest.id)),
        )

    async def _is_corrected(self, facts: Known) -> bool:
        """Whether somebody has changed the files since the job failed, and has then asked for this run again.

        Only the first step of a call looks: what changes while a call waits may be half written.
        """
        began_over, self._began_over = self._began_over, False
        return began_over and facts.tried_tree is not None and not await self._is_as_tried(facts)

    async def _try_again_here(self, facts: Known) -> ErrandStatus | None:
        """Launch the job of a failed run again on its box, with the corrected files. Its terms stay as they are."""
        lease = facts.lease
        assert lease is not None
        await self._tenancy.collect(lease.id, self._to(lease))
        if (failed := await self._smoke()) is not None:
            # The box stays warm as before, and ends as its terms say.
            last_line = failed.log.rstrip("\n").rpartition("\n")[2]
            self._not_again = f"{failed.words}; its log ends {quote_text(last_line)}"
            return None
        left = await self._push(self._facts())
        if left is None and next_step(self._facts()) == "end" and self._asks_for_packages():
            left = await self._prepare(self._facts())
        if left is not None or next_step(self._facts()) != "end":
            return left
        name = await _start(self._tenancy, self._facts(), self._run)
        self._is_kept = False
        self._face.hear(
            f"the job is launched again on its box, as {name}, with the corrected files"
        )
        return None

    async def _wait_for_a_look(
        self, facts: Known, state: str, until: datetime
    ) -> ErrandStatus | None:
        """Keep the box of a failed job for another try, as long as its terms say. First collect its files.

        If somebody else ends the box then, the call returns at once, so that the caller can try again.
        """
        lease, context = facts.lease, self._tenancy.context
        assert lease is not None
        ended_at = recorded_end(facts.lines)
        assert ended_at is not None
        then = "parked" if self._on_failure.does == "park" else "ended"
        words = (
            f"the job is {state}; its box stays warm until {until:%H:%M} UTC, for "
            f"{warm_words(lease, (until - ended_at).total_seconds())}, and is then {then}"
        )
        words = "; ".join(filter(None, (self._not_again, words)))
        if not self._is_kept:
            self._is_kept = True
            # Another call of this run would wait for this one.
            leave = "Ctrl-C leaves it so; " if speaker.get() == "person" else ""
            self._face.hear(f"{words}; {leave}{_try_again(facts, self._run)}")
            await self._tenancy.collect(lease.id, self._to(lease))
        others = others_look(context.home.watchdog, context.clock.now(), every_s=60)
        if context.watches == "server" or others or not self._has_time():
            standing = self._standing("failed", "end", words)
            told = {
                "job_state": state,
                "next": f"{_try_again(facts, self._run)}; {_ends_now(lease.id)}",
            }
            return await self._with_its_log(standing.model_copy(update=told))
        await self._tenancy.clock.follow(_AGAIN_S)
        await asyncio.sleep(_TURN_S)
        return None

    async def _keep(self, lease: Lease, rule: OnFailure, state: str) -> ErrandStatus:
        """Collect the files of a failed job, and keep or park its box, as its owner has ordered."""
        await self._tenancy.collect(lease.id, self._to(lease))
        if rule.does == "park" and lease.parked_at is None:
            await self._tenancy.change_lease(lease.id, "park")
        return ErrandStatus(
            run=self._run,
            outcome="failed",
            step="end",
            words=f"the job is {state}; what it wrote is here, and its box is {'parked' if rule.does == 'park' else 'kept'},"
            f" as {Option('on-failure')} says",
            lease=lease.id,
            job_state=state,
            next=f"{Command('logs', lease.id)}; then {Command('teardown', lease.id)}",
        )

    def _to(self, lease: Lease) -> str | None:
        """Return the directory into which files of that box are collected. None for an earlier box of the errand.

        Old files of an earlier box must not replace newer ones in the user's directory.
        """
        now = self._facts().lease
        return self._errand.to if now is None or now.id == lease.id else None

    async def _bring_home(self, lease: Lease) -> TornDown | ErrandStatus:
        """Collect, prove, and tear down. If that needs a person's answers, return all the questions together."""
        tenancy = self._tenancy
        if await self._is_started_to_end(lease):
            lease = tenancy.ledger.lease(lease.id)
        if lease.state is LeaseState.ACTIVE and not needs_no_start(tenancy.context, lease):
            collected = await tenancy.collect(lease.id, self._to(lease))
            if collected.superseded is not None:
                self._face.hear(collected.superseded)
        else:
            collected = None
        try:
            return await tenancy.verify_and_teardown(lease.id)
        except Unverified as refusal:
            return await self._ask(lease, collected, refusal)
        except OwnerMustAct as act:
            asks = Unanswered(
                lease=lease.id,
                losses=(),
                ways=(act.message, str(Command("teardown", lease.id, ended=True))),
                usd_h=lease.price_usd_h,
            )
            return self._asking(asks, "a person has to end the box in its console")

    async def _is_started_to_end(self, lease: Lease) -> bool:
        """Start the stopped box once more, if nothing but its end is left to do on it. Return whether it was started.

        If it does not let us in within its time, it is stopped again.
        """
        context, ledger = self._tenancy.context, self._tenancy.ledger
        lease, current = ledger.lease(lease.id), self._facts().lease
        stopped = lease.parked_at is not None or recorded_fate(ledger.events(lease.id)) is not None
        if not stopped or needs_no_start(context, lease):
            return False
        is_over = current is not None and current.id != lease.id and not current.state.live
        wait_s = self.left_s(LETS_IN_S)
        is_shut = False
        try:
            if not await start_to_end(
                context, lease, why="moved" if is_over else "deadline", wait_s=wait_s
            ):
                return False
        except (Refused, ProviderTrouble) as trouble:
            self._face.hear(f"{lease.id} could not be started to be ended: {trouble.message}")
            return False
        except BoxTrouble as trouble:
            self._face.hear(
                f"{lease.id} was started to be ended, and is of no use: {trouble.message}"
            )
            is_shut = True
        else:
            words = "it was started once more, to prove its files and to end it"
            self._face.hear(f"{lease.id} was stopped: {words}")
            is_shut = ledger.lease(lease.id).ready_at is None and wait_s == LETS_IN_S
        if is_shut:
            with suppress(Refused, BoxTrouble, ProviderTrouble):
                await park_overdue(context, lease.id)
        return not is_shut

    async def _ask(
        self, lease: Lease, collected: Collected | None, refusal: Unverified
    ) -> TornDown | ErrandStatus:
        from gpu_tenant.leases.end import assess_loss

        report = await assess_loss(self._tenancy.context, lease.id)
        if not report.losses:
            return await self._tenancy.verify_and_teardown(lease.id)
        ways = self._ways_of(lease, collected) or [refusal.remedy]
        ways.append(f"{Command('waive', lease.id)} gives up all of it, with a signature")
        asks = Unanswered(
            lease=lease.id,
            losses=report.losses,
            unclaimed=collected.unclaimed_largest if collected else (),
            keeps=self._keeps_of(lease),
            ways=tuple(ways),
            usd_h=lease.price_usd_h,
        )
        if report.digest not in self._answered:
            # If one of these wants a signature, the same is tried again once a person has signed.
            if await self._takes_what_was_said(lease):
                self._answered.add(report.digest)
                return await self._bring_home(self._tenancy.ledger.lease(lease.id))
            said = await self._face.answer(asks)
            if said is not None and (said.artifacts or said.discard):
                await self._tenancy.collect(
                    lease.id, self._to(lease), list(said.artifacts), list(said.discard)
                )
            self._answered.add(report.digest)
            if said is not None:
                return await self._bring_home(self._tenancy.ledger.lease(lease.id))
        return self._asking(
            asks,
            "what follows needs a person's answer; the box is kept until then",
            then=(
                f"make one of these calls, as the person decides; {Command('run', resume=self._run)} checks "
                "again"
            ),
        )

    async def _takes_what_was_said(self, lease: Lease) -> bool:
        """Collect with the patterns that were declared after the launch. Return whether there were usable ones."""
        ledger = self._tenancy.ledger
        kept, given_up = told_apart(*self._facts().said_of(lease))
        artifacts, discard = ledger.declarations(lease.id)
        late = [p for p in kept if p not in artifacts], [p for p in given_up if p not in discard]
        if not any(late):
            return False
        try:
            await self._tenancy.collect(lease.id, self._to(lease), *late)
        except BadRequest as unfit:
            self._face.hear(
                f"the patterns that were given earlier cannot be used: {unfit.message}; {unfit.remedy}"
            )
            return False
        return True

    def _keeps_of(self, lease: Lease) -> tuple[str, ...]:
        """Return the patterns that keep everything on the box that nobody has claimed."""
        seal = self._tenancy.ledger.seal(lease.id)
        return () if seal is None else tuple(unclaimed_patterns(lease, seal.unclaimed))

    def _ways_of(self, lease: Lease, collected: Collected | None) -> list[str]:
        """Return the commands that answer the questions which `collect` has left open. Empty if there are none."""
        seal = self._tenancy.ledger.seal(lease.id)
        if collected is None or not _unsaid(collected):
            return []
        if collected.unclaimed_files and seal is not None:
            events = self._tenancy.ledger.events(lease.id)
            takes = takes_words(lease, events, seal.unclaimed.size_bytes)
            patterns = unclaimed_patterns(lease, seal.unclaimed)
            ways = _ways(self._run, patterns, patterns, is_written=True)
            return [f"{takes}: {way}" for way in ways]
        return [collected.next]

    def _asking(self, asks: Unanswered, words: str, *, then: str = "") -> ErrandStatus:
        state = self._facts().job_state
        facts = self._facts()
        if facts.job_state in ILL_ENDED or facts.stopped_for is not None:
            words = f"{_job_words(facts)}; {words}"
        return ErrandStatus(
            run=self._run,
            outcome="asks",
            step="end",
            words=words,
            lease=asks.lease,
            asks=asks,
            job_state=state,
            next=then or f"answer, then {Command('run', resume=self._run)}",
        )

    async def _end_earlier_boxes(self, facts: Known) -> ErrandStatus | None:
        """End the errand's earlier boxes, from which the work moved to another box. Return None if none is left.

        Such a box may still exist, hold the only copy of something, and bill. If it is stopped and cannot be ended, a
        person is asked, and the errand stays open: calling again tries again.

        Raises:
            BoxTrouble, ProviderTrouble: the box or its provider did not answer; trying again may succeed.
        """
        for old in facts.leases:
            if not old.state.live or (facts.lease is not None and old.id == facts.lease.id):
                continue
            home = _home_so_far(facts, self._tenancy)
            try:
                ended = await self._bring_home(old)
            except (Refused, BoxTrouble, ProviderTrouble) as trouble:
                ledger = self._tenancy.ledger
                known, events = ledger.lease(old.id), ledger.events(old.id)
                stopped = known.parked_at is not None or recorded_fate(events)
                if not isinstance(trouble, Refused) and (
                    isinstance(trouble, ProviderTrouble | NotReady) or not stopped
                ):
                    raise
                on = resume_step(known, events, self._tenancy.clock.now(), hours=WAY_HOME_H)
                again = Command("run", resume=self._run)
                way = f"{on} starts it, then {again} collects its files, and ends it"
                asks = Unanswered(
                    lease=old.id,
                    losses=(),
                    ways=(way if stopped else trouble.remedy,),
                    usd_h=known.price_usd_h,
                )
                why = "it is stopped" if stopped else trouble.message
                words = (
                    f"{home}; one earlier box is left: {old.id} could not be ended, and bills "
                    f"{rate_words(known)}: {why}"
                )
                asking = self._asking(asks, words, then=way if stopped else "")
                return asking.model_copy(update={"ended": self._ended(facts)})
            if isinstance(ended, ErrandStatus):
                told = {"words": f"{home}; {old.id}: {ended.words}", "ended": self._ended(facts)}
                return ended.model_copy(update=told)
        return None

    async def _without_twin(self, facts: Known) -> str | None:
        """Give back a second box that a request of this errand created by accident. Return what to report about it."""
        from gpu_tenant.leases.overview import give_back_twins, live_twins

        context, told = self._tenancy.context, list[str]()
        for lease in facts.leases:
            words = await give_back_twins(context, lease)
            for _ in range(_TWIN_TRIES):
                # A failure may be temporary, so try again. But a box that somebody used must be ended by them.
                unused = [x for x in live_twins(context, lease) if x.touched_at is None]
                if words is None or (not unused and live_twins(context, lease)):
                    break
                if not self._has_time():
                    break
                await self._tenancy.clock.sleep(_AGAIN_S)
                words = await give_back_twins(context, lease)
            told += [words] if words else []
        return "; ".join(told) or None

    def _over(
        self, facts: Known, step: Step, *, words: str = "", twin: str | None = None
    ) -> ErrandStatus:
        lease = facts.lease or (facts.leases[-1] if facts.leases else None)
        receipt = self._tenancy.ledger.receipt(lease.id) if lease else None
        ended = self._ended(facts, twin=twin)
        state = facts.job_state
        if receipt is None:
            where = f"; what was collected is in {lease.kept_in}" if lease and lease.kept_in else ""
            words = (
                words
                or f"its box was lost, and no record says where the work could continue{where}"
            )
        elif not words:
            words = f"{_work_words(facts, receipt)}; {_home_words(receipt, facts.artifacts)}"
        words += f"; {twin}" if twin else ""
        words += self._not_there_words(receipt)
        mend = _mend(facts, receipt)
        return ErrandStatus(
            run=self._run,
            outcome=_outcome(state, receipt),
            step="show",
            words=words,
            lease=lease.id if lease else None,
            job_state=state,
            ended=ended,
            mend=mend,
            next=_after_words(lease, _outcome(state, receipt), mend),
        )

    def _declined(self, facts: Known) -> ErrandStatus | None:
        """Say that a person has declined the plan, so that the errand is over. None if nobody has."""
        if not facts.was_declined:
            return None
        return ErrandStatus(
            run=self._run,
            outcome="declined",
            step="over",
            words="a person declined this plan, so this run is over; nothing was rented",
            next=f"ask the person what should change; {Command('run')} begins a new run, whose plan they are shown",
        )

    def _ended(self, facts: Known, *, twin: str | None = None) -> TornDown | None:
        """Return the receipt of the lease under which the work was done. None if there is no receipt."""
        lease = facts.lease or (facts.leases[-1] if facts.leases else None)
        receipt = self._tenancy.ledger.receipt(lease.id) if lease else None
        if lease is None or receipt is None:
            return None
        return TornDown(
            lease=lease.id,
            state=lease.state,
            receipt=receipt,
            twin=twin,
            work=whole_work_words(self._tenancy.ledger, facts.leases),
            attempts=attempts_words(self._tenancy.context, lease),
        )

    def _not_there_words(self, receipt: Receipt | None) -> str:
        """Say how to copy the kept files to the directory that was named for them. Empty if they are there."""
        to, kept_in = self._errand.to, receipt.kept_in if receipt else None
        if to is None or kept_in is None or Path(kept_in).resolve() == Path(to).resolve():
            return ""
        line = copy_line(kept_in, to)
        return f"; it is not in {to}, because the process that collected it could not write there: {line} copies it there"

    # --- words and records

    def _words(self, facts: Known, step: Step) -> str:
        named = facts.lease.id if facts.lease is not None else None
        at = f" ({named})" if named not in (None, self._named) else ""
        self._named = named
        if step == "follow" and (facts.was_taken or facts.was_cut_off):
            return f"its box was taken: checking whether it runs again{at}"
        return f"{WORDS[step]}{at}"

    def _standing(self, outcome: str, step: Step, words: str, *, log: str = "") -> ErrandStatus:
        lease = self._facts().lease
        return ErrandStatus.model_validate(
            {
                "run": self._run,
                "outcome": outcome,
                "step": step,
                "words": words or WORDS[step],
                "lease": lease.id if lease else None,
                "log": log,
                "next": str(Command("run", resume=self._run)),
            }
        )

    def _note(self, event: Smoked | Agreed | Unprepared | Gated) -> None:
        self._tenancy.ledger.note_errand(self._run, event, at=self._tenancy.clock.now())


def _refuse_paths_of_this_computer(files: Mapping[str, Path]) -> None:
    """Check that the requirements name no path of a computer: a rented box does not have it.

    Raises:
        BadRequest: they do.
    """
    for name in ASKS & set(files):
        told = paths_of_a_computer(files[name].read_bytes()) if name.endswith(".txt") else []
        if told:
            raise BadRequest(
                f"{name} asks for {quote_text(told[0])}, a path of one computer: a rented box does not have it",
                remedy="`pip list --format=freeze` writes versions instead",
            )


def _newer(files: Mapping[str, Path], than_ns: int) -> list[str]:
    """Return the names of the files that were changed after that time."""
    from gpu_tenant.jobs.smoke import file_stats

    return [name for name, seen in file_stats(files) if seen.st_mtime_ns > than_ns]


def _ways(
    run: str, kept: Sequence[str], lost: Sequence[str], *, is_written: bool
) -> tuple[str, ...]:
    """Return the commands that continue the errand: one keeps the files, by `kept`, and one gives them up, by `lost`.

    `is_written` says whether the job has written these files. Then only a person may give them up.
    """
    keeps = Command("run", resume=run, artifact=list(kept))
    gives_up = Command("run", resume=run, discard=list(lost))
    if len(lost) == 1 and is_written:
        return (f"{keeps} keeps it; {gives_up} gives it up, if the person signs",)
    if len(lost) == 1:
        return (f"{keeps} keeps it; {gives_up} gives it up",)
    if is_written:
        return (f"{keeps} keeps them; {gives_up} gives them up, if the person signs",)
    return (f"{keeps} keeps them; {gives_up} gives them up",)


def _agree_words(plan: RentalPlan) -> str:
    if plan.too_small:
        as_it_is = Command("run", resume=plan.run)
        return f"{plan.too_small}; a person at a terminal may agree to the smaller sum: {as_it_is}"
    agrees = str(Command("run", resume=plan.run, yes=True))
    if not plan.undeclared:
        return agrees
    names = [literal_pattern(name) for name in plan.undeclared]
    gives_up = Command("run", resume=plan.run, yes=True, discard=names)
    keeps = Command("run", resume=plan.run, yes=True, artifact=patterns_alike(plan.undeclared))
    return (
        f"{keeps} or {gives_up}, as the person decides; {agrees} leaves that decision for the end"
    )


def _with_included(names: Sequence[str]) -> str:
    """Say with which options another run sends the files that were left out."""
    options = " ".join(str(Option("include", name)) for name in names)
    return f"the same line with {options}, as a new run"


def _job_words(facts: Known) -> str:
    """Say in which state the job is, and which term of its lease ended it, if one did."""
    state, cause = facts.job_state, facts.stopped_for
    if cause is None:
        return f"the job is {state or 'unknown'}"
    return f"the job was {state}: {cause.sentence}"


def _outcome(state: str | None, receipt: Receipt | None) -> Grade:
    """Return the verdict on the work of an errand that has ended."""
    if receipt is None:
        return "failed"
    if receipt.outcome is not None:
        return receipt.outcome.grade
    return "done" if state == "finished" else "failed"


def _work_words(facts: Known, receipt: Receipt) -> str:
    """Say in which state the job is, and the verdict on its work, if there is more to say; and what was lost."""
    if not facts.is_launched:
        return "no job was started"
    told = _job_words(facts)
    if receipt.outcome is None or receipt.outcome.grade == "done":
        return told
    return f"{told}; the work: {receipt.outcome.words}; {receipt.loss_words}"


_MORE: dict[Term, Option] = {
    "budget": Option("max-usd"),
    "deadline": Option("hours"),
    "price": Option("max-price-usd-h"),
    "idle": Option("idle-h"),
}


def _more_words(facts: Known, term: Term) -> str:
    """Say which options let the same command line do all of the work, by the pace that the job had.

    If the pace is unknown, name the option without a value.
    """
    lease, job = facts.lease, facts.job
    whole = whole_s(facts.lines, job.id) if job is not None else None
    if term not in ("budget", "deadline") or lease is None or lease.quote is None or whole is None:
        return f"the same line with a larger {_MORE[term]} begins a new run"
    hours = math.ceil(whole / 360) / 10
    figures = str(Option("hours", f"{hours:g}"))
    if facts.errand.max_usd is not None:
        paid = QuotedBudget(lease.quote, facts.errand.max_usd, hours=hours)
        figures = f"{Option('max-usd', paid.enough)}, {figures}"
    return (
        f"the same line with {figures} begins a new run, and pays for all of the work, start and end included, at the pace "
        "that the job had"
    )


def _mend(facts: Known, receipt: Receipt | None) -> str:
    """Say how another run continues work that a term of the lease, or the provider, has interrupted. Else empty."""
    cause = facts.stopped_for
    if cause is not None:
        more = _more_words(facts, cause.term)
    elif (
        facts.job is not None
        and facts.job_state == "killed"
        and fate_met(facts.lines, facts.job.id)
    ):
        more = "its provider took its box, so the log shows nothing to correct: the same line begins a new run"
    else:
        return ""
    places = _places(receipt, facts.artifacts) if receipt else {}
    if not places:
        return f"{more}; it starts from the beginning: nothing was kept"
    named = dict(list(places.items())[:_PLACES])
    tree = Path(facts.errand.directory)
    copied = ", ".join(f"{at} to {tree / name}" for name, at in named.items())
    include = " ".join(str(Option("include", name)) for name in named)
    return f"{more}; it starts from the beginning unless it finds what was kept: copy {copied}, and add {include}"


def _after_words(lease: Lease | None, outcome: Grade, mend: str) -> str:
    """Say what the user can do next when the errand has ended."""
    if lease is None:
        return str(Command("run"))
    report = str(Command("report", lease.id))
    if mend:
        return f"{mend}; {report} has the rest"
    if outcome == "done":
        return report
    return f"correct what the words and the log show, then give the same line again: it begins a new run; {report} has the rest"


def _home_so_far(facts: Known, tenancy: Verbs) -> str:
    """Say in which state the job is, and where its files are on this computer."""
    receipt = tenancy.ledger.receipt(facts.lease.id) if facts.lease else None
    kept = f"; {_home_words(receipt, facts.artifacts)}" if receipt else ""
    return f"{_job_words(facts)}{kept}"


def _home_words(receipt: Receipt, artifacts: Sequence[str]) -> str:
    """Say where on this computer the artifacts are."""
    if receipt.kept_in is None:
        return "nothing was kept"
    is_one = receipt.kept_files == 1
    files = f"{some(receipt.kept_files, 'file')} {'is' if is_one else 'are'}"
    places = [f"{name} is {at}" for name, at in _places(receipt, artifacts).items()]
    if not places:
        return f"{files} kept in {receipt.kept_in}"
    more = len(places) - _PLACES
    return f"{files} kept: {', '.join(places[:_PLACES])}{f', and {more} more' if more > 0 else ''}"


def _places(receipt: Receipt, artifacts: Sequence[str]) -> dict[str, Path]:
    """Return the artifacts below the work directory, by name, with their places on this computer."""
    if receipt.kept_in is None:
        return {}
    work = Path(receipt.kept_in) / "work"
    return {
        name: work / name
        for name in artifacts
        if not name.startswith(("/", "~", "!")) and (work / name).exists()
    }


def _unsaid(collected: Collected) -> bool:
    return bool(collected.unclaimed_files or collected.cannot_be_kept)


def begin(tenancy: Verbs, errand: ErrandRequest) -> str:
    """Return the id of the open errand with this request, or of a new one.

    Raises:
        BadRequest: the request names no command, or no artifacts.
    """
    if not errand.command.strip():
        raise BadRequest(
            "which command?",
            remedy=f"{Command('run', artifact='out/', then='COMMAND')}, or `command` below `[run]` of gpu-tenant.toml",
        )
    if not errand.artifacts:
        raise BadRequest(
            "no files are named that must be kept, so its box could never be verified",
            remedy=f"{Option('artifact', 'out/')}, or `artifacts` below `[run]` of gpu-tenant.toml",
        )
    require_patterns((*errand.artifacts, *errand.discard))
    require_narrow(errand.discard)
    if errand.on != RENTED:
        tenancy.context.profile(errand.on)
    tenancy.context.must_record()
    return tenancy.ledger.begin_errand(errand, at=tenancy.clock.now())


def declare(
    tenancy: Verbs, run: str, artifacts: Sequence[str], discard: Sequence[str]
) -> Literal["in time", "late", "over"]:
    """Record which other files must be kept or may be lost.

    Returns "in time" if the job was not launched yet. Returns "late" if it was: then the patterns are used when the
    files are collected at the end. Returns "over" if the boxes have ended: then nothing is recorded.

    Raises:
        BadRequest: a pattern cannot be used, or gives up everything.
    """
    facts = facts_of(tenancy, run)
    is_launched = facts.job is not None and not facts.was_cut_off
    live = [lease for lease in facts.leases if lease.state.live]
    if facts.lease is not None and not live:
        return "over"
    # The patterns are for the box on which the work is done. If it has ended, they are for an earlier box.
    of = None
    if is_launched:
        of = facts.lease if facts.lease in live else live[0]
    require_patterns((*artifacts, *discard))
    require_narrow(discard)
    kept, given_up = facts.said_of(of or facts.lease)
    if not ({*artifacts} <= {*kept} and {*discard} <= {*given_up}):
        said = MoreDeclared(
            artifacts=tuple(artifacts), discard=tuple(discard), lease=of.id if of else None
        )
        tenancy.ledger.note_errand(run, said, at=tenancy.clock.now())
    return "late" if is_launched else "in time"


def watch_over(tenancy: Verbs, run: str) -> str:
    """Say who watches the errand's boxes from now on. Empty if none of them is left, or if they cost nothing."""
    context = tenancy.context
    bill = [
        lease
        for lease in tenancy.ledger.leases_of_errand(run)
        if lease.state.live and context.profile(lease.provider).kind != "own"
    ]
    return context.watch_words() if bill else ""


def what_stands(
    tenancy: Verbs, run: str, *, its_box: Literal["answers", "is silent"] = "answers"
) -> str:
    """Say what continues when the person leaves: who watches it, what it costs, and what ends it.

    If the box or its provider has not answered, nothing is said of how the job is.
    """
    from gpu_tenant.domain.policy import rules_of

    context, facts = tenancy.context, facts_of(tenancy, run)
    again = Command("run", resume=run)
    lease = facts.lease
    if lease is None or not lease.state.live:
        return f"{run} stops here, and nothing bills for it; {again} continues it"
    left = (lease.terms.deadline_at - context.clock.now()).total_seconds()
    price = "at an unknown price" if lease.price_usd_h is None else f"at {lease.price_usd_h} USD/h"
    runs = "its box is kept"
    if facts.is_launched and facts.job_state not in ENDED:
        runs = "its job may run on" if its_box == "is silent" else "its job runs on"
    rules = rules_of(lease, context.profile(lease.provider), looked_after=context.looked_after)
    return "; ".join(
        (
            f"{run} goes on without you: {runs} under {lease.id}, {price}, until its deadline in {span(left)}",
            f"watched: {context.watch_words()}",
            *rules[:4],
            f"{again} continues from there",
        )
    )
