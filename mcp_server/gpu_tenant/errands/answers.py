"""What an errand tells: where it stands, what is about to be rented, and what only a person can answer."""

from decimal import Decimal
from typing import Literal

from pydantic import Field

from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.errands.steps import Step
from gpu_tenant.leases.cards import TornDown

Outcome = Literal["under way", "asks", "done", "failed"]
"""`asks`: it waits for a person. `failed`: the smoke test or the job did not end well; nothing was lost."""


class Plan(Record):
    """What is about to be rented. Nothing is rented before somebody has agreed."""

    run: str
    lines: tuple[str, ...]
    quotes: tuple[str, ...]
    most_usd_h: Usd
    most_usd: Usd


class Unanswered(Record):
    """What only a person can answer, all of it in one list."""

    lease: str
    losses: tuple[str, ...] = Field(description="what a teardown would lose now")
    unclaimed: tuple[str, ...] = Field(default=(), description="files that nobody has claimed")
    never_appeared: tuple[str, ...] = ()
    ways: tuple[str, ...] = Field(description="the commands that answer")
    usd_h: Decimal | None = Field(default=None, description="what the box costs meanwhile")


class Standing(Record):
    """Where an errand stands."""

    run: str
    outcome: Outcome
    step: Step
    words: str
    lease: str | None = None
    plan: Plan | None = None
    asks: Unanswered | None = None
    job_state: str | None = None
    ended: TornDown | None = Field(default=None, description="the receipt")
    log: str = Field(default="", description="the end of the log of what failed")
    next: str
