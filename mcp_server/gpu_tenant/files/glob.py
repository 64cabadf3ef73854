"""Matches names and paths with globs, in a time that grows with their length times the glob's length.

There is no regular expression here, because one with several stars may take for ever. After a star, the first place where
the next chunk fits is as good as any later one, because another star or the end of the name follows. So each chunk is
sought once. The same holds for the components between two `**`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class CharClass:
    """The characters that one position of a name may have: those in the ranges, or if negated all others.

    A byte that stands for no character, as `os.fsdecode` gives it, is in no range.
    """

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool = False

    def has(self, char: str) -> bool:
        """Whether that character is one of them."""
        if "\udc00" <= char <= "\udcff":
            return self.is_negated
        return any(first <= char <= last for first, last in self.ranges) != self.is_negated


ANY = CharClass((), is_negated=True)

Position = str | CharClass
"""What one position of a name must be: this character, or one of these."""


class NameGlob:
    """A glob for one component of a path. A star stands between each two of its chunks."""

    def __init__(self, chunks: Sequence[Sequence[Position]]) -> None:
        self.least = sum(map(len, chunks))
        # Text is compared faster than one position after another.
        self._chunks = [
            "".join(map(str, chunk)) if all(isinstance(one, str) for one in chunk) else chunk
            for chunk in chunks
        ]
        self._first, self._last = self._chunks[0], self._chunks[-1]

    @property
    def literal(self) -> str | None:
        """The only name that matches. None if this is a real glob."""
        is_text = len(self._chunks) == 1 and isinstance(self._first, str)
        return str(self._first) if is_text else None

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        length = len(name)
        if length < self.least or not _fits(self._first, name, 0):
            return False
        if len(self._chunks) == 1:
            return length == self.least
        at, end = len(self._first), length - len(self._last)
        for chunk in self._chunks[1:-1]:
            at = _find(chunk, name, at, end)
            if at < 0:
                return False
            at += len(chunk)
        return _fits(self._last, name, end)


def _fits(chunk: str | Sequence[Position], name: str, at: int) -> bool:
    if isinstance(chunk, str):
        return name.startswith(chunk, at)
    return all(
        char == one if isinstance(one, str) else one.has(char)
        for char, one in zip(name[at : at + len(chunk)], chunk, strict=True)
    )


def _find(chunk: str | Sequence[Position], name: str, at: int, end: int) -> int:
    if isinstance(chunk, str):
        return name.find(chunk, at, end)
    places = range(at, end - len(chunk) + 1)
    return next((place for place in places if _fits(chunk, name, place)), -1)


@dataclass(frozen=True)
class PathGlob:
    """A glob for the components of a path. None stands for `**`, which is any number of components.

    With `is_open`, it also matches whatever is at least `below` components below a path that it matches.
    """

    components: tuple[NameGlob | None, ...]
    is_open: bool = False
    below: int = 0

    @cached_property
    def _pieces(self) -> list[list[NameGlob]]:
        """The components between the `**`. The first piece is at the beginning of the path."""
        pieces: list[list[NameGlob]] = [[]]
        for component in self.components:
            if component is None:
                pieces.append([])
            else:
                pieces[-1].append(component)
        return pieces

    def matches(self, parts: Sequence[str]) -> bool:
        """Whether the path of these components matches."""
        pieces, room = self._pieces, len(parts) - self.below
        if room < sum(map(len, pieces)):
            return False
        at = 0
        for number, piece in enumerate(pieces):
            last = room - len(piece) if number else 0
            if not self.is_open and piece is pieces[-1]:
                if number == 0 and len(piece) != room:
                    return False
                at = max(at, room - len(piece))
            while at <= last and not _fit(piece, parts, at):
                at += 1
            if at > last:
                return False
            at += len(piece)
        return True


def _fit(piece: Sequence[NameGlob], parts: Sequence[str], at: int) -> bool:
    return all(
        one.matches(part) for one, part in zip(piece, parts[at : at + len(piece)], strict=True)
    )
