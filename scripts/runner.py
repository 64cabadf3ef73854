#!/usr/bin/env python3
"""Take the jobs that were queued on a box, in order, and have caretaker.py run each, whoever is still there.

    runner.py --home DIR [--caretaker FILE] VERB --request -     one JSON object of arguments on stdin
    runner.py --home DIR [--caretaker FILE] VERB                 the same without arguments

queue     {"jobs": [{"job", "attempts", and what `caretaker.py start` takes}], "slots", "slot_gpus", "runner"}:
          the jobs are on record in that order, once each, and a runner is alive. So many run at once as there
          are slots, each with its own CUDA_VISIBLE_DEVICES where `slot_gpus` has one for each slot. With
          "runner": "elsewhere" none is started here: a `stay` will take them.
withdraw  {"jobs": [...], "begun"}: each will never begin here from now on, or it is too late; with "begun": "spare"
          that is so, too, of one that has had a run, and keeps the attempts it has left.
roll      {}: every job that was ever queued here, in brief, and whether a runner is alive.
stay      {"grace_s", "signal", "linger_s"}: this process is the runner, until nothing may run any more (and
          `linger_s` have passed), or until SIGTERM, SIGINT or SIGUSR1: then each job is asked to end by its own
          signal, or by `signal`, and is killed after `grace_s` (30). Such a job was interrupted, and the next
          `stay` runs it again. Exit status 75 where something may still run then.

A job that failed, or that was killed by nobody's wish, is run again, the identical command, until it has failed
`attempts` times (1). Its runs are jobs of the caretaker: NAME, then NAME.2 and so on, each with a log and a record
of its own. What finished is never run again, nor what was stopped.

DIR/queue holds journal (lines of JSON), lock, runner.lock, runner.json, socket. The values of `env` are held by
the runner in its memory, and are in no file: after its death such a job waits until `queue` brings them again.

Python 3.7 or newer, standard library only, with caretaker.py beside it. One JSON object on stdout; exit status 0,
1 (not done), 2 (a wrong request), 75.
"""

import argparse
import errno
import fcntl
import importlib.util
import json
import os
import re
import select
import signal
import socket
import sys
import time

CARETAKER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "caretaker.py")
TICK_S, LOOK_S, PAUSE_S = 0.1, 2.0, 5.0
REACH_S, READY_S = 3.0, 20.0
STAY_GRACE_S = 30.0
DELIVERY_S = 0.2
"""A run that ended so shortly before we were asked to leave may have had the same signal from the same sender."""
LONGEST_NAME = 60
LATER_RUN = re.compile(r"(.+)\.(?:[2-9]|[1-9][0-9]+)").fullmatch
MOST_ENV_BYTES = 64 << 20
MAY_RUN_STILL = 75
RUNS = ("argv", "cwd", "env_unset")
KEPT = (*RUNS, "artifacts", "discard", "max_runtime_s", "grace_s", "stop_signal")
STANDING = {
    "session": str,
    "kind": str,
    "pid": int,
    "start_ticks": int,
    "boot_id": str,
    "init_ticks": int,
    "host": str,
    "started_at": (int, float),
}

caretaker = None  # the module, once `main` knows where it lies


# --- the queue ----------------------------------------------------------------------------------


class Turn:
    """One job's place in the queue, and the runs it has had."""

    def __init__(self, name):
        self.name, self.spec, self.attempts, self.env_names = name, None, 1, []
        self.runs, self.withdrawn, self.held_by = [], False, None

    @property
    def begun(self):
        """The run whose end is not on record; None if there is none."""
        return self.runs[-1] if self.runs and not self.runs[-1]["end"] else None

    @property
    def last_end(self):
        ends = [run["end"] for run in self.runs if run["end"]]
        return ends[-1] if ends else None

    @property
    def settled(self):
        """Whether it will never begin, or never again. What runs is not settled."""
        if self.begun:
            return False
        return self.withdrawn or bool(self.runs and self.runs[-1]["end"]["final"])

    @property
    def made(self):
        """How many attempts it has had. An interruption does not count."""
        return sum(1 for run in self.runs if not run["end"] or run["end"]["counts"])

    def next_run(self):
        """The name of its next run, as a job of the caretaker."""
        if self.begun:
            return self.begun["run"]
        return "%s.%d" % (self.name, len(self.runs) + 1) if self.runs else self.name


