"""The line that adds a package fits the way in which this copy was installed."""

import tempfile
from pathlib import Path
from typing import Any, Literal

import pytest

from gpu_tenant.files.installation import Cache, cache_of, extra_line, line_for, source_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("noted", "installer", "line"),
    [
        ("uv-receipt.toml", "uv", "uv tool install 'gpu-tenant[gcp]'"),
        ("pipx_metadata.json", "pip", "pipx runpip gpu-tenant install 'gpu-tenant[gcp]'"),
        ("pyvenv.cfg", "pip", "/v/python -m pip install 'gpu-tenant[gcp]'"),
        ("pyvenv.cfg", "uv", "uv pip install --python /v/python 'gpu-tenant[gcp]'"),
    ],
)
def test_what_came_from_an_index_is_added_to_by_the_same_installer(
    noted: str, installer: Literal["pip", "uv"], line: str, tmp_path: Path
) -> None:
    (tmp_path / noted).touch()
    assert line_for("gcp", {}, prefix=tmp_path, python="/v/python", installer=installer) == line


def test_what_came_from_a_folder_is_added_to_from_that_folder_while_it_is_there(
    tmp_path: Path,
) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    origin: dict[str, Any] = {"url": clone.as_uri(), "dir_info": {}}

    def line() -> str:
        return line_for("gcp", origin, prefix=tmp_path, python="/v/python", installer="pip")

    assert line() == "/v/python -m pip install 'gpu-tenant[gcp]'"
    (clone / "pyproject.toml").touch()
    assert line() == f"/v/python -m pip install '{clone}[gcp]'"
    origin["dir_info"] = {"editable": True}
    assert line() == f"/v/python -m pip install -e '{clone}[gcp]'"


def test_this_clone_names_itself() -> None:
    assert extra_line("gcp").endswith(f" -e '{ROOT}[gcp]'")


def test_the_readme_names_the_extra_where_it_says_how_to_install() -> None:
    for name in ("README.md", "README.zh.md"):
        first_block = (ROOT / name).read_text("utf-8").split("```sh\n")[1].partition("```")[0]
        assert "pip install '.[gcp]'" in first_block, name


def installer(directory: Path, name: str, asked: str, answer: Path) -> Path:
    """A program of that name, which knows one question."""
    directory.mkdir(exist_ok=True)
    text = f'#!/bin/sh\n[ "$*" = "{asked}" ] && echo "{answer}"\n'
    (directory / name).write_text(text, encoding="utf-8")
    (directory / name).chmod(0o755)
    return directory / name


def test_a_cache_is_where_uv_and_pipx_say_it_is_and_not_where_a_name_sounds_like_one(
    tmp_path: Path,
) -> None:
    tools, of_uv, of_pipx = tmp_path / "tools", tmp_path / "fast disk/u", tmp_path / "p"
    environ = {"PATH": str(tools)}
    in_uv, in_pipx = of_uv / "archive-v0/x/bin/gpu-tenant", of_pipx / "1a2b/bin/gpu-tenant"
    assert cache_of(in_uv, environ) is None, "nobody says so"

    installer(tools, "uv", "cache dir", of_uv)
    installer(tools, "pipx", "environment --value PIPX_VENV_CACHEDIR", of_pipx)

    assert cache_of(in_uv, environ) == Cache("uv", of_uv)
    assert cache_of(in_pipx, environ) == Cache("pipx", of_pipx)
    assert cache_of(tmp_path / ".cache/venv/bin/gpu-tenant", environ) is None
    assert cache_of(tmp_path / "fast disk/uv/bin/gpu-tenant", environ) is None


def test_a_link_into_a_cache_is_in_the_cache(tmp_path: Path) -> None:
    installer(tmp_path / "tools", "uv", "cache dir", tmp_path / "u")
    program = tmp_path / "u/x/bin/gpu-tenant"
    program.parent.mkdir(parents=True)
    program.touch()
    (tmp_path / "gpu-tenant").symlink_to(program)

    found = cache_of(tmp_path / "gpu-tenant", {"PATH": str(tmp_path / "tools")})

    assert found == Cache("uv", tmp_path / "u")


def test_uv_off_path_is_the_one_that_started_us_and_pipx_is_by_its_home(tmp_path: Path) -> None:
    uv = installer(tmp_path / "tools", "uv", "cache dir", tmp_path / "u")
    environ = {"PATH": "", "UV": str(uv), "PIPX_HOME": str(tmp_path / "p")}

    assert cache_of(tmp_path / "u/x/gpu-tenant", environ) == Cache("uv", tmp_path / "u")
    assert cache_of(tmp_path / "p/.cache/x/gpu-tenant", environ) == Cache(
        "pipx", tmp_path / "p/.cache"
    )
    assert cache_of(tmp_path / "p/venvs/gpu-tenant/bin/gpu-tenant", environ) is None


def test_what_is_installed_to_stay_is_what_this_copy_came_from(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    wheel = (tmp_path / "gpu_tenant.whl").as_uri()
    of_git = {"vcs": "git", "commit_id": "ab12"}

    assert source_of({}) == "gpu-tenant"
    assert source_of({"url": tmp_path.as_uri(), "dir_info": {}}) == str(tmp_path)
    assert source_of({"url": wheel, "archive_info": {}}) == wheel
    assert source_of({"url": "https://h/g.git", "vcs_info": of_git}) == "git+https://h/g.git"


def test_what_uv_runs_without_a_cache_is_gone_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = tmp_path / ".tmp02wibZ/archive-v0/OcWrcd/bin/gpu-tenant"
    ours = {"UV": "/nowhere/uv"}

    assert cache_of(program, ours) == Cache("uv", tmp_path / ".tmp02wibZ")
    assert cache_of(program, {}) is None, "uv has not started it"
    assert cache_of(tmp_path / "venv/bin/gpu-tenant", ours) is None
