"""Walks once over all directories in which jobs may have written files."""

from __future__ import annotations

import os
import stat

from box_scripts.caretaker.paths import escape_path, is_below
from box_scripts.caretaker.progress import TELLING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from box_scripts.caretaker.pattern_bounds import Narrowing
    from box_scripts.caretaker.patterns import Pattern

RESTART_NS = 300 * 10**9  # the image's services write their files within this time of a start
QUIET_BYTES = 1 << 20  # files that the image's services write are smaller
DEEPEST, LONGEST = 512, 3500
IN_MEMORY = b"/dev/shm"  # the only place below /dev that holds files
WITHOUT_BYTES = {"special", "dangling", "escapes", "link_target_not_kept"}  # such things hold none


class Survey:
    """One walk over all files that the jobs may have written. It sorts them into artifacts, links, others, problems."""

    def __init__(
        self,
        work: bytes,
        skip: set[bytes],
        since_ns: int | None,
        artifacts: list[Pattern],
        is_ours: Callable[[bytes, os.stat_result], bool] = lambda path, seen: False,
        narrowing: Narrowing | None = None,
    ) -> None:
        self.work, self.since_ns, self.artifacts = work, since_ns, artifacts
        self._is_ours, self._narrowing = is_ours, narrowing
        self.skip = skip | {b"/proc", b"/sys", b"/dev"}
        self.files: list[tuple[str, bytes]] = []  # artifacts, by name
        self.links: list[tuple[str, bytes]] = []
        self.new_links: list[tuple[str, bytes]] = []  # below the work directory, and no artifact
        self.written: list[tuple[str, bytes, int]] = []  # since launch, and no artifact
        self.leads: set[bytes] = set()  # the targets of links in the work directory
        self.problems: list[dict] = []
        self.matched: set[str] = set()
        self._walked: set[bytes] = set()
        self.launched_ns: int | None = None
        self.restarted_ns: int | None = None
        self._quiet: list[bytes] = []
        self._quiet_work = b""
        self._root = escape_path(work).rstrip("/") + "/"
        self._reaches_out = not all(p.relative for p in artifacts)
        self._inner = [p.matches for p in artifacts if p.relative]
        self._outer = [p.matches for p in artifacts if not p.relative]

    def before(self, rented_ns: int, quiet: list[str], home: str) -> None:
        """Also count files that were written from `rented_ns` on, except quiet files from before the first launch.

        Quiet files are those that the image's own services write while they start, and a work directory that was
        cloned on the box.
        """
        self.launched_ns = self.since_ns
        self.since_ns = min(rented_ns, rented_ns if self.since_ns is None else self.since_ns)
        login = os.path.realpath(os.path.expanduser(b"~"))
        self._quiet = [login + os.fsencode(name)[1:] for name in quiet if name.startswith("~/")]
        if os.path.exists(os.path.join(home, "cloned.json")):
            self._quiet_work = self.work + b"/"

    def _is_quiet(self, path: bytes, seen: os.stat_result) -> bool:
        launched = self.launched_ns
        if launched is not None and seen.st_ctime_ns >= launched:
            return self._came_with_a_start(path, seen)
        if launched is not None and self._quiet_work and path.startswith(self._quiet_work):
            return True
        return self._is_of_the_image(path, seen)

    def _is_of_the_image(self, path: bytes, seen: os.stat_result) -> bool:
        return seen.st_size <= QUIET_BYTES and any(
            path.startswith(place) if place.endswith(b"/") else path == place
            for place in self._quiet
        )

    def _came_with_a_start(self, path: bytes, seen: os.stat_result) -> bool:
        """Whether the image's services wrote the file when the box was started after a stop that emptied the home."""
        begun_ns = self.restarted_ns
        if begun_ns is None or not self._is_of_the_image(path, seen):
            return False
        return begun_ns - RESTART_NS <= seen.st_ctime_ns <= begun_ns + RESTART_NS

    def problem(self, at: str, why: str, detail: object) -> None:
        self.problems.append({"at": at, "why": why, "detail": str(detail)})

    def inner(self, at: str) -> str | None:
        """Return the path relative to the work directory. None if it is elsewhere."""
        return at[len(self._root) :] if at.startswith(self._root) else None

    def walk(self, top: bytes, is_accounted: bool) -> None:
        """Sort all files below `top`, except those that were walked over before. Links are not followed."""
        skip = self.skip - {b"/dev"} if is_below(top, IN_MEMORY) else self.skip
        if any(is_below(top, place) for place in self._walked | skip):
            return
        pending = [top]
        while pending:
            path = pending.pop()
            if path in self._walked or path in skip:
                continue
            TELLING.did(1, 0)
            if path.count(b"/") > DEEPEST or len(path) > LONGEST:
                self.problem(escape_path(path[:80]), "too_deep", "%d bytes of path" % len(path))
                continue
            try:
                seen = os.lstat(path)
                if stat.S_ISDIR(seen.st_mode):
                    below = (os.path.join(path, name) for name in os.listdir(path))
                    pending.extend(_ours_of(below) if _is_shared(seen) else below)
                else:
                    self._place(path, seen, is_accounted)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.problem(
                    escape_path(path), "unreadable", "cannot be accounted for: %s" % error.strerror
                )
        self._walked.add(top)

    def _claims(self, at: str, inner: str | None) -> bool:
        if any(matches(at) for matches in self._outer):
            return True
        return inner is not None and any(matches(inner) for matches in self._inner)

    def _place(self, path: bytes, seen: os.stat_result, is_accounted: bool) -> None:
        is_new = is_accounted and self.since_ns is not None and seen.st_ctime_ns >= self.since_ns
        is_new = is_new and not (self._quiet and self._is_quiet(path, seen))
        if not is_new and not self._reaches_out and not is_below(path, self.work):
            return  # This is true for most files of a home directory, so it is checked first.
        at = escape_path(path)
        inner = self.inner(at)
        name = "work/" + inner if inner is not None else "root" + at
        claimed = self._claims(at, inner)
        if claimed and self._narrowing is not None:
            claimed = not self._narrowing.takes(at, inner)
        if stat.S_ISLNK(seen.st_mode):
            target = os.path.realpath(path)
            if os.path.isdir(target):
                # No file name contains %00. So this matches only a pattern for everything below the directory.
                claimed = claimed or self._claims(at + "/%00", inner and inner + "/%00")
            if claimed:
                self.links.append((name, path))
            elif is_new and inner is not None:
                self.new_links.append((name, path))
            if (claimed or inner is not None) and not is_below(self.work, target):
                self.leads.add(target)
            return
        if not stat.S_ISREG(seen.st_mode):
            if claimed:
                self.problem(at, "special", "neither a file, a directory nor a link")
        elif self._is_ours(path, seen):
            return  # our own files never count, even if a pattern matches
        elif claimed:
            self.files.append((name, path))
            self.note_match(at)
        elif is_new:
            self.written.append((at, path, seen.st_size))

    def note_match(self, at: str) -> None:
        """Note which patterns match a file or link that is kept."""
        if len(self.matched) < len(self.artifacts):
            inner = self.inner(at)
            for pattern in self.artifacts:
                text = inner if pattern.relative else at
                if text is not None and (pattern.matches(text) or pattern.matches(text + "/%00")):
                    self.matched.add(pattern.text)


def _is_shared(directory: os.stat_result) -> bool:
    """Whether everybody may write there, but may remove only their own files, as in /tmp."""
    return bool(directory.st_mode & stat.S_ISVTX and directory.st_mode & stat.S_IWOTH)


def _ours_of(paths: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the paths that a job of this user may have made: those that the user owns, or all if the user is root."""
    for path in paths:
        try:
            if os.geteuid() in (0, os.lstat(path).st_uid):
                yield path
        except FileNotFoundError:
            continue
