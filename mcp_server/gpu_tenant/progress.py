"""How far a job has come, as its own log tells it."""

import json
import math
import re
from collections.abc import Iterator
from typing import Literal

from gpu_tenant.boxtext import plain
from gpu_tenant.record import Record

Unit = Literal["step", "epoch", "it"]

MAX_LINES = 400
MAX_METRICS = 32


class Progress(Record):
    """Where a job says it is. `fraction` is of the whole, as far as the log lets one know."""

    done: float | None = None
    total: float | None = None
    unit: Unit | None = None
    fraction: float | None = None
    metrics: dict[str, float] = {}  # noqa: RUF012 (pydantic copies it)


class _Place(Record):
    done: float
    total: float | None
    unit: Unit


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
    rf"\b(?P<unit>epoch|step|batch|iteration|iter|it)s?\b\W{{0,4}}?(?P<done>{_COUNT})"
    rf"(?:\s*(?:/|of|out of)\s*(?P<total>{_COUNT}))?",
    re.IGNORECASE,
)
_BRACKETED = re.compile(rf"\[\s*(?P<done>{_COUNT})\s*/\s*(?P<total>{_COUNT})")
_BAR = re.compile(
    r"\d{1,3}%\|[^|]*\|\s*(?P<done>[\d.]+)(?P<dk>[kMG]?)/(?P<total>[\d.]+)(?P<tk>[kMG]?)"
)
_ENDLESS_BAR = re.compile(r"(?:^|\s)(?P<done>\d+)it \[")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)\b"
_METRIC_WORDS = (
    "loss|acc|accuracy|lr|learning_rate|ppl|perplexity|f1|auc|map|bleu|rouge|reward|return|error"
    "|grad_norm|iou|dice|psnr|ssim|fid|mse|mae|rmse|wer|cer|precision|recall|kl|nll|bpb"
)
_METRIC = re.compile(
    rf"(?P<name>[A-Za-z][\w./@-]{{0,63}})['\"]?(?:\s*[=:]\s*|\s+)(?P<value>{_NUMBER})", re.I
)
_METRIC_NAME = re.compile(rf"(?:^|[\W_])(?:{_METRIC_WORDS})(?:$|[\W_\d])", re.IGNORECASE)

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


def read_progress(log_tail: str) -> Progress | None:
    """The last place and the last value of each metric in the log, None where it tells of neither.

    Steps told after an epoch are counted as steps within it: `epoch 3/10 step 5/20` is 2.25 epochs
    of 10, and `epoch 3 step 5/20` is no known fraction of the whole.
    """
    epoch: _Place | None = None
    inner: _Place | None = None
    metrics: dict[str, float] = {}
    for line in plain(log_tail).split("\n")[-MAX_LINES:]:
        fields = _fields(line)
        places = tuple(_told(fields) if fields else _written(line))
        if new_epoch := _best(place for place in places if place.unit == "epoch"):
            epoch, inner = new_epoch, None
        inner = _best(place for place in places if place.unit != "epoch") or inner
        for name, value in _measured(fields, line):
            if name in metrics or len(metrics) < MAX_METRICS:
                metrics[name] = value
    return _combined(epoch, inner, metrics)


def _combined(
    epoch: _Place | None, inner: _Place | None, metrics: dict[str, float]
) -> Progress | None:
    place = inner or epoch
    if epoch and epoch.total and inner and inner.total:
        within = min(1.0, inner.done / inner.total)
        place = _Place(done=max(0.0, epoch.done - 1) + within, total=epoch.total, unit="epoch")
    if place is None:
        return Progress(metrics=metrics) if metrics else None
    only_this_epoch = epoch is not None and place is inner
    whole = None if only_this_epoch else place.total
    fraction = min(1.0, place.done / whole) if whole else None
    return Progress(**place.model_dump(), fraction=fraction, metrics=metrics)


def _best(places: Iterator[_Place]) -> _Place | None:
    """The last place that knows its total, or else the last one."""
    found = list(places)
    return next((place for place in reversed(found) if place.total), found[-1] if found else None)


def _written(line: str) -> Iterator[_Place]:
    for match in _WORDED.finditer(line):
        unit, all_of_it = _UNITS[match["unit"].lower()], match["total"]
        if unit == "epoch" and "." in match["done"] and not all_of_it:
            continue  # "epoch: 0.3" is another way to tell the steps, not what they lie in
        total = _count(all_of_it) if all_of_it else None
        yield _Place(done=_count(match["done"]), total=total, unit=unit)
    for match in _BRACKETED.finditer(line):
        done, total = _count(match["done"]), _count(match["total"])
        if done <= total:  # else it is a date
            yield _Place(done=done, total=total, unit="step")
    for match in _BAR.finditer(line):
        reached, whole = _scaled(match["done"], match["dk"]), _scaled(match["total"], match["tk"])
        if reached is not None and whole is not None:
            yield _Place(done=reached, total=whole, unit="it")
    for match in _ENDLESS_BAR.finditer(line):
        yield _Place(done=float(match["done"]), total=None, unit="it")


def _told(fields: dict[str, float]) -> Iterator[_Place]:
    for key, unit in _DONE_KEYS.items():
        if key in fields:
            totals = (fields[name] for name in _TOTAL_KEYS[unit] if name in fields)
            total = next(totals, None)
            yield _Place(done=fields[key], total=total, unit=unit)
            if total and unit != "epoch":
                return  # such a line counts its steps through all epochs


def _measured(fields: dict[str, float], line: str) -> Iterator[tuple[str, float]]:
    if fields:
        yield from ((name, value) for name, value in fields.items() if _METRIC_NAME.search(name))
        return
    for match in _METRIC.finditer(line):
        if _METRIC_NAME.search(match["name"]):
            yield match["name"], float(match["value"])


def _fields(line: str) -> dict[str, float]:
    """The numbers of a JSON log line, nothing for any other line."""
    if not line.lstrip().startswith("{"):
        return {}
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return {
        str(name)[:64]: float(value)
        for name, value in told.items()
        if isinstance(value, float | int) and not isinstance(value, bool) and abs(value) < 1e300
    } | {
        str(name)[:64]: value
        for name, value in told.items()
        if isinstance(value, float) and not math.isfinite(value)
    }


def _count(text: str) -> float:
    return float(text.replace(",", ""))


def _scaled(text: str, scale: str) -> float | None:
    try:
        return float(text) * _SCALE[scale]
    except ValueError:  # "1.2.3"
        return None
