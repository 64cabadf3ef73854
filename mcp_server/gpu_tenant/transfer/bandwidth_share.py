"""How all transfers of one user, in any process, divide one link: the most expensive box comes first."""

import fcntl
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from threading import Lock

from pydantic import Field

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.record import Record
from gpu_tenant.files.state_dir import Home
from gpu_tenant.providers.credentials import read_table
from gpu_tenant.transfer.fair_share import Bucket, Usd, allot, rates

LOOK_S = 0.5
"""A transfer reads the files of the other transfers again after this many seconds."""
SILENT_S = 30
"""A transfer that has not written its file for this many seconds counts as moving nothing.

It may be suspended, or may wait for a dead link.
"""
_SMOOTH_S = 3
_GROWS = 2
"""A slow transfer may use this many times its present speed, so that it can grow until the next look."""
_ENTRY_BYTES = 512
_TRIES = 3
_OPENING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_RATE = re.compile(r"(\d+(?:\.\d+)?)([KMGkmg])B?(?:/s)?")
_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}


class _Said(Record):
    """What a transfer tells the others about itself."""

    lease: str
    usd_h: float | None = Field(ge=0, allow_inf_nan=False)
    wants: int = Field(ge=1)
    could_bytes_s: float | None = Field(ge=0, allow_inf_nan=False)
    at_s: float


