"""A job under the caretaker survives its tenant, runs at most once, and its end is never guessed."""

import ast
import base64
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from arranged import PATIENCE_S
from parts import required

from box_scripts.caretaker.failure_cause import seek_reason
from box_scripts.caretaker.processes import _processes_by_ps

CARETAKER = Path(__file__).parents[2] / "scripts" / "caretaker.py"
MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
Reply = dict[str, Any]


def until(is_so: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
    """`is_so` has become true."""
    give_up = time.monotonic() + limit_s  # a bound, not a synchronisation
    while not is_so():
        assert time.monotonic() < give_up, "it did not become so in time"
        time.sleep(0.01)  # noqa: TID251


class Box:
    """A lease's directory on this computer, and the caretaker in it."""

    def __init__(self, root: Path) -> None:
        self.home, self.work, self.root = root / "caretaker", root / "work", root
        self.work.mkdir(parents=True)

    def argv(self, verb: str) -> list[str]:
        return [
            sys.executable,
            "-I",
            "-S",
            str(CARETAKER),
            "--home",
            str(self.home),
            verb,
            "--request",
            "-",
        ]

    def ask(self, verb: str, **arguments: object) -> Reply:
        done = subprocess.run(
            self.argv(verb),
            input=json.dumps(arguments).encode(),
            stdout=subprocess.PIPE,
            check=False,
            timeout=120,
        )
        reply: Reply = json.loads(done.stdout)
        assert done.stdout.count(b"\n") == 1
        assert done.returncode == (0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1)
        return reply

    def start(self, *argv: str, job: str = "j1", **more: object) -> Reply:
        return self.ask("start", job=job, argv=argv, cwd=str(self.work), **more)

    def ended(self, job: str = "j1") -> Reply:
        until(
            lambda: self.ask("status", job=job)["state"] not in ("starting", "running", "lingering")
        )
        return self.ask("status", job=job)

    def state(self, job: str = "j1") -> str:
        return str(self.ask("status", job=job)["state"])

    def record(self, name: str, job: str = "j1") -> Path:
        return self.home / "jobs" / job / name

    def change(self, name: str, **fields: object) -> None:
        """One record of job j1 says something else."""
        record = json.loads(self.record(name).read_text(encoding="utf-8"))
        self.record(name).write_text(json.dumps(record | fields), encoding="utf-8")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "lease")
    yield box
    jobs = box.home / "jobs"
    for job in jobs.iterdir() if jobs.exists() else ():
        if (job / "lock").exists():
            box.ask("stop", job=job.name, grace_s=0)
    with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
        guard = json.loads((box.home / "guard.json").read_text(encoding="utf-8"))
        if (
            guard["state"] == "armed"
            and b"caretaker" in Path(f"/proc/{guard['pid']}/cmdline").read_bytes()
        ):
            os.kill(guard["pid"], signal.SIGKILL)


# --- survival -----------------------------------------------------------------------------------

WAITS_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done; echo went; touch done"


def test_a_job_outlives_the_shell_that_started_it(box: Box) -> None:
    request = json.dumps({"job": "j1", "argv": ["sh", "-c", WAITS_FOR_GO], "cwd": str(box.work)})
    shell = subprocess.Popen(
        ["sh", "-c", '"$@"; exec sleep 300', "sh", *box.argv("start")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdin.write(request.encode())
    shell.stdin.close()
    pid = json.loads(shell.stdout.readline())["pid"]

    for signum in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signum)
    shell.wait()
    shell.stdout.close()
    for _ in range(20):
        os.kill(pid, signal.SIGHUP)
    (box.work / "go").touch()

    assert box.ended()["state"] == "finished"
    assert (box.work / "done").exists()


def test_a_started_job_holds_no_stream_of_its_starter(box: Box) -> None:
    read_end, write_end = os.pipe()
    request = json.dumps({"job": "j1", "argv": ["sleep", "300"], "cwd": str(box.work)})

    subprocess.run(
        box.argv("start"),
        input=request.encode(),
        stdout=write_end,
        pass_fds=[write_end],
        check=True,
    )

    os.close(write_end)
    with os.fdopen(read_end, "rb") as replies:
        assert json.loads(replies.read())["ok"]  # end of file came while the job runs
    assert box.state() == "running"


# --- how a job ends -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "state", "exit_code", "signal_name", "code"),
    [
        ("exit 0", "finished", 0, None, "exit"),
        ("exit 3", "failed", 3, None, "exit"),
        ("kill -9 $$", "killed", None, "KILL", "signal"),
        ("kill -TERM $$", "killed", None, "TERM", "signal"),
    ],
)
def test_the_end_of_a_job_is_told_as_it_was(
    box: Box, script: str, state: str, exit_code: int | None, signal_name: str | None, code: str
) -> None:
    box.start("sh", "-c", script)

    end = box.ended()

    assert (end["state"], end["exit_code"], end["signal"]) == (state, exit_code, signal_name)
    assert end["reason"]["code"] == code
    assert end["started_at"] <= end["ended_at"] <= end["now"]


