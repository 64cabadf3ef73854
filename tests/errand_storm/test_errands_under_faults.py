"""Seeded errands under faults of platform, link, job and person: each ends with a receipt, or waits for one named answer."""

import os
from collections import Counter
from pathlib import Path

import pytest

from errand_storm.lives import live

ERRANDS = int(os.environ.get("ERRANDS", "4"))
SEED = int(os.environ.get("SEED", "1"))

pytestmark = pytest.mark.timeout(120 * max(ERRANDS, 5))


@pytest.mark.parametrize("seed", [46, 68])
async def test_the_second_box_of_a_request_ends_with_the_errand(seed: int, tmp_path: Path) -> None:
    """Two seeds at which a create was carried out twice and the first destroy of the second box failed."""
    lived = await live(seed, tmp_path / str(seed))

    assert any(fault.startswith("create: twice") for fault in lived.faults)
    assert lived.wrongs == []


async def test_each_ends_with_a_receipt_or_waits_for_one_named_answer(tmp_path: Path) -> None:
    wrong, outcomes = [], Counter[str]()
    for seed in range(SEED, SEED + ERRANDS):
        lived = await live(seed, tmp_path / str(seed))
        outcomes[lived.outcome or "none"] += 1
        print(
            f"{seed} {lived.provider}, {lived.job}: {lived.outcome}, {lived.lines} lines",
            flush=True,
        )
        if lived.wrongs:
            wrong.append(lived)
            print(f"wrong: {lived}", flush=True)

    print(f"{ERRANDS} errands from seed {SEED}: {dict(outcomes)}, {len(wrong)} wrong")
    assert wrong == []
