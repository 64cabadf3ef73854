"""Decides when to give up a box that works for long: not after a fixed time, but when it makes no progress."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxUnreachable

_FILE_BYTES = 5_000
"""A file that the box has looked at counts as this many bytes of progress.

On a network file system, each file takes a round trip.
"""
_LINK_FACTOR = 5
"""One byte that goes over the link counts as this many bytes that are read from a disk. Links are slower than disks."""
_LONGEST_LINE = 100
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class StallLimit:
    """The least progress that a box must make: `bytes_s` bytes a second, over `within_s` seconds."""

    within_s: float = 120
    bytes_s: float = 50_000
    """A twentieth of the rate of a slow disk, because others may be reading from the same disk."""
    tells_s: float = 10
    """How often the box should report its progress."""


STALL_LIMIT = StallLimit()


class CommandProgress:
    """The progress of one command: how much it reports to have read, and what went over the link."""

    def __init__(self, limit: StallLimit, timeout: asyncio.Timeout) -> None:
        self._limit, self._timeout = limit, timeout
        self._line, self._is_answer = bytearray(), False
        self._told = 0
        self._ahead = 0.0

    def note_output(self, chunk: bytes) -> None:
        """Count output of the command. If it is a report, count only what is new since the last report."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._add(line)
            self._finish_line()
        self._add(rest)

    def note_input(self, size_bytes: int) -> None:
        """Count that many bytes of the command's input as sent."""
        self._note_moved(_LINK_FACTOR * size_bytes)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Do not count the time spent in the block against the box: this side is waiting."""
        loop, until = asyncio.get_running_loop(), self._timeout.when()
        left_s = self._limit.within_s if until is None else until - loop.time()
        self._reschedule(None)
        try:
            yield
        finally:
            self._reschedule(loop.time() + left_s)

    def _add(self, part: bytes) -> None:
        """Count a part of a line. A line that is longer than any report is a part of the command's answer."""
        self._is_answer = self._is_answer or len(self._line) + len(part) > _LONGEST_LINE
        if self._is_answer:
            self._note_moved(_LINK_FACTOR * len(part))
        else:
            self._line += part

    def _finish_line(self) -> None:
        """Count a line that is complete, if it is a report."""
        done = None if self._is_answer else _bytes_done(bytes(self._line))
        self._line, self._is_answer = bytearray(), False
        if done is not None and done > self._told:
            self._told, more = done, done - self._told
            self._note_moved(more)

    def _note_moved(self, size_bytes: int) -> None:
        self._ahead += size_bytes
        if self._ahead >= self._limit.bytes_s * self._limit.within_s:
            self._ahead = 0
            self._reschedule(asyncio.get_running_loop().time() + self._limit.within_s)

    def _reschedule(self, at: float | None) -> None:
        if not self._timeout.expired():
            self._timeout.reschedule(at)


def _bytes_done(line: bytes) -> int | None:
    """The progress that one line of output reports, in bytes; each file counts as `_FILE_BYTES`. None if it is no report."""
    if not line.startswith(b'{"done":'):
        return None
    try:
        match json.loads(line):
            case {"done": [int(files), int(read_bytes)]} if (
                0 <= files < _MOST and 0 <= read_bytes < _MOST
            ):
                return files * _FILE_BYTES + read_bytes
    except ValueError:
        pass
    return None


@asynccontextmanager
async def unless_stalled(verb: str, limit: StallLimit) -> AsyncIterator[CommandProgress]:
    """Let the body take any time, as long as the box makes progress with the request.

    Raises:
        BoxUnreachable: the box made too little progress, and the body was cancelled.
    """
    try:
        async with asyncio.timeout(limit.within_s) as timeout:
            yield CommandProgress(limit, timeout)
    except TimeoutError:
        raise BoxUnreachable(
            f"the box made almost no progress for {limit.within_s:g} s of `{verb}`, and was given up",
            remedy=f"try again; {Command('audit')} tests its disk and its link",
        ) from None
