"""How fast a GPU should be under load: its maker's figures, and the share of them that a sound card reaches.

The figures come from `providers/gpu_speeds.py`, where each row names its source. The table here is for cards that are
missing there. Its figures are commonly known, and were not compared with the data sheets. They are TFLOPS without
sparsity, with sums in 32 bits, and GB/s. The shares are estimates: none was measured on a card.
"""

from typing import NamedTuple

from gpu_tenant.providers.gpu_catalog import known_gpu
from gpu_tenant.providers.gpu_speeds import speed_of


class Speed(NamedTuple):
    """The figures of one GPU, as its maker states them."""

    fp32_tflops: float
    tensor_tflops: float
    memory_gb_s: float
    pcie_gen: int
    reach: float = 0.85
    """The share of its peak arithmetic that the GPU can keep up for a minute. A low power limit makes it smaller."""
    tensor_reach: float = 0.8


SOURCE = "its maker's figure"
MEMORY_REACH = 0.85
"""A copy within the GPU reaches this share of the memory bandwidth."""
LINK_REACH = 0.75
"""A copy from the host reaches this share of the bandwidth of the PCIe lanes."""
LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""The bandwidth of one PCIe lane in one direction, in GB/s, by its generation."""

_LOW_POWER = (0.6, 0.5)
_HOPPER = (0.8, 0.5)
"""The load uses a kind of matrix product that every card has.

On Hopper this kind reaches only some six tenths of the maker's figure.
"""

_SPEEDS = {
    "RTX 2080 Ti": Speed(13.4, 53.8, 616, 3),
    "RTX 3060": Speed(12.7, 25.5, 360, 4),
    "RTX 3070": Speed(20.3, 40.6, 448, 4),
    "RTX 3080": Speed(29.8, 59.5, 760, 4),
    "RTX 3080 Ti": Speed(34.1, 68.2, 912, 4),
    "RTX 3090": Speed(35.6, 71.0, 936, 4),
    "RTX 3090 Ti": Speed(40.0, 80.0, 1008, 4),
    "RTX 4070": Speed(29.1, 58.3, 504, 4),
    "RTX 4070 Ti": Speed(40.1, 80.2, 504, 4),
    "RTX 4080": Speed(48.7, 97.5, 717, 4),
    "RTX 4080 SUPER": Speed(52.2, 104.4, 736, 4),
    "RTX 4090": Speed(82.6, 165.2, 1008, 4),
    "RTX 5080": Speed(56.3, 112.6, 960, 5),
    "RTX 5090": Speed(104.8, 209.5, 1792, 5),
    "RTX A4000": Speed(19.2, 76.7, 448, 4, 0.75, 0.6),
    "RTX A5000": Speed(27.8, 111.1, 768, 4, 0.8, 0.65),
    "RTX A6000": Speed(38.7, 154.8, 768, 4, 0.8, 0.65),
    "RTX 6000 Ada": Speed(91.1, 364.2, 960, 4, 0.75, 0.6),
    "V100 SXM 16GB": Speed(15.7, 125.0, 900, 3),
    "V100 SXM 32GB": Speed(15.7, 125.0, 900, 3),
    "V100 PCIe 16GB": Speed(14.0, 112.0, 900, 3),
    "V100 PCIe 32GB": Speed(14.0, 112.0, 900, 3),
    "T4": Speed(8.1, 65.0, 320, 3, *_LOW_POWER),
    "A10": Speed(31.2, 125.0, 600, 4, *_LOW_POWER),
    "A30": Speed(10.3, 165.0, 933, 4, 0.8, 0.65),
    "A40": Speed(37.4, 149.7, 696, 4, 0.75, 0.6),
    "L4": Speed(30.3, 121.0, 300, 4, *_LOW_POWER),
    "L40": Speed(90.5, 181.0, 864, 4, 0.7, 0.6),
    "L40S": Speed(91.6, 362.0, 864, 4, 0.75, 0.6),
    "A100 PCIe 40GB": Speed(19.5, 312.0, 1555, 4),
    "A100 PCIe 80GB": Speed(19.5, 312.0, 1935, 4),
    "A100 SXM 40GB": Speed(19.5, 312.0, 1555, 4),
    "A100 SXM 80GB": Speed(19.5, 312.0, 2039, 4),
    "A800 SXM 80GB": Speed(19.5, 312.0, 2039, 4),
    "H20": Speed(44.0, 148.0, 4000, 5),
    "H100 PCIe": Speed(51.0, 756.0, 2000, 5, 0.7, 0.45),
    "H100 NVL": Speed(60.0, 835.0, 3900, 5, 0.7, 0.45),
    "H100 SXM": Speed(67.0, 989.0, 3350, 5, *_HOPPER),
    "H800 SXM": Speed(67.0, 989.0, 3350, 5, *_HOPPER),
    "H200": Speed(67.0, 989.0, 4800, 5, *_HOPPER),
    "GH200": Speed(67.0, 990.0, 4000, 5, *_HOPPER),
}


def expected_speed(name: str) -> Speed | None:
    """Return the expected speed of the GPU of that name. None if no figures are known for it."""
    model, told = known_gpu(name), speed_of(name)
    own = _SPEEDS.get(model.name) if model else None
    if told is None:
        return own
    # The share of the tensor cores' figure that this load reaches is known only for the cards of our own table.
    tensor = (told.bf16 or told.fp16 or own.tensor_tflops) if own else 0
    found = (own or Speed(0, 0, 0, 4))._replace(fp32_tflops=told.fp32, memory_gb_s=told.memory)
    return found._replace(tensor_tflops=tensor)


def link_gb_s(gen: int, width: int) -> float:
    """Return the bandwidth of that many PCIe lanes in one direction, in GB/s."""
    return LANE_GB_S.get(gen, LANE_GB_S[6]) * width
