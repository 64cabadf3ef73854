"""Matches escaped paths with globs as in .gitignore."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.paths import escape_path, unescape_path, utf8_bytes
from box_scripts.caretaker.refusal import Refusal

_UNIT = re.compile("%([0-9A-F]{2})")
_TOKEN = re.compile(
    r"(?P<run>(?:%[0-9A-Fa-f]{2})+)|\\(?P<quoted>.)|(?P<star>\*+)|(?P<one>\?)"
    r"|\[(?P<not>[!^]?)(?P<set>\]?[^]]*)\]|(?P<plain>[^%\\*?[]+|.)",
    re.DOTALL,
)


def _units(escaped: str) -> str:
    """Return the escaped text with one character for each escape. Such characters are in no escaped text."""
    return _UNIT.sub(lambda m: chr(0xDC00 + int(m[1], 16)), escaped) if "%" in escaped else escaped


class _Class:
    """The characters that one position of a name may have: those of `[a-z]`, or all but those of `[!a-z]`."""

    def __init__(self, chars: str, negated: bool) -> None:
        """Raises: ValueError: a range ends before it begins, or there are no characters."""
        self._ranges, self._negated, at = [], negated, 0
        while at < len(chars):
            is_range = chars[at + 1 : at + 2] == "-" and at + 2 < len(chars)
            first, last = chars[at], chars[at + 2] if is_range else chars[at]
            if first > last:
                raise ValueError("bad character range " + chars[at : at + 3])
            self._ranges.append((first, last))
            at += 3 if is_range else 1
        if not chars:
            raise ValueError("an empty set of characters")

    def has(self, char: str) -> bool:
        if "\udc00" <= char <= "\udcff":  # an escape
            return self._negated
        return any(first <= char <= last for first, last in self._ranges) != self._negated


_ANY = _Class("\0", negated=True)  # no name has this character
LONGEST = 1 << 14


class Segment:
    """One component of a pattern. `literal` is the name that it stands for, in bytes; None if it is a glob."""

    def __init__(self, text: str) -> None:
        """Raises: ValueError: the text is not valid."""
        self.is_any_depth = text == "**"
        chunks: list[list] = [[]]  # what stands between the stars
        literal, is_glob = [], self.is_any_depth
        for token in _TOKEN.finditer(text):
            kind = token.lastgroup
            if kind == "star":
                chunks.append([])
            elif kind == "one":
                chunks[-1].append(_ANY)
            elif kind == "set":
                chunks[-1].append(_Class(token.group("set"), bool(token.group("not"))))
            else:
                plain = token.group("quoted") or token.group("plain")
                raw = utf8_bytes(plain) if plain else unescape_path(token.group())
                chunks[-1].extend(_units(escape_path(raw)))
                literal.append(raw)
                continue
            is_glob = True
        self.literal = None if is_glob else b"".join(literal)
        self.least = sum(map(len, chunks))
        # Text is compared faster than a list of what fits each character.
        plain = [_Class not in map(type, chunk) for chunk in chunks]
        self._chunks = ["".join(c) if p else c for c, p in zip(chunks, plain)]  # noqa: B905

    def matches(self, name: str) -> bool:
        """Whether the name matches, in a time that grows with the length of the name times that of this text.

        After a star, the first place where the next chunk fits is as good as any later one. So no place is tried twice.
        """
        if len(name) < self.least or not _fits(self._chunks[0], name, 0):
            return False
        if len(self._chunks) == 1:
            return len(name) == self.least
        at, end = len(self._chunks[0]), len(name) - len(self._chunks[-1])
        for chunk in self._chunks[1:-1]:
            at = _find(chunk, name, at, end)
            if at < 0:
                return False
            at += len(chunk)
        return _fits(self._chunks[-1], name, end)

    def matches_escaped(self, name: str) -> bool:
        """Whether the escaped name matches."""
        return self.matches(_units(name))


def _fits(chunk: str | list, name: str, at: int) -> bool:
    if isinstance(chunk, str):
        return name.startswith(chunk, at)
    return all(
        char == test if isinstance(test, str) else test.has(char)
        for char, test in zip(name[at : at + len(chunk)], chunk)  # noqa: B905
    )


def _find(chunk: str | list, name: str, at: int, end: int) -> int:
    if isinstance(chunk, str):
        return name.find(chunk, at, end)
    places = range(at, end - len(chunk) + 1)
    return next((place for place in places if _fits(chunk, name, place)), -1)


def _are_at(piece: list[Segment], parts: list[str], at: int) -> bool:
    near = parts[at : at + len(piece)]
    return all(one.matches(part) for one, part in zip(piece, near))  # noqa: B905


class Pattern:
    """One glob. `matches` says whether it covers an escaped path.

    A `relative` pattern is matched against paths below the work directory, any other against absolute paths. All paths
    that an absolute pattern can match are below `prefix`. `place` is the pattern's own text as an escaped path.
    """

    def __init__(self, text: str) -> None:
        """Raises: Refusal: `text` is not a valid pattern, begins with `!`, or contains `..`."""
        from_home = text == "~" or text.startswith("~/")
        self.text, self.relative, self.prefix = text, not (from_home or text.startswith("/")), b""
        if len(text) > LONGEST:
            raise Refusal("BAD_REQUEST", "a pattern has at most %d characters" % LONGEST)
        names = [n for n in text.split("/") if n not in ("", ".")][1 if from_home else 0 :]
        try:
            segments = [Segment(n) for n in names]
        except ValueError as error:
            raise Refusal("BAD_REQUEST", "not a pattern: %s (%s)" % (ascii(text), error)) from None
        if (
            text.startswith("!")
            or any(one.literal == b".." for one in segments)
            or not (names or from_home or text == "/")
        ):
            raise Refusal(
                "BAD_REQUEST",
                "a pattern is not empty, has no .. and no ! at its head: " + ascii(text),
            )
        whole = [
            name.replace("%", "%25") if one.literal is None else escape_path(one.literal)
            for name, one in zip(names, segments)  # noqa: B905 - Python 3.7 knows no strict
        ]
        self.place = "/".join(whole)
        if not self.relative:
            globs = [one.literal for one in segments]
            fixed = globs.index(None) if None in globs else len(globs)
            try:
                segments = self._resolve_beginning(segments, from_home)
            except ValueError as error:  # no path contains a zero byte
                raise Refusal(
                    "BAD_REQUEST", "not a pattern: %s (%s)" % (ascii(text), error)
                ) from None
            self.place = "/".join([escape_path(self.prefix), *whole[fixed:]])
        self._is_anywhere = self.relative and "/" not in text.rstrip("/")
        # Between two `**` stands a piece: components that follow each other.
        self._pieces: list[list[Segment]] = [[]]
        for segment in segments:
            if segment.is_any_depth:
                self._pieces.append([])
            else:
                self._pieces[-1].append(segment)
        is_open = not segments or segments[-1].is_any_depth
        self._below = bool(names and text.endswith("/")) + is_open
        self._least = sum(map(len, self._pieces)) + self._below

    def matches(self, path: str) -> bool:
        """Whether the pattern covers that escaped path, or a directory above it.

        Like a chunk of a name, a piece is sought once, and its first place is as good as any.
        """
        parts = _units(path if self.relative else path[1:]).split("/")
        if len(parts) < self._least or (not self.relative and path[:1] != "/"):
            return False
        at, moves = 0, self._is_anywhere
        for piece in self._pieces:
            last = len(parts) - self._below - len(piece) if moves else at
            while not _are_at(piece, parts, at):
                at += 1
                if at > last:
                    return False
            at, moves = at + len(piece), True
        return at + self._below <= len(parts)

    def _resolve_beginning(self, segments: list[Segment], from_home: bool) -> list[Segment]:
        """Return the segments, with all links resolved in the part before the first glob.

        This is needed because the survey of files finds real paths.
        """
        root = os.path.expanduser(b"~") if from_home else b"/"
        fixed = [one.literal for one in segments]
        fixed = fixed[: fixed.index(None)] if None in fixed else fixed
        names = [raw for raw in fixed if raw is not None]
        if len(names) == len(segments) > 0 and not self.text.endswith("/"):
            # The last name is not resolved: if it is a link, the pattern means the link itself.
            self.prefix = os.path.join(os.path.realpath(os.path.join(root, *names[:-1])), names[-1])
        else:
            self.prefix = os.path.realpath(os.path.join(root, *names))
        real = [
            re.sub(r"([][*?\\])", r"\\\1", escape_path(p)) for p in self.prefix.split(b"/") if p
        ]
        return [*map(Segment, real), *segments[len(names) :]]
