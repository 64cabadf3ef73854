"""Queued jobs run in order, each once, whoever is killed meanwhile; and what may still run is never sealed over."""

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from arranged import NOON, PATIENCE_S, lease

from gpu_tenant.box.caretaker import Caretaker
from gpu_tenant.box.job_queue import QueuedJob, Runner, TurnStatus
from gpu_tenant.domain.errors import CaretakerFailed
from gpu_tenant.domain.model import Job, JobId
from gpu_tenant.transports.local import LocalTransport

SCRIPTS = Path(__file__).parents[2] / "scripts"
Reply = dict[str, Any]
LIVE = {"queued", "needs_env", "running"}
SAYS = 'echo "+$GPU_TENANT_JOB" >> ran; '


def on_the_box() -> Any:
    """The script as a module: what it reads it tells here without a process of its own."""
    spec = importlib.util.spec_from_file_location("runner_on_the_box", SCRIPTS / "runner.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.caretaker = module.loaded(module.CARETAKER)
    return module


RUNNER = on_the_box()


def until(is_so: Callable[[], object], limit_s: float = PATIENCE_S) -> None:
    """`is_so` has become true."""
    give_up = time.monotonic() + limit_s  # a bound, not a synchronisation
    while not is_so():
        assert time.monotonic() < give_up, "it did not become so in time"
        time.sleep(0.01)  # noqa: TID251


class Box:
    """A lease's directory on this computer, with the caretaker and the runner in it."""

    def __init__(self, root: Path) -> None:
        self.home, self.work = root / "caretaker", root / "work"
        self.work.mkdir(parents=True)
        self.stays: list[subprocess.Popen[bytes]] = []

    def argv(self, verb: str, script: str = "runner") -> list[str]:
        place = str(SCRIPTS / f"{script}.py")
        return [sys.executable, "-I", "-S", place, "--home", str(self.home), verb, "--request", "-"]

    def ask(self, verb: str, script: str = "runner", **arguments: object) -> Reply:
        done = subprocess.run(
            self.argv(verb, script),
            input=json.dumps(arguments).encode(),
            stdout=subprocess.PIPE,
            check=False,
            timeout=120,
        )
        reply: Reply = json.loads(done.stdout)
        return reply | {"status": done.returncode}

    def job(self, name: str, command: str, **more: object) -> Reply:
        return {"job": name, "argv": ["sh", "-c", command], "cwd": str(self.work), **more}

    def queue(self, *jobs: Reply, **more: object) -> Reply:
        return self.ask("queue", jobs=jobs, **more)

    def roll(self) -> dict[str, Reply]:
        return {job["job"]: job for job in RUNNER.roll(str(self.home), {})["jobs"]}

    def states(self) -> dict[str, str]:
        return {name: job["state"] for name, job in self.roll().items()}

    def settled(self) -> dict[str, Reply]:
        """How all stand, after nothing may run any more."""
        until(lambda: not LIVE & set(self.states().values()))
        return self.roll()

    def runner_pid(self) -> int:
        return int(json.loads((self.home / "queue" / "runner.json").read_bytes())["pid"])

    def kill_runner(self) -> None:
        pid = self.runner_pid()
        with contextlib.suppress(ProcessLookupError):
            if b"runner.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists())

    def said(self, name: str = "ran") -> list[str]:
        path = self.work / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def staying(self, **request: object) -> "subprocess.Popen[bytes]":
        """A runner in the foreground of its own process, as an allocation's batch script becomes one."""
        staying = subprocess.Popen(self.argv("stay"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert staying.stdin is not None
        staying.stdin.write(json.dumps(request).encode())
        staying.stdin.close()
        staying.stdin = None
        self.stays.append(staying)
        return staying


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "lease")
    yield box
    for staying in box.stays:
        staying.kill()
        staying.wait()
        assert staying.stdout is not None
        staying.stdout.close()
    with contextlib.suppress(FileNotFoundError):
        box.kill_runner()
    for job in box.ask("status", "caretaker")["jobs"]:
        if job["state"] in ("starting", "running", "lingering"):
            box.ask("stop", "caretaker", job=job["job"], grace_s=0)


# --- order and slots ----------------------------------------------------------------------------


def test_jobs_begin_in_order_as_many_at_once_as_there_are_slots_each_with_its_own_gpus(
    box: Box,
) -> None:
    command = "echo + $GPU_TENANT_JOB $CUDA_VISIBLE_DEVICES >> ran; sleep 0.1; echo - $GPU_TENANT_JOB >> ran"
    names = [f"c{number}" for number in range(8)]

    asked = box.queue(
        *(box.job(name, command) for name in names), slots=2, slot_gpus=["0,1", "2,3"]
    )
    rolled = box.settled()

    assert asked["queued"] == names
    assert asked["runner"]["state"] == "alive"
    assert list(rolled) == names
    assert {job["state"] for job in rolled.values()} == {"finished"}
    began = [run["started_at"] for run in rolled.values()]
    assert began == sorted(began)
    at_work: dict[str, str] = {}
    for sign, name, *gpus in map(str.split, box.said()):
        if sign == "+":
            assert gpus[0] not in at_work.values()
            at_work[name] = gpus[0]
            assert set(at_work.values()) <= {"0,1", "2,3"}
        else:
            del at_work[name]
    assert {rolled[name]["slot"] for name in names} == {0, 1}
    assert box.ask("roll")["runner"] == {
        "state": "left",
        "left": "empty",
        "kind": "detached",
        "started_at": asked["runner"]["started_at"],
    }


def test_what_is_queued_twice_is_there_once_and_another_command_by_its_name_is_refused(
    box: Box,
) -> None:
    first = box.job("c1", SAYS)
    box.queue(first)
    again = box.queue(first, box.job("c2", SAYS))
    box.settled()

    other = box.queue(box.job("c1", "false"), box.job("c3", SAYS))
    taken = box.queue(box.job("c4", SAYS), box.job("c1.2", SAYS))
    after = box.queue(first)

    assert (again["already"], again["queued"]) == (["c1"], ["c2"])
    assert (other["code"], taken["code"]) == ("OTHER_COMMAND", "NAME_TAKEN")
    assert after["already"] == ["c1"]
    assert box.states() == {"c1": "finished", "c2": "finished"}
    assert sorted(box.said()) == ["+c1", "+c2"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobs": [{"job": "a/b", "argv": ["true"], "cwd": "w"}]},
        {"jobs": [{"job": "a" * 61, "argv": ["true"], "cwd": "w"}]},
        {"jobs": [{"job": "a", "argv": [], "cwd": "w"}]},
        {"jobs": [{"job": "a", "argv": ["true"], "cwd": "w", "attempts": 0}]},
        {"jobs": [{"job": "a", "argv": ["true"], "cwd": "w", "artifacts": ["!x"]}]},
        {"jobs": [], "slots": 2, "slot_gpus": ["0"]},
        {"jobs": [], "runner": "somewhere"},
        {"tasks": []},
    ],
)
def test_a_wrong_request_queues_nothing(box: Box, wrong: Reply) -> None:
    reply = box.ask("queue", **wrong)

    assert (reply["code"], reply["status"]) == ("BAD_REQUEST", 2)
    assert box.states() == {}


# --- withdrawal ---------------------------------------------------------------------------------


def test_a_job_either_runs_or_is_withdrawn_never_both_and_never_neither(box: Box) -> None:
    names, chance = [f"c{number:03d}" for number in range(200)], random.Random(7)
    box.queue(*(box.job(name, SAYS) for name in names), slots=3)

    def withdraw(name: str) -> tuple[list[str], list[str]]:
        time.sleep(chance.random() * 0.08)  # noqa: TID251  it meets the runner at another moment each time
        said = RUNNER.withdraw(str(box.home), {"jobs": [name]})
        return said["withdrawn"], said["too_late"]

    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(withdraw, names))
    rolled = box.settled()

    withdrawn = {name for told, _ in answers for name in told}
    late = {name for _, told in answers for name in told}
    assert not withdrawn & late
    assert withdrawn | late == set(names)
    assert len(withdrawn) > 20 < len(late), "there was no race"
    assert Counter(box.said()) == Counter(f"+{name}" for name in late)
    assert {name for name, job in rolled.items() if job["state"] == "withdrawn"} == withdrawn


