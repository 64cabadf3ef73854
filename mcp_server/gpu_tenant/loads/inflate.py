"""Decompression in bounded pieces, behind the one interface the standard library almost agrees on."""

import zlib
from collections.abc import Generator, Iterable
from typing import Protocol

from gpu_tenant.loads.source import CHUNK_BYTES, Broken, Unread

_MOST_INFLATED_BYTES = 1 << 40


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


def inflated(packed: Iterable[bytes], inflater: Inflater) -> Generator[bytes, None, bytes]:
    """One stream's content in pieces of bounded size; returns the bytes of the last chunk beyond it.

    Raises:
        Broken: the input ends before the stream does.
        Unread: it inflates beyond all measure.
    """
    size_bytes = 0
    for chunk in packed:
        pending = chunk
        while pending or not inflater.needs_input:
            piece = inflater.decompress(pending, CHUNK_BYTES)
            pending = b""
            if piece:
                size_bytes += len(piece)
                yield piece
            if size_bytes > _MOST_INFLATED_BYTES:
                raise Unread("more than 1 TiB when inflated: not read here")
            if inflater.eof:
                return inflater.unused_data
    raise Broken("the compressed stream is cut off")
