"""How much of what nobody declared comes home without a question, and what the rest would take and cost."""

from datetime import datetime
from decimal import Decimal

from gpu_tenant.domain.end_reserve import ASSUMED_BYTES_S, kept_back_usd, measured_bytes_s
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.policy import rescue, running_usd_h
from gpu_tenant.domain.terms import UNASKED_S
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.wording import size, span, usd_words


def bring_bytes(lease: Lease, events: Lines, now: datetime, *, free_bytes: int) -> int:
    """Return how many bytes of undeclared files a collect fetches at most.

    By default this is the larger of two amounts: UNASKED_GIB, and what comes in UNASKED_S seconds at the measured rate.
    At the end of the lease, saving comes first: then it is what its rescue sum pays for, if that is more. It is never
    more than the budget pays for, nor more than the half of what is free on this computer.
    """
    bytes_s = measured_bytes_s(events)
    limit = lease.terms.unasked_bytes
    if lease.terms.unasked_gib is None and bytes_s is not None:
        limit = max(limit, int(UNASKED_S * bytes_s))
    usd = usd_a_byte(lease, events)
    is_over = now >= lease.terms.deadline_at
    if is_over and lease.terms.unasked_gib != 0:
        limit = max(limit, _paid_by(rescue(lease), usd, limit))
    budget, spent, end = lease.terms.budget_usd, lease.cost_usd(now), kept_back_usd(lease, events)
    if not is_over and budget is not None and spent is not None and end is not None:
        limit = min(limit, _paid_by(max(Decimal(0), budget - spent - end), usd, limit))
    return max(0, min(limit, free_bytes // 2))


def usd_a_byte(lease: Lease, events: Lines) -> Decimal | None:
    """Return what fetching one byte costs: the box's time, and its provider's price of traffic. None if unknown."""
    usd_h = running_usd_h(lease)
    if usd_h is None:
        return None
    bytes_s = Decimal(str(measured_bytes_s(events) or ASSUMED_BYTES_S))
    price = lease.quote.offer.price if lease.quote else None
    traffic = (price.download_usd_gb if price else None) or Decimal(0)
    return usd_h / 3600 / bytes_s + traffic / 10**9


def _paid_by(usd: Decimal | None, usd_byte: Decimal | None, otherwise: int) -> int:
    if usd is None or usd_byte is None:
        return otherwise
    return int(usd / usd_byte) if usd_byte else otherwise


def takes_words(lease: Lease, events: Lines, size_bytes: int) -> str:
    """Say how large these files are, and what fetching them takes and costs."""
    seconds = size_bytes / (measured_bytes_s(events) or ASSUMED_BYTES_S)
    usd = usd_a_byte(lease, events)
    cost = "an unknown sum" if usd is None else usd_words(usd * size_bytes)
    return f"{size(size_bytes)}, about {span(seconds)} and {cost} to fetch"
