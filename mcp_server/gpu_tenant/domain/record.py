"""The base class of every value that crosses a boundary, and the types of amounts and names."""

import re
from decimal import Decimal
from functools import cache
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from gpu_tenant.domain.untrusted_text import sentence

Usd = Annotated[Decimal | None, WithJsonSchema({"type": ["string", "null"]})]
"""An amount of money, or unknown. The type is kept short in a schema."""

MOST_USD = Decimal(1_000_000)
"""No lease costs more. A larger number is a typing error, or malicious."""
_LEAST_USD = Decimal("1E-9")
MOST_H = 8760
"""A year: no lease lasts longer unless somebody extends it."""


def amount(said: Decimal) -> Decimal:
    """Return the amount, if it is finite, not negative, and small enough to calculate with.

    Raises:
        ValueError: it is not, or it has more than nine decimal places.
    """
    if not said.is_finite() or not 0 <= said <= MOST_USD:
        raise ValueError(f"an amount of money is a number from 0 to {MOST_USD:,}, in USD")
    if said != said.quantize(_LEAST_USD):
        raise ValueError("an amount of money has at most nine decimal places")
    return said


Amount = Annotated[Decimal, AfterValidator(amount)]
"""Money that somebody specifies, checked when it comes in."""
Hours = Annotated[float, Field(ge=0, le=MOST_H)]
"""A duration in hours. 0 has a special meaning where it is allowed."""


MOST_BYTES = 2**63 - 1
"""No file system holds more."""


_ODD = re.compile(r"[^\w .,:/+@'&#*%=~^!|()$-]+")
_LONGEST_NAME = 80


def as_name(said: str) -> str:
    """Return a provider's name for a thing, as it stands inside of our sentences: short, and without odd characters."""
    shown = sentence(
        said, most=4 * _LONGEST_NAME
    )  # whole escape sequences go before single characters
    return sentence(_ODD.sub(" ", shown), most=_LONGEST_NAME)


Name = Annotated[str, AfterValidator(as_name)]
Line = Annotated[str, AfterValidator(lambda said: sentence(said, most=400))]
"""A name that somebody else gave to something, as one plain line."""


class Record(BaseModel):
    """A value that crosses a boundary: immutable, and closed to fields that nobody declared."""

    # A validator is built when the first value of its type is made (`defer_build`), because a command needs few of the
    # types that it imports.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Numerous(Record):
    """A record of which there may be hundreds of thousands at once. Each of them takes less memory.

    Pydantic keeps with each record the set of the fields that somebody gave, which is larger than the record. Here all
    records of a type share one set, and every field counts as given.
    """

    @model_validator(mode="after")
    def _share_fields_set(self) -> Self:
        object.__setattr__(self, "__pydantic_fields_set__", _fields_of(type(self)))
        return self


@cache
def _fields_of(kind: type[BaseModel]) -> set[str]:
    return set(kind.model_fields)
