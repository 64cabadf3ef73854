"""Records when the watchdog that looks after the lease will ask again. Until then, the guard leaves the end to it."""

from __future__ import annotations

import os
import time


def note_next_look(home: str, back_in_s: float) -> None:
    """Record that a watchdog that looks after the lease will ask again within so many seconds."""
    try:
        with open(os.path.join(home, "next-look"), "w", encoding="utf-8") as file:
            file.write("%.1f\n" % back_in_s)
    except OSError:  # the disk is full; then the guard does not wait
        pass


class NextLook:
    """The time until which a watchdog is expected to ask again, by a clock that nobody can set."""

    def __init__(self, home: str, now: float) -> None:
        self._path = os.path.join(home, "next-look")
        self._noted_ns = 0
        self.until = 0.0
        self.hear(now)
        # This was recorded before the guard began. Only the wall clock shows how long before.
        self.until -= max(0.0, time.time() - self._noted_ns / 1e9)

    def hear(self, now: float) -> None:
        """Read the record, if it has changed since the last call. Its seconds count from `now`."""
        try:
            noted_ns = os.stat(self._path).st_mtime_ns
            if noted_ns == self._noted_ns:
                return
            with open(self._path, encoding="utf-8") as file:
                back_in_s = float(file.read(32))
        except (OSError, ValueError):  # there is no record, or it is being written
            return
        self._noted_ns = noted_ns
        if 0 <= back_in_s < 1e6:
            self.until = now + back_in_s