def test_a_command_that_does_not_exist_is_a_failed_job_and_no_hang(box: Box) -> None:
    first = box.start("no-such-command-anywhere")
    again = box.start("no-such-command-anywhere")

    assert first["code"] == again["code"] == "COMMAND_NOT_FOUND"
    assert (box.state(), box.ask("status", job="j1")["exit_code"]) == ("failed", 127)


def test_a_stopped_job_is_stopped_even_when_it_exits_cleanly(box: Box) -> None:
    box.start("sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done")
    until(lambda: box.ask("status", job="j1")["log_bytes"] > 0)

    end = box.ask("stop", job="j1")

    assert (end["state"], end["exit_code"], end["reason"]["code"]) == ("stopped", 0, "stopped")
    assert box.ask("stop", job="j1")["already"]


def test_a_job_deaf_to_the_asking_signal_is_killed_after_the_grace(box: Box) -> None:
    box.start(
        "sh",
        "-c",
        "trap '' TERM; (while :; do sleep 0.02; done) & echo ready; while :; do sleep 0.02; done",
    )
    until(lambda: box.ask("status", job="j1")["log_bytes"] > 0)

    end = box.ask("stop", job="j1", grace_s=0.2)

    assert (end["state"], end["signal"]) == ("stopped", "KILL")


def test_a_job_is_ended_when_its_time_is_up(box: Box) -> None:
    box.start("sleep", "300", max_runtime_s=0.2)

    end = box.ended()

    assert (end["state"], end["signal"], end["reason"]["code"]) == ("killed", "TERM", "walltime")


def test_a_job_that_writes_nothing_for_longer_than_its_owner_allows_is_ended(box: Box) -> None:
    writes = "for i in 1 2 3 4 5 6 7 8; do echo $i > f; sleep 0.1; done; exec sleep 300"
    began = time.monotonic()
    box.start("sh", "-c", writes, stalled_after_s=0.5)

    end = box.ended()

    assert (end["state"], end["signal"], end["reason"]["code"]) == ("killed", "TERM", "stalled")
    assert time.monotonic() - began > 1.2, "it was left alone while it wrote, if only to a file"


def test_what_a_finished_command_left_behind_may_be_silent(box: Box) -> None:
    box.start("sh", "-c", "setsid env -i sleep 3 & exit 0", stalled_after_s=0.3)

    end = box.ended()

    assert (end["state"], end["exit_code"]) == ("finished", 0)


def test_stopping_what_never_was_is_refused(box: Box) -> None:
    assert box.ask("stop", job="other")["code"] == "NO_SUCH_JOB"
    assert box.state("other") == "absent"


def test_a_command_that_daemonises_lingers_until_the_last_process_is_gone(box: Box) -> None:
    box.start("sh", "-c", "setsid env -i sleep 300 & exit 0")
    until(lambda: box.state() == "lingering")

    refusal = box.ask("manifest", work=str(box.work))
    lingering = box.ask("status", job="j1", sample=True)
    end = box.ask("stop", job="j1")

    assert refusal["code"] == "JOB_RUNNING"
    assert (lingering["exit_code"], lingering["sample"]["procs"]) == (0, 1)
    assert end["exit_code"] == 0
    assert box.ask("manifest", work=str(box.work))["ok"]


def test_a_dead_launcher_and_its_living_workers_are_named(box: Box) -> None:
    box.start("sh", "-c", "setsid env -i sleep 300 & exit 3")
    until(lambda: box.state() == "lingering")

    seen = box.ask("status", job="j1")

    assert seen["exit_code"] == 3
    assert re.fullmatch(r"exit status 3; left: \d+ \(sleep\)", str(seen["reason"]["evidence"]))