def test_a_withdrawn_job_never_begins_even_if_it_is_queued_later(box: Box) -> None:
    before = box.ask("withdraw", jobs=["c1"])
    asked = box.queue(box.job("c1", SAYS), box.job("c2", SAYS))

    assert before["withdrawn"] == ["c1"]
    assert (asked["already"], asked["queued"]) == (["c1"], ["c2"])
    assert {name: job["state"] for name, job in box.settled().items()} == {
        "c1": "withdrawn",
        "c2": "finished",
    }
    assert box.ask("withdraw", jobs=["c1", "c2"]) | {"status": 0} == {
        "withdrawn": ["c1"],
        "too_late": ["c2"],
        "ok": True,
        "status": 0,
    }


def test_a_job_whose_runner_died_before_its_start_never_begins_once_it_is_withdrawn(
    box: Box,
) -> None:
    box.queue(box.job("c1", SAYS), runner="elsewhere")
    with (box.home / "queue" / "journal").open("a") as journal:
        journal.write('{"began":"c1","job":"c1","slot":0,"at":1.0,"by":"x","stay":true}\n')

    assert box.ask("withdraw", jobs=["c1"])["withdrawn"] == ["c1"]
    at_once = box.roll()["c1"]
    box.queue(box.job("c2", SAYS))
    box.settled()

    assert at_once == {"job": "c1", "state": "withdrawn", "runs": 0, "attempts": 0}
    assert (box.roll()["c1"], box.said()) == (at_once, ["+c2"])


