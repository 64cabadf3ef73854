"""How much of a GPU's memory a job will want, as far as a smoke test could tell."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from gpu_tenant.domain.record import Record

GIB = 2**30


class GpuMemory(Record):
    """An estimate of the memory that one process of the job will have of one GPU."""

    bytes: int = Field(description="what the driver will count for the process")
    low_bytes: int
    high_bytes: int
    parts: Mapping[str, int] = Field(description="what it consists of, in bytes")
    words: str

    def fits(self, vram_gib: float | None) -> Literal["yes", "tight", "no"] | None:
        """Whether it fits on a GPU with that much memory. None if that is unknown."""
        if vram_gib is None:
            return None
        has = vram_gib * GIB
        return "no" if has < self.low_bytes else "tight" if has < self.high_bytes else "yes"
