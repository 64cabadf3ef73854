"""The verb `manifest`: lists and hashes all files that were written since the launch, so that each is accounted for."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.at_work import AtWork
from box_scripts.caretaker.elsewhere import Elsewhere, last_sign_ns
from box_scripts.caretaker.hashing import Changing, Hashes
from box_scripts.caretaker.job_state import observe
from box_scripts.caretaker.jobs import LIVE, Job, all_jobs
from box_scripts.caretaker.links import link_entries, undeclared_link_entries
from box_scripts.caretaker.logins import somebody_may_have_worked
from box_scripts.caretaker.mounts import Outliving, later_mounts
from box_scripts.caretaker.open_files import open_files
from box_scripts.caretaker.own_files import Own
from box_scripts.caretaker.paths import escape_path, unescape_path
from box_scripts.caretaker.pattern_bounds import Bounds, Narrowing, good_patterns
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.processes import boot_id, started_ns, text_of
from box_scripts.caretaker.pushed_files import Sent
from box_scripts.caretaker.records import GUARD, NO_GUARD, journal_line, read_record
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.since import accounted_since_ns, mounts_at_first
from box_scripts.caretaker.survey import WITHOUT_BYTES, Survey
from box_scripts.caretaker.unclaimed import (
    BROUGHT_FILES,
    DEFAULT_DISCARD,
    WrittenFiles,
    discarded_by,
)


def _refuse_running(home: str, but: str | None = None) -> list[Job]:
    """Return the jobs that were started here. Refuse if one of them still runs, or if another may still be started.

    The job `but` may have processes that it left behind.
    """
    seen = [(job, observe(job).state) for job in all_jobs(home)]
    running = [
        job.name
        for job, state in seen
        if state in LIVE and not (job.name == but and state == "lingering")
    ]
    if running:
        raise Refusal("JOB_RUNNING", "still running: " + ", ".join(running), jobs=running)
    waiting = _waiting(home)
    if waiting:
        told = ", ".join(waiting[:5]) + (" and %d more" % (len(waiting) - 5) if waiting[5:] else "")
        raise Refusal("JOB_RUNNING", "queued, and may still run: " + told, jobs=waiting)
    return [job for job, state in seen if state != "absent"]


def _started_jobs(home: str) -> list[Job]:
    """Return the jobs that were started here, including those that still run."""
    return [job for job in all_jobs(home) if observe(job).state != "absent"]


def _waiting(home: str) -> list[str]:
    """Return the jobs that runner.py may still start, by its journal. None remain when the guard has ended the work."""
    path = os.path.join(home, "queue", "journal")
    try:
        with open(path, "rb") as file:
            whole = file.read().rpartition(b"\n")[0]  # without the last line, if it is incomplete
    except FileNotFoundError:
        return []
    try:
        guard_record = read_record(os.path.join(home, "guard.json"), GUARD) or NO_GUARD
    except Refusal:  # a damaged record counts as no guard
        guard_record = NO_GUARD
    if guard_record["state"] == "fired":
        return []
    waiting, withdrawn = {}, set()
    try:
        for line in map(journal_line, whole.splitlines()):
            if "queued" in line:
                waiting[line["queued"]] = True
            elif "withdrawn" in line:
                withdrawn.add(line["withdrawn"])
            elif "ended" in line:
                waiting[line["job"]] = not line["final"]
    except ValueError:
        raise Refusal("RECORD_CORRUPT", path + " has a line that is not whole") from None
    return [name for name, waits in waiting.items() if waits and name not in withdrawn]


def manifest(home: str, request: dict) -> dict:
    """List every file written since the launch: as an entry, pushed, discarded, unclaimed, or a problem.

    With `elsewhere`, all local disks of the box are searched, and what was written on them counts, too. What changed
    after the jobs had ended counts only with `late`, or if one of the `demanded` artifacts never appeared: then it may
    be anywhere.

    With `bring_bytes`, files that no pattern covers are entries of the class `unasked`, the smallest first, up to that
    many bytes in all. Only the others are unclaimed.

    With `hash: recalled` no file is read. Then hashes that are not remembered are missing, and so is the digest. The
    result is a draft and not a seal, but it is enough to begin to fetch files while the seal is made. With
    `running: listed`, jobs may run meanwhile. The result lists the files so far, and never has a digest.

    A job can change our records on the box. So the request may have better ones, from the tenant's own records:
    `pushed`, `since_ns` and `ours` (the hashes of the tenant's scripts). With `pushed`, only the request's `discard`
    counts, because a job could add discards to its own record. `key` is for the remembered hashes. With `made_by`, the
    answer also lists the files that this job wrote: see `made_files`. This is no seal either.

    Raises:
        Refusal: JOB_RUNNING; or AT_WORK: a process that belongs to no job works in the directories to be sealed.
    """
    is_look, reads = request.get("running") == "listed", request.get("hash") != "recalled"
    if is_look and reads:
        raise Refusal(
            "BAD_REQUEST", "what a job still writes is listed, and not read: hash is recalled"
        )
    maker = Job(home, request["made_by"]) if "made_by" in request else None
    but = maker.name if maker else None
    jobs = _started_jobs(home) if is_look else _refuse_running(home, but)
    specs = [job.spec() for job in jobs]
    wanted = [p for spec in specs for p in spec["artifacts"]] + request.get("artifacts", [])
    unwanted = request.get("discard", [])
    if "pushed" not in request:
        unwanted = [p for spec in specs for p in spec["discard"]] + unwanted
    since_ns = 0 if request.get("ever") else accounted_since_ns(home, jobs, request.get("since_ns"))
    tops = [request["work"], *sorted(request.get("roots", []))]
    bounds = Bounds(home, request["work"], tops)
    problems: list[dict] = []
    artifacts = good_patterns(wanted, None, problems)
    discards = good_patterns(unwanted, bounds, problems)
    defaults = [Pattern(p) for p in DEFAULT_DISCARD] if request.get("default_discard", True) else []
    own = Own(home, request, {job.name for job in jobs})
    skip = {os.path.realpath(os.fsencode(__file__))} | set(request.get("exclude", []))
    narrowing = Narrowing(artifacts, discards)
    survey = Survey(request["work"], skip, since_ns, artifacts, own.is_ours, narrowing)
    survey.problems += problems
    if request.get("rented_ns") and not request.get("ever"):
        survey.before(request["rented_ns"], request.get("quiet", []), home)
        survey.launched_ns = accounted_since_ns(home, jobs, None)
        if request.get("restarted"):
            survey.restarted_ns = started_ns(1)
    for top in tops:
        survey.walk(top, True)
    places = [unescape_path(spec["cwd"]) for spec in specs]
    for top in [*places, *sorted(survey.leads), os.fsencode(home)]:
        survey.walk(top, True)
    at_work = AtWork(
        home, [request["work"], *places], tops if request.get("alone") else [], since_ns, own
    )
    left = {process.pid for process in maker.members()} if maker else set()
    if not is_look:
        at_work.refuse(left)
    for pattern in artifacts:  # declared files count, even outside the accounted directories
        if not pattern.relative:
            survey.walk(pattern.prefix, False)
    for top in sorted(survey.leads):  # of links that were found there
        survey.walk(top, True)
    unread: set[str] = set()  # discards of places that cannot be read, which is no problem then
    problems, survey.problems = survey.problems, []
    for problem in problems:
        below, reason = problem["at"] + "/%00", None
        if problem["why"] in ("unreadable", "too_deep"):
            reason = discarded_by(below, survey.inner(below), discards, defaults)
        if reason is None:
            survey.problems.append(problem)
        else:
            unread.add(reason)
    mountinfo, before = text_of("/proc/self/mountinfo"), mounts_at_first(home)
    for place in later_mounts(mountinfo, before, request["work"], tops):
        detail = "mounted since the lease began, so it hides what was written there; unmount it"
        survey.problem(escape_path(place), "mounted_over", detail)
    hashes = Hashes(home, request.get("key"))
    entries: list[dict] = []
    writers = open_files() if survey.files else {}
    logs = [("log/%s.log" % job.name, os.fsencode(job.path("log"))) for job in jobs]
    for name, path in survey.files + logs:
        at = escape_path(path)
        try:
            sha256, seen = hashes.of(path) if reads else hashes.recall(path)
        except (Changing, FileNotFoundError):
            survey.problem(at, "changing", "it changed, or vanished, while it was read")
            continue
        except OSError as error:
            survey.problem(at, "unreadable", error.strerror)
            continue
        if (seen.st_dev, seen.st_ino) in writers:
            survey.problem(
                at, "open_for_writing", "by process %d" % writers[seen.st_dev, seen.st_ino]
            )
        kind = "log" if name.startswith("log/") else "artifact"
        facts = {"size": seen.st_size, "sha256": sha256, "mtime_ns": seen.st_mtime_ns}
        facts["ctime_ns"] = seen.st_ctime_ns
        entries.append(dict(facts, name=name, at=at, kind="file", **{"class": kind}))
    entries += link_entries(survey, {path for _, path in survey.files})

    unmatched = [p.text for p in artifacts if p.text not in survey.matched]
    elsewhere = None
    if request.get("elsewhere") and since_ns is not None and not is_look:
        is_open = request.get("late") or set(unmatched) & set(request.get("demanded", []))
        elsewhere = Elsewhere(
            [*tops, *places, os.fsencode(home), *request.get("outliving", [])],
            since_ns,
            None if is_open else last_sign_ns(jobs),
        )
        elsewhere.look(own.is_ours, set(open_files()))
        known = {at for at, _, _ in survey.written} | {entry["at"] for entry in entries}
        known.update(map(escape_path, skip))
        survey.written += [one for one in elsewhere.written if one[0] not in known]
    bring_bytes = request.get("bring_bytes")
    written_files = WrittenFiles(
        survey, hashes, Sent(home, request), discards, defaults, reads, bring_bytes is not None
    )
    written_files.sort()
    written_files.add_unread(unread)
    made = made_files(maker, written_files, hashes, request.get("logins", False)) if maker else None
    if bring_bytes is not None:
        busy = {} if is_look else open_files()
        entries += written_files.bring(bring_bytes, BROUGHT_FILES, set(busy))
        kept = {unescape_path(entry["at"]) for entry in entries if entry["kind"] == "file"}

        def is_discarded(at: str, inner: str | None) -> bool:
            return discarded_by(at, inner, discards, defaults) is not None

        entries += undeclared_link_entries(survey, kept, is_discarded, BROUGHT_FILES)
    hashes.save()
    if not is_look and [j.name for j in _refuse_running(home, but)] != [j.name for j in jobs]:
        raise Refusal("JOB_RUNNING", "a job was started while the seal was made; seal again")
    if not is_look:
        at_work.refuse(left)
    entries.sort(key=lambda entry: entry["name"])
    is_sure = written_files.is_sure and all(entry["sha256"] is not None for entry in entries)
    return dict(
        written_files.as_answer(request.get("named", 20)),
        sealed_at=time.time(),
        boot_id=boot_id(),
        since_ns=since_ns,
        digest=_digest(entries) if is_sure and not is_look and not maker else "",
        entries=entries,
        problems=sorted(survey.problems, key=lambda p: (p["at"], p["why"])),
        unmatched=unmatched,
        elsewhere=elsewhere.as_answer() if elsewhere else None,
        lost_by_stop=_lost_by_stop(entries, written_files, survey, request),
        made=made,
        bring_bytes=bring_bytes,
    )


MADE_BYTES, CLOCK_TICK_NS = 16 << 30, 10**7
"""At most this many bytes of a setup's files are read; and a file's time may be this much behind the clock."""


def made_files(maker: Job, written_files: WrittenFiles, hashes: Hashes, logins: bool) -> list[dict]:
    """Return the files that the job wrote and that were not changed after its end, each with its size and hash.

    Only a file's time of change decides. If the job's end was not recorded, there are no such files. The smallest files
    come first. Files beyond MADE_BYTES in all are left out.

    Raises:
        Refusal: AT_WORK: with `logins`, if a person was logged in and may have written some of the files.
    """
    seen = observe(maker)
    if not seen.started or not seen.end:
        return []
    since_ns = int(seen.started["started_at"] * 1e9) - CLOCK_TICK_NS
    until_ns = int(seen.end["ended_at"] * 1e9) + CLOCK_TICK_NS
    if logins and somebody_may_have_worked(since_ns):
        raise Refusal("AT_WORK", "somebody was logged in while it ran, or is now")
    found, read_bytes = [], 0
    for size, at in sorted(written_files.unclaimed + [(0, at) for at in written_files.empty]):
        path = unescape_path(at)
        try:
            if not since_ns <= os.lstat(path).st_ctime_ns <= until_ns:
                continue
            read_bytes += size
            if read_bytes > MADE_BYTES:
                break
            sha256, now = hashes.of(path)
        except (Changing, OSError):
            continue
        if now.st_size == size and since_ns <= now.st_ctime_ns <= until_ns:
            found.append({"at": at, "size": size, "sha256": sha256})
    return found


def _lost_by_stop(
    entries: list[dict], written_files: WrittenFiles, survey: Survey, request: dict
) -> dict | None:
    """List the files that must be accounted for, and that a stop would lose. None if the request has no `kept`."""
    if "kept" not in request:
        return None
    mountinfo = text_of("/proc/self/mountinfo")
    outliving = Outliving(request["kept"], request.get("kept_disks", []), mountinfo)
    found = [(entry.get("size", 0), entry["at"]) for entry in entries]
    # A place that cannot be read may contain anything, so it counts, too.
    amiss = [problem["at"] for problem in survey.problems if problem["why"] not in WITHOUT_BYTES]
    found += [*written_files.unclaimed, *((0, at) for at in amiss)]
    sizes: dict[str, int] = {}
    for size, at in found:
        if not outliving.has(unescape_path(at)):
            sizes[at] = max(size, sizes.get(at, 0))
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return {
        "count": len(sizes),
        "bytes": sum(sizes.values()),
        "largest": [{"at": at, "size": size} for at, size in largest[:20]],
    }


def _digest(entries: list[dict]) -> str:
    """Return the hash of the sorted lines `sha256 size kind target-or-dash name`."""
    import hashlib

    form = "%(sha256)s %(size)d %(kind)s %(target)s %(name)s\n"
    lines = sorted(form % dict(entry, target=entry.get("target", "-")) for entry in entries)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
