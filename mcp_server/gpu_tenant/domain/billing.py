"""What a provider says it has charged for a box, and what is left on an account there."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic import AwareDatetime, Field

from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.timeline import Lines

if TYPE_CHECKING:
    from gpu_tenant.domain.receipt import Receipt

BYTES = "bytes"
"""The part of a bill that no hourly rate predicts."""


class Billed(Record):
    """What one box has cost according to its provider's own records."""

    usd: Decimal
    until: AwareDatetime = Field(
        description="all use before this moment is included; later use may be included, too"
    )
    by_part: dict[str, Decimal] = Field(description="as the provider splits it: gpu, disk, bytes")
    words: str = Field(description="which of the provider's records shows this bill")

    @property
    def by_the_hour_usd(self) -> Decimal:
        """The part that an hourly rate predicts, which is everything but the bytes."""
        return self.usd - self.by_part.get(BYTES, Decimal(0))


def newest_bill(events: Lines) -> Billed | None:
    """The newest amount in a timeline that a provider said it has billed."""
    told = [event for _, event in events if isinstance(event, timeline.Billed) and event.usd]
    if not told:
        return None
    newest = told[-1]
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
    """Return what a lease has cost, by the one count that every face shows. None if a rate is unknown.

    If there is a receipt, this is its sum. Until then, it is the rates over the time, plus the bytes that the
    provider has billed, which no rate covers.
    """
    if receipt is not None:
        return receipt.cost_usd
    return with_bytes(lease.cost_usd(now), billed)


def with_bytes(hourly_usd: Decimal | None, billed: Billed | None) -> Decimal | None:
    """Return that cost of the hours, plus the cost of the bytes that the provider has billed."""
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
