"""JSON: one whole value, UTF-8 to the last byte, checked as it streams past.

Source: RFC 8259, with the `NaN` and `Infinity` that Python and JavaScript tools write beyond it.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from gpu_tenant.artifacts.formats.bounded_file import LARGE_BYTES, Broken, Findings, Source, Unread

_AT_ONCE_BYTES = 4 << 20
"""Below this size the standard parser is used. Its objects then fit in memory whatever they are."""
_DEEPEST = 1_000_000
_LONGEST_TOKEN_BYTES = 4096
_BOM = codecs.BOM_UTF8

_DECODER = json.JSONDecoder(parse_int=float)
"""Integers become floats, because Python refuses to read integers of more than 4,300 digits."""

# No possessive quantifiers: Python 3.11 before 3.11.5 matches them wrongly (gh-106052).
_BLANK = rb"[ \t\n\r]*"
_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_ESCAPED = rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_UNESCAPED = rb'[^"\\\x00-\x1f]*'
_QUOTED = rb'"' + _UNESCAPED + rb"(?:" + _ESCAPED + _UNESCAPED + rb')*"'
_ATOM = rb"(?:" + rb"|".join([_NUMBER, _QUOTED, rb"true|false|null"]) + rb")"
_COMMA = _BLANK + rb"," + _BLANK
_RUN = rb"{1,1000}"
"""Bounded, because the regex engine remembers every repetition until the match ends."""

_ITEMS = re.compile(rb"(?:" + _ATOM + _COMMA + rb")" + _RUN)
_MEMBERS = re.compile(rb"(?:" + _QUOTED + _BLANK + rb":" + _BLANK + _ATOM + _COMMA + rb")" + _RUN)
"""Runs of plain items, each with its comma. They make up most of any large file, and match at C speed."""

_SPACE = re.compile(_BLANK)
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(_ESCAPED)
_SCALAR = re.compile(rb"(?:" + _NUMBER + rb")|true|false|null|NaN|-?Infinity")
_SCALAR_BYTES = frozenset(b"-+.0123456789eEtrufalsnNIity")
_ODD = re.compile(rb"\b(?:NaN|Infinity)\b")


def check(source: Source, findings: Findings) -> None:
    """The file is one JSON value.

    Raises:
        Broken: it is not, or is cut off.
    """
    source.alone(LARGE_BYTES)
    check_chunks(source.chunks(), findings)


def check_chunks(chunks: Iterable[bytes], findings: Findings) -> None:
    """The chunks are, together, one JSON value.

    Raises:
        Broken: they are not.
        Unread: it is nested too deeply.
    """
    stream = iter(chunks)
    head = b""
    for chunk in stream:
        head += chunk
        if len(head) > _AT_ONCE_BYTES:
            break
    if head.startswith(_BOM):
        findings.warn("begins with a byte order mark, which many JSON readers refuse")
        head = head[len(_BOM) :]
    if is_value(head) if len(head) <= _AT_ONCE_BYTES else _streams(chain([head], stream)):
        findings.proved.append("one whole JSON value, UTF-8 to the last byte")
    if _ODD.search(head):
        findings.warn("seems to hold NaN or Infinity, which strict JSON readers refuse")


def is_value(text: bytes) -> bool:
    """The text is one JSON value. Always returns True.

    Raises:
        Broken: it is not; the message says where it stops being one.
    """
    if len(text) > _AT_ONCE_BYTES:
        return _streams([text])
    try:
        _DECODER.decode(text.decode())
    except RecursionError:
        return _streams([text])
    except UnicodeDecodeError as error:
        raise Broken(f"no UTF-8 at byte {error.start:,}") from error
    except json.JSONDecodeError as error:
        raise Broken(f"no JSON: {error.msg} at character {error.pos:,}") from error
    return True


def _streams(chunks: Iterable[bytes]) -> bool:
    structure = Structure()
    for chunk in chunks:
        structure.feed(chunk)
    structure.close()
    return True


class Structure:
    """A JSON value that is checked as it streams past, in memory that does not grow with its size."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._open = bytearray()
        self._due = "value"
        self._in_string = False
        self._pending = b""
        self._behind = 0

    def feed(self, chunk: bytes) -> None:
        """The chunk continues the value.

        Raises:
            Broken: it cannot.
        """
        try:
            self._utf8.decode(chunk)
        except UnicodeDecodeError as error:
            raise Broken(f"no UTF-8 near byte {self._behind:,}") from error
        text = self._pending + chunk
        at = self._run(text, final=not chunk)
        self._pending = text[at:]
        self._behind += at

    def close(self) -> None:
        """The value is whole.

        Raises:
            Broken: it is cut off.
        """
        self.feed(b"")
        try:
            self._utf8.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise Broken("cut off inside a UTF-8 character") from error
        if self._pending or self._in_string or self._due != "nothing":
            raise Broken(f"cut off at byte {self._behind + len(self._pending):,}")

    def _run(self, text: bytes, *, final: bool) -> int:
        """How far the text was understood. What remains is the beginning of a token."""
        at = 0
        while True:
            if self._in_string:
                at = _end(_PLAIN, text, at)
                byte = text[at : at + 1]
                if byte == b'"':
                    self._in_string = False
                    at += 1
                elif byte == b"\\" and (escape := _ESCAPE.match(text, at)):
                    at = escape.end()
                    continue
                elif byte == b"" or (byte == b"\\" and len(text) - at < 6 and not final):
                    return at
                else:
                    raise Broken(f"a string is damaged at byte {self._behind + at:,}")
            at = _end(_SPACE, text, at)
            if at == len(text):
                return at
            step = self._token(text, at, final=final)
            if step == at:
                return at
            at = step

    def _token(self, text: bytes, at: int, *, final: bool) -> int:
        """Where the token at `at` ends, or `at` itself if more text is needed to tell."""
        if run := self._run_of_atoms(text, at):
            return run
        byte = text[at : at + 1]
        match byte, self._due:
            case b'"', "value" | "value or ]":
                self._in_string = True
                self._due = self._after_value()
            case b'"', "key" | "key or }":
                self._in_string = True
                self._due = ":"
            case ((b"{" | b"["), "value" | "value or ]"):
                if len(self._open) == _DEEPEST:
                    raise Unread(f"nested deeper than {_DEEPEST:,}: not read here")
                self._open += byte
                self._due = "key or }" if byte == b"{" else "value or ]"
            case (b"}", "key or }" | ", or }") | (b"]", "value or ]" | ", or ]"):
                self._open.pop()
                self._due = self._after_value()
            case b":", ":":
                self._due = "value"
            case b",", ", or }":
                self._due = "key"
            case b",", ", or ]":
                self._due = "value"
            case _, "value" | "value or ]":
                return self._scalar(text, at, final=final)
            case _:
                raise Broken(f"{self._due} is due at byte {self._behind + at:,}, not {byte!r}")
        return at + 1

    def _run_of_atoms(self, text: bytes, at: int) -> int:
        """Where a run of plain items or members ends. 0 if no run begins there."""
        match self._due, self._open[-1:]:
            case (("value" | "value or ]"), b"["):
                run, due = _ITEMS.match(text, at), "value"
            case (("key" | "key or }"), _):
                run, due = _MEMBERS.match(text, at), "key"
            case _:
                return 0
        if run is None:
            return 0
        self._due = due
        return run.end()

    def _scalar(self, text: bytes, at: int, *, final: bool) -> int:
        end = at
        while end < len(text) and text[end] in _SCALAR_BYTES and end - at <= _LONGEST_TOKEN_BYTES:
            end += 1
        if end - at > _LONGEST_TOKEN_BYTES:
            raise Unread(f"a number of more than {_LONGEST_TOKEN_BYTES:,} digits is not read here")
        if end == len(text) and not final:
            return at
        if not _SCALAR.fullmatch(text, at, end):
            raise Broken(f"no JSON value at byte {self._behind + at:,}")
        self._due = self._after_value()
        return end

    def _after_value(self) -> str:
        if not self._open:
            return "nothing"
        return ", or }" if self._open[-1:] == b"{" else ", or ]"


def _end(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def lines(chunks: Iterable[bytes], longest_bytes: int) -> Iterator[bytes]:
    """The lines of the chunks, without their newlines. A last line without a newline counts as well.

    Raises:
        Unread: a line is longer than `longest_bytes`.
    """
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        if len(rest) > longest_bytes:
            raise Unread(f"a line of more than {longest_bytes:,} bytes is not read here")
    if rest:
        yield rest
