"""The line that adds a package fits the way in which this copy was installed."""

from pathlib import Path
from typing import Any, Literal

import pytest

from gpu_tenant.files.installation import extra_line, line_for

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
    assert extra_line("gcp").endswith(f"install -e '{ROOT}[gcp]'")


def test_the_readme_names_the_extra_where_it_says_how_to_install() -> None:
    for name in ("README.md", "README.zh.md"):
        first_block = (ROOT / name).read_text("utf-8").split("```sh\n")[1].partition("```")[0]
        assert "pip install '.[gcp]'" in first_block, name
