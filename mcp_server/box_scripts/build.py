"""Joins the parts of each script that runs on a box: `python -m box_scripts.build`, or `make scripts`.

One text file travels to a box, where a person can read it. So the parts are joined as text, in a fixed
order. Their imports are gathered at the head. What they import from each other is left out, because in the
joined file all parts are one module. So that the joined text means the same, a name may be bound in one part
only, and a part may import only from parts before it. What a part calls `__file__` is the joined file.
"""

import ast
import builtins
import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCRIPTS = ROOT / "scripts"
ENTRY = "__main__"
"""The last part. Its docstring becomes that of the script."""

_RULE = 99


class Unbuildable(Exception):
    """A part breaks a rule of joining. The message says where, and what to do."""


@dataclass(frozen=True)
class _Part:
    """One part: the modules that it imports, and its text without them."""

    name: str
    docstring: str
    """As it is written, with its quotes."""
    words: str
    """What it says."""
    imports: frozenset[str]
    """Modules of the standard library, as in `import os`."""
    names: frozenset[tuple[str, str]]
    """Names from such modules, as in `from collections import deque`."""
    typing_imports: frozenset[str]
    typing_names: frozenset[tuple[str, str]]
    """The modules and names that it imports below `if TYPE_CHECKING:`."""
    binds: frozenset[str]
    text: str


def scripts() -> dict[Path, str]:
    """The file and the text of every script that is made of parts.

    Raises:
        Unbuildable: a part breaks a rule.
    """
    built = {}
    for folder in sorted(at.parent for at in HERE.glob("*/__init__.py")):
        parts: Sequence[str] = importlib.import_module(f"box_scripts.{folder.name}").PARTS
        built[SCRIPTS / f"{folder.name}.py"] = join_parts(folder, parts)
    return built


def join_parts(folder: Path, order: Sequence[str]) -> str:
    """The text of the script whose parts lie in that folder.

    Raises:
        Unbuildable: a part breaks a rule.
    """
    there = {at.stem for at in folder.glob("*.py")} - {"__init__"}
    if there != set(order) or order[-1] != ENTRY:
        odd = ", ".join(sorted(there ^ set(order))) or ENTRY
        raise Unbuildable(f"{folder}: list every part once, {ENTRY} last; look at {odd}")
    parts = [_read(folder, name, order[:place]) for place, name in enumerate(order)]
    _refuse_two_of_a_name(folder, parts)
    chunks = [_head(folder, parts)]
    for part in parts:
        heading = [f"# --- {part.name} ".ljust(_RULE, "-")]
        if part.name != ENTRY:
            heading += [f"# {line}".rstrip() for line in part.words.split("\n")]
        chunks.append("\n".join(heading) + f"\n\n\n{part.text}")
    return "\n\n\n".join(chunks) + "\n"


def _head(folder: Path, parts: Sequence[_Part]) -> str:
    """What stands above the first part."""
    typed = [f"    {line}" for line in _import_lines(parts, typing=True)]
    return "\n".join(
        [
            "#!/usr/bin/env python3",
            f"# `make scripts` joins this file from mcp_server/box_scripts/{folder.name}: change it there.",
            parts[-1].docstring,
            "",
            "from __future__ import annotations",
            "",
            *_import_lines(parts, typing=False),
            "",
            "TYPE_CHECKING = False  # importing `typing` costs more than a status reply",
            *(["if TYPE_CHECKING:", *typed] if typed else []),
        ]
    )


def _import_lines(parts: Sequence[_Part], *, typing: bool) -> list[str]:
    modules = {one for part in parts for one in (part.typing_imports if typing else part.imports)}
    names: dict[str, set[str]] = {}
    for part in parts:
        for module, name in part.typing_names if typing else part.names:
            names.setdefault(module, set()).add(name)
    plain = [f"import {module}" for module in sorted(modules)]
    return plain + [f"from {m} import {', '.join(_sorted_names(names[m]))}" for m in sorted(names)]


def _sorted_names(names: Iterable[str]) -> list[str]:
    """The names of one import in the linter's order: those in capitals come first."""
    return sorted(names, key=lambda name: (not name.isupper(), name))


