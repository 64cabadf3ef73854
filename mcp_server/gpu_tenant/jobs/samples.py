"""Readings of a job over time, kept on this computer: GPU, memory, disk and progress."""

import fcntl
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pydantic import Field, ValidationError

from gpu_tenant.box.caretaker import JobState
from gpu_tenant.domain.record import Record
from gpu_tenant.files.direct_io import open_regular
from gpu_tenant.files.replace_file import replacing
from gpu_tenant.files.state_dir import Home
from gpu_tenant.jobs.metrics import MOST_POINTS, MetricCurve, Series
from gpu_tenant.jobs.monitor import Watched

_APART_S = 2.0
"""Two readings are at least this far apart. Several programs (command line, page, server) may monitor the same job."""
_MOST_BYTES = 2_000_000
_TAIL_BYTES = 32_768
_GROUP = 16
"""When the file is too long, its older readings are divided into groups of this size, and only the extremes stay."""
_NAME_CHARACTERS = 80
_MOST_GPUS = 64


class GpuRead(Record):
    """One GPU at one moment. The field names are short, because the file repeats them thousands of times."""

    index: int
    name: str
    util: float | None = None
    mem: float | None = None
    total: float | None = None
    temp: float | None = None


class Reading(Record):
    """What was measured of a job at one moment."""

    at: float = Field(description="seconds since the epoch, by this computer's clock")
    job: str
    state: JobState
    gpus: tuple[GpuRead, ...] = ()
    memory: int | None = None
    memory_limit: int | None = None
    disk_free: int | None = None
    done: float | None = None
    total: float | None = None
    fraction: float | None = None
    metrics: dict[str, float | None] = Field(default={}, description="None: not a number (NaN)")
    log_bytes: int | None = Field(default=None, description="how long its log was known to be")

    @property
    def gpu_use(self) -> float | None:
        """The average use of all the job's GPUs, in percent. None if unknown."""
        return _mean([gpu.util for gpu in self.gpus])

    @property
    def gpu_mem(self) -> float | None:
        """The memory used on all the job's GPUs together, in MiB. None if unknown."""
        return _sum([gpu.mem for gpu in self.gpus])


class GpuCourse(Record):
    """The readings of one GPU over time. An unknown value is None."""

    index: int
    name: str
    util: tuple[float | None, ...]
    mem_mib: tuple[float | None, ...]
    temp_c: tuple[float | None, ...]


class Readings(Record):
    """All readings over time. Every array is as long as `times`. An unknown value is None.

    If there were more readings than fit, each pair of entries stands for a stretch of time, and holds the least and
    the greatest value in that stretch.
    """

    times: tuple[float, ...] = Field(description="seconds since the epoch, ascending")
    gpu_util: tuple[float | None, ...] = Field(description="percent, the mean of its GPUs")
    gpu_mem_mib: tuple[float | None, ...] = Field(description="of its GPUs together")
    gpu_mem_total_mib: float | None
    memory_bytes: tuple[float | None, ...]
    memory_limit_bytes: float | None
    disk_free_bytes: tuple[float | None, ...]
    fraction: tuple[float | None, ...] = Field(
        description="the fraction of the job that is done, by its own log"
    )
    gpus: tuple[GpuCourse, ...]
    metrics: dict[str, Series] = Field(
        description="by step, as far as looks saw them; only the log itself has all values"
    )


# Writing


def keep_reading(home: Home, seen: Watched, *, at: datetime) -> None:
    """Record what `monitor` saw as a reading, unless there is a reading from just before.

    Errors are ignored, so `monitor` never fails because of this. On a full disk, readings are lost.
    """
    if seen.state == "absent":
        return
    with suppress(OSError):
        _append(home.readings(seen.lease), _reading(seen, at.timestamp()))


def _reading(seen: Watched, at: float) -> Reading:
    told = seen.progress
    return Reading(
        at=round(at, 1),
        job=seen.job,
        state=seen.state,
        gpus=tuple(
            GpuRead(
                index=gpu.index,
                name=gpu.name[:_NAME_CHARACTERS],
                util=_number(gpu.util_pct),
                mem=_number(gpu.mem_used_mib),
                total=_number(gpu.mem_total_mib),
                temp=_number(gpu.temp_c),
            )
            for gpu in seen.gpus[:_MOST_GPUS]
        ),
        memory=seen.memory_used_bytes,
        memory_limit=seen.memory_limit_bytes,
        disk_free=seen.disk_free_bytes,
        done=_number(told.done) if told else None,
        total=_number(told.total) if told else None,
        fraction=_number(told.fraction) if told else None,
        metrics={name: _number(value) for name, value in told.metrics.items()} if told else {},
        log_bytes=seen.cursor,
    )


def log_bytes_at(home: Home, lease: str, job: str | None, at: float) -> int | None:
    """Return the length of the job's log in bytes, by the last reading up to that time. None if there is no reading.

    Without `job`, the job of the newest reading is meant.
    """
    try:
        lines = home.readings(lease).read_bytes().split(b"\n")
    except OSError:
        return None
    told = list(_parse(lines))
    named = job or (told[-1].job if told else None)
    known = [x.log_bytes for x in told if x.job == named and x.at <= at and x.log_bytes is not None]
    return known[-1] if known else None


