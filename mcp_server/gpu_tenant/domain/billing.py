"""What a provider says it has charged for a box, and what is left on an account there."""

from decimal import Decimal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.record import Record

BYTES = "bytes"
"""The part of a bill that no hourly rate predicts."""


class Billed(Record):
    """What one box has cost according to its provider's own records."""

    usd: Decimal
    until: AwareDatetime = Field(
        description="everything used before is included; what came after may be, too"
    )
    by_part: dict[str, Decimal] = Field(description="as the provider splits it: gpu, disk, bytes")
    words: str = Field(description="which of the provider's records says so")

    @property
    def by_the_hour_usd(self) -> Decimal:
        """The part that an hourly rate predicts: everything but the bytes."""
        return self.usd - self.by_part.get(BYTES, Decimal(0))


class Balance(Record):
    """What an account holds, and how fast the provider says it is being spent."""

    amount_usd: Decimal
    spends_usd_h: Decimal | None = Field(description="None: the provider does not say")
    words: str = Field(description="what happens there when nothing is left")