class Queue:
    """What was queued in this home, and what became of it, by the journal."""

    def __init__(self, home):
        self.home, self.directory = home, os.path.join(home, "queue")
        os.makedirs(self.directory, 0o700, exist_ok=True)
        self.path = os.path.join(self.directory, "journal")
        self.turns, self.slots, self.slot_gpus, self.offset = {}, 1, [], 0

    def locked(self):
        """Nobody else writes, and no job of this queue begins, while the block runs."""
        return caretaker.Locked(self.directory, "lock")

    def read(self):
        """All that was written since is known. A line that was cut off by a death counts as never written."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                whole = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return
        for line in whole.splitlines():
            try:
                self._take(caretaker.journal_line(line))
            except (ValueError, KeyError):
                raise caretaker.Refusal(
                    "RECORD_CORRUPT",
                    self.path + " has a line that is not whole; it was left as it is",
                ) from None
        self.offset += len(whole) + 1 if whole else 0

    def write(self, lines):
        """The lines are on the disk and known, or none of them is. The caller holds the lock, and has read all."""
        if not lines:
            return
        content = b"".join(json.dumps(x, separators=(",", ":")).encode() + b"\n" for x in lines)
        is_new = not os.path.exists(self.path)
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, self.offset)
            os.lseek(fd, self.offset, os.SEEK_SET)
            try:
                with os.fdopen(os.dup(fd), "wb") as file:
                    file.write(content)
                os.fsync(fd)
            except OSError:
                os.ftruncate(fd, self.offset)
                raise
        finally:
            os.close(fd)
        if is_new:
            directory = os.open(self.directory, os.O_RDONLY)
            try:
                os.fsync(directory)
            except OSError:  # some network file systems cannot
                pass
            finally:
                os.close(directory)
        self.read()

    def _take(self, line):
        if "slots" in line:
            self.slots, self.slot_gpus = line["slots"], line["slot_gpus"]
        elif "queued" in line:
            turn = self.turns.setdefault(line["queued"], Turn(line["queued"]))
            turn.spec, turn.attempts, turn.env_names = (
                line["spec"],
                line["attempts"],
                line["env_names"],
            )
        elif "held" in line:
            for name in line["held"]:
                self.turns[name].held_by = line["by"]
        elif "withdrawn" in line:
            turn = self.turns.setdefault(line["withdrawn"], Turn(line["withdrawn"]))
            turn.withdrawn = True
            if turn.begun:  # it never came to a start, and will not
                turn.runs.pop()
        elif "began" in line:
            turn, run = self.turns[line["job"]], dict(line, run=line["began"], end=None)
            if turn.begun:  # it never came to a start
                turn.runs[-1] = run
            else:
                turn.runs.append(run)
        elif "ended" in line:
            turn = self.turns[line["job"]]
            if turn.begun and turn.begun["run"] == line["ended"]:
                turn.runs[-1]["end"] = line

    def begun(self):
        """The turns that run, or were about to when their runner died."""
        return [turn for turn in self.turns.values() if turn.begun]

    def waiting(self):
        """The turns that run, or may still run."""
        return [turn for turn in self.turns.values() if not turn.settled]

    def ended(self, turn, session=None, interrupted=False):
        """The line that says how the begun run has ended; None if it still runs, or never started.

        `session` is that of the runner that asks. `interrupted` says whether it has ended that run itself.
        """
        run = turn.begun
        job = caretaker.Job(self.home, run["run"])
        seen = caretaker.observe(job)
        if seen.state in caretaker.LIVE or seen.state == "absent":
            return None
        reason, ending, end = (
            (caretaker.end_reason(job, seen) or {}).get("code"),
            job.ending(),
            seen.end or {},
        )
        # If a stay did not live to note this end, its allocation was taken away, and its jobs with it.
        if run["stay"] and run["by"] != session and seen.state == "killed" and not ending:
            interrupted = True
        if interrupted or (ending and ending["why"] == "interrupted"):
            state, reason, final = "killed", "interrupted", False
        else:
            state = seen.state
            again = state in ("failed", "killed") and not ending
            final = not again or turn.made >= turn.attempts
        return {
            "ended": run["run"],
            "job": turn.name,
            "final": final,
            "counts": reason != "interrupted",
            "state": state,
            "exit_code": end.get("exit_code"),
            "signal": end.get("signal"),
            "reason": reason,
            "started_at": seen.started["started_at"],
            "ended_at": end.get("ended_at"),
        }


# --- who runs -----------------------------------------------------------------------------------


def standing(queue):
    """Whether a runner is alive, by its own record: {"state": ...} and what it wrote."""
    record = caretaker.read_record(os.path.join(queue.directory, "runner.json"), STANDING)
    if record is None:
        return {"state": "none"}
    same_boot = record["boot_id"] == caretaker.boot_id()
    if record.get("left"):
        state = "left"
    elif not same_boot and record["host"] != socket.gethostname():
        state = "elsewhere"
    elif caretaker.restarted_since(record):
        state = "gone"
    else:
        state = (
            "alive" if caretaker.ticks_of(record["pid"]) == record["start_ticks"] > 0 else "gone"
        )
    return dict(record, state=state)


def shown(stands):
    names = ("state", "kind", "started_at", "left", "trouble")
    return {name: stands[name] for name in names if stands.get(name) is not None}


def has_fired(home):
    """Whether the guard has ended this box's work. If so, nothing begins here until it holds a new deadline."""
    try:
        record = caretaker.read_record(os.path.join(home, "guard.json"), caretaker.GUARD)
    except caretaker.Refusal:  # a damaged record says nothing
        return False
    return bool(record and record["state"] == "fired")


