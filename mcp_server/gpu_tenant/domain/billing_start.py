"""When a box under a lease began to bill, as a pure decision."""

from datetime import datetime, timedelta
from typing import NamedTuple

from gpu_tenant.domain.model import Box

_CLOCKS_APART = timedelta(minutes=1)
"""How far a provider's clock and ours may differ without anything being wrong."""


class Birth(NamedTuple):
    """The moment from which a box is counted."""

    at: datetime
    words: str | None = None
    """What a person must be told about this moment. None if nothing about it is odd."""


def birth(box: Box, *, asked_at: datetime, now: datetime, list_lag_s: float) -> Birth:
    """The moment from which `box` is counted. It was requested at `asked_at`, and is seen now.

    The provider's own time is believed if it lies between those two. So a box that is found late costs what it
    really cost. Without such a time the box counts from its request: it cannot be older, so this never counts
    too little. A time that cannot be true is reported and ignored.
    """
    told = box.created_at
    if told is None:
        return Birth(min(asked_at, now))
    slack = max(_CLOCKS_APART, timedelta(seconds=list_lag_s))
    if asked_at - slack <= told <= now + slack:
        # Some providers give whole seconds only, and some clocks are a little ahead.
        return Birth(min(max(told, asked_at), now))
    return Birth(
        min(asked_at, now),
        f"{box.provider} says that {box.id} was made at {told:%Y-%m-%d %H:%M} UTC, which cannot be: it was "
        f"asked for at {asked_at:%Y-%m-%d %H:%M}, and is counted from then; one of the clocks is wrong, "
        "or somebody changed what the box says of itself",
    )
