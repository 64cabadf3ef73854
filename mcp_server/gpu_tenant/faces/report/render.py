"""Writes a report as one HTML file that loads nothing, or as Markdown. All text is escaped."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.wording import (
    NOBODY_BILLS,
    billed_words,
    cost_words,
    size,
    some,
    span,
    usd_words,
)
from gpu_tenant.faces.report.chart_svg import Across, Curve, Up, amount, chart, shade
from gpu_tenant.faces.report.expenses import Expenses
from gpu_tenant.faces.report.records import JobTold, Report
from gpu_tenant.jobs.metrics import Series
from gpu_tenant.jobs.samples import Readings

_MIB = 1 << 20
_MOST_CURVES = 8
_MOST_METRICS = 8
_SPECIAL = re.compile(r"([\\`*_\[\]|~$#])")
_BEGINS_SOMETHING = re.compile(r"^(?:[-+=>]|\d+(?=[.)](?:\s|$)))")
"""A line that begins like this would be a list, a quotation or a heading in Markdown."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with the numbers below it."""

    title: str
    drawing: Markup
    legend: tuple[tuple[str, str], ...]
    """The class and the name of each curve. Empty if there is only one curve."""
    note: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The values of one curve in a few numbers, for Markdown."""

    name: str
    first: str
    last: str
    least: str
    greatest: str
    note: str


def as_html(report: Report) -> str:
    """Return the report as one HTML file, for screen and paper. It has no script and loads nothing."""
    page = _templates().get_template("page.html")
    return page.render(
        report=report,
        readings=list(_figures(report.readings)),
        figures={job.id: list(_metric_figures(n, job)) for n, job in enumerate(report.jobs)},
        rate=_rate_figure(report),
        mark=mark_of(report.lease, "html"),
        **_words(),
    )


def as_markdown(report: Report) -> str:
    """Return the report in GitHub's Markdown, with numbers in place of the charts."""
    page = _templates().get_template("page.md")
    said = page.render(
        report=report,
        readings=list(_read_summaries(report.readings)),
        summaries={job.id: list(_summaries(job.metrics)) for job in report.jobs},
        mark=mark_of(report.lease, "md"),
        **_words(),
    )
    return re.sub(r"\n{3,}", "\n\n", said).strip() + "\n"


def expenses_html(told: Expenses, name: str) -> str:
    """Return the sum of many leases as one HTML file, for screen and paper. `name` is for `mark_of`."""
    page = _templates().get_template("expenses.html")
    return page.render(told=told, mark=mark_of(name, "html"), **_words())


def expenses_markdown(told: Expenses, name: str) -> str:
    """Return the sum of many leases in GitHub's Markdown."""
    page = _templates().get_template("expenses.md")
    said = page.render(told=told, mark=mark_of(name, "md"), **_words())
    return re.sub(r"\n{3,}", "\n\n", said).strip() + "\n"


def mark_of(lease: str, form: Literal["html", "md"]) -> str:
    """Return a text that is only in the first lines of this lease's reports, so that we recognise such a file."""
    if form == "html":
        return f'<meta name="generator" content="gpu-tenant report {lease}">'
    return f"<!-- gpu-tenant report {lease} -->"


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("gpu_tenant.faces.report"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"cell": _cell, "fenced": _fence}
    return made


def _words() -> dict[str, object]:
    """Return the functions with which a template formats values."""
    return {
        "usd": usd_words,
        "cost": cost_words,
        "usd_h": _usd_h,
        "when": _when,
        "size": size,
        "span": span,
        "some": some,
        "money": _money,
        "unbounded": _unbounded,
        "day": lambda at: f"{at:%Y-%m-%d}",
        "hours": lambda seconds: f"{seconds / 3600:.2f} h",
    }


def _usd_h(rate_usd_h: Decimal | None) -> str:
    """Write a rate without rounding, so that the sum can be checked."""
    return "unknown" if rate_usd_h is None else f"{rate_usd_h} USD/h"


def _money(report: Report) -> str:
    """Write what the lease has cost by our count, and what its provider has billed."""
    cost = report.cost
    if cost.counts == NOBODY_BILLS:
        return NOBODY_BILLS
    words = [f"{usd_words(cost.spent_usd)} by our count"]
    if cost.billed_usd is not None:
        words.append(f"{billed_words(cost.billed_usd)} by its provider's books")
    if cost.budget_usd is not None:
        words.append(f"of a budget of {usd_words(cost.budget_usd)}")
    if not report.is_over:
        words.append("so far")
    return ", ".join(words)


def _unbounded(report: Report) -> str:
    """Say what limits the cost of a lease without a budget."""
    if report.cost.counts == NOBODY_BILLS:
        return f"none is needed: {NOBODY_BILLS}"
    cap = report.cost.max_price_usd_h
    return (
        "none was set" if cap is None else "none was set: its price cap and its deadline bound it"
    )