# --- a lost supervisor, a recycled pid, a reboot ------------------------------------------------


def lose_supervisor(box: Box) -> None:
    os.kill(
        json.loads(box.record("started.json").read_text(encoding="utf-8"))["supervisor_pid"],
        signal.SIGKILL,
    )
    until(lambda: not box.ask("status", job="j1")["supervised"])


def test_a_job_without_its_supervisor_is_running_and_can_be_stopped(box: Box) -> None:
    box.start("sh", "-c", "setsid sleep 300 & exec sleep 300")
    lose_supervisor(box)

    assert box.state() == "running"
    assert box.ask("manifest", work=str(box.work))["code"] == "JOB_RUNNING"
    assert box.start("sleep", "300")["already"]
    assert box.ask("stop", job="j1")["state"] == "stopped"


def test_a_job_that_ends_unseen_was_killed_and_never_finished(box: Box) -> None:
    box.start("sh", "-c", WAITS_FOR_GO)
    lose_supervisor(box)

    (box.work / "go").touch()

    end = box.ended()
    assert (end["state"], end["exit_code"], end["reason"]["code"]) == (
        "killed",
        None,
        "supervisor_lost",
    )


def test_a_recycled_pid_is_not_taken_for_the_job(box: Box) -> None:
    box.start("true")
    box.ended()
    box.record("exit.json").unlink()

    box.change("started.json", pid=os.getpid(), supervisor_pid=os.getppid())

    assert (box.state(), box.ask("status", job="j1")["reason"]["code"]) == (
        "killed",
        "supervisor_lost",
    )


@pytest.mark.parametrize(
    "forged", [{"boot_id": "another"}, {"init_ticks": 10**9}], ids=["machine", "container"]
)
def test_a_job_from_before_a_restart_was_killed_by_it(box: Box, forged: Reply) -> None:
    box.start("true")
    box.ended()
    box.record("exit.json").unlink()

    box.change("started.json", pid=os.getpid(), **forged)

    assert (box.state(), box.ask("status", job="j1")["reason"]["code"]) == ("killed", "reboot")


@pytest.mark.parametrize("name", ["started.json", "exit.json", "since.json", "spec.json"])
@pytest.mark.parametrize("content", ["", '{"pid": 1', "{}"])
def test_a_broken_record_is_refused_and_never_a_finished_job(
    box: Box, name: str, content: str
) -> None:
    box.start("true")
    box.ended()
    path = box.home / name if name == "since.json" else box.record(name)
    whole = path.read_text(encoding="utf-8")

    path.write_text(content, encoding="utf-8")
    sealed, seen = box.ask("manifest", work=str(box.work)), box.ask("status", job="j1")
    path.write_text(whole, encoding="utf-8")

    assert sealed["code"] == "RECORD_CORRUPT"
    assert seen.get("code") == "RECORD_CORRUPT" or name in ("since.json", "spec.json")


# --- at most once -------------------------------------------------------------------------------


def launches(box: Box) -> int:
    return (
        (box.work / "launches").read_text(encoding="utf-8").count("x")
        if (box.work / "launches").exists()
        else 0
    )


