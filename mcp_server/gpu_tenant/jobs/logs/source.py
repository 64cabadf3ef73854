"""Reads the bytes of a job's log from where it is now: on the box, or in a file on this computer."""

import asyncio
import os
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from gpu_tenant.box.caretaker import ENDED, Caretaker, JobStatus
from gpu_tenant.domain.model import JobId
from gpu_tenant.files.direct_io import open_regular
from gpu_tenant.jobs.logs.cache import LogCopy

Source = Literal["box", "kept", "seen"]
"""Where a log was read.

`box`: on the box. `kept`: in the files that were collected. `seen`: in the copy of what this computer had read before
the box stopped answering.
"""

_SEAM_BYTES = 64
"""The last bytes of our copy are fetched again, this many. If they differ, the box now has another log of this name."""
_NEAR_BYTES = 1 << 20
"""If a read starts at most this far after the end of our copy, the bytes between them are fetched as well."""
_LEAST_BYTES, _MOST_BYTES = 1 << 20, 8 << 20
_QUICK_S, _SLOW_S = 0.5, 2.0


class LogBytes(NamedTuple):
    """Some bytes of a log, and the state of the log when they were read."""

    at: int
    raw: bytes
    size: int
    grows: bool
    """Whether the log may still grow."""


class Log(Protocol):
    """The log of one job, by bytes."""

    source: Source

    async def read(self, start: int, limit: int) -> LogBytes:
        """Read bytes of the log from `start` on: at most `limit`, and at least one if the log has any there.

        A negative `start` counts from the end.

        Raises:
            BoxTrouble: the box did not return them.
        """
        ...


async def stretch(log: Log, start: int, limit: int) -> LogBytes:
    """Read like `Log.read`, but repeat until there are `limit` bytes or the end of the log is reached.

    Raises:
        BoxTrouble: the box did not return them.
    """
    got = await log.read(start, limit)
    held, more = bytearray(got.raw), got
    while more.raw and len(held) < limit and got.at + len(held) < more.size:
        more = await log.read(got.at + len(held), limit - len(held))
        held += more.raw
    return LogBytes(got.at, bytes(held), max(more.size, got.at + len(held)), more.grows)


class LogHere:
    """A log in a file on this computer."""

    def __init__(self, path: Path, source: Literal["kept", "seen"]) -> None:
        self._path = path
        self.source: Source = source

    async def read(self, start: int, limit: int) -> LogBytes:
        """Read like `Log.read`. Returns no bytes if the file is gone."""
        return await asyncio.to_thread(self._read, start, limit)

    def _read(self, start: int, limit: int) -> LogBytes:
        opened = open_regular(self._path)
        if opened is None:
            return LogBytes(0, b"", 0, grows=False)
        try:
            size = os.fstat(opened).st_size
            at = max(0, size + start) if start < 0 else min(start, size)
            raw = os.pread(opened, limit, at)
        finally:
            os.close(opened)
        return LogBytes(at, raw, size, grows=self.source == "seen")


class LogOnBox:
    """A log on the box. The part that was read from its beginning is kept in a copy on this computer.

    Make a new object for each command. It asks the box at least once, and fetches almost no byte that it already has.
    """

    source: Source = "box"

    def __init__(self, run: JobId, caretaker: Caretaker, copy: LogCopy) -> None:
        self._run, self._caretaker, self._copy = run, caretaker, copy
        self._status: JobStatus | None = None
        self._size = 0
        self._piece = _LEAST_BYTES

    async def read(self, start: int, limit: int) -> LogBytes:
        """Read like `Log.read`."""
        known = self._copy.size_bytes()
        if self._status is not None and 0 <= start < known:
            raw = await asyncio.to_thread(self._copy.read, start, limit)
            if raw:
                return self._log_bytes(start, raw)
        if not 0 <= start <= known + _NEAR_BYTES:
            return await self._ask_box(start, min(limit, self._piece))
        seam = max(0, known - _SEAM_BYTES)
        missing = max(0, start + limit - known)
        # Each request starts a program on the box, so fetch at least one whole piece even if less is
        # wanted.
        ahead = min(max(missing, self._piece), self._piece + _NEAR_BYTES)
        got = await self._ask_box(seam, known - seam + ahead)
        if got.at <= start < got.at + len(got.raw):
            return got._replace(at=start, raw=got.raw[start - got.at :][:limit])
        if start >= self._size:
            return self._log_bytes(self._size, b"")
        raw = await asyncio.to_thread(self._copy.read, start, limit)
        # The copy may be empty, because it belonged to another log or there is no room for it. Then
        # ask the box.
        return (
            self._log_bytes(start, raw)
            if raw
            else await self._ask_box(start, min(limit, self._piece))
        )

    async def _ask_box(self, offset: int, limit: int) -> LogBytes:
        """Read bytes of the log on the box, and append them to the copy if they continue it."""
        clock = asyncio.get_running_loop().time
        began = clock()
        status = await self._caretaker.status(self._run, offset=offset, limit=limit, sample="plain")
        took_s = clock() - began
        self._status = status
        at, raw = (status.log.offset, status.log.raw) if status.log is not None else (0, b"")
        if took_s < _QUICK_S and len(raw) >= self._piece:
            self._piece = min(_MOST_BYTES, self._piece * 2)
        elif took_s > _SLOW_S:
            self._piece = max(_LEAST_BYTES, self._piece // 2)
        self._size = max(status.log_bytes, at + len(raw))
        await asyncio.to_thread(self._copy.join, at, raw, self._size)
        return self._log_bytes(at, raw)

    def _log_bytes(self, at: int, raw: bytes) -> LogBytes:
        ended = self._status is not None and self._status.state in ENDED
        return LogBytes(at, raw, self._size, grows=not ended)
