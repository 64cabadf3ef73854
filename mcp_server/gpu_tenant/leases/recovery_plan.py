"""Plans how to continue the work of a taken box: what has to run again, from which files, and for how much."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_DOWN, Decimal

from gpu_tenant.artifacts.push import PushedTree, is_unchanged, pushed_trees
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.end_reserve import least_budget_usd
from gpu_tenant.domain.errors import NotReady, Refused, StillBoots
from gpu_tenant.domain.interruption import went_on
from gpu_tenant.domain.model import Job, Lease, LeaseId, LeaseState
from gpu_tenant.domain.next_step import End, GoElsewhere, NextStep, NothingToDo, watcher
from gpu_tenant.domain.offers import USD_STEP, Quote, Wish
from gpu_tenant.domain.policy import LookedAfter, owners_cap
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.terms import Terms, cost_usd
from gpu_tenant.domain.wording import span
from gpu_tenant.jobs.multinode.launcher import gangs
from gpu_tenant.ledger import Ledger

_LEAST_H = 0.25
"""A box is rented for at least this many hours.

A shorter time is not worth a box. The hours of work that are left are only an estimate.
"""


@dataclass(frozen=True, slots=True)
class RecoverableWork:
    """What ran on a box that was taken, in a form that can be started again elsewhere."""

    lease: Lease
    jobs: tuple[Job, ...]
    trees: tuple[PushedTree, ...]
    setup_from: tuple[str, ...]
    """The references to the values for making the environment, as `NAME=reference`."""

    @property
    def in_environment(self) -> bool:
        """Whether a job ran in an environment that was made on the box."""
        return any("VIRTUAL_ENV" in job.env_names for job in self.jobs)


# What has to be done again


def unfinished_jobs(ledger: Ledger, lease_id: LeaseId) -> tuple[Job, ...]:
    """Return the jobs whose work is left to be done: those that may still run on the box, and those that it cut off.

    A job that was seen to end is finished, even if it crashed: it would crash again on any box. A seal shows that
    nothing was running. A job was cut off if it was killed when its box was taken, and not by us. The kill may be seen
    before the provider shows that it took the box.
    """
    lease = ledger.lease(lease_id)
    omitted = ledger.absences(lease_id) if lease.state is LeaseState.LOST else []
    left = story_of(ledger.events(lease_id)).unfinished(lost_at=min(omitted, default=None))
    return tuple(job for job in ledger.jobs(lease_id) if job.id in left)


def _setups(ledger: Ledger, lease_id: LeaseId) -> set[str]:
    """Return the jobs that make an environment. They run again when the environment is made again."""
    return {*story_of(ledger.events(lease_id)).environments}


def is_begun(ledger: Ledger, lease_id: LeaseId) -> bool:
    """Whether a job was declared on the lease. If so, the job's input files are on the box already."""
    return any(job.id not in _setups(ledger, lease_id) for job in ledger.jobs(lease_id))


async def work_of(lease: Lease, *, ledger: Ledger) -> RecoverableWork:
    """Return what ran on the lease's box, if all of it can be started again exactly as it was.

    Raises:
        Refused: nothing ran; or a part of the work is not recorded, or has changed since.
    """
    jobs = unfinished_jobs(ledger, lease.id)
    if not jobs:
        raise Refused(
            f"no job of {lease.id} was running when its box was last heard of",
            remedy=f"{Command('leases', all=True)} shows what was kept of its work",
        )
    setups = _setups(ledger, lease.id)
    made = [job for job in ledger.jobs(lease.id) if job.id in setups]
    work = RecoverableWork(
        lease=lease,
        jobs=jobs,
        trees=tuple(pushed_trees(ledger, lease.id)),
        setup_from=made[-1].env_from if made else (),
    )
    by_hand = f"provision, push and launch by hand; {kept_words(lease)}"
    for reference in (*work.setup_from, *(ref for job in jobs for ref in job.env_from)):
        name, _, source = reference.partition("=")
        if source == "text:":
            raise Refused(
                f"the value of {name} was given as plain text when {lease.id} was used, so it was not stored",
                remedy=f"{by_hand}; next time give a reference: `{name}=env:{name}`",
            )
    for gang in gangs(ledger.events(lease.id)):
        if any(job.id == gang.job for job in jobs):
            raise Refused(
                f"{gang.job} of {lease.id} is one job together with {', '.join(gang.others(lease.id))}, and the "
                "address over which they connect is gone",
                remedy=f"{gang.stop}; then rent another box, and launch --together again, from the checkpoint",
            )
    for tree in work.trees:
        if not await is_unchanged(tree):
            raise Refused(
                f"{tree.directory} has changed since it was pushed to {lease.id}: the work could not be continued as it was",
                remedy=f"restore the directory (`git stash` may do that), or {by_hand}",
            )
    return work


def kept_words(lease: Lease) -> str:
    """Name the command that shows which files are here. Do not promise a checkpoint, because there may be none."""
    return f"{Command('report', lease.id)} says what of its work is on this computer"


