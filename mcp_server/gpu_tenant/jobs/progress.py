"""How far a job has come, according to its own log."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import plain

Unit = Literal["step", "epoch", "it"]

MAX_LINES = 400
MAX_METRICS = 32


class Progress(Record):
    """The position that a job reports. `fraction` is the share of the work that is done, if the log shows it."""

    done: float | None = None
    total: float | None = None
    unit: Unit | None = None
    fraction: float | None = None
    metrics: dict[str, float] = {}  # noqa: RUF012 (pydantic copies it)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where the job is, according to one line of its log."""

    done: float
    total: float | None
    unit: Unit


@dataclass(frozen=True, slots=True)
class LogLine:
    """What one line of a log reports."""

    epoch: LogPosition | None
    step: LogPosition | None
    """A step or an iteration. If the line also reports an epoch, this is a step within that epoch."""
    metrics: tuple[tuple[str, float], ...]


_UNITS: dict[str, Unit] = {
    "epoch": "epoch",
    "step": "step",
    "batch": "step",
    "iter": "it",
    "iteration": "it",
    "it": "it",
}
_COUNT = r"\d[\d,]*(?:\.\d+)?"
_WORDED = re.compile(
    # The first letter is checked before the rest, because this excludes most words quickly.
    rf"\b(?=[ebis])(?P<unit>epoch|step|batch|iteration|iter|it)s?\b\W{{0,4}}?(?P<done>{_COUNT})"
    rf"(?:\s*(?:/|of|out of)\s*(?P<total>{_COUNT}))?",
    re.IGNORECASE,
)
_BRACKETED = re.compile(rf"\[\s*(?P<done>{_COUNT})\s*/\s*(?P<total>{_COUNT})")
_BAR = re.compile(
    r"\d{1,3}%\|[^|]*\|\s*(?P<done>[\d.]+)(?P<dk>[kMG]?)/(?P<total>[\d.]+)(?P<tk>[kMG]?)"
)
_ENDLESS_BAR = re.compile(r"(?:^|\s)(?P<done>\d+)it \[")
_CUT = re.compile(r"\A[^\r\n]*(?:\r\n|[\r\n])(?=.)", re.DOTALL)
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)\b"
_METRIC_WORDS = (
    "loss|acc|accuracy|lr|learning_rate|ppl|perplexity|f1|auc|map|bleu|rouge|reward|return|error"
    "|grad_norm|iou|dice|psnr|ssim|fid|mse|mae|rmse|wer|cer|precision|recall|kl|nll|bpb"
)
_METRIC = re.compile(
    rf"(?<![A-Za-z])(?P<name>[A-Za-z][\w./@-]{{0,63}}+)['\"]?(?:\s*[=:]\s*|\s+)(?P<value>{_NUMBER})",
    re.IGNORECASE,
)
_METRIC_NAME = re.compile(rf"(?:^|[\W_])(?:{_METRIC_WORDS})(?:$|[\W_\d])", re.IGNORECASE)

_FIRST = ("loss", "train_loss", "train/loss", "eval_loss", "val_loss", "eval/loss", "val/loss")
"""The metrics that are shown first, in this order. Other losses come next, then the rest in the order of the log."""

_TOTAL_KEYS: dict[Unit, tuple[str, ...]] = {
    "step": ("total_steps", "max_steps", "num_steps", "steps"),
    "it": ("total_iters", "max_iters", "iterations"),
    "epoch": ("total_epochs", "max_epochs", "num_epochs", "epochs"),
}
_DONE_KEYS: dict[str, Unit] = {
    "global_step": "step",
    "step": "step",
    "iteration": "it",
    "iter": "it",
    "epoch": "epoch",
}


def whole_lines(tail: str) -> str:
    """Return the tail of a log without its first line, which may be cut.

    If the tail is a single line, return all of it.
    """
    return _CUT.sub("", tail, count=1)


def read_progress(log_tail: str) -> Progress | None:
    """Return the last position in the log, and the last value of each metric, losses first. None if there is neither.

    Steps that are reported after an epoch count as steps within that epoch: `epoch 3/10 step 5/20` is 2.25 epochs of
    10, and `epoch 3 step 5/20` is an unknown fraction of the whole.
    """
    epoch: LogPosition | None = None
    inner: LogPosition | None = None
    metrics: dict[str, float] = {}
    for line in plain(log_tail).split("\n")[-MAX_LINES:]:
        told = told_by(line)
        if told.epoch is not None:
            epoch, inner = told.epoch, None
        inner = told.step or inner
        for name, value in told.metrics:
            if name in metrics or len(metrics) < MAX_METRICS:
                metrics[name] = value
    ordered = sorted(metrics.items(), key=lambda metric: _rank(metric[0]))
    return _combine(epoch, inner, dict(ordered))


