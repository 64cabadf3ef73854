"""Records the time from which on written files count."""

from __future__ import annotations

import os

from box_scripts.caretaker.mounts import mount_names
from box_scripts.caretaker.processes import text_of
from box_scripts.caretaker.records import SINCE, Locked, read_record, write_record
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.jobs import Job

MOST_MOUNTS = 2000  # the record must stay small; with more, only the work directory is checked


def set_since(home: str, name: str, directory: bytes) -> int:
    """Record now as the time from which on written files count, unless it is recorded already. Return this time.

    The clocks of two file systems are read, and the earlier time counts. So if one of them is wrong, rather too many
    files count than too few.
    """
    path, moments = os.path.join(home, name), []
    with Locked(home, "home.lock"):
        record = read_record(path, SINCE)
        if record:
            return int(record["since_ns"])
        for place in (directory, os.fsencode(home)):
            marker = os.path.join(place, b".gpu-tenant-since-%d" % os.getpid())
            fd = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            moments.append(os.fstat(fd).st_ctime_ns)
            os.close(fd)
            os.unlink(marker)
        mounts = mount_names(text_of("/proc/self/mountinfo"))[:MOST_MOUNTS]
        write_record(path, {"since_ns": min(moments), "mounts": mounts})
    return min(moments)


def mounts_at_first(home: str) -> list[str] | None:
    """Return the names of the mounts from before the first push or launch. None if they were not recorded."""
    paths = (os.path.join(home, name) for name in ("since-push.json", "since.json"))
    records = [record for record in (read_record(path, SINCE) for path in paths) if record]
    first = min(records, key=lambda record: record["since_ns"], default={})
    mounts = first.get("mounts")
    return mounts if isinstance(mounts, list) and len(mounts) < MOST_MOUNTS else None


def accounted_since_ns(home: str, jobs: list[Job], told_ns: int | None) -> int | None:
    """Return the time from which on written files count: the recorded one, or an earlier one that the tenant names."""
    since = read_record(os.path.join(home, "since.json"), SINCE)
    if jobs and not since:
        raise Refusal(
            "RECORD_CORRUPT",
            os.path.join(home, "since.json") + " is missing though a job was started",
        )
    push = read_record(os.path.join(home, "since-push.json"), SINCE)
    moments = [one["since_ns"] for one in (since or push,) if one]
    return min([*moments, *([told_ns] if told_ns is not None else [])], default=None)
