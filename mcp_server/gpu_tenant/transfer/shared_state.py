"""What the threads of one transfer share, both for uploads and for downloads."""

import time
from collections.abc import Sized
from threading import Condition
from typing import Generic, Protocol, TypeVar

_PACKED_BELOW_BYTES_S = 32e6
"""On a link that is slower than this, files are compressed.

On a faster link, compressing takes longer than it saves.
"""

_BESIDE_S = 0.15


class BandwidthTurn(Protocol):
    """How much of the link this transfer may use, beside the user's other transfers."""

    def connections(self, wanted: int) -> int:
        """Return how many of the wanted connections the transfer may use now."""
        ...

    def pause_s(self, n_bytes: int) -> float:
        """Return how long to wait before asking for `n_bytes` more."""
        ...


class Portion(Protocol):
    """What one request asks for."""

    @property
    def size_bytes(self) -> int:
        """How many bytes of the portion go over the link."""
        ...


P = TypeVar("P", bound=Portion)


class PieceRequester(Protocol):
    """A thread that asks for pieces."""

    @property
    def number(self) -> int:
        """The place of this thread among the others."""
        ...

    @property
    def asked(self) -> Sized:
        """The pieces that this thread has requested and has no answer to yet."""
        ...

    def hang_up(self) -> None:
        """Stop this thread: it requests nothing more, and gives back the pieces that it has no answer to."""
        ...


class Transfer(Generic[P]):
    """The state of one transfer.

    All its threads may use it at once. The threads wait here for pieces, until the transfer is over.
    """

    def __init__(self, turn: BandwidthTurn) -> None:
        self._turn = turn
        self._changed = Condition()
        self._stopped = False
        self.trouble: BaseException | None = None
        """The error that ended the transfer. None while there is no error."""
        self.wanted = 1
        self.came_bytes = 0
        """How many bytes of the files are in place by now, whether they came over the link or from a disk."""
        self.linked_bytes = 0
        """How many of these bytes came over the link."""
        self.held_back_until = 0.0
        """The time on the monotonic clock until which the piece that was last held back had to wait."""
        self.packs = False
        """Whether the link is so slow that compression pays."""

    def take(self, worker: PieceRequester, size_bytes: int) -> P | None:
        """Return the next piece for a thread. None if there is none, or if the thread should first read an answer.

        A thread with nothing to do waits here until there is a piece, or until there is nothing to wait for. If
        there are more threads than wanted, the first one beyond that number waits only for a moment, so that it can
        measure round trips.
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
        """Wait for this transfer's turn, and return the piece. None if the transfer ended first."""
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
        """Make the piece available again, because the channel over which it was requested will not answer."""
        with self._changed:
            self._take_back(piece)
            self._changed.notify_all()

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be asked for."""
        with self._changed:
            return self._is_ended()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for: all is done for now, or the transfer has ended."""
        with self._changed:
            return self._is_ended() or self._is_done()

    def want(self, workers: int, rate_bytes_s: float) -> None:
        """Let `workers` threads ask for more, and compress if the link is slow enough for that."""
        with self._changed:
            if workers != self.wanted:
                self.wanted = workers
                self._changed.notify_all()
            self.packs = 0 < rate_bytes_s < _PACKED_BELOW_BYTES_S

    def fail(self, trouble: BaseException) -> None:
        """End the transfer with an error. Of several errors, the first is kept."""
        with self._changed:
            self.trouble = self.trouble or trouble
            self._changed.notify_all()

    def stop(self) -> None:
        """Let no thread start anything more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    # What uploads and downloads do differently. These methods are called with the lock held.

    def _next(self, size_bytes: int) -> P | None:
        """Return the next piece, of about that size. None if there is none now."""
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
        """Whether nothing is left to do for now."""
        raise NotImplementedError

    def _is_ended(self) -> bool:
        """Whether threads have nothing more to wait for."""
        return self._stopped or self.trouble is not None
