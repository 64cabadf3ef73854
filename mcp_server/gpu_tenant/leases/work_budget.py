"""Computes how much of the budget of a work is left for one of its leases.

Several leases may do one work, one after the other. Together they must stay within the budget of the first lease, to
which the owner has agreed.
"""

from decimal import Decimal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.interruption import went_on
from gpu_tenant.domain.model import Lease, LeaseId
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.ledger import Ledger


def most_for_left_behind_usd(ledger: Ledger, lease: Lease) -> Decimal | None:
    """Return the largest budget that this lease may have within the budget of the whole work.

    This is for a lease whose work went on elsewhere. When it went on, the budget was divided between the two leases. If
    the later leases have ended and have not used all of their parts, this lease may use the rest. None if the work did
    not go on, if a cost is unknown, or if somebody has lowered a budget since.
    """
    lines = ledger.events(lease.id)
    told = went_on(lines)
    if told is None or told.budget_usd is None or _was_tightened(lines):
        return None
    later = _committed_after(ledger, lease.id)
    return None if later is None else told.budget_usd - later


def _committed_after(ledger: Ledger, lease_id: LeaseId) -> Decimal | None:
    """Return what the leases that continue this lease's work have cost or may still cost. None if unknown."""
    usd = Decimal(0)
    for lease in ledger.leases():
        if lease.recovers != lease_id:
            continue
        own, later = _committed(ledger, lease), _committed_after(ledger, lease.id)
        if own is None or later is None or _was_tightened(ledger.events(lease.id)):
            return None
        usd += own + later
    return usd


def _committed(ledger: Ledger, lease: Lease) -> Decimal | None:
    """Return the budget of a live lease, or the cost of an ended one. None if unknown."""
    spent = ledger.cost_usd(lease, ledger.now())
    if lease.state.live:
        budget = lease.terms.budget_usd
        return None if budget is None or spent is None else max(budget, spent)
    if lease.box_id is None:
        return Decimal(0)
    receipt = ledger.receipt(lease.id)
    return None if receipt is None else receipt.cost_usd


def _was_tightened(lines: Lines) -> bool:
    """Whether somebody lowered the lease's budget. The division of a budget when the work went on does not count."""
    budgets: list[Decimal | None] = []
    lowered = False
    for _, event in lines:
        if isinstance(event, timeline.Intended | timeline.NewTerms):
            if lowered:
                return True
            before = budgets[-1] if budgets else None
            lowered = bool(budgets) and _is_lower(event.budget_usd, before)
            budgets.append(event.budget_usd)
        elif isinstance(event, timeline.Recovered):
            lowered = False
    return lowered


def _is_lower(after: Decimal | None, before: Decimal | None) -> bool:
    return after is not None and (before is None or after < before)
