"""The map of what first users found has every finding, and names tests that are there."""

import re

from docs.test_attacks import TESTS, names_in

PAGE = (TESTS / "findings.md").read_text(encoding="utf-8")
NUMBERS = {"N": 36, "G": 14, "E": 12, "T": 19}
"""How many findings the newcomers and the two agents had."""


def rows() -> list[tuple[str, str]]:
    """Each row's number, and what holds it."""
    return re.findall(r"^\| ([NGET]\d+[a-d]?) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)


def test_every_finding_has_a_test_or_a_reason() -> None:
    expected = [
        f"{part}{n}{letter}"
        for part, count in NUMBERS.items()
        for n in range(1, count + 1)
        for letter in ("abcd" if (part, n) == ("N", 17) else [""])
    ]

    assert [number for number, _ in rows()] == expected
    assert [n for n, held in rows() if "::" not in held and not held.startswith("left: ")] == []


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)

    assert len(named) == PAGE.count("::")
    assert [f"{file}::{name}" for file, name in named if name not in names_in(file)] == []
