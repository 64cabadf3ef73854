"""Turns the raw texts that `scripts/probe.py` collected on a box into records with numbers and names."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import plain

GIB = 1024**3
MIB = 1024**2
REHEARSED = "a rehearsal's GPU"
"""This marks the name of a GPU that does not exist: a rehearsal only simulates it."""
REHEARSED_MARK = f" ({REHEARSED})"
_MOST = 64
"""At most this many GPUs, places and kinds of faults are reported, because a box may list any number of them."""


Count = Annotated[int, Field(ge=0, le=2**63)]
"""A number from a box, limited to a range in which calculations cannot overflow."""


class ProbePart(BaseModel):
    """A part of the probe's answer. A part that failed has an error and nothing else.

    Unlike our own records, a part may have unknown fields: the probe on a box may be a newer one.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", str_max_length=2_000_000)

    error: str | None = None


class SeenClock(ProbePart):
    """The box's own clock when the probe began and when it ended, in seconds since 1970."""

    started_s: float | None = Field(default=None, allow_inf_nan=False)
    ended_s: float | None = Field(default=None, allow_inf_nan=False)


class SeenSystem(ProbePart):
    """The kernel, and how long the system has been running."""

    kernel: str | None = None
    boot_id: str | None = None
    uptime_s: float | None = None
    open_files: int | None = None


class SeenCpu(ProbePart):
    """The CPU cores of the host, and the cores that we may use."""

    model: str | None = None
    host_cores: Count | None = None
    affinity: Count | None = None
    load: str | None = None


class SeenGroup(ProbePart):
    """The limit files of one control group, by file name."""

    directory: str = ""
    files: dict[str, str] = {}


class SeenCgroup(ProbePart):
    """All control groups to which our process belongs, of cgroup versions 1 and 2."""

    groups: tuple[SeenGroup, ...] = ()


class SeenMemory(ProbePart):
    """The text of /proc/meminfo: the memory of the whole host, not only of the box."""

    meminfo: str | None = None


class SeenSmi(ProbePart):
    """What `nvidia-smi -q -x` printed."""

    missing: bool = False
    status: int | None = None
    out: str = ""
    err: str = ""


class SeenDevices(ProbePart):
    """The GPUs as the kernel shows them, independent of `nvidia-smi`."""

    nodes: tuple[str, ...] = ()
    buses: tuple[str, ...] = ()
    module: str | None = None


class SeenKernelLog(ProbePart):
    """The lines of the kernel log that are about NVIDIA's driver."""

    lines: tuple[str, ...] = ()


class SeenPlace(ProbePart):
    """One directory, and the filesystem it is on."""

    role: str
    path: str
    mount: str | None = None
    kind: str | None = None
    options: str | None = None
    device: Count | None = None
    total_bytes: Count = 0
    free_bytes: Count = 0
    total_inodes: Count = 0
    free_inodes: Count = 0
    files: Count | None = None


class SeenDisks(ProbePart):
    """The directories that matter and the mounts above 1 GB."""

    places: Annotated[tuple[SeenPlace, ...], AfterValidator(lambda seen: seen[:_MOST])] = ()


class SeenWrite(ProbePart):
    """Whether a few bytes that were written to a directory were read back unchanged."""

    path: str = ""
    same: bool = False


class SeenWrites(ProbePart):
    """A write test in each directory to which we will write."""

    home: SeenWrite | None = None
    work: SeenWrite | None = None


class SeenPython(ProbePart):
    """The python3 that ran the probe."""

    version: str | None = None
    path: str | None = None


class SeenTorch(ProbePart):
    """PyTorch, as that python3 imports it."""

    missing: bool = False
    version: str | None = None
    built_for_cuda: str | None = None
    cuda_available: bool | None = None


class SeenOther(ProbePart):
    """Programs of the same name that another user runs."""

    uid: Count
    user: str
    name: str
    count: Count


class SeenGpuUser(ProbePart):
    """A process that holds a GPU's device open."""

    pid: Count
    uid: Count
    name: str


class SeenProcesses(ProbePart):
    """Which programs run, as far as we are allowed to see them."""

    others: tuple[SeenOther, ...] = ()
    on_gpu: tuple[SeenGpuUser, ...] = ()
    pids_seen_from: str = "host"


class SeenUser(ProbePart):
    """The user as which we are logged in on the box."""

    uid: Count | None = None
    name: str | None = None


