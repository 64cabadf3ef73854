"""Looks count what really ran, whoever looks and whatever the clock does; the judge calls no work idle."""

import contextlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from arranged import PATIENCE_S

from gpu_tenant.box.idle_check import Activity
from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.errors import CaretakerFailed

SCRIPT = Path(__file__).parents[2] / "scripts" / "activity.py"
Reply = dict[str, Any]


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("activity_on_the_box", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ACTIVITY = _module()


def activity(verb: str, home: Path, *words: str) -> Reply:
    """The reply, by the script's own `main` in this process: a new one for each would take the suite's time."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = ACTIVITY.main([verb, "--home", str(home), *words])
    reply: Reply = json.loads(said.getvalue())
    assert status == (0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1)
    return reply


@contextlib.contextmanager
def running(source: str, home: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A job's process, under the caretaker's marks."""
    marks = {"GPU_TENANT_CARETAKER": str(home), "GPU_TENANT_JOB": "train", **more}
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", source],
        env={**os.environ, **marks},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(home: Path, holds: Callable[[Reply], bool]) -> Reply:
    """The first look of which that holds."""
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        look: Reply = activity("look", home)["look"]
        if holds(look):
            return look
    raise AssertionError(look)


def wall_s() -> float:
    return WallClock().now().timestamp()


def ring(home: Path, *looks: Reply) -> None:
    """The ring of a box that began some hours ago, by its looks; `up` counts back from now."""
    now, boot = ACTIVITY.now_s(), ACTIVITY.boot()
    lines = [
        {
            "at": wall_s() + one["up"],
            "boot": boot,
            "count": "c",
            "kinds": {},
            "net": [0, 0],
            "gpus": None,
            "driver": "none",
            "job": still(),
            "other": still(),
        }
        | one
        | {"up": now + one["up"]}
        for one in looks
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (home / "activity.jsonl").write_text(text, encoding="utf-8")


def still(cpu_s: float = 0.0) -> Reply:
    return {"cpu_s": cpu_s, "read": 0, "written": 0, "disk": 0, "procs": 1}


def test_a_job_is_counted_by_its_marks(tmp_path: Path) -> None:
    activity("look", tmp_path)

    with running("while True: pass", tmp_path):
        seen = until(tmp_path, lambda look: look["job"]["cpu_s"] >= 0.05)

    assert seen["job"]["procs"] == 1


def test_another_homes_job_is_not_this_ones(tmp_path: Path) -> None:
    with running("import time; time.sleep(600)", tmp_path / "elsewhere"):
        seen = activity("look", tmp_path)["look"]

    assert (seen["job"]["procs"], seen["other"]["procs"] >= 1) == (0, True)


def test_of_an_ssh_server_the_bytes_count_and_not_what_knocking_costs(tmp_path: Path) -> None:
    shutil.copy("/bin/cat", tmp_path / "sshd")
    with (tmp_path / "zeros").open("w") as file:
        file.truncate(1 << 30)
    with subprocess.Popen(
        [tmp_path / "sshd", tmp_path / "zeros", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as server:
        until(tmp_path, lambda _: ACTIVITY.stat_of(server.pid)["own_s"] > 0)
        seen = next(
            s for s in ACTIVITY.living(str(tmp_path), None).values() if s["pid"] == server.pid
        )
        server.kill()

    assert (seen["group"], seen["own_s"]) == ("other", 0)


def test_what_children_did_that_died_between_two_looks_counts_once(tmp_path: Path) -> None:
    source = """
import os, sys, time
for n in range(4):
    if os.fork() == 0:
        end = time.process_time() + .1
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
time.sleep(600)
"""
    activity("look", tmp_path)

    with running(source, tmp_path):
        seen = until(tmp_path, lambda look: look["job"]["cpu_s"] >= 0.39)
        again = activity("look", tmp_path)["look"]

    assert seen["job"]["cpu_s"] < 0.9
    assert again["job"]["cpu_s"] - seen["job"]["cpu_s"] < 0.2


def test_what_has_ended_takes_nothing_off_the_counters(tmp_path: Path) -> None:
    activity("look", tmp_path)
    with running("while True: pass", tmp_path):
        before = until(tmp_path, lambda look: look["job"]["cpu_s"] >= 0.05)

    after = activity("look", tmp_path)["look"]

    assert after["job"]["procs"] == 0
    assert after["job"]["cpu_s"] >= before["job"]["cpu_s"]


def test_neither_a_name_nor_an_argument_of_a_process_is_kept(tmp_path: Path) -> None:
    with running("import time; time.sleep(600)", tmp_path, API_KEY="hidden-in-environ"):
        until(tmp_path, lambda look: look["job"]["procs"] == 1)

    kept = "".join(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())

    assert "hidden" not in kept
    assert "time.sleep" not in kept


def test_callers_at_once_leave_whole_lines(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-S", str(SCRIPT), "look", "--home", str(tmp_path)]
    at_once = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(5)]
    replies = [json.loads(one.communicate()[0]) for one in at_once]

    lines = (tmp_path / "activity.jsonl").read_text(encoding="utf-8").splitlines()

    assert [json.loads(line)["count"] for line in lines] == [replies[0]["look"]["count"]] * 5
    assert sorted(reply["looks"] for reply in replies) == [1, 2, 3, 4, 5]


def test_a_broken_line_is_passed_over_and_takes_no_other_with_it(tmp_path: Path) -> None:
    ring(tmp_path, {"up": -120}, {"up": -60})
    with (tmp_path / "activity.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"at": 1, "up"\n[]\n{"at": 1}\n\x00\xff\n{"at": 17')
    (tmp_path / "activity-latest.json").write_text("{", encoding="utf-8")

    activity("look", tmp_path)
    looks = ACTIVITY.kept_looks(str(tmp_path))

    assert len(looks) == 3
    assert activity("judge", tmp_path)["phase"] == "unknown", "the counters began anew"


def test_the_ring_stays_small(tmp_path: Path) -> None:
    line = json.dumps({"at": 1, "up": 1}) + "\n"
    (tmp_path / "activity.jsonl").write_text(line * ACTIVITY.MOST_LINES, encoding="utf-8")

    assert activity("look", tmp_path)["looks"] == ACTIVITY.KEPT_LINES + 1
    kept = (tmp_path / "activity.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(kept) == ACTIVITY.KEPT_LINES + 1


def test_idleness_is_what_was_seen_and_lies_in_the_ring(tmp_path: Path) -> None:
    ring(tmp_path, {"up": -1300}, *({"up": -up, "job": still(50)} for up in range(1200, 0, -60)))

    said = Activity.parse(json.dumps(activity("judge", tmp_path)).encode())

    assert (said.phase, said.busy) == ("idle", False)
    assert said.idle_s == pytest.approx(1140, abs=1)
    assert said.since.timestamp() == pytest.approx(wall_s() - 1200, abs=5)
    assert "idle for 19 min" in said.words
    assert "0.00 cores" in said.words


def test_a_clock_that_is_set_makes_no_idleness(tmp_path: Path) -> None:
    ring(tmp_path, {"up": -180}, {"up": -120, "at": wall_s() + 40_000}, {"up": -60, "at": 5.0})

    assert activity("judge", tmp_path)["idle_s"] == pytest.approx(120, abs=1)


def test_what_nobody_saw_is_unknown_and_no_idleness(tmp_path: Path) -> None:
    ring(tmp_path, {"up": -9000}, {"up": -8900}, {"up": -130}, {"up": -70})
    assert activity("judge", tmp_path)["idle_s"] == pytest.approx(60, abs=1)

    ring(tmp_path, {"up": -9000}, {"up": -8900}, {"up": -1000})
    assert activity("judge", tmp_path)["phase"] == "unknown"
    assert activity("judge", tmp_path)["idle_s"] == 0
    assert activity("judge", tmp_path, "--within-s", "10000")["idle_s"] == pytest.approx(
        8000, abs=1
    )


def test_a_restart_of_the_box_begins_anew(tmp_path: Path) -> None:
    ring(tmp_path, {"up": -200, "boot": "other"}, {"up": -140, "boot": "other"}, {"up": -60})
    assert activity("judge", tmp_path)["phase"] == "unknown"

    ring(tmp_path, {"up": -200, "boot": "other"}, {"up": -140, "boot": "other"})
    said = activity("judge", tmp_path)
    assert (said["phase"], said["idle_s"]) == ("unknown", 0)


def test_nobody_has_looked_yet(tmp_path: Path) -> None:
    assert activity("judge", tmp_path)["phase"] == "unknown"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first directory in which programs are sought."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin"


def smi(path: Path, cards: str, listed: str = "", *, old: str = "") -> None:
    """There is an nvidia-smi that prints these."""
    program = path / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *compute-apps*) printf "{listed}";; {old} *) printf "{cards}";; esac\n',
        encoding="utf-8",
    )
    program.chmod(0o755)


def test_each_gpu_is_read_with_what_the_driver_does_not_say(tmp_path: Path, path: Path) -> None:
    smi(
        path,
        r"GPU-1, 0:1, 97, 30000, 41, 312.55, 400.00\nGPU-2, 0:2, [N/A], [Not Supported], N/A, [Unknown Error], 400\nodd\n",
        rf"GPU-1, {os.getpid()}, 29000\nGPU-2, 4194999, [N/A]\n",
    )

    seen = activity("look", tmp_path)["look"]

    one, two = seen["gpus"]
    assert (one["util_pct"], one["mem_util_pct"], one["power_w"]) == (97, 41, 312.55)
    assert (two["util_pct"], two["mem_mib"], two["power_w"]) == (None, None, None)
    assert one["other"] + one["else"] == 1, "this test's process, or its caller's"
    assert (two["job"], two["other"], two["unseen"]) == (0, 0, 1)


def test_a_driver_that_knows_few_fields_is_asked_for_those(tmp_path: Path, path: Path) -> None:
    smi(path, r"GPU-1, 0:1, 7, 512\n", old="*power.draw*) exit 2;;")

    (card,) = activity("look", tmp_path)["look"]["gpus"]

    assert (card["util_pct"], card["mem_mib"], card["power_w"]) == (7, 512, None)


def test_a_driver_that_refuses_or_hangs_is_silent(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(path, "", old="*) exit 9;;")
    assert activity("look", tmp_path)["look"]["driver"] == "silent"

    smi(path, "", old="*) exec sleep 60;;")
    monkeypatch.setattr(ACTIVITY, "SMI_S", 0.1)
    assert activity("look", tmp_path)["look"]["gpus"] is None


def test_a_gpu_at_work_for_nobody_is_suspicious_and_no_work(tmp_path: Path) -> None:
    card = {
        "util_pct": 100,
        "mem_mib": 0,
        "mem_util_pct": 0,
        "power_w": 150,
        "power_max_w": 400,
        "job": 0,
        "other": 0,
        "else": 0,
        "unseen": 0,
    }
    ring(tmp_path, *({"up": -up, "gpus": [card], "driver": "ok"} for up in (180, 120, 60)))

    said = Activity.parse(json.dumps(activity("judge", tmp_path)).encode())

    assert (said.phase, said.busy, said.idle_s) == ("suspicious", False, 0)
    assert said.suspicious_s == pytest.approx(120, abs=1)
    assert "GPU 0 100 %, nobody's" in said.words


def test_a_wrong_request_and_a_reply_without_sense_are_told_as_such(tmp_path: Path) -> None:
    assert activity("judge", tmp_path, "--within-s", "nan")["code"] == "BAD_REQUEST"
    nowhere = activity("look", tmp_path / "none")
    assert nowhere["code"] == "NO_HOME"
    assert not (tmp_path / "none").exists()
    for stdout in (b"Welcome to Ubuntu\n", b"", json.dumps(nowhere).encode()):
        with pytest.raises(CaretakerFailed, match="does not say whether it is idle"):
            Activity.parse(stdout)
