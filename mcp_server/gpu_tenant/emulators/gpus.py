"""The GPUs of a rehearsed box: what its stand-in for `nvidia-smi` says of them, and what can be wrong with them."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gpu_tenant.box.audit.expected_speed import (
    LINK_REACH,
    MEMORY_REACH,
    Speed,
    expected_speed,
    link_gb_s,
)
from gpu_tenant.box.audit.probe import REHEARSED_MARK
from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.providers.gpu_catalog import GpuModel, is_amd, known_gpu

FAULTS: Mapping[str, str] = {
    "gpu_wrong_card": "a box's GPUs are a lesser card than was rented",
    "gpu_half_memory": "a box's GPUs have half the memory that was rented",
    "gpu_missing": "a box has one GPU less than was rented",
    "gpu_slow_clock": "a box's first GPU keeps `amount` of its clock under load; 0.6 when left out",
    "gpu_ecc": "a box's first GPU has `amount` uncorrectable memory errors; 3 when left out",
    "gpu_bad_link": "a box's first GPU has `amount` of its PCIe lanes; a quarter when left out",
    "gpu_busy_neighbour": "somebody else computes on a box's first GPU, in `amount` of its memory; 0.4 when left out",
    "gpu_throttled": "heat holds the clocks of a box's first GPU down to `amount`; 0.7 when left out",
}
"""Every rehearsal with GPUs has these faults. With no box there, one befalls the next box."""

_DRIVER, _CUDA = "570.86.15", "12.8"
_MAKER = {
    r"(GTX|RTX \d0[5-9]0|TITAN)\b.*": "NVIDIA GeForce {}",
    r"(V100|P100|K80|P4|P40|T4|M40)\b.*": "Tesla {}",
    r"Quadro .*": "{}",
}
_AS_THE_DRIVER_SAYS = {
    "H100 SXM": "NVIDIA H100 80GB HBM3",
    "A100 SXM 80GB": "NVIDIA A100-SXM4-80GB",
    "A100 SXM 40GB": "NVIDIA A100-SXM4-40GB",
    "A100 PCIe 80GB": "NVIDIA A100 80GB PCIe",
    "A100 PCIe 40GB": "NVIDIA A100-PCIE-40GB",
    "V100 SXM 16GB": "Tesla V100-SXM2-16GB",
    "V100 SXM 32GB": "Tesla V100-SXM2-32GB",
    "GH200": "NVIDIA GH200 480GB",
    "RTX 4090D": "NVIDIA GeForce RTX 4090 D",
}
_LESSER = ("NVIDIA GeForce RTX 3060", "NVIDIA GeForce GTX 1080 Ti")
"""What a lying host has in place of the card: the second, if the first was rented."""
_SLICE = re.compile(r"(.+) MIG (\d)g\.(\d+)gb")
_MIB = 1024
_IDLE_MIB = 4
_CLOCK_MHZ = 1980
_LANES = 16
_UNKNOWN_SPEED = Speed(20, 80, 500, 4)


class Neighbour(BaseModel):
    """Somebody else's process on a GPU."""

    pid: int
    name: str
    used_mib: int


