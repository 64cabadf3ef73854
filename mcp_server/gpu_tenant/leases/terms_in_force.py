"""Which terms hold for a lease now."""

from gpu_tenant.domain.policy import Policy, rules_of
from gpu_tenant.leases.context import Context


def policy_of(context: Context, lease: str) -> Policy:
    """The lease's terms that are now in force."""
    found = context.ledger.lease(lease)
    profile = context.profile(found.provider)
    if not found.state.live:
        over = f"nothing is in force any more: it is {found.state}"
        return Policy(lease=found.id, terms=(over,), if_this_computer_dies="nothing bills")
    return Policy(
        lease=found.id,
        terms=(
            *rules_of(found, profile, looked_after=context.looked_after),
            f"watched: {context.watch_words()}",
        ),
        if_this_computer_dies=context.protection(found).words,
    )
