"""Decompression in bounded pieces. All decompressors get one interface, close to that of the standard library."""

import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import Protocol

from gpu_tenant.artifacts.formats.bounded_file import CHUNK_BYTES, Broken, Unread

_MOST_INFLATED_BYTES = 1 << 40
_FREE_BYTES = 1 << 30
_MOST_RATIO = 1000
"""The output may have 1 GiB, and beyond that this many times the size of the packed input."""


class Inflater(Protocol):
    """A decompressor for one stream, with the interface of `bz2` and `lzma`."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended and has passed its own checks."""

    @property
    def needs_input(self) -> bool:
        """Whether more input is needed before more output can come."""

    @property
    def unused_data(self) -> bytes:
        """The input after the end of the stream."""

    def decompress(self, packed: bytes, limit: int, /) -> bytes:
        """Return at most `limit` bytes of unpacked content."""


class Zlib:
    """`zlib` with the interface of `Inflater`: raw deflate or gzip, depending on `wbits`."""

    def __init__(self, wbits: int) -> None:
        self._stream = zlib.decompressobj(wbits)
        self._full = False

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._full and not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, packed: bytes, limit: int, /) -> bytes:
        piece = self._stream.decompress(self._stream.unconsumed_tail + packed, limit)
        self._full = len(piece) == limit
        return piece


class Measure:
    """Counts the packed input and the unpacked output, over all the streams of a file."""

    def __init__(self) -> None:
        self._packed_bytes = self._inflated_bytes = 0

    def taking(self, packed: Iterable[bytes]) -> Iterator[bytes]:
        """Pass the pieces on, and count them as packed input."""
        for piece in packed:
            self._packed_bytes += len(piece)
            yield piece

    def add(self, size_bytes: int) -> None:
        """Count another `size_bytes` as output.

        Raises:
            Unread: the output exceeds a limit.
        """
        self._inflated_bytes += size_bytes
        check_measure(self._inflated_bytes, self._packed_bytes)


def check_measure(inflated_bytes: int, packed_bytes: int) -> None:
    """Check that so many bytes of output, from so many bytes of input, are within the limits.

    Raises:
        Unread: the output exceeds a limit.
    """
    if inflated_bytes > _MOST_INFLATED_BYTES:
        raise Unread("more than 1 TiB when inflated: not read here")
    if inflated_bytes > _FREE_BYTES + _MOST_RATIO * packed_bytes:
        raise Unread(f"inflates more than {_MOST_RATIO:,}-fold, beyond a GiB: not read here")


def inflate(
    packed: Iterable[bytes], inflater: Inflater, measure: Measure
) -> Generator[bytes, None, bytes]:
    """Yield the content of one stream, in pieces of bounded size. Returns the rest of the last chunk, after its end.

    Raises:
        Broken: the input ends before the stream does.
        Unread: the output exceeds a limit.
    """
    for chunk in packed:
        pending = chunk
        while pending or not inflater.needs_input:
            piece = inflater.decompress(pending, CHUNK_BYTES)
            pending = b""
            if piece:
                measure.add(len(piece))
                yield piece
            if inflater.eof:
                return inflater.unused_data
    raise Broken("the compressed stream is cut off")
