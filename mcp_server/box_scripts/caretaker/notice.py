"""Notice that the platform takes this box back: what is on record of it."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.listening import rehearsed_start
from box_scripts.caretaker.processes import boot_id, ticks_of
from box_scripts.caretaker.records import NUMBER, read_record, write_record_if_possible
from box_scripts.caretaker.refusal import Refusal

NOTICE = {"at": NUMBER, "source": str, "boot_id": str, "jobs": list}


def heard_notice(home: str) -> dict | None:
    """The notice that was given since this box was started; None if there was none.

    The record stays on the disk of a box that is stopped and started again, and says nothing about the new start.
    """
    try:
        record = read_record(os.path.join(home, "notice.json"), NOTICE)
    except Refusal:  # it is only told to the tenant, and proves nothing
        return None
    if not record or record["boot_id"] != boot_id():
        return None
    start = _start_of(home)
    return record if record.get("start", start) == start else None


def _start_of(home: str) -> str:
    """A text that differs at each start of the box. A container starts again on a machine that goes on running."""
    return "%s %d %s" % (boot_id(), ticks_of(1), rehearsed_start(home))


def record_notice(home: str, source: str, **more: object) -> None:
    """Record that notice was given. The first record stays, and `more` is added to it."""
    known = heard_notice(home)
    record = known or {
        "at": time.time(),
        "source": source,
        "boot_id": boot_id(),
        "start": _start_of(home),
        "jobs": [],
    }
    write_record_if_possible(os.path.join(home, "notice.json"), dict(record, **more))
