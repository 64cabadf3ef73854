"""A box whose disk is full: it can be looked at, collected, given room again, and ended."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from arranged import eventually
from e2e.rehearsal import Rehearsal, nothing_left_of
from parts import required, root_required

TRAINING = """\
import os
os.makedirs("out", exist_ok=True)
for n in range(1, 100):
    with open(f"out/step-{n}.bin", "wb") as file:
        file.write(os.urandom(900_000))
        file.flush()
        os.fsync(file.fileno())
"""


class SmallBox:
    """A rented box whose home is a disk of 8 MB."""

    def __init__(self, place: Path) -> None:
        self.stage = Rehearsal(place)
        self.lease, _ = self.stage.rented()
        (self.home,) = (place / "stage" / "boxes").glob("*/home")
        aside = place / "aside"
        shutil.copytree(self.home, aside, symlinks=True)
        run("mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", self.home)
        shutil.copytree(aside, self.home, symlinks=True, dirs_exist_ok=True)
        self.project = place / "project"
        self.project.mkdir()
        (self.project / "train.py").write_text(TRAINING)

    def fills_its_disk(self) -> None:
        self.stage.does("push", str(self.project))
        self.stage.ran("launch", "--artifact", "out/step-*.bin", "--", "python3", "train.py")
        assert "disk_full" in self.stage.does("monitor", "--wait-s", "30")
        assert self.free_bytes() == 0

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.home).free

    def steps(self) -> list[int]:
        found = self.home.glob("gpu-tenant/*/work/out/step-*.bin")
        return sorted(int(path.stem.partition("-")[2]) for path in found)


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[SmallBox]:
    required("mount")
    root_required()
    begun: list[Rehearsal] = []
    with nothing_left_of(begun):
        made = SmallBox(tmp_path)
        begun.append(made.stage)
        try:
            yield made
        finally:
            run("umount", "-l", made.home)


def test_a_full_box_is_collected_and_ended(box: SmallBox) -> None:
    box.fills_its_disk()

    assert "sealed" in box.stage.does("collect", "-v")
    assert "gone; verified: nothing was lost" in box.stage.does("teardown")
    assert box.stage.ask("meter")["running"] == []


def test_a_watchdog_ends_a_full_box_as_its_terms_say(box: SmallBox) -> None:
    box.fills_its_disk()
    box.stage.does("terms", "--on-failure", "end after 1s")

    def is_over() -> bool:
        box.stage.ran("watchdog", "--once")
        return box.stage.ask("meter")["running"] == []

    assert eventually(is_over, within_s=60)
    assert '"ground": "verified"' in box.stage.does("teardown", box.lease, "--json")


def test_what_is_refused_for_want_of_room_names_the_way_to_room_and_hides_no_cause(
    box: SmallBox,
) -> None:
    box.fills_its_disk()
    kept = len(box.steps())

    again = box.stage.ran("launch", "--artifact", "out/step-*.bin", "--", "true")
    seen = box.stage.does("monitor")
    told: list[str] = []

    def has_room() -> bool:  # a file is complete once nobody has written to it for five seconds
        told.append(box.stage.does("collect", "--live", "--keep-last", "2", "--prune-box"))
        return box.steps() == [kept - 1, kept]

    assert eventually(has_room, within_s=30)
    (box.project / "new.py").write_text("#" * 10_000)
    box.stage.does("push", str(box.project))
    launched = box.stage.does("launch", "--artifact", "out/step-*.bin", "--", "true")

    assert "BOX_DISK_FULL" in again.stderr
    assert f"`gpu-tenant collect {box.lease} --live --keep-last 2 --prune-box`" in again.stderr
    assert "job1" in seen
    assert "disk_full" in seen
    assert "0 MB left" in seen
    assert "only here now  work/out/step-" in told[-1]
    assert not any("removed here" in said for said in told)
    assert "started" in launched
    ended = box.stage.does("collect") + box.stage.does("teardown")
    assert "verified" in ended
    here = list((box.stage.directory / "stage" / "tenant" / "kept").glob("*/work/out/step-*.bin"))
    assert len(here) == kept


def test_room_that_cannot_be_made_is_told(box: SmallBox) -> None:
    box.fills_its_disk()

    said = box.stage.does("collect", "--live", "--keep-last", "100", "--prune-box")

    assert (
        "all: each checkpoint with a proved copy here is one that the policy keeps: the last 100"
        in said
    )
    assert box.free_bytes() == 0


def test_a_box_that_was_full_before_anything_was_put_there_is_given_back(box: SmallBox) -> None:
    with (box.home / "filler").open("wb", buffering=0) as into:
        for block in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    into.write(bytes(block))
            except OSError:
                continue
    assert box.free_bytes() == 0

    pushed = box.stage.ran("push", str(box.project))
    audited = box.stage.ran("audit")
    (box.home / "filler").unlink()
    torn = box.stage.does("teardown")

    assert "BOX_DISK_FULL" in pushed.stderr
    assert pushed.returncode == 4
    assert "blocker  writing in" in audited.stdout
    assert ": gone; " in torn
