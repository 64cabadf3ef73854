"""The demo job, killed at any instant, goes on as if it had not been."""

import ast
import json
import resource
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

JOB = Path(__file__).parents[2] / "mcp_server/gpu_tenant/faces/demo/job"
EPOCHS = 2
DEADLINE_S = 120


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, str(JOB / "train.py"), "--out", str(out), *more]


def start(out: Path) -> subprocess.Popen[str]:
    asked = command(out, "--epochs", str(EPOCHS))
    return subprocess.Popen(asked, stdout=subprocess.PIPE, encoding="utf-8")


def finish(out: Path) -> str:
    with start(out) as job:
        said, _ = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0
    return said


def kill_when(out: Path, due: Callable[[str], bool], number: int = signal.SIGKILL) -> int:
    """The exit status of a run that got the signal at the first line for which `due` holds."""
    with start(out) as job:
        assert job.stdout is not None
        next(line for line in job.stdout if due(line))
        job.send_signal(number)
        job.communicate(timeout=DEADLINE_S)
    return job.returncode


def tensors(path: Path) -> dict[str, bytes]:
    """Each tensor's bytes. Fails on a file that is not whole."""
    content = path.read_bytes()
    start = 8 + int(struct.unpack("<Q", content[:8])[0])
    header = json.loads(content[8:start])
    header.pop("__metadata__")
    spans = {name: entry["data_offsets"] for name, entry in header.items()}
    assert start + max(last for _, last in spans.values()) == len(content), f"{path.name} is torn"
    return {name: content[start + first : start + last] for name, (first, last) in spans.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    finish(out)
    return out


@pytest.mark.parametrize("place", ["epoch 1/2 step 5/", "epoch 2/2 step 5/", "epoch 2/2 step 45/"])
def test_a_run_killed_anywhere_ends_with_the_same_bits(
    place: str, tmp_path: Path, undisturbed: Path
) -> None:
    kill_when(tmp_path, lambda line: line.startswith(place))

    said = finish(tmp_path)

    assert said.startswith("resumed from epoch ")
    for name in ("model.safetensors", "resume.safetensors"):
        assert tensors(tmp_path / name) == tensors(undisturbed / name)
    assert (tmp_path / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["resumed"] == 1


def test_a_run_killed_while_it_writes_ends_with_the_same_bits(
    tmp_path: Path, undisturbed: Path
) -> None:
    with start(tmp_path) as job:
        give_up_at = time.monotonic() + DEADLINE_S
        while not (caught := list(tmp_path.glob("*.tmp"))) and time.monotonic() < give_up_at:
            pass
        job.kill()
    assert caught

    finish(tmp_path)

    model = tmp_path / "model.safetensors"
    assert model.read_bytes() == (undisturbed / "model.safetensors").read_bytes()
    assert list(tmp_path.glob("*.tmp")) == []


def test_a_run_asked_to_stop_saves_in_mid_epoch_and_goes_on_from_there(
    tmp_path: Path, undisturbed: Path
) -> None:
    status = kill_when(tmp_path, lambda line: "epoch 1/2 step 10/" in line, signal.SIGTERM)

    said = finish(tmp_path)

    assert status == 143
    assert said.startswith("resumed from epoch 0, at step 1")
    model = tmp_path / "model.safetensors"
    assert model.read_bytes() == (undisturbed / "model.safetensors").read_bytes()


def test_no_reader_ever_finds_a_torn_file(tmp_path: Path) -> None:
    reads = 0
    with start(tmp_path) as job:
        while job.poll() is None:
            for path in tmp_path.glob("*.safetensors"):
                tensors(path)
                reads += 1
            for path in tmp_path.glob("*.jsonl"):
                assert all(map(json.loads, path.read_text(encoding="utf-8").splitlines()))
        job.communicate()
    assert reads > 100


def test_the_model_tells_the_kinds_apart_and_the_lines_tell_of_it(undisturbed: Path) -> None:
    report = json.loads((undisturbed / "report.json").read_text(encoding="utf-8"))
    epochs = [
        json.loads(line)
        for line in (undisturbed / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]

    assert report["accuracy"] > 0.75  # chance is 1/3; the ten epochs of the demo pass 0.9
    assert [line["epoch"] for line in epochs] == [1, 2]
    assert epochs[1]["loss"] < epochs[0]["loss"]


def test_a_finished_run_started_again_changes_no_weight(tmp_path: Path) -> None:
    finish(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()

    said = finish(tmp_path)

    assert said.splitlines()[0] == f"resumed from epoch {EPOCHS}"
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_another_seed_is_refused_where_a_run_lies(undisturbed: Path) -> None:
    asked = command(undisturbed, "--seed", "7")

    refused = subprocess.run(asked, capture_output=True, encoding="utf-8", check=False)

    assert refused.returncode == 1
    assert "give --seed 0" in refused.stderr


def test_the_smoke_test_takes_a_second_and_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    smoke = subprocess.run(
        command(tmp_path / "out", "--smoke"), capture_output=True, encoding="utf-8", check=True
    )

    assert smoke.stdout.startswith("smoke passed: 2 steps")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3  # 0.2 s
    assert list(tmp_path.iterdir()) == []


def test_the_job_is_written_for_python_3_9() -> None:
    ast.parse((JOB / "train.py").read_text(encoding="utf-8"), feature_version=(3, 9))


def test_the_windows_shipped_are_as_many_of_every_kind_in_both_sets() -> None:
    lines = (JOB / "letters.csv").read_text(encoding="utf-8").splitlines()
    windows = [[int(number) for number in line.split(",")] for line in lines]

    assert {len(window) for window in windows} == {65}
    assert {number for window in windows for number in window[:64]} == set(range(17))
    assert Counter(window[64] for window in windows[:1440]) == dict.fromkeys(range(3), 480)
    assert Counter(window[64] for window in windows[1440:]) == dict.fromkeys(range(3), 120)


def counted(checkout: Path) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, str(JOB / "count_letters.py"), str(checkout)]
    return subprocess.run(asked, capture_output=True, encoding="utf-8", check=False)


def test_the_same_text_is_counted_the_same_and_never_trained_on_and_tested_with(
    tmp_path: Path,
) -> None:
    for kind in ("py", "md", "json"):
        (tmp_path / f"text.{kind}").write_text("a" * 16_000 + "b" * 4_000, encoding="utf-8")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/of_others.py").write_text("c" * 20_000, encoding="utf-8")

    first, second = counted(tmp_path), counted(tmp_path)

    assert first.stdout == second.stdout
    windows = [line.split(",") for line in first.stdout.splitlines()]
    a, b, c = 0, 1, 2
    assert {(window[a], window[b]) for window in windows[:1440]} == {("16", "0")}
    assert {(window[a], window[b]) for window in windows[1440:]} == {("0", "16")}
    assert {window[c] for window in windows} == {"0"}


def test_a_tree_with_too_little_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.py").write_text("a" * 20_000, encoding="utf-8")

    refused = counted(tmp_path)

    assert refused.returncode == 1
    assert "too little text" in refused.stderr
