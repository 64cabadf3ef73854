"""The verb `guard`: the deadline is held on the box, by a process there."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.processes import boot_id, ticks_of
from box_scripts.caretaker.records import (
    GUARD,
    NO_GUARD,
    Locked,
    read_record,
    reserve_record,
    write_record,
)
from box_scripts.caretaker.refusal import Refusal

ASKED_OF_A_GUARD = (
    "deadline",
    "grace_s",
    "signal",
    "idle_s",
    "when_done",
    "end",
    "scripts",
    "notice",
    "rehearsed",
)


def guard(home: str, request: dict) -> dict:
    """Start a process that holds the deadline on the box. Without a deadline, only tell how the guard stands.

    A new request replaces the earlier one. At the end the jobs are asked to stop, each by its own signal. If
    a `store` was given, what is to be kept is copied there. If `end` says how, the box ends its own bill.
    If `when_done` says when, the box does so before the deadline, too: after the last job has ended, when
    nobody looks any more, and only if all that is to be kept was copied to the store and read back.
    If `end` says how to `look`, a stop empties some of the box's disks. The stop is asked for only while
    nothing that counts lies there, or, if its owner has signed for that, `waived_after_s` later.
    `store` is kept in the memory of that process, and nowhere else. If `notice` was given, the process also
    listens for the platform's notice that it takes the box back: `metadata` says whether to ask a metadata
    server, and `within_s` how long before the end a notice comes.
    """
    path, already = os.path.join(home, "guard.json"), False
    with Locked(home, "guard.lock"):
        try:
            record = read_record(path, GUARD) or dict(NO_GUARD)
        except Refusal:
            if "deadline" not in request and not request.get("disarm"):
                raise
            record = dict(NO_GUARD)
        if record["state"] == "armed" and not _holds_still(record):
            record["state"] = "not_armed"
        if request.get("disarm"):
            record = dict(NO_GUARD, state="disarmed")
            write_record(path, record)
        elif "deadline" in request:
            wanted = {name: request.get(name) for name in ASKED_OF_A_GUARD}
            already = record["state"] == "armed" and "store" not in request
            already = already and all(record.get(n) == v for n, v in wanted.items())
            if not already:
                from box_scripts.caretaker.guarding import (
                    start_holder,  # which stands on most parts
                )

                reserve_record(path)
                record = start_holder(home, request, wanted)
                write_record(path, record)
    return dict(record, already=already, now=time.time())


def _holds_still(record: dict) -> bool:
    ticks: int = record["start_ticks"]
    return record["boot_id"] == boot_id() and ticks_of(record["pid"]) == ticks > 0
