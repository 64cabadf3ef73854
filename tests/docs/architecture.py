"""The packages on their floors, as the import contract, their docstrings and their imports say."""

import ast
import tomllib
from functools import cache
from pathlib import Path

import grimp
from docs.drawing import Package, floors

ROOT = Path(__file__).resolve().parents[2]
_CODE = ROOT / "mcp_server/gpu_tenant"


def _contract() -> list[list[str]]:
    """The names of each layer, from the top down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (c for c in settings["tool"]["importlinter"]["contracts"] if c["id"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def _answers(name: str) -> str:
    """The first line of the docstring, without its period."""
    folder = _CODE / name
    source = folder / "__init__.py" if folder.is_dir() else _CODE / f"{name}.py"
    words = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    assert words, f"{name} has no docstring"
    return words.splitlines()[0].removesuffix(".")


@cache
def picture() -> str:
    graph = grimp.build_graph("gpu_tenant", cache_dir=None)
    contract = _contract()
    names = [name for layer in contract for name in layer]
    return floors(
        [
            [
                Package(
                    name,
                    _answers(name),
                    frozenset(
                        other
                        for other in names
                        if other != name
                        and graph.direct_import_exists(
                            importer=f"gpu_tenant.{name}",
                            imported=f"gpu_tenant.{other}",
                            as_packages=True,
                        )
                    ),
                )
                for name in layer
            ]
            for layer in contract
        ]
    )
