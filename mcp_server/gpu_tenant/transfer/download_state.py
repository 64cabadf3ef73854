"""The state that the threads of one download share: which pieces are under way, what has arrived, what went wrong."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from gpu_tenant.transfer.chunks import LEAST_BYTES, Bundle, Coming, Large, Piece, Pieces, Stretch
from gpu_tenant.transfer.partial_file import Span
from gpu_tenant.transfer.shared_state import BandwidthTurn, PieceRequester, Transfer

_SAVED_EVERY_S = 0.5
_BREAKS = 3
_UNREADABLE = "the box cannot read it to its end"
_LAST_PIECES = 4
"""Near the end, the rest is cut into at least this many pieces for each working thread."""
_LATE_S = 2.0
"""A piece that takes longer than this many seconds is late. A piece is cut so that it arrives in a fifth of that."""


class DownloadState(Transfer[Piece]):
    """The state of one download. Its threads wait for more files until the download is stopped."""

    def __init__(self, turn: BandwidthTurn) -> None:
        super().__init__(turn)
        self._pieces = Pieces()
        self._unproved = self._total_bytes = 0
        self._written: list[Coming] = []
        self._written_bytes, self._written_since = 0, 0.0
        self._lost: list[tuple[Coming, str]] = []
        self._given_up: list[Large] = []
        self._saved_at = time.monotonic()
        self._under_way: dict[Piece, tuple[float, PieceRequester]] = {}
        self._doubled: set[Piece] = set()
        self._broken: Counter[tuple[str, int]] = Counter()

    def add(self, coming: Sequence[Coming]) -> None:
        """Add files to download."""
        with self._changed:
            self._pieces.add(coming)
            self._unproved += len(coming)
            self._total_bytes += sum(one.entry.size_bytes for one in coming)
            self._changed.notify_all()

    # couriers

    def _next(self, size_bytes: int) -> Piece | None:
        # Near the end, pieces are small, so that none ends long after the others.
        even_bytes = (self._total_bytes - self.came_bytes) // (_LAST_PIECES * self.wanted)
        return self._pieces.take(min(size_bytes, max(LEAST_BYTES, even_bytes)))

    def _note_taken(self, piece: Piece, worker: PieceRequester) -> None:
        self._under_way[piece] = (time.monotonic(), worker)

    def _late(self) -> Piece | None:
        """Return the missing part of a late piece, so that it is requested a second time. None if no piece is late.

        A piece is never requested a third time.

        Without this, one connection that has become slow could hold up the end of a download.
        """
        before = time.monotonic() - _LATE_S
        for piece, (asked_at, _) in self._under_way.items():
            if isinstance(piece, Stretch) and asked_at < before and piece not in self._doubled:
                self._doubled.add(piece)
                if spans := piece.spans_left():
                    piece.file.asked += 1
                    return Stretch(piece.file, spans)
        return None

    def came(self, size_bytes: int, over: Literal["link", "disk"]) -> None:
        """Count bytes that have arrived, over the link or from an older version on this computer's disk."""
        with self._changed:
            self.came_bytes += size_bytes
            if over == "link":
                self.linked_bytes += size_bytes

    def note_done(self, piece: Piece) -> None:
        """Record that the piece was received completely."""
        with self._changed:
            del self._under_way[piece]
            if not isinstance(piece, Bundle):
                piece.file.asked -= 1
                if piece.file.partial.is_whole:
                    self._dismiss(piece.file)
            self._changed.notify_all()

    def _dismiss(self, file: Large) -> None:
        """Cut the channels that still bring parts of this file, because the file is whole.

        Nothing may write to the file while it is read back.
        """
        for piece, (_, courier) in self._under_way.items():
            if not isinstance(piece, Bundle) and piece.file is file:
                courier.hang_up()

    def _take_back(self, piece: Piece) -> None:
        del self._under_way[piece]
        self._pieces.give_back(piece)

    def broke(self, piece: Piece) -> None:
        """Record that a channel ended before it delivered the piece.

        If `_BREAKS` channels end at the same place of a file, the box cannot read the file, and the file is
        given up.
        """
        with self._changed:
            place = _place(piece)
            if place is None:
                return
            self._broken[place] += 1
            if self._broken[place] < _BREAKS:
                return
        if isinstance(piece, Bundle):
            self.lose_small(piece.files.popleft(), _UNREADABLE)
        else:
            self.lose(piece.file, _UNREADABLE)

    def wrote(self, coming: Coming) -> None:
        """Record that the bytes of a small file are in its partial file."""
        with self._changed:
            if not self._written:
                self._written_since = time.monotonic()
            self._written.append(coming)
            self._written_bytes += coming.entry.size_bytes

    def take_comparison(self, file: Large, other: Sequence[Span], same: Sequence[Span]) -> None:
        """Use the result of a comparison: the parts in `other` differ from the older version, so request them.

        If no part of the file has matched so far, request all the rest without a comparison.
        """
        with self._changed:
            file.matched += sum(span.size_bytes for span in same)
            file.missing.extend(file.partial.lacking(other))
            if not file.matched:
                file.missing.extend(file.partial.lacking(file.uncompared))
                file.uncompared.clear()
            self._changed.notify_all()

    def lose(self, file: Large, why: str) -> None:
        """Give up a large file, because the box cannot deliver it."""
        with self._changed:
            if file in self._pieces.open:
                file.missing.clear()
                file.uncompared.clear()
                self._lost.append((file.coming, why))
                self._unproved -= 1
                # It is closed only at the end, because another piece of the file may be under way.
                self._pieces.open.remove(file)
                self._given_up.append(file)

    def lose_small(self, coming: Coming, why: str) -> None:
        """Give up a small file, because the box cannot deliver it."""
        with self._changed:
            self._lost.append((coming, why))
            self._unproved -= 1

    # called by the thread that reads back

    def provable(
        self, *, least_bytes: int, least_s: float
    ) -> tuple[list[Large], list[Coming], list[tuple[Coming, str]]] | None:
        """Wait for files to read back. Return large, small and lost files. None once the download is stopped.

        A large file is returned when it is whole, or when `least_bytes` of it are new. Small files are returned
        when they have `least_bytes` together, when the first has waited for `least_s` seconds, or when nothing
        is under way.
        """
        while True:
            with self._changed:
                if self._is_ended():
                    return None
                files = [file for file in self._pieces.open if _is_due(file, least_bytes)]
                is_late = time.monotonic() - self._written_since > least_s
                is_due = not self._under_way or is_late or self._written_bytes >= least_bytes
                if files or self._lost or (is_due and self._written):
                    small: list[Coming] = []
                    if is_due:  # files that are written from now on go into a new list
                        small, self._written, self._written_bytes = self._written, [], 0
                    lost, self._lost = self._lost, []
                    return files, small, lost
                self._changed.wait(0.1)
            self._save()

    def note_proved(self, count: int) -> None:
        """Record that `count` more small files were read back."""
        with self._changed:
            self._unproved -= count
            self._changed.notify_all()

    def close(self, file: Large) -> None:
        """Close a large file that was read back completely. Nothing writes to it any more."""
        with self._changed:
            self._pieces.close(file)
            self._unproved -= 1
            self._changed.notify_all()

    def _save(self) -> None:
        """Record which parts of large files are here, but at most once in `_SAVED_EVERY_S` seconds."""
        if time.monotonic() - self._saved_at < _SAVED_EVERY_S:
            return
        self._saved_at = time.monotonic()
        with self._changed:
            files = list(self._pieces.open)
        for file in files:
            file.partial.save()

    # called by the event loop, which waits for the couriers

    def _is_done(self) -> bool:
        return not self._unproved

    def leave(self) -> None:
        """Record what is here, and close every file. Call this only when every thread has ended."""
        for file in (*self._pieces.open, *self._given_up):
            with suppress(OSError):
                file.partial.close()


def _place(piece: Piece) -> tuple[str, int] | None:
    """Return the path of the piece's file on the box, and the position of the first byte that is missing.

    None if another channel has already brought the whole piece.
    """
    if isinstance(piece, Bundle):
        return (piece.files[0].entry.at if piece.files else ""), 0
    left = piece.spans_left() if isinstance(piece, Stretch) else [piece.span]
    return (piece.file.at, left[0].first) if left else None


def _is_due(file: Large, least_bytes: int) -> bool:
    if file.partial.is_whole:
        return not (file.asked or file.missing or file.uncompared)
    return file.partial.front - file.proved_bytes >= least_bytes
