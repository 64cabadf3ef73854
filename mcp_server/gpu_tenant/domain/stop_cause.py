"""Why a job was stopped: because a term of its lease ran out, or because somebody asked for it."""

from typing import Literal, NamedTuple, get_args

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.timeline import Lines

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


def stop_cause(lines: Lines, job: str) -> StopCause | None:
    """Return the term for which that job was stopped. None if somebody asked for the stop, or if nothing is known.

    The end of a lease is recorded before its jobs are stopped. The stop of a job is recorded when the job is gone.
    Older ledgers name the cause only in the record of the lease's end.
    """
    ending: StopCause | None = None
    stopped: StopCause | Literal["asked", "unknown"] = "unknown"
    for _, event in lines:
        match event:
            case timeline.Launched(job=name) if name == job:
                ending, stopped = None, "unknown"
            case timeline.NewTerms() | timeline.Resumed():
                ending = None
            case timeline.Ending(term=term, words=words):
                ending = _cause(term, words) or ending
            case timeline.Stopped(job=name, term=term, words=words) if name == job:
                stopped = _cause(term, words) or ending or "asked"
            case _:
                pass
    if stopped == "unknown":
        return ending
    return None if stopped == "asked" else stopped


def _cause(term: str | None, words: str | None) -> StopCause | None:
    known: tuple[Term, ...] = get_args(Term)
    return next((StopCause(each, words or "") for each in known if each == term), None)
