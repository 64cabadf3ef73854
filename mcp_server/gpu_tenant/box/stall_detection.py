"""Decides when to give up a long request to a box: not after a fixed time, but when the box makes no progress."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxUnreachable

_FILE_BYTES = 5_000
"""Each file that the box has processed counts as this many bytes of progress.

On a network file system, each file takes a round trip, even if it is small.
"""
_LINK_FACTOR = 5
"""One byte sent over the link counts as this many bytes read from a disk, because links are slower than disks."""
_LONGEST_LINE = 100
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class StallLimit:
    """The progress that a box must make: at least `bytes_s` bytes a second, measured over `within_s` seconds."""

    within_s: float = 120
    bytes_s: float = 50_000
    """The default is a twentieth of the rate of a slow disk, because others may read from the same disk."""
    tells_s: float = 10
    """The box reports its progress this often, in seconds."""


STALL_LIMIT = StallLimit()


class CommandProgress:
    """Measures the progress of one command: the bytes that it says it has read, and the bytes sent over the link."""

    def __init__(self, limit: StallLimit, timeout: asyncio.Timeout) -> None:
        self._limit, self._timeout = limit, timeout
        self._line, self._is_answer = bytearray(), False
        self._told = 0
        self._ahead = 0.0

    def note_output(self, chunk: bytes) -> None:
        """Count a piece of the command's output. Of a report, count only the progress since the last report."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._add(line)
            self._finish_line()
        self._add(rest)

    def note_input(self, size_bytes: int) -> None:
        """Count that many bytes of input as sent to the command."""
        self._note_moved(_LINK_FACTOR * size_bytes)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Stop the clock while the block runs, because this computer is waiting, and not the box."""
        loop, until = asyncio.get_running_loop(), self._timeout.when()
        left_s = self._limit.within_s if until is None else until - loop.time()
        self._reschedule(None)
        try:
            yield
        finally:
            self._reschedule(loop.time() + left_s)

    def _add(self, part: bytes) -> None:
        """Count a part of a line. If the line is longer than any report, it belongs to the command's answer."""
        self._is_answer = self._is_answer or len(self._line) + len(part) > _LONGEST_LINE
        if self._is_answer:
            self._note_moved(_LINK_FACTOR * len(part))
        else:
            self._line += part

    def _finish_line(self) -> None:
        """Count the line that is complete now, if it is a report."""
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
    """Return the progress that one line reports, in bytes; a file counts as `_FILE_BYTES`. None if it is no report."""
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
    """Run the block for as long as it takes, if the box makes progress with the request.

    Raises:
        BoxUnreachable: the box made too little progress, and the block was cancelled.
    """
    try:
        async with asyncio.timeout(limit.within_s) as timeout:
            yield CommandProgress(limit, timeout)
    except TimeoutError:
        raise BoxUnreachable(
            f"the box made almost no progress for {limit.within_s:g} s of `{verb}`, and was given up",
            remedy=f"try again; {Command('audit')} tests its disk and its link",
        ) from None
