"""Looks at a process that somebody else started on a box: whether it runs, and the end of the log that it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.jobs.monitor import Watched

if TYPE_CHECKING:
    from gpu_tenant.domain.model import Lease
    from gpu_tenant.leases.context import Context

_ANSWER_S = 30.0
"""The box may take this long beyond the wait itself."""

_LOOK = r"""
runs() { read -r stat 2>/dev/null <"/proc/$pid/stat" && case ${stat##*) } in Z*) false ;; esac; }
pid=$1; waits=$2; most=$3; waited=0
log=$(readlink "/proc/$pid/fd/1")
command=$(tr '\0\n' '  ' 2>/dev/null <"/proc/$pid/cmdline" | head -c 300)
[ -n "$command" ] || { echo absent; exit; }
while runs && [ "$waited" -lt "$waits" ]; do sleep 1; waited=$((waited + 1)); done
if runs; then echo running; else echo ended; fi
printf '%s\n%s\n' "$command" "$log"
[ -f "$log" ] && tail -c "$most" "$log"
exit 0
"""


async def watch_process(
    context: Context, lease: Lease, pid: int, *, wait_s: float, limit_bytes: int
) -> Watched:
    """Return whether that process runs, and the end of the file that it prints to. Wait at most `wait_s` for its end.

    Nothing is written on the box. How the process ended is unknown, because nobody of ours waits for it.

    Raises:
        BadRequest: there is no such process now.
        BoxTrouble: the box did not answer.
    """
    session = context.session(lease)
    said = await session.transport.run(
        ["sh", "-s", str(pid), f"{wait_s:.0f}", str(limit_bytes)],
        stdin=_LOOK.encode(),
        timeout_s=wait_s + _ANSWER_S,
    )
    state, _, rest = said.stdout.decode("utf-8", "replace").partition("\n")
    if state not in ("running", "ended"):
        raise BadRequest(
            f"no process {pid} runs on the box of {lease.id}",
            remedy=f"{Command('exec', lease.id, then='ps aux')} shows what does",
        )
    command, _, rest = rest.partition("\n")
    log, _, text = rest.partition("\n")
    where = f", which prints to {plain(log, max_line=200)}" if log.startswith("/") else ""
    again = Command("monitor", lease=lease.id, job=str(pid))
    home = Command("collect", lease=lease.id, artifact="PATH")
    ended = f"it has ended, and its status is unknown: {home} brings its files"
    return Watched(
        lease=lease.id,
        job=str(pid),
        state="running" if state == "running" else "finished",
        exit_code=None,
        why=f"it is no job of this lease: {plain(command, max_line=300).strip()}{where}",
        progress=None,
        log=plain(text),
        cursor=0,
        log_skipped_bytes=0,
        log_size_bytes=len(text.encode()),
        gpus=(),
        memory_used_bytes=None,
        memory_limit_bytes=None,
        disk_free_bytes=None,
        running_s=None,
        cost_usd=context.ledger.cost_usd(lease, context.clock.now()),
        deadline_in_s=round((lease.terms.deadline_at - context.clock.now()).total_seconds()),
        alarm=None,
        next=str(again) if state == "running" else ended,
    )
