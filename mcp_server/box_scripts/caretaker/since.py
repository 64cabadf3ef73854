"""Records the time from which on written files count."""

from __future__ import annotations

import os

from box_scripts.caretaker.records import SINCE, Locked, read_record, write_record
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.jobs import Job


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
        write_record(path, {"since_ns": min(moments)})
    return min(moments)


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
