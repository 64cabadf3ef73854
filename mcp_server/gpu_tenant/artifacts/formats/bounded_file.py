"""An open file under inspection, and the findings so far.

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
"""A check that holds more bytes than this in memory uses much memory: no other such check may run meanwhile."""
_WARNINGS_SHOWN = 50


class MemoryTurn(Protocol):
    """Permission to use much memory, with the methods of a lock."""

    def acquire(self) -> object:
        """Wait until the permission is given."""

    def release(self) -> None:
        """Give the permission back."""


_turns: list[MemoryTurn] = [Lock()]
"""A list with the one permission in use. Many files are inspected at a time, but only one that uses much memory."""


def one_at_a_time(turn: MemoryTurn) -> None:
    """From now on, use `turn` as the permission to use much memory."""
    _turns[:] = [turn]


class Broken(Exception):
    """The file is not what it claims to be. The message gives the reason, for a person."""


class Unread(Exception):
    """The file cannot be judged here. That is no evidence against it. The message gives the reason."""


@dataclass
class Findings:
    """What an inspection has proved, what it has not proved, and warnings for a person."""

    proved: list[str] = field(default_factory=list)
    not_proved: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def warn(self, warning: str) -> None:
        """Add a warning. If there are very many, one line stands for all further warnings."""
        if len(self.warnings) < _WARNINGS_SHOWN:
            self.warnings.append(warning)
        elif len(self.warnings) == _WARNINGS_SHOWN:
            self.warnings.append(f"and more: only the first {_WARNINGS_SHOWN} warnings are listed")

    def add(self, later: "Findings") -> None:
        """Append the findings `later` to these."""
        self.proved += later.proved
        self.not_proved += later.not_proved
        for warning in later.warnings:
            self.warn(warning)


def count_of(number: int, noun: str) -> str:
    """Return the number and its noun, in the plural if needed."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Source:
    """An open file of known size. It is read in pieces of bounded size.

    `failure` keeps the first error of the disk itself. Without it, the parsers that use this class would report
    a disk error as a broken file. `passage` is the pass that also hashes the file. If there is one, reads that
    only move forward take their bytes from it.
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
        """Until this file is closed, inspect no other file that uses much memory.

        If the file has no more than `above_bytes` bytes, it does not count as one that uses much.
        """
        if self._large is None and self.size_bytes > above_bytes:
            _turns[0].acquire()
            self._large = _turns[0]

    def upto(self, offset: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes` bytes at `offset`. Returns fewer if the file is too short.

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
            Broken: the file is too short.
        """
        content = self.upto(offset, size_bytes)
        if len(content) != size_bytes:
            raise Broken(
                f"the file ends at byte {self.size_bytes:,}: {some(size_bytes, 'byte')} due at {offset:,}"
            )
        return content

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` to `end`, or to the end of the file, in pieces of bounded size."""
        for piece in self.pieces(start, self.size_bytes if end is None else end):
            yield bytes(piece)

    def pieces(self, start: int, end: int) -> Iterator[bytes | memoryview]:
        """Do the same as `chunks`, but each piece is valid only until the next one is requested."""
        while start < end:
            size_bytes = min(CHUNK_BYTES, end - start)
            piece = self._passing(start, size_bytes) or self.read(start, size_bytes)
            start += len(piece)
            yield piece

    def along(self, offset: int, size_bytes: int) -> bytes:
        """Do the same as `read`, but take the bytes from the pass. Calls must come in the order of the file."""
        content = b""
        while left := size_bytes - len(content):
            piece = self._passing(offset + len(content), left)
            if not piece:
                return self.read(offset, size_bytes)
            content += piece
        return content

    def settle(self) -> None:
        """Finish the pass, and check that the file has the expected hash. Does nothing if there is no pass.

        Raises:
            Unread: the hash is another one, so this is not the file that was to be proved.
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
        """Return at most `size_bytes` bytes of the pass at `offset`. None if the pass cannot give them."""
        if self.passage is None or offset >= self.size_bytes:
            return None
        try:
            return self.passage.piece(offset, size_bytes)
        except OSError as failure:
            self.failure = self.failure or failure
            raise


class Cursor:
    """A position in a part of a source. Reading moves it forward, but never past the end of the part."""

    def __init__(self, source: Source, start: int = 0, end: int | None = None) -> None:
        self._source = source
        self.at = start
        self.end = source.size_bytes if end is None else end

    @property
    def left(self) -> int:
        """How many bytes remain before the end."""
        return self.end - self.at

    def take(self, size_bytes: int) -> bytes:
        """Read the next `size_bytes` bytes.

        Raises:
            Broken: the part is too short.
        """
        content = self._source.read(self.at, size_bytes) if size_bytes <= self.left else b""
        if len(content) != size_bytes:
            raise Broken(
                f"cut off at byte {self.end:,}: {some(size_bytes, 'byte')} due at {self.at:,}"
            )
        self.at += size_bytes
        return content

    def skip(self, size_bytes: int) -> None:
        """Skip the next `size_bytes` bytes.

        Raises:
            Broken: the part is too short.
        """
        if not 0 <= size_bytes <= self.left:
            raise Broken(
                f"cut off at byte {self.end:,}: {some(size_bytes, 'byte')} due at {self.at:,}"
            )
        self.at += size_bytes

    def number(self, layout: str) -> int:
        """Read the next integer. `layout` is its format in `struct` notation.

        Raises:
            Broken: the part is too short.
        """
        value: int = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value
