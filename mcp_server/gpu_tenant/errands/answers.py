"""What an errand reports: its state, what is about to be rented, and the questions that only a person can answer."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from pydantic import Field

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.untrusted_text import sentence
from gpu_tenant.domain.wording import cost_words, span
from gpu_tenant.errands.steps import Step
from gpu_tenant.leases.cards import TornDown
from gpu_tenant.leases.spending_plan import SpendingPlan

_TOLD = 20
"""An agent is told at most this many losses. The terminal names all of them."""

_NOT_PROVED, _NOT_PROVED_LONG = 3, 110
"""An agent is told at most this many of the unproved things, each with at most this many characters."""

ILL_ENDED = ("failed", "killed")
"""If a job ends in one of these states, the log says why."""

Outcome = Literal["under way", "asks", "done", "failed", "incomplete", "suspect", "declined"]
"""`asks`: it waits for a person. `failed`: the smoke test or the job did not end well; nothing was lost.

`declined`: a person said no to its plan, so nothing was rented. `incomplete`, `suspect`: see `domain/outcome.py`.
"""


class RentalPlan(Record):
    """What is about to be rented. Nothing is rented before somebody has agreed."""

    run: str
    lines: tuple[str, ...]
    headline: str = Field(default="", description="what is rented, and the most that it costs")
    brief: dict[str, str] = Field(
        default_factory=dict, description="the lines in brief, each with its title"
    )
    quotes: tuple[str, ...]
    most_usd_h: Usd
    most_usd: Usd
    by_deadline_usd: Usd = Field(default=None, description="the most that it costs by its deadline")
    has_free_bytes: bool = Field(default=False, exclude=True)
    too_small: str = Field(
        default="", description="what suffices, if the sum does not pay for all the hours of work"
    )
    undeclared: tuple[str, ...] = Field(
        default=(), description="what the smoke test wrote, and nobody declared"
    )

    @property
    def spending(self) -> SpendingPlan:
        """The money that the plan promises, as somebody agrees to it."""
        usd = self.by_deadline_usd
        return SpendingPlan(
            kind="rent",
            subjects=(self.run,),
            would=f"rent for {self.run}",
            usd=usd,
            lines=self.lines,
            has_free_bytes=self.has_free_bytes,
            is_budget=usd is not None and usd == self.most_usd,
        )

    @property
    def question(self) -> str:
        """What a person is shown before they answer."""
        return "\n".join(("Rent this?", *(f"- {line}" for line in self.lines)))


class Unanswered(Record):
    """All the questions that only a person can answer."""

    lease: str | None = Field(description="None: nothing is rented yet")
    losses: tuple[str, ...] = Field(description="what a teardown would lose now")
    unclaimed: tuple[str, ...] = Field(default=(), description="files that nobody has claimed")
    keeps: tuple[str, ...] = Field(
        default=(),
        description="the patterns that keep them, and what a longer run writes like them",
    )
    ways: tuple[str, ...] = Field(description="the commands that answer")
    usd_h: Decimal | None = Field(default=None, description="what the box costs meanwhile")


class ErrandStatus(Record):
    """The state of an errand."""

    run: str
    outcome: Outcome
    step: Step
    words: str
    lease: str | None = None
    plan: RentalPlan | None = None
    asks: Unanswered | None = None
    job_state: str | None = None
    ended: TornDown | None = Field(default=None, description="the receipt")
    log: str = Field(default="", description="the end of the log of what failed")
    mend: str = Field(default="", description="what makes another run go further, if that is known")
    log_of: str = Field(default="the job's log, from the box", description="which log that is")
    watched: str = Field(
        default="", description="who looks after its live box once this call has ended"
    )
    next: str


class RunTold(Record):
    """The state of an errand, in few words."""

    run: str = Field(description="the errand's id, for `id` of the next call")
    outcome: Outcome
    words: str
    asks: tuple[str, ...] = Field(default=(), description="show these to the person")
    log: str = ""
    next: str


def _next_words(standing: ErrandStatus) -> str:
    if standing.step != "show":
        return standing.next
    if standing.mend:
        return f"nothing bills for it; {standing.mend}"
    if standing.outcome != "done":
        return "nothing bills for this run; correct what the words and the log show, then start a new run, with a new plan"
    return "nothing: it has ended"


def _not_proved_words(sentences: Sequence[str], lease: str) -> str:
    """Name some of what a receipt could not prove. Empty if it proved everything."""
    if not sentences:
        return ""
    told = "; ".join(sentence(each, most=_NOT_PROVED_LONG) for each in sentences[:_NOT_PROVED])
    more = len(sentences) - _NOT_PROVED
    rest = f"; and {more} more: {Command('report', lease)}" if more > 0 else ""
    return f"; not proved: {told}{rest}"


def in_few_words(standing: ErrandStatus, log: str = "") -> RunTold:
    """Return the state of the errand in a short form for an agent.

    `log` must be fenced already: between tags that mark it as text from outside.
    """
    words, asks = standing.words, tuple[str, ...]()
    if standing.ended is not None:
        receipt = standing.ended.receipt
        words += (
            f"; receipt: {receipt.ground}, seen gone twice,"
            f" {cost_words(receipt.spent_usd, receipt.counts)} for {span(receipt.lived_s)}"
        )
        words += f"; {standing.ended.work}" if standing.ended.work else ""
        words += _not_proved_words(receipt.not_proved, standing.ended.lease)
    if standing.plan is not None:
        asks = standing.plan.lines
    if standing.asks is not None:
        told = standing.asks
        asks = (*told.losses[:_TOLD], *told.ways)
        if told.usd_h is not None:
            words += f"; it bills {told.usd_h} USD/h until it is ended"
    return RunTold(
        run=standing.run,
        outcome=standing.outcome,
        words=words,
        asks=asks,
        log=log,
        next=_next_words(standing),
    )
