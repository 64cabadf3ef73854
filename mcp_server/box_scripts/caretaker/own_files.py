"""Recognises the files that the tenant's own programs have put on this box."""

from __future__ import annotations

import os
import re
import stat

from box_scripts.caretaker.paths import is_below
from box_scripts.caretaker.pushed_files import INCOMING, INCOMING_NAME, Sent
from box_scripts.caretaker.records import SPARE_BYTES, json_value

TENANT_SCRIPT = re.compile(
    rb"(?:activity|caretaker|keep|leave|runner)-([0-9a-f]{16})\.py"
).fullmatch
ARRIVING = re.compile(rb"\.gpu-tenant-[0-9a-f]{16}\.part").fullmatch
SCRIPT_BYTES = 1 << 20


class Own:
    """The files that the tenant's own programs have put on this box. They are known by exact name and content."""

    def __init__(self, home: str, request: dict, jobs: set[str]) -> None:
        self._home, self._work = os.path.realpath(os.fsencode(home)), request["work"]
        self._logs = {os.fsencode("jobs/%s/log" % job) for job in jobs}
        is_told = "ours" in request and not request.get("older")
        self._scripts = set(request["ours"]) if is_told else None
        self._incoming: set[bytes] | None = None
        self._home_of, self._request = home, request
        self.beside = os.path.dirname(os.path.realpath(os.fsencode(__file__)))

    def is_ours(self, path: bytes, seen: os.stat_result) -> bool:
        """Whether the file was put here by the tenant's programs, and not by a job."""
        directory, name = os.path.split(path)
        if is_below(path, self._home):
            return self._is_record(path[len(self._home) + 1 :], path, seen)
        if directory == os.path.join(self._work, INCOMING) and INCOMING_NAME(
            name.decode("ascii", "replace")
        ):
            if "pushed" not in self._request:
                return True  # a person who works by hand sends no list of pushed files
            if self._incoming is None:
                self._incoming = Sent(self._home_of, self._request).incoming()
            return name in self._incoming
        if directory != self.beside:
            return False
        named = TENANT_SCRIPT(name)
        if named:
            return self._is_script(path, seen, named[1])
        return bool(ARRIVING(name)) and self._begins_one_of_ours(path, seen)

    def _begins_one_of_ours(self, path: bytes, seen: os.stat_result) -> bool:
        """Whether the file is the first part of one of our scripts, left by a transfer that broke off.

        The complete script must be in the same directory.
        """
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > SCRIPT_BYTES:
            return False
        begun = _content_of(path)
        return begun is not None and any(
            (_content_of(entry.path) or b"").startswith(begun)
            for entry in os.scandir(os.path.dirname(path))
            if not ARRIVING(entry.name)
            and self.is_ours(entry.path, entry.stat(follow_symlinks=False))
        )

    def _is_script(self, path: bytes, seen: os.stat_result, beginning: bytes) -> bool:
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > SCRIPT_BYTES:
            return False
        sha256 = _sha256_of(path)
        if sha256 is None or not sha256.encode().startswith(beginning):
            return False
        return self._scripts is None or sha256 in self._scripts

    def _is_record(self, inner: bytes, path: bytes, seen: os.stat_result) -> bool:
        if not stat.S_ISREG(seen.st_mode):
            return False
        if inner in self._logs:  # the seal lists the logs of jobs separately
            return True
        for shape, most_bytes, form in RECORDS:
            if shape.fullmatch(inner) and seen.st_size <= most_bytes:
                return form is None or _is_of_form(path, form)
        if ARRIVING(inner):
            return self._begins_one_of_ours(path, seen)
        named = PREPARING(inner)
        if named and named[2] == b"py":
            return self._is_script(path, seen, named[1])
        return bool(named) and seen.st_size <= SCRIPT_BYTES and _is_of_form(path, "json")


RECORD_BYTES = 64 << 10
RECORDS = (  # the names of the tenant's own files, their maximum size, and the form of their content
    (re.compile(rb"jobs/[A-Za-z0-9._-]{1,64}/(?:lock|log)"), 0, None),
    (
        re.compile(rb"jobs/[A-Za-z0-9._-]{1,64}/(?:spec|started|main|exit|ending)\.json"),
        RECORD_BYTES,
        "json",
    ),
    (
        re.compile(rb"jobs/[A-Za-z0-9._-]{1,64}/(?:main|exit|ending)\.json\.spare"),
        SPARE_BYTES,
        "json",
    ),
    (
        re.compile(rb"(?:since|since-push|guard|notice|cloned|mark|until)\.json"),
        RECORD_BYTES,
        "json",
    ),
    (re.compile(rb"(?:guard|queue/runner)\.json\.spare"), SPARE_BYTES, "json"),
    (re.compile(rb"(?:pushed|hashes)\.json"), 1 << 28, "json"),
    (re.compile(rb"(?:home|guard|activity)\.lock|heartbeat"), 0, None),
    (re.compile(rb"next-look"), 32, None),
    (re.compile(rb"activity\.jsonl|pruned|queue/journal"), 1 << 28, "lines"),
    (re.compile(rb"activity-latest\.json|queue/runner\.json"), 1 << 24, "json"),
    (re.compile(rb"queue/(?:lock|runner\.lock)"), 0, None),
    (
        re.compile(rb"[A-Za-z0-9._/-]+\.json\.\d+(?:\.tmp)?|activity[a-z.-]+\.new"),
        RECORD_BYTES,
        None,
    ),  # these are left by a crash
)
PREPARING = re.compile(rb"prepare-([0-9a-f]{16})\.(py|json)").fullmatch


def _is_of_form(path: bytes, form: str) -> bool:
    """Whether the file contains only JSON: one object, or with "lines" one object in each line."""
    try:
        with open(path, "rb") as file:
            content = file.read()
        parts = content.splitlines() if form == "lines" else [content] if content.strip() else []
        return all(isinstance(json_value(part), dict) for part in parts if part.strip())
    except (OSError, ValueError):
        return False


def _sha256_of(path: bytes) -> str | None:
    import hashlib

    content = _content_of(path)
    return None if content is None else hashlib.sha256(content).hexdigest()


def _content_of(path: bytes) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(SCRIPT_BYTES + 1)
    except OSError:
        return None
