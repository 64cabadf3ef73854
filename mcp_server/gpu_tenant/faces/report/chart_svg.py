"""Draws a line chart as standalone SVG, without scripts, fonts and colours of its own."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from markupsafe import Markup

Across = Literal["time", "step"]
Up = Literal["number", "percent", "bytes", "usd"]

_WIDTH, _HEIGHT = 720, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 26, 12, 30
_TIMES_S = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400)
_SHADES = 8
"""The style sheet has a class for each of this many lines, so that they look different."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart. A value of None leaves a gap."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def chart(key: str, title: str, curves: Sequence[Curve], *, x: Across, y: Up) -> Markup | None:
    """Draw the chart of these curves. None if they have no points. `key` is an id that is unique on the page."""
    points = [
        (a, b) for curve in curves for a, b in zip(curve.xs, curve.ys, strict=True) if b is not None
    ]
    if not points:
        return None
    at_x = _scale_of([a for a, _ in points], _LEFT, _WIDTH - _RIGHT, floor=None)
    at_y = _scale_of(
        [b for _, b in points], _HEIGHT - _BOTTOM, _TOP, floor=None if y == "number" else 0.0
    )
    return Markup(
        '<svg class="chart" role="img" viewBox="0 0 {} {}" aria-labelledby="{}-t {}-d">'
        '<title id="{}-t">{}</title><desc id="{}-d">{}</desc>{}{}{}</svg>'
    ).format(
        _WIDTH,
        _HEIGHT,
        key,
        key,
        key,
        title,
        key,
        _describe(curves, y),
        Markup("").join(_ticks_up(at_y, y)),
        Markup("").join(_ticks_across(at_x, x)),
        Markup("").join(_draw(n, curve, at_x, at_y) for n, curve in enumerate(curves)),
    )


def shade(number: int) -> str:
    """Return the CSS class of the curve with that number."""
    return f"k{number % _SHADES}"


def amount(value: float, y: Up) -> str:
    """Write a value for a person."""
    match y:
        case "percent":
            return f"{value:.3g} %"
        case "usd":
            return f"{value:.4g} USD"
        case "number":
            return f"{value:.4g}"
        case "bytes":
            for unit in ("B", "KB", "MB", "GB"):
                if abs(value) < 1000:
                    return f"{value:.3g} {unit}"
                value /= 1000
            return f"{value:.4g} TB"


def _scale_of(values: Sequence[float], start: float, end: float, *, floor: float | None) -> _Scale:
    low, high = min(values), max(values)
    low = low if floor is None else min(low, floor)
    if high - low <= abs(high) * 1e-9:
        # A single or constant value is drawn in the middle.
        margin = abs(high) * 0.1 or 1.0
        low, high = (low - margin if floor is None else low), high + margin
    return _Scale(low, high, start, end)


def _describe(curves: Sequence[Curve], y: Up) -> str:
    said = []
    for curve in curves:
        known = [value for value in curve.ys if value is not None]
        if known:
            said.append(
                f"{curve.name}: from {amount(min(known), y)} to {amount(max(known), y)}, "
                f"{amount(known[-1], y)} at last"
            )
    return "; ".join(said)


def _draw(number: int, curve: Curve, at_x: _Scale, at_y: _Scale) -> Markup:
    path = []
    pen = "M"
    for a, b in zip(curve.xs, curve.ys, strict=True):
        if b is None:
            pen = "M"
            continue
        # A point between two gaps is drawn as a stroke without length. With round ends, it looks like a dot.
        path.append(f"{pen}{at_x(a)} {at_y(b)}" + ("h0" if pen == "M" else ""))
        pen = "L"
    return Markup('<path class="line {}" d="{}"></path>').format(shade(number), "".join(path))


def _ticks_up(scale: _Scale, y: Up) -> Iterator[Markup]:
    for value in _round_values(scale.low, scale.high, 4):
        at = scale(value)
        yield Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"></line>'
            '<text class="tick up" x="{}" y="{}">{}</text>'
        ).format(_LEFT, _WIDTH - _RIGHT, at, at, _LEFT - 8, at + 4, amount(value, y))


def _ticks_across(scale: _Scale, x: Across) -> Iterator[Markup]:
    span = scale.high - scale.low
    values = (
        _round_times(scale.low, scale.high)
        if x == "time"
        else _round_values(scale.low, scale.high, 6)
    )
    for value in values:
        words = _moment(value, span) if x == "time" else f"{value:,.10g}"
        yield Markup('<text class="tick across" x="{}" y="{}">{}</text>').format(
            scale(value), _HEIGHT - 10, words
        )


def _round_values(low: float, high: float, about: int) -> list[float]:
    """Return about that many round values between `low` and `high`."""
    rough = (high - low) / about
    if not math.isfinite(rough) or rough <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * m for m in (1, 2, 5) if power * m >= rough), power * 10)
    if not step:
        return [low]  # The values are so close together that there is no number between them.
    # Rounded, because 0.0003 / 0.0001 is a little less than 3.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def _round_times(low: float, high: float) -> list[float]:
    span = high - low
    step = next((s for s in _TIMES_S if span / s <= 6), math.ceil(span / 6 / 86400) * 86400)
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _moment(at: float, span: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    if span < 600:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%H:%M}" if span < 86400 else f"{moment:%m-%d %H:%M}"
