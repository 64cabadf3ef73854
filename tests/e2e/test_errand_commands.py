"""`gpu-tenant run` as a person types it, on a box of this computer."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from errands import COMMAND, MODEL, a_tree
from signed import signs_as_told
from terminal import at_a_terminal

PROGRAM = [sys.executable, "-m", "gpu_tenant"]
WAITS_FOR_A_PERSON = 10


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "GPU_TENANT_HOME": str(home / ".gpu-tenant")}


@pytest.fixture
def types(environ: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a line where nobody is at a terminal."""

    def line(*words: str, at: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *words],
            env=environ,
            cwd=at,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=500,
            check=False,
        )

    return line


Types = Callable[..., subprocess.CompletedProcess[str]]


def described(tree: Path, **more: str | int) -> Path:
    """The tree, with a file that says all that does not change."""
    said = {"command": COMMAND, "smoke": "none", "on": "local", **more}
    lines = [f"{name} = {json.dumps(value)}" for name, value in said.items()]
    (tree / "gpu-tenant.toml").write_text(
        "\n".join(["[run]", 'artifacts = ["out/"]', *lines]) + "\n", encoding="utf-8"
    )
    return tree


def test_the_usual_line_is_one_word_beside_its_file(types: Types, tmp_path: Path) -> None:
    tree = described(a_tree(tmp_path / "tree"), to=str(tmp_path / "results"))

    told = types("run", at=tree)

    assert told.returncode == 0, told.stderr
    assert "receipt for local-" in told.stdout
    assert "verified" in told.stdout
    assert (tmp_path / "results/work/out/model.json").read_text().strip() == MODEL


def test_without_a_terminal_it_ends_with_a_list_a_next_command_and_a_status_of_its_own(
    types: Types, home: Path, tmp_path: Path
) -> None:
    tree = described(a_tree(tmp_path / "tree", "echo odd > notes.txt"), unasked_gib=0)

    told = types("run", at=tree)

    assert told.returncode == WAITS_FOR_A_PERSON
    assert "notes.txt" in told.stdout
    (name,) = set(re.findall(r"--resume (run-\w{4})", told.stdout))
    (answer,) = re.findall(rf"`gpu-tenant (run --resume {name} --discard [^`]*)`", told.stdout)

    refused = types(*shlex.split(answer), "--json", at=tree)
    assert "SIGNATURE_WANTED" in refused.stderr
    signs_as_told(refused.stderr, home / ".gpu-tenant")
    ended = types(*shlex.split(answer), "--json", at=tree)

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["ended"]["receipt"]["ground"] == "verified"


def test_the_status_of_a_failed_job_is_1_and_its_box_is_gone(types: Types, tmp_path: Path) -> None:
    told = types("run", at=described(a_tree(tmp_path / "tree", "exit 7")))

    assert told.returncode == 1
    assert "the job is failed" in told.stdout
    assert "receipt for local-" in told.stdout


def test_what_is_captured_without_a_terminal_reads_in_order_on_stdout_alone(
    types: Types, tmp_path: Path
) -> None:
    tree = described(a_tree(tmp_path / "tree", "echo boom >&2; exit 7"))

    told = types("run", at=tree)

    assert told.stderr == ""
    steps = (
        "a box is chosen",
        "the job runs",
        "boom",
        "status 7",
        "proved; only then",
        "receipt for",
        "next:",
    )
    assert [step for step in steps if step not in told.stdout] == [], told.stdout
    assert sorted(steps, key=told.stdout.index) == list(steps)
    assert told.stdout.count("\nboom\n") == 1


def test_a_failed_smoke_tests_log_is_called_that(types: Types, tmp_path: Path) -> None:
    told = types("run", at=described(a_tree(tmp_path / "tree"), smoke="echo broken; exit 3"))

    assert told.returncode == 1
    assert "the end of the smoke test's log, from here:\nbroken\n" in told.stdout


def test_a_run_that_goes_on_refuses_what_it_would_not_hear(types: Types, tmp_path: Path) -> None:
    tree = described(a_tree(tmp_path / "tree"), smoke="exit 3")
    begun = types("run", at=tree)
    (name,) = set(re.findall(r"--resume (run-\w{4})", begun.stdout))

    told = types("run", "--resume", name, "--include", "data/", at=tree)

    assert told.returncode == 2
    assert "a run goes on as it began, and takes no --include" in told.stderr
    assert "`gpu-tenant run " in told.stderr


def test_what_the_file_cannot_have_is_named(types: Types, tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "gpu-tenant.toml").write_text('[run]\ncomand = "x"\n', encoding="utf-8")

    told = types("run", at=tree)

    assert told.returncode == 2
    assert "did you mean `command`?" in told.stderr


def test_ctrl_c_leaves_it_running_says_what_goes_on_and_the_same_line_ends_it(
    environ: dict[str, str], types: Types, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tree = described(a_tree(tmp_path / "tree", f"while [ ! -e {gate} ]; do sleep 0.2; done"))

    with at_a_terminal("run", "--dir", str(tree), env=environ) as terminal:
        terminal.read_until("the job runs")
        terminal.interrupt()
        terminal.read_until("goes on without you")
        shown = terminal.read_until("continues from there")
        status = terminal.ended()

    assert status == 130
    assert "its job runs on under local-" in shown
    assert "watched: " in shown
    gate.touch()

    told = types("run", at=tree)

    assert told.returncode == 0, told.stderr
    assert (tmp_path / "ran").read_text().split() == ["ran"]


def test_at_a_terminal_the_one_question_at_the_end_is_answered_there(
    environ: dict[str, str], tmp_path: Path
) -> None:
    tree = described(a_tree(tmp_path / "tree", "echo odd > notes.txt"), unasked_gib=0)

    with at_a_terminal("run", "--dir", str(tree), env=environ) as terminal:
        terminal.read_until("decide later")
        terminal.type("keep")
        shown = terminal.read_until("receipt for local-")
        status = terminal.ended()

    assert status == 0
    assert shown.count("decide later") == 1