def claims_of(ledger: Ledger, lease_id: LeaseId) -> tuple[Sequence[str], Sequence[str]]:
    """Return the patterns that the owner claimed after the launch and no job had declared, and those given up."""
    declared = {pattern for job in ledger.jobs(lease_id) for pattern in job.artifacts}
    events = ledger.events(lease_id, timeline.Claimed)
    claims = [event for _, event in events if isinstance(event, timeline.Claimed)]
    kept = dict.fromkeys(p for claim in claims for p in claim.artifacts if p not in declared)
    given_up = dict.fromkeys(p for claim in claims for p in claim.discard)
    return list(kept), list(given_up)


# Under which leases the work was and is done


def successor(ledger: Ledger, lease: Lease) -> Lease | None:
    """Return the lease that continues the work of this one, or is about to. None if there is none."""
    had = [x for x in ledger.leases() if x.recovers == lease.id and _was_had(x, ledger)]
    return had[-1] if had else None


def _was_had(lease: Lease, ledger: Ledger) -> bool:
    """Whether that lease counts as a successor.

    It does not count if it got no box, or if its box was lost before anything ran on it.
    """
    if lease.state is LeaseState.LOST:
        return any(job.launched_at for job in ledger.jobs(lease.id))
    return lease.state.live or lease.touched_at is not None


def gone_on(ledger: Ledger, lease: Lease) -> Lease | None:
    """Return the lease under which all work of this lease was launched again. None if there is none yet."""
    told = went_on(ledger.events(lease.id))
    return ledger.lease(told.by) if told is not None and told.by is not None else None


def must_not_be_moving(ledger: Ledger, lease: Lease) -> None:
    """Require that no new box is about to continue the work of this lease.

    If the old box were ended or started now, the recovery would stop, and the new box would bill without work. After
    the deadline, or if the new box is parked, the work does not continue there, and this check passes.

    Raises:
        Refused: a new box was rented for the work, and does not have the work yet.
    """
    new = successor(ledger, lease)
    if lease.state is not LeaseState.ACTIVE or gone_on(ledger, lease) is not None:
        return
    if new is None or not new.state.live or new.parked_at is not None:
        return
    if ledger.now() >= lease.terms.deadline_at:
        return
    raise Refused(
        f"the work of {lease.id} is about to go on at {new.id}, which does not have it yet",
        remedy=f"{Command('recover', lease.id)} goes on with that; or {Command('teardown', new.id)} gives it up",
    )


def goes_on_step(lost: Lease, looked_after: LookedAfter, *, again_s: float | None = None) -> str:
    """Return what brings the work of the lease further, whose recovery has begun.

    `again_s` is when whoever is told this looks again by itself, and brings it further then.
    """
    again = Command("recover", lost.id)
    if again_s is not None:
        return f"nothing to do: the watchdog goes on with it at its next look, in about {span(again_s)}"
    if looked_after == "watched" and lost.terms.recover:
        return f"nothing to do: the watchdog goes on with it at its next look; {again} does so now"
    return f"{again} again goes on with it"


def awaits_work(ledger: Ledger, new: Lease, looked_after: LookedAfter) -> NotReady | None:
    """Say that the work of another lease is on its way to this one, and what is next. None if it is not.

    A job that somebody launches on the box meanwhile would run beside that work.
    """
    if new.recovers is None or not new.state.live or new.parked_at is not None:
        return None
    if any(job.launched_at is not None for job in ledger.jobs(new.id)):
        return None
    lost = ledger.lease(new.recovers)
    if gone_on(ledger, lost) is not None:
        return None
    step, gives_up = goes_on_step(lost, looked_after), Command("teardown", new.id)
    if not lost.state.live and lost.state is not LeaseState.LOST:
        words, step = (
            f"{lost.id}, whose work it was rented for, has ended",
            f"{gives_up} gives it up",
        )
    elif ledger.now() >= lost.terms.deadline_at:
        words = f"the deadline of {lost.id}, whose work it was rented for, has passed"
        step = f"{gives_up} gives it up"
    elif new.ready_at is None:
        words = f"it is to continue the work of {lost.id}, and its box still boots"
    else:
        words = f"the work of {lost.id} is on its way to it"
    kind = NotReady if step.startswith(str(gives_up)) else StillBoots
    return kind(f"{new.id} has no job yet: {words}", remedy=step)


def awaits_step(ledger: Ledger, new: Lease, looked_after: LookedAfter) -> NextStep:
    """Return what `awaits_work` says is next, as a value."""
    lost, by = ledger.lease(LeaseId(str(new.recovers))), watcher(looked_after)
    is_over = not lost.state.live and lost.state is not LeaseState.LOST
    if is_over or ledger.now() >= lost.terms.deadline_at:
        return End(new.id)
    if by is not None and lost.terms.recover:
        return NothingToDo(by, "recover")
    return GoElsewhere(lost.id)


# Within which caps

_WAY_HOME_H = 0.1
_WAY_HOME_SHARE = Decimal("0.1")
"""A box that was taken may be started again for `_WAY_HOME_H` hours, to be collected and ended.

At most this share of the budget is kept for that.
"""


