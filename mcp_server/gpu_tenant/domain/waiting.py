"""What a verb waits for now, so that nothing is silent while a meter runs."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that is waited for."""

    words: str
    """What is waited for, as in `the box boots: its provider says it is starting`."""
    ends: str = ""
    """What ends the wait if that never happens."""
    usd_h: Decimal | None = None
    """What the box costs meanwhile. None if that is unknown, or nothing is rented yet."""


waits_to: ContextVar[Callable[[Wait], None]] = ContextVar("waits_to", default=lambda wait: None)
"""The function that is called with each new wait. A face sets it."""


def wait_for(words: str, *, ends: str = "", usd_h: Decimal | None = None) -> None:
    """Tell the caller of this verb what the verb waits for from now on."""
    waits_to.get()(Wait(words, ends, usd_h))
