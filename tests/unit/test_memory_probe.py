"""The smoke test's probe learns what a training keeps, and the command runs as it would without it."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from unit.test_memory_estimate import STEP

from gpu_tenant.files.protected_files import Guarded
from gpu_tenant.jobs import memory_probe
from gpu_tenant.jobs.smoke import SmokeReceipt, smoke
from gpu_tenant.ledger import Ledger

TORCH_PYTHON = os.environ.get("TORCH_PYTHON") or (sys.executable if find_spec("torch") else "")
"""An interpreter that has torch: the suite's own has none, because it is as large as all else together."""
LEARNS = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512))
optimizer = torch.optim.AdamW(model.parameters())
kept = torch.zeros(30_000_000)  # a data set: it is in memory, and on no GPU
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(4096, 512)).square().mean().backward()
    optimizer.step()
"""
ATTENDS = """
import torch
project = torch.nn.Linear(64, 3 * 64)
data_set = bytearray(800_000_000)
optimizer = torch.optim.SGD(project.parameters(), lr=0.1)
def attend(x):
    query, key, value = project(x).view(4, 1024, 3, 4, 16).permute(2, 0, 3, 1, 4)
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1)
for _ in range(2):
    optimizer.zero_grad()
    for _ in range(3):
        attend(torch.randn(4, 1024, 64)).square().mean().backward()
    optimizer.step()
"""
TELLS = (
    "import sys; print(sys.path, sorted(sys.modules), [type(f).__name__ for f in sys.meta_path])"
)


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    place = tmp_path / "probe"
    place.mkdir()
    shutil.copyfile(memory_probe.__file__, place / "sitecustomize.py")
    return place


def told(tree: Path, *words: str, path: str = "", python: str = sys.executable) -> str:
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    if not path:
        del environ["PYTHONPATH"]
    done = subprocess.run(
        [python, *words],
        cwd=tree,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    return re.sub("0x[0-9a-f]+", "0x", f"{done.stdout}{done.stderr}{done.returncode}")


def test_a_command_without_torch_sees_nothing_of_it(tmp_path: Path, probe: Path) -> None:
    with_it = told(tmp_path, "-c", TELLS, path=str(probe))

    assert with_it.replace("'_Waiting', ", "") == told(tmp_path, "-c", TELLS)
    assert list(probe.iterdir()) == [probe / "sitecustomize.py"]


def test_the_commands_own_sitecustomize_runs_once_all_the_same(tmp_path: Path, probe: Path) -> None:
    (tmp_path / "own").mkdir()
    own = "import builtins\nbuiltins.times = getattr(builtins, 'times', 0) + 1\n"
    (tmp_path / "own/sitecustomize.py").write_text(own, encoding="utf-8")
    asks = "import sitecustomize; print(times, sitecustomize.__file__)"

    said = told(tmp_path, "-c", asks, path=os.pathsep.join((str(probe), str(tmp_path / "own"))))

    assert said == f"1 {tmp_path}/own/sitecustomize.py\n0"


def test_a_sitecustomize_that_fails_fails_as_before(tmp_path: Path, probe: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("1 / 0\n", encoding="utf-8")
    own = str(tmp_path / "own")

    with_it = told(tmp_path, "-c", "print(1)", path=os.pathsep.join((str(probe), own)))

    assert with_it == told(tmp_path, "-c", "print(1)", path=own)


@pytest.mark.parametrize("name", ["json", "gc", "atexit", "importlib/abc", "ctypes"])
def test_a_module_of_the_tree_is_found_whatever_the_probe_uses(
    tmp_path: Path, probe: Path, name: str
) -> None:
    tree = tmp_path / "tree"
    (tree / name).parent.mkdir(parents=True)
    (tree / f"{name}.py").write_text("WHOSE = 'the tree'\n", encoding="utf-8")
    module = name.replace("/", ".")
    (tree / "train.py").write_text(
        f"import {module}\nprint({module}.__file__, getattr({module}, 'WHOSE', ''))\n", "utf-8"
    )

    with_it = told(tree, "train.py", path=str(probe))

    assert with_it == told(tree, "train.py")


@pytest.mark.parametrize("torch", ["x = 1\n", "1 / 0\n", None])
def test_what_is_called_torch_and_is_not_imports_as_it_would(
    tmp_path: Path, probe: Path, torch: str | None
) -> None:
    if torch is not None:
        (tmp_path / "torch.py").write_text(torch, encoding="utf-8")
    (tmp_path / "train.py").write_text(
        "import importlib.util\nprint(importlib.util.find_spec('torch'))\nimport torch\nprint(torch.x)\n",
        encoding="utf-8",
    )
    if torch is None and find_spec("torch"):
        return

    assert told(tmp_path, "train.py", path=str(probe)) == told(tmp_path, "train.py")
    assert list(probe.glob("*.json")) == []


async def smoked(
    ledger: Ledger, tmp_path: Path, command: str, limit_s: float = 100, **files: str
) -> SmokeReceipt:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name, text in files.items():
        (tree / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return await smoke(
        tree,
        command,
        time_limit_s=limit_s,
        environ=os.environ,
        ledger=ledger,
        guarded=Guarded((), tmp_path),
    )


async def test_the_peak_is_that_of_the_largest_process(ledger: Ledger, tmp_path: Path) -> None:
    takes = f"{sys.executable} -c 'b\"x\" * (200 << 20)'"

    receipt = await smoked(ledger, tmp_path, f"true; {takes} & wait; sleep 0.01")

    assert receipt.passed, receipt
    assert receipt.peak_bytes is not None
    assert 200 << 20 < receipt.peak_bytes < 300 << 20
    assert receipt.gpu_memory is None


async def test_a_command_that_does_not_end_is_measured_too(ledger: Ledger, tmp_path: Path) -> None:
    receipt = await smoked(ledger, tmp_path, "sleep 600", 1)

    assert not receipt.passed
    assert receipt.peak_bytes


async def test_a_training_is_estimated_and_its_data_set_is_not_counted(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Where no torch is, there is no estimate, and the receipt says nothing of a GPU."""
    receipt = await smoked(
        ledger, tmp_path, f"{TORCH_PYTHON or sys.executable} train.py", train_py=LEARNS
    )

    if not TORCH_PYTHON:
        assert "No module named 'torch'" in receipt.log_tail
        assert receipt.gpu_memory is None
        return
    assert receipt.passed, receipt
    assert receipt.wrote == ()
    assert receipt.gpu_memory is not None
    parts = receipt.gpu_memory.parts
    parameters = 4 * (2 * 512 * 2048 + 2048 + 512)
    assert parts["parameters"] == parts["gradients"] == parameters
    assert parts["optimizer_step"] == pytest.approx(parameters, rel=0.02)
    assert 2 * parameters <= parts["optimizer_state"] <= 2 * parameters + 1024
    # The hidden layer twice, and the outputs, of 4096 rows; the gradients of the backward pass.
    assert 4096 * (2048 + 512) * 4 < parts["batch"] < 3 * 4096 * (2048 + 512) * 4


