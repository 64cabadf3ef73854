"""How many connections one process keeps open: beyond that, one that nobody uses is closed."""

import time
from typing import Protocol
from weakref import WeakKeyDictionary

MOST = 256
"""A quarter of the files that a process may have open on most systems; each costs some 0.2 MB here."""

_STALE_S = 600


class Line(Protocol):
    """Something that keeps a connection between two uses."""

    def hang_up(self) -> None:
        """The connection is closed; the next use makes another."""
        ...


class Lines:
    """The kept connections that nobody uses at the moment, at most so many."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._idle: WeakKeyDictionary[Line, float] = WeakKeyDictionary()

    def used(self, line: Line) -> None:
        """Somebody uses it, or it is closed: it is not for closing."""
        self._idle.pop(line, None)

    def idle(self, line: Line) -> None:
        """Nobody uses it any more; where too many are kept, this one or the one idle for longest is closed."""
        self._idle[line] = now = time.monotonic()
        if len(self._idle) <= self._most:
            return
        oldest, since = next(iter(self._idle.items()))
        # In rounds over more boxes than that, the oldest is the next to be used: all would be dialed anew.
        surplus = oldest if now - since > _STALE_S else line
        del self._idle[surplus]
        surplus.hang_up()


OURS = Lines()
"""Those of this process, whatever tenancies it has open."""
