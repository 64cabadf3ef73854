"""Stops a box's GPU meter and keeps its disk, where the platform can do that, and starts the box again."""

import asyncio
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Literal

from gpu_tenant.box.manifest import reseal, unread_bytes
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BoxTrouble,
    BoxUnreachable,
    JobRunning,
    LeaseHeld,
    OwnerMustAct,
    ProviderSilent,
    ProviderTrouble,
    Refused,
)
from gpu_tenant.domain.fact_life import asks_to_read_again, stop_is_in_doubt
from gpu_tenant.domain.model import BoxState, Lease, LeaseState, Profile
from gpu_tenant.domain.ports import Parking, Tended
from gpu_tenant.domain.reconcile import Listed, rate_words
from gpu_tenant.domain.survival import kept_by_a_stop, kept_paths, stop_keeps
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.wording import some
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.provider_listing import look
from gpu_tenant.leases.recovery_plan import must_not_be_moving
from gpu_tenant.leases.settle import note_stopped, settle, was_asked_to_stop
from gpu_tenant.leases.won_back import not_yet
from gpu_tenant.ledger import Allowed, anything

_WITHIN_S = 600
_SEALED_WITHIN_S = 120
_QUIET_WITHIN_S = 120
_POLL_S = 5
_SOON_S = 2
_SOON = f'(sleep {_SOON_S}; exec sh -c "$1") >/dev/null 2>&1 </dev/null &'
"""A shell command that runs its argument `_SOON_S` seconds later. A box that stopped at once could not answer."""


async def park(
    context: Context,
    lease: Lease,
    *,
    unsealed: Literal["refuse", "accept", "skip"] = "refuse",
    unless_wanted_after_line: int | None = None,
) -> Lease:
    """Stop the box and keep its disk. From then on the lease costs what a parked box costs.

    If the provider stops the box, the box needs no address. `unsealed="accept"` is for a lease past its end: the
    box is stopped even if sealing takes too long, or if a process still runs after it was told to end. With "skip",
    sealing is not tried: that is for a box about which nothing is known, at its owner's request.
    `unless_wanted_after_line` is the number of a line in the ledger. If somebody has brought more work after that line,
    the box is not stopped.

    Raises:
        StillWanted: somebody has brought more work; nothing was stopped.
        Refused: the platform has no stop that saves anything, or its stop would empty a disk that was used.
        JobRunning: the stop would kill a job.
        BoxTrouble: the box could not be asked, or still answers after the stop.
        OwnerMustAct: only a person can stop the box, and has not.
        ProviderTrouble: the provider refused, or does not show the box as stopped. The box may bill.
    """
    await ask_to_park(
        context, lease, unsealed=unsealed, unless_wanted_after_line=unless_wanted_after_line
    )
    return await until_parked(context, lease, lease_is="held")


