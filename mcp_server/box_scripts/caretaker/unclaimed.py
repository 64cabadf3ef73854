"""Sorts the written files that are no artifacts: into discarded, pushed, empty and unclaimed ones."""

from __future__ import annotations

import os

from box_scripts.caretaker.caches import is_cache
from box_scripts.caretaker.hashing import Changing
from box_scripts.caretaker.paths import unescape_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.hashing import Hashes
    from box_scripts.caretaker.patterns import Pattern
    from box_scripts.caretaker.pushed_files import Sent
    from box_scripts.caretaker.survey import Survey

BROUGHT_FILES = 200_000
"""At most this many files that nobody has claimed are fetched."""
INCOMING_PREFIX = ".gpu-tenant-"
DEFAULT_DISCARD = [
    "__pycache__/",
    "*.pyc",
    ".cache/",
    ".ipynb_checkpoints/",
    ".pytest_cache/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".nv/",
    ".triton/",
    ".venv/",
    "venv/",
    "node_modules/",
    ".gpu-tenant-incoming-*",
    "~/.bash_history",
    "~/.python_history",
    "~/.lesshst",
    "~/.viminfo",
    "~/.ssh/known_hosts",
    "~/.rehearsal.json",
]


class WrittenFiles:
    """The files that were written since launch and are no artifacts, sorted: discarded, pushed, empty or unclaimed."""

    def __init__(
        self,
        survey: Survey,
        hashes: Hashes,
        sent: Sent,
        discards: list[Pattern],
        defaults: list[Pattern],
        reads: bool,
        brings: bool,
    ) -> None:
        self._survey, self._hashes, self._sent, self._reads = survey, hashes, sent, reads
        self._brings = brings
        self._discards, self._defaults = discards, defaults
        self.is_sure = True
        self._discarded: dict[str, list[int]] = {}
        self.unclaimed: list[tuple[int, str]] = []
        self.empty: list[str] = []
        self._pushed = [0, 0]

    def sort(self) -> None:
        odd: dict[str, list[tuple[int, str]]] = {}
        for at, path, size in self._survey.written:
            inner = self._survey.inner(at)
            reason = discarded_by(at, inner, self._discards, [])
            default = None if reason else discarded_by(at, inner, [], self._defaults)
            if default is not None and not is_cache(path):
                if self._brings and not default.startswith(("~/", INCOMING_PREFIX)):
                    self._leave(at, size)
                else:
                    odd.setdefault(default, []).append((size, at))
            elif reason or default:
                self._discard(str(reason or default), size)
            elif self._was_sent(path, size):
                self._pushed = [self._pushed[0] + 1, self._pushed[1] + size]
            else:
                self._leave(at, size)
        for default, files in odd.items():
            # Some files are named like a cache, but do not look like one. They are discarded by default only if
            # all of them together are small.
            if sum(size for size, _ in files) > ODD_BYTES:
                self.unclaimed += files
            else:
                for size, _ in files:
                    self._discard(default, size)
        self._count_names()

    def _leave(self, at: str, size: int) -> None:
        if size:
            self.unclaimed.append((size, at))
        else:
            self.empty.append(at)

    def bring(self, limit_bytes: int, limit_files: int, busy: set[tuple[int, int]]) -> list[dict]:
        """Return entries for the files that nobody has claimed, the smallest first, within these limits.

        They are no longer unclaimed then. A file that a process may still write to (`busy`: its device and inode), that
        changes, or that cannot be read, stays unclaimed.
        """
        entries: list[dict] = []
        left: list[tuple[int, str]] = []
        brought_bytes = 0
        found = sorted([*self.unclaimed, *((0, at) for at in self.empty)])
        for size, at in found:
            path = unescape_path(at)
            if brought_bytes + size > limit_bytes or len(entries) >= limit_files:
                left.append((size, at))
                continue
            try:
                sha256, seen = self._hashes.of(path) if self._reads else self._hashes.recall(path)
            except FileNotFoundError:
                continue
            except (Changing, OSError):
                left.append((size, at))
                continue
            if (seen.st_dev, seen.st_ino) in busy:
                left.append((size, at))
                continue
            brought_bytes += seen.st_size
            inner = self._survey.inner(at)
            entries.append(
                {
                    "name": "work/" + inner if inner is not None else "root" + at,
                    "at": at,
                    "kind": "file",
                    "class": "unasked",
                    "size": seen.st_size,
                    "sha256": sha256,
                    "mtime_ns": seen.st_mtime_ns,
                }
            )
        self.unclaimed = [one for one in left if one[0]]
        self.empty = [at for size, at in left if not size]
        self._count_names()
        return entries

    def _count_names(self) -> None:
        """Count many empty files as unclaimed. One is usually a marker or a lock, but many names can carry data."""
        if sum(len(os.path.basename(at)) for at in self.empty) > NAME_BYTES:
            self.unclaimed += [(0, at) for at in self.empty]
            self.empty = []

    def add_unread(self, reasons: set[str]) -> None:
        """Also list these patterns as discards, with no files.

        They name places that were discarded, and that cannot be read, so the files there cannot be counted.
        """
        for reason in reasons:
            self._discarded.setdefault(reason, [0, 0])

    def _discard(self, reason: str, size: int) -> None:
        tally = self._discarded.setdefault(reason, [0, 0])
        tally[0], tally[1] = tally[0] + 1, tally[1] + size

    def _was_sent(self, path: bytes, size: int) -> bool:
        versions = self._sent.versions(path, size)
        if not versions:
            return False
        if not self._reads:
            try:
                sha256, _ = self._hashes.recall(path)
            except (Changing, OSError):
                sha256 = None
            self.is_sure = self.is_sure and sha256 in versions
            return True
        try:
            return self._hashes.of(path)[0] in versions
        except (Changing, OSError):
            return False

    def as_answer(self, named: int) -> dict:
        largest = sorted(self.unclaimed, key=lambda item: (-item[0], item[1]))[:named]
        tallies = [
            {"pattern": p, "count": n, "bytes": b} for p, (n, b) in sorted(self._discarded.items())
        ]
        return {
            "unclaimed": {
                "count": len(self.unclaimed),
                "bytes": sum(size for size, _ in self.unclaimed),
                "largest": [_with_time(at, size) for size, at in largest],
            },
            "discarded": {
                "count": sum(t["count"] for t in tallies),
                "bytes": sum(t["bytes"] for t in tallies),
                "patterns": tallies,
            },
            "pushed": {"count": self._pushed[0], "bytes": self._pushed[1]},
            "empty": {"count": len(self.empty), "first": sorted(self.empty)[:20]},
        }


def _with_time(at: str, size: int) -> dict:
    """Describe the file with the time of its last change, which a job cannot set back."""
    try:
        return {"at": at, "size": size, "ctime_ns": os.lstat(unescape_path(at)).st_ctime_ns}
    except OSError:  # it is gone
        return {"at": at, "size": size}


ODD_BYTES, NAME_BYTES = 10 << 20, 2048


def discarded_by(
    at: str, inner: str | None, discards: list[Pattern], defaults: list[Pattern]
) -> str | None:
    """Return the text of the first pattern that discards the file. None if no pattern does.

    The defaults discard caches outside of the work directory, too.
    """
    for pattern in discards:
        text = inner if pattern.relative else at
        if text is not None and pattern.matches(text):
            return pattern.text
    for pattern in defaults:
        text = at if not pattern.relative else inner if inner is not None else at[1:]
        if pattern.matches(text):
            return pattern.text
    return None
