"""How far a transfer has come, how fast it is, and what the box costs until it is done."""

from collections import deque
from decimal import Decimal
from threading import Lock

from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.wording import size, span

WINDOW_S = 15
"""The rate is the mean over this many seconds, so a short stall lowers it without making it zero."""
_LEAST_S = 1
_APART_S = 0.25
_WORTH_SAYING_S = 5


class Eta:
    """Estimates the rest of a transfer from the number of bytes that are here, and the total. Safe for threads.

    Bytes that were here at the first call are not counted for the rate, because this transfer did not move
    them. Times (`at_s`) are in seconds, on any one clock.
    """

    def __init__(self, usd_h: Decimal | None = None) -> None:
        """`usd_h` is the price of the box in USD an hour. If it is None (unknown), no cost is estimated."""
        self._usd_h = usd_h
        self._lock = Lock()
        self.done_bytes = self.total_bytes = 0
        self._moved_bytes = 0
        self._moved_at_s: float | None = None
        self._points: deque[tuple[float, int]] = deque()

    def note_progress(self, done_bytes: int, total_bytes: int, *, at_s: float) -> None:
        """Record that `done_bytes` of `total_bytes` are here now."""
        with self._lock:
            # The number of bytes can fall, when bytes arrived damaged and come again. Then the rate
            # must not become negative. If the total changes, this is another transfer, and some of
            # its bytes may be here already.
            same = self._points and total_bytes == self.total_bytes
            more = max(0, done_bytes - self.done_bytes) if same else 0
            self.done_bytes, self.total_bytes = done_bytes, total_bytes
            self._moved_bytes += more
            if more or self._moved_at_s is None:
                self._moved_at_s = at_s
            if not self._points:
                self._points.append((at_s, 0))
            elif at_s - self._points[-1][0] >= _APART_S:
                self._points.append((at_s, self._moved_bytes))
            self._forget(at_s)

    def _forget(self, at_s: float) -> None:
        while len(self._points) > 1 and self._points[1][0] <= at_s - WINDOW_S:
            self._points.popleft()

    def bytes_s(self, *, at_s: float) -> float | None:
        """Return the mean rate over the last `WINDOW_S`, in bytes a second. None while it cannot be measured."""
        with self._lock:
            self._forget(at_s)
            if not self._points or at_s - self._points[0][0] < _LEAST_S:
                return None
            began_s, moved = self._points[0]
            return (self._moved_bytes - moved) / (at_s - began_s)

    def left_s(self, *, at_s: float) -> float | None:
        """Return how many seconds the rest takes at that rate. None if nothing moves, or if everything is here."""
        rate, rest = self.bytes_s(at_s=at_s), self.total_bytes - self.done_bytes
        return rest / rate if rate and rest > 0 else None

    def left_usd(self, *, at_s: float) -> Decimal | None:
        """Return what the box costs until the transfer is done, in USD. None if unknown."""
        left_s = self.left_s(at_s=at_s)
        if left_s is None or self._usd_h is None:
            return None
        return (self._usd_h * Decimal(round(left_s)) / 3600).quantize(USD_STEP)

    def words(self, *, at_s: float) -> str:
        """Return the progress in words for a person. What is unknown is left out."""
        said = [f"{size(self.done_bytes)} of {size(self.total_bytes)}"]
        rate, left_s = self.bytes_s(at_s=at_s), self.left_s(at_s=at_s)
        still_s = 0.0 if self._moved_at_s is None else at_s - self._moved_at_s
        if rate:
            said.append(f"{size(rate)}/s")
        elif still_s >= _WORTH_SAYING_S and self.done_bytes < self.total_bytes:
            said.append(f"nothing for {span(still_s)}")
        if left_s is not None:
            said.append(f"{span(left_s)} left")
        usd = self.left_usd(at_s=at_s)
        if usd:
            said.append(f"≈ {usd} USD until done")
        return ", ".join(said)
