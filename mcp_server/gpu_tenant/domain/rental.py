"""The end of a box's rental: the time after which its platform no longer runs it for us, whatever the lease says."""

from datetime import datetime, timedelta

from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.offers import Offer

_ABOUT = timedelta(minutes=2)
"""An offer names the hours of a rental, and its provider counts them from a moment that we do not know exactly."""

HOME_S = 600
"""A lease ends this many seconds before the rental of its box. In this time its files are brought home and proved."""


def latest_deadline(offer: Offer, *, rented_at: datetime) -> datetime | None:
    """Return the latest deadline of a lease by this offer. None if the offer names no end."""
    if offer.max_hours is None:
        return None
    return rented_at + timedelta(hours=offer.max_hours) - timedelta(seconds=HOME_S)


def rental_ends_at(lease: Lease) -> datetime | None:
    """Return when the rental of the lease's box ends, by what its provider said since, or else by its offer.

    None if neither names an end.
    """
    if lease.rental_ends_at is not None:
        return lease.rental_ends_at
    hours = lease.quote.offer.max_hours if lease.quote else None
    return None if hours is None else (lease.active_at or lease.created_at) + timedelta(hours=hours)


def rental_has_moved(lease: Lease, said: datetime | None) -> bool:
    """Whether its provider says now that the rental ends clearly sooner than its offer said, or than it said itself.

    A later end counts only if its provider has named a sooner one before: no lease outlasts its offer. An end from
    before the rental means nothing.
    """
    known = rental_ends_at(lease)
    if said is None or said <= (lease.active_at or lease.created_at):
        return False
    if known is None or said < known - _ABOUT:
        return True
    return lease.rental_ends_at is not None and said > known + _ABOUT


def rental_is_over(lease: Lease, now: datetime) -> bool:
    """Whether the rental has ended. From then on the box cannot be started again."""
    ends_at = rental_ends_at(lease)
    return ends_at is not None and now >= ends_at


def rental_ends_soon(lease: Lease, now: datetime) -> bool:
    """Whether the time that is left until the rental's end, as its provider said since, is needed to bring files home.

    An end that the offer named is in the lease's deadline.
    """
    ends_at = lease.rental_ends_at
    return ends_at is not None and ends_at - timedelta(seconds=HOME_S) <= now < ends_at


def ends_the_lease(lease: Lease) -> bool:
    """Whether the deadline is as late as the rental allows, or later."""
    ends_at = rental_ends_at(lease)
    if ends_at is None:
        return False
    return lease.terms.deadline_at >= ends_at - timedelta(seconds=2 * HOME_S)


def rental_words(lease: Lease) -> str:
    """Say when the rental of the box ends."""
    ends_at = rental_ends_at(lease)
    return "" if ends_at is None else f"the rental of its box ends at {ends_at:%Y-%m-%d %H:%M} UTC"


def over_words(lease: Lease) -> str:
    """Say that the rental has ended, and when."""
    ends_at = rental_ends_at(lease)
    at = "" if ends_at is None else f" at {ends_at:%Y-%m-%d %H:%M} UTC"
    return f"the rental of its box ended{at}, and it cannot be started again"
