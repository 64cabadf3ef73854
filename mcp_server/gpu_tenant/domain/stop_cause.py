"""Why a job was stopped: because a term of its lease ran out, or because somebody asked for it."""

from typing import Literal, NamedTuple

from gpu_tenant.domain.command import Command

Term = Literal["deadline", "budget", "price", "idle"]

_ENDED_BY: dict[str, str] = {
    "deadline": "the lease's deadline ended it",
    "budget": "the lease's budget ended it",
    "price": "the lease's price cap ended it",
    "idle": "the lease ended it as idle",
}


class StopCause(NamedTuple):
    """The term of the lease that a job was stopped for, and how it was exceeded, in words."""

    term: Term
    words: str = ""

    @property
    def sentence(self) -> str:
        """Which term ended the job, and how it was exceeded."""
        ended = _ENDED_BY[self.term]
        return f"{ended}: {self.words}" if self.words else ended

    def more(self, lease: str) -> Command:
        """Return the command that gives the lease more of what ran out."""
        match self.term:
            case "deadline":
                return Command("extend", lease, hours="N")
            case "budget":
                return Command("terms", lease, budget_usd="N")
            case "price":
                return Command("terms", lease, max_price_usd_h="N")
            case "idle":
                return Command("terms", lease, idle_h="N")
