"""The state that the threads of one transfer share, for uploads and for downloads."""

import time
from collections.abc import Sized
from threading import Condition
from typing import Generic, Protocol, TypeVar

_PACKED_BELOW_BYTES_S = 32e6
"""If a link is slower than this, the bytes are compressed.

On a faster link, compressing would take more time than it saves.
"""

_BESIDE_S = 0.15


class BandwidthTurn(Protocol):
    """This transfer's part of the link, next to the user's other transfers."""

    def connections(self, wanted: int) -> int:
        """Return how many of the `wanted` connections this transfer may use now."""
        ...

    def pause_s(self, n_bytes: int) -> float:
        """Return how many seconds to wait before requesting `n_bytes` more."""
        ...


class Portion(Protocol):
    """The part of a transfer that one request moves."""

    @property
    def size_bytes(self) -> int:
        """How many bytes of the portion go over the link."""
        ...


P = TypeVar("P", bound=Portion)


class PieceRequester(Protocol):
    """A thread that requests pieces."""

    @property
    def number(self) -> int:
        """The number of this thread. It gets pieces only if its number is below `Transfer.wanted`."""
        ...

    @property
    def asked(self) -> Sized:
        """The pieces that this thread has requested and that were not answered yet."""
        ...

    def hang_up(self) -> None:
        """Stop this thread. It requests nothing more, and gives back the pieces that were not answered."""
        ...


class Transfer(Generic[P]):
    """The state of one transfer.

    All threads of the transfer may use it at the same time. They wait here for pieces until the transfer is
    over.
    """

    def __init__(self, turn: BandwidthTurn) -> None:
        self._turn = turn
        self._changed = Condition()
        self._stopped = False
        self.trouble: BaseException | None = None
        """The error that ended the transfer. None if there is no error."""
        self.wanted = 1
        self.came_bytes = 0
        """How many bytes of the files are in place, from the link or from a disk."""
        self.linked_bytes = 0
        """How many of these bytes came over the link."""
        self.held_back_until = 0.0
        """The last piece that the limit delayed had to wait until this time (monotonic clock). 0 if there is none."""
        self.packs = False
        """Whether the link is so slow that compression pays."""

    def take(self, worker: PieceRequester, size_bytes: int) -> P | None:
        """Return the next piece for a thread. None if there is none, or if the thread should first read an answer.

        A thread without any work waits here until there is a piece or the transfer has ended. If there are more
        threads than wanted, the first of the surplus threads returns after a moment, so that it can measure
        round trips.
        """
        while True:
            with self._changed:
                if self._is_ended():
                    return None
                is_wanted = worker.number < self.wanted
                piece = self._next(size_bytes) if is_wanted else None
                if piece is None and worker.asked:
                    return None
                piece = piece or (self._late() if is_wanted else None)
                if piece is None:
                    if self._is_ended():
                        return None
                    is_beside = worker.number == self.wanted
                    self._changed.wait(_BESIDE_S if is_beside else 0.5)
                    if is_beside:
                        return None
                    continue
                self._note_taken(piece, worker)
            return self._in_turn(piece)

    def _in_turn(self, piece: P) -> P | None:
        """Wait until this transfer may request the piece, and return it. None if the transfer ended first."""
        at = time.monotonic() + self._turn.pause_s(piece.size_bytes)
        if at > time.monotonic():
            self.held_back_until = at
        while (pause_s := at - time.monotonic()) > 0:
            with self._changed:
                if self._is_ended():
                    self._take_back(piece)
                    return None
                self._changed.wait(pause_s)
        return piece

    def give_back(self, piece: P) -> None:
        """Make the piece available again, because its request will not be answered over that channel."""
        with self._changed:
            self._take_back(piece)
            self._changed.notify_all()

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be requested."""
        with self._changed:
            return self._is_ended()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for: the work is done for now, or the transfer has ended."""
        with self._changed:
            return self._is_ended() or self._is_done()

    def want(self, workers: int, rate_bytes_s: float) -> None:
        """Let `workers` threads request pieces. Compress if the link is slow enough."""
        with self._changed:
            if workers != self.wanted:
                self.wanted = workers
                self._changed.notify_all()
            self.packs = 0 < rate_bytes_s < _PACKED_BELOW_BYTES_S

    def fail(self, trouble: BaseException) -> None:
        """End the transfer with an error. If there are several errors, the first is kept."""
        with self._changed:
            self.trouble = self.trouble or trouble
            self._changed.notify_all()

    def stop(self) -> None:
        """Make every thread stop requesting pieces."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    # Uploads and downloads define these methods in their own way. The lock is held when they are called.

    def _next(self, size_bytes: int) -> P | None:
        """Return the next piece, of about `size_bytes`. None if there is none now."""
        raise NotImplementedError

    def _late(self) -> P | None:
        """Return a piece to request a second time because its answer is overdue. None if there is none."""
        return None

    def _note_taken(self, piece: P, worker: PieceRequester) -> None:
        """Record that the thread now works on the piece."""

    def _take_back(self, piece: P) -> None:
        """Make the piece available again."""
        raise NotImplementedError

    def _is_done(self) -> bool:
        """Whether there is nothing to do for now."""
        raise NotImplementedError

    def _is_ended(self) -> bool:
        """Whether the threads have nothing more to wait for."""
        return self._stopped or self.trouble is not None
