"""The jobs in the caretaker's home directory: their records and their processes."""

from __future__ import annotations

import fcntl
import os
import re

from box_scripts.caretaker.processes import living_processes, restarted_since
from box_scripts.caretaker.records import ENDING, SPEC, STARTED, lock_file, read_record
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.processes import Process

LIVE = ("starting", "running", "lingering")
JOB_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,64}").fullmatch


class Job:
    """One job, with its records and its processes."""

    def __init__(self, home: str, name: str) -> None:
        if not JOB_NAME(name):
            raise Refusal("BAD_REQUEST", "a job is named by 1 to 64 of A-Z a-z 0-9 . _ -")
        self.home, self.name, self.directory = home, name, os.path.join(home, "jobs", name)
        # Every process of the job inherits these variables, so it can be recognised even if its parents have ended.
        self.marks = {b"GPU_TENANT_JOB": name.encode(), b"GPU_TENANT_CARETAKER": os.fsencode(home)}

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def start_record(self) -> dict | None:
        return read_record(self.path("started.json"), STARTED)

    def ending(self) -> dict | None:
        return read_record(self.path("ending.json"), ENDING)

    def spec(self) -> dict:
        spec = read_record(self.path("spec.json"), SPEC)
        if spec is None:
            raise Refusal(
                "RECORD_CORRUPT", self.path("spec.json") + " is missing though the job was started"
            )
        return spec

    def is_held(self) -> bool:
        """Whether the job's supervisor, or a launch in progress, holds the lock of the job."""
        if not os.path.isfile(self.path("lock")):
            return False
        fd = lock_file(self.path("lock"), fcntl.LOCK_SH | fcntl.LOCK_NB)
        if fd is not None:
            os.close(fd)
        return fd is None

    def members(self) -> list[Process]:
        """Return every living process of the job, without its supervisor.

        A process belongs to the job by its parents, by its session, or by the marks in its environment.
        """
        table, members, supervisor = living_processes(), set(), 0
        try:
            started = self.start_record()
        except Refusal:  # then only the marks show which processes are the job's
            started = None
        if started and not restarted_since(started):
            leader, watcher = table.get(started["pid"]), table.get(started["supervisor_pid"])
            if watcher and watcher.ticks == started["supervisor_ticks"]:
                supervisor = watcher.pid
            if not leader or leader.ticks == started["start_ticks"]:
                # While a session has members, the system gives its number to no other session.
                members = {
                    p.pid
                    for p in table.values()
                    if p.session == started["pid"] and p.ticks >= started["start_ticks"]
                }
        marks = {name + b"=" + value for name, value in self.marks.items()}
        for pid in table:
            try:
                with open("/proc/%d/environ" % pid, "rb") as file:
                    if marks.issubset(file.read().split(b"\0")):
                        members.add(pid)
            except OSError:
                continue
        parents, size = members | ({supervisor} if supervisor else set()), -1
        while size != len(parents):
            size = len(parents)
            parents.update(p.pid for p in table.values() if p.parent in parents)
        return [table[pid] for pid in sorted(parents - {supervisor, os.getpid()}) if pid in table]


def all_jobs(home: str) -> list[Job]:
    """Return every job that has a directory here. Anything else in that place is a file that nobody has claimed."""
    place = os.path.join(home, "jobs")
    try:
        names = sorted(os.listdir(place))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [Job(home, n) for n in names if JOB_NAME(n) and os.path.isdir(os.path.join(place, n))]
