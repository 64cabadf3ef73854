"""What the leases of one work may cost together: the budget that its owner agreed to for the first of them."""

from decimal import Decimal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.interruption import went_on
from gpu_tenant.domain.model import Lease, LeaseId
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.ledger import Ledger


def most_for_left_behind_usd(ledger: Ledger, lease: Lease) -> Decimal | None:
    """Return the largest budget of a lease whose work went on elsewhere, within what was agreed for the work as a whole.

    When the work went on, the budget was divided: each lease got a part. What the later leases have not used, and can
    use no more, is still within what the owner agreed to. None if the work did not go on, if any cost is unknown, or if
    somebody has lowered a budget since: then nothing is known to be left over.
    """
    lines = ledger.events(lease.id)
    told = went_on(lines)
    if told is None or told.budget_usd is None or _was_tightened(lines):
        return None
    later = _committed_after(ledger, lease.id)
    return None if later is None else told.budget_usd - later


def _committed_after(ledger: Ledger, lease_id: LeaseId) -> Decimal | None:
    """Return what the leases that continue the work of this one have cost, or may still cost. None if unknown."""
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
    """Return the budget of a lease that may still bill, or what it has cost when it is over. None if unknown."""
    spent = ledger.cost_usd(lease, ledger.now())
    if lease.state.live:
        budget = lease.terms.budget_usd
        return None if budget is None or spent is None else max(budget, spent)
    if lease.box_id is None:
        return Decimal(0)
    receipt = ledger.receipt(lease.id)
    return None if receipt is None else receipt.cost_usd


def _was_tightened(lines: Lines) -> bool:
    """Whether somebody lowered the lease's budget, other than by dividing it when its work went on."""
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
