"""How much GPU memory a job will need, as estimated from a smoke test on the CPU."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from gpu_tenant.domain.record import Record

GIB = 2**30

Fit = Literal["fits", "tight", "too small"]


class GpuMemory(Record):
    """An estimate of the memory that one process of a job will have of one GPU."""

    estimate_bytes: int = Field(description="as the driver counts it for the process")
    low_bytes: int
    high_bytes: int
    parts: Mapping[str, int] = Field(description="what the estimate adds up, in bytes")
    words: str

    @property
    def figures(self) -> str:
        """The estimate and its range, in short."""
        low, most = self.low_bytes / GIB, self.high_bytes / GIB
        return f"{self.estimate_bytes / GIB:.1f} GiB ({low:.1f} to {most:.1f})"

    def fit(self, vram_gib: float | None) -> Fit | None:
        """Return whether the job fits a GPU with this much memory. None if `vram_gib` is unknown."""
        if vram_gib is None:
            return None
        has = vram_gib * GIB
        return "too small" if has < self.low_bytes else "tight" if has < self.high_bytes else "fits"

    def warning(self, vram_gib: float | None, smoke: str) -> str | None:
        """Return a warning if a GPU with this much memory may be too small for the tested job. None if it fits."""
        match self.fit(vram_gib):
            case "too small":
                return (
                    f"{vram_gib:g} GiB is too small, by the estimate of {smoke}: the job needs {self.figures} of each "
                    "GPU's memory at the smoke test's batch size"
                )
            case "tight":
                return (
                    f"{vram_gib:g} GiB is tight, by the estimate of {smoke}: the job needs {self.figures} of each "
                    "GPU's memory at the smoke test's batch size"
                )
            case _:
                return None


class MemoryTest(Record):
    """A smoke test, and how much memory its job will need by that test."""

    smoke: str
    memory: GpuMemory
