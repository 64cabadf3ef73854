"""One channel's thread: it asks for pieces, a few ahead of the answers, and hears these in their order."""

import time
from collections import deque
from collections.abc import Callable
from threading import Thread
from typing import ClassVar, Generic, Literal

from gpu_tenant.transfer.chunks import BLOCK_BYTES
from gpu_tenant.transfer.concurrency import FAR_S
from gpu_tenant.transfer.protocol import Conversation, LinkBroken
from gpu_tenant.transfer.shared_state import Job, P

Way = Literal["kept", "own"]
_AHEAD = 2
"""So many pieces are under way at once, so that the link is never idle while a request or an answer comes."""
_PIECE_S = 0.4
_TRIPS = 3
"""So many of the newest round trips are known of each."""


class Hand(Thread, Generic[P]):
    """Works over one channel until there is nothing to do, or the link breaks.

    Of those that are ready, as many as are wanted ask for more; `number` is its place among them.
    """

    FIRST_BYTES: ClassVar[int]
    LEAST_BYTES: ClassVar[int]
    MOST_BYTES: ClassVar[int]

    def __init__(
        self,
        talk: Conversation,
        job: Job[P],
        script: bytes,
        *,
        way: Way,
        mark: str,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(name=f"courier-{way}", daemon=True)
        self.way, self.number = way, 0
        self.is_ready = self.is_over = False
        self.trips: deque[tuple[float, float]] = deque(maxlen=_TRIPS)
        """When the newest round trips ended, on the monotonic clock, and how long they took, with nothing to carry."""
        self.round_trip_s: float | None = None
        """The shortest of all."""
        self.carried_bytes = 0
        """How much went over its link."""
        self.is_waiting = False
        """Whether something is due over it."""
        self.moved_at = 0.0
        """When something moved last, on the monotonic clock, while that is so."""
        self.is_hearing = False
        """Whether what is due has begun to be waited for."""
        self.asked: deque[P] = deque()
        self._asked_at: deque[float] = deque()
        self._heard_at = 0.0
        self._talk, self._work, self._script = talk, job, script
        self._mark, self._wake = mark, wake
        self._size_bytes = self.FIRST_BYTES

    def run(self) -> None:
        """Thread: see the class."""
        try:
            try:
                self._talk.greet(self._script, self._mark)
                self._travel()
                self.is_ready = True
                self._wake()
                self._carry()
            except LinkBroken:
                self._broke()
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for the transfer
            self._work.fail(error)
        finally:
            for piece in reversed(self.asked):
                self._work.give_back(piece)
            self._talk.close()
            self.is_over = True
            self._wake()

    def hang_up(self) -> None:
        """The thread ends soon: its link is cut."""
        self._talk.hang_up()

    def _carry(self) -> None:
        while True:
            while len(self.asked) < _AHEAD:
                piece = self._work.take(self, self._size_bytes)
                if piece is None:
                    break
                self.asked.append(piece)
                self._is_due()
                self._asked_at.append(self.moved_at)
                self._ask(piece)
            if self.asked:
                self._hear_next()
            elif self._work.has_ended:
                self.is_waiting = False
                return
            elif (self.round_trip_s or 0) >= FAR_S:
                self._travel()

    def _travel(self) -> None:
        """One round trip more was measured, over a link that carries nothing else of this thread's."""
        self._is_due()
        took_s = self._talk.round_trip_s()
        self.is_waiting = False
        self.trips.append((time.monotonic(), took_s))
        self.round_trip_s = min(took_s, self.round_trip_s or took_s)

    def _hear_next(self) -> None:
        before = self.carried_bytes
        self._is_due()
        self.is_hearing = True
        self._hear(self.asked[0])
        self.is_waiting = self.is_hearing = False
        self._heard(self.asked.popleft())
        now, asked_at = time.monotonic(), self._asked_at.popleft()
        self._find_size(self.carried_bytes - before, now - max(asked_at, self._heard_at))
        self._heard_at = now

    def _is_due(self) -> None:
        self.is_waiting, self.moved_at = True, time.monotonic()

    def _carried(self, size_bytes: int) -> None:
        """So much went over the link."""
        self.carried_bytes += size_bytes
        self.moved_at = time.monotonic()

    def _find_size(self, size_bytes: int, took_s: float) -> None:
        """Pieces are as large as move in a short while: a break costs little, and none ends long after the others."""
        if size_bytes >= self._size_bytes // 2:
            wanted = int(size_bytes / max(took_s, 1e-6) * _PIECE_S)
            grown = min(wanted, 4 * self._size_bytes, self.MOST_BYTES)
            self._size_bytes = max(self.LEAST_BYTES, grown // BLOCK_BYTES * BLOCK_BYTES)

    # what each way does in its own manner

    def _ask(self, piece: P) -> None:
        """The request for the piece went out."""
        raise NotImplementedError

    def _hear(self, piece: P) -> None:
        """The answer to the oldest request came, and all it brings is in its place."""
        raise NotImplementedError

    def _heard(self, piece: P) -> None:
        """The piece is done with."""

    def _broke(self) -> None:
        """The link ended, and nothing more comes over it."""