def _rank(metric: str) -> int:
    if metric in _FIRST:
        return _FIRST.index(metric)
    return len(_FIRST) if "loss" in metric.lower() else len(_FIRST) + 1


def told_by(line: str) -> LogLine:
    """Read what a line of plain text reports about the job's position and its metrics."""
    fields = _fields(line)
    epoch: LogPosition | None = None
    step: LogPosition | None = None
    for place in _told_positions(fields) if fields else _written_positions(line):
        if place.unit == "epoch":
            epoch = _better(epoch, place)
        else:
            step = _better(step, place)
    return LogLine(epoch, step, tuple(_measures(fields, line)))


def _combine(
    epoch: LogPosition | None, inner: LogPosition | None, metrics: dict[str, float]
) -> Progress | None:
    place = inner or epoch
    if epoch and epoch.total and inner and inner.total:
        within = min(1.0, inner.done / inner.total)
        place = LogPosition(done=max(0.0, epoch.done - 1) + within, total=epoch.total, unit="epoch")
    if place is None:
        return Progress(metrics=metrics) if metrics else None
    only_this_epoch = epoch is not None and place is inner
    whole = None if only_this_epoch else place.total
    fraction = min(1.0, place.done / whole) if whole else None
    return Progress(
        done=place.done, total=place.total, unit=place.unit, fraction=fraction, metrics=metrics
    )


def _better(held: LogPosition | None, later: LogPosition) -> LogPosition:
    """Return the later of the two positions. But if only the earlier one has a total, return the earlier one."""
    return held if held is not None and held.total and not later.total else later


def _written_positions(line: str) -> Iterator[LogPosition]:
    for match in _WORDED.finditer(line):
        unit, all_of_it = _UNITS[match["unit"].lower()], match["total"]
        if unit == "epoch" and "." in match["done"] and not all_of_it:
            continue  # "epoch: 0.3" is not the number of an epoch, so steps after it do not belong to an epoch.
        total = _count(all_of_it) if all_of_it else None
        yield LogPosition(done=_count(match["done"]), total=total, unit=unit)
    if "[" not in line and "%|" not in line:
        return
    for match in _BRACKETED.finditer(line):
        done, total = _count(match["done"]), _count(match["total"])
        if done <= total:  # Otherwise this is a date.
            yield LogPosition(done=done, total=total, unit="step")
    for match in _BAR.finditer(line):
        reached, whole = _scale(match["done"], match["dk"]), _scale(match["total"], match["tk"])
        if reached is not None and whole is not None:
            yield LogPosition(done=reached, total=whole, unit="it")
    for match in _ENDLESS_BAR.finditer(line):
        yield LogPosition(done=float(match["done"]), total=None, unit="it")


def _told_positions(fields: dict[str, float]) -> Iterator[LogPosition]:
    for key, unit in _DONE_KEYS.items():
        if key in fields:
            totals = (fields[name] for name in _TOTAL_KEYS[unit] if name in fields)
            total = next(totals, None)
            yield LogPosition(done=fields[key], total=total, unit=unit)
            if total and unit != "epoch":
                return  # If there is a total, the steps are counted across all epochs, so the epoch adds nothing.


def _measures(fields: dict[str, float], line: str) -> Iterator[tuple[str, float]]:
    if fields:
        yield from ((name, value) for name, value in fields.items() if _is_metric(name))
        return
    for match in _METRIC.finditer(line):
        if _is_metric(match["name"]):
            yield match["name"], float(match["value"])


@lru_cache(maxsize=1024)
def _is_metric(name: str) -> bool:
    return _METRIC_NAME.search(name) is not None


def _fields(line: str) -> dict[str, float]:
    """Return the numbers in a JSON log line, by name. Empty for any other line."""
    if not line.lstrip().startswith("{"):
        return {}
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return {
        _name(str(name)): float(value)
        for name, value in told.items()
        if isinstance(value, float | int) and not isinstance(value, bool) and abs(value) < 1e300
    } | {
        _name(str(name)): value
        for name, value in told.items()
        if isinstance(value, float) and not math.isfinite(value)
    }


def _name(said: str) -> str:
    """Make the name printable: JSON can encode characters that valid text cannot contain, such as a lone surrogate."""
    return (said if said.isprintable() else plain(said))[:64]


def _count(text: str) -> float:
    return float(text.replace(",", ""))


def _scale(text: str, scale: str) -> float | None:
    try:
        return float(text) * _SCALE[scale]
    except ValueError:  # "1.2.3"
        return None
