"""Input that nobody meant, the same as always; `make fuzz` draws new ones for as long as one likes."""

import pytest
from fuzz.targets import TARGETS, run

INPUTS = {"loads": 400, "answered": 8_000, "requested": 200, "framed": 2_000, "listed": 80}
"""Two seconds' worth of each."""


@pytest.mark.parametrize("seed", [1, 777])
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_crashes_hangs_or_comes_through(target: str, seed: int) -> None:
    inputs, finds = run(target, seed, inputs=INPUTS[target])

    assert inputs == INPUTS[target]
    assert [find.words for find in finds] == [], repr(finds[0].input[:2000])
