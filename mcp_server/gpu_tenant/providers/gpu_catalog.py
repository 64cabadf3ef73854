"""The GPUs that can be rented. Each has one canonical name, its memory and its form factor.

Source: the providers' own lists, 2026-11. PCIe and SXM parts of one name are different GPUs. Memory is the amount
that the GPU is sold with, except where the driver counts differently: a B300's 288 GB are 268 GiB.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from gpu_tenant.domain.command import Option
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.offers import ALTERNATIVE_SEPARATOR, VARIANT_SEPARATOR

Form = Literal["pcie", "sxm", "oam", "superchip"]


class GpuModel(NamedTuple):
    """One GPU as it is sold."""

    name: str
    vram_gib: int
    form: Form = "pcie"
    also: tuple[str, ...] = ()
    """Other names that people use for this GPU."""


CATALOG: tuple[GpuModel, ...] = (
    # GeForce and TITAN
    GpuModel("GTX 750 Ti", 2),
    GpuModel("GTX 970", 4, also=("GeForce 970",)),
    GpuModel("GTX 1050", 2),
    GpuModel("GTX 1050 Ti", 4),
    GpuModel("GTX 1060", 6),
    GpuModel("GTX 1070", 8),
    GpuModel("GTX 1070 Ti", 8),
    GpuModel("GTX 1080", 8),
    GpuModel("GTX 1080 Ti", 11),
    GpuModel("GTX 1650", 4),
    GpuModel("GTX 1650 SUPER", 4, also=("GTX 1650 S",)),
    GpuModel("GTX 1650 Ti", 4),
    GpuModel("GTX 1660", 6),
    GpuModel("GTX 1660 SUPER", 6, also=("GTX 1660 S",)),
    GpuModel("GTX 1660 Ti", 6),
    GpuModel("GTX TITAN X", 12),
    GpuModel("TITAN X", 12),
    GpuModel("TITAN Xp", 12),
    GpuModel("TITAN V", 12),
    GpuModel("TITAN V CEO", 32),
    GpuModel("TITAN RTX", 24),
    GpuModel("RTX 2060", 6),
    GpuModel("RTX 2060 12GB", 12),
    GpuModel("RTX 2060 SUPER", 8, also=("RTX 2060S",)),
    GpuModel("RTX 2070", 8),
    GpuModel("RTX 2070 SUPER", 8, also=("RTX 2070S",)),
    GpuModel("RTX 2080", 8),
    GpuModel("RTX 2080 SUPER", 8, also=("RTX 2080S",)),
    GpuModel("RTX 2080 Ti", 11),
    GpuModel("RTX 2080 Ti 22GB", 22),
    GpuModel("RTX 3050", 8),
    GpuModel("RTX 3050 6GB", 6),
    GpuModel("RTX 3060", 12),
    GpuModel("RTX 3060 8GB", 8),
    GpuModel("RTX 3060 Laptop", 6),
    GpuModel("RTX 3060 Ti", 8),
    GpuModel("RTX 3070", 8),
    GpuModel("RTX 3070 Laptop", 8),
    GpuModel("RTX 3070 Ti", 8),
    GpuModel("RTX 3080", 10),
    GpuModel("RTX 3080 12GB", 12),
    GpuModel("RTX 3080 Ti", 12),
    GpuModel("RTX 3090", 24),
    GpuModel("RTX 3090 Ti", 24),
    GpuModel("RTX 4060", 8),
    GpuModel("RTX 4060 Laptop", 8),
    GpuModel("RTX 4060 Ti", 8),
    GpuModel("RTX 4060 Ti 16GB", 16),
    GpuModel("RTX 4070", 12),
    GpuModel("RTX 4070 Laptop", 8),
    GpuModel("RTX 4070 SUPER", 12, also=("RTX 4070S",)),
    GpuModel("RTX 4070 Ti", 12),
    GpuModel("RTX 4070 Ti SUPER", 16, also=("RTX 4070S Ti", "RTX 4070 TiS")),
    GpuModel("RTX 4080", 16),
    GpuModel("RTX 4080 Laptop", 12),
    GpuModel("RTX 4080 SUPER", 16, also=("RTX 4080S",)),
    GpuModel("RTX 4090", 24),
    GpuModel("RTX 4090 Laptop", 16),
    GpuModel("RTX 4090D", 24, also=("RTX 4090 D",)),
    GpuModel("RTX 5050", 8),
    GpuModel("RTX 5060", 8),
    GpuModel("RTX 5060 Ti", 8),
    GpuModel("RTX 5060 Ti 16GB", 16),
    GpuModel("RTX 5070", 12),
    GpuModel("RTX 5070 Ti", 16),
    GpuModel("RTX 5080", 16),
    GpuModel("RTX 5090", 32),
    GpuModel("RTX 5090D", 32, also=("RTX 5090 D",)),
    # Cards that NVIDIA sells with less memory, as one Chinese platform lists them.
    GpuModel("RTX 3090 48GB", 48, also=("3090-48G", "vGPU-48GB-350W")),
    GpuModel("RTX 4080 SUPER 32GB", 32, also=("4080(S)-32G", "vGPU-32GB")),
    GpuModel("RTX 4090 48GB", 48, also=("4090-48G", "vGPU-48GB")),
    GpuModel("RTX 4090D 48GB", 48, also=("4090D-48G",)),
    # Workstations
    GpuModel("Quadro K620", 2),
    GpuModel("Quadro K2200", 4),
    GpuModel("Quadro P2000", 5),
    GpuModel("Quadro P4000", 8),
    GpuModel("Quadro P5000", 16),
    GpuModel("Quadro P6000", 24),
    GpuModel("Quadro GP100", 16),
    GpuModel("Quadro GV100", 32),
    GpuModel("Quadro RTX 4000", 8, also=("Q RTX 4000",)),
    GpuModel("Quadro RTX 5000", 16, also=("Q RTX 5000",)),
    GpuModel("Quadro RTX 6000", 24, also=("Q RTX 6000", "RTX 6000")),
    GpuModel("Quadro RTX 8000", 48, also=("Q RTX 8000", "RTX 8000")),
    GpuModel("RTX A2000", 6),
    GpuModel("RTX A2000 12GB", 12),
    GpuModel("RTX A4000", 16),
    GpuModel("RTX A4500", 20),
    GpuModel("RTX A5000", 24),
    GpuModel("RTX A5500", 24),
    GpuModel("RTX A6000", 48, also=("A6000",)),
    GpuModel("RTX 2000 Ada", 16),
    GpuModel("RTX 4000 Ada", 20),
    GpuModel("RTX 4000 SFF Ada", 20),
    GpuModel("RTX 4500 Ada", 24),
    GpuModel("RTX 5000 Ada", 32),
    GpuModel("RTX 5880 Ada", 48),
    GpuModel("RTX 6000 Ada", 48, also=("6000 Ada",)),
    GpuModel("RTX PRO 2000", 16),
    GpuModel("RTX PRO 4000", 24),
    GpuModel("RTX PRO 4500", 32),
    GpuModel("RTX PRO 5000", 48),
    GpuModel("RTX PRO 6000", 96),
    GpuModel("RTX PRO 6000 Server", 96, also=("RTX PRO 6000 S", "RTX PRO Server 6000")),
    GpuModel("RTX PRO 6000 Workstation", 96, also=("RTX PRO 6000 WS",)),
    GpuModel("RTX PRO 6000 Max-Q", 96, also=("RTX PRO 6000 Max-Q Workstation",)),
    # Data centers
    GpuModel("K80", 12),
    GpuModel("M40", 12),
    GpuModel("P4", 8),
    GpuModel("P6", 16),
    GpuModel("P40", 24),
    GpuModel("P100", 16),
    GpuModel("V100 PCIe 16GB", 16, also=("V100 PCIe", "V100 FHHL 16GB")),
    GpuModel("V100 PCIe 32GB", 32),
    GpuModel("V100 SXM 16GB", 16, "sxm", also=("V100", "V100 SXM2", "V100-SXM2-16GB")),
    GpuModel("V100 SXM 32GB", 32, "sxm", also=("V100 32GB", "V100-SXM2-32GB")),
    GpuModel("T4", 16),
    GpuModel("T4G", 16),
    GpuModel("A2", 16),
    GpuModel("A10", 24),
    GpuModel("A10G", 24),
    GpuModel("A16", 16),
    GpuModel("A30", 24, also=("RTX A30",)),
    GpuModel("A40", 48),
    GpuModel("L2", 24),
    GpuModel("L4", 24),
    GpuModel("L20", 48),
    GpuModel("L40", 48),
    GpuModel("L40S", 48),
    GpuModel("A100 PCIe 40GB", 40, also=("A100 PCIE 40",)),
    GpuModel("A100 PCIe 80GB", 80, also=("A100 PCIe", "A100 80GB PCIe")),
    GpuModel("A100 SXM 40GB", 40, "sxm", also=("A100 40GB", "A100 SXM4 40GB")),
    GpuModel(
        "A100 SXM 80GB", 80, "sxm", also=("A100 SXM", "A100 SXM4", "A100 80GB", "A100-SXM4-80GB")
    ),
    GpuModel("A100X", 80),
    GpuModel("A800 PCIe 40GB", 40),
    GpuModel("A800 PCIe 80GB", 80, also=("A800 PCIe", "A800 80GB PCIe")),
    GpuModel("A800 SXM 80GB", 80, "sxm", also=("A800 SXM4", "A800-SXM4-80GB", "A800 80GB")),
    GpuModel("H20", 96, "sxm", also=("H20 SXM", "H20 NVLink", "H20-96GB")),
    GpuModel("H20 141GB", 141, "sxm", also=("H20-3e",)),
    GpuModel("H800 PCIe", 80),
    GpuModel("H800 SXM", 80, "sxm", also=("H800 SXM5", "H800 80GB")),
    GpuModel("H100 PCIe", 80),
    GpuModel("H100 NVL", 94),
    GpuModel(
        "H100 SXM", 80, "sxm", also=("H100 SXM5", "H100 80GB HBM3", "H100 80GB", "H100 mega 80GB")
    ),
    GpuModel("H200", 141, "sxm", also=("H200 SXM", "H200 SXM5", "H200 141GB")),
    GpuModel("H200 NVL", 141),
    GpuModel("GH200", 96, "superchip", also=("GH200 SXM", "GH200 480GB")),
    GpuModel("B200", 180, "sxm", also=("B200 SXM",)),
    GpuModel("B300", 268, "sxm", also=("B300 SXM6", "B300 SXM6 AC")),
    GpuModel("GB200", 186, "superchip"),
    GpuModel("GB300", 268, "superchip"),
    # Boards for mining
    GpuModel("CMP 50HX", 10),
    GpuModel("CMP 170HX", 8),
    GpuModel("P104-100", 8),
    GpuModel("P106-100", 6),
    # AMD
    GpuModel("MI50", 16, also=("InstinctMI50",)),
    GpuModel("MI100", 32, also=("InstinctMI100",)),
    GpuModel("MI210", 64, also=("InstinctMI210",)),
    GpuModel("MI250", 128, "oam"),
    GpuModel("MI250X", 128, "oam", also=("InstinctMI250X",)),
    GpuModel("MI300A", 128, "superchip"),
    GpuModel("MI300X", 192, "oam", also=("MI300X OAM",)),
    GpuModel("MI325X", 256, "oam"),
    GpuModel("MI350X", 288, "oam"),
    GpuModel("MI355X", 288, "oam"),
    GpuModel("PRO V620", 32),
    GpuModel("PRO W6800", 32),
    GpuModel("PRO W7800", 32),
    GpuModel("PRO W7900", 48),
    GpuModel("Radeon VII", 16),
    GpuModel("Radeon PRO VII", 16),
    GpuModel("RX 6800", 16),
    GpuModel("RX 6800 XT", 16),
    GpuModel("RX 6900 XT", 16),
    GpuModel("RX 6950 XT", 16),
    GpuModel("RX 7600", 8),
    GpuModel("RX 7700 XT", 12),
    GpuModel("RX 7800 XT", 16),
    GpuModel("RX 7900 GRE", 16),
    GpuModel("RX 7900 XT", 20),
    GpuModel("RX 7900 XTX", 24),
)

_FAMILIES: dict[str, tuple[str, ...]] = {
    "RTX 2060": ("RTX 2060", "RTX 2060 12GB"),
    "RTX 3050": ("RTX 3050", "RTX 3050 6GB"),
    "RTX 3060": ("RTX 3060", "RTX 3060 8GB"),
    "RTX 3080": ("RTX 3080", "RTX 3080 12GB"),
    "RTX 4060 Ti": ("RTX 4060 Ti", "RTX 4060 Ti 16GB"),
    "RTX 5060 Ti": ("RTX 5060 Ti", "RTX 5060 Ti 16GB"),
    "RTX 6000": ("RTX 6000 Ada", "Quadro RTX 6000"),
    "RTX PRO 6000": (
        "RTX PRO 6000",
        "RTX PRO 6000 Server",
        "RTX PRO 6000 Workstation",
        "RTX PRO 6000 Max-Q",
    ),
    "V100": ("V100 SXM 32GB", "V100 PCIe 32GB", "V100 SXM 16GB", "V100 PCIe 16GB"),
    "V100 16GB": ("V100 SXM 16GB", "V100 PCIe 16GB"),
    "V100 32GB": ("V100 SXM 32GB", "V100 PCIe 32GB"),
    "A100": ("A100 SXM 80GB", "A100 PCIe 80GB", "A100 SXM 40GB", "A100 PCIe 40GB"),
    "A100 40GB": ("A100 SXM 40GB", "A100 PCIe 40GB"),
    "A100 80GB": ("A100 SXM 80GB", "A100 PCIe 80GB"),
    "A800": ("A800 SXM 80GB", "A800 PCIe 80GB", "A800 PCIe 40GB"),
    "A800 80GB": ("A800 SXM 80GB", "A800 PCIe 80GB"),
    "H20": ("H20", "H20 141GB"),
    "H100": ("H100 SXM", "H100 PCIe", "H100 NVL"),
    "H100 80GB": ("H100 SXM", "H100 PCIe"),
    "H200": ("H200", "H200 NVL"),
    "H800": ("H800 SXM", "H800 PCIe"),
}
"""Names that people use for several GPUs, with the GPUs that each name may mean.

