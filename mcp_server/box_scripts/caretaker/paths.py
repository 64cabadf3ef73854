"""Converts file names to printable text and back, and checks which path is below which directory."""

from __future__ import annotations

import re

from box_scripts.caretaker.refusal import Refusal

_UNPRINTABLE = re.compile(
    "[%\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})?")


def escape_path(raw: bytes) -> str:
    """Return the printable text that stands for exactly these bytes."""
    text = raw.decode("utf-8", "surrogateescape")
    return _UNPRINTABLE.sub(lambda m: "".join("%%%02X" % b for b in utf8_bytes(m.group())), text)


def unescape_path(text: str) -> bytes:
    """Return the bytes that `text` stands for.

    Raises:
        ValueError: a `%` has no two hexadecimal digits, or the text is not valid Unicode.
    """

    def byte(match: re.Match[bytes]) -> bytes:
        if match.group(1) is None:
            raise ValueError("a % without two hexadecimal digits in " + ascii(text))
        return bytes((int(match.group(1), 16),))

    return _PERCENT.sub(byte, text.encode("utf-8"))


def utf8_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def is_below(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def inner_path(raw: bytes) -> bytes:
    """Return the relative path `raw` without empty parts and dots.

    Raises:
        Refusal: UNSAFE_PATH: it is absolute, or contains `..` or a zero byte.
    """
    parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if raw.startswith(b"/") or b".." in parts or b"\0" in raw:
        raise Refusal("UNSAFE_PATH", "not a path below the work directory: " + escape_path(raw))
    return b"/".join(parts)
