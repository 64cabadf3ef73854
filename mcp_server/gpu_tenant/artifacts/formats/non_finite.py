"""Finds NaN and infinity among the floating-point values of a file. If there are many values, a sample is checked."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from gpu_tenant.artifacts.formats.bounded_file import CHUNK_BYTES, Findings, Source

SAMPLE_LIMIT = 64 << 20
"""At most this many values of a file are checked, which takes about a second. They form evenly spread blocks."""

_BLOCK_BYTES = CHUNK_BYTES // 4
_SMALLEST_SAMPLE = 4096


Key = TypeVar("Key")
Table = tuple[int, bytes]
"""A byte position in a float (0 is the most significant), and 256 flags: 1 for each byte value that fits there."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A float format: its size, and a mask of its exponent bits. These are all set only in NaN and infinity."""

    size_bytes: int
    exponent: int

    def not_finite(self) -> list[Table]:
        """Return the byte tables that match both NaN and infinity."""
        return self._tables(self.exponent)

    def infinite(self) -> list[Table]:
        """Return the byte tables that match infinity: all exponent bits are set, all fraction bits clear, any sign."""
        return self._tables((1 << 8 * self.size_bytes - 1) - 1)

    def _tables(self, judged: int) -> list[Table]:
        """For every byte with a bit in `judged`, make a table of the values that have infinity's bits there."""
        tables = []
        for place in range(self.size_bytes):
            shift = 8 * (self.size_bytes - 1 - place)
            if mask := judged >> shift & 0xFF:
                wanted = self.exponent >> shift & mask
                tables.append((place, bytes(byte & mask == wanted for byte in range(256))))
        return tables


LAYOUTS = {
    "F16": Layout(2, 0x7C00),
    "BF16": Layout(2, 0x7F80),
    "F32": Layout(4, 0x7F80_0000),
    "F64": Layout(8, 0x7FF0_0000_0000_0000),
}
"""The float formats, by the names that safetensors uses: binary16, bfloat16, binary32, binary64."""

_NOT_FINITE = {name: layout.not_finite() for name, layout in LAYOUTS.items()}
_INFINITE = {name: layout.infinite() for name, layout in LAYOUTS.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """The place of `count` values of one type in a file, and a name for them."""

    label: str
    dtype: str
    offset: int
    count: int
    order: Literal["little", "big"] = "little"


@dataclass
class Tally:
    """How many values were checked, and how many of them were NaN or infinite."""

    seen: int = 0
    nan: int = 0
    inf: int = 0

    def add(self, content: bytes, dtype: str, order: Literal["little", "big"] = "little") -> None:
        """Count the values in `content`, which contains only whole values.

        One byte position of all values is checked at a time, at the speed of C. The most significant byte comes
        first, because it is enough to rule out almost every block.
        """
        width = LAYOUTS[dtype].size_bytes

        def fitting(tables: list[Table]) -> int:
            """Return a number with a set bit for every value that fits all the tables."""
            fit = -1
            for place, table in tables:
                flags = content[place if order == "big" else width - 1 - place :: width].translate(
                    table
                )
                if not fit or 1 not in flags:
                    return 0
                fit &= int.from_bytes(flags, "little")
            return fit

        self.seen += len(content) // width
        if not_finite := fitting(_NOT_FINITE[dtype]).bit_count():
            infinite = fitting(_INFINITE[dtype]).bit_count()
            self.inf += infinite
            self.nan += not_finite - infinite

    def report(self, label: str, findings: Findings) -> None:
        """If some values were not finite, add a warning with the tensor's name."""
        if self.nan or self.inf:
            findings.warn(f"{label}: {self.nan:,} NaN, {self.inf:,} inf of {self.seen:,}")


class TensorSample:
    """The blocks to check in one tensor. They are checked as the file's bytes are read in order."""

    def __init__(self, tensor: Tensor, share: int) -> None:
        self.tensor = tensor
        self.tally = Tally()
        self._blocks = _blocks(tensor, share)
        self._due = next(self._blocks, None)
        self._carried = b""

    def see(self, offset: int, content: bytes | memoryview) -> None:
        """Check the blocks that are in `content`. `offset` is the position of `content` in the file."""
        end = offset + len(content)
        while self._due is not None and self._due[0] < end:
            start, size_bytes = self._due
            self._carried += content[max(0, start - offset) : start + size_bytes - offset]
            if start + size_bytes > end:
                return
            self.tally.add(self._carried, self.tensor.dtype, self.tensor.order)
            self._carried = b""
            self._due = next(self._blocks, None)

    def take(self, source: Source) -> None:
        """Read and check the blocks that are left."""
        while self._due is not None:
            self.see(self._due[0], source.along(*self._due))


def samples(tensors: Mapping[Key, Tensor]) -> dict[Key, TensorSample]:
    """Choose the blocks to check in every tensor of floats. A larger tensor gets a larger share of the limit."""
    floats = {key: x for key, x in tensors.items() if x.dtype in LAYOUTS and x.count}
    total = sum(tensor.count for tensor in floats.values())
    chosen = {}
    for key, tensor in floats.items():
        share = tensor.count
        if total > SAMPLE_LIMIT:
            share = min(share, max(_SMALLEST_SAMPLE, share * SAMPLE_LIMIT // total))
        chosen[key] = TensorSample(tensor, share)
    return chosen


def look(source: Source, tensors: Iterable[Tensor], findings: Findings) -> None:
    """Add a warning for every tensor with values that are not finite.

    If the file has more than `SAMPLE_LIMIT` values, only evenly spaced blocks are checked, and
    `findings.not_proved` says so.
    """
    chosen = samples(dict(enumerate(tensors))).values()
    for sample in sorted(chosen, key=lambda sample: sample.tensor.offset):
        sample.take(source)
    report(chosen, findings)


def report(seen: Collection[TensorSample], findings: Findings) -> None:
    """Add warnings for the samples to the findings, and how much of the file was checked."""
    for sample in seen:
        sample.tally.report(sample.tensor.label, findings)
    total = sum(sample.tensor.count for sample in seen)
    state(sum(sample.tally.seen for sample in seen), total, findings)


def state(seen: int, total: int, findings: Findings) -> None:
    """Add to the findings how many of all values were checked."""
    if seen < total:
        findings.not_proved.append(f"values sampled: {seen:,} of {total:,}")
    elif total:
        findings.proved.append(f"{total:,} floating-point values looked at for NaN and infinity")


def _blocks(tensor: Tensor, share: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and size of each block to check. No two blocks overlap."""
    width = LAYOUTS[tensor.dtype].size_bytes
    block = min(_BLOCK_BYTES // width, share)
    blocks = -(-share // block)
    apart, gaps = tensor.count - block, blocks - 1
    if blocks * block >= tensor.count:
        apart, gaps = block, 1  # all values, block after block
    for number in range(blocks):
        start = number * apart // max(1, gaps)
        yield tensor.offset + start * width, min(block, tensor.count - start) * width
