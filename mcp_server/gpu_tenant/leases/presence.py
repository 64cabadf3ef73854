"""Records that a person or an agent is there, and reads when that was last so."""

from contextlib import suppress
from datetime import datetime

from gpu_tenant.files.replace_file import replace_file
from gpu_tenant.files.state_dir import Home


def note_presence(home: Home, now: datetime) -> None:
    """Record that somebody is there now: a person at a terminal, or an agent that calls a tool."""
    with suppress(OSError):  # A full disk must not fail the call. Then nobody counts as there.
        replace_file(home.presence, now.isoformat(), durable="none")


def last_there(home: Home) -> datetime | None:
    """Return when somebody was last there. None if nobody was, as far as is known."""
    try:
        said = datetime.fromisoformat(home.presence.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return None if said.tzinfo is None else said
