"""Prints what a person sees: answers on stdout, everything else on stderr."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar
from unicodedata import east_asian_width

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.untrusted_text import without_fence
from gpu_tenant.domain.wording import (
    NOBODY_BILLS,
    size,
    some,
    span,
    until,
    usd_words,
    with_dates,
)

# Each command imports the types of its own answer, so they are not imported here.
if TYPE_CHECKING:
    from gpu_tenant.artifacts.collect import Collected
    from gpu_tenant.artifacts.push import Pushed
    from gpu_tenant.box.audit.run import Audited
    from gpu_tenant.doctor import Checkup
    from gpu_tenant.domain.choices import Purpose
    from gpu_tenant.domain.policy import Policy
    from gpu_tenant.domain.record import Record
    from gpu_tenant.jobs.launch import Launched
    from gpu_tenant.jobs.monitor import Watched
    from gpu_tenant.jobs.smoke import SmokeReceipt
    from gpu_tenant.leases.cards import Card, TornDown
    from gpu_tenant.service import Tenancy
    from gpu_tenant.watchdog.loop import WatchReport

R = TypeVar("R", bound="Record")

_TOLD = 5
"""A receipt shows at most this many sentences of each kind. The report has all of them."""

_VERBOSE = f"{__name__}.verbose"

_COMMAND = re.compile(r"`[^`]*`")

_COLOURS = {"ok": "green", "warning": "yellow", "blocker": "red"}


@asynccontextmanager
async def tenancy(
    environ: Mapping[str, str] | None = None, *, purpose: Purpose = "work"
) -> AsyncIterator[Tenancy]:
    """Open this user's tenancy, and close it at the end of the block. Its notices go to stderr.

    In a rehearsal, each command whose answer is about money says so, because the person may have forgotten it.
    """
    # Imported here, because this imports most of the program, which `--help` and a wrong call do not need.
    from gpu_tenant.app import open_tenancy
    from gpu_tenant.faces.cli import prompts
    from gpu_tenant.leases.presence import note_presence
    from gpu_tenant.leases.speaker import speaker

    is_person = prompts.is_at_terminal()
    speaker.set("person" if is_person else "agent")
    opened = open_tenancy(
        environ, tell=lambda words: click.echo(f"note: {words}", err=True), purpose=purpose
    )
    try:
        if is_person:
            note_presence(opened.context.home, opened.clock.now())
        if opened.ledger.is_rehearsed and _speaks_of_money() and not _is_told("rehearsal"):
            click.echo("note: rehearsal, no money", err=True)
        yield opened
    finally:
        await opened.aclose()


_OF_MONEY = frozenset(
    {"offers", "provision", "run", "terms", "leases", "teardown", "report", "limits"}
)


def _speaks_of_money() -> bool:
    """Whether this command's answer is about sums of money. True if no command runs, because then it may be."""
    context = click.get_current_context(silent=True)
    return context is None or context.info_name in _OF_MONEY


def _is_told(what: str) -> bool:
    """Whether this was called before with the same text during this command."""
    context = click.get_current_context(silent=True)
    if context is None:
        return False
    key = f"{__name__}.{what}"
    was_told = bool(context.meta.get(key))
    context.meta[key] = True
    return was_told


def note_verbose(value: bool) -> None:
    """Record whether the person wants all of the answer."""
    click.get_current_context().meta[_VERBOSE] = value


