"""Money and hours are numbers that can be counted with, or are refused where they come in."""

from decimal import Decimal

import pytest

from gpu_tenant.domain.record import MOST_USD, amount
from gpu_tenant.domain.terms import RentRequest


@pytest.mark.parametrize("said", ["0", "1E-9", "1E+3", "12.3400", str(MOST_USD)])
def test_an_amount_that_can_be_counted_with_is_taken_as_it_is(said: str) -> None:
    assert str(amount(Decimal(said))) == said


@pytest.mark.parametrize(
    "said",
    [
        "nan",
        "sNaN",
        "inf",
        "-Infinity",
        "-1",
        "-0.01",
        "1e400",
        "1e6144",
        "1e999999",
        "1000001",
        "1e-400",
        "0.0000000001",
    ],
)
def test_what_is_no_amount_is_refused_and_nothing_overflows(said: str) -> None:
    with pytest.raises(ValueError, match="an amount of money"):
        amount(Decimal(said))
    for name in ("budget_usd", "max_price_usd_h", "rescue_usd"):
        with pytest.raises(ValueError, match=r"amount of money|finite number"):
            RentRequest.model_validate({name: said})
