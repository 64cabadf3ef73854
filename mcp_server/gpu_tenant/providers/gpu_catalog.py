"""The GPUs that can be rented. Each has one canonical name, its memory and its form factor.

Source: the providers' own lists, 2026-11. PCIe and SXM parts of one name are different GPUs. Memory is the amount
that the GPU is sold with, except where the driver counts differently: a B300's 288 GB are 268 GiB.
"""

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from gpu_tenant.domain.errors import BadRequest

Form = Literal["pcie", "sxm", "oam", "superchip"]


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU as it is sold."""

    name: str
    vram_gib: int
    form: Form = "pcie"
    also: tuple[str, ...] = ()
    """Other names that people use for this GPU."""


CATALOG: tuple[GpuModel, ...] = (
    GpuModel("RTX 2080 Ti", 11),
    GpuModel("RTX 3060 Ti", 8),
    GpuModel("RTX 3070 Ti", 8),
    GpuModel("RTX 3070", 8),
    GpuModel("RTX 3080", 10),
    GpuModel("RTX 3080 Ti", 12),
    GpuModel("RTX 3090", 24),
    GpuModel("RTX 3090 Ti", 24),
    GpuModel("RTX 4070 Ti", 12),
    GpuModel("RTX 4060", 8),
    GpuModel("RTX 4070", 12),
    GpuModel("RTX 4070 SUPER", 12, also=("RTX 4070S",)),
    GpuModel("RTX 4070 Ti SUPER", 16, also=("RTX 4070S Ti", "RTX 4070 TiS")),
    GpuModel("RTX 4080", 16),
    GpuModel("RTX 4080 SUPER", 16, also=("RTX 4080S",)),
    GpuModel("RTX 4090", 24),
    GpuModel("RTX 4090D", 24, also=("RTX 4090 D",)),
    GpuModel("RTX 5070", 12),
    GpuModel("RTX 5070 Ti", 16),
    GpuModel("RTX 5080", 16),
    GpuModel("RTX 5090", 32),
    # Cards that NVIDIA sells with less memory, as one Chinese platform lists them.
    GpuModel("RTX 3090 48GB", 48, also=("3090-48G", "vGPU-48GB-350W")),
    GpuModel("RTX 4080 SUPER 32GB", 32, also=("4080(S)-32G", "vGPU-32GB")),
    GpuModel("RTX 4090 48GB", 48, also=("4090-48G", "vGPU-48GB")),
    GpuModel("RTX A2000", 6),
    GpuModel("RTX A4000", 16),
    GpuModel("RTX A4500", 20),
    GpuModel("RTX A5000", 24),
    GpuModel("RTX A6000", 48, also=("A6000",)),
    GpuModel("RTX 2000 Ada", 16),
    GpuModel("RTX 4000 Ada", 20),
    GpuModel("RTX 4000 SFF Ada", 20),
    GpuModel("RTX 4500 Ada", 24),
    GpuModel("RTX 5000 Ada", 32),
    GpuModel("RTX 5880 Ada", 48),
    GpuModel("RTX 6000 Ada", 48, also=("6000 Ada",)),
    GpuModel("RTX PRO 4000", 24),
    GpuModel("RTX PRO 4500", 32),
    GpuModel("RTX PRO 5000", 48),
    GpuModel("RTX PRO 6000", 96),
    GpuModel("RTX PRO 6000 Server", 96, also=("RTX PRO 6000 S",)),
    GpuModel("RTX PRO 6000 Workstation", 96, also=("RTX PRO 6000 WS",)),
    GpuModel("RTX PRO 6000 Max-Q", 96, also=("RTX PRO 6000 Max-Q Workstation",)),
    GpuModel("A10", 24),
    GpuModel("A10G", 24),
    GpuModel("A16", 16),
    GpuModel("A30", 24),
    GpuModel("A40", 48),
    GpuModel("L4", 24),
    GpuModel("L40", 48),
    GpuModel("L40S", 48),
    GpuModel("A100 PCIe 40GB", 40, also=("A100 PCIE 40",)),
    GpuModel("A100 PCIe 80GB", 80, also=("A100 PCIe", "A100 80GB PCIe")),
    GpuModel("A100 SXM 40GB", 40, "sxm", also=("A100 40GB", "A100 SXM4 40GB")),
    GpuModel(
        "A100 SXM 80GB", 80, "sxm", also=("A100 SXM", "A100 SXM4", "A100 80GB", "A100-SXM4-80GB")
    ),
    GpuModel("H100 PCIe", 80),
    GpuModel("H100 NVL", 94),
    GpuModel("H100 SXM", 80, "sxm", also=("H100 SXM5", "H100 80GB HBM3", "H100 80GB")),
    GpuModel("H200", 141, "sxm", also=("H200 SXM",)),
    GpuModel("H200 NVL", 141),
    GpuModel("GH200", 96, "superchip", also=("GH200 SXM",)),
    GpuModel("B200", 180, "sxm"),
    GpuModel("B300", 268, "sxm", also=("B300 SXM6", "B300 SXM6 AC")),
    GpuModel("GB200", 186, "superchip"),
    GpuModel("V100 PCIe 16GB", 16, also=("V100 PCIe",)),
    GpuModel("V100 SXM 16GB", 16, "sxm", also=("V100", "V100 SXM2", "V100-SXM2-16GB")),
    GpuModel("V100 SXM 32GB", 32, "sxm", also=("V100 32GB", "V100-SXM2-32GB")),
    GpuModel("T4", 16, also=("Tesla T4",)),
    GpuModel("P100", 16, also=("Tesla P100",)),
    GpuModel("P40", 24, also=("Tesla P40",)),
    GpuModel("MI300X", 192, "oam", also=("MI300X OAM",)),
)

_AMBIGUOUS = {
    "a100": "A100 SXM 80GB, A100 SXM 40GB, A100 PCIe 80GB or A100 PCIe 40GB",
    "a10080gb": "A100 SXM 80GB or A100 PCIe 80GB",
    "a10040gb": "A100 SXM 40GB or A100 PCIe 40GB",
    "h100": "H100 SXM, H100 PCIe or H100 NVL",
    "h10080gb": "H100 SXM or H100 PCIe",
    "v100": "V100 SXM 32GB, V100 SXM 16GB or V100 PCIe 16GB",
}
"""Names that a person must make more precise. If a provider uses one, it means the GPU that has it in `CATALOG`."""


_SAYS_NOTHING = {
    "nvidia",
    "geforce",
    "tesla",
    "amd",
    "instinct",
    "blackwell",
    "generation",
    "edition",
}


def _fold(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _SAYS_NOTHING)


_BY_NAME = {_fold(called): model for model in CATALOG for called in (model.name, *model.also)}


def known_gpu(name: str) -> GpuModel | None:
    """Return the GPU that a provider or a person means by that name.

    None if unknown: new GPUs appear before any table has them.
    """
    return _BY_NAME.get(_fold(name))


def asked_for(words: str) -> tuple[str, int]:
    """Return the canonical name and the count of words like `RTX 4090`, `rtx4090:2` or `H100 SXM:8`.

    Raises:
        BadRequest: no such GPU is known (the error lists the nearest names), or the name fits several GPUs.
    """
    name, colon, count = words.partition(":")
    if colon and not (count.strip().isdigit() and int(count) > 0):
        raise BadRequest(f"{words!r} has no count after the colon", remedy="write `RTX 4090:2`")
    meant = _AMBIGUOUS.get(_fold(name))
    if meant:
        raise BadRequest(f"{name!r} is sold in several forms", remedy=f"say which: {meant}")
    model = known_gpu(name) or known_gpu(f"RTX {name}")
    if model is not None:
        return model.name, int(count) if colon else 1
    near = difflib.get_close_matches(_fold(name), _BY_NAME, n=8, cutoff=0.4)
    names = list(dict.fromkeys(_BY_NAME[n].name for n in near))[:4]
    raise BadRequest(
        f"no GPU is known as {name!r}",
        remedy=f"did you mean {' or '.join(names)}?" if names else "write it as in `RTX 4090:1`",
    )