def is_verbose() -> bool:
    """Whether the person wants all of the answer (`--verbose`)."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_VERBOSE))


def answer(record: R, as_json: bool, words: Callable[[R], None]) -> None:
    """Print the answer to stdout, as JSON or in words."""
    if as_json:
        click.echo(record.model_dump_json(indent=2))
    else:
        words(record)


def complain(who: str, words: str) -> None:
    """Print to stderr what a person must know. `who` names its origin, and is printed in red."""
    click.echo(f"{click.style(f'{who}:', fg='red')} {words}", err=True)


def _print_finding(level: str, words: str) -> None:
    click.echo(f"{click.style(level, fg=_COLOURS[level])}{' ' * (9 - len(level))}{words}")


def step(words: str) -> str:
    """Return the text of the next step. If it is only a command, leave out the backticks, so that it can be pasted."""
    alone = words[1:-1]
    return alone if words == f"`{alone}`" and "`" not in alone else words


def print_list(title: str, lines: Sequence[tuple[str, object]], *, err: bool = False) -> None:
    """Print a title, and below it each name with its value. Long values are broken to the width of the terminal."""
    for line in in_lines(title, err=err):
        click.echo(click.style(line, bold=True), err=err)
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        if name == "next":
            click.echo(f"  {name:<{width}}  {step(str(value))}", err=err)
            continue
        for number, line in enumerate(in_lines(str(value), width + 4, err=err)):
            click.echo(f"  {'' if number else name:<{width}}  {line}", err=err)


_BLANK = "\x00"
"""Stands for a blank within a command. No line is broken there, so that the command can be pasted."""


def in_lines(words: str, indent: int = 0, *, err: bool = False) -> list[str]:
    """Break the words into lines that fit the terminal after an indent. A pipe gets them in one line."""
    if not (sys.stderr if err else sys.stdout).isatty():
        return [words]
    room = max(shutil.get_terminal_size().columns - indent, 20)
    kept = _COMMAND.sub(lambda found: found[0].replace(" ", _BLANK), words)
    lines = textwrap.wrap(kept, room, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_BLANK, " ") for line in lines] or [""]


def columns(rows: Sequence[Sequence[str]]) -> None:
    """Print a table with its first row as the heading. A terminal wraps a long line, and a pipe keeps it whole."""
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = (
            cell + " " * (width - text_width(cell)) for cell, width in zip(row, widths, strict=True)
        )
        line = "  ".join(cells).rstrip()
        click.echo(line if number else click.style(line, bold=True))


def text_width(text: str) -> int:
    """Return how many columns of a terminal the text takes. A Chinese character takes two."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def smoke(receipt: SmokeReceipt) -> None:
    """Print a smoke test's outcome."""
    how = "passed" if receipt.passed else "failed"
    ended = (
        "ran into its time limit"
        if receipt.exit_status is None
        else f"status {receipt.exit_status}"
    )
    every = is_verbose()
    print_list(
        f"{receipt.id}: {how}, {ended} after {receipt.seconds:.1f} s",
        [
            *([("peak memory", size(receipt.peak_bytes))] if every and receipt.peak_bytes else []),
            *([("on a GPU", receipt.gpu_memory.words)] if receipt.gpu_memory else []),
            ("wrote", ", ".join(receipt.wrote) or "nothing"),
            *(("doubtful", line) for line in receipt.doubtful),
            *(("left out", line) for line in receipt.left_out),
            *([("confined by", receipt.confined)] if every else []),
            # At a terminal, `provision` takes the newest smoke test of this directory by itself.
            ("next", Command("offers") if receipt.passed and not every else receipt.next),
        ],
    )
    if not receipt.passed and receipt.log_tail:
        click.echo(receipt.log_tail, err=True)


def card_in(tenancy: Tenancy) -> Callable[[Card], None]:
    """Return the function that prints a lease with its most important terms."""
    from gpu_tenant.leases.terms_in_force import in_brief

    return lambda shown: card(shown, in_brief(tenancy.context, shown.lease))


def card(shown: Card, terms: Sequence[tuple[str, str]] = ()) -> None:
    """Print one lease, and in a few lines its terms."""
    every = is_verbose()
    rows: list[tuple[str, object]] = [
        *([("box", f"{shown.box} at {shown.address}")] if every or not terms else []),
        ("price", "; ".join(filter(None, (shown.price_words, _foretold(shown))))),
        *(
            [("budget", shown.budget_end or usd_words(shown.budget_usd))]
            if shown.budget_usd is not None
            else []
        ),
        *(row for row in terms or _without_terms(shown) if every or row[0] != "left to you"),
        *([("goes on", shown.recovered)] if shown.recovered else []),
        *([("unclaimed", shown.unclaimed)] if shown.unclaimed not in shown.next else []),
        *([("GPU memory", shown.memory)] if shown.memory else []),
        *(("open to the internet", port) for port in shown.published),
        ("next", shown.next),
    ]
    if every and shown.counts and shown.counts != NOBODY_BILLS:
        rows.append(("counted", shown.counts))
    if shown.alarm:
        rows.append(("note", shown.alarm))
    if shown.fleet is not None:
        rows.insert(0, ("fleet", shown.fleet))
    if shown.name:
        rows.insert(0, ("name", shown.name))
    print_list(f"{shown.lease}: {shown.phase}", rows)


def _without_terms(shown: Card) -> list[tuple[str, object]]:
    """Return the rows for a lease that has ended, or for a wish that has no box yet."""
    return [
        *([] if shown.deadline_in_s is None else [("deadline", until(shown.deadline_in_s))]),
        ("if this computer dies", shown.stops_the_meter),
        *([("watched", shown.watched)] if shown.watched else []),
    ]


def _foretold(shown: Card) -> str:
    if shown.forecast_deadline_usd is None:
        return ""
    job = ""
    if shown.job_ends_in_s is not None:
        job = f"; {usd_words(shown.forecast_job_usd)} when its job is done, in {span(shown.job_ends_in_s)}"
    return f"{usd_words(shown.forecast_deadline_usd)} by its deadline{job}"


