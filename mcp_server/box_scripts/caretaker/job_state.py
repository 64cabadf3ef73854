"""Finds out the state of a job."""

from __future__ import annotations

from collections import namedtuple

from box_scripts.caretaker.jobs import LIVE
from box_scripts.caretaker.processes import program_of, restarted_since, text_of
from box_scripts.caretaker.records import EXIT, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.jobs import Job

Observed = namedtuple("Observed", "state started end held")


def observe(job: Job) -> Observed:
    """Return the state of the job. If it left neither an exit record nor a process, it was killed."""
    first = _look(job)
    # The job may have ended while its records were read. Reading again then finds its exit record.
    return _look(job) if first.state == "killed" and not first.end else first


def _look(job: Job) -> Observed:
    # This is checked before the records are read: if the lock is free, they are final.
    held = job.is_held()
    started = job.start_record()
    if not started:
        return Observed("starting" if held else "absent", None, None, held)
    final, main = read_record(job.path("exit.json"), EXIT), read_record(job.path("main.json"), EXIT)
    if not final and held:
        return Observed("lingering" if main else "running", started, main, held)
    left = [] if final else job.members()
    if left:
        lives = any(p.pid == started["pid"] and p.ticks == started["start_ticks"] for p in left)
        return Observed("running" if lives else "lingering", started, main, held)
    end, ending = final or main, job.ending()
    if ending:
        state = "stopped" if ending["why"] == "stopped" else "killed"
    elif not end or end["signal"] or _told_by_shell(end):
        state = "killed"
    else:
        state = "finished" if end["exit_code"] == 0 else "failed"
    return Observed(state, started, end, held)


def _told_by_shell(end: dict) -> int | None:
    """Return the signal that ended a shell's command, if any: the shell then exits with 128 plus its number."""
    number = (end["exit_code"] or 0) - 128
    return number if number in (1, 2, 3, 4, 6, 7, 8, 9, 11, 15) else None


def _left_running(job: Job, end: dict) -> dict:
    """Say how the command ended, and which processes it left. Only programs are named: arguments may be secret."""
    left = ["%d (%s)" % (process.pid, program_of(process.pid)) for process in job.members()]
    how = "ended by SIG" + end["signal"] if end["signal"] else "exit status %d" % end["exit_code"]
    more = ", and %d more" % (len(left) - 5) if left[5:] else ""
    return {"code": "lingering", "evidence": "%s; left: %s%s" % (how, ", ".join(left[:5]), more)}


def end_reason(job: Job, seen: Observed) -> dict | None:
    if seen.state == "lingering" and seen.end:
        return _left_running(job, seen.end)
    if seen.state in LIVE or not seen.started:
        return None
    ending, end, started = job.ending(), seen.end, seen.started
    if ending:
        return {"code": ending["why"], "evidence": "asked for at %.3f" % ending["at"]}
    if not end:
        pids = (started["pid"], started["supervisor_pid"])
        otherwise = (
            "supervisor_lost",
            "process %d and its supervisor %d are gone, with no exit record" % pids,
        )
    elif end["signal"]:
        otherwise = "signal", "ended by SIG" + end["signal"]
    elif _told_by_shell(end):
        otherwise = (
            "signal",
            "exit status %d, by which a shell reports signal %s"
            % (end["exit_code"], _told_by_shell(end)),
        )
    else:
        otherwise = "exit", end.get("error") or "exit status %d" % end["exit_code"]
        if seen.state == "finished":
            return {"code": "exit", "evidence": otherwise[1]}
    from box_scripts.caretaker.failure_cause import end_facts, kernel_messages, seek_reason

    spec, kernel = job.spec(), kernel_messages(started["start_ticks"])
    if end and end["signal"] == "KILL" and text_of("/proc/2/comm").strip() == "kthreadd":
        # The kernel names a process by the number that we know only if we are not in a PID namespace.
        kernel["main_pid"] = started["pid"]
    if end:
        return seek_reason(spec, end["facts"], None, kernel, otherwise)
    return seek_reason(
        spec, end_facts(spec, job.directory), restarted_since(started), kernel, otherwise
    )