If a provider uses such a name, it means the one GPU that has it in `CATALOG`.
"""


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
_MIG = re.compile(r"(.+?)[\s-]*(?:MIG)?[\s-]*([1-7])g\.(\d+)gb", re.IGNORECASE)
"""The name of a slice of a GPU, as `nvidia-smi` writes it: how many of the seven parts it has, and its memory."""


def _fold(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _SAYS_NOTHING)


_BY_NAME = {_fold(called): model for model in CATALOG for called in (model.name, *model.also)}
_FAMILY = {_fold(called): names for called, names in _FAMILIES.items()}


@lru_cache(maxsize=4096)
def known_gpu(name: str) -> GpuModel | None:
    """Return the GPU that a provider or a person means by that name.

    None if unknown: new GPUs appear before any table has them.
    """
    model = _BY_NAME.get(_fold(name))
    if model is None and (slice_ := _MIG.fullmatch(name.strip())):
        whole, parts, gib = slice_.groups()
        several = _FAMILY.get(_fold(whole), ())
        base = known_gpu(several[0] if several else whole)
        if base is not None:
            called = whole.upper() if several else base.name
            return GpuModel(f"{called} MIG {parts}g.{gib}gb", int(gib), base.form)
    return model


def is_amd(name: str) -> bool:
    """Whether a GPU of that name is AMD's, for which there is no `nvidia-smi`."""
    amd = r"(AMD|Instinct|MI\d{2}|PRO [VW]\d|Radeon|RX \d)"
    return re.match(amd, name, re.IGNORECASE) is not None


