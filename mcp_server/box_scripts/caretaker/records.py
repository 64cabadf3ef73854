"""Reads and writes the small JSON records in the caretaker's home directory, and locks them."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import stat

from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SPARE_BYTES = 2048
MOST_BYTES = 1 << 28
NUMBER = (int, float)
TEXTS = [str]
STARTED = {
    "pid": int,
    "start_ticks": int,
    "boot_id": str,
    "started_at": NUMBER,
    "supervisor_pid": int,
    "supervisor_ticks": int,
    "init_ticks": int,
}
SPEC = {
    "cwd": str,
    "artifacts": TEXTS,
    "discard": TEXTS,
    "oom_kills": dict,
    "grace_s": NUMBER,
    "stop_signal": int,
}
EXIT = {
    "exit_code": (int, type(None)),
    "signal": (str, type(None)),
    "ended_at": NUMBER,
    "facts": dict,
}
ENDING = {"why": str, "at": NUMBER}
SINCE = {"since_ns": int}
PUSHED_FILE = {"size": int, "sha256": str}
JOURNAL: dict = {
    "slots": {"slots": int, "slot_gpus": TEXTS},
    "queued": {"queued": str, "spec": dict, "attempts": int, "env_names": TEXTS},
    "held": {"held": TEXTS, "by": str},
    "withdrawn": {"withdrawn": str},
    "began": {"began": str, "job": str, "slot": int, "at": NUMBER, "by": str, "stay": bool},
    "ended": {"ended": str, "job": str, "final": bool, "counts": bool, "state": str},
}
"""The lines of a queue's journal: for each kind of line, the field that identifies it, and all its fields."""
GUARD = {
    "state": str,
    "deadline": (*NUMBER, type(None)),
    "pid": int,
    "start_ticks": int,
    "boot_id": str,
}
NO_GUARD = {"state": "not_armed", "deadline": None, "pid": 0, "start_ticks": 0, "boot_id": ""}


def put_bytes(path: str, content: bytes, flags: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def reserve_record(path: str) -> None:
    """Reserve disk space, so that the record at `path` can be written later even if the disk is full."""
    put_bytes(path + ".spare", b" " * SPARE_BYTES, os.O_CREAT | os.O_TRUNC)


def write_record(path: str, record: dict) -> None:
    """Write `record` to `path`, completely or not at all, and flush it to the disk."""
    content = json.dumps(record, separators=(",", ":")).encode() + b"\n"
    temporary, spare = "%s.%d.tmp" % (path, os.getpid()), path + ".spare"
    try:
        put_bytes(temporary, content, os.O_CREAT | os.O_TRUNC)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not os.path.exists(spare):
            raise
        put_bytes(spare, content.ljust(SPARE_BYTES), 0)  # its disk space is already reserved
        temporary = spare
    os.replace(temporary, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot do this
            raise
    finally:
        os.close(directory)


def write_record_if_possible(path: str, record: dict) -> None:
    try:
        write_record(path, record)
    except OSError:
        pass


def is_whole(record: object, fields: dict) -> bool:
    """Whether a value that was read from JSON is a record that has all these fields, with these types.

    `[str]` stands for a list of texts. A job can change these records, so numbers are checked to be finite.
    """
    if not isinstance(record, dict):
        return False
    return all(name in record and _fits(record[name], t) for name, t in fields.items())


def _fits(value: object, types: Any) -> bool:
    if isinstance(types, list):
        return isinstance(value, list) and all(_fits(each, types[0]) for each in value)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(value, str) and "\0" in value:  # a path cannot contain this
        return False
    return isinstance(value, types)


def json_value(raw: bytes) -> Any:
    """Return the value of that JSON.

    Raises:
        ValueError: this is not JSON, or it is nested too deeply.
    """
    try:
        return json.loads(raw.decode())
    except RecursionError as error:
        raise ValueError(str(error)) from None


def journal_line(raw: bytes) -> dict:
    """Return the record in that line of a queue's journal.

    Raises:
        ValueError: it is not a complete record.
    """
    line = json_value(raw)
    kinds = [kind for kind in JOURNAL if kind in line] if isinstance(line, dict) else []
    if not is_whole(line, JOURNAL[kinds[0]] if kinds else {}):
        raise ValueError("it is no record, or a field is missing or of another type")
    record: dict = line
    return record


def read_record(path: str, fields: dict) -> dict | None:
    """Return the record at `path`. None if there is no such file. What a job put there instead of a file is none.

    Raises:
        Refusal: RECORD_CORRUPT: it cannot be read, or does not have these fields with these types.
    """
    record: dict | None
    try:
        # A pipe would be waited for.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENXIO):
            return None
        raise
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode):
            return None
        record = None
        if seen.st_size <= MOST_BYTES:
            with os.fdopen(os.dup(fd), "rb") as file:
                record = json_value(file.read())
    except ValueError:
        record = None
    finally:
        os.close(fd)
    if not is_whole(record, fields):
        raise Refusal("RECORD_CORRUPT", path + " is not a whole record; it was left as it is")
    return record


def lock_file(path: str, mode: int) -> int | None:
    """Lock the file, and return the descriptor that holds the lock. None if another process holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, mode)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise Refusal(
            "LOCK_UNSUPPORTED", "%s: %s; put --home on a local disk" % (path, error)
        ) from None
    return fd


class Locked:
    """Holds a lock while the block runs. Other processes that want this lock wait."""

    def __init__(self, home: str, name: str) -> None:
        self._path = os.path.join(home, name)

    def __enter__(self) -> None:
        self._fd = lock_file(self._path, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        assert self._fd is not None
        os.close(self._fd)
