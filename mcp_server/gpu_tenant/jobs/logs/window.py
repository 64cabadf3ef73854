"""Shows a job's log in windows, and searches it. The text contains nothing that could control a terminal."""

import asyncio
import re
from typing import Literal, NamedTuple

from pydantic import ConfigDict, Field

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import bare, keep_colours
from gpu_tenant.jobs.logs.source import Log, LogBytes, Source, stretch

MOST_WINDOW_BYTES = 4 << 20

_LONG_LINE_BYTES = 32 << 10
"""A line longer than this may be split between two windows."""
_ESCAPE_BYTES = 4 << 10
"""An escape sequence longer than this may be split."""
_ENOUGH_BYTES = 2 * _LONG_LINE_BYTES
"""If a window is larger than this, there is always a place in it where it may end. So it is not empty."""
_BEFORE_BYTES = _LONG_LINE_BYTES + _ESCAPE_BYTES + 4
"""This much of the log before a position must be known to decide whether a window may begin there."""

_OPEN_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*|[ -/]*)")

_SEARCHED_BYTES = 512 << 10
"""The log is searched in parts of this size. One part blocks the interpreter for a few hundredths of a second."""
_MOST_HITS = 200
_SHOWN_CHARACTERS = 300


class LogWindow(Record):
    """Part of a log.

    The next window begins where this one ends. If the requested byte is in the middle of a line, `from` is an earlier
    byte, usually the beginning of the line. A caller that already has text after byte `from` must replace that text
    with this window.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True
    )

    from_: int = Field(alias="from")
    to: int
    size: int
    text: str
    source: Source


class Hit(Record):
    """A line of a log that contains what was searched for."""

    at: int = Field(description="byte of the log at which the line begins")
    line: str


class Hits(Record):
    """What was found in a log's lines from the requested byte up to `scanned_to`.

    If `scanned_to` is less than `size`, continue the search from there.
    """

    hits: tuple[Hit, ...]
    scanned_to: int
    size: int
    source: Source


async def window(log: Log, *, start: int, limit: int) -> LogWindow:
    """Return the lines around the log's bytes from `start` to `start + limit`, without escape sequences except colours.

    A negative `start` counts from the end. Windows fit together: the next window starts at `to`, and the window before
    ends at `from`. A window is empty only at the end of the log. At the end of a log that still grows, it may lack the
    bytes of an incomplete character.

    Raises:
        BoxTrouble: the box did not return the log.
    """
    limit = max(1, min(limit, MOST_WINDOW_BYTES))
    before = start - _BEFORE_BYTES
    wanted = _BEFORE_BYTES + max(limit, _ENOUGH_BYTES) + _ESCAPE_BYTES
    got = await stretch(log, before if start < 0 else max(0, before), wanted)
    begin = max(0, got.size + start) if start < 0 else min(start, got.size)
    place = max(0, begin - got.at)
    first = place
    if begin < got.size or (got.grows and begin == start):
        first = _boundary(got.raw, place)
    last = _end(got, place + limit)
    if last <= first:
        last = max(first, _end(got, place + _ENOUGH_BYTES))
    text = await asyncio.to_thread(_show, got.raw[first:last])
    return LogWindow(
        from_=got.at + first, to=got.at + last, size=got.size, text=text, source=log.source
    )


async def search(
    log: Log, *, q: str, start: int, case: Literal["no", "yes"], budget_s: float = 1.0
) -> Hits:
    """Find the lines from byte `start` on whose visible text contains `q`.

    After 200 hits, or about `budget_s` seconds, the search returns what it has found. It always searches at
    least one part of the log.

    Raises:
        BadRequest: there is nothing to search for, or more than one line.
        BoxTrouble: the box did not return the log.
    """
    wanted = bare(q) if case == "yes" else bare(q).casefold()
    if not wanted or "\n" in wanted:
        raise BadRequest(
            "a search takes some text of a single line", remedy="search for a word of that text"
        )
    clock = asyncio.get_running_loop().time
    until = clock() + budget_s
    hits: list[Hit] = []
    at = max(0, start)
    while True:
        got = await stretch(
            log, max(0, at - _BEFORE_BYTES), _BEFORE_BYTES + _SEARCHED_BYTES + _ESCAPE_BYTES
        )
        here, end = min(at, got.size) - got.at, at - got.at + _SEARCHED_BYTES
        end = _boundary(got.raw, end) if end < len(got.raw) else len(got.raw)
        part = _Part(got.raw, got.at, _before(got.raw, here), here, end)
        found, at = await asyncio.to_thread(_find, part, wanted, case, _MOST_HITS - len(hits))
        hits += found
        if at >= got.size or len(hits) >= _MOST_HITS or clock() >= until:
            return Hits(hits=tuple(hits), scanned_to=at, size=got.size, source=log.source)


def _end(got: LogBytes, place: int) -> int:
    """Return where a window that should end at `place` really ends."""
    if place < len(got.raw):
        return _boundary(got.raw, place)
    return _between(got.raw, len(got.raw)) if got.grows else len(got.raw)


def _show(raw: bytes) -> str:
    return keep_colours(raw.decode("utf-8", "replace"))


# Where a log may be cut into windows. Only the bytes before a position decide whether it may be cut
# there, so all windows are cut at the same positions.


def _boundary(raw: bytes, place: int) -> int:
    """Return the last position, up to and including `place`, at which a window may begin.

    A window may begin after a newline. It may begin within a line only if very much of the line is before it.
    `raw` begins `_BEFORE_BYTES` before `place`, or at the log's beginning.
    """
    whole = _between(raw, place)
    newline = raw.rfind(b"\n", max(0, whole - _LONG_LINE_BYTES), whole)
    if newline < 0 and whole >= _LONG_LINE_BYTES:
        return whole
    return newline + 1


def _between(raw: bytes, place: int) -> int:
    """Return `place`, or the start of the character or escape sequence that a cut at `place` would split."""
    place = _between_characters(raw, place)
    if raw[place : place + 1] == b"\x1b":
        return place
    escape = raw.rfind(b"\x1b", max(0, place - _ESCAPE_BYTES), place)
    if escape >= 0 and _OPEN_ESCAPE.fullmatch(raw, escape, place):
        return escape
    return place


def _between_characters(raw: bytes, place: int) -> int:
    """Return `place`, or the start of the UTF-8 character that a cut at `place` would split."""
    for back in range(min(4, place + 1)):
        byte = raw[place - back] if place - back < len(raw) else 0x80
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return place - back if back < length else place
        if byte < 0x80:
            break
    return place


# The search of one part


class _Part(NamedTuple):
    raw: bytes
    at: int
    """The position in the log where `raw` begins."""
    begin: int
    """The position in `raw` where the search starts."""
    unseen: int
    """Matches that begin before this position in `raw` were reported by the search of the part before."""
    end: int


def _before(raw: bytes, place: int) -> int:
    """Return where in `raw` to begin the search, so that a match that extends over `place` is found."""
    begin = _boundary(raw, place)
    if begin == place and raw[place - 1 : place] != b"\n":
        return _between(raw, max(0, place - _LONG_LINE_BYTES))
    return begin


def _find(part: _Part, wanted: str, case: Literal["no", "yes"], most: int) -> tuple[list[Hit], int]:
    """Find at most `most` lines of the part that contain the text, and the log position up to which was searched."""
    raw = part.raw[part.begin : part.end]
    text = _fold(raw, case)
    lines: list[int] = []
    place = text.find(wanted, _known_characters(part, wanted, case))
    line, counted = 0, 0
    while place >= 0 and len(lines) < most:
        line += text.count("\n", counted, place)
        counted = place
        lines.append(line)
        end = text.find("\n", place)
        place = text.find(wanted, end) if end >= 0 else -1
    if not lines:
        return [], part.at + part.end
    begins = [0, *(newline.end() for newline in re.finditer(rb"\n", raw))]
    texts = bare(raw.decode("utf-8", "replace")).split("\n")
    offset = part.at + part.begin
    hits = [Hit(at=offset + begins[n], line=_around(texts[n], wanted, case)) for n in lines]
    if len(lines) < most or lines[-1] + 1 >= len(begins):
        return hits, part.at + part.end
    return hits, offset + begins[lines[-1] + 1]


def _fold(raw: bytes, case: Literal["no", "yes"]) -> str:
    """Return the text to search in. It has as many lines as the bytes."""
    text = bare(raw.decode("utf-8", "replace"))
    return text if case == "yes" else text.casefold()


def _known_characters(part: _Part, wanted: str, case: Literal["no", "yes"]) -> int:
    """Return the position in the searched text before which no new match can begin."""
    newline = part.raw.find(b"\n", part.unseen, part.end)
    rest = part.raw[part.unseen : part.end if newline < 0 else newline].rstrip(b"\r")
    if part.unseen == part.begin or b"\r" in rest:
        return 0  # This line is redrawn later, so it may show a text that did not match in the part before.
    known = _fold(part.raw[part.begin : part.unseen], case)
    return max(0, len(known) - len(wanted) + 1)


def _around(line: str, wanted: str, case: Literal["no", "yes"]) -> str:
    """Return the part of the line that is shown, around the place where the text was found."""
    if len(line) <= _SHOWN_CHARACTERS:
        return line
    place = (line if case == "yes" else line.casefold()).find(wanted)
    most = len(line) - _SHOWN_CHARACTERS
    begin = max(0, min(place - _SHOWN_CHARACTERS // 3, most))
    head, tail = "…" * (begin > 0), "…" * (begin < most)
    return f"{head}{line[begin + len(head) : begin + _SHOWN_CHARACTERS - len(tail)]}{tail}"
