"""What the threads of one transfer share: the pieces, what came, what went wrong."""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from threading import Condition
from typing import Protocol

from gpu_tenant.transfer.partial import Span
from gpu_tenant.transfer.pieces import Bundle, Coming, Large, Piece, Pieces, Stretch

_SAVED_EVERY_S = 0.5
_BREAKS = 3
_UNREADABLE = "the box cannot read it to its end"
_LATE_S = 2.0
"""Pieces are cut to come in a fifth of it."""
_PACKED_BELOW_BYTES_S = 32e6
"""A processor packs faster than this; a faster link has no use for it."""


class Turn(Protocol):
    """What this transfer may take of the link, among others of the same user."""

    def connections(self, wanted: int) -> int:
        """How many of the wanted connections it may use now."""
        ...

    def pause_s(self, n_bytes: int) -> float:
        """How long to wait before so many bytes more are asked for."""
        ...


class Alone:
    """The turn of a transfer that shares with no other."""

    def connections(self, wanted: int) -> int:
        """All of them."""
        return wanted

    def pause_s(self, n_bytes: int) -> float:
        """No while."""
        return 0.0


class Asking(Protocol):
    """Whoever asks for pieces."""

    @property
    def number(self) -> int:
        """Its place among the couriers."""
        ...

    @property
    def asked(self) -> Collection[Piece]:
        """What it has asked for and not received."""
        ...

    def hang_up(self) -> None:
        """It asks for nothing more, and gives back what it has not received."""
        ...


