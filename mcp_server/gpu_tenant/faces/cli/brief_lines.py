"""Writes one line for each of many leases, and the problems that are shown below these lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_tenant.domain.wording import cost_words, size, some, span, usd_words, with_dates

if TYPE_CHECKING:
    from gpu_tenant.artifacts.collect import Collected
    from gpu_tenant.artifacts.push import Pushed
    from gpu_tenant.artifacts.snapshot import Snapshot
    from gpu_tenant.box.audit.run import Audited
    from gpu_tenant.jobs.monitor import Watched
    from gpu_tenant.leases.cards import TornDown


def audit_line(shown: Audited) -> str:
    """Return the box's GPUs, and how many blockers and warnings it has."""
    gpus = f"{len(shown.gpus)}x {shown.gpus[0].name}" if shown.gpus else "no GPU"
    return f"{gpus}, {some(shown.blockers, 'blocker')}, {some(shown.warnings, 'warning')}"


def blockers(shown: Audited) -> str | None:
    """Return the problems that must be solved before a launch on the box. None if there are none."""
    found = [f"{f.subject}: {f.seen} ({f.reason})" for f in shown.findings if f.level == "blocker"]
    return "; ".join(found) or None


def watch_line(shown: Watched) -> str:
    """Return the state of the job."""
    code = "" if shown.exit_code is None else f", status {shown.exit_code}"
    ran = "" if shown.running_s is None else f", {span(shown.running_s)}"
    done = shown.progress.fraction if shown.progress else None
    share = "" if done is None else f", {done:.0%}"
    return f"{shown.job} {shown.state}{code}{ran}{share}, {usd_words(shown.cost_usd)}"


def why(shown: Watched) -> str | None:
    """Return why the job did not end well, and the lease's alarm. None if there is neither."""
    told = [with_dates(shown.why)] if shown.why else []
    return "; ".join([*told, *([shown.alarm] if shown.alarm else [])]) or None


def push_line(shown: Pushed) -> str:
    """Return what a push did."""
    return f"{some(shown.sent_files, 'file')} sent ({size(shown.sent_bytes)}), {shown.unchanged_files} unchanged"


def collect_line(shown: Collected) -> str:
    """Return what is now kept on this computer."""
    return f"{some(shown.files, 'file')}, {size(shown.size_bytes)}, in {shown.directory}"


def not_collected(shown: Collected) -> str | None:
    """Return what prevents the box from being torn down. None if nothing does."""
    told = [f"cannot be kept: {words}" for words in shown.cannot_be_kept]
    if shown.unclaimed_files:
        named = ", ".join(shown.unclaimed_largest)
        told.append(f"unclaimed: {some(shown.unclaimed_files, 'file')}: {named}")
    return "; ".join([*told, *([shown.not_stored] if shown.not_stored else [])]) or None


def snapshot(shown: Snapshot) -> str:
    """Return what was copied from the box while the job runs."""
    return f"{some(shown.files, 'file')} came, {size(shown.size_bytes)}, in {shown.directory}"


def torn_down(shown: TornDown) -> str:
    """Return on which ground the box was destroyed, what is kept, and what it cost."""
    r = shown.receipt
    work = f"; the work: {r.outcome.words}" if r.outcome and r.outcome.grade != "done" else ""
    return f"{shown.state}: {r.ground}, {some(r.kept_files, 'file')} kept, {cost_words(r.spent_usd, r.counts)}{work}"
