"""The list of slow tests names tests that exist."""

import re
from pathlib import Path

from slow import SLOW_S, slow_tests

TESTS = Path(__file__).parents[1]


def test_each_test_in_the_list_of_slow_ones_exists() -> None:
    listed = slow_tests()

    assert len(listed) > 50, "most of what is slow is in it"
    for name in listed:
        path, _, function = name.rpartition("::")
        source = (TESTS / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {function}\(", source, re.MULTILINE), (
            f"{name} is gone: take its line out of tests/slow.txt, or write its new name there"
        )


def test_the_list_says_how_long_each_of_them_takes() -> None:
    for line in (TESTS / "slow.txt").read_text(encoding="utf-8").splitlines():
        assert float(line.split()[0]) >= SLOW_S, line
