"""Describes a box that its provider took and that is starting again by itself, until it answers."""

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import StillBoots
from gpu_tenant.domain.interruption import recorded_fate, went_on
from gpu_tenant.domain.model import Box, BoxState, Lease, LeaseState
from gpu_tenant.domain.next_step import Await, NothingToDo, Watcher
from gpu_tenant.domain.policy import LookedAfter, running_usd_h
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.launch_again import again_step, newest_launched
from gpu_tenant.leases.provider_listing import shown_box


def starts_again(lease: Lease, events: Lines, box: Box | None) -> bool:
    """Whether the box was taken, and is booting again although we have not started it."""
    if box is None or box.state is not BoxState.BOOTING or box.taken is not None:
        return False
    stands = lease.state is LeaseState.ACTIVE and lease.parked_at is None
    return stands and lease.ready_at is not None and recorded_fate(events) is not None


def state_words(lease: Lease, events: Lines) -> str:
    """Say that the box boots again, what it bills now, and what it will bill when it runs."""
    won = "it won its GPU back and boots"
    if recorded_fate(events) != "outbid":
        won = "it starts again by itself and boots"
    now, running = (
        "an unknown rate" if usd_h is None else f"{usd_h} USD/h"
        for usd_h in (lease.price_usd_h, running_usd_h(lease))
    )
    return f"{won}; it bills {now} now, and {running} once it runs"


def next_words(lease: Lease, events: Lines, again: Command, looked_after: LookedAfter) -> str:
    """Say the next step once the box answers. `again` is the command that launches its cut-off job again."""
    watched = looked_after == "watched"
    home = f"{Command('collect', lease.id)}, then {Command('teardown', lease.id)}"
    if went_on(events) is not None:
        if watched and lease.terms.when_done == "end" and lease.terms.on_failure.does == "end":
            return (
                "nothing: once it answers, the watchdog collects what its jobs wrote, and ends it"
            )
        return f"wait a minute or two, then {home}"
    if watched and lease.terms.recover:
        return "nothing: once it answers, the watchdog launches its job again"
    return f"wait a minute or two, then {again} continues from what its disk kept; or {home}"


def woken_step(lease: Lease, events: Lines, by: Watcher | None) -> NothingToDo | Await:
    """Return what `next_words` says, as a value."""
    if by is not None and went_on(events) is not None:
        if lease.terms.when_done == "end" and lease.terms.on_failure.does == "end":
            return NothingToDo(by, "end")
    elif by is not None and lease.terms.recover:
        return NothingToDo(by, "launch")
    return Await(lease.id)


async def not_yet(context: Context, lease: Lease) -> StillBoots | None:
    """Ask the provider whether the lease's box is starting again by itself.

    If so, return the error that says it, else None.
    """
    events = context.ledger.events(lease.id)
    if recorded_fate(events) is None:
        return None
    box = await shown_box(context, lease)
    if not starts_again(lease, events, box):
        return None
    again = again_step(context.ledger, lease, newest_launched(events) or "")
    return StillBoots(
        f"{lease.id}: {state_words(lease, events)}",
        remedy=next_words(lease, events, again, context.looked_after),
    )
