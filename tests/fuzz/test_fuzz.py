"""Input that nobody meant, the same as always; `make fuzz` draws new ones for as long as one likes."""

import pytest
from fuzz.recorded import PROVIDERS
from fuzz.targets import TARGETS, odd_numbers, remembered_again, run

INPUTS = {
    "loads": 400,
    "answered": 8_000,
    "requested": 60,
    "matched": 400,
    "framed": 300,
    "listed": 80,
    "probed": 260,
    "idled": 1_600,
    "refused": 3_000,
    "served": 20,
    "remembered": 40,
}
"""Two seconds' worth of each."""


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_crashes_hangs_or_comes_through(target: str) -> None:
    inputs, finds = run(target, 777, inputs=INPUTS[target])

    assert [find.words for find in finds] == [], repr(finds[0].input[:2000])
    assert inputs == INPUTS[target]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_number_that_is_none_in_an_answer_of_a_provider_is_no_crash(provider: str) -> None:
    looked = list(odd_numbers(provider))

    assert len(looked) >= 30
    assert {find.words for find in looked if find} == set()


def test_a_record_that_once_crashed_a_reader_does_so_no_more() -> None:
    finds = remembered_again()

    assert len(finds) >= 10
    assert {name: find.words for name, find in finds.items() if find} == {}
