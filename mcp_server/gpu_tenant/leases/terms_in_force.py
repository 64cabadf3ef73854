"""Tells which terms apply to a lease now."""

from gpu_tenant.domain.policy import Policy, rules_of
from gpu_tenant.leases.context import Context


def policy_of(context: Context, lease: str) -> Policy:
    """The terms of the lease that are in force now."""
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
