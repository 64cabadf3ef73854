"""How far this computer's clock is ahead of a provider's, and what a jump of it does to the counted cost of a box."""

from datetime import datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime

from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.timeline import ClockOffset, Lines

WORTH_TELLING = timedelta(minutes=2)
"""A smaller change may be the time that an answer took, or the rounding of a server."""


def ahead_of(
    date: str, *, sent: datetime, came: datetime, before: timedelta | None
) -> timedelta | None:
    """Return how far this computer's clock is ahead of a provider's, by the header `Date` of its answer.

    The provider wrote the answer after the call was sent, and before the answer came. So a range of offsets is
    possible, and the one nearest to the offset `before` is returned. That offset is returned, too, if there is no date.
    """
    try:
        at = parsedate_to_datetime(date)
        least, most = sent - at, came - at
    except (ValueError, TypeError, OverflowError):
        return before
    return max(least, min(most, before or timedelta(0)))


def offset_now(lease: Lease, events: Lines, ahead: timedelta) -> ClockOffset | None:
    """Return the event to record, if the offset has changed by enough since the last record. Otherwise None.

    A jump while the box bills makes its counted time too long, or too short. An offset from before that is no error.
    """
    known = [event for _, event in events if isinstance(event, ClockOffset)]
    moved_s = ahead.total_seconds() - (known[-1].ahead_s if known else 0.0)
    if abs(moved_s) < WORTH_TELLING.total_seconds():
        return None
    told = ClockOffset(ahead_s=round(ahead.total_seconds()))
    if lease.active_at is None or lease.price_usd_h is None:
        return told
    too_much = lease.price_usd_h * Decimal(str(moved_s)) / 3600
    minutes = f"{abs(moved_s) / 60:.0f} min"
    words = (
        f"this computer's clock jumped forward by {minutes} against the provider's"
        if moved_s > 0
        else f"this computer's clock jumped back by {minutes} against the provider's"
    )
    return told.model_copy(update={"too_much_usd": too_much.quantize(USD_STEP), "words": words})
