"""The time that passes on this box. On a rehearsal's box it may be the rehearsal's, which leaps."""

from __future__ import annotations

import json
import os
import time

from box_scripts.caretaker.listening import rehearsal_marker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LEAP_LOOK_S = 0.05


def elapsed_s() -> float:
    """Seconds by a clock that nobody can set. The time in which the machine sleeps counts."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return time.monotonic()


class GuardClock:
    """The seconds that have passed, and the wait for more.

    The rehearsal's leaps count only where the tenant says that its ledger is a rehearsal's, and a file in the
    login home says where they are told. A job can write that file, but the tenant of a real box never says so.
    """

    def __init__(self, home: str, rehearsed: bool) -> None:
        self._leaps, self._dues = _told_at(home) if rehearsed else ("", "")
        self._leapt = 0.0
        self._at_round = 0.0

    @property
    def leaps(self) -> bool:
        """Whether the time of this box leaps with its rehearsal's."""
        return bool(self._leaps)

    def elapsed_s(self) -> float:
        """As the function of that name, and all leaps so far."""
        return elapsed_s() + self._leaps_so_far()

    def begin_round(self) -> float:
        """The same. The next wait ends with the first leap from now on."""
        self._at_round = self._leaps_so_far()
        return elapsed_s() + self._at_round

    def wait(
        self, listen: Callable[[float], object], seconds: float, seen: float, due: float | None
    ) -> object:
        """So much time has passed by `listen`, or it said something, or time has leapt. What it said.

        A rehearsal is told what was `seen`, and when something is `due` here: its time stops there.
        """
        if not self._leaps:
            return listen(seconds)
        self._tell(seen, due)
        until = time.monotonic() + seconds
        while True:
            left_s = until - time.monotonic()
            if left_s <= 0 or self._leaps_so_far() != self._at_round:
                return None
            said = listen(min(LEAP_LOOK_S, left_s))
            if said:
                return said

    def _leaps_so_far(self) -> float:
        if self._leaps:
            try:
                with open(self._leaps, encoding="utf-8") as file:
                    said = float(file.read())
            except (OSError, ValueError):  # it is being replaced, or the rehearsal is over
                return self._leapt
            if self._leapt < said < float("inf"):  # time never goes back
                self._leapt = said
        return self._leapt

    def _tell(self, seen: float, due: float | None) -> None:
        try:
            with open(self._dues + ".new", "w", encoding="utf-8") as file:
                json.dump({"pid": os.getpid(), "seen": seen, "due": due}, file)
            os.replace(self._dues + ".new", self._dues)
        except OSError:
            pass  # the rehearsal is over


def _told_at(home: str) -> tuple[str, str]:
    """Where the rehearsal tells its leaps, and where it is told what is due. Empty if this box is no rehearsal's."""
    marker = rehearsal_marker(home)
    if marker is None:
        return "", ""
    try:
        with open(marker, encoding="utf-8") as file:
            said = json.load(file)
        leaps, dues = said["leaps"], said["dues"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return "", ""
    known = isinstance(leaps, str) and isinstance(dues, str)
    return (leaps, dues) if known and os.path.isabs(leaps) and os.path.isabs(dues) else ("", "")
