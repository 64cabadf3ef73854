"""The verb `stop`: ends all processes of a job."""

from __future__ import annotations

import os
import time

from box_scripts.caretaker.job_state import observe
from box_scripts.caretaker.jobs import LIVE, Job
from box_scripts.caretaker.processes import boot_id, ticks_of
from box_scripts.caretaker.records import write_record_if_possible
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.status import full_status

START_LIMIT_S = 15.0
KILL_LIMIT_S = 10.0


def record_ending(job: Job, why: str) -> None:
    """Record that we are about to end the job, and why. If there is such a record already, it stays."""
    if job.ending() is None:
        # The job is ended even if the disk is full and this cannot be recorded.
        write_record_if_possible(
            job.path("ending.json"), {"why": why, "at": time.time(), "boot_id": boot_id()}
        )


def end_jobs(asked: list[tuple[Job, int, float]]) -> list[int]:
    """End all processes of these jobs. Return the numbers of processes that survived even SIGKILL.

    Each job comes with the signal that asks it to end, and the number of seconds that it may take.
    """
    begun = time.monotonic()
    told: set = set()
    give_up = KILL_LIMIT_S + max((grace_s for _, _, grace_s in asked), default=0.0)
    while True:
        passed = time.monotonic() - begun
        alive = signal_jobs(asked, told, passed)
        if not alive or passed > give_up:
            return sorted(p.pid for p in alive)
        time.sleep(0.05)


def signal_jobs(asked: list[tuple[Job, int, float]], told: set, passed: float) -> set:
    """Ask each process of the jobs to end, once, and kill it when its job's time is over. Return the living processes.

    `told` are the processes that were asked before, and `passed` is the number of seconds since the first call.
    """
    import signal

    alive = set()
    for job, signum, grace_s in asked:
        for process in job.members():
            alive.add(process)
            numbers = (signal.SIGKILL,) if passed >= grace_s else (signum, signal.SIGCONT)
            if process in told and passed < grace_s:
                continue
            for number in numbers:
                try:
                    if ticks_of(process.pid) == process.ticks:
                        os.kill(process.pid, number)
                except OSError:
                    pass
    told |= alive
    return alive


def stop(home: str, request: dict) -> dict:
    """End the job and all its processes.

    Raises:
        Refusal: NO_SUCH_JOB, or STILL_ALIVE with the processes that did not end.
    """
    job, give_up = Job(home, request["job"]), time.monotonic() + START_LIMIT_S
    seen = observe(job)
    while seen.state == "starting" and time.monotonic() < give_up:
        time.sleep(0.05)
        seen = observe(job)
    if seen.state == "absent":
        raise Refusal("NO_SUCH_JOB", "no job of that name was started here")
    already = seen.state not in LIVE
    if not already:
        spec = job.spec()
        record_ending(job, "stopped")
        signum = request.get("signal", spec["stop_signal"])
        left = end_jobs([(job, signum, request.get("grace_s", spec["grace_s"]))])
        give_up = time.monotonic() + KILL_LIMIT_S
        while seen.state in LIVE and not left and time.monotonic() < give_up:
            time.sleep(0.02)
            seen = observe(job)
        if seen.state in LIVE:
            raise Refusal(
                "STILL_ALIVE", "the job does not end; processes left: %s" % left, pids=left
            )
    return dict(full_status(job, seen), already=already)
