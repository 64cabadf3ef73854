"""The part of a download that was not requested yet, cut into pieces of the size that a thread asks for."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.transfer.partial_file import Partial, Span

SMALL_BYTES = 1 << 20
"""A file smaller than this is requested whole, together with others."""
LEAST_BYTES = 256 << 10
"""A piece of a large file has at least this size, unless less is left, because each answer has a fixed cost."""
BLOCK_BYTES = 16 << 10
"""The unit of comparison: if one byte differs, the whole block is fetched. A block's digest has 1/2000 of its size."""
_COMPARED_BYTES = 64 << 20
_MOST_FILES = 256
_MOST_OPEN = 128
"""At most this many large files are open at the same time, including those that wait to be read back.

With so many files open, no further large file is requested until one has been read back.
"""
_MOST_SPANS = 512


@dataclass(frozen=True, slots=True)
class Coming:
    """A file to download. Its bytes are gathered in `partial`. `basis` is an older version on this computer, if any."""

    entry: SealedFile
    partial: Path
    basis: Path | None = None


@dataclass(eq=False, slots=True)
class Large:
    """A large file, which is downloaded in spans over several connections."""

    coming: Coming
    partial: Partial
    missing: deque[Span]
    uncompared: deque[Span] = field(default_factory=deque)
    asked: int = 0
    """How many pieces of the file are under way."""
    matched: int = 0
    """How many bytes of the file were found in the older version."""
    proved_bytes: int = 0
    """How many bytes were read back, counted from the beginning of the file."""

    @property
    def at(self) -> str:
        """The path of the file on the box."""
        return self.coming.entry.at


@dataclass(eq=False, slots=True)
class Stretch:
    """A piece that consists of spans of one large file."""

    file: Large
    spans: list[Span]

    @property
    def size_bytes(self) -> int:
        """How many bytes were requested."""
        return sum(span.size_bytes for span in self.spans)

    def spans_left(self) -> list[Span]:
        """Return the spans that are still missing. A part may have arrived by this piece or by another."""
        return self.file.partial.lacking(self.spans)


@dataclass(eq=False, slots=True)
class Bundle:
    """A piece that consists of whole small files."""

    files: deque[Coming]

    @property
    def size_bytes(self) -> int:
        """How many bytes are still to come."""
        return sum(one.entry.size_bytes for one in self.files)


@dataclass(eq=False, slots=True)
class Comparison:
    """A piece that asks for digests: a span of a large file is compared with the older version on this computer."""

    file: Large
    span: Span

    @property
    def size_bytes(self) -> int:
        """How many bytes of digests come over the link. The span itself is not sent."""
        return self.span.size_bytes // BLOCK_BYTES * 8


Piece = Stretch | Bundle | Comparison


class Pieces:
    """The pieces to request next: large files in order, comparisons first; then small files. Not safe for threads."""

    def __init__(self) -> None:
        self._waiting: deque[Coming] = deque()
        self._small: deque[Coming] = deque()
        self.open: list[Large] = []

    def add(self, coming: Iterable[Coming]) -> None:
        """Add files to request. The largest are requested first, so that none is left alone at the end."""
        for one in sorted(coming, key=lambda one: -one.entry.size_bytes):
            (self._waiting if one.entry.size_bytes >= SMALL_BYTES else self._small).append(one)

    def take(self, size_bytes: int) -> Piece | None:
        """Return a piece of about `size_bytes`. None if there is nothing to request now.

        Raises:
            OSError: the partial file of the next file cannot be opened.
        """
        while True:
            for file in self.open:
                if file.uncompared:
                    file.asked += 1
                    return Comparison(file, file.uncompared.popleft())
                if file.missing:
                    file.asked += 1
                    return Stretch(file, _cut(file.missing, size_bytes))
            if not self._waiting or len(self.open) >= _MOST_OPEN:
                return self._bundle(size_bytes)
            self.open.append(_open_file(self._waiting.popleft()))

    def _bundle(self, size_bytes: int) -> Bundle | None:
        if not self._small:
            return None
        files = deque([self._small.popleft()])
        total = files[0].entry.size_bytes
        while self._small and len(files) < _MOST_FILES:
            total += self._small[0].entry.size_bytes
            if total > size_bytes:
                break
            files.append(self._small.popleft())
        return Bundle(files)

    def give_back(self, piece: Piece) -> None:
        """Make the rest of the piece available again. It will be requested before the other pieces of its kind."""
        match piece:
            case Stretch(file=file):
                file.asked -= 1
                file.missing.extendleft(reversed(piece.spans_left()))
            case Comparison(file=file, span=span):
                file.asked -= 1
                file.uncompared.appendleft(span)
            case Bundle(files=files):
                self._small.extendleft(reversed(files))

    def close(self, file: Large) -> None:
        """Close a file that is complete, or that is left for a later attempt."""
        self.open.remove(file)
        file.partial.close()


def _open_file(coming: Coming) -> Large:
    """Open the partial file, and list its missing spans. If there is an older version here, they are compared first."""
    partial = Partial(coming.partial, coming.entry.size_bytes)
    missing = partial.missing()
    if coming.basis is None:
        return Large(coming, partial, deque(missing))
    compared: deque[Span] = deque()
    for gap in missing:
        first = gap.first // BLOCK_BYTES * BLOCK_BYTES
        while first < gap.end:
            compared.append(Span(first, min(_COMPARED_BYTES, gap.end - first)))
            first += _COMPARED_BYTES
    return Large(coming, partial, deque(), compared)


def _cut(missing: deque[Span], size_bytes: int) -> list[Span]:
    spans: list[Span] = []
    while missing and size_bytes > 0 and len(spans) < _MOST_SPANS:
        span = missing.popleft()
        if span.size_bytes > size_bytes:
            missing.appendleft(Span(span.first + size_bytes, span.size_bytes - size_bytes))
            span = Span(span.first, size_bytes)
        size_bytes -= span.size_bytes
        spans.append(span)
    return spans