class Work:
    """The state of one transfer, safe for its threads, which wait for more until it is stopped."""

    def __init__(self, turn: Turn) -> None:
        self._pieces = Pieces()
        self._turn = turn
        self._changed = Condition()
        self._unproved = 0
        self._written: list[Coming] = []
        self._lost: list[tuple[Coming, str]] = []
        self._given_up: list[Large] = []
        self._saved_at = time.monotonic()
        self._stopped = False
        self.trouble: BaseException | None = None
        self.wanted = 1
        self.came_bytes = 0
        self.packs = False
        self._under_way: dict[Piece, tuple[float, Asking]] = {}
        self._doubled: set[Piece] = set()
        self._broken: Counter[tuple[str, int]] = Counter()

    def add(self, coming: Sequence[Coming]) -> None:
        """Those files are to come, too."""
        with self._changed:
            self._pieces.add(coming)
            self._unproved += len(coming)
            self._changed.notify_all()

    # couriers

    def take(self, courier: Asking, size_bytes: int) -> Piece | None:
        """The next piece for that courier; None where there is none, or it has something to receive first.

        A courier that has nothing to do waits here, until there is a piece or the work is stopped.
        """
        while True:
            with self._changed:
                if self._is_stopped():
                    return None
                piece = self._pieces.take(size_bytes) if courier.number < self.wanted else None
                if piece is None and courier.asked:
                    return None
                piece = piece or self._late()
                if piece is None:
                    self._changed.wait(0.5)
                    continue
                self._under_way[piece] = (time.monotonic(), courier)
            return self._in_turn(piece)

    def _late(self) -> Piece | None:
        """What is left of a piece that should have come long since; asked for once more, and no oftener.

        At the end of a transfer one connection that has lost its speed would hold up all the rest.
        """
        before = time.monotonic() - _LATE_S
        for piece, (asked_at, _) in self._under_way.items():
            if isinstance(piece, Stretch) and asked_at < before and piece not in self._doubled:
                self._doubled.add(piece)
                if spans := piece.left():
                    piece.file.asked += 1
                    return Stretch(piece.file, spans)
        return None

    def _in_turn(self, piece: Piece) -> Piece | None:
        """The piece, when it is this transfer's turn."""
        at = time.monotonic() + self._turn.pause_s(piece.size_bytes)
        while (pause_s := at - time.monotonic()) > 0:
            with self._changed:
                if self._is_stopped():
                    del self._under_way[piece]
                    self._pieces.give_back(piece)
                    return None
                self._changed.wait(pause_s)
        return piece

    def came(self, size_bytes: int) -> None:
        """So many bytes of files arrived."""
        with self._changed:
            self.came_bytes += size_bytes

    def done(self, piece: Piece) -> None:
        """All of the piece was received."""
        with self._changed:
            del self._under_way[piece]
            if not isinstance(piece, Bundle):
                piece.file.asked -= 1
                if piece.file.partial.is_whole:
                    self._dismiss(piece.file)
            self._changed.notify_all()

    def _dismiss(self, file: Large) -> None:
        """Whoever still brings what is here already is hung up on: nobody writes to what is to be proved."""
        for piece, (_, courier) in self._under_way.items():
            if not isinstance(piece, Bundle) and piece.file is file:
                courier.hang_up()

    def give_back(self, piece: Piece) -> None:
        """The piece is not going to come over the channel it was asked for on."""
        with self._changed:
            del self._under_way[piece]
            self._pieces.give_back(piece)
            self._changed.notify_all()

    def broke(self, piece: Piece) -> None:
        """A channel ended while that piece was due on it; what ends every one is a file that cannot be read."""
        with self._changed:
            place = _place(piece)
            self._broken[place] += 1
            if self._broken[place] < _BREAKS:
                return
        if isinstance(piece, Bundle):
            self.lose_small(piece.files.popleft(), _UNREADABLE)
        else:
            self.lose(piece.file, _UNREADABLE)

    def wrote(self, coming: Coming) -> None:
        """A small file is in its partial file."""
        with self._changed:
            self._written.append(coming)

    def compared(self, file: Large, other: Sequence[Span], same: Sequence[Span]) -> None:
        """What of a span differs from the older version is fetched; where nothing fits, so is all the rest."""
        with self._changed:
            file.matched += sum(span.size_bytes for span in same)
            file.missing.extend(file.partial.lacking(other))
            if not file.matched:
                file.missing.extend(file.partial.lacking(file.uncompared))
                file.uncompared.clear()
            self._changed.notify_all()

    def lose(self, file: Large, why: str) -> None:
        """The box does not give that file any more."""
        with self._changed:
            if file in self._pieces.open:
                file.missing.clear()
                file.uncompared.clear()
                self._lost.append((file.coming, why))
                self._unproved -= 1
                # Closed at the end: another piece of it may be under way.
                self._pieces.open.remove(file)
                self._given_up.append(file)

    def lose_small(self, coming: Coming, why: str) -> None:
        """The box does not give that file any more."""
        with self._changed:
            self._lost.append((coming, why))
            self._unproved -= 1

    # the prover

    def provable(
        self, *, least_bytes: int, few: int
    ) -> tuple[list[Large], list[Coming], list[tuple[Coming, str]]] | None:
        """What can be read back now, and what was lost; None when the work is stopped. Waits for something."""
        while True:
            with self._changed:
                if self._is_stopped():
                    return None
                files = [file for file in self._pieces.open if _is_due(file, least_bytes)]
                is_last = not self._under_way
                small = self._written if is_last or len(self._written) >= few else []
                lost = self._lost
                if files or small or lost:
                    if small:
                        self._written = []
                    self._lost = []
                    return files, small, lost
                self._changed.wait(0.1)
            self._save()

    def proved(self, count: int) -> None:
        """So many files more were read back."""
        with self._changed:
            self._unproved -= count
            self._changed.notify_all()

    def close(self, file: Large) -> None:
        """The file was read back to its end; nobody writes to it any more."""
        with self._changed:
            self._pieces.close(file)
            self._unproved -= 1
            self._changed.notify_all()

    def _save(self) -> None:
        """What is here of large files is on record, at short intervals."""
        if time.monotonic() - self._saved_at < _SAVED_EVERY_S:
            return
        self._saved_at = time.monotonic()
        with self._changed:
            files = list(self._pieces.open)
        for file in files:
            file.partial.save()

    # whoever waits for them

    @property
    def is_over(self) -> bool:
        """Whether nothing is waited for now, or in vain."""
        with self._changed:
            return self._is_stopped() or not self._unproved

    def want(self, couriers: int, rate_bytes_s: float) -> None:
        """So many couriers may ask for more."""
        with self._changed:
            if couriers != self.wanted:
                self.wanted = couriers
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

    def leave(self) -> None:
        """What is here of every file stays, and is on record; every thread has ended."""
        for file in (*self._pieces.open, *self._given_up):
            with suppress(OSError):
                file.partial.close()

    def _is_stopped(self) -> bool:
        return self._stopped or self.trouble is not None


def _place(piece: Piece) -> tuple[str, int]:
    """Which file the piece is about, and from which byte on."""
    if isinstance(piece, Bundle):
        return (piece.files[0].entry.at if piece.files else ""), 0
    left = piece.left() if isinstance(piece, Stretch) else [piece.span]
    return piece.file.at, left[0].first if left else -1


def _is_due(file: Large, least_bytes: int) -> bool:
    if file.partial.is_whole:
        return not (file.asked or file.missing or file.uncompared)
    return file.partial.front - file.proved_bytes >= least_bytes
