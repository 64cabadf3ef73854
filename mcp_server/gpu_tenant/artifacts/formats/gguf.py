"""GGUF models: checks the header, the key-value pairs and the tensor table. All tensors must be inside the file.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and `GGML_QUANT_SIZES` of
`gguf-py/gguf/constants.py`. There is no checksum.
"""

import math

from gpu_tenant.artifacts.formats.bounded_file import (
    LARGE_BYTES,
    Broken,
    Cursor,
    Findings,
    Source,
    Unread,
    count_of,
)
from gpu_tenant.artifacts.formats.non_finite import Tensor, look
from gpu_tenant.domain.wording import some

MAGIC = b"GGUF"
_STRING, _ARRAY, _UINT32 = 8, 9, 4
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_FLOATS = {0: "F32", 1: "F16", 30: "BF16", 28: "F64"}
_BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 40),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
}
"""For each ggml type: the number of values in a block, and the number of bytes in a block."""
_DEFAULT_ALIGNMENT = 32
_LONGEST_NAME_BYTES = 1 << 16
_DEEPEST_ARRAY = 4
_MOST_TENSORS = 200_000


def check(source: Source, findings: Findings) -> None:
    """Check that every tensor of the table is inside the file, is aligned, and overlaps no other.

    Raises:
        Broken: a tensor is outside, is not aligned or overlaps another, or the header is damaged.
        Unread: the version is not supported here.
    """
    source.alone(LARGE_BYTES)
    cursor = Cursor(source)
    if cursor.take(4) != MAGIC:
        raise Broken("it does not begin with GGUF")
    version = cursor.number("<I")
    if version not in (2, 3):
        raise Unread(f"GGUF version {version:,} is not read here")
    tensor_count, pair_count = cursor.number("<Q"), cursor.number("<Q")
    if tensor_count > _MOST_TENSORS:
        raise Broken(f"{tensor_count:,} tensors are claimed")
    alignment = _DEFAULT_ALIGNMENT
    for _ in range(pair_count):
        key, kind = _string(cursor), cursor.number("<I")
        if key == "general.alignment" and kind == _UINT32:
            alignment = cursor.number("<I")
        else:
            _skip(cursor, kind, 0)
    if alignment == 0 or alignment % 8:
        raise Broken(f"an alignment of {alignment:,} bytes")
    table = [_tensor(cursor) for _ in range(tensor_count)]
    start = cursor.at + -cursor.at % alignment if table else cursor.at
    end = start
    tensors = []
    for offset, name, kind, count in sorted(table):
        if offset % alignment:
            raise Broken(f"{name!r:.80} is not aligned to {alignment} bytes")
        if start + offset < end:
            raise Broken(f"{name!r:.80} overlaps the tensor before it")
        if kind not in _BLOCKS:
            findings.not_proved.append(f"{name}: the length of ggml type {kind} is not known here")
            end = start + offset
        else:
            values, block_bytes = _BLOCKS[kind]
            if count % values:
                raise Broken(f"{name!r:.80} has {count:,} values, no whole number of blocks")
            end = start + offset + count // values * block_bytes
        if end > source.size_bytes:
            raise Broken(f"{name!r:.80} ends at byte {end:,}, the file at {source.size_bytes:,}")
        tensors.append(Tensor(name, _FLOATS.get(kind, ""), start + offset, count))
    if source.size_bytes < end + -end % alignment:
        findings.warn("the padding after the last tensor is missing: the file may be cut off there")
    if source.size_bytes > end + -end % alignment:
        findings.warn(f"{some(source.size_bytes - end, 'byte')} after the last tensor")
    findings.proved.append(
        f"{count_of(pair_count, 'key')} and {count_of(len(table), 'tensor')} within the file"
    )
    findings.not_proved.append("values: GGUF carries no checksum, only the hash covers them")
    look(source, tensors, findings)


def _string(cursor: Cursor) -> str:
    length = cursor.number("<Q")
    if length > _LONGEST_NAME_BYTES:
        raise Broken(f"a name of {some(length, 'byte')} at byte {cursor.at:,}")
    return cursor.take(length).decode()


def _skip(cursor: Cursor, kind: int, depth: int) -> None:
    """Move the cursor past a value of that kind."""
    if kind in _SCALAR_BYTES:
        cursor.skip(_SCALAR_BYTES[kind])
    elif kind == _STRING:
        cursor.skip(cursor.number("<Q"))
    elif kind == _ARRAY and depth < _DEEPEST_ARRAY:
        inner, count = cursor.number("<I"), cursor.number("<Q")
        if inner in _SCALAR_BYTES:
            cursor.skip(count * _SCALAR_BYTES[inner])
            return
        for _ in range(count):
            _skip(cursor, inner, depth + 1)
    else:
        raise Broken(f"unknown value type {kind:,} at byte {cursor.at:,}")


def _tensor(cursor: Cursor) -> tuple[int, str, int, int]:
    name, dimensions = _string(cursor), cursor.number("<I")
    if dimensions > 8:
        raise Broken(f"{name!r:.80} has {dimensions:,} dimensions")
    count = math.prod(cursor.number("<Q") for _ in range(dimensions))
    kind, offset = cursor.number("<I"), cursor.number("<Q")
    return offset, name, kind, count