class SeenReach(ProbePart):
    """Whether the box could open a connection to a host."""

    address: str | None = None
    took_s: float | None = None


AnyPart = TypeVar("AnyPart", bound=ProbePart)


def part(observed: Mapping[str, object], name: str, kind: type[AnyPart]) -> AnyPart:
    """Return the part of that name. If it cannot be read, return a part whose `error` says why.

    This never raises an error, whatever a box sends.
    """
    if name not in observed:
        return kind(error="the probe did not report this part")
    try:
        return kind.model_validate(observed[name])
    except ValidationError as trouble:
        first = trouble.errors(include_url=False, include_input=False)[0]
        return kind(error=f"unreadable: {first['msg']}")


class GpuProcess(Record):
    """A process that the driver lists on a GPU. Inside a container, its pid is the host's."""

    pid: int
    name: str
    used_bytes: int | None


class Gpu(Record):
    """One GPU, as its driver describes it. None where the driver says nothing."""

    index: int
    name: str
    uuid: str
    bus: str = Field(description="PCI address as 0000:3b:00, without the function")
    total_bytes: int | None
    used_bytes: int | None
    temperature_c: int | None
    slowdown_c: int | None
    ecc_uncorrected: int | None = Field(description="uncorrectable memory errors since boot")
    remap_pending: bool
    remap_failed: bool
    throttles: tuple[str, ...]
    processes: tuple[GpuProcess, ...]


class Driver(Record):
    """What nvidia-smi reported about the driver and all its GPUs."""

    version: str | None
    cuda: str | None
    gpus: tuple[Gpu, ...]


def read_smi(xml: str) -> Driver | None:
    """Read the driver and its GPUs. None if the text is not what `nvidia-smi -q -x` prints."""
    if "<!ENTITY" in xml:
        return None
    try:
        log = ET.fromstring(xml)  # noqa: S314 (no entities; the size is bounded by the probe's)
    except (ET.ParseError, ValueError):
        return None
    if log.tag != "nvidia_smi_log":
        return None
    return Driver(
        version=_text_at(log, "driver_version"),
        cuda=_text_at(log, "cuda_version"),
        gpus=tuple(
            gpu.model_copy(update={"index": index})
            for index, gpu in enumerate(
                [one for gpu in log.findall("gpu")[:_MOST] for one in _gpu_or_slices(gpu)][:_MOST]
            )
        ),
    )


def _gpu_or_slices(element: ET.Element) -> list[Gpu]:
    """Return the GPU, or each of its MIG slices that is ours.

    A slice has its own memory, and shares everything else.
    """
    whole = _gpu(0, element)
    name = whole.name.removesuffix(REHEARSED_MARK)
    mark = whole.name[len(name) :]
    return [
        whole.model_copy(
            update={
                "name": f"{name} MIG slice{mark}",
                "total_bytes": _mebibytes(slice_, "fb_memory_usage/total"),
                "used_bytes": _mebibytes(slice_, "fb_memory_usage/used"),
            }
        )
        for slice_ in element.findall("mig_devices/mig_device")
    ] or [whole]


def _gpu(index: int, gpu: ET.Element) -> Gpu:
    remapped = gpu.find("remapped_rows")
    return Gpu(
        index=index,
        name=_text_at(gpu, "product_name") or "unnamed",
        uuid=_text_at(gpu, "uuid") or "",
        bus=pci_address(_text_at(gpu, "pci/pci_bus_id") or gpu.get("id") or ""),
        total_bytes=_mebibytes(gpu, "fb_memory_usage/total"),
        used_bytes=_mebibytes(gpu, "fb_memory_usage/used"),
        temperature_c=_number(gpu, "temperature/gpu_temp"),
        slowdown_c=_number(gpu, "temperature/gpu_temp_slow_threshold"),
        ecc_uncorrected=_ecc(gpu),
        remap_pending=remapped is not None and _text_at(remapped, "remapped_row_pending") == "Yes",
        remap_failed=remapped is not None and _text_at(remapped, "remapped_row_failure") == "Yes",
        throttles=_throttles(gpu),
        processes=tuple(_processes(gpu)),
    )


