"""Tells about a lease that has ended: when, why, on which ground, and where its files are."""

from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.wording import usd_words
from gpu_tenant.leases.cards import ended_by
from gpu_tenant.ledger import Ledger


def ended_words(ledger: Ledger, lease: Lease) -> str:
    """Say when the lease ended and why, what its receipt says, and where its kept files are."""
    why, receipt = ended_by(ledger.events(lease.id)), ledger.receipt(lease.id)
    told = [f"{lease.id} has ended"]
    if lease.ended_at is not None:
        told = [f"{lease.id} has ended at {lease.ended_at:%Y-%m-%d %H:%M} UTC"]
    if why is not None:
        told.append(f"that was because {why}")
    if receipt is not None:
        told.append(f"its receipt says {receipt.ground}, {usd_words(receipt.spent_usd)}")
        if receipt.outcome is not None:
            told.append(f"the work: {receipt.outcome.words}")
    if lease.kept_in is not None:
        told.append(f"what was kept of it is in {lease.kept_in}")
    return "; ".join(told)
