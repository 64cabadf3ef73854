"""The map of what was tried names tests, and rows of DESIGN.md, that are there."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "attacks.md").read_text(encoding="utf-8")
DESIGN = (TESTS.parent / "mcp_server" / "DESIGN.md").read_text(encoding="utf-8")
TRIED = {"A": 73, "S": 12, "H": 34, "T": 12, "G": 7}
"""How many rows each part has."""


def rows() -> list[tuple[str, str]]:
    """Each row's number, and what holds it."""
    return re.findall(r"^\| ([ASHTG]\d+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)


@cache
def names_in(file: str) -> frozenset[str]:
    """The tests that pytest finds in that file."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


def test_every_attack_has_a_row_and_every_row_something_that_holds_it() -> None:
    expected = [f"{part}{n}" for part, count in TRIED.items() for n in range(1, count + 1)]

    assert [number for number, _ in rows()] == expected
    assert [
        number for number, held in rows() if "::" not in held and "out of reach" not in held
    ] == []


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)

    assert len(named) == PAGE.count("::")
    assert [f"{file}::{name}" for file, name in named if name not in names_in(file)] == []


def test_what_is_out_of_reach_is_in_the_table_that_a_user_reads() -> None:
    table = DESIGN[DESIGN.index("### What none of this stops") :]
    named = [
        words for _, held in rows() for words in re.findall(r"out of reach: \*([^*]+)\*", held)
    ]

    assert len(named) == PAGE.count("out of reach:")
    assert [words for words in named if f"\n| {words}" not in table] == []
