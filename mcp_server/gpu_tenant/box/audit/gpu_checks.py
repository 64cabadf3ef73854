"""Judges the GPUs of a box: whether they are present, healthy, and free for us."""

import re
from collections.abc import Iterator, Mapping

from gpu_tenant.box.audit.findings import (
    CARD_ROUNDING,
    Finding,
    Level,
    Needs,
    Rented,
    blocker,
    gib,
    ok,
    warning,
)
from gpu_tenant.box.audit.probe import (
    GIB,
    Driver,
    Gpu,
    SeenDevices,
    SeenKernelLog,
    SeenProcesses,
    SeenSmi,
    SeenTorch,
    part,
    read_smi,
    read_xids,
)
from gpu_tenant.domain.order import is_older
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.providers.gpu_catalog import is_amd

GHOST_BYTES = GIB
"""On an unused card, the driver itself uses less memory than this. If more is in use, somebody else uses the card."""

XIDS: dict[int, tuple[Level, str]] = {
    48: ("blocker", "an uncorrectable memory error: re-rent"),
    63: ("warning", "a memory row was remapped"),
    64: ("blocker", "a memory row could not be remapped: re-rent"),
    74: ("warning", "an NVLink error: jobs on several GPUs may hang"),
    79: ("blocker", "it fell off the bus: re-rent"),
    94: ("warning", "a contained memory error: it ended one job"),
    95: ("blocker", "an uncontained memory error: re-rent"),
    119: ("blocker", "the GPU's own processor does not answer: re-rent"),
    120: ("blocker", "the GPU's own processor failed: re-rent"),
}


def judge_gpus(
    observed: Mapping[str, object], needs: Needs, rented: Rented | None = None
) -> Iterator[Finding]:
    """Judge whether the GPUs are there, as many as needed, healthy, and free."""
    smi = part(observed, "smi", SeenSmi)
    devices = part(observed, "devices", SeenDevices)
    driver = read_smi(smi.out) if not smi.error else None
    wanted = needs.gpu_count if needs.gpu_count is not None else int(needs.vram_gib is not None)
    if driver is None or not driver.gpus:
        paid_for = rented is not None and rented.count > 0 and not is_amd(rented.gpu)
        fault = blocker if wanted or paid_for else warning
        yield fault("gpus", *_why_no_gpu(smi, devices))
        return
    seen = f"{_word(driver.version)}, CUDA up to {_word(driver.cuda)}"
    if needs.cuda is not None and driver.cuda is None:
        yield warning("driver", seen, f"the order needs CUDA {needs.cuda}, and it does not tell")
    elif needs.cuda is not None and is_older(driver.cuda or "", needs.cuda):
        yield blocker("driver", seen, f"the order needs CUDA {needs.cuda}")
    else:
        yield ok("driver", seen)
    yield _gpu_count(driver, devices, wanted)
    log = part(observed, "kernel_log", SeenKernelLog)
    processes = part(observed, "processes", SeenProcesses)
    for gpu in driver.gpus:
        faults = [*_gpu_memory(gpu, processes, needs), *_gpu_health(gpu), *_gpu_xids(gpu, log)]
        yield from faults or [ok(f"gpu {gpu.index}", _describe(gpu))]
    yield from _foreign_xids(driver, log)


def _why_no_gpu(smi: SeenSmi, devices: SeenDevices) -> tuple[str, str]:
    told = smi.err.strip() or smi.out.strip()[:300]
    said = quote_text(told) if told else ""
    if smi.error:
        return (
            f"nvidia-smi: {quote_text(smi.error)}",
            "a driver that does not answer is often a GPU that hangs",
        )
    if "Driver/library version mismatch" in told:
        return said, "the driver was updated under a running kernel module: reboot, or re-rent"
    if smi.missing and (devices.nodes or devices.buses):
        return "GPUs, but no nvidia-smi", "the driver's tools are not in this image"
    if smi.missing:
        return "no nvidia-smi and no GPU device", "no GPU is attached to this box or container"
    return said or "nvidia-smi lists no GPU", "the driver finds no GPU it can use"


def _gpu_count(driver: Driver, devices: SeenDevices, wanted: int) -> Finding:
    count = len(driver.gpus)
    seen = f"{count} x {quote_text(driver.gpus[0].name)}"
    if count < wanted:
        return blocker("gpus", seen, f"the job needs {wanted}")
    if count < len(devices.nodes):
        lost = len(devices.nodes) - count
        return warning("gpus", seen, f"{lost} more device files than GPUs: one may have failed")
    return ok("gpus", seen)


def _describe(gpu: Gpu) -> str:
    memory = f"{gib(gpu.total_bytes):.0f} GiB" if gpu.total_bytes else "memory not told"
    heat = f"{gpu.temperature_c} °C" if gpu.temperature_c is not None else "temperature not told"
    ecc = "no ECC" if gpu.ecc_uncorrected is None else f"{gpu.ecc_uncorrected} ECC errors"
    return f"{quote_text(gpu.name)}, {memory}, {heat}, {ecc}"


