"""NaN and infinity among the floating-point values of a file: counted, named, sampled when many."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from gpu_tenant.artifacts.formats.bounded_file import CHUNK_BYTES, Findings, Source

SAMPLE_LIMIT = 64 << 20
"""Values looked at per file: about a second of work. Above it, blocks spread evenly are sampled."""

_BLOCK_BYTES = CHUNK_BYTES // 4
_SMALLEST_SAMPLE = 4096


Key = TypeVar("Key")
Table = tuple[int, bytes]
"""A byte of a value, counted from its top one, and a translation table: 1 for every byte that fits."""


@dataclass(frozen=True, slots=True)
class Layout:
    """An IEEE-like float: its width, and its exponent bits, all set in NaN and infinity alone."""

    size_bytes: int
    exponent: int

    def not_finite(self) -> list[Table]:
        """What the bytes of NaN and infinity have in common."""
        return self._tables(self.exponent)

    def infinite(self) -> list[Table]:
        """What the bytes of infinity have in common: no other bit is set in it but the sign's."""
        return self._tables((1 << 8 * self.size_bytes - 1) - 1)

    def _tables(self, judged: int) -> list[Table]:
        """The bytes in which `judged` has bits, and where these are as in infinity."""
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
"""By the names safetensors uses: binary16, bfloat16, binary32, binary64."""

_NOT_FINITE = {name: layout.not_finite() for name, layout in LAYOUTS.items()}
_INFINITE = {name: layout.infinite() for name, layout in LAYOUTS.items()}


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

        Byte by byte of all values at once, at C speed, and the top byte first, because that alone
        clears almost every block.
        """
        width = LAYOUTS[dtype].size_bytes

        def fitting(tables: list[Table]) -> int:
            """A number with a bit set for every value that fits all the tables."""
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
        """A warning names the tensor, if any of its values was not finite."""
        if self.nan or self.inf:
            findings.warn(f"{label}: {self.nan:,} NaN, {self.inf:,} inf of {self.seen:,}")


class Sample:
    """What is looked at of one tensor, while its bytes pass in rising order."""

    def __init__(self, tensor: Tensor, share: int) -> None:
        self.tensor = tensor
        self.tally = Tally()
        self._blocks = _blocks(tensor, share)
        self._due = next(self._blocks, None)
        self._carried = b""

    def see(self, offset: int, content: bytes | memoryview) -> None:
        """What is due of the content, which lies at `offset` in the file, is looked at."""
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
        """What is due is read, and looked at."""
        while self._due is not None:
            self.see(self._due[0], source.along(*self._due))


def samples(tensors: Mapping[Key, Tensor]) -> dict[Key, Sample]:
    """What is to be looked at of every tensor that holds floats, of all that a file has."""
    floats = {key: x for key, x in tensors.items() if x.dtype in LAYOUTS and x.count}
    total = sum(tensor.count for tensor in floats.values())
    chosen = {}
    for key, tensor in floats.items():
        share = tensor.count
        if total > SAMPLE_LIMIT:
            share = min(share, max(_SMALLEST_SAMPLE, share * SAMPLE_LIMIT // total))
        chosen[key] = Sample(tensor, share)
    return chosen


def look(source: Source, tensors: Iterable[Tensor], findings: Findings) -> None:
    """Every tensor with values that are not finite is named in a warning.

    Above `SAMPLE_LIMIT` values in the file, evenly spaced blocks are looked at, and the sample is
    stated among what was not proved.
    """
    chosen = samples(dict(enumerate(tensors))).values()
    for sample in sorted(chosen, key=lambda sample: sample.tensor.offset):
        sample.take(source)
    report(chosen, findings)


def report(seen: Collection[Sample], findings: Findings) -> None:
    """Findings name what is not finite in the samples, and say how much of the file they are."""
    for sample in seen:
        sample.tally.report(sample.tensor.label, findings)
    total = sum(sample.tensor.count for sample in seen)
    state(sum(sample.tally.seen for sample in seen), total, findings)


def state(seen: int, total: int, findings: Findings) -> None:
    """Findings say how many values were looked at, and whether that was all of them."""
    if seen < total:
        findings.not_proved.append(f"values sampled: {seen:,} of {total:,}")
    elif total:
        findings.proved.append(f"{total:,} floating-point values looked at for NaN and infinity")


def _blocks(tensor: Tensor, share: int) -> Iterator[tuple[int, int]]:
    """Where the blocks lie that are looked at, and how long they are; none overlaps another."""
    width = LAYOUTS[tensor.dtype].size_bytes
    block = min(_BLOCK_BYTES // width, share)
    blocks = -(-share // block)
    apart, gaps = tensor.count - block, blocks - 1
    if blocks * block >= tensor.count:
        apart, gaps = block, 1  # all of it, side by side
    for number in range(blocks):
        start = number * apart // max(1, gaps)
        yield tensor.offset + start * width, min(block, tensor.count - start) * width
