"""Decompression in bounded pieces, behind the one interface the standard library almost agrees on."""

import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import Protocol

from gpu_tenant.artifacts.formats.bounded_file import CHUNK_BYTES, Broken, Unread

_MOST_INFLATED_BYTES = 1 << 40
_FREE_BYTES = 1 << 30
_MOST_RATIO = 1000
"""What is inflated beyond a GiB is at most so many times what it was packed into."""


class Inflater(Protocol):
    """A decompressor of one stream, as `bz2` and `lzma` have it."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended, its own checks included."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes out before something goes in."""

    @property
    def unused_data(self) -> bytes:
        """What followed the end of the stream in the input."""

    def decompress(self, packed: bytes, limit: int, /) -> bytes:
        """At most `limit` bytes of what was packed."""


class Zlib:
    """`zlib` as an `Inflater`: raw deflate or gzip, as `wbits` says."""

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
    """How much was inflated out of how much, over all the streams of a file."""

    def __init__(self) -> None:
        self._packed_bytes = self._inflated_bytes = 0

    def taking(self, packed: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces, which count as packed."""
        for piece in packed:
            self._packed_bytes += len(piece)
            yield piece

    def add(self, size_bytes: int) -> None:
        """So many bytes more came out.

        Raises:
            Unread: that is beyond all measure.
        """
        self._inflated_bytes += size_bytes
        check_measure(self._inflated_bytes, self._packed_bytes)


def check_measure(inflated_bytes: int, packed_bytes: int) -> None:
    """So much may come out of so little.

    Raises:
        Unread: it may not.
    """
    if inflated_bytes > _MOST_INFLATED_BYTES:
        raise Unread("more than 1 TiB when inflated: not read here")
    if inflated_bytes > _FREE_BYTES + _MOST_RATIO * packed_bytes:
        raise Unread(f"inflates more than {_MOST_RATIO:,}-fold, beyond a GiB: not read here")


def inflated(
    packed: Iterable[bytes], inflater: Inflater, measure: Measure
) -> Generator[bytes, None, bytes]:
    """One stream's content in pieces of bounded size; returns the bytes of the last chunk beyond it.

    Raises:
        Broken: the input ends before the stream does.
        Unread: it inflates beyond all measure.
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
