"""ONNX models: checks that all protobuf fields nest properly to the last byte, and that there is a graph.

Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto and the protobuf wire format,
https://protobuf.dev/programming-guides/encoding/. There is no checksum, and no end marker.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpu_tenant.artifacts.formats.bounded_file import (
    LARGE_BYTES,
    Broken,
    Cursor,
    Findings,
    Source,
    Unread,
)
from gpu_tenant.artifacts.formats.non_finite import Tensor, look
from gpu_tenant.domain.wording import some

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DEEPEST = 64
_MOST_FIELDS = 10_000_000
_MOST_FIELD_NUMBERS = 1000
_LONGEST_NAME_BYTES = 4096

_NESTED: Mapping[str, Mapping[int, str]] = {
    "Model": {7: "Graph", 8: "OperatorSet", 14: "Entry", 20: "Training", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 11: "Value", 12: "Value", 13: "Value", 15: "Sparse"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Function": {7: "Node", 9: "OperatorSet", 11: "Attribute"},
    "Training": {1: "Graph", 2: "Graph"},
    "Tensor": {13: "Entry"},
    "Entry": {},
    "OperatorSet": {},
    "Value": {},
}
"""For each kind of message: the fields (by number) that contain a message, and the kind of that message."""
_HIGHEST = {"Model": 26, "Graph": 17, "Node": 10, "Tensor": 16, "Attribute": 23}
_ITEM_BYTES = {
    1: 4,
    2: 1,
    3: 1,
    4: 2,
    5: 2,
    6: 4,
    7: 8,
    9: 1,
    10: 2,
    11: 8,
    12: 4,
    13: 8,
    14: 8,
    15: 16,
    16: 2,
    17: 1,
    18: 1,
    19: 1,
    20: 1,
}
_FLOATS = {1: "F32", 10: "F16", 11: "F64", 16: "BF16"}
_EXTERNAL = 1
_MOST_COUNT_BITS = 128


@dataclass
class _Seen:
    """What the check has found so far."""

    fields: int = 0
    graphs: int = 0
    opsets: int = 0
    tensors: list[Tensor] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)


def check(source: Source, findings: Findings) -> None:
    """Check that every field fits into its message, to the end of the file, and that there is a graph.

    Raises:
        Broken: a field does not fit, or there is no graph.
    """
    source.alone(LARGE_BYTES)
    seen = _Seen()
    _walk(source, Cursor(source), "Model", seen, 0)
    if not seen.graphs or not seen.opsets:
        raise Broken("no graph, or no operator set: no ONNX model, or one that is cut off")
    findings.proved.append(
        f"{seen.fields:,} fields nest to the last byte, and a graph is among them"
    )
    findings.not_proved.append("values: ONNX carries no checksum, only the hash covers them")
    if seen.elsewhere:
        names = ", ".join(sorted(seen.elsewhere)[:8])
        findings.not_proved.append(
            f"values kept in other files, which must be kept as well: {names}"
        )
    if seen.unknown:
        findings.warn(
            f"fields that ONNX did not have when this was written: {', '.join(sorted(seen.unknown)[:8])}"
        )
    look(source, seen.tensors, findings)


def files_elsewhere(source: Source) -> set[str]:
    """Return the paths of the files that hold values of the model, below the model's own directory.

    Raises:
        Broken: the file is no protobuf message, or is cut off.
        Unread: it is too large to be followed.
    """
    seen = _Seen()
    _walk(source, Cursor(source), "Model", seen, 0)
    return seen.elsewhere


def _walk(source: Source, cursor: Cursor, message: str, seen: _Seen, depth: int) -> None:
    if depth > _DEEPEST:
        raise Unread(f"messages nested deeper than {_DEEPEST} are not read here")
    if message == "Tensor":
        _tensor(source, cursor, seen)
        return
    for number, wire, start, end in _fields(cursor, message, seen):
        inner = _NESTED[message].get(number)
        if inner is None:
            continue
        if wire != _BYTES:
            raise Broken(f"field {number} of {message} at byte {start:,} is no message")
        if message == "Model":
            seen.graphs += inner == "Graph"
            seen.opsets += inner == "OperatorSet"
        _walk(source, Cursor(source, start, end), inner, seen, depth + 1)


def _fields(cursor: Cursor, message: str, seen: _Seen) -> Iterator[tuple[int, int, int, int]]:
    """Yield every field of one message: its number, its wire type, and the positions where its content begins and ends.

    For a varint, its value is given in place of the end.
    """
    while cursor.left:
        at = cursor.at
        seen.fields += 1
        if seen.fields > _MOST_FIELDS:
            raise Unread(f"more than {_MOST_FIELDS:,} fields are not followed here")
        tag = _varint(cursor)
        number, wire = tag >> 3, tag & 7
        if not 1 <= number <= _MOST_FIELD_NUMBERS:
            raise Broken(f"{message} has no field {number:,}, met at byte {at:,}")
        if number > _HIGHEST.get(message, _MOST_FIELD_NUMBERS):
            seen.unknown.add(f"{message} {number}")
        start = cursor.at
        if wire == _VARINT:
            yield number, wire, start, _varint(cursor)
        elif wire == _BYTES:
            length = _varint(cursor)
            start = cursor.at
            cursor.skip(length)
            yield number, wire, start, cursor.at
        elif wire in (_FIXED32, _FIXED64):
            cursor.skip(4 if wire == _FIXED32 else 8)
            yield number, wire, start, cursor.at
        else:
            raise Broken(f"wire type {wire} at byte {at:,} does not exist")


def _varint(cursor: Cursor) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = cursor.take(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise Broken(f"a number without end at byte {cursor.at:,}")


def _tensor(source: Source, cursor: Cursor, seen: _Seen) -> None:
    """Check that the size of the tensor's raw values agrees with its dimensions and its type."""
    name, kind, count, external, raw = "a tensor", 0, 1, False, None
    begin = cursor.at
    for number, wire, start, end in _fields(cursor, "Tensor", seen):
        match number, wire:
            case 1, 0:
                count *= end
            case 1, 2:
                packed = Cursor(source, start, end)
                while packed.left and count.bit_length() <= _MOST_COUNT_BITS:
                    count *= _varint(packed)
            case 2, 0:
                kind = end
            case 8, 2:
                name = source.read(start, min(end - start, _LONGEST_NAME_BYTES)).decode()
            case 9, 2:
                raw = (start, end)
            case 13, 2:
                seen.elsewhere |= _location(source, start, end, seen)
            case 14, 0:
                external = end == _EXTERNAL
            case _:
                pass
        if count.bit_length() > _MOST_COUNT_BITS:
            raise Broken(f"the tensor at byte {begin:,} has impossible dimensions")
    if raw is None or external or kind not in _ITEM_BYTES:
        return
    size = raw[1] - raw[0]
    # Types above 20 pack two values into one byte, and are not checked.
    if size != count * _ITEM_BYTES[kind]:
        raise Broken(f"{name}: {some(size, 'byte')} of values, of {count * _ITEM_BYTES[kind]:,}")
    if kind in _FLOATS:
        seen.tensors.append(Tensor(name, _FLOATS[kind], raw[0], count))


def _location(source: Source, start: int, end: int, seen: _Seen) -> set[str]:
    entry: dict[int, str] = {}
    for number, wire, begin, stop in _fields(Cursor(source, start, end), "Entry", seen):
        if wire == _BYTES:
            entry[number] = source.read(begin, min(stop - begin, _LONGEST_NAME_BYTES)).decode()
    return {entry.get(2, "")} if entry.get(1) == "location" else set()
