"""`gpu-tenant demo`, as somebody runs it who has just installed it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

PICTURED = Path(__file__).parent / "pictures/demo.txt"
"""The second half of a demo; `make docs` draws the README's picture of it."""

LIMIT_S = 170
"""What the README promises."""


@dataclass(frozen=True)
class Toured:
    """A demo that has ended."""

    home: Path
    kept: Path
    status: int
    said: str


def environment(home: Path) -> dict[str, str]:
    """This environment with another home, and nothing in it that is meant for gpu-tenant."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_TENANT")}
    return {**kept, "HOME": str(home), "TMPDIR": str(home / "tmp")}


def gpu_tenant(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpu_tenant", *words],
        env=environment(home),
        cwd=home,
        timeout=LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )


@pytest.fixture(scope="module")
def toured(home: Path) -> Toured:
    (home / "tmp").mkdir()
    demo = gpu_tenant(home, "demo")
    (kept,) = (home / "tmp").glob("gpu-tenant-demo-*")
    return Toured(home, kept, demo.returncode, demo.stdout)


def test_the_demo_goes_through_its_steps_in_order_and_ends_well(toured: Toured) -> None:
    assert toured.status == 0, toured.said
    assert re.findall(r"^\[step (\d)\]", toured.said, re.MULTILINE) == list("1234567")


def test_its_job_is_killed_and_goes_on_from_its_checkpoint(toured: Toured) -> None:
    logs = {path.stem: path.read_text(encoding="utf-8") for path in toured.kept.rglob("*.log")}
    report = json.loads((toured.kept / "work/out/report.json").read_text(encoding="utf-8"))

    assert "  train: killed (" in toured.said
    assert "done:" not in logs["train"]
    (resumed,) = re.findall(r"^resumed from epoch [1-9].*$", logs["train-again"], re.MULTILINE)
    assert resumed in toured.said
    assert (report["resumed"], report["epochs"]) == (1, 10)


def test_its_job_learns(toured: Toured) -> None:
    lines = (toured.kept / "work/out/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    epochs = [json.loads(line) for line in lines]

    assert [line["epoch"] for line in epochs] == list(range(1, 11))
    assert epochs[-1]["loss"] < epochs[4]["loss"] < epochs[0]["loss"]
    assert epochs[-1]["val_acc"] > 0.9


def test_a_teardown_is_refused_before_the_collect_and_proved_after_it(toured: Toured) -> None:
    refused = toured.said.index("  refused: ")
    collected = re.search(r"^local-\w+: \d+ files, .*, in /", toured.said, re.MULTILINE)
    receipt = re.search(
        r"^receipt for .*: gone; verified: nothing was lost$", toured.said, re.MULTILINE
    )

    assert collected
    assert receipt
    assert refused < collected.start() < receipt.start()
    assert "because this would be lost: " in toured.said[refused : collected.start()]


def test_the_picture_of_the_readme_shows_what_the_demo_says(toured: Toured) -> None:
    """By the first two words of each line: sums, times and names differ from run to run."""
    if os.environ.get("GPU_TENANT_SNAPSHOTS") == "write":
        PICTURED.write_text(toured.said[toured.said.index("[step 5]") :], encoding="utf-8")

    def beginnings(said: str) -> list[str]:
        lines = [re.sub(r"\d\S*|local-\w+", "#", line).split() for line in said.splitlines()]
        return [" ".join(words[:2]) for words in lines]

    shown = beginnings(PICTURED.read_text(encoding="utf-8"))

    assert len(shown) > 15
    assert [words for words in shown if words not in beginnings(toured.said)] == []


def test_nothing_of_it_is_left_but_what_was_kept_and_the_ledger(
    toured: Toured, in_boxes: Callable[[], list[int]]
) -> None:
    assert in_boxes() == []
    assert list((toured.home / ".gpu-tenant/boxes").iterdir()) == []
    assert [entry.name for entry in (toured.home / "tmp").iterdir()] == [toured.kept.name]

    listed = json.loads(gpu_tenant(toured.home, "leases", "--all", "--json").stdout)
    assert [lease["state"] for lease in listed["leases"]] == ["gone"]
    assert listed["alarms"] == []
