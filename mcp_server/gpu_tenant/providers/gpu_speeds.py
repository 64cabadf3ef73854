"""How fast each GPU is, by its maker's figures: TFLOPS for each precision, without sparsity, and memory bandwidth.

Each row names the maker's document. The figures were taken from public pages that quote this document. A GPU
without a row has an unknown speed. A figure of None was not found, or the GPU cannot do it.
"""

from typing import Literal, NamedTuple

from gpu_tenant.providers.gpu_catalog import known_gpu

LimitedBy = Literal["memory", "fp32", "tf32", "bf16", "fp16"]
"""What most of the work waits for: the GPU's memory, or arithmetic in one precision."""

READ_ON = "2026-11-23"
"""When the figures below were read."""


class GpuSpeed(NamedTuple):
    """One GPU's peak figures."""

    memory: float
    """Gigabytes a second."""
    fp32: float
    tf32: float | None
    bf16: float | None
    fp16: float | None
    """Half precision on tensor cores, summed in fp32."""
    source: str

    def by(self, what: LimitedBy) -> float | None:
        """Return the figure that matters for work with that limit."""
        figure: float | None = getattr(self, what)
        return figure


_GB200 = "NVIDIA GB200 NVL72 and HGX B200 specifications"
_H100 = "NVIDIA H100 Tensor Core GPU Architecture"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet"
_L40 = "NVIDIA L40 and L40S datasheets"
_ADA = "NVIDIA Ada GPU Architecture"
_V100 = "NVIDIA Tesla V100 datasheet"

SPEEDS: dict[str, GpuSpeed] = {
    "GB200": GpuSpeed(8000, 80, 1250, 2500, 2500, _GB200),
    "B200": GpuSpeed(7700, 75, 1100, 2250, 2250, _GB200),
    "H200": GpuSpeed(4800, 66.9, 494.7, 989.4, 989.4, "NVIDIA H200 Tensor Core GPU datasheet"),
    "H100 SXM": GpuSpeed(3350, 66.9, 494.7, 989.4, 989.4, _H100),
    "A100 SXM 80GB": GpuSpeed(2039, 19.5, 156, 312, 312, _A100),
    "A100 SXM 40GB": GpuSpeed(1555, 19.5, 156, 312, 312, _A100),
    "A100 PCIe 40GB": GpuSpeed(1555, 19.5, 156, 312, 312, _A100),
    "L40S": GpuSpeed(864, 91.6, 183, 362.05, 362.05, _L40),
    "L40": GpuSpeed(864, 90.5, 90.5, 181.05, 181.05, _L40),
    "A40": GpuSpeed(696, 37.4, 74.8, 149.7, 149.7, "NVIDIA A40 datasheet"),
    "V100 SXM 16GB": GpuSpeed(900, 15.7, None, None, 125, _V100),
    "V100 SXM 32GB": GpuSpeed(900, 15.7, None, None, 125, _V100),
    "V100 PCIe 16GB": GpuSpeed(900, 14, None, None, 112, _V100),
    "V100 PCIe 32GB": GpuSpeed(900, 14, None, None, 112, _V100),
    "P100": GpuSpeed(732, 9.3, None, None, 18.7, "NVIDIA Tesla P100 datasheet"),
    "T4": GpuSpeed(320, 8.1, None, None, 65, "NVIDIA T4 Tensor Core GPU datasheet"),
    "RTX 5090": GpuSpeed(1792, 104.8, None, None, None, "NVIDIA RTX Blackwell GPU Architecture"),
    "RTX 4090": GpuSpeed(1008, 82.58, 82.58, 165.2, 165.2, _ADA),
    "RTX 3090": GpuSpeed(936, 35.6, None, None, None, "NVIDIA Ampere GA102 GPU Architecture"),
}
"""The figures of each GPU, by its canonical name as in `gpu_catalog`."""


def speed_of(gpu: str) -> GpuSpeed | None:
    """Return the figures for the GPU of that name. None if they are not known."""
    model = known_gpu(gpu)
    return SPEEDS.get(model.name if model else gpu)
