"""Moments as providers give them: ISO 8601 text, or seconds since the epoch."""

from datetime import UTC, datetime


def instant(told: object) -> datetime | None:
    """Return the moment in `told`, in UTC. None if there is none, or if its form is ambiguous.

    An unreadable moment gives None and raises nothing, because a box with an odd date still exists.
    """
    try:
        if isinstance(told, str):
            at = datetime.fromisoformat(told.strip())
        elif isinstance(told, int | float) and not isinstance(told, bool):
            at = datetime.fromtimestamp(told, UTC)
        else:
            return None
        # Without an offset the moment is ambiguous. The year 1 is Go's way to say that there is no moment.
        return at.astimezone(UTC) if at.tzinfo is not None and at.year >= 2000 else None
    except (ValueError, OverflowError, OSError):
        return None
