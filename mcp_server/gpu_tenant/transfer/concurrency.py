"""Decides how many connections a transfer uses. There are as many as make it faster, and no more.

A `Pace` is in one of two states:

    SEARCHING with n connections
        Waits until all n work. In the first half of the judging time, the connections reach their full speed.
        In the second half, the rate is measured. Then the first line below that applies decides:
          a far box, the first count, and the rate still grows    measure again with the same n
          the link is full: it has a queue                        SETTLED with n
          more connections did not pay                            SETTLED with the last n that paid
          (in the first search, slow far connections get a second chance before that)
          n is the maximum, or the processors are busy            SETTLED with n
          otherwise                     SEARCHING with 2 n, or with 4 n if doubling nearly doubled the rate

    SETTLED with n connections
          after _AGAIN_S                                SEARCHING with n: the link may have changed
          far, no queue, and two low rates in a row     SEARCHING with 2 n, or with the most that was ever tried

Where the numbers come from: `make bench-transfers` compares transfers with other programs. The results of its
last run are in `tests/bench/results/transfers.md`. A number that was chosen by this bench says "Measured". A
number that is marked "Judgment" was not measured by itself. `tests/unit/test_transfer_pace.py` tries all of
them on simulated links.
"""

import os
from dataclasses import dataclass, field

MOST = 52
"""A transfer uses at most this many connections.

Each is a process on this computer and takes 2 MB or more. Measured: with 52 connections, the row of the bench
that takes the most memory (`loss-0.5`) takes 190 MB. The bench's limit is 200 MB.
"""
NEAR, FAR = 2, 4
"""A transfer begins with this many connections, to a near and to a far box.

Judgment. A near box is limited by the processors. A far box is limited by how many bytes one connection may
have in flight.
"""
FAR_S = 0.03
"""If a round trip takes this many seconds or more, the box counts as far. Judgment. In the bench it is 0.08."""
_PAYS = 1.15
"""Doubling the connections pays when the transfer becomes faster by at least this factor.

Judgment. In the unit tests, a rate that varies by a fifth by itself adds no connections over a far link.
"""
_LINEAR = 1.6
"""If doubling the connections gains at least this factor, the link is far from full. Judgment; 2 is the ideal."""
_LEAST_WINDOW_S = 0.5
"""The rate is measured for at least this long. Judgment."""
_ROUND_TRIPS = 10
"""A new connection needs about this many round trips to reach its full speed, if no packet is lost. Judgment."""
_AGAIN_S = 30
"""A settled count is kept for this many seconds. Then a new search begins. Judgment."""
_CALM = 4
"""A later search measures each count this many times as long, unless it was started by a low rate.

Judgment: such a search is in no hurry. The longer time helps to distinguish a gain from chance.
"""
_SWIFT_BYTES_S = 50e6
"""Bytes a second for each core. A connection that is limited by loss or by its window seldom reaches this rate.

No measurement of this number is recorded.
"""
_SLOW_BYTES_S = 6e6
"""A far connection that is slower than this, on a link that is not full, keeps losing packets.

In bytes a second. No measurement of this number is recorded.
"""
_MOST_SPARE = 8
"""At most this many connections are opened before they are needed. Judgment."""
_BUSY = 0.75
"""This share of one core counts as fully busy. Judgment.

The threads of one Python process can use little more than one core.
"""
_QUEUED_S, _QUEUED_SHARE = 0.015, 0.2
"""A link counts as full if a round trip takes longer than the shortest one by both of these. It then waits in a queue.

The first is in seconds, the second is a share of the shortest round trip. Judgment.
"""
_USUAL_WINDOWS = 5
"""The usual rate is a mean over about this many windows. Judgment."""
_SAGS, _SAGS_IN_VAIN = 0.85, 2
"""A low rate is one below this share of the usual rate, on a link without a queue. It shows room for more connections.

After this many searches without a gain, a low rate starts no further search. Judgment.
"""


