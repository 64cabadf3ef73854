"""safetensors: checks that the tensors of the JSON header fill the rest of the file, without holes or overlaps.

Source: the format section of https://github.com/huggingface/safetensors (README) and its
`TensorIndexInfo` validation: eight bytes of little-endian header length, at most 100 MB of JSON
that begins with `{`, then the values, contiguous, without holes. There is no checksum.
"""

import json
from itertools import pairwise
from typing import Any

from gpu_tenant.artifacts.formats.bounded_file import (
    LARGE_BYTES,
    Broken,
    Findings,
    Source,
    Unread,
    count_of,
)
from gpu_tenant.artifacts.formats.non_finite import Tensor, look
from gpu_tenant.domain.wording import some

_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
}
_LONGEST_HEADER_BYTES = 100_000_000
_READ_HEADER_BYTES = 16 << 20
_READ_CONTAINERS = 600_000
_MOST_DIMENSIONS = 64


def check(source: Source, findings: Findings) -> None:
    """Check that the header describes every byte of the file exactly once.

    Raises:
        Broken: it does not, or the header is damaged.
        Unread: the header is too large to be read with bounded memory.
    """
    described, start = _header(source)
    tensors = [_tensor(name, entry, start) for name, entry in described.items()]
    tensors.sort(key=lambda tensor: tensor[1:])
    end = start
    for tensor, first, last in tensors:
        if first != end:
            fault = "overlaps the tensor before it" if first < end else "leaves a hole before it"
            raise Broken(f"{tensor.label!r} {fault}, at byte {first:,}")
        end = last
    if end != source.size_bytes:
        raise Broken(f"the tensors end at byte {end:,}, the file at {source.size_bytes:,}")
    findings.proved.append(f"{count_of(len(tensors), 'tensor')} filling the file to its last byte")
    findings.not_proved.append("values: safetensors carries no checksum, only the hash covers them")
    look(source, (tensor for tensor, _, _ in tensors), findings)


def list_tensors(source: Source) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return the name, type and shape of each tensor, from the header.

    Raises:
        Broken: the header is damaged.
        Unread: the header is too large to be read with bounded memory.
    """
    described, start = _header(source)
    for name, entry in described.items():
        _tensor(name, entry, start)
    return [(name, entry["dtype"], tuple(entry["shape"])) for name, entry in described.items()]


def _header(source: Source) -> tuple[dict[str, Any], int]:
    """Return the header's entry for each tensor, and the position where the values begin."""
    length = int.from_bytes(source.read(0, 8), "little")
    start = 8 + length
    if length > _LONGEST_HEADER_BYTES or start > source.size_bytes:
        raise Broken(f"the header claims {some(length, 'byte')} of a file of {source.size_bytes:,}")
    if length > _READ_HEADER_BYTES:
        raise Unread(f"a header of {length:,} bytes is not read here")
    if length > LARGE_BYTES:
        source.alone()
    header = source.read(8, length)
    if not header.startswith(b"{"):
        raise Broken("the header is not a JSON object")
    if header.count(b"{") + header.count(b"[") > _READ_CONTAINERS:
        raise Unread("a header of so many parts is not read here")
    try:
        described = json.loads(header.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise Broken(f"the header is not JSON: {error}") from error
    metadata = described.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Broken("__metadata__ is not a map of strings")
    return described, start


def _tensor(name: str, entry: object, start: int) -> tuple[Tensor, int, int]:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(first), int(last)]}:
            pass
        case _:
            raise Broken(f"{name!r} lacks a dtype, a shape or two offsets")
    count = 1
    for extent in shape[:_MOST_DIMENSIONS]:
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 0:
            raise Broken(f"{name!r} has the shape {shape!r:.80}")
        count *= extent
    if len(shape) > _MOST_DIMENSIONS:
        raise Broken(f"{name!r:.80} has {len(shape):,} dimensions")
    if dtype not in _BITS:
        raise Broken(f"{name!r} has the unknown dtype {dtype!r:.40}")
    if last - first != -(-count * _BITS[dtype] // 8) or first < 0:
        raise Broken(
            f"{name!r} is {dtype} {shape!r:.80}, which is not its {some(last - first, 'byte')}"
        )
    return Tensor(name, dtype, start + first, count), start + first, start + last


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = sorted(name for name, _ in pairs)
        twice = next(name for name, following in pairwise(names) if name == following)
        raise ValueError(f"the name {twice!r:.80} is used twice")
    return members
