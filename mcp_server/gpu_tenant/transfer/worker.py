"""The thread of one channel. It requests pieces a little ahead of the answers, and reads the answers in order."""

import time
from collections import deque
from collections.abc import Callable
from threading import Thread
from typing import ClassVar, Generic, Literal

from gpu_tenant.transfer.chunks import BLOCK_BYTES
from gpu_tenant.transfer.concurrency import FAR_S
from gpu_tenant.transfer.protocol import Conversation, LinkBroken
from gpu_tenant.transfer.shared_state import P, Transfer

Way = Literal["kept", "own"]
_AHEAD = 2
"""This many requests are open at a time, so that the link is not idle between an answer and the next request."""
_PIECE_S = 0.4
_TRIPS = 3
"""Each thread remembers this many of its latest round trips."""


class ChannelWorker(Thread, Generic[P]):
    """Works over one channel until there is nothing left to do, or the link breaks.

    Only some of the threads request pieces: those whose `number` is below the number of threads that the job
    wants.
    """

    FIRST_BYTES: ClassVar[int]
    LEAST_BYTES: ClassVar[int]
    MOST_BYTES: ClassVar[int]

    def __init__(
        self,
        talk: Conversation,
        job: Transfer[P],
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
        """The latest round trips without content: when each ended (monotonic clock), and how many seconds it took."""
        self.round_trip_s: float | None = None
        """The shortest round trip so far, in seconds. None before the first one."""
        self.carried_bytes = 0
        """How many bytes went over this thread's link."""
        self.is_waiting = False
        """Whether this thread waits for something to come over its link."""
        self.moved_at = 0.0
        """When bytes last moved over the link, on the monotonic clock. Meaningful only while `is_waiting`."""
        self.is_hearing = False
        """Whether this thread is reading the answer to its oldest request."""
        self.asked: deque[P] = deque()
        self._asked_at: deque[float] = deque()
        self._heard_at = 0.0
        self._talk, self._work, self._script = talk, job, script
        self._mark, self._wake = mark, wake
        self._size_bytes = self.FIRST_BYTES

    def run(self) -> None:
        """Greet the courier, then move pieces until there is nothing left to do or the link breaks."""
        try:
            try:
                self._talk.greet(self._script, self._mark)
                self._travel()
                self.is_ready = True
                self._wake()
                self._carry()
            except LinkBroken:
                self._broke()
        except BaseException as error:  # noqa: BLE001 - raised again by the code that waits for the transfer
            self._work.fail(error)
        finally:
            for piece in reversed(self.asked):
                self._work.give_back(piece)
            self._talk.close()
            self.is_over = True
            self._wake()

    def hang_up(self) -> None:
        """Cut the link. The thread then ends soon."""
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
        """Measure one more round trip. During it, the link carries nothing else for this thread."""
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
        self._finish_piece(self.asked.popleft())
        now, asked_at = time.monotonic(), self._asked_at.popleft()
        self._find_size(self.carried_bytes - before, now - max(asked_at, self._heard_at))
        self._heard_at = now

    def _is_due(self) -> None:
        self.is_waiting, self.moved_at = True, time.monotonic()

    def _count_moved(self, size_bytes: int) -> None:
        """Count `size_bytes` more bytes as moved over the link."""
        self.carried_bytes += size_bytes
        self.moved_at = time.monotonic()

    def _find_size(self, size_bytes: int, took_s: float) -> None:
        """Choose the size of the next piece so that it moves within about `_PIECE_S` seconds.

        Then little is lost if the link breaks, and no piece ends long after the others.
        """
        if size_bytes >= self._size_bytes // 2:
            wanted = int(size_bytes / max(took_s, 1e-6) * _PIECE_S)
            grown = min(wanted, 4 * self._size_bytes, self.MOST_BYTES)
            self._size_bytes = max(self.LEAST_BYTES, grown // BLOCK_BYTES * BLOCK_BYTES)

    # Uploads and downloads define these methods in their own way.

    def _ask(self, piece: P) -> None:
        """Send the request for the piece."""
        raise NotImplementedError

    def _hear(self, piece: P) -> None:
        """Read the answer to the oldest request, and put everything in it in its place."""
        raise NotImplementedError

    def _finish_piece(self, piece: P) -> None:
        """Record that the piece is finished."""

    def _broke(self) -> None:
        """Handle the end of the link: nothing more comes over it."""
