"""Since when a box bills that is put under a lease: a pure decision, by the provider's word where it can be true."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpu_tenant.domain.model import Box

_CLOCKS_APART = timedelta(minutes=1)
"""So far a provider's clock and ours may differ without anything being wrong."""


@dataclass(frozen=True, slots=True)
class Birth:
    """The moment from which a box is counted."""

    at: datetime
    words: str | None = None
    """What a person must hear of how it was found; None where there is nothing odd about it."""


def birth(box: Box, *, asked_at: datetime, now: datetime, list_lag_s: float) -> Birth:
    """Since when `box` is counted, which was asked for at `asked_at` and is seen now.

    Its provider's word is believed where it lies between the two, so that a box that is found late
    costs what it cost. Without such a word it counts from when it was asked for: it cannot be older, so
    that is never too little. A time that cannot be true is told, and counts as none.
    """
    told = box.created_at
    if told is None:
        return Birth(min(asked_at, now))
    slack = max(_CLOCKS_APART, timedelta(seconds=list_lag_s))
    if asked_at - slack <= told <= now + slack:
        # Some tell whole seconds, and some clocks are a little ahead.
        return Birth(min(max(told, asked_at), now))
    return Birth(
        min(asked_at, now),
        f"{box.provider} says that {box.id} was made at {told:%Y-%m-%d %H:%M} UTC, which cannot be: it was "
        f"asked for at {asked_at:%Y-%m-%d %H:%M}, and is counted from then; one of the clocks is wrong, "
        "or somebody changed what the box says of itself",
    )
