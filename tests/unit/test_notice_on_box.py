"""The guard hears that the platform takes the box, has the jobs save, and copies what they saved."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from guarded import CARETAKER, Box, asked, box_at, until
from metadata_server import NAMED, Metadata
from parts import required, root_required

from box_scripts.caretaker.listening import ANSWER_BYTES, is_preempted, metadata_address

SAVES = "trap 'sleep 0.3; echo saved > checkpoint; exit 3' USR1; while :; do sleep 0.02; done"


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with Metadata() as made:
        yield made
        made.shutdown()


@pytest.fixture
def box(tmp_path: Path, metadata: Metadata) -> Iterator[Box]:
    with box_at(tmp_path / "lease") as box:
        said = json.dumps({"metadata": metadata.url})
        (box.root / ".rehearsal.json").write_text(said, encoding="utf-8")
        yield box


LISTENS = {"notice": {"metadata": True, "within_s": 120}}


# --- what counts as notice -----------------------------------------------------------------------


def test_only_the_one_word_of_google_s_own_answer_is_notice(metadata: Metadata) -> None:
    assert is_preempted(metadata.address) is False
    metadata.word = b"TRUE\n"
    assert is_preempted(metadata.address) is True
    assert set(metadata.heard) == {("/m/computeMetadata/v1/instance/preempted", "Google")}


@pytest.mark.parametrize(
    ("status", "fields", "word"),
    [
        (200, {}, b"TRUE"),
        (200, {"Metadata-Flavor": "Other"}, b"TRUE"),
        (404, NAMED, b"TRUE"),
        (302, {**NAMED, "Location": "http://127.0.0.1:1/"}, b"TRUE"),
        (503, NAMED, b"TRUE"),
        (200, NAMED, b"true"),
        (200, NAMED, b"<html>TRUE</html>"),
        (200, NAMED, b""),
        (200, NAMED, b"TRUE" + b" " * ANSWER_BYTES),
        (200, NAMED, b"\xff" * 10**7),
    ],
)
def test_what_else_answers_there_says_nothing(
    metadata: Metadata, status: int, fields: dict[str, str], word: bytes
) -> None:
    metadata.status, metadata.fields, metadata.word = status, fields, word
    assert is_preempted(metadata.address) is None


def test_a_server_that_never_ends_its_answer_is_given_up(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        silent = ("127.0.0.1", server.getsockname()[1], "x", "")
        over = threading.Event()

        def drips() -> None:
            line, _ = server.accept()
            with line, Path(os.devnull).open("wb"):
                while not over.wait(0.05):
                    try:
                        line.sendall(b"x")
                    except OSError:
                        over.set()

        thread = threading.Thread(target=drips, daemon=True)
        thread.start()
        assert is_preempted(silent) is None  # it would drip for ever
        thread.join(60)
        assert over.is_set(), "we have hung up"


def test_on_a_rehearsal_s_box_only_this_computer_is_asked(tmp_path: Path) -> None:
    home = tmp_path / "box" / "caretaker"
    home.mkdir(parents=True)
    assert metadata_address(str(home)) == ("169.254.169.254", 80, "metadata.google.internal", "")
    marker = tmp_path / "box" / ".rehearsal.json"
    for said in (
        "{",
        "{}",
        '{"metadata": 3}',
        '{"metadata": "http://169.254.169.254/"}',
        '{"metadata": "https://127.0.0.1:9/"}',
        '{"metadata": "http://127.0.0.1:x/"}',
    ):
        marker.write_text(said, encoding="utf-8")
        assert metadata_address(str(home)) is None, said
    marker.write_text('{"metadata": "http://127.0.0.1:9/a"}', encoding="utf-8")
    assert metadata_address(str(home)) == ("127.0.0.1", 9, "127.0.0.1:9", "/a")


# --- what is done about it -----------------------------------------------------------------------


def test_notice_has_each_job_save_in_its_own_way_and_all_is_copied_once_it_has(
    box: Box, metadata: Metadata
) -> None:
    keep = box.script("keep", {"ok": True, "kept": [{}], "failed": []})
    box.start(SAVES, "train", stop_signal="USR1", grace_s=0.1, artifacts=["checkpoint"])
    box.arm(
        600,
        store={"kind": "directory", "path": "/x"},
        seal={"work": str(box.work)},
        scripts={"keep": str(keep)},
        **LISTENS,
    )
    until(lambda: metadata.heard)
    assert box.ask("status")["notice"] is None

    metadata.word = b"TRUE"

    until(lambda: (box.ask("status")["notice"] or {}).get("kept"))
    notice = box.ask("status")["notice"]
    assert (notice["source"], notice["jobs"], notice["left"]) == ("metadata", ["train"], [])
    assert notice["kept"]["ok"] is True
    assert notice["polls"] >= 2
    assert (box.work / "checkpoint").read_text(encoding="utf-8") == "saved\n", (
        "longer than its grace"
    )
    assert box.ask("status", job="train")["reason"]["code"] == "preempted"
    last = asked(keep)[-1][1]
    assert "work/checkpoint" in {entry["name"] for entry in last["files"]}
    assert box.stands()["why"] == "preempted"


def test_what_is_complete_is_copied_while_a_job_still_saves(box: Box, metadata: Metadata) -> None:
    keep = box.script("keep", {"ok": True, "kept": [{}], "failed": []})
    deaf = "echo old > out.pt; trap '' TERM; while :; do [ ! -e go ] || exit 0; sleep 0.05; done"
    box.start(deaf, "train", artifacts=["*.pt"])
    until((box.work / "out.pt").exists)
    old = time.time() - 60  # noqa: TID251
    os.utime(box.work / "out.pt", (old, old))
    store = {"kind": "directory", "path": "/x"}
    box.arm(600, store=store, seal={"work": str(box.work)}, scripts={"keep": str(keep)}, **LISTENS)

    metadata.word = b"TRUE"

    until(lambda: asked(keep))  # what was written within the last second may not be complete
    assert {entry["name"] for entry in asked(keep)[0][1]["files"]} == {"work/out.pt"}
    assert "ended_at" not in box.ask("status")["notice"], "it lives, and nobody kills it"
    assert box.ask("status", job="train")["state"] == "running"
    (box.work / "go").touch()
    until(lambda: (box.ask("status")["notice"] or {}).get("kept"))


def test_what_copies_is_ready_before_the_jobs_have_saved(box: Box, metadata: Metadata) -> None:
    keep = box.script("keep", {"ok": True, "kept": [{}], "failed": []})
    told = keep.read_text(encoding="utf-8")
    keep.write_text(f"open(__file__ + '.begun', 'w').close()\n{told}", encoding="utf-8")
    begun = keep.with_name("keep.py.begun")
    saves = f"until [ -e {begun} ]; do sleep 0.02; done; echo saved > checkpoint; exit 3"
    waits = f"trap '{saves}' USR1; while :; do sleep 0.02; done"
    box.start(waits, "train", stop_signal="USR1", artifacts=["checkpoint"])
    store = {"kind": "directory", "path": "/x"}
    box.arm(600, store=store, seal={"work": str(box.work)}, scripts={"keep": str(keep)}, **LISTENS)

    metadata.word = b"TRUE"

    until(lambda: (box.ask("status")["notice"] or {}).get("kept"))
    assert (box.work / "checkpoint").exists()
    assert "work/checkpoint" in {entry["name"] for entry in asked(keep)[-1][1]["files"]}


def test_a_box_that_stays_after_its_notice_still_ends_at_its_deadline(
    box: Box, metadata: Metadata
) -> None:
    metadata.word = b"TRUE"
    leave = box.script("leave", {"ok": True, "asked": True})
    box.arm(3, scripts={"leave": str(leave)}, end={"kind": "vastai", "on": "keep"}, **LISTENS)

    until(lambda: box.stands().get("why") == "preempted")

    until(lambda: asked(leave))
    assert box.stands()["why"] == "deadline"


def test_a_notice_of_before_a_restart_is_not_told(box: Box, metadata: Metadata) -> None:
    metadata.word = b"TRUE"
    box.arm(600, **LISTENS)
    until(lambda: box.ask("status")["notice"])

    path = box.home / "notice.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "x"}), encoding="utf-8")
    assert box.ask("status")["notice"] is None
    path.write_text("{", encoding="utf-8")
    assert box.ask("status")["notice"] is None


@pytest.mark.parametrize("what", ["its platform says so", "its first process is another one"])
def test_a_notice_counts_for_the_start_of_the_box_at_which_it_was_given(
    box: Box, metadata: Metadata, what: str
) -> None:
    marker, start = box.root / ".rehearsal.json", box.root / "start"
    marker.write_text(json.dumps({"metadata": metadata.url, "start": str(start)}), encoding="utf-8")
    start.write_text("first", encoding="utf-8")
    metadata.word = b"TRUE"
    box.arm(600, **LISTENS)
    until(lambda: (box.ask("status")["notice"] or {}).get("ended_at"))

    path = box.home / "notice.json"
    if what == "its platform says so":
        start.write_text("second", encoding="utf-8")
    else:
        record = json.loads(path.read_text())
        boot, _, said = record["start"].split(" ")
        path.write_text(json.dumps(record | {"start": f"{boot} 1 {said}"}), encoding="utf-8")

    assert path.exists()
    assert box.ask("status")["notice"] is None


def test_a_box_that_was_not_told_to_listen_asks_no_metadata(box: Box, metadata: Metadata) -> None:
    box.arm(600, idle_s=0.2)
    box.turns()
    box.turns()
    assert metadata.heard == []


# --- the first process ---------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["the first process", "somebody else"])
def test_the_first_process_s_sigterm_is_notice_and_nobody_else_s(tmp_path: Path, who: str) -> None:
    required("mount")
    root_required()
    with box_at(tmp_path / "lease") as box:
        init = f"""\