# --- deaths -------------------------------------------------------------------------------------


def test_a_runner_killed_at_any_moment_is_followed_by_one_that_runs_nothing_twice(box: Box) -> None:
    names, chance = [f"c{number:02d}" for number in range(20)], random.Random(11)
    jobs, deaths = [box.job(name, SAYS) for name in names], 0
    while not box.home.exists() or len(box.said()) < len(names):
        assert box.queue(*jobs, slots=2)["ok"]
        enough = min(len(names), len(box.said()) + chance.randrange(5))
        until(lambda enough=enough: len(box.said()) >= enough)
        time.sleep(chance.random() * 0.05)  # noqa: TID251  it dies at another moment each time
        box.kill_runner()
        deaths += 1
        if chance.random() < 0.5:
            box.ask("roll")
        if chance.random() < 0.3:  # as a disk leaves a line that a death cut off
            with (box.home / "queue" / "journal").open("ab") as journal:
                journal.write(b'{"began":"c')
    box.queue()
    rolled = box.settled()

    assert deaths > 1, "how many there are is up to the machine"
    assert Counter(box.said()) == Counter(f"+{name}" for name in names)
    assert {job["state"] for job in rolled.values()} == {"finished"}
    assert {(job["runs"], job["attempts"]) for job in rolled.values()} == {(1, 1)}


def test_a_job_that_outlived_its_runner_keeps_its_slot(box: Box) -> None:
    long = box.job("long", SAYS + "until [ -e go ]; do sleep 0.05; done; echo end >> ran")
    box.queue(long, box.job("next", SAYS))
    until(lambda: box.said() == ["+long"])

    box.kill_runner()
    assert box.ask("roll")["runner"]["state"] == "gone"
    assert box.states() == {"long": "running", "next": "queued"}
    again = box.queue(long)
    beside = box.queue(box.job("beside", SAYS), slots=2)
    until(lambda: "+beside" in box.said())
    (box.work / "go").touch()

    assert again["runner"]["state"] == beside["runner"]["state"] == "alive"
    assert box.settled()["long"]["runs"] == 1
    assert box.said().index("+next") < box.said().index("+beside"), "order outlives the runner"
    assert Counter(box.said()) == Counter(["+long", "+next", "+beside", "end"])


def test_of_many_that_queue_at_once_one_brings_the_runner(box: Box) -> None:
    jobs = [box.job(f"c{number}", SAYS + "sleep 0.3") for number in range(6)]

    with ThreadPoolExecutor(6) as threads:
        asked = list(threads.map(box.queue, jobs))

    assert len({said["runner"]["started_at"] for said in asked}) == 1
    assert box.ask("stay")["code"] == "RUNNER_ALIVE"
    box.settled()
    assert Counter(box.said()) == Counter(f"+c{number}" for number in range(6))


# --- secrets ------------------------------------------------------------------------------------


