"""Judges what the probe saw on a box against what a job needs."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from pydantic import Field

from gpu_tenant.box.audit.findings import (
    CARD_ROUNDING,
    Finding,
    Needs,
    Rented,
    blocker,
    gib,
    no_answer,
    ok,
    warning,
)
from gpu_tenant.box.audit.gpu_checks import judge_gpus, judge_torch
from gpu_tenant.box.audit.probe import (
    GIB,
    MIB,
    Gpu,
    SeenCgroup,
    SeenClock,
    SeenCpu,
    SeenDisks,
    SeenMemory,
    SeenPlace,
    SeenProcesses,
    SeenPython,
    SeenReach,
    SeenSmi,
    SeenSystem,
    SeenUser,
    SeenWrites,
    part,
    read_limits,
    read_meminfo,
    read_smi,
)
from gpu_tenant.box.audit.rented_checks import judge_rented
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import quote_text

__all__ = ["Audit", "Finding", "Needs", "audit", "judge", "no_python"]

SKEW_WARNING_S = 5
SKEW_BLOCKER_S = 120
OLDEST_PYTHON = "3.7"
NO_CAPS: Mapping[str, int | None] = {}


class Audit(Record):
    """The result of one audit of a box."""

    findings: tuple[Finding, ...]
    blockers: int
    warnings: int
    gpus: tuple[Gpu, ...]
    driver: str | None
    cuda: str | None
    cpus: float | None = Field(description="what we may use, not what the host has")
    ram_gib: float | None = Field(description="what we may use, not what the host has")
    disk_free_gib: float | None = Field(description="where the jobs run")


def audit(
    observed: Mapping[str, object],
    *,
    needs: Needs,
    asked_at: datetime,
    answered_at: datetime,
    caps: Mapping[str, int | None] = NO_CAPS,
    rented: Rented | None = None,
) -> Audit:
    """Return the findings of `judge`, and the sizes of the box on which they are based."""
    findings = judge(
        observed,
        needs=needs,
        caps=caps,
        rented=rented,
        asked_at=asked_at,
        answered_at=answered_at,
    )
    driver = read_smi(part(observed, "smi", SeenSmi).out)
    ram_bytes = _ram_bytes(observed)
    place = _work_place(part(observed, "disks", SeenDisks).places)
    return Audit(
        findings=findings,
        blockers=sum(finding.level == "blocker" for finding in findings),
        warnings=sum(finding.level == "warning" for finding in findings),
        gpus=driver.gpus if driver else (),
        driver=driver.version if driver else None,
        cuda=driver.cuda if driver else None,
        cpus=_cpus(observed),
        ram_gib=gib(ram_bytes) if ram_bytes is not None else None,
        disk_free_gib=gib(place.free_bytes) if place else None,
    )


def judge(
    observed: Mapping[str, object],
    *,
    needs: Needs,
    asked_at: datetime,
    answered_at: datetime,
    caps: Mapping[str, int | None] = NO_CAPS,
    rented: Rented | None = None,
) -> tuple[Finding, ...]:
    """Judge every part of the observation. Blockers come first.

    A part that could not be seen is a warning, and never counts as sound. The one exception is the kernel
    log, which most containers cannot read.

    `asked_at` and `answered_at` are this computer's times just before and just after the probe ran. `caps`
    has the paths that the platform names, each with the number of files that it may hold (None means no
    limit). `rented` says which GPUs were paid for; None if this program did not rent the box.
    """
    findings = (
        *judge_gpus(observed, needs, rented),
        *(judge_rented(observed, rented) if rented else ()),
        *judge_torch(observed),
        *_cpu(observed),
        *_memory(observed, needs),
        *_disks(observed, needs, caps),
        *_platform_paths(observed, caps),
        *_python(part(observed, "python", SeenPython), needs),
        *_clock(part(observed, "clock", SeenClock), asked_at, answered_at),
        *_neighbours(observed),
        *_system(part(observed, "system", SeenSystem)),
        *_reach(observed),
    )
    return worst_first(findings)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort the findings: first blockers, then warnings, then those that are ok."""
    order = ("blocker", "warning", "ok")
    return tuple(sorted(findings, key=lambda finding: order.index(finding.level)))


def no_python() -> Finding:
    """Make the finding for a box on which the probe could not run, because it has no python3."""
    return Finding(
        subject="python",
        level="blocker",
        seen="no python3",
        reason="the caretaker needs Python 3.7 or newer: take an image that has it, or install it",
    )


def _cpus(observed: Mapping[str, object]) -> float | None:
    cpu = part(observed, "cpu", SeenCpu)
    quota = read_limits(part(observed, "cgroup", SeenCgroup).groups).cpus
    return min((n for n in (quota, cpu.affinity, cpu.host_cores) if n), default=None)