@dataclass
class Pace:
    """Adds connections until the link is full or more of them do not pay. Searches again when there is room.

    A link is full when it has a queue: a round trip that is measured during the transfer has to wait in it. If
    no queue shows, the gain decides, and the smallest count that paid is kept. Times are in seconds, on any one
    clock. Amounts are in bytes since the beginning.
    """

    round_trip_s: float = 0.0
    """The shortest round trip that was measured."""
    queued_s: float | None = None
    """How many seconds longer than the shortest a round trip takes now. A wait for our own limit counts as well.

    None if unknown.
    """
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
        """Whether the box is so far away that round trips limit the speed."""
        return self.round_trip_s >= FAR_S

    @property
    def is_full(self) -> bool:
        """Whether the link has a queue, which more connections would only make longer."""
        least_s = max(_QUEUED_S, _QUEUED_SHARE * self.round_trip_s)
        return self.queued_s is not None and self.queued_s >= least_s

    def look(
        self, at_s: float, done_bytes: int, *, working: int, most: int, busy_s: float = 0.0
    ) -> int:
        """Return how many connections there should be.

        `working` of them work now, and `most` are allowed. `busy_s` is the processor time that this process has
        used so far.
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
            # The first half is not counted, because new connections have not reached their full speed yet.
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
        """Whether the first connections of a far box are still getting faster."""
        before, self._before = self._before, rate
        is_early = self.is_far and self._is_first and self._below is None and not self.is_full
        return is_early and (before is None or rate > _PAYS * before)

    @property
    def spare(self) -> int:
        """How many connections may be opened before they are needed, because opening a connection takes long.

        It is soon known whether they are needed.
        """
        if self.settled or not self.is_far:
            return 0
        return min(self._wanted, _MOST_SPARE if self._is_slow else FAR)

    @property
    def _window_s(self) -> float:
        """For how many seconds the rate is measured at a time."""
        return max(_LEAST_WINDOW_S, _ROUND_TRIPS * self.round_trip_s)

    @property
    def _judging_s(self) -> float:
        """How many seconds one count is judged. A later search takes longer, to distinguish a gain from chance."""
        is_calm = not self._is_first and not self._is_after_sag
        return self._window_s * (_CALM if is_calm else 1)

    def _decide(self, at_s: float, rate: float, wanted: int, most: int, busy: float) -> None:
        # A new search compares with no earlier rate, because the link may have changed.
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
        # One step proves little here: a connection that loses packets is fast until the first loss.
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
        """Whether the processors are the limit, and not the speed of each connection."""
        return wanted >= self.cores and rate >= _SWIFT_BYTES_S * self.cores

    def _settle(self, at_s: float, count: int, rate: float) -> None:
        self._wanted, self.settled, self._below = count, True, None
        self._unpaid, self._is_first, self._is_after_sag = 0, False, False
        self._usual, self._has_sagged, self._watched = rate, False, None
        self._again_at = at_s + _AGAIN_S

    def _watch(self, at_s: float, done_bytes: int, wanted: int) -> None:
        """Add connections if the rate of a far link falls and the link is not full."""
        since_s, before = self._watched or (at_s, done_bytes)
        took_s = at_s - since_s
        if self._watched is not None and took_s < self._window_s:
            return
        self._watched = (at_s, done_bytes)
        rate = (done_bytes - before) / took_s if took_s else self._usual
        is_sagging = self.is_far and not self.is_full and rate < _SAGS * self._usual
        self._usual += (rate - self._usual) / _USUAL_WINDOWS
        has_sagged, self._has_sagged = self._has_sagged, is_sagging
        # Act only on two low rates in a row: a single one is chance, and the recovery after it
        # would look like a gain.
        if has_sagged and is_sagging and self._in_vain < _SAGS_IN_VAIN:
            self.settled, self._began, self._is_after_sag = False, None, True
            # Use at least as many connections as were ever tried. If some were given up because
            # they did not pay, they were needed after all.
            self._wanted = self._paid = max(2 * wanted, self._tried)
            self._below = (wanted, rate)
