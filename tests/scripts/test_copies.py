"""What several scripts hold alike stays alike: each travels alone, so each has its own copy of a few lines."""

import ast
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
PARTS = SCRIPTS.parent / "mcp_server" / "box_scripts"
ALIKE = {
    "Refusal": ("activity", "caretaker", "fetch", "leave", "occupancy", "vram"),
    "Parser": ("activity", "fetch", "keep", "leave", "occupancy", "vram"),
    "text": ("activity", "vram"),
    "raw": ("activity", "occupancy"),
    "boot_id": ("checked", "fetch"),
    "Stay": ("fetch", "keep"),
    "TRANSIENT": ("fetch", "keep"),
    "DOORS": ("activity", "occupancy"),
    "QUIET_BYTES": ("caretaker", "occupancy"),
}


@pytest.mark.parametrize("name", ALIKE)
def test_a_definition_that_scripts_share_is_the_same_in_each(name: str) -> None:
    forms = {script: _form(script, name) for script in ALIKE[name]}

    assert len(set(forms.values())) == 1, forms


def _form(script: str, name: str) -> str:
    """The definition without its words and its types."""
    (found,) = (
        node
        for at in sorted(PARTS.glob(f"{script}/*.py")) or [SCRIPTS / f"{script}.py"]
        for node in ast.parse(at.read_text(encoding="utf-8")).body
        if name in _names(node)
    )
    for node in ast.walk(found):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.dump(found)


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}