def same_gpu(rented: str, seen: str) -> bool | None:
    """Whether the driver's name `seen` means the GPU that was rented. Memory does not count. None if unknown.

    A driver gives the same name to cards that are sold with different memory.
    """
    if _without_memory(rented) == _without_memory(seen):
        return True
    rented, seen = (re.sub(r" MIG\b.*", "", name) for name in (rented, seen))
    known, found, family = known_gpu(rented), known_gpu(seen), _FAMILY.get(_fold(rented), ())
    if found is None or (known is None and not family):
        return None
    names = {_without_memory(name) for name in (*family, *([known.name] if known else []))}
    return _without_memory(found.name) in names


def _without_memory(name: str) -> str:
    model = known_gpu(name)
    return _fold(re.sub(r"[ -]?\d+ ?GB\b", "", model.name if model else name, flags=re.I))


def described_gpus(words: str) -> tuple[str, int]:
    """Parse words like `RTX 4090` or `H100 SXM:8`, which say what a machine has, into a canonical name and a count.

    Raises:
        BadRequest: no such GPU is known (the error lists the nearest names), or the name stands for several GPUs.
    """
    name, count = _split_count(words)
    model = known_gpu(name) or known_gpu(f"RTX {name}")
    several = _FAMILY.get(_fold(name), ())
    if several and (model is None or _fold(model.name) != _fold(name)):
        raise BadRequest(f"{name!r} is sold in several forms", remedy=f"say which: {_or(several)}")
    if model is not None:
        return model.name, count
    near = nearest_names(name)
    raise BadRequest(
        f"no GPU is known as {name!r}",
        remedy=f"did you mean {_or(near)}?" if near else "write it as in `RTX 4090:1`",
    )


