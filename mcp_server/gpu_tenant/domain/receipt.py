"""The receipt of a lease: the proof of its end."""

from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.model import BoxId, LeaseId
from gpu_tenant.domain.record import Record, Usd


class Receipt(Record):
    """The proof that the provider no longer has the box: seen twice, with the time, the cost and what was kept."""

    lease_id: LeaseId
    provider: str
    box_id: BoxId
    ground: Literal["verified", "never_used", "waived"]
    active_at: AwareDatetime
    destroy_asked_at: AwareDatetime
    first_absent_at: AwareDatetime
    second_absent_at: AwareDatetime
    lived_s: float
    cost_usd: Usd = Field(description="None: the price was never known")
    cost_least_usd: Usd = Field(
        default=None, description="the least that it may have cost; None: cost_usd"
    )
    cost_most_usd: Usd = Field(
        default=None, description="the most that it may have cost; None: cost_usd"
    )
    billed_usd: Usd = Field(
        default=None,
        description="what its provider's own records say so far; None: they say nothing",
    )
    counts: str | None = Field(
        default=None, description="what the cost includes, and who says so; None: on an old receipt"
    )
    kept_files: int
    kept_bytes: int
    kept_in: str | None
    formats: dict[str, int] = Field(
        description="how many kept files were proved to load, by format"
    )
    not_proved: tuple[str, ...] = Field(
        description="what verification could not prove, in sentences"
    )
    warnings: tuple[str, ...]
    given_up: tuple[str, ...] = Field(
        description="patterns discarded by name, or losses signed for"
    )
    left_behind: str | None = Field(description="what stays on the box or at the provider, or None")
