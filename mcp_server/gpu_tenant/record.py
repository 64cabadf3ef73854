"""The form of every value that crosses a boundary."""

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, WithJsonSchema

Usd = Annotated[Decimal | None, WithJsonSchema({"type": ["string", "null"]})]
"""Money that may be unknown, in few words of a schema."""


class Record(BaseModel):
    """A value that crosses a boundary: immutable, and closed to fields nobody declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")
