"""What the threads of one transfer share, whichever way its bytes go."""

import time
from collections.abc import Sized
from threading import Condition
from typing import Generic, Protocol, TypeVar

_PACKED_BELOW_BYTES_S = 32e6
"""A processor packs faster than this; a faster link has no use for it."""

_BESIDE_S = 0.15


class Turn(Protocol):
    """What this transfer may take of the link, among others of the same user."""

    def connections(self, wanted: int) -> int:
        """How many of the wanted connections it may use now."""
        ...

    def pause_s(self, n_bytes: int) -> float:
        """How long to wait before so many bytes more are asked for."""
        ...


class Portion(Protocol):
    """What is asked for at once."""

    @property
    def size_bytes(self) -> int:
        """How much of it goes over the link."""
        ...


P = TypeVar("P", bound=Portion)


class Asking(Protocol):
    """Whoever asks for pieces."""

    @property
    def number(self) -> int:
        """Its place among the others."""
        ...

    @property
    def asked(self) -> Sized:
        """What it has asked for and has no answer to."""
        ...

    def hang_up(self) -> None:
        """It asks for nothing more, and gives back what it has no answer to."""
        ...


class Job(Generic[P]):
    """The state of one transfer, safe for its threads, which wait for more until it is over."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._changed = Condition()
        self._stopped = False
        self.trouble: BaseException | None = None
        """What has ended it."""
        self.wanted = 1
        self.came_bytes = 0
        """How much of the files is where it should be by now, by whichever way."""
        self.linked_bytes = 0
        """How much of that came over the link."""
        self.held_back_until = 0.0
        """Until when, on the monotonic clock, a piece had to wait for its turn."""
        self.packs = False
        """Whether the link is slow enough to pack for."""

    def take(self, hand: Asking, size_bytes: int) -> P | None:
        """The next piece for that thread; None where there is none, or it has an answer to hear first.

        Who has nothing to do waits here, until there is a piece or no use in waiting; the first of those
        who are not wanted only for a moment, and may measure the link meanwhile.
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
        """The piece, when it is this transfer's turn."""
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
        """The piece is not going to be answered over the channel it was asked for on."""
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
        """Whether nothing is waited for now, or in vain."""
        with self._changed:
            return self._is_ended() or self._is_done()

    def want(self, hands: int, rate_bytes_s: float) -> None:
        """So many threads may ask for more."""
        with self._changed:
            if hands != self.wanted:
                self.wanted = hands
                self._changed.notify_all()
            self.packs = 0 < rate_bytes_s < _PACKED_BELOW_BYTES_S

    def fail(self, trouble: BaseException) -> None:
        """The transfer cannot go on; the first trouble is told."""
        with self._changed:
            self.trouble = self.trouble or trouble
            self._changed.notify_all()

    def stop(self) -> None:
        """Nobody starts anything more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    # what each way does in its own manner, with the lock held

    def _next(self, size_bytes: int) -> P | None:
        """The next piece, about as large as that; None where there is none now."""
        raise NotImplementedError

    def _late(self) -> P | None:
        """A piece that is asked for once more, because its answer is long due."""
        return None

    def _taken(self, piece: P, hand: Asking) -> None:
        """That thread asks for the piece."""

    def _take_back(self, piece: P) -> None:
        """The piece is to be asked for again."""
        raise NotImplementedError

    def _is_done(self) -> bool:
        """Whether nothing is left to do for now."""
        raise NotImplementedError

    def _is_ended(self) -> bool:
        """Whether threads have nothing more to wait for."""
        return self._stopped or self.trouble is not None
