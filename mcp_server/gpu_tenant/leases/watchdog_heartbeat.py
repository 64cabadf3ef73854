"""Writes and reads the heartbeat: a file that a watchdog writes after each look.

It shows whether a watchdog is running.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from gpu_tenant.domain.command import Command
from gpu_tenant.files.rehearsal_marker import rehearsal_of
from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.ledger.hold_owner import Holder, this_process

Watcher = Literal["watchdog", "server", "run"]
"""Who looks at the leases: a watchdog process, the MCP server while its host runs it, or `run` at a terminal."""

_UNWATCHED_S = 900
"""An older heartbeat proves nothing. A look at many leases, or at a slow box, may take minutes."""

_OVERDUE = 2.5
"""If a watchdog has not looked for this many of its intervals, the words say that it may have ended."""

_OTHERS: Mapping[Watcher, str] = {
    "server": "by an MCP server, while it runs",
    "run": f"by {Command('run')} at a terminal, while it runs",
}
_HOW = f"{Command('install', 'watchdog')} starts a watchdog"
_IN_A_REHEARSAL = f"{Command('watchdog')} in another terminal starts one"


def put_heartbeat(
    path: Path,
    *,
    at: datetime,
    every_s: float,
    unasked: Mapping[str, datetime],
    by: Watcher = "watchdog",
) -> None:
    """Record that a watchdog has just looked. `unasked` says since when each silent provider has not answered."""
    told = {
        "at": at.isoformat(),
        "pid": os.getpid(),
        "host": this_process().host,
        "started": this_process().started,
        "by": by,
        "every_s": every_s,
        "unasked": {provider: since.isoformat() for provider, since in unasked.items()},
    }
    with suppress(OSError):  # A full disk must not end the watch.
        replace_file(path, json.dumps(told), durable="none")


def withdraw_heartbeat(path: Path) -> None:
    """Remove the last heartbeat if this process wrote it, because this process no longer watches."""
    with suppress(OSError, ValueError, AttributeError):
        if json.loads(path.read_text(encoding="utf-8")).get("pid") == os.getpid():
            path.unlink()


def by_this(watcher: Watcher) -> str:
    """Say that this process looks after the leases."""
    return f"by this {watcher}, while it runs"


def _last_beat(path: Path, now: datetime) -> tuple[dict[str, Any], float] | None:
    """Return the last heartbeat, and how many seconds ago it was written. None if it cannot be read."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return said, (now - datetime.fromisoformat(said["at"])).total_seconds()
    except (OSError, ValueError, KeyError, TypeError):
        return None


def others_look(path: Path, now: datetime, *, every_s: float) -> bool:
    """Whether another process has looked at the leases so recently that its next look will come in time."""
    found = _last_beat(path, now)
    if found is None or found[0].get("pid") == os.getpid():
        return False
    said, past_s = found
    if _has_ended(said):
        return False
    theirs_s = said.get("every_s")
    return abs(past_s) <= 1.5 * max(every_s, theirs_s if isinstance(theirs_s, int | float) else 0)


def looks(path: Path, pid: int) -> bool:
    """Whether that process wrote the last heartbeat."""
    with suppress(OSError, ValueError, AttributeError):
        return bool(json.loads(path.read_text(encoding="utf-8")).get("pid") == pid)
    return False


def is_watched(path: Path, now: datetime) -> bool:
    """Whether a watchdog looks after the leases now, judged by the time of its last look."""
    found = _last_beat(path, now)
    return found is not None and abs(found[1]) <= _UNWATCHED_S and not _has_ended(found[0])


def _has_ended(said: Mapping[str, Any]) -> bool:
    """Whether it is certain that the process that wrote the heartbeat has ended."""
    host, pid, started = said.get("host"), said.get("pid"), said.get("started")
    if not isinstance(host, str) or not isinstance(pid, int) or not isinstance(started, str):
        return False
    return Holder(host=host, pid=pid, started=started).alive() is False


def _missed(said: Mapping[str, Any], past_s: float) -> bool:
    """Whether the next look is overdue. It may be running, or it may never come."""
    every_s = said.get("every_s")
    return past_s > _OVERDUE * max(every_s if isinstance(every_s, int | float) else 0, 60)


def how(path: Path) -> str:
    """Say how to start a watchdog. None can be installed in a rehearsal, because that ends with its terminal."""
    return _HOW if rehearsal_of(path.parent) is None else _IN_A_REHEARSAL


def last_watch_words(path: Path, now: datetime) -> str:
    """Say when a watchdog last looked, and which providers did not answer it, in words for a person."""
    found = _last_beat(path, now)
    if found is None:
        return f"nobody: {how(path)}"
    said, past_s = found
    if abs(past_s) > _UNWATCHED_S:
        return f"nobody since {said['at'][:16]} UTC: {how(path)}"
    if _has_ended(said):
        return f"nobody: the watchdog that looked {max(0, past_s):.0f} s ago has ended; {how(path)}"
    unasked = said.get("unasked")
    silent = [
        f"{provider} since {str(since)[:16]} UTC"
        for provider, since in (unasked.items() if isinstance(unasked, dict) else ())
    ]
    words = f"a watchdog looked {max(0, past_s):.0f} s ago"
    by: Watcher = "watchdog" if said.get("by") not in _OTHERS else said["by"]
    if by in _OTHERS:
        one = by_this(by) if said.get("pid") == os.getpid() else _OTHERS[by]
        words = f"{one}; it looked {max(0, past_s):.0f} s ago"
    if _missed(said, past_s):
        words = f"{words}, and its next look is overdue: it may have ended"
    return f"{words}; it has had no answer from {', '.join(silent)}" if silent else words
