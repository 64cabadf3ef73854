"""Over how many connections a transfer goes: as many as the link repays, and no more."""

import os
from dataclasses import dataclass, field

MOST = 52
"""Each is a process here, of 2 MB or more: all of them, and what else there is, stay below 200 MB."""
NEAR, FAR = 2, 4
"""So many at first: a near box is limited by processors, a far one by what a connection may have under way."""
FAR_S = 0.03
"""From here on a round trip counts."""
_PAYS = 1.15
"""So much faster must twice as many be, or half of them do as well."""
_LINEAR = 1.6
"""Where twice as many are nearly twice as fast, the link is far from full."""
_LEAST_WINDOW_S = 0.5
_ROUND_TRIPS = 10
"""So many until a new connection has found its speed, if it loses nothing."""
_AGAIN_S = 30
_CALM = 4
"""So many times as long is looked at what was settled before."""
_SWIFT_BYTES_S = 50e6
"""So much for each core is seldom reached where loss, or a window, holds connections back."""
_SLOW_BYTES_S = 6e6
"""A far connection that moves less, over a link that is not full, loses something again and again."""
_MOST_SPARE = 8
_BUSY = 0.75
"""So much of a core is nearly all that the threads of one Python have."""
_QUEUED_S, _QUEUED_SHARE = 0.015, 0.2
"""A round trip that takes so much longer than the shortest stands in a queue: the link is full."""
_USUAL_WINDOWS = 5
_SAGS, _SAGS_IN_VAIN = 0.85, 2
"""A link that carries less than this of what is usual, and has no queue, has room for more; unless so many were no faster."""


