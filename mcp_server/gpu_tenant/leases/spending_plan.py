"""What a person agrees to, such as a rental or a later deadline."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Literal

from gpu_tenant.domain.signature import digest_of
from gpu_tenant.domain.wording import usd_words

_ASKS = {"rent": "Rent this?", "extend": "Agree to this?", "adopt": "Take this box over?"}
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class SpendingPlan:
    """Money that is about to be promised, or a box that is about to be taken over."""

    kind: Literal["rent", "extend", "adopt"]
    subjects: tuple[str, ...]
    """What the plan is about: quotes, a wish, a run, a lease with its deadline, or a box. An answer is for all of them.
    """
    would: str
    """What would happen, in one line."""
    usd: Decimal | None
    """The most that it costs by its deadline, beyond what was agreed before. None if that is unknown."""
    lines: tuple[str, ...] = ()
    has_free_bytes: bool = False
    """Whether it is known that traffic costs nothing there. Otherwise it comes on top of the sum."""
    is_budget: bool = False
    """Whether the sum is a budget, which is enforced only while somebody watches."""

    @property
    def cost(self) -> str:
        """The most that it costs, in words."""
        if self.kind == "adopt":
            return "it bills already, as its provider says"
        if self.usd is None:
            return "an unknown sum"
        traffic = "" if self.has_free_bytes else " plus traffic"
        more = " more" if self.kind == "extend" else ""
        watched = ", as long as a watchdog runs" if self.is_budget else ""
        return f"at most {usd_words(self.usd)}{more}{traffic} by its deadline{watched}"

    @property
    def subject(self) -> str:
        """What a signature for the plan is about. It is typed to sign."""
        return self.kind if self.kind == "rent" else self.subjects[0].partition(" ")[0]

    @property
    def digest(self) -> str:
        """The same for every plan that does the same for no more whole dollars.

        A quote expires sooner than a person comes to sign, and the next one has another name.
        """
        if self.kind == "adopt":
            return digest_of((self.kind, *self.subjects))
        whole = None if self.usd is None else self.usd.to_integral_value(ROUND_CEILING)
        return digest_of((self.kind, self.would, str(whole)))

    @property
    def question(self) -> str:
        """What a person is shown before they answer."""
        asks = _ASKS[self.kind]
        return "\n".join((asks, *(f"- {line}" for line in (self.would, self.cost, *self.lines))))


def most_usd(usd_h: Decimal, left: timedelta, budget_usd: Decimal | None) -> Decimal:
    """Return what a box at that price costs in that time, and no more than its budget."""
    hours = Decimal(str(max(0.0, left.total_seconds()))) / 3600
    most = (usd_h * hours).quantize(_CENT, ROUND_CEILING)
    return most if budget_usd is None else min(most, budget_usd)