class _Entry:
    """The file in which one transfer tells the others about itself. It is locked while the transfer runs."""

    def __init__(self, place: Path) -> None:
        """Create the file and lock it.

        Raises:
            OSError: the file cannot be created or locked.
        """
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        for _ in range(_TRIES):
            self.path = place / f"{os.getpid()}-{secrets.token_hex(4)}.json"
            self._opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            with suppress(OSError):
                fcntl.flock(self._opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(self._opened).st_nlink:
                    return
            # Another process has removed the file before it was locked: an unlocked file looks like
            # that of a dead process.
            self.close()
        raise OSError(f"no entry below {place} could be kept")

    def write(self, said: _Said) -> None:
        # Write in place, and always the same length. A rename would leave the lock on the old file.
        os.pwrite(self._opened, said.model_dump_json().ljust(_ENTRY_BYTES).encode(), 0)

    def others(self, *, at_s: float) -> list[_Said]:
        found = [
            _read(path) for path in sorted(self.path.parent.glob("*.json")) if path != self.path
        ]
        return [said for said in found if said is not None and at_s - said.at_s < SILENT_S]

    def close(self) -> None:
        with suppress(OSError):
            self.path.unlink()
        os.close(self._opened)


def _read(path: Path) -> _Said | None:
    """Read what a transfer says about itself in this file. None if the file is unreadable or its process is dead.

    The file of a dead process is removed.
    """
    try:
        opened = os.open(path, _OPENING)
    except OSError:
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with suppress(ValueError):  # the file is half written, or from a later version
            return _Said.model_validate_json(os.pread(opened, _ENTRY_BYTES, 0))
        return None
    else:
        with suppress(OSError):
            path.unlink()
        return None
    finally:
        os.close(opened)


class TransferShare:
    """One transfer's part of the link. All threads of the transfer may use this object at the same time."""

    def __init__(
        self,
        entry: _Entry | None,
        lease_id: str,
        usd_h: Usd,
        *,
        limit_bytes_s: int | None,
        call_bytes_s: int | None,
        monotonic: Callable[[], float],
    ) -> None:
        self._entry, self._lease_id = entry, lease_id
        self._usd_h = None if usd_h is None or not math.isfinite(usd_h) else max(0.0, float(usd_h))
        self._limit_bytes_s, self._call_bytes_s = limit_bytes_s, call_bytes_s
        self._monotonic = monotonic
        self._lock = Lock()
        self._wants, self._others = 1, list[_Said]()
        self._measured_s = self._look_at_s = monotonic()
        self._bucket = Bucket(at_s=self._measured_s)
        self._asked_bytes = 0
        self._bytes_s: float | None = None
        self._divide()
        self._look()

    def connections(self, wanted: int) -> int:
        """Return how many of the `wanted` connections this transfer may use now. The result is at least 1."""
        with self._lock:
            if self._wants != max(1, wanted):
                self._wants = max(1, wanted)
                self._divide()
        self._look()
        with self._lock:
            return self._granted

    def pause_s(self, n_bytes: int) -> float:
        """Count `n_bytes` more as requested. Return how many seconds to wait before the request."""
        if self._limit_bytes_s is None and self._call_bytes_s is None:
            return 0.0
        self._look()
        with self._lock:
            self._asked_bytes += n_bytes
            return self._bucket.pause_s(n_bytes, bytes_s=self._may_bytes_s, at_s=self._monotonic())

    def leave(self) -> None:
        """Leave this transfer's part to the others. Threads that still ask get the last answers."""
        with self._lock:
            entry, self._entry = self._entry, None
        if entry is not None:
            entry.close()

    def _look(self) -> None:
        """Read the other transfers' files and write this one's, unless that was done less than `LOOK_S` ago."""
        at_s = self._monotonic()
        with self._lock:
            entry = self._entry
            if entry is None or at_s < self._look_at_s:
                return
            self._look_at_s = at_s + LOOK_S
            self._measure(at_s)
            with suppress(OSError):
                # Under the lock: once the file is closed, its descriptor may belong to another file.
                entry.write(self._state_now(at_s))
        try:
            others = entry.others(at_s=at_s)
        except OSError:
            others = []  # then this transfer behaves as if it were the only one
        with self._lock:
            self._others = others
            self._divide()

    def _state_now(self, at_s: float) -> _Said:
        return _Said(
            lease=self._lease_id,
            usd_h=self._usd_h,
            wants=self._wants,
            could_bytes_s=self._could_bytes_s(),
            at_s=at_s,
        )

    def _measure(self, at_s: float) -> None:
        passed_s = at_s - self._measured_s
        if passed_s < LOOK_S:
            return
        now, before = self._asked_bytes / passed_s, self._bytes_s
        new = 1 - math.exp(-passed_s / _SMOOTH_S)
        self._bytes_s = now if before is None else before + new * (now - before)
        self._asked_bytes, self._measured_s = 0, at_s

    def _could_bytes_s(self) -> float | None:
        grown = None if self._bytes_s is None else _GROWS * self._bytes_s
        known = [float(most) for most in (grown, self._call_bytes_s) if most is not None]
        return min(known, default=None)

    def _divide(self) -> None:
        prices = [self._usd_h, *(said.usd_h for said in self._others)]
        self._granted = allot([self._wants, *(said.wants for said in self._others)], prices)[0]
        if self._limit_bytes_s is None:
            self._may_bytes_s = float(self._call_bytes_s or 0)
            return
        could = [self._could_bytes_s(), *(said.could_bytes_s for said in self._others)]
        part = rates(self._limit_bytes_s, prices, could)[0]
        self._may_bytes_s = part if self._call_bytes_s is None else min(part, self._call_bytes_s)


class LowPriorityShare:
    """The part of the link that a transfer of low priority has: one connection, for only a share of the time.

    During the rest of the time, the link is free for other transfers, at both ends.
    """

    def __init__(
        self, turn: TransferShare, share: float, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._turn, self._share, self._monotonic = turn, share, monotonic
        self._asked_s: float | None = None

    def connections(self, wanted: int) -> int:
        """Return 1 at most, however many are wanted."""
        return self._turn.connections(min(wanted, 1))

    def pause_s(self, n_bytes: int) -> float:
        """Return how many seconds to wait before requesting `n_bytes` more.

        The result is the longer of two waits: the wait for this transfer's part of the link, and the pause that
        is due after the time spent on transferring.
        """
        at_s = self._monotonic()
        moved_s = 0.0 if self._asked_s is None else at_s - self._asked_s
        rest_s = max(0.0, moved_s) * (1 / self._share - 1)
        self._asked_s = at_s + rest_s
        return max(rest_s, self._turn.pause_s(n_bytes))


class CallLimits:
    """How much of the link one call may use. A call is one command at a terminal, or one call of a tool.

    All transfers of a user share the link. Each transfer of the call uses `join` to get its `TransferShare`.
    """

    def __init__(
        self,
        place: Path,
        limit_bytes_s: int | None,
        *,
        call_bytes_s: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`limit_bytes_s` limits all transfers together, `call_bytes_s` each transfer of the call. None means no limit.

        If `call_bytes_s` is larger than `limit_bytes_s`, it replaces that limit for this call.
        """
        if limit_bytes_s is not None and call_bytes_s is not None:
            limit_bytes_s = max(limit_bytes_s, call_bytes_s)
        self._place, self._limit_bytes_s, self._call_bytes_s = place, limit_bytes_s, call_bytes_s
        self._monotonic = monotonic

    @contextmanager
    def join(self, lease_id: str, usd_h: Usd) -> Iterator[TransferShare]:
        """Make a transfer known to all other transfers, in every process, while the block runs.

        If that fails, the transfer continues as if it were the only one.
        """
        entry = None
        with suppress(OSError):
            entry = _Entry(self._place)
        turn = TransferShare(
            entry,
            lease_id,
            usd_h,
            limit_bytes_s=self._limit_bytes_s,
            call_bytes_s=self._call_bytes_s,
            monotonic=self._monotonic,
        )
        try:
            yield turn
        finally:
            turn.leave()


# The owner's limits


def limits_of_call(home: Home, call_bytes_s: int | None) -> CallLimits:
    """Return the limits of a call: the limit in the owner's configuration, and the limit for this call alone.

    Raises:
        BadRequest: the configured limit is not a rate.
        LocalTrouble: the configuration cannot be read.
    """
    limit = limit_of(home.configuration)
    return CallLimits(home.root / "transfers", limit, call_bytes_s=call_bytes_s)


def limit_of(configuration: Path) -> int | None:
    """Return how many bytes a second all transfers together may move. None if the owner has set no limit.

    Raises:
        BadRequest: the configured limit is not a rate.
        LocalTrouble: the configuration cannot be read.
    """
    said = read_table(configuration, "transfers")
    unknown = sorted(name for name in said if name != "limit_mb_s")
    limit = said.get("limit_mb_s", math.inf)
    # Python treats True as a number, but it is not a rate.
    rate = float(limit) if isinstance(limit, int | float) and limit is not True else 0.0
    if unknown or not rate > 0:
        what = (
            f"{unknown[0]!r} in [transfers] is not a setting; limit_mb_s is the only one"
            if unknown
            else f"limit_mb_s = {limit!r} is not a rate"
        )
        raise BadRequest(
            f"{configuration}: {what}",
            remedy="below `[transfers]` write `limit_mb_s = 20`, in megabytes a second, for all "
            "transfers together; leave it out for no limit",
        )
    return None if math.isinf(rate) else max(1, round(rate * 10**6))


def bytes_a_second(words: str) -> int:
    """Convert a rate such as `20M` to bytes a second. `20M` is 20 million.

    Raises:
        BadRequest: the words are not a rate.
    """
    found = _RATE.fullmatch(words.strip())
    rate = int(Decimal(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if not rate:
        raise BadRequest(
            f"{words!r} is not a rate",
            remedy="give bytes a second as a number with K, M or G: `--limit 20M`",
        )
    return rate