@dataclass
class Pace:
    """Adds connections until the link is full or more do not pay; and again where it is not full any more.

    Full is what has a queue, which a round trip beside the transfer stands in. Where nobody knows of one,
    the gain decides, and it settles on the fewest that paid. Times are in seconds of any one clock, amounts
    in bytes since the beginning.
    """

    round_trip_s: float = 0.0
    """The shortest."""
    queued_s: float | None = None
    """How much longer one takes now, or is made to take by us; None where nobody knows."""
    settled: bool = False
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)

    def __post_init__(self) -> None:
        self._wanted = NEAR
        self._began: float | None = None
        self._half: tuple[float, int, float] | None = None
        self._below: tuple[int, float] | None = None
        self._paid, self._unpaid, self._in_vain, self._tried = NEAR, 0, 0, 0
        self._is_first, self._is_slow, self._is_after_sag = True, False, False
        self._before: float | None = None
        self._usual = 0.0
        self._has_sagged = False
        self._watched: tuple[float, int] | None = None
        self._again_at = 0.0

    @property
    def is_far(self) -> bool:
        """Whether the box is so far away that round trips count."""
        return self.round_trip_s >= FAR_S

    @property
    def is_full(self) -> bool:
        """Whether what is sent stands in a queue: more connections would only make it longer."""
        least_s = max(_QUEUED_S, _QUEUED_SHARE * self.round_trip_s)
        return self.queued_s is not None and self.queued_s >= least_s

    def look(
        self, at_s: float, done_bytes: int, *, working: int, most: int, busy_s: float = 0.0
    ) -> int:
        """How many connections there are to be, now that `working` are and `most` may be.

        `busy_s` is how long this process has been on a processor.
        """
        if self._below is None and not self.settled and self.is_far:
            self._wanted = max(self._wanted, FAR)
        wanted = min(self._wanted, most)
        if self.settled and at_s < self._again_at:
            self._watch(at_s, done_bytes, wanted)
            return min(self._wanted, most)
        if working < wanted:
            self._began = None
            return wanted
        if self._began is None:
            self._began, self._half = at_s, None
        elif self._half is None:
            # Not counted: new connections have yet to find their speed.
            if at_s - self._began >= self._judging_s / 2:
                self._half = (at_s, done_bytes, busy_s)
        elif at_s - self._began >= self._judging_s:
            took_s = max(1e-9, at_s - self._half[0])
            rate, busy = (done_bytes - self._half[1]) / took_s, (busy_s - self._half[2]) / took_s
            if self._is_growing(rate):
                self._began, self._half = at_s - self._judging_s / 2, (at_s, done_bytes, busy_s)
            else:
                self._decide(at_s, rate, wanted, most, busy)
        return min(self._wanted, most)

    def _is_growing(self, rate: float) -> bool:
        """Whether the first connections of a far box are still finding their speed."""
        before, self._before = self._before, rate
        is_early = self.is_far and self._is_first and self._below is None and not self.is_full
        return is_early and (before is None or rate > _PAYS * before)

    @property
    def spare(self) -> int:
        """How many more may be opened already, because opening takes long: they are soon found to pay, or not."""
        if self.settled or not self.is_far:
            return 0
        return min(self._wanted, _MOST_SPARE if self._is_slow else FAR)

    @property
    def _window_s(self) -> float:
        """How long one look at the rate takes."""
        return max(_LEAST_WINDOW_S, _ROUND_TRIPS * self.round_trip_s)

    @property
    def _judging_s(self) -> float:
        """How long a count is looked at: who only looks anew has time to tell a gain from chance."""
        is_calm = not self._is_first and not self._is_after_sag
        return self._window_s * (_CALM if is_calm else 1)

    def _decide(self, at_s: float, rate: float, wanted: int, most: int, busy: float) -> None:
        # A second look after a while begins anew: things may have changed.
        before, self._began = (None if self.settled else self._below), None
        self._tried = max(self._tried, wanted)
        self.settled = False
        gain = rate / before[1] if before and before[1] else float("inf")
        if gain >= _PAYS:
            self._paid, self._unpaid = wanted, 0
            self._in_vain = 0 if before else self._in_vain
        else:
            self._unpaid += 1
            if self._is_after_sag:
                self._in_vain += 1
        # One step says little where connections are swift until they have lost something.
        patience = 2 if self._is_slow and self._is_first else 1
        if self.is_full:
            self._settle(at_s, wanted, rate)
        elif self._unpaid >= patience:
            self._settle(at_s, self._paid, rate)
        elif wanted >= most or busy >= _BUSY or self._is_processors(rate, wanted):
            self._settle(at_s, wanted, rate)
        else:
            self._is_slow = self.is_far and rate < _SLOW_BYTES_S * wanted
            is_linear = gain >= _LINEAR and (self._is_slow if self.is_far else before is not None)
            self._below, self._wanted = (wanted, rate), wanted * (4 if is_linear else 2)

    def _is_processors(self, rate: float, wanted: int) -> bool:
        """Whether it is the processors that hold it up, and no connection's own speed."""
        return wanted >= self.cores and rate >= _SWIFT_BYTES_S * self.cores

    def _settle(self, at_s: float, count: int, rate: float) -> None:
        self._wanted, self.settled, self._below = count, True, None
        self._unpaid, self._is_first, self._is_after_sag = 0, False, False
        self._usual, self._has_sagged, self._watched = rate, False, None
        self._again_at = at_s + _AGAIN_S

    def _watch(self, at_s: float, done_bytes: int, wanted: int) -> None:
        """A far link that sags, and is not full, is given more connections."""
        since_s, before = self._watched or (at_s, done_bytes)
        took_s = at_s - since_s
        if self._watched is not None and took_s < self._window_s:
            return
        self._watched = (at_s, done_bytes)
        rate = (done_bytes - before) / took_s if took_s else self._usual
        is_sagging = self.is_far and not self.is_full and rate < _SAGS * self._usual
        self._usual += (rate - self._usual) / _USUAL_WINDOWS
        has_sagged, self._has_sagged = self._has_sagged, is_sagging
        # Twice in a row: one low window is chance, and what follows it would look like a gain.
        if has_sagged and is_sagging and self._in_vain < _SAGS_IN_VAIN:
            self.settled, self._began, self._is_after_sag = False, None, True
            # Not fewer again: what was given back, because it had not paid, was needed after all.
            self._wanted = self._paid = max(2 * wanted, self._tried)
            self._below = (wanted, rate)
