"""With nobody alive, the guard stops a box whose work is done, once the store has a proved copy; and no other box."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.test_guard_on_box import LIVES, Box, asked, box, until

assert box  # a fixture
KEEPS = {"kind": "vastai", "on": "keep"}
WRITES = "mkdir -p out; echo weights > out/model"
STORED = {"ok": True, "kept": [{}, {}], "failed": []}
WAITS = """\
import os, time
while not os.path.exists({go!r}):
    open({begun!r}, "w").close()
    time.sleep(0.02)
"""


class Done:
    """A box on which one job has run, and the scripts beside its guard."""

    def __init__(self, box: Box, command: str = WRITES, state: str = "finished") -> None:
        self.box = box
        self.keep = box.script("keep", STORED)
        self.leave = box.script("leave", {"ok": True, "asked": True})
        box.start(command, artifacts=["out/"])
        until(lambda: box.ask("status", job="j1")["state"] == state)

    def arm(self, left_s: float = 600, **more: Any) -> dict[str, Any]:
        done = {"after_s": 0.4, "failed_s": 900, "not_before_s": 0, **more.pop("done", {})}
        asked_for: dict[str, Any] = {
            "store": {"kind": "s3", "key": "k"},
            "seal": {"work": str(self.box.work), "roots": []},
            "scripts": {"keep": str(self.keep), "leave": str(self.leave)},
            "end": KEEPS,
            "when_done": done,
        }
        return self.box.arm(left_s, **{**asked_for, **more})

    def goes_round(self, times: int = 5) -> None:
        for _ in range(times):
            self.box.turns()


def test_a_done_box_is_copied_and_stopped_long_before_its_deadline(box: Box) -> None:
    done = Done(box)

    done.arm()

    until(lambda: asked(done.leave))
    assert box.stands()["why"] == "done"
    assert box.stands()["kept"]["kept"] == box.stands()["kept"]["files"] == 2
    assert asked(done.leave)[0][1] == {"kind": "vastai", "may": "stop"}
    assert len(asked(done.keep)) == 1, "what was read back from there is not sent once more"


@pytest.mark.parametrize(
    "more",
    [
        {"store": None},
        {"end": {"kind": "runpod", "on": "waive"}},
        {"end": {"kind": "none"}},
        {"done": {"not_before_s": 600}},
    ],
    ids=["no store", "an end that needs a signature", "no way out", "held"],
)
def test_nothing_is_stopped_where_that_was_not_agreed(box: Box, more: dict[str, Any]) -> None:
    done = Done(box)

    done.arm(**more)

    time.sleep(1)  # noqa: TID251 - what must not happen has no event
    done.goes_round()
    assert box.stands()["state"] == "armed"
    assert asked(done.keep) == asked(done.leave) == []


@pytest.mark.parametrize(
    "says",
    [
        {"ok": False, "message": "the store is full"},
        {"ok": True, "kept": [{}], "failed": [{"name": "work/out/model", "why": "403"}]},
    ],
)
def test_a_copy_that_is_not_whole_stops_nothing_and_the_deadline_is_held(
    box: Box, says: dict[str, Any]
) -> None:
    done = Done(box)
    (done.keep.parent / "says").write_text(json.dumps(says), encoding="utf-8")

    done.arm()

    until(lambda: "kept" in box.stands())
    done.goes_round()
    assert box.stands()["state"] == "armed"
    assert asked(done.leave) == []
    done.arm(0.2)
    until(lambda: asked(done.leave))
    assert box.stands()["why"] == "deadline"


def test_what_failed_waits_for_somebody_and_what_is_held_for_ever(box: Box) -> None:
    done = Done(box, f"{WRITES}; exit 3", "failed")
    done.arm(done={"failed_s": None})
    time.sleep(1)  # noqa: TID251 - what must not happen has no event
    assert (box.stands()["state"], asked(done.keep)) == ("armed", [])

    armed = done.arm(done={"failed_s": 2})

    until(lambda: asked(done.leave))
    assert box.stands()["fired_at"] - armed["armed_at"] >= 2


def test_a_failure_that_a_launch_has_answered_since_keeps_no_box(box: Box) -> None:
    done = Done(box, f"{WRITES}; exit 3", "failed")
    box.start("echo more > out/more", job="j2", artifacts=["out/"])
    until(lambda: box.ask("status", job="j2")["state"] == "finished")
    (done.keep.parent / "says").write_text(json.dumps({**STORED, "kept": [{}] * 4}), "utf-8")

    done.arm(done={"failed_s": None})

    until(lambda: asked(done.leave), 20)
    assert box.stands()["why"] == "done"


def test_a_failure_after_the_last_launch_keeps_the_box(box: Box) -> None:
    done = Done(box, LIVES, "running")
    box.start("true", job="j2", artifacts=["out/"])
    until(lambda: box.ask("status", job="j2")["state"] == "finished")
    box.ask("stop", job="j1", grace_s=0)

    done.arm(done={"failed_s": None})

    time.sleep(1)  # noqa: TID251 - what must not happen has no event
    done.goes_round()
    assert (box.stands()["state"], asked(done.leave)) == ("armed", [])


def test_a_box_that_was_only_set_up_is_not_stopped_for_being_done(box: Box) -> None:
    keep, leave = box.script("keep", STORED), box.script("leave", {"ok": True, "asked": True})
    box.start("echo made >made", setup=True)
    until(lambda: box.ask("status", job="j1")["state"] == "finished")

    box.arm(
        600,
        store={"kind": "s3", "key": "k"},
        seal={"work": str(box.work), "roots": []},
        scripts={"keep": str(keep), "leave": str(leave)},
        end=KEEPS,
        when_done={"after_s": 0.4, "failed_s": 900, "not_before_s": 0},
    )

    time.sleep(1)  # noqa: TID251 - what must not happen has no event
    for _ in range(5):
        box.turns()
    assert box.stands()["state"] == "armed"
    assert asked(keep) == asked(leave) == []


def test_a_look_of_the_tenant_puts_it_off(box: Box) -> None:
    done = Done(box)
    armed = done.arm(done={"after_s": 2})
    while time.time() < armed["now"] + 2.5:  # noqa: TID251
        box.ask("status", tenant=True)
    looked_at = time.time()  # noqa: TID251

    until(lambda: asked(done.leave))

    assert box.stands()["fired_at"] >= looked_at + 1.5


@pytest.fixture
def somebody(box: Box) -> Iterator[Any]:
    """Runs a command as somebody who has logged in on that box."""
    begun = list[subprocess.Popen[bytes]]()

    def logs_in(command: str) -> subprocess.Popen[bytes]:
        door = "192.0.2.1 5 192.0.2.2 22"
        environ = {"HOME": str(box.root), "SSH_CONNECTION": door, "PATH": os.environ["PATH"]}
        begun.append(subprocess.Popen(["sh", "-c", command], env=environ, cwd="/"))
        return begun[-1]

    yield logs_in
    for process in begun:
        process.kill()
        process.wait()


def test_a_connection_on_which_something_moves_puts_it_off(box: Box, somebody: Any) -> None:
    done = Done(box)
    busy = somebody("while :; do :; done")
    done.arm()
    time.sleep(2)  # noqa: TID251 - what must not happen has no event
    assert (box.stands()["state"], asked(done.keep)) == ("armed", [])

    busy.send_signal(signal.SIGSTOP)  # as what hangs on a connection to a computer that has died

    until(lambda: asked(done.leave))


def test_a_job_that_begins_while_the_copy_is_made_is_not_stopped(box: Box) -> None:
    done = Done(box)
    begun, go = box.root / "begun", box.root / "go"
    done.keep.write_text(
        WAITS.format(go=str(go), begun=str(begun)) + done.keep.read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    done.arm()
    until(begun.exists)

    box.start(LIVES, "j2")
    go.touch()

    until(lambda: "kept" in box.stands())
    done.goes_round()
    assert box.stands()["state"] == "armed"
    assert box.ask("status", job="j2")["state"] == "running"
    assert asked(done.leave) == []


def test_a_guard_that_was_replaced_while_it_copied_stops_nothing(box: Box) -> None:
    done = Done(box)
    begun, go = box.root / "begun", box.root / "go"
    done.keep.write_text(
        WAITS.format(go=str(go), begun=str(begun)) + done.keep.read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    first = done.arm()
    until(begun.exists)

    box.arm(600)
    go.touch()

    until(lambda: not Path(f"/proc/{first['pid']}").exists())
    assert asked(done.leave) == []
    assert box.stands()["state"] == "armed"
