"""Every script is one file for a box that we did not choose."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
PYTHON = sorted(at.name for at in SCRIPTS.glob("*.py"))
CARRIED = {"caretaker.py": {"box_scripts"}}  # its parts, which a test of its own reads
WITHOUT_HELP = ("courier.py", "prepare.py")  # one is never stored, the other takes two verbs alone


@pytest.mark.parametrize("name", PYTHON)
def test_it_is_python_3_7_and_imports_nothing_but_the_library(name: str) -> None:
    tree = ast.parse((SCRIPTS / name).read_text(encoding="utf-8"), feature_version=(3, 7))

    imports = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imports |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in imports} <= sys.stdlib_module_names | CARRIED.get(
        name, set()
    )


@pytest.mark.parametrize("name", [name for name in PYTHON if name not in WITHOUT_HELP])
def test_help_tells_how_it_is_called(name: str) -> None:
    said = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPTS / name), "--help"], capture_output=True, check=True
    ).stdout.decode()

    assert name in said
    assert "usage" in said


def test_no_line_of_a_shell_script_ends_as_on_windows() -> None:
    assert b"\r\n" not in (SCRIPTS / "mirrors.sh").read_bytes()
