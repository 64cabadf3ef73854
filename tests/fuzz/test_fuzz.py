"""Half a minute of input that nobody meant, the same as always; `make fuzz` draws new ones."""

import pytest
from fuzz.targets import TARGETS, run

_SECONDS = 3


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_crashes_hangs_or_comes_through(target: str) -> None:
    inputs, finds = run(target, 777, _SECONDS)

    assert inputs
    assert [find.words for find in finds] == [], repr(finds[0].input[:2000])
