"""Moments as providers tell them: text of ISO 8601, or seconds since the epoch."""

from datetime import UTC, datetime


def instant(told: object) -> datetime | None:
    """The moment that was told, in UTC; None where none was, or in no form that says which one it is.

    What cannot be read is None and no error: a box with an odd date is there all the same.
    """
    try:
        if isinstance(told, str):
            at = datetime.fromisoformat(told.strip())
        elif isinstance(told, int | float) and not isinstance(told, bool):
            at = datetime.fromtimestamp(told, UTC)
        else:
            return None
        # Without an offset nobody knows which moment it is; the year 1 is Go's word for none.
        return at.astimezone(UTC) if at.tzinfo is not None and at.year >= 2000 else None
    except (ValueError, OverflowError, OSError):
        return None
