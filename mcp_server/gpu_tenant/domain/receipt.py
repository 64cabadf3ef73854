"""The receipt of a lease: the proof of its end."""

from decimal import Decimal
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.model import BoxId, LeaseId
from gpu_tenant.domain.outcome import Outcome
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.wording import billed_words, cost_words, usd_words


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
    outcome: Outcome | None = Field(
        default=None, description="the verdict on the work; None: no job ran, or an old receipt"
    )

    @property
    def loss_words(self) -> str:
        """What was lost with the box."""
        if self.ground != "waived":
            return "nothing was lost"
        return f"lost, as was signed for: {'; '.join(self.given_up) or 'what could not be proved'}"

    @property
    def spent_usd(self) -> Decimal | None:
        """The one sum to show: our count, or the bill so far if that is higher. None: both are unknown."""
        known = [usd for usd in (self.cost_usd, self.billed_usd) if usd is not None]
        return max(known) if known else None

    @property
    def sum_words(self) -> str:
        """The sum in words. If our count and the bill differ, both are named."""
        counted, billed = self.cost_usd, self.billed_usd
        if billed is None or counted is None:
            told = cost_words(self.spent_usd, self.counts)
            return told if billed is None else f"{billed_words(billed)} billed so far"
        if billed == counted:
            return f"{usd_words(billed)}, and as much is billed so far"
        own = billed_words(billed)
        if billed > counted:
            return f"{own} billed so far; by our count {usd_words(counted)}"
        return f"{usd_words(counted)} by our count; billed so far {own}"
