"""Decides from which moment the cost of a lease's box is counted, in a pure function."""

from datetime import datetime, timedelta
from typing import NamedTuple

from gpu_tenant.domain.model import Box

_CLOCKS_APART = timedelta(minutes=1)
"""How far a provider's clock and ours may differ without anything being wrong."""


class Birth(NamedTuple):
    """The moment from which a box's cost is counted."""

    at: datetime
    words: str | None = None
    """What a person must be told about this moment. None if there is nothing to tell."""


def birth(box: Box, *, asked_at: datetime, now: datetime, list_lag_s: float) -> Birth:
    """Return the moment from which the cost of `box` is counted.

    The box was requested at `asked_at`, and is seen at `now`.

    If the provider says when the box was made, and that time lies between these two, it is used. So a box that is found
    late is counted with its real cost. If the provider does not say, the cost is counted from the request. No box is
    older than its request, so this never counts too little. A time outside this range cannot be true. It is reported
    and ignored.
    """
    told = box.created_at
    if told is None:
        return Birth(min(asked_at, now))
    slack = max(_CLOCKS_APART, timedelta(seconds=list_lag_s))
    if asked_at - slack <= told <= now + slack:
        # The time may lie a little outside: some providers give whole seconds only, and some clocks are ahead.
        return Birth(min(max(told, asked_at), now))
    return Birth(
        min(asked_at, now),
        f"{box.provider} says that {box.id} was made at {told:%Y-%m-%d %H:%M} UTC, which cannot be true: it was "
        f"requested at {asked_at:%Y-%m-%d %H:%M}, and its cost is counted from then; one of the clocks is wrong, "
        "or somebody changed what the box says about itself",
    )
