"""Records and reads the platform's notice that it takes this box back."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.listening import rehearsed_start
from box_scripts.caretaker.processes import boot_id, ticks_of
from box_scripts.caretaker.records import NUMBER, read_record, write_record_if_possible
from box_scripts.caretaker.refusal import Refusal

NOTICE = {"at": NUMBER, "source": str, "boot_id": str, "jobs": list}


def heard_notice(home: str) -> dict | None:
    """Return the notice that was given since this box was started. None if there was none.

    If a box is stopped and started again, an old record may still be on its disk. Such a record does not count.
    """
    try:
        record = read_record(os.path.join(home, "notice.json"), NOTICE)
    except Refusal:  # a damaged record is ignored: the notice is only information
        return None
    if not record or record["boot_id"] != boot_id():
        return None
    start = _start_of(home)
    return record if record.get("start", start) == start else None


def _start_of(home: str) -> str:
    """Return a text that differs at each start of the box. The boot id does not change if only a container restarts."""
    return "%s %d %s" % (boot_id(), ticks_of(1), rehearsed_start(home))


def record_notice(home: str, source: str, **more: object) -> None:
    """Record that notice was given. If there is a record already, add `more` to it."""
    known = heard_notice(home)
    record = known or {
        "at": time.time(),
        "source": source,
        "boot_id": boot_id(),
        "start": _start_of(home),
        "jobs": [],
    }
    write_record_if_possible(os.path.join(home, "notice.json"), dict(record, **more))
