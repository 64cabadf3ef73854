"""NaN and infinity among the floating-point values of a file: counted, named, sampled when many."""

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from gpu_tenant.loads.source import CHUNK_BYTES, Findings, Source

SAMPLE_LIMIT = 64 << 20
"""Values looked at per file: about a second of work. Above it, blocks spread evenly are sampled."""

_BLOCK_BYTES = CHUNK_BYTES // 4
_SMALLEST_SAMPLE = 4096


@dataclass(frozen=True, slots=True)
class Layout:
    """An IEEE-like float: its width, and its exponent bits, all set in NaN and infinity."""

    code: str
    size_bytes: int
    exponent: int

    def suspects(self) -> bytes:
        """A translation table: 1 for every top byte a NaN or an infinity can have."""
        top = (self.exponent >> 8 * (self.size_bytes - 1)) & 0x7F
        return bytes(byte & top == top for byte in range(256))


LAYOUTS = {
    "F16": Layout("H", 2, 0x7C00),
    "BF16": Layout("H", 2, 0x7F80),
    "F32": Layout("I", 4, 0x7F80_0000),
    "F64": Layout("Q", 8, 0x7FF0_0000_0000_0000),
}
"""By the names safetensors uses: binary16, bfloat16, binary32, binary64."""

_SUSPECTS = {name: layout.suspects() for name, layout in LAYOUTS.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where `count` values of one dtype lie in a file, and what to call them."""

    label: str
    dtype: str
    offset: int
    count: int
    order: Literal["little", "big"] = "little"


@dataclass
class Tally:
    """How many of the values seen were NaN or infinite."""

    seen: int = 0
    nan: int = 0
    inf: int = 0

    def add(self, content: bytes, dtype: str, order: Literal["little", "big"] = "little") -> None:
        """The values in `content`, a whole number of them, are counted.

        The top byte of every value is looked at first, at C speed, because it clears almost every
        block; value by value is for the blocks it does not clear.
        """
        layout = LAYOUTS[dtype]
        width = layout.size_bytes
        self.seen += len(content) // width
        tops = content[width - 1 :: width] if order == "little" else content[::width]
        if 1 not in tops.translate(_SUSPECTS[dtype]):
            return
        values = array(layout.code)
        if values.itemsize != width:
            raise NotImplementedError(
                f"array code {layout.code} is {values.itemsize} bytes wide here"
            )
        values.frombytes(content)
        if sys.byteorder != order:
            values.byteswap()
        exponent, magnitude = layout.exponent, (1 << 8 * width - 1) - 1
        for value, times in Counter(values).items():
            if value & exponent == exponent:
                if value & magnitude == exponent:
                    self.inf += times
                else:
                    self.nan += times

    def report(self, label: str, findings: Findings) -> None:
        """A warning names the tensor, if any of its values was not finite."""
        if self.nan or self.inf:
            findings.warn(f"{label}: {self.nan:,} NaN, {self.inf:,} inf of {self.seen:,}")


def look(source: Source, tensors: Iterable[Tensor], findings: Findings) -> None:
    """Every tensor with values that are not finite is named in a warning.

    Above `SAMPLE_LIMIT` values in the file, evenly spaced blocks are looked at, and the sample is
    stated among what was not proved.
    """
    floats = [tensor for tensor in tensors if tensor.dtype in LAYOUTS and tensor.count]
    total = sum(tensor.count for tensor in floats)
    seen = 0
    for tensor in floats:
        share = tensor.count
        if total > SAMPLE_LIMIT:
            share = min(share, max(_SMALLEST_SAMPLE, share * SAMPLE_LIMIT // total))
        tally = Tally()
        for content in _blocks(source, tensor, share):
            tally.add(content, tensor.dtype, tensor.order)
        tally.report(tensor.label, findings)
        seen += tally.seen
    state(seen, total, findings)


def state(seen: int, total: int, findings: Findings) -> None:
    """Findings say how many values were looked at, and whether that was all of them."""
    if seen < total:
        findings.not_proved.append(f"values sampled: {seen:,} of {total:,}")
    elif total:
        findings.proved.append(f"{total:,} floating-point values looked at for NaN and infinity")


def _blocks(source: Source, tensor: Tensor, share: int) -> Iterator[bytes]:
    width = LAYOUTS[tensor.dtype].size_bytes
    block = min(_BLOCK_BYTES // width, share)
    blocks = -(-share // block)
    if share == tensor.count:
        starts = [number * block for number in range(blocks)]
    else:
        step = (tensor.count - block) / max(1, blocks - 1)
        starts = [int(number * step) for number in range(blocks)]
    for start in starts:
        count = min(block, tensor.count - start)
        yield source.read(tensor.offset + start * width, count * width)