def test_values_are_on_no_disk_and_wait_for_their_owner_after_the_runners_death(box: Box) -> None:
    secret = "s3cret-of-" + os.urandom(4).hex()
    first = box.job("first", "until [ -e go ]; do sleep 0.05; done")
    keyed = box.job("keyed", 'echo "$KEY" | sha256sum > got', env={"KEY": secret})
    plain = box.job("plain", SAYS)
    box.queue(first)
    asked = box.queue(keyed, plain)
    assert asked["needs_env"] == []
    assert box.states()["keyed"] == "queued"

    box.kill_runner()
    assert box.states()["keyed"] == "needs_env"
    (box.work / "go").touch()
    assert box.queue()["ok"]
    until(lambda: box.states()["plain"] == "finished")
    waits = box.states()
    sealed = box.ask("manifest", "caretaker", work=str(box.work))
    without = box.queue(keyed | {"env": {}})
    box.queue(keyed)
    rolled = box.settled()

    assert waits == {"first": "finished", "keyed": "needs_env", "plain": "finished"}
    assert (sealed["code"], sealed["jobs"]) == ("JOB_RUNNING", ["keyed"])
    assert without["needs_env"] == ["keyed"]
    assert rolled["keyed"]["state"] == "finished"
    shell = subprocess.check_output(["sh", "-c", 'echo "$0" | sha256sum', secret])
    assert (box.work / "got").read_bytes() == shell
    files = [path for path in box.home.parent.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [path for path in files if secret.encode() in path.read_bytes()]


# --- retries ------------------------------------------------------------------------------------


def test_the_identical_command_is_run_until_it_finishes_or_has_failed_often_enough(
    box: Box,
) -> None:
    count = 'echo x >> $0.tries; echo "try $(wc -l < $0.tries)"; '
    asked = [
        {
            **box.job("twice", ""),
            "argv": ["sh", "-c", count + "[ $(wc -l < $0.tries) = 3 ]", "twice"],
        },
        {**box.job("never", ""), "argv": ["sh", "-c", count + "exit 7", "never"]},
        {**box.job("killed", ""), "argv": ["sh", "-c", count + "kill -9 $$", "killed"]},
        {**box.job("once", ""), "argv": ["sh", "-c", count + "exit 7", "once"], "attempts": 1},
        {**box.job("none", ""), "argv": ["/no/such/command"], "attempts": 2},
    ]
    box.queue(*({"attempts": 3} | job for job in asked))
    rolled = box.settled()

    told = {n: (j["state"], j["attempts"], j["run"], j.get("exit_code")) for n, j in rolled.items()}
    assert told == {
        "twice": ("finished", 3, "twice.3", 0),
        "never": ("failed", 3, "never.3", 7),
        "killed": ("killed", 3, "killed.3", None),
        "once": ("failed", 1, "once", 7),
        "none": ("failed", 2, "none.2", 127),
    }
    logs = [
        (box.home / "jobs" / run / "log").read_text() for run in ("twice", "twice.2", "twice.3")
    ]
    assert logs == ["try 1\n", "try 2\n", "try 3\n"]


def test_a_command_that_cannot_be_started_counts_as_failed_and_holds_nobody_up(box: Box) -> None:
    (box.work / "file").touch()

    box.queue(box.job("nowhere", SAYS) | {"cwd": str(box.work / "file" / "x")}, box.job("c2", SAYS))
    rolled = box.settled()

    assert (rolled["nowhere"]["state"], rolled["nowhere"]["reason"]) == ("failed", "launch_failed")
    assert rolled["c2"]["state"] == "finished"


def test_what_was_stopped_or_had_its_time_is_not_run_again(box: Box) -> None:
    box.queue(
        box.job("stopped", SAYS + "exec sleep 60", attempts=3),
        box.job("late", SAYS + "exec sleep 60", attempts=3, max_runtime_s=0.2),
        slots=2,
    )
    until(lambda: set(box.said()) == {"+stopped", "+late"})

    box.ask("stop", "caretaker", job="stopped", grace_s=5)
    rolled = box.settled()

    assert {name: (job["state"], job["reason"], job["runs"]) for name, job in rolled.items()} == {
        "stopped": ("stopped", "stopped", 1),
        "late": ("killed", "walltime", 1),
    }


def test_a_job_withdrawn_between_two_attempts_stands_as_it_failed(box: Box) -> None:
    # The first attempt ends when its runner is dead, so that none can begin the second.
    goes = Path(box.home) / "goes"
    fails = f"{SAYS} until [ -e '{goes}' ]; do sleep 0.05; done; exit 3"
    box.queue(box.job("c1", fails, attempts=2, env={"A": "b"}), runner="elsewhere")
    staying = box.staying(linger_s=60)
    until(lambda: RUNNER.roll(str(box.home), {})["runner"]["state"] == "alive")
    assert box.queue(box.job("c1", fails, env={"A": "b"}), runner="elsewhere")["needs_env"] == []
    until(lambda: box.said())
    staying.kill()
    staying.communicate()
    goes.touch()
    until(lambda: box.states()["c1"] == "needs_env")

    spared = box.ask("withdraw", jobs=["c1"], begun="spare")
    assert (spared["withdrawn"], spared["too_late"]) == ([], ["c1"])
    assert box.states()["c1"] == "needs_env", "it has an attempt left, and keeps it"
    assert box.ask("withdraw", jobs=["c1"])["withdrawn"] == ["c1"]
    assert box.roll()["c1"]["state"] in ("failed", "killed")
    assert box.ask("manifest", "caretaker", work=str(box.work))["ok"]


# --- the seal -----------------------------------------------------------------------------------


def test_no_seal_is_taken_while_anything_may_still_run(box: Box) -> None:
    box.queue(box.job("c1", SAYS), box.job("c2", SAYS), runner="elsewhere")

    refused = box.ask("manifest", "caretaker", work=str(box.work))
    box.ask("withdraw", jobs=["c2"])
    still = box.ask("manifest", "caretaker", work=str(box.work))
    box.queue()
    box.settled()
    sealed = box.ask("manifest", "caretaker", work=str(box.work), artifacts=["ran"])
    (box.home / "queue" / "journal").write_bytes(b"{}\n{]\n")
    corrupt = box.ask("manifest", "caretaker", work=str(box.work))

    assert (refused["code"], refused["jobs"]) == ("JOB_RUNNING", ["c1", "c2"])
    assert (still["code"], still["jobs"]) == ("JOB_RUNNING", ["c1"])
    assert {entry["name"] for entry in sealed["entries"]} == {"work/ran", "log/c1.log"}
    assert corrupt["code"] == box.ask("roll")["code"] == "RECORD_CORRUPT"


@pytest.mark.parametrize(
    "line",
    [
        {"began": None, "job": "c1", "slot": 0, "at": 1.0, "by": "me", "stay": False},
        {"began": "c1", "job": "c1", "slot": "first", "at": 1.0, "by": "me", "stay": False},
        {"ended": "c1", "job": "c1", "final": "no", "counts": True, "state": "failed"},
        {"queued": "c2", "spec": [], "attempts": 1, "env_names": []},
        {"queued": "c2", "spec": {}, "attempts": 1, "env_names": None},
        {"slots": "two", "slot_gpus": []},
        {"held": "c1", "by": "me"},
        {"withdrawn": 7},
    ],
    ids=json.dumps,
)
def test_a_journal_that_something_else_wrote_is_told_and_left_as_it_is(
    box: Box, line: dict[str, object]
) -> None:
    box.queue(box.job("c1", SAYS), runner="elsewhere")
    journal = box.home / "queue" / "journal"
    with journal.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    content = journal.read_bytes()

    told = box.ask("roll")

    assert told["code"] == "RECORD_CORRUPT"
    assert journal.read_bytes() == content


def test_after_the_deadline_nothing_begins_and_what_is_there_can_be_sealed(box: Box) -> None:
    box.queue(box.job("c1", SAYS + "exec sleep 60", attempts=3), box.job("c2", SAYS))
    until(lambda: box.said())

    box.ask("guard", "caretaker", deadline=1, grace_s=1)
    until(lambda: RUNNER.roll(str(box.home), {})["runner"].get("left") == "deadline")

    assert box.roll()["c1"]["reason"] == "deadline"
    assert box.states() == {"c1": "killed", "c2": "queued"}
    assert box.queue(box.job("c3", SAYS))["code"] == "DEADLINE_PASSED"
    assert box.ask("manifest", "caretaker", work=str(box.work))["ok"]
    assert box.said() == ["+c1"]


# --- an allocation ------------------------------------------------------------------------------

SAVES = (
    "trap 'echo saved >> ran; exit 0' USR1; "
    + SAYS
    + "[ -e go ] || { sleep 30 & wait; }; echo end >> ran"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_an_allocation_that_ends_lets_its_jobs_save_and_the_next_one_goes_on(
    box: Box, number: signal.Signals
) -> None:
    box.queue(
        box.job("done", "echo done >> ran"),
        box.job("c1", SAVES, stop_signal="USR1"),
        box.job("c2", SAYS),
        runner="elsewhere",
    )
    first = box.staying(grace_s=10)
    until(lambda: "+c1" in box.said())

    first.send_signal(number)
    told, _ = first.communicate(timeout=PATIENCE_S)
    between = box.roll()
    sealed = box.ask("manifest", "caretaker", work=str(box.work))
    (box.work / "go").touch()
    second = box.staying()
    more, _ = second.communicate(timeout=PATIENCE_S)

    assert json.loads(told) == {
        "left": number.name,
        "waiting": ["c1", "c2"],
        "interrupted": ["c1"],
        "ok": True,
    }
    assert (first.returncode, second.returncode) == (75, 0)
    assert json.loads(more)["waiting"] == []
    assert (between["c1"]["state"], between["c1"]["reason"]) == ("queued", "interrupted")
    assert sealed["code"] == "JOB_RUNNING"
    assert box.said() == ["done", "+c1", "saved", "+c1.2", "end", "+c2"]
    assert {n: (j["state"], j["runs"], j["attempts"]) for n, j in box.roll().items()} == {
        "done": ("finished", 1, 1),
        "c1": ("finished", 2, 1),
        "c2": ("finished", 1, 1),
    }


def test_an_allocation_that_is_taken_without_a_word_is_gone_on_with(box: Box) -> None:
    box.queue(box.job("c1", "echo $$ >> ran; [ -e go ] || exec sleep 60"), runner="elsewhere")
    first = box.staying()
    until(lambda: box.said())

    started = json.loads((box.home / "jobs" / "c1" / "started.json").read_bytes())
    for pid in (first.pid, started["supervisor_pid"], started["pid"]):
        os.kill(pid, signal.SIGKILL)
    first.communicate()
    (box.work / "go").touch()
    second = box.staying()
    second.communicate(timeout=PATIENCE_S)

    assert second.returncode == 0
    job = box.roll()["c1"]
    assert (job["state"], job["runs"], job["attempts"]) == ("finished", 2, 1)
    assert len(box.said()) == 2


# --- the tenant's side --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "shown"), [("cgroup_oom", "cgroup_oom"), ("[red]pay me", "unknown")]
)
def test_why_a_run_ended_is_a_code_or_unknown(said: str, shown: str) -> None:
    assert TurnStatus(job="c1", state="failed", reason=said).reason == shown


async def test_the_tenant_brings_both_scripts_and_reads_the_roll(tmp_path: Path) -> None:
    standing, box = lease(), tmp_path / "box"
    box.mkdir()
    transport = LocalTransport(box)
    caretaker = Caretaker(standing, transport, SCRIPTS / "caretaker.py")
    runner = Runner(standing, transport, SCRIPTS / "runner.py", caretaker=caretaker)

    def turn(name: str, command: str, **env: str) -> QueuedJob:
        job = Job(
            id=JobId(name),
            lease_id=standing.id,
            command=command,
            artifacts=("out/",),
            discard=(),
            env_names=tuple(env),
            max_runtime_s=None,
            declared_at=NOON,
            launched_at=None,
        )
        return QueuedJob(job=job, env=env, attempts=2)

    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)

    asked = await runner.queue(
        [
            turn("c1", "echo $KEY $VIRTUAL_ENV > told", KEY="k", VIRTUAL_ENV=str(venv)),
            turn("c2", "exit 5"),
        ]
    )
    before = await runner.withdraw([JobId("c9")])
    give_up = time.monotonic() + PATIENCE_S
    while (rolled := await runner.roll()).waiting:
        assert time.monotonic() < give_up

    assert (asked.queued, asked.needs_env, asked.runner.state) == (("c1", "c2"), (), "alive")
    assert (before.withdrawn, before.too_late) == (("c9",), ())
    assert [(job.job, job.state, job.attempts, job.run) for job in rolled.jobs] == [
        ("c1", "finished", 1, "c1"),
        ("c2", "failed", 2, "c2.2"),
        ("c9", "withdrawn", 0, None),
    ]
    work = box / standing.work_directory
    assert (work / "told").read_text(encoding="utf-8") == f"k {venv}\n"
    assert (await caretaker.manifest(accounted=[], artifacts=["told"], discard=[])).problems == ()
    with pytest.raises(CaretakerFailed, match="OTHER_COMMAND"):
        await runner.queue([turn("c1", "true")])
