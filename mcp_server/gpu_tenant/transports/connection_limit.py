"""Limits how many idle connections one process keeps open. Beyond the limit, one of them is closed."""

import time
from typing import Protocol
from weakref import WeakKeyDictionary

MOST = 256
"""A quarter of the files that most systems let a process open. Each connection takes about 0.2 MB of memory."""

_STALE_S = 600


class PooledConnection(Protocol):
    """A transport that keeps its connection open between uses."""

    def hang_up(self) -> None:
        """Close the connection. The next use opens another."""
        ...


class Lines:
    """The kept connections that are idle now, up to a limit."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._idle: WeakKeyDictionary[PooledConnection, float] = WeakKeyDictionary()

    def note_used(self, line: PooledConnection) -> None:
        """Note that the connection is in use or closed, so that it is not closed from here."""
        self._idle.pop(line, None)

    def idle(self, line: PooledConnection) -> None:
        """Note that the connection is idle now. If there are too many, close this one, or the oldest if it is stale."""
        self._idle[line] = now = time.monotonic()
        if len(self._idle) <= self._most:
            return
        oldest, since = next(iter(self._idle.items()))
        # Somebody may work in rounds over more boxes than the limit. Then the oldest connection is
        # the one that is used next, and closing it would mean a new connection for every box in
        # every round. So the oldest is closed only if it is stale.
        surplus = oldest if now - since > _STALE_S else line
        del self._idle[surplus]
        surplus.hang_up()


OURS = Lines()
"""The idle connections of this process, for all the tenancies that it has open."""
