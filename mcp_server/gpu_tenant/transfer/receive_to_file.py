"""Writes the bytes of a channel into a file, past the page cache if the file system and platform allow that.

The cache does not help, because the file is read back from the disk. Filling the cache would cost as much as
decrypting the bytes.
"""

import errno
import mmap
import os

from gpu_tenant.files.direct_io import ALIGNED_BYTES
from gpu_tenant.transfer.partial_file import Partial, Span
from gpu_tenant.transfer.protocol import Conversation, LinkBroken

_BUFFER_BYTES = 1 << 20


class Pouring:
    """The buffer of one thread. It is filled from the thread's channel, and written into partial files."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._buffer = mmap.mmap(-1, _BUFFER_BYTES)

    def pour(self, partial: Partial, span: Span, most_bytes: int = _BUFFER_BYTES) -> int:
        """Write the next bytes of the body to the file, beginning at the start of `span`. Return how many were written.

        One call reads at most `most_bytes`.

        Raises:
            LinkBroken: the channel ended; the bytes that came before are in the file, and are counted.
            OSError: the file cannot be written.
        """
        wanted = self._next_size(span, most_bytes)
        view = memoryview(self._buffer)[:wanted]
        got = self._talk.into(view)
        if got:
            self._put(partial, Span(span.first, got))
        if got < wanted:
            raise LinkBroken("the channel ended")
        return got

    def copy(self, source: int, partial: Partial, span: Span) -> None:
        """Copy the bytes of `span` from the open file `source`, where they are at the same position.

        Raises:
            OSError: `source` is too short, or the partial file cannot be written.
        """
        while span.size_bytes:
            view = memoryview(self._buffer)[: self._next_size(span, _BUFFER_BYTES)]
            got = os.preadv(source, [view], span.first)
            if not got:
                raise OSError(errno.EIO, "the older version became shorter")
            self._put(partial, Span(span.first, got))
            span = Span(span.first + got, span.size_bytes - got)

    def _put(self, partial: Partial, span: Span) -> None:
        """Write the first bytes of the buffer into the gaps of the file. Bytes that the file already has are kept.

        Those may already have been read back, so they must not change.
        """
        view = memoryview(self._buffer)
        for gap in partial.lacking([span]):
            at = gap.first - span.first
            partial.write(view[at : at + gap.size_bytes], gap.first)
            partial.note_filled(gap)

    def _next_size(self, span: Span, most_bytes: int) -> int:
        """Return how many bytes to take next. The write then ends at an aligned position, if possible."""
        to_boundary = -span.first % ALIGNED_BYTES
        if to_boundary:
            return min(to_boundary, span.size_bytes)
        whole = span.size_bytes // ALIGNED_BYTES * ALIGNED_BYTES
        return min(whole or span.size_bytes, most_bytes, _BUFFER_BYTES)