import json, os, pathlib, signal, subprocess, sys, time
def ask(verb, **arguments):
    argv = [sys.executable, "-I", "-S", {str(CARETAKER)!r}, "--home", {str(box.home)!r}, verb, "--request", "-"]
    return json.loads(subprocess.run(argv, input=json.dumps(arguments).encode(), stdout=subprocess.PIPE).stdout)
def until(is_so):
    while not is_so(): time.sleep(0.02)
job = "trap 'echo asked >> asked; exit 1' TERM; : > begun; while :; do sleep 0.02; done"
ask("start", job="train", argv=["sh", "-c", job], cwd={str(box.work)!r})
until(pathlib.Path({str(box.work / "begun")!r}).exists)
armed = ask("guard", deadline=time.time() + 600, left_s=600, idle_s=0.2)
if {who!r} == "somebody else":
    subprocess.run(["sh", "-c", "kill -TERM %d" % armed["pid"]])
    record = pathlib.Path({str(box.record)!r})
    for turn in range(2):
        record.unlink()
        until(record.exists)
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(-1, signal.SIGTERM)
    until(lambda: not pathlib.Path("/proc/%d/cmdline" % armed["pid"]).exists()
          or not pathlib.Path("/proc/%d/cmdline" % armed["pid"]).read_bytes())
print(json.dumps(dict(ask("status"), guard=ask("guard")["state"])))
"""
        done = subprocess.run(
            [
                "unshare",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
                sys.executable,
                "-c",
                init,
            ],
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
            env={"PATH": os.environ["PATH"], "HOME": str(box.root), "GPU_TENANT_NO_POWEROFF": "1"},
        )
        said = json.loads(done.stdout)
        if who == "somebody else":
            assert (said["notice"], said["guard"]) == (None, "armed")
            assert said["jobs"][0]["state"] == "running"
        else:
            assert (said["notice"]["source"], said["notice"]["jobs"]) == ("shutdown", ["train"])
            assert (box.work / "asked").read_text(encoding="utf-8") == "asked\n", "asked once"
            assert said["guard"] == "fired"