async def ask_to_park(
    context: Context,
    lease: Lease,
    *,
    unsealed: Literal["refuse", "accept", "skip"] = "refuse",
    unless_wanted_after_line: int | None = None,
) -> None:
    """Do the first part of `park`: return when the provider has accepted the request.

    The next look at the lease that finds the box stopped records the stop.

    Raises:
        StillWanted, Refused, JobRunning, BoxTrouble, OwnerMustAct, ProviderTrouble: as `park`.
    """
    profile, connector = context.profile(lease.provider), context.connector(lease)
    ledger = context.ledger
    if profile.kind == "own":
        raise Refused(
            f"{lease.id} is not billed by the hour: there is no meter to stop",
            remedy=f"{Command('stop', lease.id)} ends a job, {Command('teardown', lease.id)} the lease",
        )
    if profile.park == "none" or not isinstance(connector, Parking):
        raise Refused(
            f"{profile.title} has no stop that saves money: a box there bills until it is destroyed",
            remedy=f"{Command('collect', lease.id)}, then {Command('teardown', lease.id)}",
        )
    keeps = stop_keeps(profile, lease)
    if lease.touched_at is not None and keeps == "nothing":
        # The stop would also delete the box's own record of what was written there, and with it every proof.
        if stop_is_in_doubt(profile):
            words, remedy = asks_to_read_again(profile)
            raise Refused(
                words,
                remedy=f"{remedy}; or {Command('collect', lease.id)}, then {Command('teardown', lease.id)}",
            )
        unsure = unsure_of(profile)
        if unsure:
            raise Refused(
                f"it is unknown whether {' and '.join(unsure)} survive a stop at {profile.title}",
                remedy=f"{Command('collect', lease.id)}, then {Command('teardown', lease.id)}",
            )
        why = f" ({lease.place.why})" if lease.place and lease.place.why else ""
        raise Refused(
            f"{profile.title} empties the box's own disk when it stops, and with it everything that was pushed or written{why}",
            remedy=f"{Command('collect', lease.id)}, then {Command('teardown', lease.id)}, and rent again",
        )
    by_hand = isinstance(connector, Tended) and connector.tends(lease.box_id)
    asked = (
        bool(ledger.events(lease.id)) and ledger.events(lease.id)[-1].kind == timeline.Parking.kind
    )
    if by_hand and asked:
        await _require_stopped(context, lease)
    else:
        if lease.touched_at is not None and unsealed != "skip":
            await _seal(context, lease, unsealed)
        if lease.touched_at is not None and keeps == "work":
            await _loses_nothing(context, lease)
        if by_hand:
            if unless_wanted_after_line is not None:
                ledger.must_be_unwanted(lease.id, unless_wanted_after_line)
            await _stop(context, lease)
    if by_hand:
        ledger.must_still_hold(lease.id)
    else:
        ledger.parking(
            lease.id,
            how=profile.park_how,
            at=ledger.now(),
            unless_wanted_after_line=unless_wanted_after_line,
        )
    try:
        await connector.park(lease)
    except ProviderSilent:
        raise  # it may have been carried out
    except ProviderTrouble:
        ledger.note(lease.id, timeline.RunsOn(), at=ledger.now())
        raise


async def until_parked(
    context: Context, lease: Lease, *, lease_is: Literal["held", "free"]
) -> Lease:
    """Wait until the provider, which was asked to stop the box, shows it as stopped. Return the parked lease.

    If the lease is not held (`lease_is="free"`), the first process that sees the stop records it.

    Raises:
        Refused: the provider says that the box's host is lost. Nothing is left to stop.
        ProviderSilent: the provider does not show the box as stopped. The box may bill.
    """
    profile, ledger = context.profile(lease.provider), context.ledger
    asked_at, give_up_at = ledger.newest_event(), ledger.now() + timedelta(seconds=_WITHIN_S)
    while ledger.now() < give_up_at:
        known = ledger.lease(lease.id)
        if known.parked_at is not None or known.state is not LeaseState.ACTIVE:
            return known
        seen = await look(context, lease)
        if isinstance(seen, Listed) and seen.box.state is BoxState.PARKED:
            mine = nullcontext() if lease_is == "held" else context.hold_lease(lease.id, "park")
            with suppress(LeaseHeld), mine:
                known = ledger.lease(lease.id)
                # Between the look and the hold, the owner may have started the box again.
                if lease_is == "held" or was_asked_to_stop(known, seen.box, ledger=ledger):
                    return note_stopped(ledger, known, seen.box)
        elif isinstance(seen, Listed) and seen.box.taken == "host_lost":
            ledger.note(lease.id, timeline.RunsOn(), at=ledger.now())
            raise Refused(
                f"{profile.title} says that the host of {lease.box_id} is lost: nothing is left to stop",
                remedy=f"{Command('recover', lease.id)} continues its work elsewhere; {Command('teardown', lease.id)} "
                "gives up the box",
            )
        if ledger.kinds_since(asked_at).get(lease.id, frozenset()) & _BEGUN_ANEW:
            return ledger.lease(lease.id)  # Its owner has decided otherwise meanwhile.
        await ledger.clock.sleep(_POLL_S)
    raise ProviderSilent(
        f"{profile.title} does not show {lease.box_id} as stopped; it may be billing {rate_words(lease)}",
        remedy=f"{Command('leases')} looks again",
    )