def test_eight_starts_at_once_launch_once(box: Box) -> None:
    request = json.dumps(
        {"job": "j1", "argv": ["sh", "-c", "echo x >> launches"], "cwd": str(box.work)}
    )
    starts = [
        subprocess.Popen(box.argv("start"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(8)
    ]
    for start in starts:
        assert start.stdin is not None
        start.stdin.write(request.encode())
        start.stdin.flush()
        start.stdin.close()
        start.stdin = None

    replies = [json.loads(start.communicate()[0]) for start in starts]

    assert sorted(reply["already"] for reply in replies) == [False] + [True] * 7
    assert len({reply["pid"] for reply in replies}) == 1
    assert (box.ended()["state"], launches(box)) == ("finished", 1)


@pytest.mark.parametrize("moment", range(15))
def test_a_start_killed_at_any_moment_never_launches_twice(box: Box, moment: int) -> None:
    request = json.dumps(
        {"job": "j1", "argv": ["sh", "-c", "echo x >> launches"], "cwd": str(box.work)}
    )
    starter = subprocess.Popen(
        box.argv("start"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert starter.stdin is not None
    starter.stdin.write(request.encode())
    starter.stdin.close()
    starter.stdin = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        starter.wait(random.Random(moment).uniform(0.0, 0.09))

    with contextlib.suppress(ProcessLookupError):
        os.killpg(starter.pid, signal.SIGKILL)
    starter.communicate()

    assert box.start("sh", "-c", "echo x >> launches")["ok"]
    assert (box.ended()["state"], launches(box)) == ("finished", 1)


# --- the log ------------------------------------------------------------------------------------


def test_a_log_is_read_by_offset_through_a_line_of_ten_megabytes(box: Box) -> None:
    box.start(sys.executable, "-c", "import sys; sys.stdout.write('a' * 10_000_000 + 'end\\n')")
    assert box.ended()["log_bytes"] == 10_000_004

    whole, offset = b"", 0
    while offset < 10_000_004:
        log = box.ask("status", job="j1", offset=offset, limit=4_000_000)["log"]
        whole, offset = whole + base64.b64decode(log["base64"]), log["next_offset"]

    assert whole == b"a" * 10_000_000 + b"end\n"
    small = subprocess.run(
        box.argv("status"), input=b'{"job":"j1","offset":0}', stdout=subprocess.PIPE, check=True
    )
    assert len(small.stdout) < 65536 * 4 / 3 + 2048
    assert base64.b64decode(box.ask("tail", job="j1", offset=-4, limit=9)["base64"]) == b"end\n"


def test_a_log_that_shrank_is_read_from_its_beginning(box: Box) -> None:
    box.start("sh", "-c", "echo first line")
    box.ended()
    box.record("log").write_text("new\n", encoding="utf-8")

    log = box.ask("tail", job="j1", offset=11, limit=100)

    assert (log["truncated"], log["offset"], base64.b64decode(log["base64"])) == (True, 0, b"new\n")


# --- the deadline -------------------------------------------------------------------------------


def test_at_the_deadline_every_job_is_stopped_and_nothing_deleted(box: Box) -> None:
    box.start("sh", "-c", "echo kept > result; exec sleep 300", job="a")
    box.start("sh", "-c", "trap '' TERM; while :; do sleep 0.02; done", job="b")
    until((box.work / "result").exists)

    armed = box.ask("guard", deadline=time.time() + 0.3, grace_s=0.2)  # noqa: TID251

    assert armed["state"] == "armed"
    ends = [box.ended(job) for job in ("a", "b")]
    assert [end["reason"]["code"] for end in ends] == ["deadline", "deadline"]
    assert box.ask("guard")["state"] == "fired"
    assert (box.work / "result").read_text(encoding="utf-8") == "kept\n"


def test_a_guard_is_relieved_by_the_next_and_its_death_is_told(box: Box) -> None:
    soon = time.time() + 3600  # noqa: TID251
    first, same = box.ask("guard", deadline=soon), box.ask("guard", deadline=soon)
    later = box.ask("guard", deadline=soon + 60)

    assert box.ask("guard")["deadline"] == soon + 60
    assert first["pid"] == same["pid"] != later["pid"]
    assert (first["already"], same["already"], later["already"]) == (False, True, False)
    until(lambda: not Path(f"/proc/{first['pid']}").exists())
    os.kill(later["pid"], signal.SIGKILL)
    until(lambda: bool(box.ask("guard")["state"] == "not_armed"))
    assert box.ask("guard", deadline=soon)["pid"] != first["pid"]


# --- secrets, requests, portability -------------------------------------------------------------


def test_the_job_gets_its_environment_and_the_disk_does_not(box: Box) -> None:
    script = 'test "$TOKEN" = s3cr3t-v4lue && test -z "${HOME+x}" && test $PYTHONUNBUFFERED$GPU_TENANT_JOB = 1j1'

    box.start("sh", "-c", script, env={"TOKEN": "s3cr3t-v4lue"}, env_unset=["HOME"])

    assert box.ended()["state"] == "finished"
    assert not [p for p in box.home.rglob("*") if p.is_file() and b"s3cr3t-v4lue" in p.read_bytes()]
    assert json.loads(box.record("spec.json").read_text(encoding="utf-8"))["env_names"] == ["TOKEN"]
    assert "s3cr3t" not in str(box.start("true", job="j2", env={"A=B": "s3cr3t"}))
    assert "s3cr3t" not in str(box.start("true", job="j2", env={"A": ["s3cr3t"]}))


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("start", {"job": "..", "argv": ["true"], "cwd": "/tmp"}),
        ("start", {"job": "j1", "argv": [], "cwd": "/tmp"}),
        ("start", {"job": "j1", "argv": ["true"], "cwd": "/tmp", "artifacts": ["../x"]}),
        ("start", {"job": "j1", "argv": ["true"], "cwd": "/tmp", "artefacts": ["x"]}),
        ("start", {"job": "j1", "argv": ["true"], "cwd": "/tmp", "stop_signal": "NONE"}),
        ("stop", {"job": "j1", "grace_s": float("nan")}),
        ("stop", {}),
        ("tail", {"job": "a/b"}),
        ("manifest", {"work": "/tmp/50%"}),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_done(
    box: Box, verb: str, arguments: Reply
) -> None:
    assert box.ask(verb, **arguments)["code"] == "BAD_REQUEST"
    assert not (box.home / "jobs").exists()


def test_a_person_starts_and_reads_a_job_by_hand(box: Box) -> None:
    def by_hand(*flags: str) -> Reply:
        argv = [sys.executable, str(CARETAKER), "--home", str(box.home), *flags]
        reply: Reply = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=False).stdout)
        return reply

    odd = box.work / "50% off"
    odd.mkdir()
    by_hand(
        "start",
        "--job",
        "j1",
        "--cwd",
        str(odd),
        "--artifact",
        "out",
        "--",
        "sh",
        "-c",
        "pwd; echo --x > out",
    )
    box.ended()

    assert base64.b64decode(by_hand("tail", "--job", "j1")["base64"]) == os.fsencode(odd) + b"\n"
    sealed = by_hand("manifest", "--work", str(odd))
    assert [entry["name"] for entry in sealed["entries"]] == ["log/j1.log", "work/out"]
    assert by_hand("start", "--job", "j1")["code"] == by_hand("dance")["code"] == "BAD_REQUEST"


def test_the_home_is_private_and_the_heartbeat_shows_the_tenant(box: Box) -> None:
    box.ask("status")
    assert not (box.home / "heartbeat").exists()

    box.ask("status", tenant=True)

    assert (box.home / "heartbeat").exists()
    assert box.home.stat().st_mode & 0o777 == 0o700


def test_every_job_is_listed(box: Box) -> None:
    box.start("true", job="a")
    box.start("sleep", "300", job="b")
    box.ended("a")

    assert [(job["job"], job["state"]) for job in box.ask("status")["jobs"]] == [
        ("a", "finished"),
        ("b", "running"),
    ]


def test_a_sample_says_what_the_box_is_doing(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = box.root / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho '0, NVIDIA H200, 98, 1024, 143771, 41'\necho '1, B, [N/A], 0, 9, 30'\n",
        encoding="utf-8",
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(box.root), prepend=os.pathsep)
    box.start("sh", "-c", "sleep 300; true")

    sample = box.ask("status", job="j1", sample=True)["sample"]

    assert [gpu["util_pct"] for gpu in sample["gpus"]] == [98, None]
    assert (sample["gpus"][0]["name"], sample["gpus"][0]["mem_total_mib"]) == (
        "NVIDIA H200",
        143771,
    )
    assert sample["disk_free_bytes"] > 0
    assert 0 < sample["mem_used_bytes"] < sample["mem_limit_bytes"]
    assert sample["procs"] in (1, 2)  # the shell, and its sleep once that is there


def test_it_is_python_3_7_and_imports_nothing_but_the_library() -> None:
    built = ast.parse(CARETAKER.read_text(encoding="utf-8"), feature_version=(3, 7))
    texts = [node.value for node in ast.walk(built) if isinstance(node, ast.Constant)]
    parts = [text for text in texts if isinstance(text, str) and "\nfrom __future__" in text]
    nodes = list(ast.walk(built))
    nodes += [node for text in parts for node in ast.walk(ast.parse(text, feature_version=(3, 7)))]

    imports = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    imports |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert len(parts) > 30
    assert {name.split(".")[0] for name in imports} <= {*sys.stdlib_module_names, "box_scripts"}


def test_without_proc_a_process_is_known_by_ps() -> None:
    required("ps")
    seen, me = _processes_by_ps(), os.getpid()

    assert (seen[me].parent, seen[me].session) == (os.getppid(), os.getpgrp())
    assert abs(seen[me].ticks - time.time()) < 86400  # noqa: TID251


# --- the reason ---------------------------------------------------------------------------------


QUIET: Reply = {"xid": None, "killed": {}}
MEMCG = "Memory cgroup out of memory: Killed process 7 (python)"


@pytest.mark.parametrize(
    ("facts", "restart", "kernel", "code", "quoted"),
    [
        ({}, "boot id was a and is b", {}, "reboot", "boot id was a"),
        ({"oom_kills": {"m": 3}, "limit_hits": {"l": 1}}, None, {}, "cgroup_oom", "from 2 to 3"),
        ({"oom_kills": {"m": 3}}, None, {"killed": {7: MEMCG}}, "cgroup_oom", "from 2 to 3"),
        ({"oom_kills": {"m": 3}}, None, {}, "host_oom", "not for its own limit"),
        ({"oom_kills": {"m": 2}}, None, {"xid": "NVRM: Xid 79"}, "xid", "Xid 79"),
        ({"disk_free_bytes": 4096, "inodes_free": 0}, None, {}, "disk_full", "4096 bytes"),
        ({"disk_free_bytes": 1 << 30, "inodes_free": 0}, None, {}, "inodes_full", "inodes"),
        ({"shm_free_bytes": 0, "shm_bytes": 64 << 20}, None, {}, "shm_full", "0 of 67108864"),
        ({"oom_kills": {"/proc/vmstat": 9}}, None, {}, "signal", "SIGKILL"),
        ({"full_elsewhere": ["disk_full", "/tmp"]}, None, {}, "signal", "SIGKILL"),
        ({"disk_free_bytes": None, "inodes_free": None}, None, {}, "signal", "SIGKILL"),
    ],
)
def test_the_strongest_evidence_is_the_reason(
    facts: Reply,
    restart: str | None,
    kernel: Reply,
    code: str,
    quoted: str,
) -> None:
    spec = {"oom_kills": {"m": 2, "/proc/vmstat": 5}, "limit_hits": {"l": 0}}

    reason = seek_reason(spec, facts, restart, QUIET | kernel, ("signal", "ended by SIGKILL"))

    assert reason["code"] == code
    assert quoted in reason["evidence"]


@pytest.mark.parametrize(
    ("facts", "kernel", "sign"),
    [
        ({"full_elsewhere": ["disk_full", "/tmp"]}, {}, "disk_full"),
        ({"limit_hits": {"/x/pids.events": 4}}, {}, "pids_full"),
        ({"log_free_bytes": 0}, {}, "log_cut"),
        ({}, {"killed": {7: MEMCG}, "main_pid": 8}, "another_killed"),
        ({}, {}, "uncounted"),
    ],
)
def test_what_explains_an_end_only_with_the_log_is_told_beside_the_reason(
    facts: Reply, kernel: Reply, sign: str
) -> None:
    spec: Reply = {"oom_kills": {}, "limit_hits": {}}

    reason = seek_reason(spec, facts, None, QUIET | kernel, ("exit", "exit status 1"))

    assert reason["code"] == "exit"
    assert sign in reason["signs"]


def test_the_machine_s_own_count_speaks_only_where_no_cgroup_counts() -> None:
    spec, facts = {"oom_kills": {"/proc/vmstat": 5}}, {"oom_kills": {"/proc/vmstat": 6}}

    reason = seek_reason(spec, facts, None, QUIET, ("signal", "ended by SIGKILL"))

    assert reason["code"] == "host_oom"


if os.access(MEMORY_CGROUPS / "cgroup.procs", os.W_OK):

    def test_a_job_killed_for_memory_says_so(box: Box) -> None:
        group = MEMORY_CGROUPS / f"gpu-tenant-test-{os.getpid()}"
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20), encoding="utf-8")
        request = {
            "job": "j1",
            "argv": [sys.executable, "-c", "x = b'x' * (256 << 20)"],
            "cwd": str(box.work),
        }
        enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'

        subprocess.run(
            ["sh", "-c", enter, "sh", *box.argv("start")],
            input=json.dumps(request).encode(),
            check=True,
        )
        end = box.ended()

        until(lambda: not (group / "cgroup.procs").read_text(encoding="utf-8"))
        group.rmdir()
        assert (end["state"], end["reason"]["code"]) == ("killed", "cgroup_oom")
