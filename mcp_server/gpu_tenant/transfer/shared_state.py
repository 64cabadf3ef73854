"""What the threads of one transfer share, for uploads and downloads alike."""

import time
from collections.abc import Sized
from threading import Condition
from typing import Generic, Protocol, TypeVar

_PACKED_BELOW_BYTES_S = 32e6
"""A processor compresses faster than this. On a faster link compression does not pay."""

_BESIDE_S = 0.15


class BandwidthTurn(Protocol):
    """How much of the link this transfer may use, beside the user's other transfers."""

    def connections(self, wanted: int) -> int:
        """How many of the wanted connections it may use now."""
        ...

    def pause_s(self, n_bytes: int) -> float:
        """How long to wait before asking for `n_bytes` more."""
        ...


class Portion(Protocol):
    """What one request asks for."""

    @property
    def size_bytes(self) -> int:
        """How much of it goes over the link."""
        ...


P = TypeVar("P", bound=Portion)


class PieceRequester(Protocol):
    """A thread that asks for pieces."""

    @property
    def number(self) -> int:
        """Its place among the others."""
        ...

    @property
    def asked(self) -> Sized:
        """The pieces that it has asked for and has no answer to yet."""
        ...

    def hang_up(self) -> None:
        """It asks for nothing more, and gives back the pieces that it has no answer to."""
        ...


class Transfer(Generic[P]):
    """The state of one transfer. Its threads may use it at once. They wait here for pieces until it is over."""

    def __init__(self, turn: BandwidthTurn) -> None:
        self._turn = turn
        self._changed = Condition()
        self._stopped = False
        self.trouble: BaseException | None = None
        """The error that ended it. None while there is none."""
        self.wanted = 1
        self.came_bytes = 0
        """How much of the files is in place by now, whether it came over the link or from a disk."""
        self.linked_bytes = 0
        """How much of that came over the link."""
        self.held_back_until = 0.0
        """Until when, on the monotonic clock, the last piece that was held back had to wait for its turn."""
        self.packs = False
        """Whether the link is so slow that compression pays."""

    def take(self, hand: PieceRequester, size_bytes: int) -> P | None:
        """The next piece for that thread. None if there is none, or if it should first read an answer that is due.

        A thread with nothing to do waits here until there is a piece, or nothing to wait for. The first thread beyond
        the wanted number waits for a moment only, so that it can measure round trips.
        """
        while True:
            with self._changed:
                if self._is_ended():
                    return None
                is_wanted = hand.number < self.wanted
                piece = self._next(size_bytes) if is_wanted else None
                if piece is None and hand.asked:
                    return None
                piece = piece or (self._late() if is_wanted else None)
                if piece is None:
                    if self._is_ended():
                        return None
                    is_beside = hand.number == self.wanted
                    self._changed.wait(_BESIDE_S if is_beside else 0.5)
                    if is_beside:
                        return None
                    continue
                self._taken(piece, hand)
            return self._in_turn(piece)

    def _in_turn(self, piece: P) -> P | None:
        """The piece, once it is this transfer's turn. None if the transfer ended first."""
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
        """The piece may be asked for again, because the channel it was asked for on will not answer."""
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

    def want(self, hands: int, rate_bytes_s: float) -> None:
        """So many threads may ask for more, and compression is on if the link is slow enough."""
        with self._changed:
            if hands != self.wanted:
                self.wanted = hands
                self._changed.notify_all()
            self.packs = 0 < rate_bytes_s < _PACKED_BELOW_BYTES_S

    def fail(self, trouble: BaseException) -> None:
        """The transfer cannot go on. The first error is the one that is kept."""
        with self._changed:
            self.trouble = self.trouble or trouble
            self._changed.notify_all()

    def stop(self) -> None:
        """No thread starts anything more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    # what uploads and downloads do differently. Called with the lock held

    def _next(self, size_bytes: int) -> P | None:
        """The next piece, of about that size. None if there is none now."""
        raise NotImplementedError

    def _late(self) -> P | None:
        """A piece to ask for a second time because its answer is overdue. None if there is none."""
        return None

    def _taken(self, piece: P, hand: PieceRequester) -> None:
        """The piece is that thread's from now on."""

    def _take_back(self, piece: P) -> None:
        """The piece will be asked for again."""
        raise NotImplementedError

    def _is_done(self) -> bool:
        """Whether nothing is left to do for now."""
        raise NotImplementedError

    def _is_ended(self) -> bool:
        """Whether threads have nothing more to wait for."""
        return self._stopped or self.trouble is not None
