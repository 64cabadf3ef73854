"""Judges the measurements of the GPUs under load: whether each GPU is as fast as what was paid for."""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from gpu_tenant.box.audit.expected_speed import (
    LINK_REACH,
    MEMORY_REACH,
    SOURCE,
    Speed,
    expected_speed,
    link_gb_s,
)
from gpu_tenant.box.audit.findings import Finding, Rented, blocker, ok, warning
from gpu_tenant.box.audit.probe import MIB, REHEARSED, REHEARSED_MARK, ProbePart
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.providers.gpu_catalog import same_gpu

LEAST = 0.75
"""A sound GPU reaches at least this share of the speed that is expected for its model.

All thresholds here were chosen with one set of simulated boxes, and tested with others.
"""
LEAST_CLOCK = 0.8
"""A GPU whose clock is below this share of its highest clock is slowed down.

It is no fault if the GPU's own power limit is the reason.
"""
LEAST_LINK = 0.6
"""Below this share of what its lanes can carry, a link is bad, and not only shared with others."""
HELD = 0.3
"""A reason for a slower clock counts if it was active for at least this share of the time."""
NEIGHBOURS_MIB, NEIGHBOURS_PCT = 1024, 20
"""If more memory (in MiB) or computing time (in percent) is in use before the load, somebody else uses the GPU."""
_MOST = 64

Figure = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]


class Runs(ProbePart):
    """How fast one GPU was under load. A figure is None if it was not measured."""

    fp32_tflops: Figure | None = None
    tensor_tflops: Figure | None = None
    memory_gb_s: Figure | None = None
    to_gpu_gb_s: Figure | None = None
    to_host_gb_s: Figure | None = None
    filled_bytes: Figure | None = None
    lost_words: Figure = 0
    wrong: Figure = 0
    wrong_tensor: Figure = 0


class Watch(ProbePart):
    """What the driver reported about the GPU while it worked."""

    samples: Figure = 0
    sm_mhz: Figure | None = None
    temp_c: Figure | None = None
    power_w: Figure | None = None
    pcie_gen: Figure | None = None
    pcie_width: Figure | None = None
    held: Mapping[str, Figure] = Field(default={})


class BurntGpu(ProbePart):
    """One GPU before, under and after the load."""

    index: int = Field(default=0, ge=0, le=1_000_000)
    name: str = ""
    sm_max_mhz: Figure | None = None
    util_pct: Figure | None = None
    used_mib: Figure | None = None
    total_mib: Figure | None = None
    pcie_gen_max: Figure | None = None
    pcie_width_max: Figure | None = None
    ecc: Figure | None = None
    ecc_after: Figure | None = None
    others: tuple[str, ...] = ()
    runs: Runs = Runs()
    watch: Watch = Watch()


class Link(ProbePart):
    """How fast data went from one GPU to another."""

    a: int
    b: int
    gb_s: Figure


class Disk(ProbePart):
    """How fast a file was written."""

    write_mb_s: Figure


class Burnt(ProbePart):
    """Everything that was measured under load."""

    gpus: tuple[BurntGpu, ...] = ()
    links: tuple[Link, ...] = ()
    disk: Disk | None = None
    missed: tuple[tuple[str, str], ...] = ()
    rehearsed: bool = False


def read_burnt(answer: object) -> Burnt:
    """Read the answer of `scripts/burn.py`. If it cannot be read, the result says why."""
    try:
        return Burnt.model_validate(answer)
    except ValidationError as trouble:
        first = trouble.errors(include_url=False, include_input=False)[0]
        return Burnt(error=f"unreadable: {first['msg']}")


def judge_burnt(
    burnt: Burnt, rented: Rented | None, *, lease_is: Literal["real", "rehearsed"]
) -> Iterator[Finding]:
    """Judge each GPU, the links between them, and the disk.

    A part that was not measured does not pass. Figures of a rehearsal do not count for a real lease.
    """
    if burnt.error or not burnt.gpus:
        why = burnt.error or "; ".join(f"{what}: {said}" for what, said in burnt.missed[:3])
        seen = f"not measured: {quote_text(why or 'the load said nothing')}"
        yield warning("burn", seen, "nothing is known of its speed: it did not pass")
        return
    if burnt.rehearsed and lease_is == "real":
        reason = "this lease is real: nobody measured anything"
        yield blocker("burn", f"the box says that it has {REHEARSED}", reason)
        return
    for gpu in burnt.gpus[:_MOST]:
        yield from _judge_gpu(gpu, burnt, rented)
    yield from _links(burnt)
    if burnt.disk is not None:
        seen = f"{burnt.disk.write_mb_s:.0f} MB/s written"
        yield ok("burn disk", seen + ", a rehearsal's figure" * burnt.rehearsed)


