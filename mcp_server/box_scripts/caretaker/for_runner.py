"""The functions that runner.py uses. It loads the joined script as a module."""

from __future__ import annotations

from box_scripts.caretaker.detached import spawn_detached
from box_scripts.caretaker.disk_room import room_at, what_is_full
from box_scripts.caretaker.job_state import end_reason, observe
from box_scripts.caretaker.jobs import JOB_NAME, LIVE, Job
from box_scripts.caretaker.launch import start
from box_scripts.caretaker.notice import record_notice
from box_scripts.caretaker.paths import escape_path, unescape_path
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.processes import boot_id, restarted_since, ticks_of
from box_scripts.caretaker.records import (
    GUARD,
    Locked,
    journal_line,
    lock_file,
    read_record,
    reserve_record,
    write_record,
    write_record_if_possible,
)
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.requests import checked_arguments, parse_value
from box_scripts.caretaker.stop import KILL_LIMIT_S, end_jobs, record_ending

__all__ = [
    "GUARD",
    "JOB_NAME",
    "KILL_LIMIT_S",
    "LIVE",
    "Job",
    "Locked",
    "Pattern",
    "Refusal",
    "boot_id",
    "checked_arguments",
    "end_jobs",
    "end_reason",
    "escape_path",
    "journal_line",
    "lock_file",
    "observe",
    "parse_value",
    "read_record",
    "record_ending",
    "record_notice",
    "reserve_record",
    "restarted_since",
    "room_at",
    "spawn_detached",
    "start",
    "ticks_of",
    "unescape_path",
    "what_is_full",
    "write_record",
    "write_record_if_possible",
]
