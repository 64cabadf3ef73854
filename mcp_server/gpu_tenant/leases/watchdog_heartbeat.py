"""What a watchdog leaves after each look, so that it can be seen later whether one is watching."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from gpu_tenant.domain.command import Command
from gpu_tenant.files.replace_file import replace_file

_UNWATCHED_S = 900
_HOW = f"{Command('install', 'watchdog')} has one look after every lease"


def put_heartbeat(
    path: Path, *, at: datetime, every_s: float, unasked: Mapping[str, datetime]
) -> None:
    """It is on record that a watchdog has just looked, and since when which providers have not answered."""
    told = {
        "at": at.isoformat(),
        "pid": os.getpid(),
        "every_s": every_s,
        "unasked": {provider: since.isoformat() for provider, since in unasked.items()},
    }
    with suppress(OSError):  # a full disk must not end the watch
        replace_file(path, json.dumps(told), durable="none")


def watched(path: Path, now: datetime) -> str:
    """When a watchdog last looked, and which providers it could not ask, in words for a person."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        past_s = (now - datetime.fromisoformat(said["at"])).total_seconds()
    except (OSError, ValueError, KeyError, TypeError):
        return f"nobody: {_HOW}"
    if abs(past_s) > _UNWATCHED_S:
        return f"nobody since {said['at'][:16]} UTC: {_HOW}"
    unasked = said.get("unasked")
    silent = [
        f"{provider} since {str(since)[:16]} UTC"
        for provider, since in (unasked.items() if isinstance(unasked, dict) else ())
    ]
    words = f"a watchdog looked {max(0, past_s):.0f} s ago"
    return f"{words}; it has had no answer from {', '.join(silent)}" if silent else words
