"""The house style, where a tool can hold it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "tool", ["ruff check .", "ruff format --check .", "mypy"], ids=["lint", "format", "types"]
)
def test_the_tree_is_clean(tool: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", *tool.split()],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
