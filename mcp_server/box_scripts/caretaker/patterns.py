"""Matches escaped paths with globs as in .gitignore."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.paths import escape_path, unescape_path, utf8_bytes
from box_scripts.caretaker.refusal import Refusal

_ONE = "(?:%[0-9A-F]{2}|[^/%])"  # one character of an escaped name; an escape counts as one
_TOKEN = re.compile(
    r"(?P<run>(?:%[0-9A-Fa-f]{2})+)|\\(?P<quoted>.)|(?P<star>\*+)|(?P<one>\?)"
    r"|\[(?P<not>[!^]?)(?P<set>\]?[^]]*)\]|(?P<plain>.)",
    re.DOTALL,
)


def segment_regex(text: str) -> tuple[str, bytes | None]:
    """Return a regex for one component of a pattern. Also return its bytes; None if the component is a glob."""
    if text == "**":
        return text, None
    source, literal, is_glob = "", b"", False
    for token in _TOKEN.finditer(text):
        if token.lastgroup in ("star", "one", "set"):
            is_glob = True
            if token.lastgroup == "set":
                chars = "".join(c if c == "-" else re.escape(c) for c in token.group("set"))
                form = "(?:%%[0-9A-F]{2}|(?![/%%])[^%s])" if token.group("not") else "(?![/%%])[%s]"
                source += form % chars
            else:
                source += _ONE + ("*" if token.lastgroup == "star" else "")
        else:
            plain = token.group("quoted") or token.group("plain")
            raw = utf8_bytes(plain) if plain else unescape_path(token.group())
            source, literal = source + re.escape(escape_path(raw)), literal + raw
    re.compile(source)
    return source, None if is_glob else literal


class Pattern:
    """One glob. `matches` says whether it covers an escaped path.

    A `relative` pattern is matched against paths below the work directory, any other against absolute paths. All paths
    that an absolute pattern can match are below `prefix`. `place` is the pattern's own text as an escaped path.
    """

    def __init__(self, text: str) -> None:
        """Raises: Refusal: `text` is not a valid pattern, begins with `!`, or contains `..`."""
        from_home = text == "~" or text.startswith("~/")
        self.text, self.relative, self.prefix = text, not (from_home or text.startswith("/")), b""
        names = [n for n in text.split("/") if n not in ("", ".")][1 if from_home else 0 :]
        try:
            segments = [segment_regex(n) for n in names]
        except (ValueError, re.error) as error:
            raise Refusal("BAD_REQUEST", "not a pattern: %s (%s)" % (ascii(text), error)) from None
        if (
            text.startswith("!")
            or any(raw == b".." for _, raw in segments)
            or not (names or from_home or text == "/")
        ):
            raise Refusal(
                "BAD_REQUEST",
                "a pattern is not empty, has no .. and no ! at its head: " + ascii(text),
            )
        whole = [
            name.replace("%", "%25") if raw is None else escape_path(raw)
            for name, (_, raw) in zip(names, segments)  # noqa: B905 - Python 3.7 knows no strict
        ]
        self.place = "/".join(whole)
        if not self.relative:
            globs = [raw for _, raw in segments]
            fixed = globs.index(None) if None in globs else len(globs)
            segments = self._resolve_beginning(segments, from_home)
            self.place = "/".join([escape_path(self.prefix), *whole[fixed:]])
        source = "" if not self.relative or "/" in text.rstrip("/") else "(?:.*/)?"
        for part, _ in segments[:-1]:
            source += "(?:.*/)?" if part == "**" else part + "/"
        last = segments[-1][0] if segments else "**"
        is_directory = bool(names) and text.endswith("/")
        if last == "**":
            source += ".+/.+" if is_directory else ".+"
        else:
            source += last + ("/.+" if is_directory else "(?:/.+)?")
        self.source = source if self.relative else "/" + source
        self.matches = re.compile(self.source).fullmatch

    def _resolve_beginning(
        self, segments: list[tuple[str, bytes | None]], from_home: bool
    ) -> list[tuple[str, bytes | None]]:
        """Return the segments, with all links resolved in the part before the first glob.

        This is needed because the survey of files finds real paths.
        """
        root = os.path.expanduser(b"~") if from_home else b"/"
        fixed = [raw for _, raw in segments]
        fixed = fixed[: fixed.index(None)] if None in fixed else fixed
        names = [raw for raw in fixed if raw is not None]
        if len(names) == len(segments) > 0 and not self.text.endswith("/"):
            # The last name is not resolved: if it is a link, the pattern means the link itself.
            self.prefix = os.path.join(os.path.realpath(os.path.join(root, *names[:-1])), names[-1])
        else:
            self.prefix = os.path.realpath(os.path.join(root, *names))
        real = [(re.escape(escape_path(p)), p) for p in self.prefix.split(b"/") if p]
        return [*real, *segments[len(names) :]]
