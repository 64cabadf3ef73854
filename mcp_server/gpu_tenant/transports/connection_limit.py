"""Limits how many connections one process keeps open. Beyond the limit, an idle connection is closed."""

import time
from typing import Protocol
from weakref import WeakKeyDictionary

MOST = 256
"""A quarter of the open files that most systems allow a process. Each connection takes some 0.2 MB of memory."""

_STALE_S = 600


class PooledConnection(Protocol):
    """Something that keeps its connection open between uses."""

    def hang_up(self) -> None:
        """Close the connection. The next use makes another."""
        ...


class Lines:
    """The kept connections that are idle at the moment, up to a limit."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._idle: WeakKeyDictionary[PooledConnection, float] = WeakKeyDictionary()

    def used(self, line: PooledConnection) -> None:
        """Note that the connection is in use or closed, so that it will not be closed from here."""
        self._idle.pop(line, None)

    def idle(self, line: PooledConnection) -> None:
        """Note that the connection is idle now. If too many are, close it, or the one that is idle for longest."""
        self._idle[line] = now = time.monotonic()
        if len(self._idle) <= self._most:
            return
        oldest, since = next(iter(self._idle.items()))
        # If somebody works in rounds over more boxes than the limit, the oldest connection is used
        # next. If it were closed each time, every connection would be dialed anew in every round. So
        # the oldest is closed only if it is stale.
        surplus = oldest if now - since > _STALE_S else line
        del self._idle[surplus]
        surplus.hang_up()


OURS = Lines()
"""The connections of this process, over all the tenancies that it has open."""
