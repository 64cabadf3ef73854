"""The guard: the process that enforces the deadline on the box."""

from __future__ import annotations

import json
import os
import sys
import time

from box_scripts.caretaker.detached import spawn_detached
from box_scripts.caretaker.guard_clock import GuardClock, elapsed_s
from box_scripts.caretaker.job_state import observe
from box_scripts.caretaker.jobs import LIVE, all_jobs
from box_scripts.caretaker.listening import Listener
from box_scripts.caretaker.next_look import NextLook
from box_scripts.caretaker.notice import record_notice
from box_scripts.caretaker.presence import Presence
from box_scripts.caretaker.processes import boot_id, output_of, restarted_since, ticks_of
from box_scripts.caretaker.records import (
    GUARD,
    Locked,
    read_record,
    write_record_if_possible,
)
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.requests import checked_arguments
from box_scripts.caretaker.stop import KILL_LIMIT_S, end_jobs, record_ending, signal_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

    from box_scripts.caretaker.job_state import Observed
    from box_scripts.caretaker.jobs import Job

LOOK_S, LEAPING_LOOK_S = 60.0, 600.0
"""The guard checks what the box does this often. In a rehearsal, time jumps, so it checks less often."""
GUARD_GRACE_S, COPY_S = 60.0, 1800.0
NOTICE_S, LATE_S, DELIVERY_S = 30.0, 120.0, 2.0
COPY_AGAIN_S, QUIET_S = 5.0, 1.0


def start_holder(home: str, request: dict, wanted: dict) -> dict:
    """Start the guard as a detached process, and return its record."""
    left_s = request.get("left_s", request["deadline"] - time.time())
    clock = GuardClock(home, request.get("rehearsed") is True)
    fires, held = clock.elapsed_s() + left_s, dict(request)
    if "store" in request:
        held["seal"] = checked_arguments("manifest", request.get("seal"))
    look = (request.get("end") or {}).get("look")
    held["look"] = checked_arguments("manifest", look) if look else None
    places = dict(request.get("scripts") or {})
    held["scripts"] = {name: os.path.realpath(places[name]) for name in places}
    record = dict(wanted, state="armed", boot_id=boot_id(), armed_at=time.time())
    record["store"] = "held" if "store" in request else None
    told, tell = os.pipe()

    def body() -> None:
        mine = dict(record, pid=os.getpid(), start_ticks=ticks_of(os.getpid()))
        os.write(tell, b"%d %d" % (mine["pid"], mine["start_ticks"]))
        os.close(tell)
        guarding = Guarding(home, held, mine, fires)
        while guarding.holds() and not guarding.ends():
            pass

    spawn_detached(body, {tell})
    os.close(tell)
    with os.fdopen(told, "rb") as file:
        pid, ticks = file.read().split()
    return dict(record, pid=int(pid), start_ticks=int(ticks))


def states_that_count(work: list[tuple[str, Observed | None]]) -> set[str]:
    """Return the states of these jobs. A job that did not finish is left out if another job was launched after its end.

    If a job ended because the box was stopped, it has no record of its end. Then it had ended when the box ran again.
    """
    begun = [seen for _, seen in work if seen is not None and seen.started]
    newest = max(begun, key=lambda seen: seen.started["started_at"], default=None)
    return {
        state
        for state, seen in work
        if state not in ("failed", "killed", "stopped") or not _is_answered(seen, newest)
    }


def _is_answered(seen: Observed | None, newest: Observed | None) -> bool:
    """Whether that job had ended when the newest job was started."""
    if seen is None or newest is None or seen is newest:
        return False
    if seen.end:
        return bool(seen.end["ended_at"] < newest.started["started_at"])
    return bool(restarted_since(seen.started)) and not restarted_since(newest.started)