def policy(shown: Policy) -> None:
    """Print the terms in force for a lease."""
    for words in shown.terms:
        click.echo(f"{shown.lease}: {words}")
    click.echo(f"{shown.lease}: if this computer dies: {shown.if_this_computer_dies}")


def look(shown: WatchReport) -> None:
    """Print what a watchdog did in one round, with its notices."""
    for words in shown.did:
        click.echo(words)
    for alarm in shown.alarms:
        complain("alarm", alarm)
    click.echo(f"{some(shown.leases, 'lease')} looked at")


def audit(shown: Audited) -> None:
    """Print the findings. The worst come last, where a reader looks first."""
    order = {"ok": 0, "warning": 1, "blocker": 2}
    for finding in sorted(shown.findings, key=lambda f: order[f.level]):
        reason = f" ({finding.reason})" if finding.level != "ok" else ""
        _print_finding(finding.level, f"{finding.subject}: {finding.seen}{reason}")
    click.echo(
        f"{some(shown.blockers, 'blocker')}, {some(shown.warnings, 'warning')}; next: {step(shown.next)}"
    )


def print_pushed(shown: Pushed) -> None:
    """Print what a push did."""
    click.echo(
        f"{shown.lease}: {some(shown.sent_files, 'file')} sent ({size(shown.sent_bytes)}), "
        f"{shown.unchanged_files} unchanged; next: {step(shown.next)}"
    )
    for line in shown.left_out:
        click.echo(f"left out: {line}")
    for line in shown.holes:
        click.echo(f"warning: {line}")
    if shown.lacks:
        click.echo(f"warning: {shown.lacks}")
    elif shown.left_out:
        click.echo(f"send such a file nevertheless: {Command('push', 'DIR', include='NAME')}")


def print_launched(shown: Launched) -> None:
    """Print what was started."""
    state = "was already started" if shown.already else "started"
    if shown.died:
        state = "started, and ended at once"
    print_list(
        f"{shown.job} on {shown.lease}: {state}",
        [
            *([("ended", shown.died)] if shown.died else []),
            ("keeps", ", ".join(shown.artifacts)),
            *([("may lose", ", ".join(shown.discard))] if shown.discard else []),
            *([("warning", shown.undeclared)] if shown.undeclared else []),
            *([("warning", shown.pipe)] if shown.pipe else []),
            *([("runs in", shown.environment)] if shown.environment else []),
            *([] if shown.is_guarded and not is_verbose() else [("guard", shown.guard)]),
            *([("budget", shown.budget_end)] if shown.budget_end else []),
            ("next", shown.next if shown.died else Command("monitor", shown.lease, follow=True)),
        ],
    )


def print_watched(shown: Watched) -> None:
    """Print the new part of a job's log, and then its state."""
    if shown.log_skipped_bytes:
        click.echo(f"... {size(shown.log_skipped_bytes)} of the log skipped ...", err=True)
    if shown.log:
        click.echo(without_fence(shown.log).rstrip("\n"))
    every, ended = is_verbose(), shown.exit_code is not None
    rows: list[tuple[str, object]] = []
    if shown.why:
        rows.append(("why", why_of(shown)))
    if shown.progress is not None:
        rows.append(("progress", progress_of(shown)))
    rows += [
        (
            f"GPU {g.index}",
            f"{g.util_pct} %, {g.mem_used_mib} of {g.mem_total_mib} MiB, {g.temp_c} C",
        )
        for g in shown.gpus
        if every or not ended
    ]
    if every:
        rows += [
            ("memory", f"{size(shown.memory_used_bytes)} of {size(shown.memory_limit_bytes)}"),
            ("disk", f"{size(shown.disk_free_bytes)} free"),
        ]
    rows += [
        *([("deadline", until(shown.deadline_in_s))] if every or not ended else []),
        *([("budget", shown.budget_end)] if shown.budget_end else []),
        *([("forecast", shown.outlook)] if shown.outlook else []),
        *([("alarm", shown.alarm)] if shown.alarm else []),
        *[
            ("its log names", link)
            for told in shown.trackers
            for link in without_fence(told).splitlines()
        ],
        *([("together", shown.gang)] if shown.gang else []),
        ("next", shown.next.removesuffix(" with this cursor")),  # --json has the cursor
    ]
    so_far = "" if shown.nobody_bills else " so far"
    title = f"{shown.job} on {shown.lease}: {state_of(shown)}; {cost_of(shown)}{so_far}"
    print_list(title, rows)


def cost_of(shown: Watched) -> str:
    """Return what the lease has cost so far. Of a box for which nobody bills, it says so."""
    return NOBODY_BILLS if shown.nobody_bills else usd_words(shown.cost_usd)


def state_of(shown: Watched) -> str:
    code = "" if shown.exit_code is None else f", status {shown.exit_code}"
    ran = "" if shown.running_s is None else f", after {span(shown.running_s)}"
    return f"{shown.state}{code}{ran}"


