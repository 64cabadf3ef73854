"""Which checkpoints are whole by their jobs' own conventions, at what pace they are read, and what may be removed."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from box_scripts.caretaker import pace
from box_scripts.caretaker.checkpoints import find_unfinished
from box_scripts.caretaker.mounts import far_devices
from box_scripts.caretaker.patterns import Segment
from box_scripts.caretaker.prune import _unlink_all

CARETAKER = Path(__file__).parents[2] / "scripts" / "caretaker.py"
NOW_NS = 1_800_000_000 * 10**9
QUIET_NS = 5 * 10**9
Reply = dict[str, Any]


def held_back(
    ages_s: dict[str, float], *, busy: Sequence[str] = (), done: Sequence[str] = ()
) -> set[str]:
    """Of files below /w that were written so many seconds ago, those that a look leaves."""
    listing: dict[bytes, dict[bytes, tuple[int, int]]] = {}
    files = {os.fsencode(f"/w/{name}"): int(NOW_NS - age * 1e9) for name, age in ages_s.items()}
    for path, at_ns in files.items():
        directory, name = os.path.split(path)
        listing.setdefault(directory, {})[name] = (at_ns, at_ns)
        while directory != b"/w":
            directory, name = os.path.split(directory)
            listing.setdefault(directory, {}).setdefault(name, (at_ns, at_ns))
    matches = [Segment(text).matches_escaped for text in done]
    found = find_unfinished(
        files,
        {os.fsencode(f"/w/{name}") for name in busy},
        listing,
        b"/w",
        NOW_NS,
        QUIET_NS,
        matches,
    )
    return {os.fsdecode(path)[3:] for path in found}


@pytest.mark.parametrize(
    "name",
    [
        "out/model.pt.tmp",
        "out/model.pt.tmp.x8_a",
        "out/w.partial",
        "out/w.incomplete",
        "out/w.part",
        "tmp-checkpoint-5/model.bin",
        "ck/2000.orbax-checkpoint-tmp-4/d/a",
        "ck/9.orbax-checkpoint-tmp/a",
    ],
)
def test_what_bears_a_temporary_name_is_not_taken_however_old_it_is(name: str) -> None:
    assert held_back({name: 100_000}) == {name}


@pytest.mark.parametrize("name", ["out/room_temp.csv", "tmp/a.pt", "out/part.bin", "out/.new"])
def test_a_name_that_only_looks_like_one_is_taken(name: str) -> None:
    assert held_back({name: 10}) == set()


def test_a_directory_of_transformers_is_whole_once_its_last_file_is_there() -> None:
    saving = {"c/checkpoint-100/model.safetensors": 30.0, "c/checkpoint-100/optimizer.pt": 20.0}
    saved = {**saving, "c/checkpoint-100/trainer_state.json": 12.0}
    # versions of some years ago wrote their random states just after it
    older = {**saved, "c/checkpoint-100/rng_state.pth": 11.5}

    assert held_back(saving) == set(saving)
    assert held_back(saved) == held_back(older) == set()
    assert held_back({**saved, "c/checkpoint-100/optimizer.pt": 6.0}) == {*saved}, (
        "one that is written anew over an older one"
    )


def test_a_directory_around_the_work_directory_is_no_checkpoint_whatever_it_is_called() -> None:
    work, old, new = b"/w/checkpoint-5/tree", b"/w/checkpoint-5/tree/a.json", b"/w/checkpoint-5/new"
    dated = {old: NOW_NS - 2 * QUIET_NS, new: NOW_NS - 1}
    listing = {b"/w/checkpoint-5/tree": {b"a.json": (dated[old],) * 2}}
    listing[b"/w/checkpoint-5"] = {b"tree": (dated[new],) * 2, b"new": (dated[new],) * 2}

    assert find_unfinished([old], set(), listing, work, NOW_NS, QUIET_NS, []) == set()


def test_what_no_rule_fits_is_taken_after_a_while() -> None:
    assert held_back({"c/checkpoint-100/my_weights.bin": 30}) != set()
    assert held_back({"c/checkpoint-100/my_weights.bin": 700}) == set()


def test_a_checkpoint_with_other_files_than_is_usual_is_whole_once_the_next_is_begun() -> None:
    first = {"c/checkpoint-100/weights.bin": 40.0}

    assert held_back(first) == {*first}
    assert held_back({**first, "c/checkpoint-200/weights.bin": 9.0}) == {
        "c/checkpoint-200/weights.bin"
    }
    assert held_back({**first, "c/checkpoint-50/weights.bin": 9.0}) >= {*first}


@pytest.mark.parametrize(
    ("files", "last"),
    [
        (["d/step-5/__0_0.distcp"], "d/step-5/.metadata"),
        (
            ["d/checkpoint-9/model.safetensors", "d/checkpoint-9/optimizer.bin"],
            "d/checkpoint-9/random_states_0.pkl",
        ),
        (["d/global_step40/mp_rank_00_model_states.pt"], "d/latest"),
        (["d/iter_0000400/mp_rank_00/x.pt"], "d/latest_checkpointed_iteration.txt"),
        (
            ["d/step-7/model-00001-of-00002.safetensors"],
            "d/step-7/model-00002-of-00002.safetensors",
        ),
    ],
)
def test_a_known_frameworks_checkpoint_is_whole_with_what_it_writes_last(
    files: list[str], last: str
) -> None:
    before = dict.fromkeys(files, 30.0)

    assert held_back(before) == set(files)
    assert held_back({**before, last: 20.0}) == set()
    if "-of-" not in last:
        assert held_back({**before, last: 400.0}) >= set(files), "that was of the one before"


def test_a_checkpoint_is_left_as_long_as_anything_in_it_is_written_but_not_for_its_log() -> None:
    of_it = ["s/step-3/a.pt", "s/step-3/deep/b.pt"]

    assert held_back({of_it[0]: 20, of_it[1]: 2}, busy=of_it[1:]) == set(of_it)
    assert held_back({of_it[0]: 20, "s/step-3/log.txt": 1}, busy=["s/step-3/log.txt"]) == {
        "s/step-3/log.txt"
    }
    assert held_back({"run-3/a.pt": 20, "run-3/b.pt": 1}, busy=["run-3/b.pt"]) == {"run-3/b.pt"}


def test_a_mark_that_one_of_its_like_had_is_waited_for_and_so_is_one_that_the_owner_names() -> None:
    first = {"o/step-10/a.pt": 90, "o/step-10/.done": 80}

    assert held_back({**first, "o/step-20/a.pt": 20}) == {"o/step-20/a.pt"}
    assert held_back({**first, "o/step-20/a.pt": 20, "o/step-20/.done": 15}) == set()
    assert held_back({"ckpt-1.pt": 90, "ckpt-1.pt.done": 80, "ckpt-10.pt": 20}) == {"ckpt-10.pt"}
    assert held_back({"o/step-20/a.pt": 20}, done=["*.ok"]) == {"o/step-20/a.pt"}
    assert held_back({"o/step-20/a.pt": 20, "o/step-20.ok": 15}, done=["*.ok"]) == set()
    assert held_back({"o/results.pt": 20}, done=["*.ok"]) == set()


def test_a_mark_of_the_unfinished_beside_it_is_believed() -> None:
    assert held_back({"x/m-step=5.ckpt": 20, "x/m-step=5-unfinished": 20}) == {"x/m-step=5.ckpt"}


def test_files_that_another_machine_dates_are_known_by_their_mount() -> None:
    mounts = (
        "36 25 0:34 / /mnt/a rw - nfs4 host:/x rw\n37 25 8:1 / / rw,relatime shared:1 - ext4 /dev/x rw\n"
        "38 25 0:40 / /mnt/b rw - fuse.sshfs h:/ rw\n"
    )

    assert far_devices(mounts) == {os.makedev(0, 34), os.makedev(0, 40)}


class Hours:
    """The time of a thread that computes and sleeps as a test says."""

    def __init__(self) -> None:
        self.passed_s = self.computed_s = 0.0

    def monotonic(self) -> float:
        return self.passed_s

    def thread_time(self) -> float:
        return self.computed_s

    def sleep(self, seconds: float) -> None:
        self.passed_s += seconds

    def compute(self, seconds: float) -> None:
        self.computed_s += seconds
        self.passed_s += seconds


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    made = Hours()
    monkeypatch.setattr(pace, "time", made)
    return made


def test_whoever_rests_after_each_piece_works_its_share_of_the_time(
    hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "_read_bytes", str)  # nothing comes from a disk
    turn = pace.Pace(0.25)
    for _ in range(100):
        hours.compute(0.02)
        turn.rest()

    assert hours.computed_s / hours.passed_s == pytest.approx(0.25)


def test_who_waits_for_a_core_has_taken_nothing_and_owes_no_rest(
    hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "_read_bytes", str)
    turn = pace.Pace(0.25)
    hours.compute(0.02)
    hours.passed_s = 1.0

    turn.rest()

    assert hours.passed_s == 1.0


def test_while_it_reads_from_a_disk_all_of_the_time_is_work(
    hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(("read_bytes: 0", "read_bytes: 4096", "read_bytes: 4096"))
    monkeypatch.setattr(pace, "_read_bytes", lambda: next(counts))
    turn = pace.Pace(0.25)
    hours.passed_s = 1.0

    turn.rest()

    assert hours.passed_s == 4.0


# --- on a box -----------------------------------------------------------------------------------


class Box:
    """A work directory with checkpoints, and a caretaker."""

    def __init__(self, root: Path) -> None:
        self.home, self.work = root / "home", root / "work"
        self.out = self.work / "out"
        self.out.mkdir(parents=True)

    def ask(self, verb: str, **request: Any) -> Reply:
        argv = [
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
        asked = {"work": str(self.work), "artifacts": ["out/"], **request}
        done = subprocess.run(
            argv, input=json.dumps(asked), capture_output=True, text=True, check=False
        )
        reply: Reply = json.loads(done.stdout)
        return reply

    def saves(self, step: int) -> Path:
        made = self.out / f"step-{step}"
        made.mkdir()
        for name in ("a.pt", "b.pt"):
            (made / name).write_text(f"{step} {name}", encoding="utf-8")
        return made

    def named(self, made: Path) -> Reply:
        """The checkpoint as a look tells of it."""
        seen = self.ask("complete", quiet_s=0)
        files = [
            {k: e[k] for k in ("at", "size", "sha256", "mtime_ns")}
            | {"ino": seen["inodes"][e["name"]]}
            for e in seen["files"]
            if e["at"].startswith(f"{made}/")
        ]
        return {"at": str(made), "files": files}

    def prune(self, *checkpoints: Reply, **request: Any) -> tuple[list[str], list[str]]:
        reply = self.ask("prune", checkpoints=list(checkpoints), **request)
        assert reply["ok"], reply
        return (
            [Path(at).name for at in reply["pruned"]],
            [kept["why"].partition(":")[0] for kept in reply["refused"]],
        )


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_a_look_says_what_it_takes_of_the_box(box: Box) -> None:
    box.saves(1)
    seen = box.ask("complete", quiet_s=0, share=0.5)

    assert seen["pace"].startswith("at most 0.5 of one core's time and of its disk's, at nice ")
    assert seen["running"] == []


def test_a_date_in_the_future_is_looked_at_twice(box: Box) -> None:
    made = box.saves(1)
    for name in ("a.pt", "b.pt"):
        os.utime(made / name, (4e9, 4e9))

    assert len(box.ask("complete", quiet_s=0.1)["files"]) == 2


def test_an_older_checkpoint_is_removed_whole_and_logged_and_the_newest_never(box: Box) -> None:
    old, new = box.saves(1), box.saves(2)
    named = box.named(old)
    pruned = box.prune(named, box.named(new))

    assert pruned == (["step-1"], ["nothing newer of its kind is on the box"])
    assert [path.name for path in box.out.iterdir()] == ["step-2"]
    (line,) = (box.home / "pruned").read_text("utf-8").splitlines()
    assert json.loads(line)["files"] == named["files"]


@contextmanager
def changed(box: Box, old: Path) -> Any:
    held = (old / "a.pt").stat()
    (old / "a.pt").write_text("1 x.pt", encoding="utf-8")
    os.utime(old / "a.pt", ns=(held.st_atime_ns, held.st_mtime_ns))
    yield


@contextmanager
def replaced(box: Box, old: Path) -> Any:
    (old / "new").write_text("1 a.pt", encoding="utf-8")
    (old / "new").replace(old / "a.pt")
    yield


@contextmanager
def more(box: Box, old: Path) -> Any:
    (old / "notes").write_text("mine", encoding="utf-8")
    yield


@contextmanager
def linked(box: Box, old: Path) -> Any:
    (box.out / "best").symlink_to("step-1")
    yield


@contextmanager
def opened(box: Box, old: Path) -> Any:
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; f = open(sys.argv[1]); print(flush=True); sys.stdin.read()",
            str(old / "b.pt"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdin is not None
        reader.stdout.readline()
        yield
        reader.stdin.close()


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (changed, "it is not as it was"),
        (replaced, "it is not as it was"),
        (more, "there is more in it than was named"),
        (linked, "a link leads to it"),
        (opened, "a process has it open"),
    ],
)
def test_a_checkpoint_that_is_not_exactly_as_named_or_is_in_use_stays_whole(
    box: Box, meanwhile: Any, why: str
) -> None:
    old, _ = box.saves(1), box.saves(2)
    named = box.named(old)
    with meanwhile(box, old):
        assert box.prune(named) == ([], [why])

    assert {"a.pt", "b.pt"} <= {path.name for path in old.iterdir()}


def test_nothing_goes_that_a_declared_pattern_would_miss_or_that_nobody_declared(box: Box) -> None:
    old, _ = box.saves(1), box.saves(2)
    named = box.named(old)
    whole = ["it is all that is left of the artifact out/step-1/"]

    assert box.prune(named, artifacts=["out/", "out/step-1/"]) == ([], whole)
    assert box.prune(named, artifacts=["out/step-2/"]) == (
        [],
        ["it is no declared artifact, or is gone"],
    )
    assert box.prune({**named, "at": f"{old}/../step-1"})[1] == ["it is not where it was named"]


def test_what_came_in_its_place_at_the_last_moment_is_put_back(box: Box) -> None:
    old = box.saves(1)
    held = (old / "a.pt").stat()
    asked = {
        os.fsencode(old / "a.pt"): (held.st_size, "", held.st_mtime_ns, held.st_ino),
        os.fsencode(old / "b.pt"): (1, "", 1, 1),
    }

    why = _unlink_all(os.fsencode(old), asked)

    assert why.startswith("it was changed at the last moment")
    assert sorted(path.name for path in old.iterdir()) == ["a.pt", "b.pt"]
