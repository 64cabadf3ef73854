"""What a smoke test has estimated of the GPU's memory is heard of wherever a box is chosen."""

import json
import re
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from errands import Asker, a_tree, an_errand, goes_on

GIB = 2**30
WANTS_37_GIB = json.dumps(
    {
        "steps": 1,
        "autocast": [],
        "windows": [
            {
                "most": [17 * GIB, 17 * GIB],
                "level": [GIB, GIB],
                "left": 0,
                "gradients": 4 * GIB,
                "state": 0,
                "step_most": [GIB, GIB],
                "state_after": 8 * GIB,
            }
        ],
        "optimizers": [],
        "parameters": {"torch.float32": 4 * GIB},
    }
)
"""What the smoke test's probe notes of a training of that size. The tests' own environment has no torch."""
TRAINS = 'cp noted.json "${PYTHONPATH%%:*}/1.json"'
TOO_SMALL = re.compile(
    r"24 GiB is too small, by the estimate of smoke-\S+: the job needs 36\.\d GiB"
)


@pytest.fixture
async def renting(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        yield tenant


def a_training(directory: Path) -> Path:
    tree = a_tree(directory)
    (tree / "noted.json").write_text(WANTS_37_GIB, encoding="utf-8")
    return tree


async def test_an_offer_and_the_box_rented_by_it_say_that_the_gpu_is_too_small(
    renting: Tenant, tmp_path: Path
) -> None:
    tree, tenancy = a_training(tmp_path / "tree"), renting.tenancy
    tested = await tenancy.run_smoke(str(tree), TRAINS)

    found = await tenancy.find_offers(gpu="RTX 4090|H100 SXM")
    small = next(row for row in found.offers if row.gpu == "RTX 4090")
    others = [row for row in found.offers if row.gpu != "RTX 4090"]
    card = await tenancy.provision(quotes=[str(small.quote)], smoke=tested.id, wait_s=3600)
    untold = await tenancy.provision(quotes=[str(small.quote)], smoke="none", wait_s=3600)

    assert tested.passed, tested
    assert small.memory == "too small"
    assert TOO_SMALL.match(small.notes[0])
    assert {row.memory for row in others} <= {"fits", "tight"}
    assert TOO_SMALL.match(card.memory)
    assert (untold.lease, untold.memory) == (card.lease, "")


async def test_the_plan_of_a_run_says_it_before_anybody_agrees(
    renting: Tenant, tmp_path: Path
) -> None:
    asker = Asker()
    errand = an_errand(renting.tenancy, a_training(tmp_path / "tree"), gpu="RTX 4090", smoke=TRAINS)

    standing = await goes_on(renting.tenancy, errand, asker)

    assert standing.outcome == "done", standing
    assert [line for line in asker.plans[0].lines if TOO_SMALL.match(line)]


async def test_where_it_fits_the_plan_says_what_it_rests_on(
    renting: Tenant, tmp_path: Path
) -> None:
    asker = Asker(agrees=None)
    errand = an_errand(renting.tenancy, a_training(tmp_path / "tree"), gpu="H100 SXM", smoke=TRAINS)

    await goes_on(renting.tenancy, errand, asker)

    told = "\n".join(asker.plans[0].lines)
    assert "of a GPU's memory, with the batch size of the smoke test; of that," in told


async def test_a_wish_that_stands_has_no_gpu_yet_whose_memory_could_be_too_small(
    renting: Tenant, tmp_path: Path
) -> None:
    tenancy = renting.tenancy
    tested = await tenancy.run_smoke(str(a_training(tmp_path / "tree")), TRAINS)
    found = await tenancy.find_offers(gpu="RTX 4090")

    card = await tenancy.provision(
        quotes=[str(found.offers[0].quote)],
        smoke=tested.id,
        max_price_usd_h=Decimal("0.001"),
        wait_h=1,
        wait_s=0,
    )

    assert (card.phase, card.memory) == ("waiting", "")
