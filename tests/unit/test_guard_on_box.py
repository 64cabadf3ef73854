"""The guard on the box holds what it was asked, whatever becomes of clocks, records and credentials."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from guarded import Box, asked, box_at, until

SECRET = "s3cr3t-of-the-store"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with box_at(tmp_path / "lease") as box:
        yield box


LIVES = "trap '' TERM; while :; do sleep 0.05; done"
BUSY = {"idle_s": 0.2}
"""A guard that counts idleness looks often; a job that lives keeps it from firing."""


# --- clocks --------------------------------------------------------------------------------------


def test_a_clock_that_jumps_ahead_ends_no_lease_early(box: Box) -> None:
    box.start(LIVES)
    box.arm(1800, **BUSY)

    box.set_clock(3600)

    box.turns()
    box.turns()
    assert box.ask("guard")["state"] == "armed"


def test_a_clock_that_is_set_back_prolongs_nothing(box: Box) -> None:
    box.arm(1.0)

    box.set_clock(-3600)

    until(lambda: box.stands().get("state") == "fired")


def test_a_box_whose_clock_was_always_wrong_ends_the_lease_in_time(box: Box) -> None:
    box.set_clock(-86_400)
    box.arm(0.5)

    until(lambda: box.stands().get("state") == "fired")
    box.set_clock(86_400)
    box.start(LIVES)
    box.arm(600, **BUSY)
    box.turns()
    assert box.ask("guard")["state"] == "armed"


def test_a_tenant_whose_clock_jumped_meanwhile_changes_nothing_by_asking_again(box: Box) -> None:
    deadline = time.time() + 600  # noqa: TID251
    first = box.ask("guard", deadline=deadline, left_s=600)

    again = box.ask("guard", deadline=deadline, left_s=1)

    assert again["already"] is True
    assert again["pid"] == first["pid"]


def test_the_wall_clock_counts_where_nobody_says_what_is_left(box: Box) -> None:
    box.set_clock(7200)
    box.ask("guard", deadline=time.time() + 3600)  # noqa: TID251

    until(lambda: box.stands().get("state") == "fired")


# --- the record ----------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"state": "armed"}', b"\xff\x00"])
def test_a_lost_or_damaged_record_lets_nobody_go(box: Box, content: bytes | None) -> None:
    armed = box.arm(600, **BUSY)

    if content is None:
        box.record.unlink()
    else:
        box.record.write_bytes(content)

    until(lambda: box.stands().get("pid") == armed["pid"])
    assert box.ask("guard")["state"] == "armed"


def test_a_guard_lets_go_when_it_is_told_to(box: Box) -> None:
    armed = box.arm(600, **BUSY)

    assert box.ask("guard", disarm=True)["state"] == "disarmed"

    until(lambda: not Path(f"/proc/{armed['pid']}").exists())
    assert box.ask("guard")["state"] == "disarmed"
    assert box.arm(600)["pid"] != armed["pid"]


def test_a_damaged_record_is_told_and_a_new_guard_takes_over(box: Box) -> None:
    first = box.arm(600)
    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: not Path(f"/proc/{first['pid']}").exists())
    box.record.write_bytes(b"{")

    assert box.ask("guard")["code"] == "RECORD_CORRUPT"
    assert box.arm(600)["pid"] != first["pid"]


def test_after_a_restart_of_the_box_nothing_is_armed(box: Box) -> None:
    armed = box.arm(600)
    os.kill(armed["pid"], signal.SIGKILL)
    box.record.write_text(json.dumps(box.stands() | {"boot_id": "another"}), encoding="utf-8")

    assert box.ask("guard")["state"] == "not_armed"


def test_a_guard_ignores_a_plain_signal_and_ends_with_its_home(box: Box) -> None:
    armed = box.arm(600, **BUSY)
    os.kill(armed["pid"], signal.SIGTERM)
    box.turns()

    box.home.rename(box.root / "gone")

    until(lambda: not Path(f"/proc/{armed['pid']}").exists())


# --- idleness ------------------------------------------------------------------------------------


def test_a_box_on_which_nothing_ever_ran_is_not_idle(box: Box) -> None:
    box.arm(600, idle_s=0.1)

    box.turns()
    box.turns()
    assert box.stands()["state"] == "armed"


def test_an_idle_box_is_ended_early_and_a_look_of_the_tenant_puts_it_off(box: Box) -> None:
    box.start("true")
    until(lambda: box.ask("status", job="j1")["state"] == "finished")
    armed = box.arm(600, idle_s=5)
    while time.time() < armed["now"] + 2:  # noqa: TID251
        box.ask("status", tenant=True)
    looked_at = time.time()  # noqa: TID251

    until(lambda: box.stands().get("state") == "fired")

    assert box.stands()["why"] == "idle"
    assert box.stands()["fired_at"] >= looked_at + 4


def test_a_guard_that_is_started_again_counts_idleness_anew(box: Box) -> None:
    box.start("true")
    until(lambda: box.ask("status", job="j1")["state"] == "finished")
    old = 1_000_000
    exit_record = box.home / "jobs" / "j1" / "exit.json"
    ended = json.loads(exit_record.read_text(encoding="utf-8"))
    exit_record.write_text(json.dumps(ended | {"ended_at": old}), encoding="utf-8")
    first = box.arm(600, idle_s=1)
    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: not Path(f"/proc/{first['pid']}").exists())
    os.utime(box.home / "guard.lock", (old, old))

    second = box.arm(600, idle_s=1)

    until(lambda: box.stands().get("state") == "fired")
    assert box.stands()["fired_at"] - second["armed_at"] >= 1


# --- the end -------------------------------------------------------------------------------------


def test_each_job_is_asked_by_its_own_signal_and_given_its_own_time(box: Box) -> None:
    checkpoint = "trap 'echo saved > checkpoint; exit 0' USR1; while :; do sleep 0.02; done"
    box.start(checkpoint, "polite", stop_signal="USR1", grace_s=30)
    box.start(LIVES, "deaf", grace_s=0.2)

    box.arm(0.1)

    until(lambda: "stopped" in box.stands())
    assert sorted(box.stands()["stopped"]) == ["deaf", "polite"]
    assert box.stands()["left"] == []
    assert (box.work / "checkpoint").read_text(encoding="utf-8") == "saved\n"
    until(lambda: "meter" in box.stands())
    assert box.stands()["meter"] == "nothing on this box ends its bill"


def test_what_is_kept_goes_to_the_store_whose_key_never_touches_the_disk(box: Box) -> None:
    box.start("mkdir out; echo weights > out/model; exec sleep 600", artifacts=["out/"])
    until((box.work / "out" / "model").exists)
    keep = box.script("keep", {"ok": True, "kept": [{}, {}], "failed": []})
    leave = box.script("leave", {"ok": True, "asked": True})
    box.arm(
        0.3,
        store={"kind": "s3", "key": SECRET},
        seal={"work": str(box.work), "roots": []},
        scripts={"keep": str(keep), "leave": str(leave)},
        end={"kind": "vastai", "on": "keep"},
    )
    until(lambda: "kept" in box.stands() and asked(leave))

    ((words, request),) = asked(keep)
    assert words == ["keep", "--request", "-"]
    assert request["store"] == {"kind": "s3", "key": SECRET}
    assert {entry["name"] for entry in request["files"]} == {"work/out/model", "log/j1.log"}
    assert all(Path(entry["at"]).is_file() for entry in request["files"])
    assert box.stands()["kept"]["kept"] == 2
    assert asked(leave)[0][1] == {"kind": "vastai", "may": "stop"}
    for path in box.home.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):  # the guard goes on writing its record
            assert SECRET.encode() not in path.read_bytes()


def test_a_store_that_fails_keeps_no_meter_running(box: Box) -> None:
    leave = box.script("leave", {"ok": True, "asked": True, "status": 200})

    box.arm(
        0.1,
        store={"key": SECRET},
        seal={"work": str(box.work)},
        end={"kind": "runpod", "on": "waive"},
        scripts={"keep": str(box.root / "none.py"), "leave": str(leave)},
    )

    until(lambda: isinstance(box.stands().get("meter"), dict))
    assert box.stands()["kept"]["ok"] is False
    assert box.stands()["meter"]["status"] == 200
    assert asked(leave)[0][1] == {"kind": "runpod", "may": "terminate"}


def test_what_was_signed_for_is_ended_only_when_the_rescue_sum_is_spent(box: Box) -> None:
    leave = box.script("leave", {"ok": True, "asked": True})
    box.arm(
        0.1, end={"kind": "runpod", "on": "waive", "after_s": 1.5}, scripts={"leave": str(leave)}
    )

    until(lambda: "runs on until" in str(box.stands().get("meter")))
    assert asked(leave) == []
    until(lambda: asked(leave))
    until(lambda: isinstance(box.stands()["meter"], dict))
    assert box.stands()["meter"]["at"] - box.stands()["fired_at"] >= 1.5


def test_an_idle_box_ends_nothing_that_was_signed_for_before_its_deadline(box: Box) -> None:
    box.start("true")
    until(lambda: box.ask("status", job="j1")["state"] == "finished")
    leave = box.script("leave", {"ok": True, "asked": True})
    signed = {"kind": "runpod", "on": "waive", "after_s": 0.2}
    armed = box.arm(4, idle_s=0.4, end=signed, scripts={"leave": str(leave)})

    until(lambda: isinstance(box.stands().get("meter"), dict))

    assert box.stands()["why"] == "idle"
    assert box.stands()["meter"]["at"] - armed["armed_at"] >= 4.2


def test_a_refused_key_is_tried_again_on_record_until_it_works(box: Box) -> None:
    leave = box.script(
        "leave",
        {"ok": True, "asked": False, "status": 401, "why": "the stop was answered with 401"},
    )
    armed = box.arm(0.1, end={"kind": "vastai"}, scripts={"leave": str(leave)})
    until(lambda: len(asked(leave)) >= 2 and box.stands()["meter"]["tries"] >= 2)
    assert box.stands()["meter"]["status"] == 401

    (leave.parent / "says").write_text('{"ok": true, "asked": true}', encoding="utf-8")

    until(lambda: box.stands()["meter"].get("asked"))
    box.arm(600)
    until(lambda: box.stands()["state"] == "armed")
    os.kill(armed["pid"], signal.SIGTERM)  # it heeds that now, so that a shutdown need not wait
    until(lambda: not Path(f"/proc/{armed['pid']}").exists())


def test_a_look_is_taken_beside_it_and_a_look_that_fails_is_nothing(box: Box) -> None:
    look = box.script("activity")
    box.arm(600, scripts={"activity": str(look)}, **BUSY)
    until(lambda: asked(look))

    assert asked(look)[0][0] == ["look", "--home", str(box.home)]
    look.write_text("raise SystemExit(3)", encoding="utf-8")
    box.turns()
    assert box.ask("guard")["state"] == "armed"


def test_at_the_deadline_the_end_is_left_to_those_who_come_back_and_not_for_ever(box: Box) -> None:
    leave = box.script("leave", {"ok": True, "asked": True})
    end = {"kind": "vastai", "on": "keep", "left_to_others_s": 3}
    box.ask("status", back_in_s=600)

    armed = box.arm(0.3, end=end, scripts={"leave": str(leave)})

    until(lambda: "left to whoever looks after" in str(box.stands().get("meter")))
    assert asked(leave) == []
    until(lambda: isinstance(box.stands()["meter"], dict))
    assert box.stands()["meter"]["at"] - armed["armed_at"] >= 3


def test_what_was_said_long_before_keeps_no_guard_waiting(box: Box) -> None:
    leave = box.script("leave", {"ok": True, "asked": True})
    box.ask("status", back_in_s=600)
    said_at = time.time() - 601  # noqa: TID251
    os.utime(box.home / "next-look", (said_at, said_at))

    end = {"kind": "vastai", "on": "keep", "left_to_others_s": 600}
    box.arm(0.1, end=end, scripts={"leave": str(leave)})

    until(lambda: asked(leave))
