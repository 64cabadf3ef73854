"""Computes the SHA-256 of files, and remembers the hashes."""

from __future__ import annotations

import json
import os
import time

from box_scripts.caretaker.progress import TELLING
from box_scripts.caretaker.records import read_record, write_record_if_possible
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RACY_NS = 2_000_000_000
CHUNK_BYTES = 1 << 20


class Changing(Exception):
    """The file changed while it was read."""


class Hashes:
    """The SHA-256 of files. A hash is remembered only if every later change of its file can be noticed.

    Jobs can write to the file of remembered hashes. So this file is signed with a `key` that only the tenant has, and
    that is never stored on the box. Without a key, no hash is remembered.
    """

    def __init__(self, home: str, key: str | None, rest: Callable[[], None] = lambda: None) -> None:
        self._path, self._rest, self._key = os.path.join(home, "hashes.json"), rest, key
        self._used: dict = {}
        self._known: dict = {}
        try:
            record = read_record(self._path, {"proof": str, "hashes": dict}) if key else None
        except Refusal:  # remembered hashes only save time
            record = None
        if record and record["proof"] == self._proof(record["hashes"]):
            self._known = record["hashes"]

    def _proof(self, hashes: dict) -> str:
        import hashlib
        import hmac

        content = json.dumps(hashes, sort_keys=True, separators=(",", ":")).encode()
        return hmac.new((self._key or "").encode(), content, hashlib.sha256).hexdigest()

    def of(self, path: bytes) -> tuple[str, os.stat_result]:
        """Return the hash and the status of a regular file.

        Raises:
            Changing: it changed while it was read.
            OSError: it cannot be read.
        """
        import hashlib

        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb", buffering=0) as file:
            before, began_ns = os.fstat(fd), time.time_ns()
            key = file_identity(before)
            known = self._known.get(key)
            # If a file is hashed right after a change, another change in the same tick of the clock would go unnoticed.
            if not isinstance(known, list) or known[1] - before.st_ctime_ns < RACY_NS:
                digest, view = hashlib.sha256(), memoryview(bytearray(CHUNK_BYTES))
                count = file.readinto(view)
                while count:
                    digest.update(view[:count])
                    TELLING.did(0, count)
                    self._rest()
                    count = file.readinto(view)
                known = [digest.hexdigest(), began_ns]
        if not os.path.lexists(path) or file_identity(os.lstat(path)) != key:
            raise Changing
        self._used[key] = known
        return known[0], before

    def recall(self, path: bytes) -> tuple[str | None, os.stat_result]:
        """Return the same as `of`, but without reading the file: if its hash is not remembered, it is None."""
        seen = os.lstat(path)
        known = self._known.get(file_identity(seen))
        is_sure = isinstance(known, list) and known[1] - seen.st_ctime_ns >= RACY_NS
        return (self.of(path)[0] if is_sure else None), seen

    def knows(self, seen: os.stat_result) -> bool:
        """Whether the hash of that file is remembered."""
        return file_identity(seen) in self._known

    def save(self) -> None:
        if self._key is None or all(self._known.get(k) == v for k, v in self._used.items()):
            return
        known = dict(self._known, **self._used)
        known = known if len(known) < 200_000 else self._used
        write_record_if_possible(self._path, {"proof": self._proof(known), "hashes": known})


def file_identity(seen: os.stat_result) -> str:
    return "%d:%d:%d:%d:%d" % (
        seen.st_dev,
        seen.st_ino,
        seen.st_size,
        seen.st_mtime_ns,
        seen.st_ctime_ns,
    )
