"""The verb `prune`, the only one that deletes files of a job."""

from __future__ import annotations

import errno
import json
import os
import time

from box_scripts.caretaker.checkpoints import STEP, name_group
from box_scripts.caretaker.complete import artifacts_now
from box_scripts.caretaker.hashing import Changing, Hashes
from box_scripts.caretaker.open_files import open_files
from box_scripts.caretaker.pace import SHARE, Pace, step_back
from box_scripts.caretaker.paths import escape_path, is_below, unescape_path
from box_scripts.caretaker.records import Locked, put_bytes
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.patterns import Pattern
    from box_scripts.caretaker.survey import Survey


def prune(home: str, request: dict) -> dict:
    """Remove each named checkpoint, if it is still the same, byte for byte. Otherwise leave all of it.

    Each is {"at", "files": [{"at", "size", "sha256", "mtime_ns", "ino"}]}: a file, or a directory with all its files.
    Before a checkpoint is removed, it is recorded in the log `pruned` (on a full disk, right after). Three kinds of
    files are never removed: the newest checkpoint of its kind, files that are open or that a link leads to, and the
    last file that a declared pattern matches.
    """
    survey, _ = artifacts_now(home, request)
    hashes = Hashes(home, request.get("key"), Pace(SHARE).rest)
    step_back()
    left = {path for _, path in survey.files}
    gone, refused, count, size = [], [], 0, 0
    with Locked(home, "home.lock"):
        for checkpoint in request["checkpoints"]:
            try:
                top, files = _files_of(checkpoint)
            except (KeyError, TypeError, ValueError):
                raise Refusal("BAD_REQUEST", "checkpoints are not as --help says") from None
            why = _why_kept(top, files, survey, left, hashes)
            if why is None:
                is_logged = _log_pruned(home, checkpoint)
                why = _unlink_all(top, files)
                if not is_logged and why is None:  # now there is room for the record
                    _log_pruned(home, checkpoint)
            if why is not None:
                refused.append({"at": checkpoint["at"], "why": why})
                left = {path for path in left if os.path.lexists(path)}
                continue
            left -= set(files)
            gone.append(checkpoint["at"])
            count, size = count + len(files), size + sum(named[0] for named in files.values())
    hashes.save()
    return {"pruned": gone, "files": count, "bytes": size, "refused": refused}


def _files_of(checkpoint: dict) -> tuple[bytes, dict[bytes, tuple[int, str, int, int]]]:
    files = {
        unescape_path(f["at"]): (
            int(f["size"]),
            str(f["sha256"]),
            int(f["mtime_ns"]),
            int(f["ino"]),
        )
        for f in checkpoint["files"]
    }
    if not files:
        raise ValueError
    return unescape_path(checkpoint["at"]), files


def _why_kept(
    top: bytes,
    files: dict[bytes, tuple[int, str, int, int]],
    survey: Survey,
    left: set[bytes],
    hashes: Hashes,
) -> str | None:
    """Return why the checkpoint may not be removed. None if it may."""
    if os.path.realpath(top) != top or not all(is_below(path, top) for path in files):
        return "it is not where it was named"
    if not set(files) <= left:
        return "it is no declared artifact, or is gone"
    if not _has_newer(top, left):
        return "nothing newer of its kind is on the box"
    lying = [os.path.join(d, n) for d, _, names in os.walk(top) for n in names] or [top]
    links = [os.path.join(d, n) for d, inner, _ in os.walk(top) for n in inner]
    if set(lying) != set(files) or any(map(os.path.islink, links)):
        return "there is more in it than was named"
    beside = os.path.dirname(top)
    around = [path for _, path in survey.links] + [
        os.path.join(beside, n) for n in os.listdir(beside)
    ]
    if any(os.path.islink(p) and is_below(os.path.realpath(p), top) for p in around):
        return "a link leads to it"
    for pattern in survey.artifacts:
        matched = {path for path in left if _means(pattern, path, survey)}
        if matched and matched <= set(files):
            return "it is all that is left of the artifact " + pattern.text
    opened = open_files((os.O_RDONLY, os.O_WRONLY, os.O_RDWR))
    for path, (size, sha256, mtime_ns, ino) in files.items():
        try:
            seen = os.lstat(path)
            is_same = (seen.st_size, seen.st_mtime_ns, seen.st_ino) == (size, mtime_ns, ino)
            if not is_same or hashes.of(path)[0] != sha256:
                return "it is not as it was: " + escape_path(path)
        except (Changing, OSError):
            return "it is being changed: " + escape_path(path)
        if (seen.st_dev, seen.st_ino) in opened:
            return "a process has it open: " + escape_path(path)
    return None


def _has_newer(top: bytes, left: set[bytes]) -> bool:
    """Whether there is a checkpoint of the same kind with a higher number in the same directory."""
    parent, name = os.path.split(top)
    steps = [int(found[2]) for found in STEP.findall(name)]
    beside = {
        path[len(parent) + 1 :].split(b"/")[0]
        for path in left
        if is_below(path, parent) and not is_below(path, top)
    }
    alike = (STEP.findall(n) for n in beside if name_group(n) == name_group(name))
    return bool(steps) and any([int(found[2]) for found in other] > steps for other in alike)


def _means(pattern: Pattern, path: bytes, survey: Survey) -> bool:
    at = escape_path(path)
    text = survey.inner(at) if pattern.relative else at
    return text is not None and bool(pattern.matches(text))


def _log_pruned(home: str, checkpoint: dict) -> bool:
    """Write the checkpoint to the log, as a complete line or not at all. Return False if the disk is full.

    The tenant has recorded the same before its request. So the checkpoint may be removed even if this fails.
    """
    line = json.dumps(dict(checkpoint, asked_at=time.time()), separators=(",", ":")) + "\n"
    path = os.path.join(home, "pruned")
    size = os.path.getsize(path) if os.path.exists(path) else 0
    try:
        put_bytes(path, line.encode(), os.O_CREAT | os.O_APPEND)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        if os.path.exists(path):
            os.truncate(path, size)
        return False
    return True


def _unlink_all(top: bytes, files: dict[bytes, tuple[int, str, int, int]]) -> str | None:
    """Remove the files, and directories that are empty then. If one cannot be removed, leave all, and return why.

    Each file is first renamed and then checked again, because a job may put another file in its place.
    """
    moved: dict[bytes, bytes] = {}
    why = None
    for place, (path, (size, _, mtime_ns, ino)) in enumerate(files.items()):
        aside = os.path.join(
            os.path.dirname(path), b".gpu-tenant-pruned-%d-%d" % (os.getpid(), place)
        )
        try:
            os.rename(path, aside)
            moved[aside] = path
            seen = os.lstat(aside)
            is_same = (seen.st_size, seen.st_mtime_ns, seen.st_ino) == (size, mtime_ns, ino)
            why = None if is_same else "it was changed at the last moment: " + escape_path(path)
        except OSError as error:
            why = "%s: %s" % (escape_path(path), error.strerror)
        if why is not None:
            break
    for aside, path in moved.items():
        if why is not None:
            try:
                # Unlike a rename, a link does not overwrite a file that was put there meanwhile.
                os.link(aside, path, follow_symlinks=False)
            except OSError:
                why += "; what was there is " + escape_path(aside)
                continue
        os.unlink(aside)
    for folder, _, _ in os.walk(top, topdown=False) if why is None else ():
        try:
            os.rmdir(folder)
        except OSError:
            continue
    return why
