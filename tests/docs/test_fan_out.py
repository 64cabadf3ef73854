"""A sweep by hand, as its page prints it: `cells.py` writes here what `worker.sh` reads on the box."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from parts import required

PAGE = (Path(__file__).resolve().parents[2] / "references/fan-out.md").read_text("utf-8")
CELLS, WORKER, RECONCILE = (
    next(
        code
        for code in re.findall(r"```(?:python|sh)\n(.*?)```", PAGE, re.DOTALL)
        if re.search(mark, code)
    )
    for mark in (r"\A# cells\.py", r"\A# worker\.sh", r"comm -23")
)
TRAIN = """
import json
import pathlib
import sys

asked = dict(zip(sys.argv[1::2], sys.argv[2::2]))
cell = json.loads(pathlib.Path(asked["--cell"]).read_text())
if cell["seed"] == 2 and not pathlib.Path("mended").exists():
    sys.exit("seed 2 does not run")
pathlib.Path(asked["--out"], "cell.json").write_text(json.dumps(cell))
"""
ACCEPT = """
import pathlib
import sys

pathlib.Path(sys.argv[1], "cell.json").read_bytes()
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    required("bash", "jq")
    for name, text in {
        "cells.py": CELLS,
        "worker.sh": WORKER,
        "train.py": TRAIN,
        "accept.py": ACCEPT,
        "reconcile.sh": RECONCILE.replace("KEPT/work/", ""),
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "cells.py"], cwd=tmp_path, check=True)
    return tmp_path


def runs(tree: Path, script: str) -> str:
    command = ["bash", "-c", f"GPU=0 sh {script}" if script == "worker.sh" else f"bash {script}"]
    done = subprocess.run(
        command, cwd=tree, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout


def done(tree: Path) -> set[str]:
    return {path.parent.name for path in tree.glob("out/*/done")}


def test_the_worker_runs_every_cell_of_the_roster_by_its_own_file(tree: Path) -> None:
    (tree / "mended").touch()
    cells = [json.loads(line) for line in (tree / "roster.jsonl").read_text("utf-8").splitlines()]

    runs(tree, "worker.sh")

    assert len(cells) == 12
    assert done(tree) == {cell["name"] for cell in cells}
    for cell in cells:
        assert json.loads((tree / "out" / cell["name"] / "cell.json").read_text("utf-8")) == cell
    assert runs(tree, "reconcile.sh") == ""


def test_a_cell_that_failed_is_named_and_runs_once_its_claim_is_gone(tree: Path) -> None:
    runs(tree, "worker.sh")

    missing = {name for name in runs(tree, "reconcile.sh").splitlines() if "-seed2-" in name}
    assert len(missing) == 4
    assert len(done(tree)) == 8

    (tree / "mended").touch()
    runs(tree, "worker.sh")
    assert len(done(tree)) == 8, "its claim stands"
    subprocess.run(["rm", "-r", "claims"], cwd=tree, check=True)
    runs(tree, "worker.sh")
    assert runs(tree, "reconcile.sh") == ""