def _append(path: Path, reading: Reading) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    opened = _open_locked(path)
    if opened is None:
        return  # Another process is writing a reading at this moment.
    try:
        size = os.fstat(opened).st_size
        tail = os.pread(opened, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        if _is_near(reading, tail):
            return
        # If a full disk cut the last line short, begin a new line.
        torn = b"\n" if tail and not tail.endswith(b"\n") else b""
        line = torn + _line(reading)
        os.write(opened, line)
        if size + len(line) > _MOST_BYTES:
            _thin(path)
    finally:
        os.close(opened)


def _open_locked(path: Path) -> int | None:
    """Open the file for appending, and lock it until it is closed. None if another process has the lock."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    while True:
        opened = os.open(path, flags, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(opened), path.stat()):
                return opened
        except BlockingIOError:
            os.close(opened)
            return None
        except FileNotFoundError:
            pass
        except OSError:
            os.close(opened)
            raise
        # The file was replaced between opening and locking, so the name now belongs to another file.
        os.close(opened)


def _is_near(reading: Reading, tail: bytes) -> bool:
    """Whether the job's last reading is so recent, and in the same state, that this one is not needed."""
    last = next((x for x in _parse(reversed(tail.split(b"\n"))) if x.job == reading.job), None)
    return last is not None and last.state == reading.state and 0 <= reading.at - last.at < _APART_S


def _line(reading: Reading) -> bytes:
    return reading.model_dump_json(exclude_defaults=True).encode() + b"\n"


def _thin(path: Path) -> None:
    """Drop about half of the readings in the older half of the file, or more. The caller holds the file's lock."""
    readings = list(_parse(path.read_bytes().split(b"\n")))
    middle = len(readings) // 2
    older = [
        one
        for i in range(0, middle, _GROUP)
        for one in _most_telling(readings[i : min(middle, i + _GROUP)])
    ]
    with replacing(path, durable="none") as file:
        file.writelines(_line(one) for one in (*older, *readings[middle:]))


def _most_telling(readings: Sequence[Reading]) -> list[Reading]:
    """Return the first reading and those with the extreme values, in their order."""
    chosen = {0}
    measures: tuple[Callable[[Reading], float | None], ...] = (
        lambda one: one.gpu_use,
        lambda one: one.gpu_mem,
        lambda one: one.memory,
    )
    for measure in measures:
        known = [
            (value, i) for i, one in enumerate(readings) if (value := measure(one)) is not None
        ]
        if known:
            chosen |= {min(known)[1], max(known)[1]}
    return [readings[i] for i in sorted(chosen)]


# Reading


def readings_of(home: Home, lease: str, job: str | None = None) -> Readings:
    """Return the readings over time, of that job, or of all the lease's jobs if no job is named. Empty if none exist.

    Each array has at most `MOST_POINTS` entries.
    """
    opened = open_regular(home.readings(lease))
    held = b""
    if opened is not None:
        with suppress(OSError), os.fdopen(opened, "rb") as file:
            held = file.read()
    found = [one for one in _parse(held.split(b"\n")) if job in (None, one.job)]
    found.sort(key=lambda one: one.at)
    spans = _spans(len(found))

    def course(measure: Callable[[Reading], float | None]) -> tuple[float | None, ...]:
        return tuple(_envelope([measure(one) for one in found], spans))

    names = {gpu.index: gpu.name for one in found for gpu in one.gpus}

    def of(index: int, measure: Callable[[GpuRead], float | None]) -> tuple[float | None, ...]:
        return course(
            lambda one: next((measure(gpu) for gpu in one.gpus if gpu.index == index), None)
        )

    newest_with_gpus = next((one for one in reversed(found) if one.gpus), None)
    return Readings(
        times=tuple(at for a, b in spans for at in ([found[a].at, found[b - 1].at][: b - a])),
        gpu_util=course(lambda one: one.gpu_use),
        gpu_mem_mib=course(lambda one: one.gpu_mem),
        gpu_mem_total_mib=_sum([gpu.total for gpu in newest_with_gpus.gpus])
        if newest_with_gpus
        else None,
        memory_bytes=course(lambda one: one.memory),
        memory_limit_bytes=next(
            (one.memory_limit for one in reversed(found) if one.memory_limit is not None), None
        ),
        disk_free_bytes=course(lambda one: one.disk_free),
        fraction=course(lambda one: one.fraction),
        gpus=tuple(
            GpuCourse(
                index=index,
                name=name,
                util=of(index, lambda gpu: gpu.util),
                mem_mib=of(index, lambda gpu: gpu.mem),
                temp_c=of(index, lambda gpu: gpu.temp),
            )
            for index, name in sorted(names.items())
        ),
        metrics=_metrics(found) if job is not None else {},
    )


def _parse(lines: Sequence[bytes] | Iterator[bytes]) -> Iterator[Reading]:
    """Parse the lines as readings. A line that is not a reading is skipped."""
    for line in lines:
        if line:
            with suppress(ValidationError):
                yield Reading.model_validate_json(line)


def _spans(count: int) -> list[tuple[int, int]]:
    """Return the range of readings for which each entry, or each pair of entries, stands."""
    if count <= MOST_POINTS:
        return [(i, i + 1) for i in range(count)]
    parts = MOST_POINTS // 2
    return [(i * count // parts, (i + 1) * count // parts) for i in range(parts)]


def _envelope(
    values: Sequence[float | None], spans: Sequence[tuple[int, int]]
) -> Iterator[float | None]:
    for begin, end in spans:
        if end - begin == 1:
            yield values[begin]
            continue
        known = [value for value in values[begin:end] if value is not None]
        yield min(known, default=None)
        yield max(known, default=None)


def _metrics(found: Sequence[Reading]) -> dict[str, Series]:
    courses: dict[str, MetricCurve] = {}
    told = [one for one in found if one.metrics]
    steps = [one.done for one in told if one.done is not None]
    is_by_step = len(steps) == len(told) and steps == sorted(steps)
    for number, one in enumerate(told):
        for name, value in one.metrics.items():
            courses.setdefault(name, MetricCurve()).add(
                steps[number] if is_by_step else number, value
            )
    return {name: course.series() for name, course in courses.items()}


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
