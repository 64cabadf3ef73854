"""When whoever looks after the lease is back, as they say themselves. The guard leaves the end of the lease to them."""

from __future__ import annotations

import os
import time


def note_next_look(home: str, back_in_s: float) -> None:
    """Note that somebody who looks after the lease is back in so many seconds at the latest."""
    try:
        with open(os.path.join(home, "next-look"), "w", encoding="utf-8") as file:
            file.write("%.1f\n" % back_in_s)
    except OSError:  # the disk is full: the guard waits for nobody
        pass


class NextLook:
    """Until when somebody is expected back, by a clock that nobody can set."""

    def __init__(self, home: str, now: float) -> None:
        self._path = os.path.join(home, "next-look")
        self._noted_ns = 0
        self.until = 0.0
        self.hear(now)
        # It was noted before this guard began. Only the wall clock tells how long before.
        self.until -= max(0.0, time.time() - self._noted_ns / 1e9)

    def hear(self, now: float) -> None:
        """Read what was noted since the last time, if anything was. It counts from `now`."""
        try:
            noted_ns = os.stat(self._path).st_mtime_ns
            if noted_ns == self._noted_ns:
                return
            with open(self._path, encoding="utf-8") as file:
                back_in_s = float(file.read(32))
        except (OSError, ValueError):  # nobody has noted anything, or it is being written
            return
        self._noted_ns = noted_ns
        if 0 <= back_in_s < 1e6:
            self.until = now + back_in_s