def _when(at: datetime | None) -> str:
    return "never" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


# Markdown


def _cell(value: object) -> str:
    """Write the value as one line of Markdown text, in which nothing has a special meaning."""
    said = " ".join(plain(str(value)).split())
    said = _SPECIAL.sub(r"\\\1", said.replace("&", "&amp;").replace("<", "&lt;"))
    said = _BEGINS_SOMETHING.sub(lambda begun: f"{begun[0][:-1]}&#{ord(begun[0][-1])};", said)
    # GitHub would make links of addresses and mentions, so change their characters into entities.
    return said.replace("://", ":&#47;&#47;").replace("@", "&#64;").replace("www.", "www&#46;")


def _fence(value: object) -> str:
    """Write the value as a code block, with a fence that is longer than any in the value."""
    said = plain(str(value))
    longest = max((len(ticks) for ticks in re.findall(r"`+", said)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{said}\n{fence}"


def _summaries(metrics: dict[str, Series]) -> Iterator[Summary]:
    for name, series in metrics.items():
        yield from _summary(name, series.values, "number", series.not_finite)


def _read_summaries(read: Readings) -> Iterator[Summary]:
    yield from _summary("GPU use", read.gpu_util, "percent")
    yield from _summary("GPU memory", _in_bytes(read.gpu_mem_mib), "bytes")
    yield from _summary("memory", read.memory_bytes, "bytes")
    yield from _summary("free disk", read.disk_free_bytes, "bytes")


def _summary(
    name: str, values: Sequence[float | None], y: Up, not_finite: int = 0
) -> Iterator[Summary]:
    known = [value for value in values if value is not None]
    note = f"{some(not_finite, 'value')} no number" if not_finite else ""
    if known:
        yield Summary(
            name=plain(name),
            first=amount(known[0], y),
            last=amount(known[-1], y),
            least=amount(min(known), y),
            greatest=amount(max(known), y),
            note=note,
        )
    elif not_finite:
        yield Summary(plain(name), "-", "-", "-", "-", note)


# Charts


def _figures(read: Readings) -> Iterator[Figure]:
    over_time = partial(_figure, x="time")
    each = [Curve(f"GPU {gpu.index}", read.times, gpu.util) for gpu in read.gpus]
    if 1 < len(each) <= _MOST_CURVES:
        yield from over_time("read-util", "GPU use, each", each, y="percent")
    else:
        yield from over_time(
            "read-util", "GPU use", [Curve("GPU use", read.times, read.gpu_util)], y="percent"
        )
    total = read.gpu_mem_total_mib
    yield from over_time(
        "read-gpu-mem",
        "GPU memory",
        [Curve("GPU memory", read.times, _in_bytes(read.gpu_mem_mib))],
        y="bytes",
        note="" if total is None else f"of {size(total * _MIB)}",
    )
    limit = read.memory_limit_bytes
    yield from over_time(
        "read-memory",
        "Memory",
        [Curve("memory", read.times, read.memory_bytes)],
        y="bytes",
        note="" if limit is None else f"of {size(limit)}",
    )
    yield from over_time(
        "read-disk", "Free disk", [Curve("free", read.times, read.disk_free_bytes)], y="bytes"
    )


def _metric_figures(number: int, job: JobTold) -> Iterator[Figure]:
    for n, (name, series) in enumerate(list(job.metrics.items())[:_MOST_METRICS]):
        said = plain(name)
        odd = series.not_finite
        yield from _figure(
            f"job{number}-metric{n}",
            f"{said} by step",
            [Curve(said, series.steps, series.values)],
            x="step",
            y="number",
            note=f"{some(odd, 'value')} no number (NaN or infinite), and not drawn" if odd else "",
        )


def _rate_figure(report: Report) -> Figure | None:
    """Draw the hourly cost of the lease over time. None if it never changed, or is unknown."""
    rates = report.cost.rates
    if len({rate.usd_h for rate in rates}) < 2:
        return None
    xs = [at.timestamp() for rate in rates for at in (rate.since, rate.until)]
    ys = [None if rate.usd_h is None else float(rate.usd_h) for rate in rates for _ in range(2)]
    drawn = _figure("rate", "Rate by the hour", [Curve("rate", xs, ys)], x="time", y="usd")
    return next(drawn, None)


def _figure(
    key: str, title: str, curves: Sequence[Curve], *, x: Across, y: Up, note: str = ""
) -> Iterator[Figure]:
    drawing = chart(key, title, curves, x=x, y=y)
    if drawing is not None:
        several = curves if len(curves) > 1 else ()
        legend = tuple((shade(n), curve.name) for n, curve in enumerate(several))
        yield Figure(title, drawing, legend, note)


def _in_bytes(mib: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else value * _MIB for value in mib]
