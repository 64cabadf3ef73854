"""A `run` at a terminal, with nobody else there: while it runs, it holds its lease to the terms."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from arranged import eventually
from e2e.rehearsal import Rehearsal
from terminal import at_a_terminal

pytestmark = pytest.mark.timeout(500)

TRAIN = """\
mkdir -p out
echo '{"loss": 0.1}' >out/model.json
until [ -e "$1" ]; do sleep 0.2; done
"""
HOURS, MAX_USD = "10", "2.5"


def a_tree(root: Path, *last: str) -> Path:
    root.mkdir()
    (root / "train.sh").write_text(TRAIN + "\n".join(last), encoding="utf-8")
    return root


def line(tree: Path, gate: Path) -> list[str]:
    """The run as a person types it."""
    said = [
        "--on",
        "vastai",
        "--hours",
        HOURS,
        "--max-usd",
        MAX_USD,
        "--artifact",
        "out/",
        "--idle-h",
        "0",
        "--yes",
    ]
    return ["run", "--dir", str(tree), "--smoke", "none", *said, "--", "sh", "train.sh", str(gate)]


def environ(stage: Rehearsal) -> dict[str, str]:
    plain = {n: v for n, v in os.environ.items() if not n.startswith(("GPU_TENANT", "VAST"))}
    return {**plain, "HOME": str(stage.directory), **stage.environment}


def watched(stage: Rehearsal) -> str:
    return str(json.loads(stage.does("leases", "--json"))["watched"])


def state_of(stage: Rehearsal) -> dict[str, object]:
    (shown,) = json.loads(stage.does("leases", "--json"))["leases"]
    return dict(shown)


def test_a_run_alone_holds_its_budget_and_brings_the_work_home(
    rehearse: Callable[..., Rehearsal], tmp_path: Path
) -> None:
    stage, gate = rehearse(), tmp_path / "never"
    tree, told = a_tree(tmp_path / "tree"), tmp_path / "told"
    with told.open("w") as out:
        run = subprocess.Popen(
            [sys.executable, "-m", "gpu_tenant", *line(tree, gate)],
            env=environ(stage),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            assert eventually(lambda: "the job runs" in told.read_text(), within_s=120)
            assert eventually(
                lambda: "run` at a terminal, while it runs" in watched(stage), within_s=60
            )
            # The deadline of a run is where its sum would be spent. Only a watch holds a smaller sum.
            stage.does("terms", "--budget-usd", "1")
            for _ in range(16):
                with suppress(subprocess.TimeoutExpired):
                    run.wait(timeout=8)
                    break
                stage.ask("clock", {"advance_s": 3600})
            status = run.wait(timeout=120)
        finally:
            run.kill()
            run.wait()

    said = told.read_text()
    assert status == 1, said
    assert re.search(r"watched +by this run, while it runs", said)
    # After a jump of an hour, the watch and the guard on the box are both due.
    assert "its budget of 1 USD" in said or "the lease's budget ended it" in said, said
    assert "receipt for " in said
    assert "watched from now on" not in said, "nothing bills any more"
    assert stage.ask("meter")["usd_h"] == "0.000000"
    kept = list((stage.directory / "stage").rglob("kept/*/work/out/model.json"))
    assert [json.loads(path.read_text()) for path in kept] == [{"loss": 0.1}]


def test_a_question_that_waits_does_not_stop_the_watch_and_a_run_that_is_left_says_who_watches(
    rehearse: Callable[..., Rehearsal], tmp_path: Path
) -> None:
    stage, gate = rehearse(), tmp_path / "gate"
    tree = a_tree(tmp_path / "tree", "echo odd >notes.txt")
    words = line(tree, gate)
    at = words.index("--")

    with at_a_terminal(
        *words[:at], "--unasked-gib", "0", *words[at:], env=environ(stage)
    ) as terminal:
        terminal.read_until("the job runs")
        gate.touch()
        terminal.read_until("decide later")
        stage.ask("clock", {"advance_s": 40 * 3600})
        assert eventually(lambda: state_of(stage)["phase"] == "parked", within_s=180)
        terminal.type("later")
        shown = terminal.read_until("next:")
        status = terminal.ended()

    assert status == 10
    assert "watched from now on: nobody: " in shown


def test_ctrl_c_ends_the_watch_and_says_so(
    rehearse: Callable[..., Rehearsal], tmp_path: Path
) -> None:
    stage, gate = rehearse(), tmp_path / "never"
    tree = a_tree(tmp_path / "tree")

    with at_a_terminal(*line(tree, gate), env=environ(stage)) as terminal:
        terminal.read_until("the job runs")
        assert eventually(
            lambda: "run` at a terminal, while it runs" in watched(stage), within_s=60
        )
        terminal.interrupt()
        shown = terminal.read_until("continues from there")
        status = terminal.ended()

    assert status == 130
    assert "no watchdog runs now" in shown
    assert "watched: nobody: " in shown
    assert watched(stage).startswith("nobody: ")


def test_a_run_that_ends_with_an_error_says_who_watches_the_box_that_it_leaves_and_what_ends_it(
    rehearse: Callable[..., Rehearsal], tmp_path: Path
) -> None:
    stage = rehearse()
    words = line(a_tree(tmp_path / "tree"), tmp_path / "never")
    at = words.index("--")
    allowed = '[references]\ntoken = "env:NOBODY_HAS_THIS"\n'
    (stage.directory / "stage/tenant/config.toml").write_text(allowed, encoding="utf-8")

    ran = stage.ran(*words[:at], "--env", "TOKEN=env:NOBODY_HAS_THIS", *words[at:])

    assert ran.returncode not in (0, 10), ran
    assert "NOBODY_HAS_THIS" in ran.stderr
    left = "goes on without you: its box is kept under "
    assert left in ran.stderr, ran
    assert ", until its deadline in " in ran.stderr.partition(left)[2]
    assert "watched: nobody: " in ran.stderr
    assert watched(stage).startswith("nobody: ")