def _gpu_memory(gpu: Gpu, processes: SeenProcesses, needs: Needs) -> Iterator[Finding]:
    if gpu.total_bytes is None or gpu.used_bytes is None:
        return
    subject, free_gib = f"gpu {gpu.index} memory", gib(gpu.total_bytes - gpu.used_bytes)
    seen = f"{free_gib:.1f} of {gib(gpu.total_bytes):.1f} GiB free"
    if needs.vram_gib is not None and free_gib < needs.vram_gib * CARD_ROUNDING:
        yield blocker(subject, seen, f"the job needs {needs.vram_gib:g} GiB on each GPU")
    if gpu.used_bytes < GHOST_BYTES:
        return
    if gpu.processes or processes.on_gpu:
        names = {process.name for process in gpu.processes} or {p.name for p in processes.on_gpu}
        who = ", ".join(map(quote_text, sorted(names)[:5]))
        yield warning(subject, f"{seen}; in use by {who}", "somebody's programs are on this GPU")
    else:
        hidden = "the driver names process ids of the host, so it may be a neighbour's" * (
            processes.pids_seen_from == "container"
        )
        reason = hidden or "a dead process may still hold the memory: reboot, or re-rent"
        yield warning(subject, f"{seen}; in use by no process we can see", reason)


def _gpu_health(gpu: Gpu) -> Iterator[Finding]:
    subject = f"gpu {gpu.index}"
    if gpu.ecc_uncorrected:
        seen = f"{gpu.ecc_uncorrected} uncorrectable memory errors since boot"
        yield blocker(f"{subject} ecc", seen, "its results cannot be trusted: re-rent")
    if gpu.remap_failed:
        yield blocker(f"{subject} ecc", "row remapping failed", "its memory is worn: re-rent")
    elif gpu.remap_pending:
        reason = "faulty rows wait for a reset of the GPU"
        yield warning(f"{subject} ecc", "row remapping is pending", reason)
    hottest_c = gpu.slowdown_c or 90
    if gpu.temperature_c is not None and gpu.temperature_c >= hottest_c:
        seen = f"{gpu.temperature_c} °C, slows down at {hottest_c} °C"
        yield warning(f"{subject} temperature", seen, "it will not run at full speed")
    # Only these reasons are faults. Low clocks when idle, or because of a power cap, are normal.
    if held := [r for r in gpu.throttles if re.fullmatch(r"hw_.*|sw_thermal_slowdown", r)]:
        reason = "heat or power holds its clocks down: it is slower than what you pay for"
        yield warning(f"{subject} throttle", ", ".join(held), reason)


def _gpu_xids(gpu: Gpu, log: SeenKernelLog) -> Iterator[Finding]:
    for xid in read_xids(log.lines):
        if xid.bus == gpu.bus:
            level, reason = XIDS.get(
                xid.number, ("warning", "this is most often a fault of some program")
            )
            subject = f"gpu {gpu.index} xid {xid.number}"
            yield Finding(subject=subject, level=level, seen=quote_text(xid.line), reason=reason)


def _foreign_xids(driver: Driver, log: SeenKernelLog) -> Iterator[Finding]:
    ours = {gpu.bus for gpu in driver.gpus}
    for xid in read_xids(log.lines):
        if xid.bus not in ours and XIDS.get(xid.number, ("ok", ""))[0] == "blocker":
            reason = (
                "this GPU is not in the list: it is one of ours that was lost, or a neighbour's"
            )
            yield warning(f"xid {xid.number}", quote_text(xid.line), reason)


def judge_torch(observed: Mapping[str, object]) -> Iterator[Finding]:
    """Judge whether PyTorch, if it is installed, sees the GPUs."""
    torch = part(observed, "torch", SeenTorch)
    driver = read_smi(part(observed, "smi", SeenSmi).out)
    if torch.missing:
        yield ok("torch", "not installed")
    elif torch.error:
        yield warning(
            "torch",
            f"not imported: {quote_text(torch.error)}",
            "the disk is slow, or the installation is broken",
        )
    elif driver and driver.gpus and not torch.cuda_available:
        seen = f"torch {_word(torch.version)}, built for CUDA {_word(torch.built_for_cuda)}, sees no GPU"
        reason = f"the driver takes CUDA up to {_word(driver.cuda)}: training would run on the CPU"
        yield warning("torch", seen, reason)
    else:
        yield ok(
            "torch",
            f"{_word(torch.version)}, CUDA {'seen' if torch.cuda_available else 'not seen'}",
        )


def _word(told: str | None) -> str:
    return "unknown" if told is None else quote_text(told)