def why_of(shown: Watched) -> str:
    """Return why the job is in that state."""
    return with_dates(shown.why or "")


def progress_of(shown: Watched) -> str:
    if shown.progress is None:
        return ""
    metrics = "  ".join(f"{k}={v:g}" for k, v in list(shown.progress.metrics.items())[:4])
    share = shown.progress.fraction
    return f"{share:.0%}  {metrics}" if share is not None else metrics


def print_collected(shown: Collected) -> None:
    """Print what is now kept on this computer, and what prevents the box from being torn down."""
    fetched = (
        shown.came_before or f"{some(shown.fetched_files, 'file')}, {size(shown.fetched_bytes)}"
    )
    every = is_verbose()
    rows: list[tuple[str, object]] = [
        *([("sealed", shown.seal)] if every else []),
        *([("fetched now", fetched)] if every or shown.fetched_files < shown.files else []),
        *(
            [
                (
                    "undeclared",
                    f"{some(shown.unasked_files, 'file')} of these, {size(shown.unasked_bytes)}: {', '.join(shown.unasked)}",
                )
            ]
            if shown.unasked_files
            else []
        ),
        *([("replaced", shown.superseded)] if shown.superseded else []),
    ]
    if shown.discarded_by:
        given_up = f"{size(shown.discarded_bytes)} by {', '.join(shown.discarded_by)}"
        rows.append(("may be lost", given_up))
    if shown.unclaimed_files:
        named = ", ".join(shown.unclaimed_largest)
        rows.append(
            (
                "unclaimed",
                f"{some(shown.unclaimed_files, 'file')}, {shown.unclaimed_takes or size(shown.unclaimed_bytes)}: {named}",
            )
        )
    rows += [("cannot be kept", words) for words in shown.cannot_be_kept]
    rows += [("holds no bytes", words) for words in shown.not_files]
    rows += [("never appeared", pattern) for pattern in shown.never_appeared]
    rows += [
        ("only here", f"{name}: it is no longer on the box") for name in shown.only_here[:_TOLD]
    ]
    if len(shown.only_here) > _TOLD:
        rows.append(("only here", f"and {len(shown.only_here) - _TOLD} more"))
    rows += [("the work", shown.work)] if shown.work and (every or shown.work != "done") else []
    rows.append(("next", shown.next))
    here = f"{some(shown.files, 'file')}, {size(shown.size_bytes)}, in {shown.directory}"
    print_list(f"{shown.lease}: {here}", rows)


def receipt(shown: TornDown, *, of_run: bool = False) -> None:
    """Print the receipt, which proves that the box has ended.

    Nothing can be done any more about what was not proved, so only the report names it. The answer of a run says
    below the receipt what is kept, and names the report.
    """
    r = shown.receipt
    every = is_verbose()
    read = ", ".join(f"{n} {f}" for f, n in sorted(r.formats.items()))
    kept = f"{some(r.kept_files, 'file')}, {size(r.kept_bytes)}, in {r.kept_in}"
    is_done = r.outcome is None or r.outcome.grade == "done"
    rows: list[tuple[str, object]] = []
    if r.outcome and (every or not is_done):
        rows.append(("the work", r.outcome.words))
    if every or not of_run:
        whole = f"; read whole: {read}" if read else ""
        rows.append(("kept", f"{kept}{whole}" if r.kept_in else "nothing"))
    if every:
        gone = f"twice, last at {r.second_absent_at:%H:%M:%S} UTC, after {span(r.lived_s)}"
        rows.append(("handed back" if r.left_behind else "seen gone", gone))
    rows.append(("cost", r.sum_words))
    for title, told in (("given up", r.given_up), ("warning", r.warnings)):
        rows += [(title, words) for words in told[:_TOLD]]
        if len(told) > _TOLD:
            more = f"and {len(told) - _TOLD} more: {Command('report', shown.lease)}"
            rows.append((title, more))
    rows += [("left behind", r.left_behind)] if r.left_behind else []
    rows += [("together", shown.gang)] if shown.gang else []
    rows += [("also bills", shown.twin)] if shown.twin else []
    rows += [("in all", shown.work)] if shown.work else []
    rows += [("attempts", shown.attempts)] if shown.attempts else []
    if (r.not_proved or r.counts) and not of_run:
        rows.append(("more", Command("report", shown.lease)))
    state = "handed back" if r.left_behind else shown.state
    print_list(f"receipt for {shown.lease}: {state}; {r.ground}: {r.loss_words}", rows)


def checkup(shown: Checkup) -> None:
    """Print the findings of `doctor`."""
    for finding in shown.findings:
        _print_finding(finding.level, f"{finding.subject}: {finding.words}")
