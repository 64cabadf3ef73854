"""Each script that is made of parts is what its parts give, and what could not be joined is refused."""

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest

from box_scripts import build

HEAD = '"""What it is about."""\n\nfrom __future__ import annotations\n\n'
ENTRY = (
    HEAD + "import sys\n\nfrom box_scripts.told.words import said\n\n\nprint(said(), sys.argv)\n"
)
WORDS = HEAD + 'import os\n\n\ndef said():\n    """A word."""\n    return os.sep  # why\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The parts of a script of two."""
    made = tmp_path / "told"
    made.mkdir()
    (made / "__init__.py").write_text("")
    (made / "words.py").write_text(WORDS)
    (made / "__main__.py").write_text(ENTRY)
    return made


@pytest.mark.parametrize("script", build.scripts(), ids=lambda at: at.name)
def test_a_script_is_what_its_parts_give(script: Path) -> None:
    is_so = script.read_text(encoding="utf-8") == build.scripts()[script]

    assert is_so, f"{script.name} is not what its parts give: change these, and run `make scripts`"


def test_every_definition_of_the_parts_is_in_the_script_once_as_it_stands_there() -> None:
    built = ast.parse((build.SCRIPTS / "caretaker.py").read_text(encoding="utf-8"))
    parts = [
        ast.parse(at.read_text(encoding="utf-8"))
        for at in (build.HERE / "caretaker").glob("*.py")
        if at.name != "__init__.py"
    ]

    assert _definitions([built]) == _definitions(parts)


def _definitions(trees: Sequence[ast.Module]) -> list[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return sorted(
        ast.unparse(node) for tree in trees for node in tree.body if isinstance(node, kinds)
    )


def test_imports_are_gathered_at_the_head_and_those_between_parts_are_left_out(
    folder: Path,
) -> None:
    joined = build.join_parts(folder, ["words", "__main__"])

    head, _, rest = joined.partition("# --- words ")
    assert head.startswith("#!/usr/bin/env python3\n# `make scripts` joins this file")
    assert "import os\nimport sys\n" in head
    assert "import" not in rest
    assert "return os.sep  # why" in rest
    assert rest.endswith("print(said(), sys.argv)\n")


@pytest.mark.parametrize(
    ("part", "text", "why"),
    [
        ("words", WORDS.replace("import os", "import numpy"), "numpy is not of the standard"),
        ("words", WORDS.replace("import os", "import json as os"), "under their own names"),
        ("words", WORDS.replace("import os", "from box_scripts.told.__main__ import x"), "after"),
        ("words", WORDS + "\n\nimport re\n", "at the head"),
        (
            "words",
            WORDS + "\n\ndef x():\n    from box_scripts.told.later import y\n",
            "at the head",
        ),
        ("words", WORDS.replace("from __future__ import annotations", ""), "__future__"),
        ("words", WORDS.replace('"""What it is about."""', ""), "a docstring"),
        ("words", WORDS + "\n\nsys = 1\n", "words.py binds `sys`, and so does an import"),
        ("words", WORDS + "\n\ndef open():\n    pass\n", "binds `open`, and so does Python itself"),
        ("__main__", ENTRY + "\n\ndef said():\n    pass\n", "binds `said`, and so does words"),
        ("stray", HEAD, "look at stray"),
    ],
)
def test_what_would_mean_something_else_when_joined_is_refused(
    folder: Path, part: str, text: str, why: str
) -> None:
    (folder / f"{part}.py").write_text(text)

    with pytest.raises(build.Unbuildable, match=why):
        build.join_parts(folder, ["words", "__main__"])
