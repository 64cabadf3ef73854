"""Measures the time that passes on this box. In a rehearsal, the rehearsal's clock decides, which may jump ahead."""

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
    """Return the seconds by a clock that nobody can set. It also runs while the machine sleeps."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return time.monotonic()


class GuardClock:
    """Measures how many seconds have passed, and waits.

    In a rehearsal, the clock may jump (leap). Jumps count only if the tenant says that this is a rehearsal. A file in
    the login home then says where the jumps are written. A job can write that file, but on a real box, the tenant never
    says that it is a rehearsal.
    """

    def __init__(self, home: str, rehearsed: bool) -> None:
        self._leaps, self._dues = _told_at(home) if rehearsed else ("", "")
        self._leapt = 0.0
        self._at_round = 0.0

    @property
    def leaps(self) -> bool:
        """Whether the time on this box may jump, because it is a rehearsal's."""
        return bool(self._leaps)

    def elapsed_s(self) -> float:
        """Return the seconds like the function of that name, plus all jumps so far."""
        return elapsed_s() + self._leaps_so_far()

    def begin_round(self) -> float:
        """Return the same as `elapsed_s`. From now on, a jump ends the next wait."""
        self._at_round = self._leaps_so_far()
        return elapsed_s() + self._at_round

    def wait(
        self, listen: Callable[[float], object], seconds: float, seen: float, due: float | None
    ) -> object:
        """Wait for `seconds`, or until `listen` returns something, or until time jumps. Return what `listen` returned.

        `seen` and `due` are for the rehearsal: the time that we have seen, and the time at which something must be done
        here. The rehearsal's clock stops at `due`.
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
            except (OSError, ValueError):  # the file is being replaced, or the rehearsal is over
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
    """Return the file with the rehearsal's jumps, and the file for what is due here. Empty if this is no rehearsal."""
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