def settle(queue):
    """What ended while no runner was there is on record. The caller holds the lock.

    It returns the names of the turns whose run was about to begin and never did.
    """
    if standing(queue)["state"] not in ("gone", "left", "none"):
        return set()
    queue.write([line for line in map(queue.ended, queue.begun()) if line])
    jobs = {turn.name: caretaker.Job(queue.home, turn.begun["run"]) for turn in queue.begun()}
    return {name for name, job in jobs.items() if caretaker.observe(job).state == "absent"}


def at_socket(directory, what):
    """The result of `what("socket")`, called in the socket's directory: a whole path may be too long for a socket."""
    here = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.chdir(directory)
        return what("socket")
    finally:
        os.fchdir(here)
        os.close(here)


def hand_over(queue, env):
    """The session of the runner that holds these values now; None if no runner can be reached."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(REACH_S)
        try:
            at_socket(queue.directory, line.connect)
            line.sendall(json.dumps(env).encode())
            line.shutdown(socket.SHUT_WR)
            said = json.loads(received(line, 4096).decode())
        except (OSError, ValueError):
            return None
        return said["session"]


def received(line, most):
    content = b""
    while len(content) <= most:
        more = line.recv(1 << 16)
        if not more:
            return content
        content += more
    raise ValueError("too much")


class Runner:
    """The process that takes from the queue. It holds the runner's lock as long as it lives."""

    def __init__(self, home, kind, lock, env=None, asked=None):
        self.queue, self.kind, self.lock = Queue(home), kind, lock
        self.env, self.asked = env or {}, asked or {}
        self.session = os.urandom(8).hex()
        self.leave_by, self.left_at = None, 0.0
        self._paused, self._watched, self._seen_bytes = {}, [], 0
        self._empty_since = None

    def appears(self):
        """This runner can be reached, and is on record."""
        pid = os.getpid()
        self._record = {
            "session": self.session,
            "kind": self.kind,
            "pid": pid,
            "start_ticks": caretaker.ticks_of(pid),
            "boot_id": caretaker.boot_id(),
            "init_ticks": caretaker.ticks_of(1),
            "host": socket.gethostname(),
            "started_at": time.time(),
            "left": None,
            "trouble": None,
        }
        self._path = os.path.join(self.queue.directory, "runner.json")
        caretaker.reserve_record(self._path)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            at_socket(self.queue.directory, self._opened)
        except OSError:  # no sockets on this file system: values cannot be handed over
            pass
        self._door.setblocking(False)
        self._woken, wake = os.pipe()
        for fd in (self._woken, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        if self.kind == "stay":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                signal.signal(number, self._ask_to_leave)
            try:  # that of the allocation before, which may have been on the same machine
                os.unlink(os.path.join(self.queue.home, "notice.json"))
            except FileNotFoundError:
                pass
        caretaker.write_record(self._path, self._record)

    def _opened(self, name):
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass
        self._door.bind(name)
        self._door.listen(16)

    def _ask_to_leave(self, number, _frame):
        if self.leave_by is None:
            self.leave_by, self.left_at = signal.Signals(number).name, time.time()

    def serve(self):
        """Why this runner left: nothing may run any more, or it was asked to. That is on record, too."""
        while True:
            self._reap()
            if self.leave_by:
                return self._interrupt()
            if not os.path.isdir(self.queue.directory):
                return "home"
            lock = caretaker.lock_file(
                os.path.join(self.queue.directory, "lock"), fcntl.LOCK_EX | fcntl.LOCK_NB
            )
            if lock is None:
                self._listen(0.01)
                continue
            try:
                did, why = self._step()
                if why:
                    self._leaves(why)
                    return why
            finally:
                os.close(lock)
            if did:
                self._listen(0.002)  # whoever else waits for the lock shall have it, too
            else:
                self._wait()

    def _step(self):
        """One thing was done, if there was one to do. It says so, and why there is no more to do here, if that is so."""
        self.queue.read()
        self._seen_bytes = self._journal_bytes()
        self._watched, absent = [], set()
        lines, trouble = [], None
        for turn in self.queue.begun():
            job = caretaker.Job(self.queue.home, turn.begun["run"])
            try:
                line = self.queue.ended(turn, self.session)
                if line and self.leave_by:
                    return (
                        True,
                        None,
                    )  # we were asked to leave meanwhile, and that decides what this end was
                if line:
                    lines.append(line)
                elif job.start_record() is None and not job.is_held():
                    absent.add(turn.name)
                elif job.is_held():
                    self._watched.append(job)
            except caretaker.Refusal as refusal:  # unknown, which is not ended
                trouble = str(refusal)
        try:
            self.queue.write(lines)
            began = self._begin(absent)
        except (OSError, caretaker.Refusal) as error:
            began, trouble = False, str(error)
        self._tell(trouble)
        waiting = self.queue.waiting()
        if not [turn for turn in waiting if turn.begun] and has_fired(self.queue.home):
            return False, "deadline"
        if waiting:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = time.monotonic()
        if not waiting and time.monotonic() - self._empty_since >= self.asked.get("linger_s", 0):
            return False, "empty"
        return bool(lines) or began, None

    def _begin(self, absent):
        """The next job in order has been started, if there is one and a slot for it."""
        busy = {t.begun["slot"] for t in self.queue.begun() if t.name not in absent}
        free = [slot for slot in range(self.queue.slots) if slot not in busy]
        now = time.monotonic()
        for turn in self.queue.waiting() if free else ():
            held = self.env.get(turn.name, {})
            if turn.begun and turn.name not in absent:
                continue
            if not set(turn.env_names) <= set(held) or self._paused.get(turn.name, 0) > now:
                continue
            # The guard first records that it ends the work, and then lists what it stops, under this lock.
            with caretaker.Locked(self.queue.home, "guard.lock"):
                if has_fired(self.queue.home):
                    return False
                self._start(turn, free[0], held)
            return True
        return False

    def _start(self, turn, slot, held):
        run, spec = turn.next_run(), turn.spec
        self.queue.write(
            [
                {
                    "began": run,
                    "job": turn.name,
                    "slot": slot,
                    "at": time.time(),
                    "by": self.session,
                    "stay": self.kind == "stay",
                }
            ]
        )
        request = dict(spec, job=run, cwd=caretaker.unescape_path(spec["cwd"]))
        request["env"] = {name: held[name] for name in turn.env_names}
        if slot < len(self.queue.slot_gpus):
            request["env"]["CUDA_VISIBLE_DEVICES"] = self.queue.slot_gpus[slot]
        try:
            caretaker.start(self.queue.home, request)
        except (caretaker.Refusal, OSError) as error:
            why = error.reply["code"] if isinstance(error, caretaker.Refusal) else "LAUNCH_FAILED"
            if why == "COMMAND_NOT_FOUND":
                return  # that was the launch, and its record tells the rest
            self._paused[turn.name] = time.monotonic() + PAUSE_S
            place = os.fsencode(self.queue.home)
            if why != "LAUNCH_FAILED" or caretaker.what_is_full(caretaker.room_at(place)):
                return  # not known yet, or no fault of the job: the same start is tried again
            line = {
                "ended": run,
                "job": turn.name,
                "final": turn.made >= turn.attempts,
                "counts": True,
                "state": "failed",
                "exit_code": None,
                "signal": None,
                "reason": "launch_failed",
                "started_at": None,
                "ended_at": time.time(),
                "message": str(error)[:300],
            }
            self.queue.write([line])

    def _wait(self):
        """Something has happened that may concern the queue, or some time has passed."""
        until = time.monotonic() + LOOK_S
        while time.monotonic() < until and not self.leave_by:
            if self._listen(TICK_S):
                return
            if self._journal_bytes() != max(self._seen_bytes, self.queue.offset):
                return
            if not all(job.is_held() for job in self._watched):
                return

    def _journal_bytes(self):
        try:
            return os.stat(self.queue.path).st_size
        except OSError:
            return 0

    def _listen(self, most_s):
        """Whether a signal or a `queue` came within that time. The values that a `queue` brought are held."""
        ready = select.select([self._door, self._woken], [], [], most_s)[0]
        if self._woken in ready:
            try:
                os.read(self._woken, 4096)
            except BlockingIOError:
                pass
        if self._door in ready:
            try:
                line, _ = self._door.accept()
                with line:
                    line.settimeout(REACH_S)
                    env = json.loads(received(line, MOST_ENV_BYTES).decode())
                    self.env.update(env)
                    line.sendall(json.dumps({"session": self.session}).encode())
            except (OSError, ValueError, TypeError):
                pass
        return bool(ready)

    def _interrupt(self):
        """Why this runner left. The jobs were asked to save, and have ended, and that is on record."""
        asked, turns = [], []
        with self.queue.locked():
            self.queue.read()
            for turn in self.queue.begun():
                job, give_up = (
                    caretaker.Job(self.queue.home, turn.begun["run"]),
                    time.monotonic() + 15,
                )
                while caretaker.observe(job).state == "starting" and time.monotonic() < give_up:
                    time.sleep(0.02)
                seen = caretaker.observe(job)
                if seen.state == "absent":
                    continue
                ended_at = (seen.end or {}).get("ended_at", float("inf"))
                if seen.state not in caretaker.LIVE and ended_at < self.left_at - DELIVERY_S:
                    continue
                caretaker.record_ending(job, "interrupted")
                turns.append(turn.name)
                if seen.state in caretaker.LIVE:
                    signum = self.asked.get("signal", job.spec()["stop_signal"])
                    asked.append((job, signum, self.asked.get("grace_s", STAY_GRACE_S)))
        caretaker.record_notice(self.queue.home, "allocation", jobs=turns)
        left = caretaker.end_jobs(asked)
        caretaker.record_notice(
            self.queue.home, "allocation", jobs=turns, ended_at=time.time(), left=left
        )
        give_up = time.monotonic() + caretaker.KILL_LIMIT_S
        while any(job.is_held() for job, _, _ in asked) and time.monotonic() < give_up:
            time.sleep(0.02)
        with self.queue.locked():
            self.queue.read()
            ends = [self.queue.ended(t, self.session, t.name in turns) for t in self.queue.begun()]
            self.queue.write([line for line in ends if line])
            self._leaves(self.leave_by)
        return self.leave_by

    def _leaves(self, why):
        """It is on record that this runner is no more. The caller holds the lock of the queue."""
        self._record["left"] = why
        caretaker.write_record_if_possible(self._path, self._record)
        self._door.close()
        os.close(self.lock)

    def _tell(self, trouble):
        if trouble != self._record["trouble"]:
            self._record["trouble"] = trouble
            caretaker.write_record_if_possible(self._path, self._record)

    def _reap(self):
        """No dead child waits to be reaped. If this is process 1, that means all the dead of its container."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def posted(home, lock, env):
    """The session of a new, detached runner, which can be reached and holds the lock from now on."""
    told, tell = os.pipe()

    def body():
        runner = Runner(home, "detached", lock, env)
        runner.appears()
        os.write(tell, runner.session.encode())
        os.close(tell)
        try:
            runner.serve()
        except Exception as error:  # noqa: BLE001  there is nobody else to tell
            runner._record["left"] = "%s: %s" % (type(error).__name__, error)
            caretaker.write_record_if_possible(runner._path, runner._record)

    caretaker.spawn_detached(body, {lock, tell})
    os.close(tell)
    ready = select.select([told], [], [], READY_S)[0]
    said = os.read(told, 64).decode() if ready else ""
    os.close(told)
    if not said:
        raise caretaker.Refusal(
            "NO_RUNNER", "the jobs are on record, and no runner came up; queue again"
        )
    return said


# --- the verbs ----------------------------------------------------------------------------------


def queue(home, request):
    """The jobs are on record, in order and once each, and a runner is alive.

    Raises:
        Refusal: DEADLINE_PASSED, OTHER_COMMAND, NAME_TAKEN, BAD_REQUEST: nothing was queued.
    """
    here = Queue(home)
    asked = [entry(job) for job in request.get("jobs", [])]
    env = {line["queued"]: values for line, values in asked if values}
    with here.locked():
        here.read()
        if has_fired(home):
            raise caretaker.Refusal(
                "DEADLINE_PASSED", "the guard has ended this box's work; nothing was queued"
            )
        settle(here)
        lines, already = [], []
        for line, _ in asked:
            known = here.turns.get(line["queued"])
            if known and known.spec and any(known.spec[n] != line["spec"][n] for n in RUNS):
                raise caretaker.Refusal(
                    "OTHER_COMMAND",
                    "%s was queued with another command; nothing was queued" % line["queued"],
                )
            if known:
                already.append(line["queued"])
            else:
                lines.append(line)
        refuse_taken([*here.turns, *(line["queued"] for line in lines)])
        if "slots" in request:
            slots = {"slots": request["slots"], "slot_gpus": request.get("slot_gpus", [])}
            if slots != {"slots": here.slots, "slot_gpus": here.slot_gpus}:
                lines.insert(0, slots)
        lock, session = reached(here, env, starts=request["runner"] == "here")
        here.write(lines)
        if request["runner"] == "here":
            if lock is None:  # that runner may have died since
                lock = caretaker.lock_file(runner_lock(here), fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None:
                try:
                    session = posted(home, lock, env)
                finally:
                    os.close(lock)
        names = [turn.name for turn in map(here.turns.get, env) if not turn.settled]
        if session and names:
            here.write([{"held": names, "by": session}])
        stands = standing(here)
        return {
            "queued": [line["queued"] for line in lines if "queued" in line],
            "already": already,
            "needs_env": [
                n for n in (x["queued"] for x, _ in asked) if lacks(here.turns[n], stands)
            ],
            "runner": shown(stands),
        }


def entry(asked):
    """The line that queues this job, and the values of its `env`."""
    asked = dict(asked)
    attempts = asked.pop("attempts", 1)
    if type(attempts) is not int or not 1 <= attempts <= 100:
        raise caretaker.Refusal("BAD_REQUEST", "attempts is a whole number from 1 to 100")
    checked = caretaker.checked_arguments("start", asked)
    checked.pop("tenant", None)
    name, env = checked["job"], checked.get("env", {})
    if not caretaker.JOB_NAME(name) or len(name) > LONGEST_NAME:
        raise caretaker.Refusal(
            "BAD_REQUEST", "a queued job is named by 1 to 60 of A-Z a-z 0-9 . _ -"
        )
    if not checked["argv"]:
        raise caretaker.Refusal("BAD_REQUEST", "argv is empty")
    for pattern in checked.get("artifacts", []) + checked.get("discard", []):
        caretaker.Pattern(pattern)
    checked["cwd"] = caretaker.escape_path(checked["cwd"])
    checked.setdefault("env_unset", [])
    spec = {field: checked[field] for field in KEPT if field in checked}
    return {"queued": name, "spec": spec, "attempts": attempts, "env_names": sorted(env)}, env


def refuse_taken(names):
    """No job's name is that of another one's later run."""
    if len(set(names)) != len(names):
        raise caretaker.Refusal("NAME_TAKEN", "one name twice in one request; nothing was queued")
    for name in names:
        later = LATER_RUN(name)
        if later and later.group(1) in names:
            raise caretaker.Refusal(
                "NAME_TAKEN",
                "%s is how a later run of %s is named; nothing was queued" % (name, later.group(1)),
            )


def runner_lock(here):
    return os.path.join(here.directory, "runner.lock")


def reached(here, env, starts):
    """The runner's lock, if it was free; else the session of the runner that holds it and these values."""
    give_up = time.monotonic() + REACH_S
    while True:
        if starts:
            lock = caretaker.lock_file(runner_lock(here), fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None:
                return lock, None
        session = hand_over(here, env) if env else None
        gone = not starts or not env or standing(here)["state"] == "elsewhere"
        if session or gone or time.monotonic() > give_up:
            return None, session
        time.sleep(0.05)


def lacks(turn, stands):
    """Whether the job waits for values that no runner holds."""
    if turn.settled or not turn.env_names:
        return False
    return stands["state"] not in ("alive", "elsewhere") or turn.held_by != stands["session"]


def withdraw(home, request):
    """Each of these jobs never begins here from now on, or it is too late."""
    here = Queue(home)
    withdrawn, late = [], []
    with here.locked():
        here.read()
        absent = settle(here)
        for name in dict.fromkeys(request["jobs"]):
            turn = here.turns.get(name)
            if turn is None:
                is_free = caretaker.observe(caretaker.Job(home, name)).state == "absent"
            else:
                is_free = turn.withdrawn or not (turn.settled or turn.begun) or turn.name in absent
                is_free = is_free and not (turn.runs and request.get("begun") == "spare")
            (withdrawn if is_free else late).append(name)
        lines = [
            {"withdrawn": n}
            for n in withdrawn
            if n not in here.turns or not here.turns[n].withdrawn
        ]
        here.write(lines)
    return {"withdrawn": withdrawn, "too_late": late}


def roll(home, _request):
    """How every job stands that was ever queued here, and whether a runner is alive."""
    here = Queue(home)
    here.read()
    stands, absent = standing(here), set()
    if here.begun() and stands["state"] not in ("alive", "elsewhere"):
        here = Queue(home)
        with here.locked():
            here.read()
            absent = settle(here)
            stands = standing(here)
    return {
        "jobs": [brief(turn, stands, absent) for turn in here.turns.values()],
        "runner": shown(stands),
        "slots": here.slots,
        "now": time.time(),
        "boot_id": caretaker.boot_id(),
    }


def brief(turn, stands, absent):
    end, run = turn.last_end or {}, turn.runs[-1] if turn.runs else None
    if turn.begun and turn.name not in absent:
        state, end = "running", {"started_at": run["at"]}
    elif turn.settled:
        state = end.get("state", "withdrawn")
    else:
        state = "needs_env" if lacks(turn, stands) else "queued"
    told = {"job": turn.name, "state": state, "runs": len(turn.runs), "attempts": turn.made}
    if run:
        told.update(run=run["run"], slot=run["slot"])
    names = ("exit_code", "signal", "reason", "started_at", "ended_at")
    return dict(told, **{name: end[name] for name in names if end.get(name) is not None})


def stay(home, request):
    """This process was the runner, until nothing might run any more or it was asked to leave."""
    here = Queue(home)
    with here.locked():
        if has_fired(home):
            raise caretaker.Refusal("DEADLINE_PASSED", "the guard has ended this box's work")
        lock = caretaker.lock_file(runner_lock(here), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            raise caretaker.Refusal("RUNNER_ALIVE", "another runner takes from this queue")
        here.read()
        settle(here)
        runner = Runner(home, "stay", lock, asked=request)
        runner.appears()
    left = runner.serve()
    here.read()
    waiting = [turn.name for turn in here.waiting()]
    interrupted = [
        t.name for t in here.waiting() if (t.last_end or {}).get("reason") == "interrupted"
    ]
    return {"left": left, "waiting": waiting, "interrupted": interrupted}


# --- the call -----------------------------------------------------------------------------------

VERBS = {
    "queue": (queue, {"jobs": "objects", "slots": "whole", "slot_gpus": "texts", "runner": "text"}),
    "withdraw": (withdraw, {"jobs": "texts", "begun": "text"}),
    "roll": (roll, {}),
    "stay": (stay, {"grace_s": "number", "signal": "signal", "linger_s": "number"}),
}


def checked(verb, arguments):
    """The arguments in their own types.

    Raises:
        Refusal: BAD_REQUEST.
    """
    kinds = dict(VERBS[verb][1], tenant="flag")
    if not isinstance(arguments, dict) or not set(arguments) <= set(kinds):
        raise caretaker.Refusal(
            "BAD_REQUEST", "%s takes one JSON object of: %s" % (verb, " ".join(kinds))
        )
    request = {}
    for name, value in arguments.items():
        if value is None:
            continue
        try:
            request[name] = caretaker.parse_value(kinds[name], value)
        except (ValueError, KeyError):  # the value is not repeated, because it may hold a secret
            raise caretaker.Refusal(
                "BAD_REQUEST", "%s is not a proper %s" % (name, kinds[name])
            ) from None
    if verb == "withdraw":
        if "jobs" not in request:
            raise caretaker.Refusal("BAD_REQUEST", "withdraw needs jobs")
        if request.get("begun", "end") not in ("end", "spare"):
            raise caretaker.Refusal("BAD_REQUEST", "begun is end or spare")
    if verb == "queue":
        request.setdefault("runner", "here")
        gpus, slots = request.get("slot_gpus", []), request.get("slots")
        if request["runner"] not in ("here", "elsewhere"):
            raise caretaker.Refusal("BAD_REQUEST", "runner is here or elsewhere")
        if (slots is not None and not 1 <= slots <= 1024) or (gpus and len(gpus) != slots):
            raise caretaker.Refusal(
                "BAD_REQUEST", "1 to 1024 slots, and slot_gpus has one text for each"
            )
    return request


def answer(given):
    arguments = {}
    if given.request:
        try:
            arguments = json.loads(sys.stdin.buffer.read().decode())
        except ValueError:
            raise caretaker.Refusal("BAD_REQUEST", "stdin holds no JSON object") from None
    request = checked(given.verb, arguments)
    home = os.path.realpath(os.path.expanduser(given.home))
    os.makedirs(home, 0o700, exist_ok=True)
    if request.pop("tenant", False):
        try:
            with open(os.path.join(home, "heartbeat"), "ab") as file:
                os.utime(file.fileno())
        except OSError:  # the disk is full
            pass
    return dict(VERBS[given.verb][0](home, request), ok=True)


def loaded(path):
    """The caretaker's part for this script; None if there is no such file. No bytecode is left beside it."""
    if not os.path.isfile(path):
        return None
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("caretaker", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return importlib.import_module("box_scripts.caretaker.for_runner")


def main(argv):
    """The exit status, after one JSON object was written to stdout."""
    global caretaker
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="runner.py"
    )
    parser.add_argument("--home", required=True, help="where the caretaker keeps records and logs")
    parser.add_argument("--caretaker", default=CARETAKER, help="caretaker.py (the one beside this)")
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("--request", choices=["-"], help="read the arguments from stdin")
    given = parser.parse_args(argv)
    caretaker = loaded(os.path.expanduser(given.caretaker))
    if caretaker is None:
        reply = {"ok": False, "code": "NO_CARETAKER", "message": "no caretaker.py lies beside"}
    else:
        try:
            reply = answer(given)
        except caretaker.Refusal as refusal:
            reply = refusal.reply
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            code = "DISK_FULL" if full else "OS_ERROR"
            reply = {"ok": False, "code": code, "message": ascii(str(error))[1:-1]}
        except Exception as error:  # noqa: BLE001  a bug too is told as JSON
            reply = {"ok": False, "code": "RUNNER_BROKE", "message": type(error).__name__}
    sys.stdout.buffer.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
    sys.stdout.buffer.flush()
    if not reply["ok"]:
        return 2 if reply["code"] == "BAD_REQUEST" else 1
    return MAY_RUN_STILL if reply.get("left", "").startswith("SIG") and reply["waiting"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
