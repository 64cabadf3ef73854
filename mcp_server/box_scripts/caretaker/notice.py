"""Notice that the platform takes this box back: what is on record of it."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.processes import boot_id
from box_scripts.caretaker.records import NUMBER, read_record, write_record_if_possible
from box_scripts.caretaker.refusal import Refusal

NOTICE = {"at": NUMBER, "source": str, "boot_id": str, "jobs": list}


def heard_notice(home: str) -> dict | None:
    """The notice that was given since this machine was started; None if there was none."""
    try:
        record = read_record(os.path.join(home, "notice.json"), NOTICE)
    except Refusal:  # it is only told to the tenant, and proves nothing
        return None
    return record if record and record["boot_id"] == boot_id() else None


def record_notice(home: str, source: str, **more: object) -> None:
    """Record that notice was given. The first record stays, and `more` is added to it."""
    known = heard_notice(home)
    record = known or {"at": time.time(), "source": source, "boot_id": boot_id(), "jobs": []}
    write_record_if_possible(os.path.join(home, "notice.json"), dict(record, **more))