def _ecc(gpu: ET.Element) -> int | None:
    """Return the number of uncorrectable memory errors of all kinds. Drivers of different age name them differently."""
    volatile = gpu.find("ecc_errors/volatile")
    counts = [
        _number(volatile, path)
        for path in (
            "dram_uncorrectable",
            "sram_uncorrectable",
            "sram_uncorrectable_parity",
            "sram_uncorrectable_secded",
            "double_bit/total",
        )
        if volatile is not None
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _throttles(gpu: ET.Element) -> tuple[str, ...]:
    """Return the reasons why the clocks are slowed down now, by their short names."""
    for parent in ("clocks_event_reasons", "clocks_throttle_reasons"):
        if (reasons := gpu.find(parent)) is not None:
            active = [reason.tag for reason in reasons if (reason.text or "").strip() == "Active"]
            return tuple(tag.removeprefix(parent.removesuffix("s") + "_") for tag in active)
    return ()


def _processes(gpu: ET.Element) -> list[GpuProcess]:
    found = []
    for process in gpu.findall("processes/process_info")[:100]:
        pid = _number(process, "pid")
        if pid is not None:
            name = _text_at(process, "process_name") or "?"
            used = _mebibytes(process, "used_memory")
            found.append(GpuProcess(pid=pid, name=name, used_bytes=used))
    return found


def _text_at(element: ET.Element, path: str) -> str | None:
    """Return the text at that path. None if the driver does not report a value."""
    said = plain(element.findtext(path) or "", max_line=120).replace("\n", " ").strip()
    return None if said in ("", "N/A", "[N/A]", "Unknown Error", "Not Supported") else said


def _number(element: ET.Element, path: str) -> int | None:
    match = re.match(r"\d{1,15}", _text_at(element, path) or "")
    return int(match[0]) if match else None


def _mebibytes(element: ET.Element, path: str) -> int | None:
    number = _number(element, path)
    return None if number is None else number * MIB


def pci_address(text: str) -> str:
    """Write a PCI address in the form of the kernel log: 00000000:3B:00.0 becomes 0000:3b:00."""
    match = re.search(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})", text)
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}".lower() if match else ""


class Xid(Record):
    """One error that NVIDIA's driver wrote to the kernel log."""

    bus: str
    number: int
    line: str


def read_xids(lines: tuple[str, ...]) -> tuple[Xid, ...]:
    """Return the Xid errors among the kernel's lines, each kind once for each GPU."""
    found: dict[tuple[str, int], Xid] = {}
    for line in lines:
        if len(found) == _MOST:
            break
        if match := re.search(r"Xid \(PCI:([0-9a-fA-F:.]+)\):? (\d{1,4})", line):
            bus, number = pci_address(match[1]), int(match[2])
            found[bus, number] = Xid(bus=bus, number=number, line=plain(line, max_line=200))
    return tuple(found.values())


class CgroupLimits(Record):
    """What the control groups allow us. None means no limit."""

    cpus: float | None
    memory_bytes: int | None
    memory_used_bytes: int | None
    oom_kills: int


def read_limits(groups: tuple[SeenGroup, ...]) -> CgroupLimits:
    """Return the lowest of all limits, of both cgroup versions. The limits of a group's parents apply, too."""
    cpus: list[float] = []
    memory: list[tuple[int, int | None]] = []
    oom_kills = 0
    for group in groups:
        files = group.files
        quota, period = [*files.get("cpu.max", "").split(), "", ""][:2]
        quota, period = files.get("cpu.cfs_quota_us", quota), files.get("cpu.cfs_period_us", period)
        if re.fullmatch(r"\d{1,15}", quota) and re.fullmatch(r"[1-9]\d{0,14}", period):
            cpus.append(int(quota) / int(period))
        most = _bytes(files.get("memory.max") or files.get("memory.limit_in_bytes"))
        used = _bytes(files.get("memory.current") or files.get("memory.usage_in_bytes"))
        if most is not None and most < 2**60:  # In cgroup version 1, a huge number means no limit.
            memory.append((most, used))
        kills = re.search(r"^oom_kill (\d{1,9})$", files.get("memory.events", ""), re.MULTILINE)
        oom_kills = max(oom_kills, int(kills[1]) if kills else 0)
    tightest = min(memory, key=lambda pair: pair[0], default=(None, None))
    return CgroupLimits(
        cpus=min(cpus, default=None),
        memory_bytes=tightest[0],
        memory_used_bytes=tightest[1],
        oom_kills=oom_kills,
    )


def _bytes(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 25 else None


def read_meminfo(text: str) -> dict[str, int]:
    """Return the values by name (MemTotal, MemAvailable and so on), in bytes."""
    rows = re.findall(r"^(\w+):\s+(\d{1,15}) kB$", text, re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in rows}