def _cpu(observed: Mapping[str, object]) -> Iterator[Finding]:
    cpu, cgroup = part(observed, "cpu", SeenCpu), part(observed, "cgroup", SeenCgroup)
    usable, shown = _cpus(observed), cpu.affinity or cpu.host_cores
    if usable is None or shown is None:
        yield no_answer("cpu", cpu)
    elif math.ceil(usable) < shown:
        threads = max(1, int(usable))
        reason = f"libraries will start {shown} threads on {usable:g} cores: set OMP_NUM_THREADS={threads}"
        yield warning("cpu", f"a quota of {usable:g} cores, though {shown} are shown", reason)
    elif cgroup.error:
        yield no_answer("cpu quota", cgroup)
    else:
        yield ok(
            "cpu", f"{usable:g} cores, {quote_text(cpu.model) if cpu.model else 'model unknown'}"
        )


def _ram_bytes(observed: Mapping[str, object]) -> int | None:
    host = read_meminfo(part(observed, "memory", SeenMemory).meminfo or "").get("MemTotal")
    limit = read_limits(part(observed, "cgroup", SeenCgroup).groups).memory_bytes
    return min((n for n in (host, limit) if n), default=None)


def _memory(observed: Mapping[str, object], needs: Needs) -> Iterator[Finding]:
    memory, limits = (
        part(observed, "memory", SeenMemory),
        read_limits(part(observed, "cgroup", SeenCgroup).groups),
    )
    host = read_meminfo(memory.meminfo or "").get("MemTotal")
    ours = _ram_bytes(observed)
    if ours is None:
        yield no_answer("memory", memory)
        return
    seen = f"{gib(ours):.1f} GiB"
    if host and ours < host:
        seen += f" allowed by its control group; the host's {gib(host):.0f} GiB cannot all be used"
    if needs.ram_gib is not None and gib(ours) < needs.ram_gib * CARD_ROUNDING:
        yield blocker("memory", seen, f"the job needs {needs.ram_gib:g} GiB")
    elif limits.oom_kills:
        reason = f"{limits.oom_kills} processes were killed on this box because memory ran out"
        yield warning("memory", seen, reason)
    else:
        yield ok("memory", seen)


def _work_place(places: tuple[SeenPlace, ...]) -> SeenPlace | None:
    by_role = {place.role: place for place in places if not place.error}
    return by_role.get("work") or by_role.get("home") or by_role.get("root")


def _disks(
    observed: Mapping[str, object], needs: Needs, caps: Mapping[str, int | None]
) -> Iterator[Finding]:
    disks = part(observed, "disks", SeenDisks)
    if disks.error:
        yield no_answer("disk", disks)
        return
    work = _work_place(disks.places)
    measured: set[int | None] = set()
    # The job's own directory comes first: if several places share its filesystem, it is the one that is named.
    for place in sorted(disks.places, key=lambda place: place != work):
        if place.role == "platform" and place.path in caps and _is_absent(place):
            continue  # `_platform_paths` reports it, and says what that means.
        if place.error:
            yield no_answer(f"disk {quote_text(place.path)}", place)
        elif place.role == "shm":
            yield _shm(place, needs)
        elif place.device not in measured:
            measured.add(place.device)
            yield _disk(place, (needs.disk_gib or 0.0) if place == work else 0.0)
            yield from _inodes(place)
    yield from _writes(part(observed, "writes", SeenWrites))


def _is_absent(place: SeenPlace) -> bool:
    """Whether there is no such path. Any other error leaves unknown what is there."""
    return (place.error or "").startswith("FileNotFoundError")


def _platform_paths(
    observed: Mapping[str, object], caps: Mapping[str, int | None]
) -> Iterator[Finding]:
    """Report the platform's paths that are missing on the box, or that have nearly too many files."""
    disks = part(observed, "disks", SeenDisks)
    seen = {place.path: place for place in disks.places if place.role == "platform"}
    for path, cap in caps.items():
        place, subject = seen.get(path), f"platform's {path}"
        if place is None or disks.error:
            continue
        if _is_absent(place):
            reason = "by the platform's runbook, this path exists: the box runs another image, or the disk is not attached"
            yield warning(subject, "not there", reason)
        elif cap and place.files is not None and place.files >= cap * 0.8:
            level = blocker if place.files >= cap * 0.98 else warning
            reason = "beyond that number no file can be made, however many bytes are free"
            yield level(subject, f"{place.files} of {cap} files", reason)


def _disk(place: SeenPlace, wanted_gib: float) -> Finding:
    subject = f"disk {quote_text(place.path)}"
    seen = f"{gib(place.free_bytes):.1f} of {gib(place.total_bytes):.1f} GiB free, {quote_text(place.kind or 'unknown')}"
    if "ro" in (place.options or "").split(","):
        fault = warning if place.role == "mount" else blocker
        return fault(subject, f"{seen}, read-only", "nothing can be written there")
    if gib(place.free_bytes) < wanted_gib:
        return blocker(subject, seen, f"the job needs {wanted_gib:g} GiB")
    if place.free_bytes < max(place.total_bytes * 0.05, GIB):
        how = "nearly full" if place.free_bytes < place.total_bytes / 2 else "small"
        return warning(subject, seen, f"{how}: a checkpoint may be cut short")
    return ok(subject, seen)


