"""Changes to good input that keep most of its structure, so that readers are reached behind their first check."""

import bz2
import gzip
import io
import json
import lzma
import random
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_NUMBERS = [0, 1, -1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**70, 10**30, 1e308, -5, float("nan")]
_TEXTS = [
    "",
    "\x1b]52;c;aGk=\x07\x1b[2J",
    "\u202egnp.exe",
    "a\nreceipt: gone, verified",
    "x" * 100_000,
    "../../etc",
    "\x00",
    "%2e%2e",
    "-rf",
    "\U000e0041\U000e0042",
]
_BYTES = [
    b"\xff",
    b"\0",
    b"\x7f",
    b"\x80",
    b"\xff" * 4,
    b"\xff\xff\xff\x7f",
    b"\xff" * 8,
    b"\xff" * 7 + b"\x7f",
    b"\0" * 7 + b"\x01",
    b"[" * 100_000,
]
_MOST_BYTES = 400_000


def mutated_json(draw: random.Random, value: Any, depth: int = 0) -> Any:
    """The value with one to three of its parts changed."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        value = _changed(draw, value, depth)
    return value


def _changed(draw: random.Random, value: Any, depth: int) -> Any:
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        changed = dict(value)
        match draw.randrange(12):
            case 0:
                del changed[key]
            case 1:
                changed[draw.choice(_TEXTS)] = changed.pop(key)
            case _:
                changed[key] = _changed(draw, value[key], depth + 1)
        return changed
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        match draw.randrange(10):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value[:at] + [value[at]] * draw.choice((2, 50)) + value[at:]
            case _:
                return [*value[:at], _changed(draw, value[at], depth + 1), *value[at + 1 :]]
    deep: Any = draw.choice((None, 0))
    for _ in range(draw.choice((1, 30))):
        deep = [deep] if draw.random() < 0.5 else {"a": deep}
    return draw.choice((draw.choice(_NUMBERS), draw.choice(_TEXTS), None, True, [], {}, deep))


def with_each_number(value: Any, odd: float) -> Iterator[Any]:
    """The value, with each of its numbers in turn replaced by that one."""
    if isinstance(value, dict):
        for key, held in value.items():
            yield from ({**value, key: changed} for changed in with_each_number(held, odd))
    elif isinstance(value, list):
        for at, held in enumerate(value):
            for changed in with_each_number(held, odd):
                yield [*value[:at], changed, *value[at + 1 :]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield odd


def mutated(draw: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    """The content with a few bytes changed, or those of what it is packed around."""
    for head, unpack, pack in _PACKED:
        if content.startswith(head) and draw.random() < 0.6:
            try:
                return pack(mutated(draw, unpack(content), others))
            except (OSError, EOFError, ValueError, zipfile.BadZipFile, lzma.LZMAError):
                break
    if content.startswith(b"PK\x03\x04") and draw.random() < 0.6:
        try:
            return _rezipped(draw, content, others)
        except Exception:  # noqa: BLE001  what was made by mutation need not be a zip any more
            return content
    if draw.random() < 0.3 and (changed := _header(draw, content)) is not None:
        return changed
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 5, 12))):
        _spoil(draw, changed, others)
    del changed[_MOST_BYTES:]
    return bytes(changed)


_PACKED: Sequence[tuple[bytes, Callable[[bytes], bytes], Callable[[bytes], bytes]]] = (
    (b"\x1f\x8b", gzip.decompress, gzip.compress),
    (b"BZh", bz2.decompress, bz2.compress),
    (b"\xfd7zXZ", lzma.decompress, lzma.compress),
)


def _rezipped(draw: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        members = old.infolist()
        chosen = draw.choice(members)
        for member in members:
            held = old.read(member)
            new.writestr(member, mutated(draw, held, others) if member is chosen else held)
    return made.getvalue()


def _header(draw: random.Random, content: bytes) -> bytes | None:
    """A safetensors file with another header of the right length; None where it is none."""
    if len(content) < 8 or (size := struct.unpack("<Q", content[:8])[0]) > len(content) - 8:
        return None
    try:
        header = json.loads(content[8 : 8 + size])
    except ValueError:
        return None
    written = json.dumps(mutated_json(draw, header)).encode()
    return struct.pack("<Q", len(written)) + written + content[8 + size :]


def _spoil(draw: random.Random, content: bytearray, others: Sequence[bytes]) -> None:
    size = len(content)
    at = draw.randrange(size) if size else 0
    match draw.randrange(8):
        case 0 if size:
            content[at] ^= 1 << draw.randrange(8)
        case 1:
            written = draw.choice(_BYTES)
            content[at : at + len(written)] = written
        case 2:
            del content[at : at + draw.randrange(1, 64)]
        case 3:
            content[at:at] = content[at : at + draw.randrange(1, 200)] * draw.choice(
                (1, 2, 20, 300)
            )
        case 4:
            other = draw.choice(others)
            start = draw.randrange(len(other) or 1)
            content[at:at] = other[start : start + draw.randrange(1, 80)]
        case 5:
            del content[at:]
        case 6:
            if found := list(re.finditer(rb"\d+", bytes(content[:4000]))):
                number = draw.choice(found)
                words = draw.choice((b"-1", b"0", b"9" * 20, b"1e999", b"4294967296"))
                content[number.start() : number.end()] = words
        case _:
            content += draw.randbytes(draw.randrange(40))
