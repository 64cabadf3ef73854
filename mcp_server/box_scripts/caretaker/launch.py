"""The verb `start`: starts a job under a supervisor of its own."""

from __future__ import annotations

import fcntl
import os
import time

from box_scripts.caretaker.cgroups import limit_hit_counts, oom_kill_counts
from box_scripts.caretaker.detached import spawn_detached
from box_scripts.caretaker.failure_cause import end_facts
from box_scripts.caretaker.jobs import Job
from box_scripts.caretaker.paths import escape_path, unescape_path, utf8_bytes
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.processes import boot_id, ticks_of
from box_scripts.caretaker.records import EXIT, lock_file, read_record, reserve_record, write_record
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.since import set_since
from box_scripts.caretaker.stall import Stall
from box_scripts.caretaker.stop import START_LIMIT_S, end_jobs, record_ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def start(home: str, request: dict) -> dict:
    """Launch the job, unless an earlier call has launched it: a job is launched exactly once.

    Raises:
        Refusal: COMMAND_NOT_FOUND (this counts as the launch), LAUNCH_FAILED (nothing ran; start may be
            called again), START_TIMEOUT (unknown whether it runs; call start again).
    """
    job, env = Job(home, request["job"]), request.get("env", {})
    if not request["argv"]:
        raise Refusal("BAD_REQUEST", "argv is empty")
    spec = {
        "cwd": escape_path(request["cwd"]),
        "command": request["argv"][0],
        "env_names": sorted(env),
        "artifacts": [Pattern(p).text for p in request.get("artifacts", [])],
        "discard": [Pattern(p).text for p in request.get("discard", [])],
        "max_runtime_s": request.get("max_runtime_s"),
        "stalled_after_s": request.get("stalled_after_s"),
        "grace_s": request.get("grace_s", 10),
        "stop_signal": request.get("stop_signal", 15),
        "setup": request.get("setup", False),
        "oom_kills": oom_kill_counts(),
        "limit_hits": limit_hit_counts(),
    }
    environment = dict(os.environb)
    for name in request.get("env_unset", []):
        environment.pop(utf8_bytes(name), None)
    environment.setdefault(b"PYTHONUNBUFFERED", b"1")
    environment.update({utf8_bytes(n): utf8_bytes(v) for n, v in env.items()})
    environment.update(job.marks)
    os.makedirs(job.directory, 0o700, exist_ok=True)
    give_up, already, since_ns = time.monotonic() + START_LIMIT_S, True, None
    while job.start_record() is None:
        lock = lock_file(job.path("lock"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            if time.monotonic() > give_up:
                raise Refusal(
                    "START_TIMEOUT", "another start of this job is under way; call start again"
                )
            time.sleep(0.02)
            continue
        try:
            if job.start_record() is None:
                os.makedirs(request["cwd"], exist_ok=True)
                since_ns = set_since(home, "since.json", request["cwd"])
                write_record(job.path("spec.json"), spec)
                for name in ("main.json", "exit.json", "ending.json"):
                    reserve_record(job.path(name))
                _launch(
                    job, spec, [utf8_bytes(a) for a in request["argv"]], environment, lock, give_up
                )
                already = False
        finally:
            os.close(lock)  # This does not unlock it: the supervisor keeps the same lock.
    end = read_record(job.path("exit.json"), EXIT)
    if end and end.get("error"):
        raise Refusal("COMMAND_NOT_FOUND", end["error"], job=job.name, exit_code=127)
    started = job.start_record() or {}
    reply = {name: started[name] for name in ("pid", "start_ticks", "boot_id", "started_at")}
    return dict(reply, job=job.name, already=already, since_ns=since_ns)


def _launch(
    job: Job, spec: dict, argv: list[bytes], environment: dict, lock: int, give_up: float
) -> None:
    """Start the job's command under a supervisor of its own."""
    import select

    told, tell = os.pipe()
    spawn_detached(lambda: _supervise(job, spec, argv, environment, tell), {lock, tell})
    os.close(tell)
    # The last copy of `tell` is closed when the job's program begins, or when all processes that could start it end.
    ready = select.select([told], [], [], max(0.0, give_up - time.monotonic()))[0]
    message = os.read(told, 4096).decode("utf-8", "replace") if ready else ""
    os.close(told)
    if job.start_record() is None:
        if not ready:
            raise Refusal("START_TIMEOUT", "the launch takes long; call start again")
        raise Refusal(
            "LAUNCH_FAILED", "nothing was launched: " + (message or "the supervisor died")
        )


def _supervise(job: Job, spec: dict, argv: list[bytes], environment: dict, tell: int) -> None:
    """Start the job. Wait until the job and all processes that it left behind have ended, and record its end."""
    import select
    import signal

    try:
        import ctypes

        # PR_SET_CHILD_SUBREAPER: if a process of the job becomes a daemon, it becomes our child.
        adopts = ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        adopts = False
    supervisor = {"supervisor_pid": os.getpid(), "supervisor_ticks": ticks_of(os.getpid())}
    main = os.fork()
    if main == 0:
        _become_job(job, spec, argv, environment, tell, supervisor)
    os.close(tell)
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    expires = (
        time.monotonic() + spec["max_runtime_s"]
        if spec["max_runtime_s"] is not None
        else float("inf")
    )
    stall = Stall(job, spec["stalled_after_s"])
    end: dict = {}
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            if adopts or not job.members():
                break
            pid = 0
        if pid == main:
            number = os.WTERMSIG(code) if os.WIFSIGNALED(code) else 0
            names = {int(s): s.name[3:] for s in signal.Signals}
            end = {
                "exit_code": None if number else os.WEXITSTATUS(code),
                "ended_at": time.time(),
                "facts": end_facts(spec, job.directory),
            }
            end["signal"] = names.get(number, "RT%d" % number) if number else None
        if pid:
            continue
        if end and not os.path.exists(job.path("main.json")):
            _insist(job.path("main.json"), end)
        is_stalled = not end and stall.is_over_limit()  # what a command left behind may be silent
        if is_stalled or time.monotonic() >= expires:
            expires, stall = float("inf"), Stall(job, None)
            record_ending(job, "stalled" if is_stalled else "walltime")
            end_jobs([(job, spec["stop_signal"], spec["grace_s"])])
            continue
        wait_s = min(
            expires - time.monotonic(),
            stall.next_look_s() if not end else 3600.0,
            3600.0 if adopts else 1.0,
        )
        select.select([woken], [], [], max(0.0, wait_s))
        try:
            os.read(woken, 4096)
        except BlockingIOError:
            pass
    if job.start_record() and not os.path.exists(job.path("exit.json")):
        _insist(job.path("exit.json"), end)


def _insist(path: str, record: dict) -> None:
    """Write `record` to `path`, and try again until it works. Without this record the job would count as killed."""
    while True:
        try:
            return write_record(path, record)
        except OSError:
            time.sleep(1)


def _become_job(
    job: Job, spec: dict, argv: list[bytes], environment: dict, tell: int, supervisor: dict
) -> NoReturn:
    """Record this process as the job's, and only then become the job's command."""
    import signal

    try:
        os.setsid()
        for signum in set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(signum, signal.SIG_IGN if signum == signal.SIGHUP else signal.SIG_DFL)
            except (OSError, ValueError):  # some signals are reserved for the C library
                pass
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        log = os.open(job.path("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(unescape_path(spec["cwd"]))
        me = {
            "pid": os.getpid(),
            "start_ticks": ticks_of(os.getpid()),
            "boot_id": boot_id(),
            "init_ticks": ticks_of(1),
        }
        write_record(job.path("started.json"), dict(supervisor, started_at=time.time(), **me))
    except BaseException as error:  # noqa: BLE001  after any error, nothing was launched
        os.write(tell, str(error).encode("utf-8", "replace"))
        os._exit(127)
    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606
    except (OSError, ValueError) as error:
        why = "%s: %s" % (escape_path(argv[0]), getattr(error, "strerror", None) or error)
        end: dict = {"exit_code": 127, "signal": None, "facts": {}, "error": why}
        _insist(job.path("exit.json"), dict(end, ended_at=time.time()))
    finally:
        os._exit(127)