def _judge_gpu(gpu: BurntGpu, burnt: Burnt, rented: Rented | None) -> Iterator[Finding]:
    mark = f", {REHEARSED}" * burnt.rehearsed
    name = gpu.name.removesuffix(REHEARSED_MARK)
    called = rented.gpu if rented and same_gpu(rented.gpu, name) is not False else name
    speed = expected_speed(called) or expected_speed(name)
    faults = [
        *_neighbours(gpu),
        *_sound(gpu),
        *_clock(gpu),
        *_link_home(gpu, speed),
        *(_figures(gpu, speed) if speed else ()),
    ]
    subject = f"burn gpu {gpu.index}"
    for what, seen, reason in faults:
        yield blocker(f"{subject} {what}", f"{seen}{mark}", reason)
    missing = [what for what, got in _needed_figures(gpu) if got is None]
    said = [f"{what}: {why}" for what, why in burnt.missed if what.startswith(f"GPU {gpu.index}:")]
    if missing:
        seen = f"not measured: {', '.join(missing)}"
        why = quote_text("; ".join(said)[:200]) if said else "the load ended before this part"
        yield warning(subject, f"{seen}{mark}", f"it did not pass: {why}")
    elif not faults and speed is None:
        reason = "no figures are known for this GPU: nothing could be compared"
        yield warning(subject, f"{_figures_of(gpu)}{mark}", reason)
    elif not faults:
        yield ok(subject, f"as paid for: {_figures_of(gpu, speed)}{mark}")


def _needed_figures(gpu: BurntGpu) -> tuple[tuple[str, float | None], ...]:
    return (
        ("arithmetic", gpu.runs.fp32_tflops),
        ("memory", gpu.runs.memory_gb_s),
        ("copies", gpu.runs.to_gpu_gb_s),
        ("clock", gpu.watch.sm_mhz),
    )


def _figures_of(gpu: BurntGpu, speed: Speed | None = None) -> str:
    figures = (
        ("fp32", gpu.runs.fp32_tflops, speed and speed.fp32_tflops, "TFLOPS"),
        ("tensor", gpu.runs.tensor_tflops, speed and speed.tensor_tflops, "TFLOPS"),
        ("memory", gpu.runs.memory_gb_s, speed and speed.memory_gb_s, "GB/s"),
        ("from the host", gpu.runs.to_gpu_gb_s, None, "GB/s"),
    )
    return ", ".join(
        f"{what} {got:.3g}{f' of {most:g}' if most else ''} {unit}"
        for what, got, most, unit in figures
        if got is not None
    )


Fault = tuple[str, str, str]


def _figures(gpu: BurntGpu, speed: Speed) -> Iterator[Fault]:
    """Yield a fault for each figure that is lower than a sound card of this model reaches."""
    runs = gpu.runs
    for what, got, whole, reach, unit in (
        ("fp32", runs.fp32_tflops, speed.fp32_tflops, speed.reach, "TFLOPS"),
        ("tensor", runs.tensor_tflops, speed.tensor_tflops, speed.tensor_reach, "TFLOPS"),
        ("memory speed", runs.memory_gb_s, speed.memory_gb_s, MEMORY_REACH, "GB/s"),
    ):
        if got is not None and got < whole * reach * LEAST:
            usual = f"a sound GPU reaches {whole * reach:.3g} here, of the {whole:g} that {SOURCE} states"
            yield what, f"{got:.3g} {unit}", usual