def budget_left(ledger: Ledger, lease: Lease, now: datetime) -> Decimal | None:
    """Return what the work may still cost: the budget minus what its leases have cost. None if there is no budget.

    Raises:
        Refused: nothing is left, or it is unknown what the leases have cost.
    """
    left = lease.terms.budget_usd
    if left is None:
        return None
    for each in ledger.lineage(lease):
        # When this lease was made, the cost of the earlier leases was subtracted from its budget.
        before = Decimal(0) if each is lease else each.cost_usd(lease.created_at)
        cost = each.cost_usd(now)
        if cost is None or before is None:
            raise Refused(
                f"what {each.id} has cost is unknown, and cannot be taken off a budget",
                remedy="provision again, with a new budget",
            )
        left -= cost - before
    if left <= 0:
        raise Refused(
            f"the budget of {lease.terms.budget_usd} USD is spent on {lease.id}",
            remedy=f"provision again, with a new budget; {kept_words(lease)}",
        )
    return left


def keep_one_budget(ledger: Ledger, lost: Lease, new: Lease, now: datetime) -> None:
    """From now on, keep both leases together within the first lease's budget.

    The box that was taken may bill until it is torn down, and may have files that exist nowhere else. So its lease keeps
    money for one short start, to collect the files and end the box. The new lease's budget is reduced by this money,
    and by what the old box has cost since the new lease was made.
    """
    lost, new = ledger.lease(lost.id), ledger.lease(new.id)
    cost, before = lost.cost_usd(now), lost.cost_usd(new.created_at)
    if cost is None or before is None:
        return
    left = max(Decimal(0), (new.terms.budget_usd or Decimal(0)) - (cost - before))
    least = least_budget_usd(lost, ledger.events(lost.id), now, hours=_WAY_HOME_H)
    kept = Decimal(0)
    if lost.state.live and least is not None:
        kept = min(max(kept, least - cost), left * _WAY_HOME_SHARE)
    _lower_to(ledger, lost, cost + kept, now)
    if new.terms.budget_usd is not None:
        _lower_to(ledger, new, left - kept, now)


def _lower_to(ledger: Ledger, lease: Lease, most_usd: Decimal, now: datetime) -> None:
    budget = lease.terms.budget_usd
    lowered = most_usd.quantize(USD_STEP, rounding=ROUND_DOWN)
    if budget is not None and lowered < budget and lease.state.live:
        terms = {**lease.terms.model_dump(), "budget_usd": lowered}
        ledger.change_terms(lease.id, Terms.model_validate(terms), at=now)


def wish_again(lease: Lease, saved_until: datetime | None) -> Wish:
    """Return what to rent for the rest of the lease's work: the same as before, for the hours that are left.

    Raises:
        Refused: the ledger does not say what was rented, because there was no quote.
    """
    if lease.quote is None:
        raise Refused(
            f"{lease.id} was not rented by a quote: it is not on record what to rent for its work",
            remedy=f"{Command('offers')}, then provision, push and launch",
        )
    wish, began = lease.quote.wish, lease.ready_at or lease.created_at
    done_h = (saved_until - began).total_seconds() / 3600 if saved_until else 0
    cap = lease.terms.max_price_usd_h
    return wish.model_copy(
        update={
            "hours": min(wish.hours, max(wish.hours - done_h, _LEAST_H)),
            "hours_on": lease.quote.offer.gpu,
            "like": lease.id,
            "max_price_usd_h": cap if cap is not None else wish.max_price_usd_h,
            # A box that is not interruptible is also good if it is within the cap. Not every market takes bids.
            "interruptible": "either" if wish.interruptible == "yes" else wish.interruptible,
        }
    )


def as_agreed(lost: Lease, quote: Quote) -> Quote:
    """Return the quote for the rest of the lease's work, with a cap that ends work only if a person named that cap.

    Where nobody did, the price that was agreed still bounds what is rented, now and by a later recovery. But a rise
    while the new box works is only told, as it was for the box that was taken.
    """
    if owners_cap(lost) is not None:
        return quote
    wish = quote.wish.model_copy(update={"max_price_usd_h": None})
    return quote.model_copy(update={"wish": wish})


# What was lost


def taken_at(ledger: Ledger, lease: Lease, now: datetime) -> datetime:
    """Return when the box was first known to be taken. Until then, its jobs may have run."""
    box = story_of(ledger.events(lease.id)).box
    omitted = ledger.absences(lease.id) if lease.state is LeaseState.LOST else []
    heard = None if box.notice is None else box.notice.at
    return min(filter(None, (box.last_taken_at, *omitted[:1], heard)), default=now)


def lost_usd(
    lost: Lease, new: Lease, *, since: datetime, until: datetime, now: datetime
) -> Decimal | None:
    """Return the cost of the work that has to be repeated, plus what the new box cost before its first launch."""
    again = cost_usd(lost.rates, since=since, until=until)
    setup = new.cost_usd(now)
    return None if again is None or setup is None else (again + setup).quantize(USD_STEP)
