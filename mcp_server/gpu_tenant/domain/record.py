"""The form of every value that crosses a boundary, and of amounts and names."""

from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from gpu_tenant.domain.untrusted_text import sentence

Usd = Annotated[Decimal | None, WithJsonSchema({"type": ["string", "null"]})]
"""An amount of money, or unknown. It is kept short in a schema."""

MOST_USD = Decimal(1_000_000)
"""More than any lease costs. A larger number is a typing error, or malicious."""
_LEAST_USD = Decimal("1E-9")
MOST_H = 8760
"""A year: no lease lasts longer unless somebody extends it."""


def amount(said: Decimal) -> Decimal:
    """The same amount, now checked: finite, not negative, and small enough to calculate with.

    Raises:
        ValueError: it is not.
    """
    if not said.is_finite() or not 0 <= said <= MOST_USD:
        raise ValueError(f"an amount of money is a number from 0 to {MOST_USD:,}, in USD")
    if said != said.quantize(_LEAST_USD):
        raise ValueError("an amount of money has at most nine decimal places")
    return said


Amount = Annotated[Decimal, AfterValidator(amount)]
"""Money that somebody specifies, checked where it comes in."""
Hours = Annotated[float, Field(ge=0, le=MOST_H)]
"""A duration in hours. 0 has a special meaning where it is allowed."""


MOST_BYTES = 2**63 - 1
"""No file system holds more."""


Line = Annotated[str, AfterValidator(lambda said: sentence(said, most=400))]
"""What somebody else calls a thing, as one plain line."""


class Record(BaseModel):
    """A value that crosses a boundary: immutable, and closed to fields nobody declared."""

    # Built when the first value is made, because a command needs few of the forms that it imports.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
