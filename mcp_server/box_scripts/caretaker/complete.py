"""The verb `complete`: which artifacts are complete while jobs run."""

from __future__ import annotations

import os
import stat
import time

from box_scripts.caretaker.checkpoints import checkpoint_listing, find_unfinished
from box_scripts.caretaker.hashing import Changing, Hashes, file_identity
from box_scripts.caretaker.job_state import observe
from box_scripts.caretaker.jobs import LIVE, all_jobs
from box_scripts.caretaker.links import link_entries
from box_scripts.caretaker.mounts import far_devices
from box_scripts.caretaker.open_files import open_files
from box_scripts.caretaker.pace import SHARE, Pace, step_back
from box_scripts.caretaker.paths import escape_path, unescape_path
from box_scripts.caretaker.pattern_bounds import Narrowing, good_patterns
from box_scripts.caretaker.patterns import Pattern, Segment
from box_scripts.caretaker.processes import text_of
from box_scripts.caretaker.pushed_files import INCOMING
from box_scripts.caretaker.survey import Survey


def complete(home: str, request: dict) -> dict:
    """List the declared artifacts that nobody is writing now, newest first. Jobs may run meanwhile.

    This is no seal: it proves the content of each file, but not that no other files were written. For a file to be
    complete, four things must be true. It has no temporary name. Its checkpoint has the file that the job writes last.
    It did not change between two checks `quiet_s` apart. Nobody has it open for writing.

    This works and reads for at most `share` of the time (default: a quarter), on one core, at the lowest priority. At
    most `limit_bytes` are read, but at least one file. Files that are left out follow in the next call.
    """
    share = min(1.0, max(0.01, request.get("share", SHARE)))
    began, turn = time.monotonic(), Pace(share)
    stepped_back = step_back()
    survey, running = artifacts_now(home, request)
    hashes = Hashes(home, request.get("key"), turn.rest)
    quiet_ns = int(request.get("quiet_s", 5) * 1e9)
    seen, busy = _looked_twice(survey.files, quiet_ns, hashes)
    listing = checkpoint_listing(seen, request["work"])
    done = [Segment(text).matches_escaped for text in request.get("done", [])]
    held_back = find_unfinished(
        seen, busy, listing, request["work"], time.time_ns(), quiet_ns, done
    )
    newest_first = sorted(
        (one for one in survey.files if one[1] in seen and one[1] not in held_back),
        key=lambda one: (-seen[one[1]].st_mtime_ns, one[0]),
    )
    names = [name for name, path in survey.files if path in held_back]
    entries: list[dict] = []
    kept: set[bytes] = set()
    read, left_out, saved = 0, 0, began
    for name, path in newest_first:
        fresh = 0 if hashes.knows(seen[path]) else seen[path].st_size
        over = read + fresh > request.get("limit_bytes", 1 << 62)
        if read and fresh and (over or time.monotonic() - began > request.get("limit_s", 1 << 62)):
            names, left_out = [*names, name], left_out + 1
            continue
        read += fresh
        try:
            sha256, now = hashes.of(path)
        except (Changing, OSError):
            names.append(name)
            continue
        # Save now and then, so that these files are not read again if the link breaks.
        if time.monotonic() - saved > 30:
            hashes.save()
            saved = time.monotonic()
        facts = {"size": now.st_size, "sha256": sha256, "mtime_ns": now.st_mtime_ns}
        at = escape_path(path)
        entries.append(dict(facts, name=name, at=at, kind="file", **{"class": "artifact"}))
        kept.add(path)
    hashes.save()
    links = link_entries(survey, kept)
    amiss = {problem["at"] for problem in survey.problems}
    return {
        "files": entries + [link for link in links if link["at"] not in amiss],
        "inodes": {entry["name"]: seen[unescape_path(entry["at"])].st_ino for entry in entries},
        "left_out": left_out,
        "unfinished": sorted(names),
        "all_bytes": sum(now.st_size for now in seen.values()),
        "running": running,
        "pace": "at most %g of one core's time and of its disk's, %s" % (share, stepped_back),
        "now": time.time(),
        "login": escape_path(os.path.realpath(os.path.expanduser(b"~"))),
    }


def artifacts_now(home: str, request: dict) -> tuple[Survey, list[str]]:
    """Return a survey of all declared artifacts that exist, and the names of the jobs that run."""
    jobs = [job for job in all_jobs(home) if job.start_record()]
    wanted = [p for job in jobs for p in job.spec()["artifacts"]] + request.get("artifacts", [])
    unwanted = [p for job in jobs for p in job.spec()["discard"]] + request.get("discard", [])
    artifacts = [Pattern(p) for p in dict.fromkeys(wanted)]
    narrowing = Narrowing(artifacts, good_patterns(unwanted, None, []))
    skip = {os.path.realpath(os.fsencode(p)) for p in (home, __file__)}
    skip.add(os.path.join(request["work"], INCOMING))
    survey = Survey(request["work"], skip, None, artifacts, narrowing=narrowing)
    survey.walk(request["work"], False)
    for pattern in artifacts:
        if not pattern.relative:
            survey.walk(pattern.prefix, False)
    return survey, [job.name for job in jobs if observe(job).state in LIVE]


def _looked_twice(
    files: list[tuple[str, bytes]], quiet_ns: int, hashes: Hashes
) -> tuple[dict[bytes, os.stat_result], set[bytes]]:
    """Return the status of the regular files, and which of them are being written.

    If a file's times come from this kernel's clock, one check is enough: its time of change shows whether it has
    changed in the last `quiet_ns`. If they come from another clock (a network file system, a time in the future), the
    file is checked twice.
    """
    first = _stats_of(files)
    remote = far_devices(text_of("/proc/self/mountinfo"))
    now_ns = time.time_ns()
    undated = {
        path
        for path, seen in first.items()
        if seen.st_dev in remote or max(seen.st_mtime_ns, seen.st_ctime_ns) > now_ns
    }
    if not all(hashes.knows(first[path]) for path in undated):
        time.sleep(quiet_ns / 1e9)
    second, writers = _stats_of(files), open_files() if files else {}
    busy = set()
    for path, seen in second.items():
        if path in undated:
            is_busy = file_identity(first[path]) != file_identity(seen)
        else:
            is_busy = max(seen.st_mtime_ns, seen.st_ctime_ns) > now_ns - quiet_ns
        if is_busy or path not in first or (seen.st_dev, seen.st_ino) in writers:
            busy.add(path)
    return second, busy


def _stats_of(files: list[tuple[str, bytes]]) -> dict[bytes, os.stat_result]:
    found = {}
    for _, path in files:
        try:
            seen = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(seen.st_mode):
            found[path] = seen
    return found
