"""Tells which terms apply to a lease now."""

from gpu_tenant.box.guard_record import armed_in
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.policy import Policy, alone_words, brief_of, rules_of
from gpu_tenant.leases.context import Context


def policy_of(context: Context, lease: str) -> Policy:
    """Return the terms of the lease that are in force now."""
    found = context.ledger.lease(lease)
    profile = context.profile(found.provider)
    if not found.state.live:
        over = f"no terms are in force any more: the lease is {found.state}"
        return Policy(lease=found.id, terms=(over,), if_this_computer_dies="nothing bills")
    return Policy(
        lease=found.id,
        terms=(
            *rules_of(found, profile, looked_after=context.looked_after, now=context.clock.now()),
            f"watched: {context.watch_words()}",
        ),
        if_this_computer_dies=context.protection(found).words,
    )


def in_brief(context: Context, lease: str) -> tuple[tuple[str, str], ...]:
    """Return the most important terms of a live lease, each as a title and a short line. The last one is a command.

    The command shows all terms. Empty if the lease has ended, or if the id is that of a wish.
    """
    found = context.ledger.find_lease(lease)
    if found is None or not found.state.live:
        return ()
    told = brief_of(
        found,
        context.profile(found.provider),
        looked_after=context.looked_after,
        now=context.clock.now(),
    )
    protection = context.protection(found)
    armed = armed_in(context.ledger.events(found.id))
    alone = alone_words(protection, guard="armed" if armed is not None else "not armed")
    if found.parked_at is not None or (armed is not None and armed.has_old_instructions):
        alone = f"if this computer dies: {protection.words}"
    lines = [
        ("ends", told.ends),
        ("watched", "; ".join(filter(None, (context.watch_words(), alone)))),
    ]
    lines += [("left to you", told.left_to_you)] if told.left_to_you else []
    lines += [("agreed", words) for words in told.agreed]
    lines.append(("all terms", str(Command("terms", found.id))))
    return tuple(lines)
