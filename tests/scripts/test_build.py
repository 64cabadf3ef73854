"""Each script that is made of parts is what its parts give, and what could not be joined is refused."""

import ast
import subprocess
import sys
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


def test_the_script_carries_each_part_letter_for_letter_and_the_last_as_its_own_text(
    folder: Path,
) -> None:
    joined = build.join_parts(folder, ["words", "__main__"])

    carried = _assigned(ast.parse(joined))
    assert carried == {
        "box_scripts": "",
        "box_scripts.told": "",
        "box_scripts.told.words": "\n" + WORDS,
    }
    assert joined.startswith("#!/usr/bin/env python3\n# `make scripts` joins this file")
    assert joined.endswith(ENTRY.removeprefix(HEAD))


def _assigned(tree: ast.Module) -> dict[str, str]:
    """What a script assigns to `PARTS[...]`."""
    return {
        ast.literal_eval(node.targets[0].slice): ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    }


def test_a_call_compiles_only_the_parts_that_it_imports(folder: Path) -> None:
    (folder / "broken.py").write_text(HEAD + "print('compiled')\n")
    late = ENTRY + "\nif sys.argv[1:]:\n    import box_scripts.told.broken\n"
    (folder / "__main__.py").write_text(late)
    script = folder.parent / "told.py"
    script.write_text(build.join_parts(folder, ["words", "broken", "__main__"]))

    said = [_said(script), _said(script, "more")]

    assert said == [f"/ ['{script}']\n", f"/ ['{script}', 'more']\ncompiled\n"]


def _said(*argv: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-S", *argv], stdout=subprocess.PIPE, check=True, text=True
    )
    return done.stdout


@pytest.mark.parametrize(
    ("part", "text", "why"),
    [
        ("words", WORDS.replace("import os", "import numpy"), "numpy is not of the standard"),
        ("words", WORDS.replace("import os", "from box_scripts.told.__main__ import x"), "after"),
        (
            "words",
            WORDS + "\n\ndef x():\n    from box_scripts.told.later import y\n",
            "after",
        ),
        ("words", WORDS.replace("from __future__ import annotations", ""), "__future__"),
        ("words", WORDS.replace('"""What it is about."""', ""), "a docstring"),
        ("words", WORDS + "\n\nQUOTED = '''x'''\n", "would end its text"),
        ("stray", HEAD, "look at stray"),
    ],
)
def test_what_would_mean_something_else_when_joined_is_refused(
    folder: Path, part: str, text: str, why: str
) -> None:
    (folder / f"{part}.py").write_text(text)

    with pytest.raises(build.Unbuildable, match=why):
        build.join_parts(folder, ["words", "__main__"])
