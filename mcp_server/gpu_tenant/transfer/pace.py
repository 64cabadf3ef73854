"""Over how many connections a transfer goes: as many as the link repays, and no more."""

import os
from dataclasses import dataclass, field

MOST = 64
_NEAR, _FAR = 2, 4
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
_SWIFT_BYTES_S = 50e6
"""So much for each core is seldom reached where loss, or a window, holds connections back."""
_BUSY = 0.75
"""So much of a core is nearly all that the threads of one Python have."""


@dataclass
class Pace:
    """Doubles the connections while that pays, settles on the fewest that did, and tries again later.

    Times are in seconds of any one clock, amounts in bytes since the beginning.
    """

    round_trip_s: float = 0.0
    settled: bool = False
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)

    def __post_init__(self) -> None:
        self._wanted = _NEAR
        self._began: float | None = None
        self._half: tuple[float, int, float] | None = None
        self._below: tuple[int, float] | None = None
        self._again_at = 0.0

    def look(
        self, at_s: float, done_bytes: int, *, working: int, most: int, busy_s: float = 0.0
    ) -> int:
        """How many connections there are to be, now that `working` are and `most` may be.

        `busy_s` is how long this process has been on a processor.
        """
        if self._below is None and not self.settled and self.round_trip_s >= FAR_S:
            self._wanted = max(self._wanted, _FAR)
        wanted = min(self._wanted, most)
        if self.settled and at_s < self._again_at:
            return wanted
        if working < wanted:
            self._began = None
            return wanted
        window_s = max(_LEAST_WINDOW_S, _ROUND_TRIPS * self.round_trip_s)
        if self._began is None:
            self._began, self._half = at_s, None
        elif self._half is None:
            # Not counted: new connections have yet to find their speed.
            if at_s - self._began >= window_s / 2:
                self._half = (at_s, done_bytes, busy_s)
        elif at_s - self._began >= window_s:
            took_s = max(1e-9, at_s - self._half[0])
            rate, busy = (done_bytes - self._half[1]) / took_s, (busy_s - self._half[2]) / took_s
            self._decide(at_s, rate, wanted, most, busy)
        return min(self._wanted, most)

    def _decide(self, at_s: float, rate: float, wanted: int, most: int, busy: float) -> None:
        # A second look after a while begins anew: things may have changed.
        before, self._began = (None if self.settled else self._below), None
        self.settled = False
        gain = rate / before[1] if before and before[1] else float("inf")
        if before and gain < _PAYS:
            self._settle(at_s, before[0])
        elif wanted >= most or busy >= _BUSY or self._is_processors(rate, wanted):
            self._settle(at_s, wanted)
        else:
            self._below = (wanted, rate)
            self._wanted = wanted * (4 if before and gain >= _LINEAR else 2)

    def _is_processors(self, rate: float, wanted: int) -> bool:
        """Whether it is the processors that hold it up, and no connection's own speed."""
        return wanted >= self.cores and rate >= _SWIFT_BYTES_S * self.cores

    def _settle(self, at_s: float, count: int) -> None:
        self._wanted, self.settled, self._below = count, True, None
        self._again_at = at_s + _AGAIN_S