_MOST_GPUS = 1024
"""No box has more GPUs."""


def wished_gpus(words: str) -> tuple[str, int]:
    """Return what may be rented by words like `H100:8` or `RTX 4090 | RTX 3090`, and how many GPUs in one box.

    What may be rented is written as in `Wish.gpu`. A name that stands for several GPUs wishes for any
    of them. A name that no table has is passed on unchanged, because a provider may know it.

    Raises:
        BadRequest: an alternative is empty, or the alternatives differ in their counts.
    """
    counted = [_split_count(part) for part in words.split("|")]
    counts = {count for _, count in counted}
    if len(counts) > 1:
        most = max(counts)
        remedy = f"write `{' | '.join(f'{name}:{most}' for name, _ in counted)}`"
        raise BadRequest("the GPUs differ in their counts", remedy=remedy)
    return ALTERNATIVE_SEPARATOR.join(
        VARIANT_SEPARATOR.join(_forms(name)) for name, _ in counted
    ), counts.pop()


_MEMORY = re.compile(r"(\d+) ?G(i?B)?( (V?RAM|card|GPU|memory))?", re.IGNORECASE)


def is_unknown(words: str) -> bool:
    """Whether no table here has any GPU of these words, which are written as for `wished_gpus`."""
    gpu, _ = wished_gpus(words)
    names = gpu.replace(VARIANT_SEPARATOR, ALTERNATIVE_SEPARATOR).split(ALTERNATIVE_SEPARATOR)
    return all(known_gpu(name) is None for name in names)


