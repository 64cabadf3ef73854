"""An open file under inspection, and what the inspection has found so far.

Reads have a bounded size, and fail if the file is too short.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Protocol, Self

from gpu_tenant.artifacts.formats.single_pass import Passage
from gpu_tenant.domain.wording import some

CHUNK_BYTES = 1 << 20
LARGE_BYTES = 1 << 20
"""If more than this must be held in memory, only one file at a time may do so."""
_WARNINGS_SHOWN = 50


class MemoryTurn(Protocol):
    """Permission to use much memory. It is acquired and released like a lock."""

    def acquire(self) -> object:
        """Wait until the permission is given."""

    def release(self) -> None:
        """Give the permission back."""


_turns: list[MemoryTurn] = [Lock()]
"""The permission in use. Many files are inspected at once, but only one of those that use much memory."""


def one_at_a_time(turn: MemoryTurn) -> None:
    """From now on, acquire permission to use much memory from `turn`."""
    _turns[:] = [turn]


class Broken(Exception):
    """The file is not what it claims to be. The message tells a person why."""


class Unread(Exception):
    """The file cannot be judged here, which is no evidence against it. The message says why."""


@dataclass
class Findings:
    """What an inspection has proved, what it has not, and what a person should know."""

    proved: list[str] = field(default_factory=list)
    not_proved: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def warn(self, warning: str) -> None:
        """Keep the warning, unless there are already so many that one more would say nothing new."""
        if len(self.warnings) < _WARNINGS_SHOWN:
            self.warnings.append(warning)
        elif len(self.warnings) == _WARNINGS_SHOWN:
            self.warnings.append(f"and more: only the first {_WARNINGS_SHOWN} warnings are listed")

    def add(self, later: "Findings") -> None:
        """Append the separate findings `later` to these."""
        self.proved += later.proved
        self.not_proved += later.not_proved
        for warning in later.warnings:
            self.warn(warning)


def count_of(number: int, noun: str) -> str:
    """Write the number with its noun, in the plural where needed."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Source:
    """An open file of known size, read in pieces that never exceed what it holds.

    `failure` remembers the first error of the disk itself. Without it, the parsers that use this class would report a
    disk error as a broken file. If there is a `passage` (the pass that also hashes the file), reads that only move
    forward take their bytes from it.
    """

    def __init__(
        self, path: Path, name: str, opened: int | None = None, passage: Passage | None = None
    ) -> None:
        self.path = path
        self.name = name
        self.failure: OSError | None = None
        self.passage = passage
        self._file = path.open("rb") if opened is None else os.fdopen(opened, "rb", closefd=False)
        self._large: MemoryTurn | None = None
        self._at = 0
        self.size_bytes = os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._large is not None:
            self._large.release()
        self._file.close()

    def alone(self, above_bytes: int = 0) -> None:
        """Until this file is closed, let no other file that uses much memory be inspected.

        A file of no more than `above_bytes` does not count as using much.
        """
        if self._large is None and self.size_bytes > above_bytes:
            _turns[0].acquire()
            self._large = _turns[0]

    def upto(self, offset: int, size_bytes: int) -> bytes:
        """Read the bytes at `offset`. Returns fewer if the file ends first.

        Raises:
            OSError: the disk could not be read.
        """
        wanted = min(size_bytes, self.size_bytes - offset)
        if wanted <= 0 or offset < 0:
            return b""
        try:
            if offset != self._at:
                self._file.seek(offset)
            content = self._file.read(wanted)
        except OSError as failure:
            self.failure = self.failure or failure
            raise
        self._at = offset + len(content)
        return content

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Read exactly `size_bytes` bytes at `offset`.

        Raises:
            Broken: the file ends before that.
        """
        content = self.upto(offset, size_bytes)
        if len(content) != size_bytes:
            raise Broken(
                f"the file ends at byte {self.size_bytes:,}: {some(size_bytes, 'byte')} due at {offset:,}"
            )
        return content

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Read the bytes from `start` to `end`, or to the end of the file, in pieces of bounded size."""
        for piece in self.pieces(start, self.size_bytes if end is None else end):
            yield bytes(piece)

    def pieces(self, start: int, end: int) -> Iterator[bytes | memoryview]:
        """Do as `chunks`, but each piece is valid only until the next is requested."""
        while start < end:
            size_bytes = min(CHUNK_BYTES, end - start)
            piece = self._passing(start, size_bytes) or self.read(start, size_bytes)
            start += len(piece)
            yield piece

    def along(self, offset: int, size_bytes: int) -> bytes:
        """Do as `read`, but take the bytes from the pass. Each call must start after the end of the call before."""
        content = b""
        while left := size_bytes - len(content):
            piece = self._passing(offset + len(content), left)
            if not piece:
                return self.read(offset, size_bytes)
            content += piece
        return content

    def settle(self) -> None:
        """If the file is expected to have a certain hash, check that it has that hash.

        Raises:
            Unread: its hash is another one, so this is not the file that was to be proved.
        """
        if self.passage is None:
            return
        try:
            expected = self.passage.is_as_expected()
        except OSError as failure:
            self.failure = self.failure or failure
            raise
        if not expected:
            raise Unread("its bytes are not those that were to be proved")

    def _passing(self, offset: int, size_bytes: int) -> memoryview | None:
        """Return what the passage has at `offset`, at most `size_bytes`. None if it has nothing there."""
        if self.passage is None or offset >= self.size_bytes:
            return None
        try:
            return self.passage.piece(offset, size_bytes)
        except OSError as failure:
            self.failure = self.failure or failure
            raise


class Cursor:
    """A position in part of a source. It advances as fields are read, and never past the end of that part."""

    def __init__(self, source: Source, start: int = 0, end: int | None = None) -> None:
        self._source = source
        self.at = start
        self.end = source.size_bytes if end is None else end

    @property
    def left(self) -> int:
        """How many bytes remain before the end."""
        return self.end - self.at

    def take(self, size_bytes: int) -> bytes:
        """Take the next `size_bytes` bytes.

        Raises:
            Broken: the part ends before that.
        """
        content = self._source.read(self.at, size_bytes) if size_bytes <= self.left else b""
        if len(content) != size_bytes:
            raise Broken(
                f"cut off at byte {self.end:,}: {some(size_bytes, 'byte')} due at {self.at:,}"
            )
        self.at += size_bytes
        return content

    def skip(self, size_bytes: int) -> None:
        """Move past the next `size_bytes` bytes.

        Raises:
            Broken: the part ends before that.
        """
        if not 0 <= size_bytes <= self.left:
            raise Broken(
                f"cut off at byte {self.end:,}: {some(size_bytes, 'byte')} due at {self.at:,}"
            )
        self.at += size_bytes

    def number(self, layout: str) -> int:
        """Take the next integer, in `struct` notation."""
        value: int = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value