def test_what_attention_with_dropout_keeps_on_a_cpu_alone_is_noted_once_for_each_backward_pass(
    tmp_path: Path, probe: Path
) -> None:
    """Three batches are computed for each step, and each is freed before the next."""
    (tmp_path / "train.py").write_text(ATTENDS, encoding="utf-8")

    said = told(tmp_path, "train.py", path=str(probe), python=TORCH_PYTHON or sys.executable)

    noted = [json.loads(path.read_text("utf-8")) for path in probe.glob("*.json")]
    if not TORCH_PYTHON:
        assert "No module named 'torch'" in said
        assert noted == []
        return
    assert said == "0"
    square = 4 * 4 * 1024 * 1024 * 4  # of one batch: each head has a row of figures for each word
    kept = [window["attention"] for window in noted[0]["windows"]]
    assert len(kept) == 2
    assert all(2.5 * square < most < 3.5 * square and again == 0 for most, again in kept)


HOSTILE: dict[str, Any] = {
    "not json": "{",
    "deep": "[" * 100_000,
    "huge": json.dumps({**STEP, "buffers": 10**400}),
    "negative": json.dumps({**STEP, "buffers": -1}),
    "no step": json.dumps({**STEP, "windows": []}),
    "a list": "[]",
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_what_the_command_writes_there_itself_is_only_data(
    ledger: Ledger, tmp_path: Path, what: str
) -> None:
    into = 'cp x.json "${PYTHONPATH%%:*}/1.json"; mkfifo "${PYTHONPATH%%:*}/2.json"; ln -s /dev/zero "${PYTHONPATH%%:*}/3.json"'

    receipt = await asyncio.wait_for(smoked(ledger, tmp_path, into, x_json=HOSTILE[what]), 60)

    assert receipt.passed, receipt
    assert receipt.gpu_memory is None
