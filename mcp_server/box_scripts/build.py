"""Joins the parts of each script that runs on a box: `python -m box_scripts.build`, or `make scripts`.

The joined script is one text file, which a person on the box can read. It contains the source of each part as a string,
which `loader.py` compiles when that part is first imported. So a call compiles only the parts that it needs. The last
part is ordinary code at the end of the file. A part may import only from parts before it, and from the standard
library. In all parts, `__file__` is the joined file.
"""

import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCRIPTS = ROOT / "scripts"
ENTRY = "__main__"
"""The last part. Its docstring becomes the docstring of the script."""

_RULE = 99
_FUTURE = "from __future__ import annotations"
_QUOTES = "'''"
"""These enclose the text of a part, so no part may contain them."""


class Unbuildable(Exception):
    """A part breaks a rule for joining. The message says where, and what to do."""


def scripts() -> dict[Path, str]:
    """Return the path and the text of every script that is made of parts.

    Raises:
        Unbuildable: a part breaks a rule.
    """
    built = {}
    for folder in sorted(at.parent for at in HERE.glob("*/__init__.py")):
        parts: Sequence[str] = importlib.import_module(f"box_scripts.{folder.name}").PARTS
        built[SCRIPTS / f"{folder.name}.py"] = join_parts(folder, parts)
    return built


def join_parts(folder: Path, order: Sequence[str]) -> str:
    """Return the text of the script whose parts are in that folder.

    Raises:
        Unbuildable: a part breaks a rule.
    """
    there = {at.stem for at in folder.glob("*.py")} - {"__init__"}
    if there != set(order) or order[-1] != ENTRY:
        odd = ", ".join(sorted(there ^ set(order))) or ENTRY
        raise Unbuildable(f"{folder}: list every part once, {ENTRY} last; look at {odd}")
    package = f"{HERE.name}.{folder.name}"
    texts = {name: _read_part(folder, name, order[:place]) for place, name in enumerate(order)}
    docstring, entry = _split(texts.pop(ENTRY))
    head = [
        "#!/usr/bin/env python3",
        f"# `make scripts` joins this file from mcp_server/{HERE.name}/{folder.name}: change it there.",
        docstring,
        f"\n{_FUTURE}\n",
        _loader(),
    ]
    packages = [f'PARTS["{one}"] = ""' for one in (HERE.name, package)]
    chunks = ["\n".join(head), "\n".join(["# An empty text is a package.", *packages])]
    for name, text in texts.items():
        chunks.append(f'{_rule(name)}\nPARTS["{package}.{name}"] = r{_QUOTES}\n{text}{_QUOTES}')
    return "\n\n\n".join([*chunks, f"{_rule(ENTRY)}\n{entry}"]) + "\n"


def _rule(name: str) -> str:
    return f"# --- {name} ".ljust(_RULE, "-")


def _loader() -> str:
    return _split((HERE / "loader.py").read_text(encoding="utf-8"))[1]


def _split(source: str) -> tuple[str, str]:
    """Return the docstring as it is written in that source, and the code after the import of `annotations`."""
    docstring = ast.get_source_segment(source, ast.parse(source).body[0]) or ""
    return docstring, source.partition(f"\n{_FUTURE}\n")[2].strip("\n")


def _read_part(folder: Path, name: str, before: Sequence[str]) -> str:
    """Read a part, and check that it follows the rules."""
    at = folder / f"{name}.py"
    source = at.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 7))
    if ast.get_docstring(tree) is None:
        raise Unbuildable(f"{at}: a part begins with a docstring")
    if f"\n{_FUTURE}\n" not in source:
        raise Unbuildable(f"{at}: it needs `{_FUTURE}`, as all parts have it")
    if _QUOTES in source:
        raise Unbuildable(f"{at}: three single quotes would end its text: use double ones")
    ours = f"{HERE.name}.{folder.name}."
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            line = f"{at}:{node.lineno}"
            if module.startswith(ours):
                if module[len(ours) :] not in before:
                    raise Unbuildable(f"{line}: {module} stands after this part; see PARTS")
            elif module.split(".")[0] not in sys.stdlib_module_names:
                raise Unbuildable(f"{line}: {module} is not of the standard library")
    return source


def main() -> None:
    """Write every script that is made of parts."""
    for at, text in scripts().items():
        at.write_text(text, encoding="utf-8")
        print(at.relative_to(ROOT))


if __name__ == "__main__":
    main()
