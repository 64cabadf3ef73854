"""The wheel, built here, and installed where nothing of the checkout can be seen."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "mcp_server/gpu_tenant"
SKILL = ("SKILL.md", "agents", "profiles", "references", "scripts")
"""What the program reads at run time besides its own modules; `references` may not exist."""


def run(*argv: str | Path, cwd: Path, env: dict[str, str], limit_s: float) -> str:
    """What the command wrote to stdout. Fails when the command does."""
    ended = subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        timeout=limit_s,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def outside() -> dict[str, str]:
    """This environment without anything that leads back to the checkout."""
    leads = ("PYTHON", "GPU_TENANT", "VIRTUAL_ENV", "UV_")
    return {name: value for name, value in os.environ.items() if not name.startswith(leads)}


def shipped() -> Iterator[str]:
    """The name in the wheel of every file that has to be there."""
    for path in PACKAGE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(PACKAGE.parent).as_posix()
    for name in SKILL:
        for path in (ROOT / name, *(ROOT / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"gpu_tenant/skill/{path.relative_to(ROOT).as_posix()}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", to, ROOT)
    run(*build, cwd=to, env=outside(), limit_s=300)
    (built,) = to.glob("*.whl")
    return built


def test_the_wheel_carries_the_package_and_the_skill_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        carried = {name for name in content.namelist() if ".dist-info/" not in name}

    expected = set(shipped())
    assert {"gpu_tenant/skill/SKILL.md", "gpu_tenant/faces/demo/job/letters.csv"} < expected
    assert carried == expected
    assert [name for name in carried if "test" in name or "fixture" in name] == []


def test_the_wheel_alone_gives_the_whole_demo(wheel: Path, home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv/bin"

    pip = (programs / "python", "-m", "pip", "install", "--disable-pip-version-check", wheel)
    run(*pip, cwd=elsewhere, env=outside(), limit_s=300)
    where = run(
        programs / "python",
        "-c",
        "import gpu_tenant; print(gpu_tenant.__file__)",
        cwd=elsewhere,
        env=outside(),
        limit_s=300,
    )
    said = run(
        programs / "gpu-tenant",
        "demo",
        "--keep",
        home / "kept",
        cwd=elsewhere,
        env={**outside(), "HOME": str(home)},
        limit_s=300,
    )

    assert Path(where.strip()).is_relative_to(tmp_path)
    assert "\n    resumed from epoch " in said
    assert re.search(r"^receipt for .*: gone; verified: nothing was lost$", said, re.MULTILINE)
    assert (home / "kept/work/out/model.safetensors").is_file()
    assert list(elsewhere.iterdir()) == []
