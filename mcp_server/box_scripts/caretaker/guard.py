"""The verb `guard`: starts a process that enforces the deadline on the box, or reports its state."""

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
    """Start a process that enforces the deadline on the box. Without a deadline, only report the guard's state.

    A new request replaces the earlier one. At the deadline, each job is asked to stop by its own signal. If there is a
    `store`, the artifacts are then copied to it. If there is an `end`, it says how the box ends its own bill.

    With `when_done`, the box also ends its bill before the deadline: some time after the last job has ended, if nobody
    looks after the lease any more, and all artifacts were copied to the store and read back.

    `look` in `end` is set if a stop empties some of the box's disks. It says how to list the files there. The box is
    then stopped only if none of these files must be accounted for. If the owner has signed for their loss, the box is
    stopped in any case `waived_after_s` seconds after the deadline.

    `store` is kept only in the memory of the process. With `notice`, the process also listens for the platform's notice
    that it takes the box back: `metadata` says whether to ask a metadata server, and `within_s` how many seconds
    before the end a notice comes.
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
                    start_holder,  # which imports most parts
                )

                reserve_record(path)
                record = start_holder(home, request, wanted)
                write_record(path, record)
    return dict(record, already=already, now=time.time())


def _holds_still(record: dict) -> bool:
    ticks: int = record["start_ticks"]
    return record["boot_id"] == boot_id() and ticks_of(record["pid"]) == ticks > 0
