"""What comes over a channel goes into a file past the page cache, where file system and platform take that.

A file that is read back at once has no use for the cache, and to fill it costs as much as to decrypt the bytes.
"""

import errno
import mmap
import os

from gpu_tenant.files.direct_io import ALIGNED_BYTES
from gpu_tenant.transfer.partial_file import Partial, Span
from gpu_tenant.transfer.protocol import Conversation, LinkBroken

_BUFFER_BYTES = 1 << 20


class Pouring:
    """One thread's buffer, and how it empties into partial files."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._buffer = mmap.mmap(-1, _BUFFER_BYTES)

    def pour(self, partial: Partial, span: Span, most_bytes: int = _BUFFER_BYTES) -> int:
        """The next bytes of the body lie at the beginning of `span`; how many, and no more than fit there.

        `most_bytes` bounds what is held in memory: it pays to hold much only where much comes.

        Raises:
            LinkBroken: the channel ended; what had come before that is in the file, and counted there.
            OSError: the file takes no more.
        """
        wanted = self._wanted(span, most_bytes)
        view = memoryview(self._buffer)[:wanted]
        got = self._talk.into(view)
        if got:
            self._put(partial, Span(span.first, got))
        if got < wanted:
            raise LinkBroken("the channel ended")
        return got

    def copy(self, source: int, partial: Partial, span: Span) -> None:
        """The bytes of `span` are those that the open file `source` has there.

        Raises:
            OSError: it ends before them, or the partial file takes no more.
        """
        while span.size_bytes:
            view = memoryview(self._buffer)[: self._wanted(span, _BUFFER_BYTES)]
            got = os.preadv(source, [view], span.first)
            if not got:
                raise OSError(errno.EIO, "the older version became shorter")
            self._put(partial, Span(span.first, got))
            span = Span(span.first + got, span.size_bytes - got)

    def _put(self, partial: Partial, span: Span) -> None:
        """The buffer's first bytes are in the file, where nothing was: what is here may be proved already."""
        view = memoryview(self._buffer)
        for gap in partial.lacking([span]):
            at = gap.first - span.first
            partial.write(view[at : at + gap.size_bytes], gap.first)
            partial.filled(gap)

    def _wanted(self, span: Span, most_bytes: int) -> int:
        """As much as there is room for, to where unbuffered writes can begin, or end."""
        to_boundary = -span.first % ALIGNED_BYTES
        if to_boundary:
            return min(to_boundary, span.size_bytes)
        whole = span.size_bytes // ALIGNED_BYTES * ALIGNED_BYTES
        return min(whole or span.size_bytes, most_bytes, _BUFFER_BYTES)