def _refuse_two_of_a_name(folder: Path, parts: Sequence[_Part]) -> None:
    imported = {name for part in parts for _, name in part.names | part.typing_names}
    imported |= {name for part in parts for name in part.imports | part.typing_imports}
    owners = dict.fromkeys(dir(builtins), "Python itself") | dict.fromkeys(imported, "an import")
    for part in parts:
        for name in sorted(part.binds):
            if name in owners:
                raise Unbuildable(
                    f"{folder / part.name}.py binds `{name}`, and so does {owners[name]}: rename one"
                )
            owners[name] = part.name


def _read(folder: Path, name: str, before: Sequence[str]) -> _Part:
    """Read a part, and check that it keeps the rules."""
    at = folder / f"{name}.py"
    source = at.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 7))
    words = ast.get_docstring(tree, clean=False)
    if words is None:
        raise Unbuildable(f"{at}: a part begins with a docstring")
    body = tree.body[1:]
    imports: list[ast.stmt] = []
    typed: list[ast.stmt] = []
    last: ast.stmt = tree.body[0]
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports.append(statement)
        elif isinstance(statement, ast.If) and _is_typing_block(statement):
            typed += statement.body
        elif not _is_typing_flag(statement):
            break
        last = statement
    rest = [statement for statement in body if statement.lineno > (last.end_lineno or 0)]
    for statement in rest:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom) and (
                node is statement or _of_ours(node, folder)
            ):
                raise Unbuildable(f"{at}:{node.lineno}: this import stands at the head of a part")
    plain, names = _imports_of(at, imports, folder, before)
    typing_plain, typing_names = _imports_of(at, typed, folder, before)
    if ("__future__", "annotations") not in names:
        raise Unbuildable(
            f"{at}: it needs `from __future__ import annotations`, as all parts have it"
        )
    return _Part(
        name,
        ast.get_source_segment(source, tree.body[0]) or "",
        words,
        plain,
        names - {("__future__", "annotations")},
        typing_plain,
        typing_names,
        frozenset(bound for statement in rest for bound in _bindings_of(statement)),
        "\n".join(source.split("\n")[last.end_lineno :]).strip("\n"),
    )


def _imports_of(
    at: Path, statements: Sequence[ast.stmt], folder: Path, before: Sequence[str]
) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """Return what is imported from the standard library. Check that all else is imported from earlier parts."""
    plain, names = set(), set()
    for node in statements:
        line = f"{at}:{node.lineno}"
        if not isinstance(node, ast.Import | ast.ImportFrom) or any(a.asname for a in node.names):
            raise Unbuildable(f"{line}: the head of a part holds imports, under their own names")
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if _of_ours(node, folder):
                if module.rpartition(".")[2] not in before:
                    raise Unbuildable(f"{line}: {module} is joined after this part; see PARTS")
                continue
            names |= {(module, alias.name) for alias in node.names}
            modules = {module}
        else:
            modules = {alias.name for alias in node.names}
            plain |= modules
        for one in modules:
            if one.split(".")[0] not in sys.stdlib_module_names:
                raise Unbuildable(f"{line}: {one} is not of the standard library")
    return frozenset(plain), frozenset(names)


def _of_ours(node: ast.Import | ast.ImportFrom, folder: Path) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
        f"box_scripts.{folder.name}."
    )


def _is_typing_flag(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and ast.unparse(statement) == "TYPE_CHECKING = False"


def _is_typing_block(statement: ast.If) -> bool:
    """Whether it is `if TYPE_CHECKING:` and holds nothing but imports."""
    return ast.unparse(statement.test) == "TYPE_CHECKING" and all(
        isinstance(inner, ast.Import | ast.ImportFrom) for inner in statement.body
    )


def _bindings_of(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module binds in that module."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def main() -> None:
    """Write every script that is made of parts."""
    for at, text in scripts().items():
        at.write_text(text, encoding="utf-8")
        print(at.relative_to(ROOT))


if __name__ == "__main__":
    main()
