"""What a provider has charged for a box by its own records, and how much money an account there still holds."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.story import story_of
from gpu_tenant.domain.timeline import Lines

if TYPE_CHECKING:
    from gpu_tenant.domain.receipt import Receipt

BYTES = "bytes"
"""The part of a bill that is charged for transferred bytes. No hourly rate predicts it."""


class Billed(Record):
    """What one box has cost according to its provider's own records."""

    usd: Decimal
    until: AwareDatetime = Field(
        description="all use before this moment is included; later use may be included, too"
    )
    by_part: dict[str, Decimal] = Field(
        description="as the provider splits it: gpu, disk, bytes, other"
    )
    words: str = Field(description="which of the provider's records shows this bill")

    @property
    def by_the_hour_usd(self) -> Decimal:
        """The part that an hourly rate predicts, which is everything but the bytes."""
        return self.usd - self.by_part.get(BYTES, Decimal(0))


def newest_bill(events: Lines) -> Billed | None:
    """Return the newest bill in a timeline. None if the provider has reported no sum above 0."""
    newest = story_of(events).billed
    if newest is None:
        return None
    return Billed.model_validate(
        {
            "usd": newest.usd,
            "until": newest.until,
            "by_part": newest.parts,
            "words": newest.words,
        }
    )


def counted_usd(
    lease: Lease, now: datetime, *, billed: Billed | None = None, receipt: Receipt | None = None
) -> Decimal | None:
    """Return what a lease has cost in USD, as every face shows it. None if a rate is unknown.

    If there is a receipt, its sum is returned. Before that, it is the cost by the hourly rates, plus what the provider
    has billed for bytes.
    """
    if receipt is not None:
        return receipt.cost_usd
    return with_bytes(lease.cost_usd(now), billed)


def with_bytes(hourly_usd: Decimal | None, billed: Billed | None) -> Decimal | None:
    """Return `hourly_usd`, plus what the provider has billed for bytes. None if `hourly_usd` is None."""
    return None if hourly_usd is None else hourly_usd + charged_bytes_usd(billed)


def charged_bytes_usd(billed: Billed | None) -> Decimal:
    """Return what the provider has billed for bytes. 0 if it has not said anything about them."""
    return (
        Decimal(0) if billed is None else billed.by_part.get(BYTES, Decimal(0)).quantize(USD_STEP)
    )


class Balance(Record):
    """What an account holds, and how fast the provider says it is being spent."""

    amount_usd: Decimal
    spends_usd_h: Decimal | None = Field(description="None: the provider does not say")
    words: str = Field(description="what happens there when nothing is left")