def _split_count(words: str) -> tuple[str, int]:
    name, colon, count = (part.strip() for part in words.partition(":"))
    if memory := _MEMORY.fullmatch(name):
        raise BadRequest(
            f"{name!r} is an amount of memory, and no GPU",
            remedy=f"leave the name out, and say {Option('vram-gib', memory[1])}",
        )
    if colon and not (count.isdigit() and 0 < int(count) <= _MOST_GPUS):
        raise BadRequest(
            f"{words!r} has no count after the colon, from 1 to {_MOST_GPUS}",
            remedy="write `RTX 4090:2`",
        )
    if not _fold(name) and not name.strip("| "):
        raise BadRequest(f"{words!r} names no GPU", remedy="write it as in `RTX 4090:1`")
    return name, int(count) if colon else 1


def _forms(name: str) -> tuple[str, ...]:
    several = _FAMILY.get(_fold(name)) or _FAMILY.get(_fold(f"RTX {name}"))
    if several:
        return several
    model = known_gpu(name) or known_gpu(f"RTX {name}")
    # The separators of a wish are not part of any name.
    return (model.name if model else " ".join(name.replace("/", " ").split()),)


def nearest_names(name: str) -> list[str]:
    """Return at most four canonical names that are spelled like `name`, the nearest first."""
    from difflib import get_close_matches

    near = get_close_matches(_fold(name), _BY_NAME, n=8, cutoff=0.4)
    return list(dict.fromkeys(_BY_NAME[n].name for n in near))[:4]


def _or(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