async def is_stopped_unasked(context: Context, lease: Lease) -> bool:
    """Whether the provider shows the box as stopped, although we did not ask for that. If so, record the stop."""
    seen = await look(context, lease)
    if not isinstance(seen, Listed) or seen.box.state is not BoxState.PARKED:
        return False
    note_stopped(context.ledger, context.ledger.lease(lease.id), seen.box)
    return True


_BEGUN_ANEW = frozenset({timeline.Resuming.kind, timeline.Resumed.kind})


async def _loses_nothing(context: Context, lease: Lease) -> None:
    """Require that no file that we must keep is on a disk that the stop empties or may empty.

    Raises:
        Refused: there are such files. The error names the largest.
        JobRunning, BoxTrouble: the box cannot be looked at.
    """
    profile = context.profile(lease.provider)
    seen = await reseal(
        context.session(lease),
        ledger=context.ledger,
        hashes="recalled",
        running="listed",  # if a process must not be interrupted, the earlier seal has already refused
        outlives=kept_paths(profile, lease),
    )
    lost = seen.lost_by_stop
    if lost is None:
        raise BoxTrouble(
            f"{lease.box_id} does not say what a stop would lose",
            remedy=f"{Command('collect', lease.id)}, then {Command('teardown', lease.id)}",
        )
    if lost.count:
        named = ", ".join(f"{one.at} ({some(one.size_bytes, 'byte')})" for one in lost.largest[:5])
        kept = " and ".join(kept_by_a_stop(profile))
        raise Refused(
            f"a stop at {profile.title} keeps only {kept}, and would lose {some(lost.count, 'file')}: {plain(named)}",
            remedy=f"move them below {kept} with {Command('ssh', lease.id)}, or give them up with "
            f"{Command('collect', lease.id, discard='PATTERN')}; then {Command('park', lease.id)} again",
        )


def unsure_of(profile: Profile) -> list[str]:
    """Return the paths whose files we must keep, if it is unknown whether these paths survive a stop."""
    return [
        place.path
        for place in profile.places
        if place.path in profile.accounted_paths and place.survives.get("park") == "unknown"
    ]


async def _seal(context: Context, lease: Lease, unsealed: Literal["refuse", "accept"]) -> None:
    """Seal the box before it is stopped. With "refuse", raise if anything still runs or cannot be read."""
    ledger = context.ledger
    if unsealed == "refuse":
        session = context.session(lease)
        draft = await reseal(
            session,
            ledger=ledger,
            hashes="recalled",
        )
        if not draft.digest:
            await reseal(
                session,
                ledger=ledger,
                unread_bytes=unread_bytes(draft),
            )
        return
    # The lease's time is over, and hashing is billed. So give it only a short time.
    with suppress(BoxTrouble, JobRunning, TimeoutError):
        async with asyncio.timeout(_SEALED_WITHIN_S):
            await reseal(context.session(lease), ledger=ledger)