class Guarding:
    """What the guard's process does. It keeps to its request, even if its record on the disk is lost."""

    def __init__(self, home: str, request: dict, record: dict, fires: float) -> None:
        self._home, self._request, self._record, self._fires = home, request, record, fires
        self._path = os.path.join(home, "guard.json")
        self._clock = GuardClock(home, request.get("rehearsed") is True)
        self._look_s = LEAPING_LOOK_S if self._clock.leaps else LOOK_S
        self._word = ["--rehearsed"] if self._clock.leaps else []
        self._quiet: tuple = ()
        self._work: set[str] = set()  # the states of all jobs except setups
        self._quiet_since = self._looked_at = self._clock.elapsed_s()
        self._look: object = None
        self._presence = Presence(home)
        self._next_look = NextLook(home, self._clock.elapsed_s())
        self._done_from = self._clock.elapsed_s() + float(
            (request.get("when_done") or {}).get("not_before_s") or 0
        )
        self._copies_wait_s = LOOK_S
        self._notice = request.get("notice") or {}
        self._listener = Listener(home, bool(self._notice.get("metadata")))
        self._is_heeded = False
        self._ready: dict = {}  # scripts that were started and wait for their request

    def holds(self) -> bool:
        """Wait until the deadline has passed, the work is done, or the box was idle too long. Then return True.

        Return False if this guard must end before that: another guard took over, or the system shuts down.
        Time is counted from the start of the guard. So setting the box's clock does not make the lease shorter or
        longer.
        """
        idle_s = self._request.get("idle_s")
        while True:
            seen = self._clock.begin_round()
            why = "deadline" if seen >= self._fires else None
            if why is None and idle_s is not None and self._quiet_s() >= idle_s:
                if self._is_judged_idle(idle_s):
                    why = "idle"
                else:  # no job of ours runs, but somebody works here
                    self._quiet_since = self._clock.elapsed_s()
            if why is None and self._is_done():
                why = "done"
            more = {"state": "fired", "why": why, "fired_at": time.time()} if why else {}
            if not self._notes(**more):
                return False
            if why:
                return True
            self._take_a_look()
            shortest_s = min(
                idle_s or 8.0, (self._request.get("when_done") or {}).get("after_s", 8.0)
            )
            most_s = min(2.0, shortest_s / 4)
            wait_s = min(most_s, max(0.05, self._fires - self._clock.elapsed_s()))
            source = self._clock.wait(self._listens, wait_s, seen, self._due(seen))
            if source and not self._heeds(str(source)):
                return False

    def _listens(self, seconds: float) -> str | None:
        self._next_look.hear(self._clock.elapsed_s())
        return self._listener.waits(seconds)

    def _due(self, seen: float) -> float | None:
        """Return when the guard must act next, if nothing happens before. None if it need not act any more."""
        idle_s, done = self._request.get("idle_s"), self._request.get("when_done")
        dues = [self._fires]
        if idle_s is not None:
            dues += [self._quiet_since + idle_s, self._looked_at]
        if done:
            waits = [done["after_s"], done.get("failed_s")]
            dues += [max(self._done_from, self._quiet_since + s) for s in waits if s is not None]
        return min((due for due in dues if due > seen), default=None)

    def _notes(self, **more: object) -> bool:
        """Record `more`, if possible. Return False if another guard has taken over, or the home directory is gone."""
        try:
            with Locked(self._home, "guard.lock"):
                if not self._is_ours():
                    return False
                if more:
                    self._record.update(more)
                    write_record_if_possible(self._path, self._record)
        except (Refusal, OSError):  # go on guarding even if the record cannot be read
            return os.path.isdir(self._home)
        return True

    def _is_ours(self) -> bool:
        """Whether the record is that of this guard. If the record is lost or damaged, write it again."""
        try:
            latest = read_record(self._path, GUARD)
        except Refusal:
            latest = None
        if latest is None:
            write_record_if_possible(self._path, self._record)
            return True
        return bool(latest["pid"] == os.getpid())

    def _quiet_s(self) -> float:
        """Return for how many seconds no job has run and nobody has asked for the state. 0 before the first job."""
        states, work, heartbeat = [], [], 0
        for job in all_jobs(self._home):
            state, is_work, seen_job = "running", True, None
            try:
                seen_job = observe(job)
                state = seen_job.state
                is_work = state == "absent" or not job.spec().get("setup")
            except (Refusal, OSError):  # an unknown state counts as running
                pass
            states.append(state)
            if is_work:
                work.append((state, seen_job))
        self._work = states_that_count(work)
        try:
            heartbeat = os.stat(os.path.join(self._home, "heartbeat")).st_mtime_ns
        except OSError:
            pass
        seen = (tuple(states), heartbeat)
        if seen != self._quiet or set(LIVE) & set(states) or set(states) <= {"absent"}:
            self._quiet, self._quiet_since = seen, self._clock.elapsed_s()
        return self._clock.elapsed_s() - self._quiet_since

    def _is_done(self) -> bool:
        """Whether all jobs have ended, nobody has been here since, and all artifacts were copied to the store.

        The guard copies them here. If somebody asks for the state or a job starts meanwhile, the work is not done.
        """
        done, end = self._request.get("when_done"), self._request.get("end") or {}
        if not done or "store" not in self._request:
            return False
        # Before the deadline, only a stop that keeps the disk is allowed.
        if end.get("on") != "keep":
            return False
        quiet_s = self._quiet_s()
        if quiet_s > 0 and self._presence.was_somebody_here(self._clock.elapsed_s()):
            self._quiet_since = self._clock.elapsed_s()
            return False
        after_s = done["after_s"]
        if self._work <= {
            "absent"
        }:  # no job except setups was started yet, so the work is still to come
            return False
        if self._work - {"finished", "absent"}:
            after_s = done.get("failed_s")
        if after_s is None or quiet_s < after_s or self._clock.elapsed_s() < self._done_from:
            return False
        heard = self._quiet
        try:
            kept = self._copy_to_store()
        except Exception as error:  # noqa: BLE001  the deadline must be enforced even if copying fails
            kept = {"ok": False, "message": type(error).__name__}
        whole = kept["ok"] and kept["kept"] == kept["files"]
        # All artifacts are in the store. But the stop may lose other files that nobody has discarded.
        if whole and self._loses():
            whole = False
        if not whole:
            self._done_from = self._clock.elapsed_s() + self._copies_wait_s
            self._copies_wait_s = min(2 * self._copies_wait_s, 3600.0)
        self._notes(kept=kept)
        self._quiet_s()
        return bool(
            whole
            and self._quiet == heard
            and not self._presence.was_somebody_here(self._clock.elapsed_s())
        )

    def _is_judged_idle(self, idle_s: float) -> bool:
        """Whether the script `activity`, which judges all of the user's processes, says idle. True without a script."""
        script = self._request["scripts"].get("activity")
        if script is None or not os.path.isfile(script):
            return True
        try:
            said = json.loads(
                output_of(
                    sys.executable, "-I", "-S", script, "judge", "--home", self._home, *self._word
                )
            )
            return bool(said["phase"] == "idle" and said["idle_s"] >= idle_s - 2 * self._look_s)
        except (ValueError, KeyError, TypeError):  # without a clear answer, the box is not idle
            return False

    def _take_a_look(self) -> None:
        """Once a minute, start the script `activity` to note what the box does. Wait for it only in a rehearsal."""
        import subprocess

        script = self._request["scripts"].get("activity")
        if script is None or self._clock.elapsed_s() < self._looked_at:
            return
        self._looked_at = self._clock.elapsed_s() + self._look_s
        null = subprocess.DEVNULL
        try:
            if self._look is not None and self._look.poll() is None:  # type: ignore[attr-defined]
                self._look.kill()  # type: ignore[attr-defined]
            if os.path.isfile(script):
                argv = [sys.executable, "-I", "-S", script, "look", "--home", self._home]
                argv += self._word
                self._look = subprocess.Popen(argv, stdin=null, stdout=null, stderr=null)
                if self._clock.leaps:  # the script must end before the rehearsal's time jumps
                    self._look.wait(LOOK_S)
        except (OSError, subprocess.TimeoutExpired):
            pass

    def _live_jobs(
        self, why: str, since: float = float("inf")
    ) -> tuple[list[tuple[Job, int, float]], dict]:
        """Return each living job with its stop signal and its time to end, and the problems. Record why each job ends.

        Include jobs that failed or were killed after `since`: they may have been ended by the same shutdown.
        """
        asked, problems = [], {}
        for job in all_jobs(self._home):
            signum, grace_s = 15, 10.0
            try:
                seen = observe(job)
                ended_at = (seen.end or {}).get("ended_at", 0.0)
                if seen.state not in LIVE and (seen.state == "finished" or ended_at < since):
                    continue
                spec = job.spec()
                signum, grace_s = spec["stop_signal"], spec["grace_s"]
                record_ending(job, why)
            except (Refusal, OSError) as error:
                problems[job.name] = str(error)
            asked.append((job, self._request.get("signal", signum), grace_s))
        return asked, problems

    def _heeds(self, source: str) -> bool:
        """Save what can be saved, because the platform takes the box. Return whether to go on guarding.

        Each job is asked to end by its own signal, and gets all the time that there is: killing a job while it saves
        would lose the files. Complete artifacts are copied to the store.
        """
        if self._is_heeded and source == "metadata":
            return True
        if not self._notes(state="fired", why="preempted", fired_at=time.time()):
            return False
        if not self._is_heeded:
            self._is_heeded = True
            self._saves(source)
        # If the system shuts down, this process ends, too: a container ends only after its last process.
        return source != "shutdown"

    def _saves(self, source: str) -> None:
        import signal

        within_s = float(self._notice.get("within_s") or NOTICE_S)
        since = time.time() - DELIVERY_S if source == "shutdown" else float("inf")
        asked, problems = self._live_jobs("preempted", since)
        if source == "shutdown":  # then the system has already sent SIGTERM to every process
            asked = [
                (job, signal.SIGCONT if signum == signal.SIGTERM else signum, grace_s)
                for job, signum, grace_s in asked
            ]
        polls = {"polls": self._listener.polls, "unclear": self._listener.unclear}
        names = [job.name for job, _, _ in asked]
        record_notice(self._home, source, jobs=names, within_s=within_s, **polls)
        never = [(job, signum, float("inf")) for job, signum, _ in asked]
        gives_up = elapsed_s() + within_s + LATE_S
        told: set = set()
        copying, copy_at = 0, elapsed_s()
        alive = signal_jobs(never, told, 0.0)
        if "store" in self._request:
            self._gets_ready_to_copy()
        while alive and elapsed_s() < gives_up:
            if "store" in self._request and elapsed_s() >= copy_at:
                if copying == 0:
                    copying = self._begins_to_copy()
                elif os.waitpid(copying, os.WNOHANG)[0]:
                    copying, copy_at = 0, elapsed_s() + COPY_AGAIN_S
            # Not more often, because finding the jobs' processes reads files of every process.
            time.sleep(0.25)
            alive = signal_jobs(never, told, 0.0)
        if copying:
            _end_group(copying)
        record_notice(self._home, source, ended_at=time.time(), left=sorted(p.pid for p in alive))
        if "store" in self._request:
            try:
                kept = self._copy_to_store(whole=not alive)
            except Exception as error:  # noqa: BLE001  the deadline must be enforced even if copying fails
                kept = {"ok": False, "message": type(error).__name__}
            record_notice(self._home, source, kept=kept)
        for process in self._ready.values():
            _end_at_once(process)
        self._ready.clear()
        self._notes(stopped=names, problems=problems)

    def _gets_ready_to_copy(self) -> None:
        """Start the script that copies, and load the module that seals, while the jobs still save.

        On a busy box both take a second or more, and after the jobs have saved, there may be no second to lose.
        """
        from box_scripts.caretaker.seal import manifest  # noqa: F401  loaded now, called later

        try:
            self._ready["keep", "keep"] = self._begins("keep", "keep")
        except OSError:  # then it is started later, when it is needed
            pass

    def _begins_to_copy(self) -> int:
        """Start a process, in its own group, that copies complete artifacts while jobs save. Return its number."""
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                self._ready.clear()  # these scripts wait for a request of our parent
                self._copy_to_store(whole=False)
            finally:
                os._exit(0)
        return child

    def ends(self) -> bool:
        """Ask the jobs to end, copy the artifacts to the store, and try to end the box's bill.

        Return False if the reason was only that the work was done, and a new job runs now. Then the guard goes on.
        """
        if self._record.get("why") == "done":
            self._quiet_s()
            if set(LIVE) & set(self._quiet[0]):
                return not self._notes(state="armed", why=None)
            self._ends_the_bill()
            return True
        most_s = self._request.get("grace_s", GUARD_GRACE_S)
        asked, problems = self._live_jobs("deadline")
        asked = [(job, signum, min(grace_s, most_s)) for job, signum, grace_s in asked]
        left = end_jobs(asked)
        if not self._notes(stopped=[job.name for job, _, _ in asked], left=left, problems=problems):
            return True
        if "store" in self._request:
            try:
                kept = self._copy_to_store()
            except Exception as error:  # noqa: BLE001  the bill must end even if copying fails
                kept = {"ok": False, "message": type(error).__name__}
            self._notes(kept=kept)
        self._ends_the_bill()
        return True

    def _copy_to_store(self, whole: bool = True) -> dict:
        """Copy the artifacts to the store, the newest first, and return the result.

        With `whole`, the box is sealed first. Otherwise jobs may run, and only complete artifacts are copied.
        """
        give_up = time.monotonic() + KILL_LIMIT_S
        while True:
            try:
                entries = self._sealed_entries() if whole else self._complete_entries()
                break
            except (Refusal, OSError) as error:
                if time.monotonic() > give_up:
                    return {"ok": False, "message": str(error)[:300]}
                time.sleep(0.2)
        names = ("name", "at", "size", "sha256")
        entries.sort(key=lambda entry: -entry.get("mtime_ns", 0))
        files = [{n: entry[n] for n in names} for entry in entries if entry["kind"] == "file"]
        if not files and not whole:
            return {"ok": True, "files": 0, "kept": 0, "at": time.time(), "message": ""}
        wanted = {"store": self._request["store"], "files": files}
        said = self._ask("keep", "keep", wanted, self._request.get("copy_s", COPY_S))
        kept, failed = said.get("kept") or [], said.get("failed") or []
        why = said.get("message") or (json.dumps(failed[0]) if failed else "")
        told = {"ok": said.get("ok") is True, "files": len(files), "kept": len(kept)}
        return dict(told, at=time.time(), message=str(why)[:300])

    def _sealed_entries(self) -> list[dict]:
        from box_scripts.caretaker.seal import manifest  # most guards never seal

        entries: list[dict] = manifest(self._home, dict(self._request["seal"]))["entries"]
        return entries

    def _complete_entries(self) -> list[dict]:
        from box_scripts.caretaker.complete import complete

        seal = self._request["seal"]
        asked = {name: seal[name] for name in ("work", "artifacts", "key") if name in seal}
        files: list[dict] = complete(self._home, dict(asked, quiet_s=QUIET_S, share=1.0))["files"]
        return files

    def _ends_the_bill(self) -> None:
        """Ask the platform to end the bill, until this box is gone or another guard has taken over."""
        end = self._request.get("end") or {"kind": "none"}
        if end["kind"] == "none" or "leave" not in self._request["scripts"]:
            self._notes(meter="nothing on this box ends its bill")
            return
        wanted = {name: end[name] for name in ("kind", "command") if name in end}
        wanted["may"] = "terminate" if end.get("on") == "waive" else "stop"
        begins = self._clock.elapsed_s()
        # The owner signed for a loss after the deadline, not for one before it because the box is idle.
        if end.get("on") == "waive":
            begins = max(begins, self._fires)
        begins += float(end.get("after_s") or 0.0)
        left_s = begins - self._clock.elapsed_s()
        if left_s > 0:
            self._notes(meter="runs on until %.0f, as was agreed" % (time.time() + left_s))
        elif self._left_to_others_until(end) > begins:
            self._notes(meter="left to whoever looks after the lease, while they come back")
        while not self._is_time(max(begins, self._left_to_others_until(end))):
            if not self._notes():
                return
        tries, wait_s = 0, 1.0
        while True:
            loses = "" if end.get("on") == "waive" else self._loses()
            if (
                loses
                and "waived_after_s" in end
                and self._clock.elapsed_s() >= self._waived_at(end)
            ):
                wanted["may"], loses = "terminate", ""
            tries += 1
            if loses:
                if not self._notes(meter={"asked": False, "why": loses, "tries": tries}):
                    return
                # Meanwhile, somebody may save or remove these files.
                time.sleep(min(LOOK_S, 2.0**tries))
                continue
            said = self._ask("leave", "end", wanted, 60.0)
            names = ("asked", "how", "status", "why", "message")
            meter = {n: said[n] for n in names if said.get(n) is not None}
            if not self._notes(meter=dict(meter, tries=tries, at=time.time())):
                return
            if said.get("asked"):
                self._listener.lets_go()  # so that the system can shut down without waiting for us
                wait_s = max(wait_s, 30.0)
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, 300.0)
            if not self._notes():
                return

    def _is_time(self, begins: float) -> bool:
        """Whether the time `begins` has come. If not, wait a little."""
        seen = self._clock.begin_round()
        if seen >= begins:
            return True
        self._take_a_look()
        self._clock.wait(time.sleep, min(2.0, max(0.05, begins - seen)), seen, begins)
        return False

    def _left_to_others_until(self, end: dict) -> float:
        """Return until when a watchdog may prove and end the lease itself, before the guard stops the box.

        A teardown is better than a stop, after which the disk still bills. The guard waits as long as the watchdog
        comes back when it said, but no longer than was agreed.
        """
        if self._record.get("why") != "deadline" or end.get("on") != "keep":
            return 0.0
        self._next_look.hear(self._clock.elapsed_s())
        return min(self._next_look.until, self._fires + float(end.get("left_to_others_s") or 0.0))

    def _waived_at(self, end: dict) -> float:
        return self._fires + float(end["waived_after_s"])

    def _loses(self) -> str:
        """Say which files a stop would lose that must be accounted for. Empty if none, or if a stop keeps all disks."""
        look = self._request.get("look")
        if not look:
            return ""
        from box_scripts.caretaker.seal import manifest

        try:
            seen = manifest(self._home, dict(look, hash="recalled", running="listed"))
        except (Refusal, OSError) as error:
            return "whether a stop would lose anything cannot be seen: %s" % str(error)[:300]
        lost = seen["lost_by_stop"]
        if not lost["count"]:
            return ""
        named = ", ".join(one["at"] for one in lost["largest"][:3])
        return "a stop would lose %d file%s, such as %s" % (
            lost["count"],
            "" if lost["count"] == 1 else "s",
            named,
        )

    def _ask(self, script: str, verb: str, request: dict, limit_s: float) -> dict:
        """Run one of our scripts on this box. Return its reply, or a reply that says why there is none."""
        import subprocess

        process = self._ready.pop((script, verb), None)
        try:
            if process is None or process.poll() is not None:
                process = self._begins(script, verb)
            out, _ = process.communicate(json.dumps(request).encode(), timeout=limit_s)
            said = json.loads(out.splitlines()[-1].decode())
        except subprocess.TimeoutExpired:
            _end_at_once(process)
            return {"ok": False, "message": "it did not end within %d s" % limit_s}
        except (OSError, ValueError, IndexError) as error:
            return {
                "ok": False,
                "message": "%s gave no answer: %s" % (script, type(error).__name__),
            }
        return said if isinstance(said, dict) else {"ok": False, "message": "no answer"}

    def _begins(self, script: str, verb: str) -> subprocess.Popen[bytes]:
        """Start one of our scripts, which waits for its request."""
        import subprocess

        path = self._request["scripts"].get(script, "")
        argv = [sys.executable, "-I", "-S", path, verb, "--request", "-"]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)


def _end_at_once(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, and close its pipes."""
    process.kill()
    process.communicate()


def _end_group(leader: int) -> None:
    """Kill the child and all processes of its group."""
    import signal

    for ends in (os.killpg, os.kill):  # the child may not have made its group yet
        try:
            ends(leader, signal.SIGKILL)
        except OSError:
            pass
    try:
        os.waitpid(leader, 0)
    except ChildProcessError:
        pass
