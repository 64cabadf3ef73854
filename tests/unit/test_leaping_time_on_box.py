"""A guard's time leaps with a rehearsal's, and never on a box whose tenant does not say that it is one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from guarded import Box, box_at, until


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with box_at(tmp_path / "lease") as made:
        yield made


def is_marked(box: Box, root: Path) -> None:
    """As a rehearsal's platform marks its boxes, or a job on a real one that would move its guard's time."""
    said = {"leaps": str(root / "leapt"), "dues": str(root / "due.json")}
    (box.root / ".rehearsal.json").write_text(json.dumps(said), encoding="utf-8")
    leap(root, 0)


def leap(root: Path, seconds: float) -> None:
    (root / "leapt.new").write_text(str(seconds), encoding="utf-8")
    (root / "leapt.new").replace(root / "leapt")


def due(root: Path) -> float:
    said = json.loads((root / "due.json").read_text(encoding="utf-8"))
    return float(said["due"] - said["seen"])


def test_a_guard_in_a_rehearsal_tells_when_it_is_due_and_acts_when_time_has_leapt_there(
    box: Box, tmp_path: Path
) -> None:
    is_marked(box, tmp_path)
    box.start("exec sleep 600", "train")
    box.arm(7200, rehearsed=True)
    until((tmp_path / "due.json").exists)
    assert 7000 < due(tmp_path) <= 7200

    leap(tmp_path, 3600)
    until(lambda: due(tmp_path) < 3700)
    assert box.stands()["state"] == "armed"
    leap(tmp_path, 7200)

    until(lambda: box.stands().get("state") == "fired")
    assert box.stands()["why"] == "deadline"
    until(lambda: box.stands().get("stopped") == ["train"])


def test_time_never_goes_back_and_what_cannot_be_read_moves_nothing(
    box: Box, tmp_path: Path
) -> None:
    is_marked(box, tmp_path)
    box.arm(7200, rehearsed=True)
    leap(tmp_path, 3600)
    until(lambda: (tmp_path / "due.json").exists() and due(tmp_path) < 3700)

    for said in ("", "soon", "nan", "inf", "-1", "0"):
        (tmp_path / "leapt").write_text(said, encoding="utf-8")
        box.turns()

    assert 3000 < due(tmp_path) < 3700
    assert box.stands()["state"] == "armed"


@pytest.mark.parametrize("who", ["a job that writes the mark", "a tenant without the mark"])
def test_neither_the_mark_alone_nor_the_word_alone_moves_a_guards_time(
    box: Box, tmp_path: Path, who: str
) -> None:
    if who == "a job that writes the mark":
        is_marked(box, tmp_path)
        box.arm(7200)
    else:
        leap(tmp_path, 0)
        box.arm(7200, rehearsed=True)

    leap(tmp_path, 100_000)
    box.turns()
    box.turns()

    assert box.stands()["state"] == "armed"
    assert not (tmp_path / "due.json").exists()