async def _stop(context: Context, lease: Lease) -> None:
    """Give the box the platform's own stop command, and wait until it no longer answers.

    Before the box has confirmed the command, silence proves nothing: if the link breaks before that, the lease
    stays as it was.

    Raises:
        OwnerMustAct: the platform has no such command.
        BoxUnreachable: it is unknown whether the box took the command.
        BoxTrouble: the box refused the command, or still answers after it.
    """
    profile, ledger = context.profile(lease.provider), context.ledger
    asked = timeline.Parking(how=profile.park_how)
    if profile.park_how != "in_box" or profile.park_command is None:
        ledger.note(lease.id, asked, at=ledger.now())
        raise _owner_must_park(lease, profile)
    taken = await context.transport(lease).run(
        ["sh", "-c", _SOON, "stop", profile.park_command], timeout_s=30
    )
    if taken.exit_status:
        raise BoxTrouble(
            f"{lease.box_id} did not take `{profile.park_command}`: status {taken.exit_status}",
            remedy=f"{profile.console_words('park')}; then {Command('park', lease.id)} again",
        )
    ledger.note(lease.id, asked, at=ledger.now())
    await ledger.clock.sleep(_SOON_S)
    give_up_at = ledger.now() + timedelta(seconds=_QUIET_WITHIN_S)
    while await _answers(context, lease):
        if ledger.now() >= give_up_at:
            raise BoxTrouble(
                f"{lease.box_id} still answers after `{profile.park_command}`; it is billing "
                f"{rate_words(lease)}",
                remedy=f"{profile.console_words('park')}; then {Command('park', lease.id)} again",
            )
        await ledger.clock.sleep(_POLL_S)


async def _require_stopped(context: Context, lease: Lease) -> None:
    """Require that the box no longer answers, after the box or its owner was asked to stop it."""
    profile, ledger = context.profile(lease.provider), context.ledger
    if await _answers(context, lease):
        # Somebody may have worked on the box since the request. So the next request starts from the beginning.
        ledger.note(lease.id, timeline.RunsOn(), at=ledger.now())
        raise _owner_must_park(lease, profile)


async def _answers(context: Context, lease: Lease) -> bool:
    """Whether the box answers. It is asked twice, because a link may break for a moment."""
    transport = context.transport(lease)
    for _ in range(2):
        with suppress(BoxUnreachable):
            await transport.run(["true"], timeout_s=10)
            return True
        await context.clock.sleep(_POLL_S)
    return False


def _owner_must_park(lease: Lease, profile: Profile) -> OwnerMustAct:
    return OwnerMustAct(
        f"{lease.box_id} still runs, {rate_words(lease)}, and only a person can stop it: "
        f"{profile.console_words('park')}",
        remedy=f"then {Command('park', lease.id)} again, which checks that it stopped",
    )


async def resume(
    context: Context,
    lease: Lease,
    *,
    allowed: Allowed = anything,
) -> Lease:
    """Start the parked box again. From then on it costs what a running box costs.

    The box may not answer yet when this returns. `allowed` raises if the owner's limits leave no room for a
    running box. A start whose outcome is unknown counts as a start.

    Raises:
        NotReady: the provider had stopped the box, and it is starting again by itself.
        Limit: the limits leave no room; the provider was not asked.
        NoCapacity: the box's GPU now belongs to somebody else; the disk is kept, and bills.
        ProviderTrouble: the provider refused; the box is parked as before.
    """
    connector, ledger = context.connector(lease), context.ledger
    must_not_be_moving(ledger, lease)
    if lease.parked_at is None:
        # Its platform may have stopped it, because of a higher bid, a timer, or an empty balance.
        seen = await look(context, lease)
        if isinstance(seen, Listed) and seen.box.state is BoxState.PARKED:
            lease = ledger.note_parked(lease.id, seen.box.price_usd_h, at=ledger.now())
        elif (boots := await not_yet(context, lease)) is not None:
            raise boots
    if lease.parked_at is None or not isinstance(connector, Parking):
        raise Refused(f"{lease.id} is not parked", remedy=str(Command("leases")))
    running = next((r.usd_h for r in reversed(lease.rates) if r.at < lease.parked_at), None)
    if lease.quote is not None:
        running = lease.quote.offer.price.running_usd_h
    ledger.resuming(lease.id, running, at=ledger.now(), allowed=allowed)
    try:
        await connector.resume(lease)
    except ProviderSilent:
        raise
    except ProviderTrouble:
        ledger.stays_parked(lease.id, lease.price_usd_h, at=ledger.now())
        raise
    lease = ledger.note_resumed(lease.id, running, at=ledger.now())
    lease, _ = await settle(context, lease)
    return lease
