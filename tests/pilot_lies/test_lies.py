"""A pilot at platforms that lie. `make pilot-lies` tries each lie at each platform; here are three."""

from pathlib import Path

import pytest

from pilot_lies.lies import MOST_USD, meet


@pytest.mark.parametrize(
    ("slug", "lie", "found"),
    [
        ("runpod", "price_in_cents", "prices: "),
        ("runpod", "price_as_text", "cost (a text) in another form"),
        ("lambda_cloud", "price_triples", "given back unused"),
    ],
)
async def test_a_lie_is_found_nothing_bills_unseen_and_the_sum_holds(
    slug: str, lie: str, found: str, tmp_path: Path
) -> None:
    met = await meet(slug, lie, tmp_path)

    assert found in met.found
    assert met.left == []
    assert met.usd <= MOST_USD
