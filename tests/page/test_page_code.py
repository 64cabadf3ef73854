"""The code of the page and of the card: linted, formatted, and typed by what the server really sends."""

import re
import subprocess
from pathlib import Path

import pytest
from parts import lacks, required

HERE = Path(__file__).parent
FACES = HERE.parents[1] / "mcp_server" / "gpu_tenant" / "faces"
LONGEST = 120
TEXT_ALONE = re.compile(r"""^\s*(?:(?:\w+|"[^"]*"): )?["`'].*["`'][,;:]?$""")
"""A line that is one text, which is not broken for a column."""


def scripts() -> list[Path]:
    """Every script that is our own."""
    places = (FACES / "dashboard" / "page", FACES / "mcp" / "chat_card")
    found = [path for place in places for path in place.rglob("*.js")]
    return sorted(path for path in found if "vendor" not in path.parts)


@pytest.fixture(scope="module")
def tools() -> Path:
    """The directory of the tools, which npm installs once by the lock file."""
    required("npm")
    # Not `npm ci`: it wants the programs of every system in the lock, and npm wrote this system's alone.
    if not (HERE / "node_modules" / ".package-lock.json").is_file():
        brought = subprocess.run(
            ["npm", "install", "--no-save", "--silent"],
            cwd=HERE,
            capture_output=True,
            text=True,
            check=False,
        )
        if brought.returncode:
            lacks("the tools of tests/page/package.json", f"npm install --no-save --prefix {HERE}")
    return HERE


@pytest.mark.parametrize("check", ["lint", "types"])
def test_the_code_is_clean(tools: Path, check: str) -> None:
    ran = subprocess.run(
        ["npm", "run", "--silent", check], cwd=tools, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_line_is_too_long_to_read() -> None:
    """The formatter leaves markup within templates as it is."""
    long = [
        f"{path.name}:{number}: {len(line)}"
        for path in scripts()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > LONGEST and not TEXT_ALONE.match(line)
    ]

    assert scripts()
    assert long == []


PAGE = FACES / "dashboard" / "page"
IMPORT = re.compile(r'^(?:import|export)\b[^;]*?from "(\.[^"]+)";', re.MULTILINE)


def needed_by(name: str, known: set[str]) -> set[str]:
    """That module, and every module that has to be there before it runs."""
    if name not in known:
        known.add(name)
        for to in IMPORT.findall((PAGE / name).read_text("utf-8")):
            needed_by(((PAGE / name).parent / to).resolve().relative_to(PAGE).as_posix(), known)
    return known


def test_every_module_of_the_first_view_is_asked_for_at_once_and_the_chart_library_is_not() -> None:
    told = re.findall(
        r'rel="modulepreload" href="/page/([^"]+)"', (PAGE / "index.html").read_text("utf-8")
    )

    assert sorted(told) == sorted(needed_by("app.js", set()) - {"app.js"})
    assert "parts/overview.js" in told
    assert "vendor/uplot.js" not in told
