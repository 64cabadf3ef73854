"""What the watchdog asks a box, and what it then does for the owner."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Literal

from gpu_tenant.artifacts.prune import SHARE, Pruned, prune_box, prune_here
from gpu_tenant.artifacts.retention import Retention, Wishes, wishes
from gpu_tenant.artifacts.snapshot import Snapshot, snapshot
from gpu_tenant.artifacts.stores.replicate import StoreCopy, keep_safe
from gpu_tenant.box.caretaker import ENDED, Guard, Standing
from gpu_tenant.box.guard import bring
from gpu_tenant.box.guard_record import armed_in, has_lapsed, note_gone
from gpu_tenant.box.idle_check import Activity
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxUnreachable,
    LeaseHeld,
    Refused,
    TenantError,
)
from gpu_tenant.domain.interruption import notice_on_record
from gpu_tenant.domain.last_start import guarded_until
from gpu_tenant.domain.model import JobId, Lease, LeaseId, LeaseState, SlurmAddress
from gpu_tenant.domain.protection import WATCHED_S
from gpu_tenant.domain.story import story_of
from gpu_tenant.files.skill_files import script
from gpu_tenant.jobs.cost_forecast import ExitReason, keep_course
from gpu_tenant.leases.adopt import adopt
from gpu_tenant.leases.cards import Card, Leases
from gpu_tenant.leases.context import Context, call_bytes_s, progress_to
from gpu_tenant.leases.inspection import check_before_stop
from gpu_tenant.leases.overview import on_card, overview
from gpu_tenant.leases.park import ask_to_park, is_stopped_unasked, unsure_of, until_parked
from gpu_tenant.leases.readiness import arm_guard, close_connections, made_ready, must_run, with_box
from gpu_tenant.leases.settle import deployment_of
from gpu_tenant.leases.verify import unkept_losses
from gpu_tenant.ledger import Ledger
from gpu_tenant.transfer.bandwidth_share import LowPriorityShare, limits_of_call

_UNTIL_WITHIN = timedelta(minutes=2)
"""The guard is told anew how long the budget lasts if it was told a time that differs by more than this."""

_WRITES = (
    timeline.Launched
    | timeline.Pushed
    | timeline.SetUp
    | timeline.Prepared
    | timeline.Resumed
    | timeline.Snapped
)


async def look_at(context: Context, provider: str, *, patience_s: float) -> Leases:
    """Like `reconcile`, but for one provider."""
    return await overview(context, "live", twins="give_back", at=(provider,), patience_s=patience_s)


async def try_ready(context: Context, lease: str) -> None:
    """Record the box as ready if it lets us in by now.

    Raises:
        NotReady, PriceMoved, ProviderTrouble: the box will never be ready.
    """
    found = await with_box(context, lease)
    with context.hold_lease(found.id, "wait"):
        await made_ready(context, found, wait_s=0)


async def standing_of(context: Context, lease: str, *, back_in_s: float = WATCHED_S) -> Standing:
    """Ask the box for the state of every job that was ever started on it.

    If the box has received notice that its platform takes it back, record the notice. `back_in_s` tells the guard on
    the box when we will ask again. If that is soon, the guard leaves the end at the deadline to us.

    Raises:
        BoxTrouble: the box could not be asked.
    """
    found = await must_run(context, lease)
    if found.touched_at is None:
        return Standing(jobs=())
    standing = await context.caretaker(found).standing(back_in_s=back_in_s)
    _note_notice(context, found, standing)
    return standing


def _note_notice(context: Context, lease: Lease, standing: Standing) -> None:
    """Record the notice that the box has received, unless it is already recorded."""
    heard = standing.notice
    if heard is None:
        return
    known, now = notice_on_record(context.ledger.events(lease.id)), context.clock.now()
    # How many seconds ago the box received the notice, by its own clock. The notice cannot be older than the lease.
    ago_s = max(0.0, (standing.now or heard.at) - heard.at)
    since = lease.ready_at or lease.created_at
    declared = {str(job.id) for job in context.ledger.jobs(lease.id)}
    kept = heard.kept
    told = timeline.Forewarned(
        source="metadata" if heard.source == "metadata" else "signal",
        at=known.at if known else max(since, now - timedelta(seconds=ago_s)),
        jobs=tuple(job for job in heard.jobs if job in declared),
        ended=heard.ended_at is not None and not heard.left,
        stored_files=kept.kept if kept is not None and kept.ok else None,
    )
    if told != known:
        context.ledger.note(lease.id, told, at=now)


async def rearm(context: Context, lease: str) -> str | None:
    """Check that the guard on the box enforces the deadline, and arm it again if it is gone, as after a reboot.

    Arm it again also if the budget now lasts longer, or less long, than the guard was told.

    Returns what the box said if the guard was gone and is armed again. Otherwise None.

    Raises:
        BoxTrouble: the box could not be asked.
    """
    found = await must_run(context, lease)
    if isinstance(found.address, SlurmAddress):
        return None  # the scheduler's time limit ends it, so it has no guard
    events = context.ledger.events(found.id)
    if context.clock.now() >= found.terms.deadline_at:
        return None
    if has_lapsed(found, events):
        return (await arm_guard(context, found)).words
    armed = armed_in(events)
    if armed is None:
        return None
    until = guarded_until(found, events, context.clock.now())
    is_old = armed.until is not None and abs(armed.until - until) > _UNTIL_WITHIN
    held = await context.caretaker(found).ask("guard", {}, Guard, timeout_s=15)
    if held.state != "not_armed":
        # A guard that has fired has done its work, and the next launch arms it again.
        if held.state == "armed" and is_old:
            await arm_guard(context, found)
        return None
    note_gone(found, ledger=context.ledger)
    return (await arm_guard(context, found)).words


async def activity(context: Context, lease: str) -> Activity:
    """Ask the box what it is doing and how long it has been idle, as the script on the box judges.

    Raises:
        BoxTrouble: the box could not be asked.
    """
    found = await must_run(context, lease)
    transport = context.transport(found)
    places = await bring({"activity": script("activity.py")}, transport, found)
    home = ["--home", found.caretaker_home]
    home += ["--rehearsed"] if context.ledger.is_rehearsed else []
    for verb in ("look", "judge"):
        answer = await transport.run(
            ["python3", "-I", "-S", places["activity"], verb, *home], timeout_s=60
        )
    return Activity.parse(answer.stdout)


async def pull(
    context: Context,
    lease: str,
    *,
    to: str | None = None,
    policy: Retention | None = None,
    on_the_box: Literal["keep", "prune"] = "keep",
) -> Snapshot:
    """Copy the artifacts that are complete, while jobs still run. The policy says which older checkpoints are kept.

    Without a `policy`, the one in the configuration applies. `on_the_box="prune"` is only for an owner's
    explicit request. Older checkpoints are first copied to this computer and proved, and then removed from the box. The
    copies on this computer stay.

    Raises:
        BadRequest: the box is to be pruned, but it is not said what to keep.
        BoxTrouble: the box could not be asked.
    """
    said = wishes(context.home.configuration)
    policy = policy or said.policy
    if on_the_box == "prune" and policy is None:
        raise BadRequest(
            "nothing says which checkpoints are to be kept",
            remedy=str(Command("collect", lease, live=True, keep_last="3", prune_box=True)),
        )
    found = await must_run(context, lease)
    directory = Path(to) if to else context.kept_in(found)
    # Do not hold the lease. This may take long, and meanwhile others must be able to stop a job or collect.
    limit = call_bytes_s.get() or (int(said.mb_s * 1e6) if said.mb_s else None)
    price = found.price_usd_h
    with limits_of_call(context.home, limit).join(found.id, price) as turn:
        seen = await snapshot(
            context.session(found),
            directory=directory,
            ledger=context.ledger,
            turn=turn if limit else LowPriorityShare(turn, SHARE),
            policy=None if on_the_box == "prune" else policy,
            done=said.done,
            progress=progress_to.get(),
        )
    if policy is None:
        return seen
    try:
        with context.hold_lease(found.id, "prune"):
            pruned = await _prune(context, found, policy, Path(seen.directory), on_the_box, said)
    except LeaseHeld as trouble:
        pruned = Pruned(stayed=(f"all: {trouble.message}",))
    return seen.model_copy(update={"pruned": pruned})


async def _prune(
    context: Context,
    lease: Lease,
    policy: Retention,
    directory: Path,
    on_the_box: Literal["keep", "prune"],
    said: Wishes,
) -> Pruned:
    if on_the_box == "keep":
        return await prune_here(lease, policy, directory=directory, ledger=context.ledger)
    # Keep the copies on this computer: once the box is pruned, they may exist nowhere else.
    return await prune_box(
        context.session(lease),
        policy,
        directory=directory,
        ledger=context.ledger,
        done=said.done,
    )


def kept_back(context: Context, lease: str) -> tuple[str, ...]:
    """Return what in the newest seal prevents the end of the box, with the remedy for each."""
    found = context.ledger.lease(lease)
    seal = context.ledger.seal(found.id)
    if seal is None:
        return ()
    return tuple(f"{loss.what} ({loss.remedy})" for loss in unkept_losses(seal, found))


def unseen_ends(ledger: Ledger, lease_id: LeaseId) -> set[str]:
    """Return the jobs that were launched, and whose end nobody has seen yet. Cells of sweeps have a table of their own."""
    story, cells = story_of(ledger.events(lease_id)), ledger.cell_jobs(lease_id)
    return {
        str(job.id)
        for job in ledger.jobs(lease_id)
        if job.launched_at is not None
        and job.id not in cells
        and story.job(job.id).state not in ENDED
    }


async def note_unseen_ends(context: Context, lease: Lease) -> None:
    """Record the ends of jobs that are not recorded yet. The box is asked only if there may be such jobs."""
    ledger = context.ledger
    unseen = unseen_ends(ledger, lease.id)
    if not unseen:
        return
    with suppress(TenantError):  # If this fails, the collect is still a success.
        caretaker = context.caretaker(lease)
        for brief in (await caretaker.standing()).jobs:
            if brief.job in unseen and brief.state in ENDED:
                status = await caretaker.status(JobId(brief.job), offset=0, limit=0, sample="plain")
                keep_course(
                    lease.id,
                    brief.job,
                    brief.state,
                    None,
                    ledger=ledger,
                    at=context.clock.now(),
                    end=ExitReason(exit_code=status.exit_code),
                )


def has_news(context: Context, lease: Lease) -> bool:
    """Whether something was done on the box since its files were last collected."""
    if lease.touched_at is None:
        return False
    news = False
    for _, event in context.ledger.events(lease.id):
        if isinstance(event, timeline.Collected):
            news = False
        elif isinstance(event, _WRITES):
            news = True
    return news


async def store_again(context: Context, lease: str) -> StoreCopy | None:
    """Copy what was collected into the lease's store, and re-read it from there. None if the lease has no store.

    Raises:
        StoreTrouble: the store does not hold everything that was collected.
    """
    found = context.ledger.lease(lease)
    seal, store = context.ledger.seal(found.id), context.store(found)
    if store is None or seal is None:
        return None
    with context.hold_lease(found.id, "store"):
        return await keep_safe(
            found,
            seal,
            directory=context.kept_in(found),
            store=store,
            ledger=context.ledger,
            progress=progress_to.get(),
        )


async def park_overdue(context: Context, lease: str) -> None:
    """Stop the box of a lease whose end is due, although no copy of its files was proved.

    The box's disk is kept. A box that cannot be asked is stopped too: its time is over, or its work is over elsewhere. If
    its provider shows it as stopped already, that is recorded.

    Raises:
        Refused: the platform has no stop that keeps the disk.
        ProviderTrouble: the box is not stopped, and may bill.
    """
    found = await with_box(context, lease)
    if found.state is not LeaseState.ACTIVE or found.parked_at is not None:
        raise Refused(f"{found.id} does not run", remedy=str(Command("leases")))
    try:
        await _made_still(context, found, unsealed="accept")
    except BoxUnreachable:
        with context.hold_lease(found.id, "park"):
            if not await is_stopped_unasked(context, found):
                raise


async def park_when_done(context: Context, lease: str, *, unless_wanted_after_line: int) -> None:
    """Seal and stop the box of a lease whose work is done. The box's disk is kept.

    Raises:
        StillWanted: more work came after the ledger's line `unless_wanted_after_line`; the box runs on.
        Refused, BoxTrouble, ProviderTrouble: as `park`.
    """
    found = await must_run(context, lease)
    await _made_still(
        context, found, unsealed="refuse", unless_wanted_after_line=unless_wanted_after_line
    )


async def park_stray(context: Context, provider: str, box: str) -> Card:
    """Give a lease to a box that has none, and stop the box, whatever runs on it. Return the card of the lease.

    This is only for the owner's explicit request. The box's disk is kept, and bills. Nobody checks its files.

    Raises:
        Refused: it is not known that a stop keeps the whole disk; or the box belongs to another gpu-tenant, and this
            one cannot tell the jobs there to save their work. Nothing was changed.
        BadRequest, BoxTaken: there is no such box, or a lease has it.
        ProviderTrouble: the provider did not answer; or the box is under a lease but not stopped, and may bill.
    """
    profile = context.set_up(provider)
    if profile.park != "keeps" or unsure_of(profile):
        raise Refused(
            f"no stop at {profile.title} is known to keep all of a disk",
            remedy=f"{Command('adopt', box, on=provider)}, then look at what is on the box",
        )
    listed = await context.connectors[provider].list_boxes()
    marked = next((deployment_of(each) for each in listed if each.id == box), None)
    if marked not in (None, context.ledger.deployment):
        raise Refused(
            f"{box} belongs to another gpu-tenant ({marked}), and may be running a job",
            remedy=f"stop the box where that gpu-tenant runs, or first run {Command('adopt', box, on=provider)}",
        )
    card = await adopt(context, provider, box)
    await _made_still(context, context.ledger.lease(card.lease), unsealed="skip")
    return on_card(context, card.lease)


async def _made_still(
    context: Context,
    lease: Lease,
    *,
    unsealed: Literal["refuse", "accept", "skip"],
    unless_wanted_after_line: int | None = None,
) -> None:
    with context.hold_lease(lease.id, "park"):
        if unsealed != "skip":
            lease = await check_before_stop(context, lease)
        await ask_to_park(
            context,
            lease,
            unsealed=unsealed,
            unless_wanted_after_line=unless_wanted_after_line,
        )
    # A provider may take minutes to stop a box. Do not hold the lease meanwhile, so that others can use it.
    await until_parked(context, lease, lease_is="free")
    await close_connections(context, lease)


def kept_elsewhere(context: Context, lease: Lease) -> list[Path]:
    """Return the directories where other leases' files are kept, the latest first."""
    places = (Path(x.kept_in) for x in reversed(context.ledger.leases()) if x.kept_in)
    return [place for place in dict.fromkeys(places) if place != context.kept_in(lease)]
