"""A small storm of copies of a ledger. Faults strike at other moments on a busy machine: `make storm` has them."""

from pathlib import Path

import pytest

from storm.counters import COUNTERS
from storm.crews import storm


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("mode", "seed"), [("copy", 0)])
def test_nothing_is_lost_and_nothing_bills_unseen_in_a_small_storm(
    mode: str, seed: int, tmp_path: Path
) -> None:
    sums = storm(2, 3, seed, 2, mode, tmp_path / "storm.jsonl")

    assert sums["driver_failed"] == 0, (tmp_path / "storm.jsonl").read_text()
    assert sums["lives"] == 2
    counts = sums["counts"]
    assert isinstance(counts, dict)
    assert {name: counts.get(name, 0) for name in COUNTERS} == dict.fromkeys(COUNTERS, 0)