def _neighbours(gpu: BurntGpu) -> Iterator[Fault]:
    used, busy = gpu.used_mib or 0, gpu.util_pct or 0
    if used >= NEIGHBOURS_MIB or busy >= NEIGHBOURS_PCT:
        who = f" by {', '.join(map(quote_text, gpu.others[:3]))}" if gpu.others else ""
        seen = f"{used:.0f} MiB used and {busy:.0f} % busy before the load{who}"
        yield "neighbour", seen, "somebody else computes on it: it is not yours alone"


def _sound(gpu: BurntGpu) -> Iterator[Fault]:
    wrong, lost = gpu.runs.wrong + gpu.runs.wrong_tensor, gpu.runs.lost_words
    if wrong:
        yield (
            "results",
            f"{wrong:.0f} threads computed another sum than they should",
            "it computes wrongly",
        )
    if lost:
        yield (
            "memory",
            f"{lost:.0f} places in its memory did not keep what was written",
            "its memory does not keep what is written",
        )
    after = max(gpu.ecc or 0, gpu.ecc_after or 0)
    if after:
        grown = "" if gpu.ecc == gpu.ecc_after else f", {gpu.ecc or 0:.0f} before the load"
        yield "ecc", f"{after:.0f} uncorrectable memory errors{grown}", "its memory is faulty"
    filled, used = gpu.runs.filled_bytes, (gpu.used_mib or 0) * MIB
    if filled is not None and gpu.total_mib and filled < (gpu.total_mib * MIB - used) * 0.5:
        seen = f"{filled / MIB:.0f} of {gpu.total_mib:.0f} MiB could be filled"
        yield "memory", seen, "it has less memory than its driver says"


def _clock(gpu: BurntGpu) -> Iterator[Fault]:
    watch = gpu.watch
    held = {name for name, share in watch.held.items() if share >= HELD}
    hot = sorted(held - {"sw_power_cap", "applications_clocks_setting"})
    clock = "clock unknown" if watch.sm_mhz is None else f"{watch.sm_mhz:.0f} MHz"
    most = f" of {gpu.sm_max_mhz:.0f}" if gpu.sm_max_mhz else ""
    heat = "" if watch.temp_c is None else f" at {watch.temp_c:.0f} °C"
    if hot:
        yield (
            "throttle",
            f"{clock}{most}{heat}: {', '.join(map(quote_text, hot))}",
            "something holds its clock down",
        )
    elif (
        watch.sm_mhz is not None
        and gpu.sm_max_mhz
        and watch.sm_mhz < gpu.sm_max_mhz * LEAST_CLOCK
        and "sw_power_cap" not in held
    ):
        reason = "its clock stays low, but not because of its power limit"
        yield "clock", f"{clock}{most}{heat}", reason


def _link_home(gpu: BurntGpu, speed: Speed | None) -> Iterator[Fault]:
    got = [rate for rate in (gpu.runs.to_gpu_gb_s, gpu.runs.to_host_gb_s) if rate is not None]
    gen = gpu.pcie_gen_max or (speed.pcie_gen if speed else None)
    width, most = gpu.watch.pcie_width, gpu.pcie_width_max
    narrow = width is not None and most is not None and width * 2 <= most
    usual = link_gb_s(int(gen), int(most)) * LINK_REACH if gen and most and most <= 32 else None
    if narrow or (got and usual is not None and min(got) < usual * LEAST_LINK):
        lanes = f"{width:.0f} of {most:.0f} PCIe lanes" if width and most else "PCIe"
        seen = f"{lanes}, {min(got):.3g} GB/s" if got else lanes
        reason = f"a sound link carries {usual:.3g} GB/s here" if usual else "the link is narrow"
        yield "link", seen, reason


def _links(burnt: Burnt) -> Iterator[Finding]:
    rates = [link.gb_s for link in burnt.links]
    if not rates:
        return
    usual, mark = median(rates), f", {REHEARSED}" * burnt.rehearsed
    for link in burnt.links[: _MOST * _MOST]:
        if link.gb_s < usual * LEAST_LINK:
            reason = f"half of its pairs send {usual:.3g} GB/s or more"
            yield blocker(f"burn link {link.a}-{link.b}", f"{link.gb_s:.3g} GB/s{mark}", reason)
    seen = f"{min(rates):.3g} to {max(rates):.3g} GB/s between GPUs{mark}"
    yield ok("burn links", seen)
