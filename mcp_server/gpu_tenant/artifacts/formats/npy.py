"""NumPy arrays (.npy): checks that the dtype and shape in the header account for the rest of the file.

Source: `numpy/lib/format.py`, versions 1.0 to 3.0. There is no checksum.
"""

import ast
import math
import re
from dataclasses import dataclass
from typing import Literal

from gpu_tenant.artifacts.formats.bounded_file import Broken, Findings, Source, Unread
from gpu_tenant.artifacts.formats.non_finite import Tensor, look
from gpu_tenant.artifacts.formats.pickle_file import scan
from gpu_tenant.domain.wording import some

MAGIC = b"\x93NUMPY"
LONGEST_HEADER_BYTES = 1 << 16
_MOST_DIMENSIONS = 64
_DEEPEST_DTYPE = 8
_SIMPLE = re.compile(r"([<>|=])?([?biufcSUVmMO])(\d{0,9})(?:\[[^\]]{1,20}\])?")
_FLOATS = {
    ("f", 2): ("F16", 1),
    ("f", 4): ("F32", 1),
    ("f", 8): ("F64", 1),
    ("c", 8): ("F32", 2),
    ("c", 16): ("F64", 2),
}

_SIZES = {
    "?": (1,),
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 12, 16),
    "c": (8, 16, 24, 32),
    "m": (8,),
    "M": (8,),
}


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of an array says: where its values begin, how many there are, and of which kind."""

    start: int
    count: int
    item_bytes: int
    holds_objects: bool
    dtype: str | None
    """The name of the float format in `non_finite.LAYOUTS`. None if the values are no floats."""
    parts: int
    """How many floats are in one element: two if it is a complex number."""
    order: Literal["little", "big"]

    @property
    def size_bytes(self) -> int:
        """How many bytes the values take."""
        return self.count * self.item_bytes


def check(source: Source, findings: Findings) -> None:
    """Check that the file contains all the values that the header describes.

    Raises:
        Broken: the header is damaged, or values are missing.
        Unread: the version or the dtype is not supported here.
    """
    head = header(source.upto(0, LONGEST_HEADER_BYTES + 12))
    if head.holds_objects:
        said = scan(source, head.start, source.size_bytes)
        said.report(findings)
        end = said.end
    else:
        end = head.start + head.size_bytes
        if end > source.size_bytes:
            there = source.size_bytes - head.start
            raise Broken(f"{some(there, 'byte')} of values, of {head.size_bytes:,}")
        findings.proved.append(f"{head.count:,} values of {head.item_bytes} bytes are all there")
    if end < source.size_bytes:
        findings.warn(f"{some(source.size_bytes - end, 'byte')} after the array")
    findings.not_proved.append("values: npy carries no checksum, only the hash covers them")
    if head.dtype:
        array = Tensor("the array", head.dtype, head.start, head.count * head.parts, head.order)
        look(source, [array], findings)


def header(head: bytes) -> Header:
    """Read the header at the start of `head`.

    Raises:
        Broken: there is no header, or it is damaged.
        Unread: the version, the dtype or the length is not supported here.
    """
    if head[:6] != MAGIC:
        raise Broken("it does not begin as a NumPy array does")
    version = tuple(head[6:8])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise Unread(f"npy version {'.'.join(map(str, version))} is not read here")
    width = 2 if version == (1, 0) else 4
    start = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    if start > LONGEST_HEADER_BYTES:
        raise Unread(f"a header of {start:,} bytes is not read here")
    if start > len(head):
        raise Broken("cut off inside the header")
    text = head[8 + width : start].decode("utf-8" if version == (3, 0) else "latin-1")
    try:
        described = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise Broken(f"the header is not a Python literal: {error}") from error
    match described:
        case {"descr": descr, "fortran_order": bool(), "shape": tuple(shape), **rest} if not rest:
            pass
        case _:
            raise Broken("the header lacks descr, fortran_order or shape")
    if len(shape) > _MOST_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise Broken(f"the shape is {shape!r:.80}")
    item_bytes, holds_objects = _item(descr, 0)
    simple = _SIMPLE.fullmatch(descr) if isinstance(descr, str) else None
    dtype, parts = _FLOATS.get((simple[2], item_bytes), (None, 1)) if simple else (None, 1)
    order: Literal["little", "big"] = "big" if simple and simple[1] == ">" else "little"
    return Header(start, math.prod(shape), item_bytes, holds_objects, dtype, parts, order)


def _item(descr: object, depth: int) -> tuple[int, bool]:
    """Return how many bytes one element takes, and whether it contains Python objects."""
    if depth > _DEEPEST_DTYPE:
        raise Unread("a dtype nested so deeply is not read here")
    match descr:
        case str():
            simple = _SIMPLE.fullmatch(descr)
            if simple is None:
                raise Broken(f"unknown dtype {descr!r:.80}")
            kind, size = simple[2], int(simple[3] or 1)
            if kind in _SIZES and size not in _SIZES[kind]:
                raise Broken(f"unknown dtype {descr!r:.80}")
            return (8 if kind == "O" else size * 4 if kind == "U" else size), kind == "O"
        case list():
            fields = [_field(field, depth) for field in descr]
            return sum(size for size, _ in fields), any(objects for _, objects in fields)
        case (inner, tuple(shape)):
            size, objects = _item(inner, depth + 1)
            return size * _extent(shape), objects
        case _:
            raise Broken(f"unknown dtype {descr!r:.80}")


def _field(field: object, depth: int) -> tuple[int, bool]:
    match field:
        case (str() | tuple(), inner):
            return _item(inner, depth + 1)
        case (str() | tuple(), inner, tuple(shape)):
            size, objects = _item(inner, depth + 1)
            return size * _extent(shape), objects
        case _:
            raise Broken(f"unknown field {field!r:.80}")


def _extent(shape: tuple[object, ...]) -> int:
    extent = 1
    for size in shape[:_MOST_DIMENSIONS]:
        if not isinstance(size, int) or size < 0:
            raise Broken(f"the shape of a field is {shape!r:.80}")
        extent *= size
    return extent
