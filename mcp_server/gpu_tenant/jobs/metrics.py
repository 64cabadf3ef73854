"""A job's metrics over its steps (loss, accuracy, learning rate), read from every line of its log."""

import math
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.jobs.progress import MAX_METRICS, LogPosition, told_by

MOST_POINTS = 1500
"""At most this many points are kept for one metric. A chart has fewer pixels."""
_PER_STRETCH = 3
"""At most this many points are kept of each stretch: the least and the greatest value, and one that is not a number."""
_MOST_STRETCHES = MOST_POINTS // _PER_STRETCH
_LINE_CHARACTERS = 4000
"""Only this much of a line is read. A line that reports a step is not longer."""
_ENDS = re.compile(r"[\r\n]+")
_WORTH_READING = re.compile(r"\d")


class Series(Record):
    """One metric over its steps. None stands for a value that is NaN or infinite; `not_finite` counts these."""

    steps: tuple[float, ...]
    values: tuple[float | None, ...]
    not_finite: int = 0


class _Point(NamedTuple):
    number: int
    """The index of this value within its metric, from 0."""
    step: float
    value: float | None


@dataclass(slots=True)
class _Stretch:
    """A run of consecutive values, of which only the extremes are kept."""

    least: _Point | None = None
    greatest: _Point | None = None
    odd: _Point | None = None
    count: int = 0

    def take(self, point: _Point) -> None:
        if point.value is None:
            self.odd = self.odd or point
            return
        if self.least is None or self.least.value is None or point.value < self.least.value:
            self.least = point
        if (
            self.greatest is None
            or self.greatest.value is None
            or point.value > self.greatest.value
        ):
            self.greatest = point

    def points(self) -> list[_Point]:
        """The points that are kept, in the order in which they came."""
        held = {point for point in (self.least, self.greatest, self.odd) if point is not None}
        return sorted(held)


@dataclass(slots=True)
class MetricCurve:
    """The values of one metric over the steps, reduced to at most `MOST_POINTS` points.

    The values are divided into stretches of equal length. Each stretch keeps its least and its greatest value. When
    there are too many stretches, they are merged in pairs.
    """

    _stretches: list[_Stretch] = field(default_factory=list)
    _length: int = 1
    count: int = 0
    """How many values there have been."""
    _not_finite: int = 0
    _last_step: float = -math.inf

    def add(self, step: float, value: float | None) -> None:
        """Add one value.

        If `step` is before the last one, the job has gone back. Then the values from `step` on are dropped.
        """
        if step < self._last_step:
            self._go_back(step)
        if value is not None and not math.isfinite(value):
            value = None
        self._not_finite += value is None
        if not self._stretches or self._stretches[-1].count == self._length:
            if len(self._stretches) == _MOST_STRETCHES:
                self._halve()
            self._stretches.append(_Stretch())
        newest = self._stretches[-1]
        newest.take(_Point(self.count, step, value))
        newest.count += 1
        self.count += 1
        self._last_step = step

    def series(self) -> Series:
        """Return the points that are kept, by ascending step."""
        points = [point for stretch in self._stretches for point in stretch.points()]
        return Series(
            steps=tuple(point.step for point in points),
            values=tuple(point.value for point in points),
            not_finite=self._not_finite,
        )

    def _halve(self) -> None:
        """Merge the stretches in pairs. Later stretches are then twice as long as before."""
        merged = []
        for i in range(0, len(self._stretches), 2):
            pair = _Stretch(count=self._length * 2)
            for stretch in self._stretches[i : i + 2]:
                for point in stretch.points():
                    pair.take(point)
            merged.append(pair)
        self._stretches, self._length = merged, self._length * 2

    def _go_back(self, step: float) -> None:
        while self._stretches:
            points = self._stretches[-1].points()
            before = [point for point in points if point.step < step]
            if len(before) == len(points) and points:
                return
            self._stretches.pop()
            if before:
                part = _Stretch(count=self._length)
                for point in before:
                    part.take(point)
                self._stretches.append(part)
                return


class Metrics:
    """The metrics of one job, read from its log as the log arrives, in pieces of text of any length.

    Each line is read once, and the memory used does not grow with the log.
    """

    def __init__(self) -> None:
        self._courses: dict[str, MetricCurve] = {}
        self._begun = ""
        """The beginning of a line whose rest has not arrived yet."""
        self._steps = _Steps()

    def feed(self, text: str) -> None:
        """Read more of the log. A later piece may complete a line."""
        *lines, rest = _ENDS.split(self._begun + text)
        for line in lines:
            self._read(line)
        self._begun = rest[:_LINE_CHARACTERS]

    def end(self) -> None:
        """Take the log as complete, so that its last line is whole."""
        self._read(self._begun)
        self._begun = ""

    def series(self) -> dict[str, Series]:
        """Return the curve of each metric so far, in the order in which the log first mentioned the metrics."""
        return {name: course.series() for name, course in self._courses.items()}

    def _read(self, line: str) -> None:
        if not _WORTH_READING.search(line):
            return
        line = line[:_LINE_CHARACTERS]
        told = told_by(line if line.isprintable() else plain(line))
        step = self._steps.at(told.epoch, told.step)
        for name, value in told.metrics:
            course = self._courses.get(name)
            if course is None:
                if len(self._courses) == MAX_METRICS:
                    continue
                course = self._courses[name] = MetricCurve()
            course.add(course.count if step is None else step, value)


def measured_by(tail: str) -> dict[str, Series]:
    """Return the metrics in the tail of a log, each value at the step that the job reports for it.

    A value for which the tail reports no step is left out: only the whole log shows to which step it belongs.
    """
    steps, courses = _Steps(), dict[str, MetricCurve]()
    for line in plain(tail).split("\n"):
        told = told_by(line[:_LINE_CHARACTERS])
        at = steps.at(told.epoch, told.step)
        if at is None or not steps.counts:
            continue
        for name, value in told.metrics:
            if name in courses or len(courses) < MAX_METRICS:
                courses.setdefault(name, MetricCurve()).add(at, value)
    return {name: course.series() for name, course in courses.items()}


class _Steps:
    """Gives every line of a log a position on one axis. The axis counts steps, or epochs until a step is reported."""

    def __init__(self) -> None:
        self._epoch: float | None = None
        self._is_new_epoch = False
        self._base = 0.0
        """This is added to the step count of a log that started counting over."""
        self._counted: float | None = None
        """The last step, as the log reported it."""
        self._last: float | None = None

    @property
    def counts(self) -> bool:
        """Whether any line so far has reported a step."""
        return self._counted is not None

    def at(self, epoch: LogPosition | None, step: LogPosition | None) -> float | None:
        """Return the position of a line that reports this epoch and this step.

        A line that reports neither has the position of the line before. None if no line has reported a position
        yet.
        """
        if epoch is not None:
            self._is_new_epoch = self._epoch is not None and epoch.done > self._epoch
            self._epoch = epoch.done
        if step is not None:
            fell = self._counted is not None and step.done < self._counted
            if fell and (self._is_new_epoch or step.done <= 1):
                self._base = self._last or 0.0
            self._is_new_epoch = False
            self._counted = step.done
            self._last = self._base + step.done
        elif epoch is not None and self._counted is None:
            self._last = epoch.done
        return self._last
