"""Adds up what all attempts at one piece of work have cost: the leases to which the same work tree was pushed."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from gpu_tenant.artifacts.push import pushed_trees
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.wording import some, usd_words
from gpu_tenant.leases.context import Context


@dataclass(frozen=True, slots=True)
class Attempts:
    """Earlier attempts at a work, and what they have cost."""

    leases: int
    usd: Decimal
    is_least: bool = False
    """Whether the cost of one of them is unknown, so that all of them cost at least `usd`."""

    @property
    def usd_words(self) -> str:
        """What they have cost, in words."""
        return f"{'at least ' if self.is_least else ''}{usd_words(self.usd)}"


def attempts_at(
    context: Context,
    directory: str,
    *,
    but: frozenset[str] = frozenset(),
    live: Literal["spent", "promised"] = "spent",
) -> Attempts:
    """Add up what the leases with that work tree have cost so far, those in `but` left out.

    "promised": a live lease counts with its budget, or without one with what it will have cost by its deadline.
    Free boxes of the owner do not count, nor do requests that got no box.
    """
    ledger, now = context.ledger, context.clock.now()
    count, usd, is_least = 0, Decimal(0), False
    for lease in ledger.leases_with_tree(directory):
        cost = ledger.cost_usd(lease, now)
        if live == "promised" and lease.state.live and cost is not None:
            promised = lease.terms.budget_usd or ledger.cost_usd(lease, lease.terms.deadline_at)
            cost = max(cost, promised or cost)
        is_free = cost is None and context.profile(lease.provider).kind == "own"
        if lease.id in but or (lease.active_at is None and not lease.state.live) or is_free:
            continue
        count, usd, is_least = count + 1, usd + (cost or 0), is_least or cost is None
    return Attempts(count, usd, is_least)


def attempts_words(context: Context, lease: Lease) -> str | None:
    """Say what the attempts at that lease's work have cost, with this one. None if it was the only one."""
    trees = pushed_trees(context.ledger, lease.id)
    if not trees:
        return None
    told = attempts_at(context, trees[-1].directory)
    if told.leases < 2:
        return None
    return (
        f"{told.usd_words} in {some(told.leases, 'attempt')} at the work in {trees[-1].directory}"
    )
