"""JSON: checks that the file is one whole value in UTF-8. In a large file, checks only that every bracket is closed.

Source: RFC 8259. `NaN` and `Infinity`, which Python and JavaScript tools also write, are accepted.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from gpu_tenant.artifacts.formats.bounded_file import LARGE_BYTES, Broken, Findings, Source, Unread

_AT_ONCE_BYTES = 4 << 20
"""Up to this size, the standard parser is used. The objects that it makes then fit in memory."""
_DEEPEST = 1_000_000
_BOM = codecs.BOM_UTF8

_NO_VALUE = re.compile(rb'"(?:\\\\.|[^"\\\\])*"|(//[^\n]*|/\*.*?\*/|,(?=\s*[}\]]))', re.DOTALL)
"""Strings, which stay, and what configurations have beside their values: comments, and commas after the last item."""

_DECODER = json.JSONDecoder(parse_int=float)
"""Integers become floats, because Python refuses to read integers of more than 4,300 digits."""

_ODD = re.compile(rb"\b(?:NaN|Infinity)\b")
_NEVER = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Bytes that JSON never contains. A file that was cut off may have holes that consist of them."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_CLOSES = {ord("]"): ord("["), ord("}"): ord("{")}


def check(source: Source, findings: Findings) -> None:
    """Check that the file is one JSON value. If it is large, check only its beginning, its strings and its brackets.

    Raises:
        Broken: it is not one value, or is cut off.
    """
    source.alone(LARGE_BYTES)
    check_chunks(as_utf8(source.chunks()), findings)


def check_chunks(chunks: Iterable[bytes], findings: Findings) -> None:
    """Do the same as `check`, for the bytes of all chunks together.

    Raises:
        Broken: they are not one value, or are cut off.
        Unread: the value is nested too deeply.
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
    if is_parsed(head, stream):
        findings.proved.append("one whole JSON value, UTF-8 to the last byte")
    else:
        findings.proved.append("UTF-8 to the last byte, and every string and bracket is closed")
        findings.not_proved.append("what is between the brackets: a file this large is not parsed")
    if _ODD.search(head):
        findings.warn("seems to hold NaN or Infinity, which strict JSON readers refuse")


def is_parsed(text: bytes, rest: Iterable[bytes] = ()) -> bool:
    """Parse the text as one JSON value. Returns whether it was parsed.

    If the text is too large or nested too deeply, only check that its brackets are closed by the end of `rest`.

    Raises:
        Broken: the text is not JSON; the message gives the place.
    """
    if len(text) <= _AT_ONCE_BYTES:
        try:
            _DECODER.decode(text.decode())
        except RecursionError:
            pass
        except UnicodeDecodeError as error:
            raise Broken(f"not UTF-8 at byte {error.start:,}") from error
        except json.JSONDecodeError as error:
            raise Broken(f"not JSON: {error.msg} at character {error.pos:,}") from error
        else:
            return True
    _must_be_closed(chain([text], rest))
    return False


def check_leniently(source: Source, findings: Findings) -> None:
    """Check that the file is what common writers make instead of one JSON value in UTF-8, and warn of it.

    Raises:
        Broken: it is none of that.
    """
    if source.size_bytes > _AT_ONCE_BYTES:
        raise Broken("too large to be read leniently")
    text = source.read(0, source.size_bytes)
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        if _NEVER.search(text):
            raise Broken("not UTF-8, and with control characters") from error
        decoded = text.decode("latin-1")
        findings.warn("not UTF-8, which many JSON readers refuse")
    bare = _NO_VALUE.sub(lambda x: b"" if x[1] else x[0], decoded.encode()).decode()
    if bare != decoded:
        findings.warn("has comments, or a comma after a last item, which many JSON readers refuse")
    rest, values = bare.strip(), 0
    while rest:
        if values and rest[0] not in "{[":
            raise Broken("not one JSON value after another")
        try:
            _, end = _DECODER.raw_decode(rest)
        except (ValueError, RecursionError) as error:
            raise Broken("not JSON, however leniently it is read") from error
        rest = rest[end:].strip()
        values += 1
    if not values:
        raise Broken("no value")
    if values > 1:
        findings.warn(f"{values:,} values one after another, which many JSON readers refuse")
    findings.proved.append("whole JSON values to the last byte, read leniently")


def _must_be_closed(chunks: Iterable[bytes]) -> None:
    utf8 = codecs.getincrementaldecoder("utf-8")()
    is_open = bytearray()
    in_string = began = False
    pending, behind = b"", 0
    for chunk in chunks:
        try:
            utf8.decode(chunk)
        except UnicodeDecodeError as error:
            raise Broken(f"not UTF-8 near byte {behind:,}") from error
        if found := _NEVER.search(chunk):
            raise Broken(f"a control character at byte {behind + found.start():,}")
        if not began and (first := chunk.lstrip()[:1]):
            began = True
            if first not in b'{["':
                raise Broken(f"not JSON: begins with {first!r}")
        behind += len(chunk)
        # A pair of backslashes is one escaped backslash. Remove all pairs first. Then a backslash
        # before a quote means that the quote does not end a string.
        text = (pending + chunk).replace(b"\\\\", b"")
        pending = b"\\" if text.endswith(b"\\") else b""
        parts = text.removesuffix(b"\\").replace(b'\\"', b"").split(b'"')
        _close(is_open, b"".join(parts[in_string::2]), behind)
        in_string ^= len(parts) % 2 == 0
    try:
        utf8.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise Broken("cut off inside a UTF-8 character") from error
    if in_string or is_open or not began:
        raise Broken(f"cut off at byte {behind:,}")


def _close(is_open: bytearray, text: bytes, behind: int) -> None:
    """Update the list of open brackets. An opening bracket is added, a closing one removes the one that it closes."""
    brackets, before = text.translate(None, _NO_BRACKETS), -1
    # Most brackets are closed soon. Each round removes the innermost pairs, at the speed of C.
    for _ in range(32):
        if len(brackets) == before:
            break
        before = len(brackets)
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    for bracket in brackets:
        opened = _CLOSES.get(bracket)
        if opened is None:
            if len(is_open) == _DEEPEST:
                raise Unread(f"nested deeper than {_DEEPEST:,}: not read here")
            is_open.append(bracket)
        elif not is_open or is_open.pop() != opened:
            raise Broken(f"a bracket is closed that was not opened, before byte {behind:,}")


def as_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of the chunks in UTF-8, if it is in UTF-16 or UTF-32. Otherwise as it is.

    It is if it begins with their byte order mark, or with two letters between zeros.

    Raises:
        Broken: it is not in that encoding after all.
    """
    stream = iter(chunks)
    head = next(stream, b"")
    encoding = _wide_encoding(head)
    if encoding is None:
        yield from chain([head], stream)
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for chunk in chain([head], stream):
            yield decoder.decode(chunk).encode()
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        raise Broken(f"not {encoding.upper()}: {error}") from error


def _wide_encoding(head: bytes) -> str | None:
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # RFC 4627: the first two characters of a JSON text are ASCII, so the zeros between them tell.
    for width, order in ((4, "le"), (4, "be"), (2, "le"), (2, "be")):
        letters = head[: 2 * width]
        encoding = f"utf-{8 * width}-{order}"
        try:
            said = letters.decode(encoding) if len(letters) == 2 * width else ""
            if said.isascii() and said.isprintable() and said:
                return encoding
        except UnicodeError:
            continue
    return None


def lines(chunks: Iterable[bytes], longest_bytes: int) -> Iterator[bytes]:
    """Yield the lines of the chunks, without their newlines. The last line may have no newline.

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