def _inodes(place: SeenPlace) -> Iterator[Finding]:
    if place.total_inodes <= 0:  # btrfs and some network mounts report no inodes.
        return
    seen = f"{place.free_inodes} of {place.total_inodes} inodes free"
    if place.free_inodes == 0:
        reason = "no file can be made, however many bytes are free"
        yield blocker(f"inodes {quote_text(place.path)}", seen, reason)
    elif place.free_inodes < place.total_inodes * 0.05:
        reason = "data sets of many small files will not fit"
        yield warning(f"inodes {quote_text(place.path)}", seen, reason)


def _shm(place: SeenPlace, needs: Needs) -> Finding:
    size = f"{place.total_bytes / MIB:.0f} MiB"
    if needs.shm_gib is not None and gib(place.total_bytes) < needs.shm_gib * CARD_ROUNDING:
        return blocker("shared memory", size, f"the job needs {needs.shm_gib:g} GiB")
    if place.total_bytes <= 64 * MIB:
        reason = (
            "data loader workers die of SIGBUS: use few of them, or a box with a larger --shm-size"
        )
        return warning("shared memory", size, reason)
    return ok("shared memory", size)


def _writes(writes: SeenWrites) -> Iterator[Finding]:
    if writes.error:
        yield no_answer("writing", writes)
    for test in (writes.home, writes.work):
        if test is not None and not test.same:
            seen = quote_text(test.error) if test.error else "what was written came back different"
            yield blocker(f"writing in {quote_text(test.path)}", seen, "nothing can be kept there")


def _python(python: SeenPython, needs: Needs) -> Iterator[Finding]:
    numbers = re.match(r"(\d{1,3})\.(\d{1,3})", python.version or "")
    if not numbers:
        yield no_answer("python", python)
        return
    version = (int(numbers[1]), int(numbers[2]))
    seen = f"Python {quote_text(python.version or '')} at {quote_text(python.path or 'unknown')}"
    for least, who in ((OLDEST_PYTHON, "caretaker"), (needs.python, "job")):
        if least and version < tuple(map(int, least.split("."))):
            yield blocker("python", seen, f"the {who} needs Python {least} or newer")
            return
    yield ok("python", seen)


def _clock(clock: SeenClock, asked_at: datetime, answered_at: datetime) -> Iterator[Finding]:
    if clock.started_s is None or clock.ended_s is None:
        yield no_answer("clock", clock)
        return
    # The box read its clock between our two times. So its clock is wrong by at least `least_s` and at most `most_s`.
    most_s = clock.started_s - asked_at.timestamp()
    least_s = clock.ended_s - answered_at.timestamp()
    skew_s = least_s if least_s > 0 else most_s if most_s < 0 else 0.0
    seen = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this computer's"
    if abs(skew_s) > SKEW_BLOCKER_S:
        yield blocker("clock", seen, "tokens and certificates will be refused")
    elif abs(skew_s) > SKEW_WARNING_S:
        yield warning("clock", seen, "times in its logs are off by as much")
    else:
        yield ok("clock", f"within {SKEW_WARNING_S} s of this computer's")


def _neighbours(observed: Mapping[str, object]) -> Iterator[Finding]:
    processes = part(observed, "processes", SeenProcesses)
    if processes.error:
        yield no_answer("neighbours", processes)
        return
    our_uid = part(observed, "user", SeenUser).uid
    if strangers := sorted({p.name for p in processes.on_gpu if p.uid not in (our_uid, 0)}):
        seen = f"{', '.join(map(quote_text, strangers[:5]))} on a GPU"
        yield warning("neighbours", seen, "another user computes on these GPUs")
    elif processes.others:
        users = sorted({other.user for other in processes.others})
        seen = f"programs of {', '.join(map(quote_text, users[:5]))}" + ", and others" * (
            len(users) > 5
        )
        yield warning(
            "neighbours",
            seen,
            "they share the box's memory, and may read files that are not protected",
        )
    else:
        yield ok("neighbours", "no other user's programs")


def _system(system: SeenSystem) -> Iterator[Finding]:
    if system.error:
        yield no_answer("system", system)
    elif system.open_files is not None and 0 <= system.open_files < 1024:
        yield warning(
            "open files", str(system.open_files), "data loaders need more: ulimit -n 4096"
        )
    else:
        yield ok(
            "system",
            f"kernel {quote_text(system.kernel or 'unknown')}, up {(system.uptime_s or 0) / 3600:.1f} h",
        )


def _reach(observed: Mapping[str, object]) -> Iterator[Finding]:
    asked = observed.get("reach")
    if not isinstance(asked, Mapping) or not asked:
        return
    told = {str(host): part(asked, host, SeenReach) for host in list(asked)[:20]}
    if all(reach.error for reach in told.values()):
        seen = "; ".join(
            f"{quote_text(host)}: {quote_text(reach.error or '')}" for host, reach in told.items()
        )
        yield warning(
            "network", seen, "none of the tested hosts was reached: push what the job needs"
        )
        return
    for host, reach in told.items():
        if reach.error:
            yield warning(
                f"network {quote_text(host)}",
                quote_text(reach.error),
                "use a mirror, or push what the job would fetch",
            )
        else:
            yield ok(
                f"network {quote_text(host)}",
                f"reached in {reach.took_s:g} s" if reach.took_s else "reached",
            )