class RehearsedGpu(BaseModel):
    """One GPU as its driver would describe it, and what is wrong with it."""

    model_config = ConfigDict(extra="forbid")

    name: str
    total_mib: int
    clock_share: float = 1
    """How much of its highest clock it keeps under load."""
    lanes: int = _LANES
    ecc_uncorrected: int = 0
    held_down: tuple[str, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    slices_mib: tuple[int, ...] = ()
    """The memory of each MIG slice. Empty if the GPU is whole."""


class RehearsedGpus(BaseModel):
    """Every GPU of one box."""

    model_config = ConfigDict(extra="forbid")

    driver: str = _DRIVER
    cuda: str = _CUDA
    gpus: tuple[RehearsedGpu, ...]


class GpuFault(BaseModel):
    """One of `FAULTS`, as it befell a box."""

    do: str
    amount: float | None = None


def rented_gpus(
    called: str, count: int, *, vram_gib: float | None = None, cuda: str = _CUDA
) -> RehearsedGpus | None:
    """Return the GPUs of a box that was rented with `count` of what its provider calls `called`.

    None if the box has no GPU, or none of NVIDIA's: such a box has no `nvidia-smi`.
    """
    model = _find_in_catalog(called, vram_gib)
    if count < 1 or not called or is_amd(model.name if model else called):
        return None
    memory_gib = vram_gib or (model.vram_gib if model else None)
    if memory_gib is None:
        return None
    name, slices = model.name if model else called, tuple[int, ...]()
    if sliced := _SLICE.fullmatch(name):
        whole = known_gpu(sliced[1]) or known_gpu(f"{sliced[1]} SXM")
        name, slices = (whole.name if whole else sliced[1]), (int(sliced[3]) * _MIB,) * count
        memory_gib = whole.vram_gib if whole else memory_gib * 7 / int(sliced[2])
        count = 1
    gpu = RehearsedGpu(
        name=f"{_driver_name(name)}{REHEARSED_MARK}",
        total_mib=int(memory_gib * _MIB),
        slices_mib=slices,
    )
    return RehearsedGpus(cuda=cuda, gpus=(gpu,) * count)


def befallen(whole: RehearsedGpus, fault: GpuFault) -> RehearsedGpus:
    """Return the GPUs after the fault."""
    first, *others = whole.gpus
    amount = fault.amount
    match fault.do:
        case "gpu_wrong_card":
            lesser = next(name for name in _LESSER if not first.name.startswith(name))
            changed = {
                "name": f"{lesser}{REHEARSED_MARK}",
                "total_mib": 12 * _MIB,
                "slices_mib": (),
            }
            return _with(whole, [gpu.model_copy(update=changed) for gpu in whole.gpus])
        case "gpu_half_memory":
            return _with(whole, [_halve(gpu) for gpu in whole.gpus])
        case "gpu_missing":
            return _with(whole, others)
        case "gpu_slow_clock":
            first = first.model_copy(update={"clock_share": amount or 0.6})
        case "gpu_throttled":
            held = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_slowdown")
            first = first.model_copy(update={"clock_share": amount or 0.7, "held_down": held})
        case "gpu_ecc":
            first = first.model_copy(update={"ecc_uncorrected": int(amount or 3)})
        case "gpu_bad_link":
            lanes = max(1, int(_LANES * (amount or 0.25)))
            first = first.model_copy(update={"lanes": lanes})
        case _:
            used = int(first.total_mib * (amount or 0.4))
            theirs = Neighbour(pid=4_000_001, name="python3", used_mib=used)
            first = first.model_copy(update={"neighbours": (theirs,)})
    return _with(whole, [first, *others])


def load_figures(whole: RehearsedGpus, draw: Callable[[], float] = lambda: 1) -> dict[str, object]:
    """Return what `scripts/burn.py` would measure on these GPUs. Each figure is multiplied by a number that is drawn."""
    gpus = [_under_load(index, gpu, draw) for index, gpu in enumerate(whole.gpus)]
    disk = {"write_mb_s": 900 * draw(), "bytes": 512 * _MIB**2}
    pairs = [(a, b) for b in range(len(gpus)) for a in range(b)]
    links = [{"a": a, "b": b, "gb_s": 20 * draw()} for a, b in pairs]
    told = {"gpus": gpus, "links": links, "disk": disk, "missed": [], "took_s": 0, "burn": 1}
    return {**told, "rehearsed": True}


def _under_load(index: int, gpu: RehearsedGpu, draw: Callable[[], float]) -> dict[str, object]:
    speed = expected_speed(gpu.name.removesuffix(REHEARSED_MARK)) or _UNKNOWN_SPEED
    theirs_mib = sum(other.used_mib for other in gpu.neighbours)
    # Whoever else computes on it takes about half of its time.
    ours = gpu.clock_share * (0.5 if theirs_mib else 1)
    lane_gb_s = link_gb_s(speed.pcie_gen, gpu.lanes)
    used_mib = _IDLE_MIB + theirs_mib
    return {
        "index": index,
        "name": gpu.name,
        "sm_max_mhz": _CLOCK_MHZ,
        "util_pct": 97 if theirs_mib else 0,
        "used_mib": used_mib,
        "total_mib": gpu.total_mib,
        "pcie_gen_max": speed.pcie_gen,
        "pcie_width_max": _LANES,
        "ecc": gpu.ecc_uncorrected,
        "ecc_after": gpu.ecc_uncorrected,
        "others": [other.name for other in gpu.neighbours],
        "runs": {
            "fp32_tflops": speed.fp32_tflops * speed.reach * ours * draw(),
            "tensor_tflops": speed.tensor_tflops * speed.tensor_reach * ours * draw(),
            "memory_gb_s": speed.memory_gb_s * MEMORY_REACH * (0.6 if theirs_mib else 1) * draw(),
            "to_gpu_gb_s": lane_gb_s * LINK_REACH * draw(),
            "to_host_gb_s": lane_gb_s * LINK_REACH * draw(),
            "filled_bytes": int((gpu.total_mib - used_mib) * _MIB**2 * 0.9),
            "lost_words": 0,
            "wrong": 0,
            "wrong_tensor": 0,
        },
        "watch": {
            "samples": 20,
            "sm_mhz": _CLOCK_MHZ * gpu.clock_share * min(1, draw()),
            "temp_c": 88 if gpu.held_down else 66,
            "pcie_gen": speed.pcie_gen,
            "pcie_width": gpu.lanes,
            "held": dict.fromkeys(gpu.held_down, 1.0),
        },
    }


def put_stand_in(programs: Path, gpus: RehearsedGpus) -> None:
    """`nvidia-smi` in the directory says what these GPUs would say."""
    programs.mkdir(parents=True, exist_ok=True)
    told = {**gpus.model_dump(), "load": load_figures(gpus)}
    replace_file(programs / "gpus.json", json.dumps(told), durable="none")
    source = Path(__file__).with_name("nvidia_smi.py").read_text(encoding="utf-8")
    # It is a file of the standard library alone, and starts often: it needs none of our packages.
    program = programs / "nvidia-smi"
    text = f"#!{sys.executable} -IS\n{source}"
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        replace_file(program, text, durable="none", mode=0o755)


def _find_in_catalog(called: str, vram_gib: float | None) -> GpuModel | None:
    """Find the GPU by the words of its provider, such as `nvidia_h100` or `A100 (40 GB SXM4)`."""
    told = re.fullmatch(r"(?:Tesla )?(.+?) \((\d+) GB ?(\w*)\)", called)
    name, gib, form = told.groups() if told else (called.replace("_", " "), vram_gib, "")
    if called == "nvidia-tesla-a100":  # Google's name of the smaller one
        return known_gpu("A100 SXM 40GB")
    tried = (f"{name} {form} {float(gib or 0):g}GB", f"{name} {form}", name)
    return next((model for words in tried if (model := known_gpu(words)) is not None), None)


def _with(whole: RehearsedGpus, gpus: list[RehearsedGpu]) -> RehearsedGpus:
    return whole.model_copy(update={"gpus": tuple(gpus)})


def _halve(gpu: RehearsedGpu) -> RehearsedGpu:
    halves = tuple(mib // 2 for mib in gpu.slices_mib)
    return gpu.model_copy(update={"total_mib": gpu.total_mib // 2, "slices_mib": halves})


def _driver_name(name: str) -> str:
    said = _AS_THE_DRIVER_SAYS.get(name)
    plain = re.sub(r" \d+GB$", "", name)
    patterns = (form.format(plain) for like, form in _MAKER.items() if re.fullmatch(like, plain))
    return said or next(patterns, f"NVIDIA {plain}")
