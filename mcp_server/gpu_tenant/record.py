"""The form of every value that crosses a boundary."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A value that crosses a boundary: immutable, and closed to fields nobody declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")
