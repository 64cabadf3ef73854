"""Knows which files a push has put on this box."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.paths import escape_path, unescape_path
from box_scripts.caretaker.records import PUSHED_FILE, is_whole, read_record
from box_scripts.caretaker.refusal import Refusal

INCOMING = b".gpu-tenant-incoming"
INCOMING_NAME = re.compile(r"[0-9a-f]{64}").fullmatch


class Sent:
    """The files that a push has put into the work directory, by the tenant's record, or else by this box's own."""

    def __init__(self, home: str, request: dict) -> None:
        self._work: bytes = request["work"]
        self._way: dict[bytes, bytes] = {}
        self._held: dict[bytes, set[tuple[int, str]]] = {}
        told = request.get("pushed")
        if told is None or request.get("older"):
            for name, one in pushed_record(home).items():
                self._note(name, one["size"], one["sha256"])
        for name, versions in (told or {}).items():
            for size, sha256 in versions:
                self._note(name, int(size), str(sha256))

    def _note(self, name: str, size: int, sha256: str) -> None:
        raw = unescape_path(name)
        parent, base = os.path.split(raw)
        if parent not in self._way:  # on the box, a directory of the tree may be a link
            self._way[parent] = os.path.realpath(os.path.join(self._work, parent))
        self._held.setdefault(os.path.join(self._way[parent], base), set()).add((size, sha256))

    def versions(self, path: bytes, size: int) -> set[str]:
        """Return the hashes of all versions of that size that were sent to that path."""
        return {sha256 for length, sha256 in self._held.get(path, ()) if length == size}

    def incoming(self) -> set[bytes]:
        """Return the temporary names of this tenant's files in the directory for incoming files."""
        import hashlib

        found = set()
        for path, versions in self._held.items():
            name = escape_path(path[len(self._work.rstrip(b"/")) + 1 :])
            for size, sha256 in versions:
                key = hashlib.sha256(("%d %s %s" % (size, sha256, name)).encode("utf-8"))
                found.add(key.hexdigest().encode())
        return found


def pushed_record(home: str) -> dict[str, dict]:
    """Return the size and the sha256 of each file that `receive` and `place` have put in place.

    The keys are escaped paths below the work directory.
    """
    path = os.path.join(home, "pushed.json")
    record = read_record(path, {}) or {}
    if not all(is_whole(file, PUSHED_FILE) for file in record.values()):
        raise Refusal("RECORD_CORRUPT", path + " is not a whole record; it was left as it is")
    return record
