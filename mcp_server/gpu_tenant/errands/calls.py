"""Runs an errand by calls of an agent's tool. Each call works for some seconds, and reports the state of the errand."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errand import EndShown
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.untrusted_text import fence
from gpu_tenant.errands.answers import RentalPlan, RunTold, Unanswered, in_few_words
from gpu_tenant.errands.drive import Answers, Drive, begin, declare, facts_of
from gpu_tenant.errands.requests import errand_of
from gpu_tenant.errands.steps import next_step

if TYPE_CHECKING:
    from gpu_tenant.errands.verbs import Verbs
    from gpu_tenant.jobs.monitor import Watched

_CALL_S = 40.0
"""One call works for this long, because an agent's program gives up on a call after a minute."""
_LOOK_S = 10.0
_LOG_BYTES = 800


class AgentCall:
    """One call of the tool. It implements `Face` for an errand that an agent drives.

    `by` says who agrees to the rental; None if nobody has agreed.
    """

    def __init__(self, tenancy: Verbs, *, by: str | None) -> None:
        self._tenancy, self._by = tenancy, by
        self._drive: Drive | None = None
        self.plan: RentalPlan | None = None
        """The plan for which this call needed an agreement, if it did."""

    def name(self, run: str, directory: str, said: Mapping[str, object]) -> str:
        """Return the id of the errand: of the one that is named, of an open one with the same request, or of a new one.

        Raises:
            BadRequest: there is no such errand, or the call does not say what to run, or where.
        """
        if not run:
            if not directory:
                raise BadRequest(
                    "neither a run nor a work tree is named",
                    remedy=(
                        f"{Command('run', resume='ID')} continues a run; or name directory, command and "
                        "artifacts"
                    ),
                )
            return begin(self._tenancy, errand_of(self._tenancy.context, Path(directory), said))
        self._tenancy.ledger.errand(run)
        artifacts, discard = said.get("artifacts"), said.get("discard")
        if artifacts or discard:
            assert isinstance(artifacts, tuple)
            assert isinstance(discard, tuple)
            declare(self._tenancy, run, artifacts, discard)
        return run

    def decline(self, plan: RentalPlan) -> None:
        """Record that a person has declined the plan. The errand is over, and nothing can be rented for it."""
        tenancy = self._tenancy
        tenancy.context.owner.note_answer(plan.spending, "no")
        tenancy.ledger.note_errand(plan.run, EndShown(outcome="declined"), at=tenancy.clock.now())

    def is_undecided(self, run: str) -> bool:
        """Whether nobody has agreed yet to what is to be rented."""
        return next_step(facts_of(self._tenancy, run)) in ("smoke", "choose")

    async def go_on(self, run: str) -> RunTold:
        """Work on the errand for a while, and return its state."""
        self._drive = Drive(self._tenancy, run, self, wait_s=_CALL_S)
        standing = await self._drive.go_on()
        log = standing.log[-_LOG_BYTES:]
        told = in_few_words(
            standing, fence(log, nonce=secrets.token_hex(4), of=standing.log_of) if log else ""
        )
        self._drive.note_shown(standing)
        return told

    @property
    def agrees_ahead(self) -> bool:
        """Whether the call agrees for an agent, who has not seen the plan."""
        return self._by == "agent"

    def hear(self, words: str) -> None:
        """Do nothing, because an agent gets the state only at the end of the call."""

    async def agree(self, plan: RentalPlan) -> str | None:
        """Return who agrees to the plan, as the call says. None if nobody has agreed yet."""
        self.plan = plan
        return self._by

    async def follow(self, lease: str, job: str) -> Watched:
        """Watch the job for some seconds."""
        assert self._drive is not None
        return await self._tenancy.follow(
            lease,
            job,
            cursor=None,
            wait_s=self._drive.left_s(_LOOK_S),
            limit_bytes=_LOG_BYTES,
        )

    async def answer(self, asks: Unanswered) -> Answers | None:
        """Return None: what the call says about unclaimed files was recorded at its start."""
        return None
