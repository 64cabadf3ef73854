"""A work tree is read in a process of its own, which ends with whoever asked for it."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from arranged import PATIENCE_S

from gpu_tenant.artifacts.work_tree import read_work_tree
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.files.worktree import read_tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with ignored data, and an odd name."""
    root = tmp_path / "tree"
    (root / "data").mkdir(parents=True)
    (root / ".gitignore").write_text("data/\n", encoding="utf-8")
    (root / "data/a.bin").write_bytes(b"1" * 3000)
    (root / "train.py").touch()
    (root / "odd\udcff\n").touch()
    return root


@pytest.fixture
def endless(tree: Path) -> Path:
    """A tree with a link to everything on this computer, which nobody reads in a moment."""
    (tree / "everything").symlink_to("/")
    return tree


def children() -> set[int]:
    """The living processes that this one has started."""
    return {
        pid
        for task in Path("/proc/self/task").iterdir()
        for pid in map(int, (task / "children").read_text(encoding="ascii").split())
    }


async def test_the_process_finds_what_this_one_would_find(tree: Path) -> None:
    assert await read_work_tree(tree) == read_tree(tree)
    assert await read_work_tree(tree, ["data/"]) == read_tree(tree, ["data/"])


async def test_a_process_that_ends_by_itself_is_waited_for_once(
    tree: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(8):
        await read_work_tree(tree)

    assert "Unknown child process" not in caplog.text, "its exit status was taken by another"


async def test_what_is_refused_is_refused_in_the_same_words(tree: Path) -> None:
    with pytest.raises(BadRequest) as here:
        read_tree(tree, ["nothing"])
    with pytest.raises(BadRequest) as there:
        await read_work_tree(tree, ["nothing"])

    assert str(there.value) == str(here.value)


async def test_a_directory_that_is_gone_is_an_error_of_this_system(tree: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await read_work_tree(tree / "gone")


async def test_a_call_that_is_cancelled_leaves_no_process_and_holds_nobody_up(
    endless: Path,
) -> None:
    before = children()
    reading = asyncio.create_task(read_work_tree(endless, ["everything"]))
    give_up, longest_s = time.monotonic() + PATIENCE_S, 0.0
    while not (begun := children() - before):
        began_s = time.monotonic()
        await asyncio.sleep(0)
        longest_s = max(longest_s, time.monotonic() - began_s)
        assert time.monotonic() < give_up

    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert not begun & children()
    assert longest_s < 5


def test_the_process_ends_when_whoever_asked_is_gone(endless: Path) -> None:
    asked = {"directory": os.fspath(endless), "include": ["everything"]}
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "gpu_tenant.artifacts.work_tree_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert worker.stdin
    worker.stdin.write(json.dumps(asked).encode() + b"\n")
    worker.stdin.close()

    assert worker.wait(PATIENCE_S) == 1
