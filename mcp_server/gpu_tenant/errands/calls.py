"""An errand as calls of a tool. Each call works for some seconds, and says in few words what state the errand is in."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_tenant.domain.command import Command
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
"""How long one call works. A host gives up on a call after a minute."""
_LOOK_S = 10.0
_LOG_BYTES = 800


class AgentCall:
    """One call: who agrees in it to what is rented, and how far it looks."""

    def __init__(self, tenancy: Verbs, *, by: str | None) -> None:
        self._tenancy, self._by = tenancy, by
        self._drive: Drive | None = None
        self.plan: RentalPlan | None = None
        """What a person was to agree to, if nobody agreed in this call."""

    def name(self, run: str, directory: str, said: Mapping[str, object]) -> str:
        """Return the id of the errand: the named one, the same one that is open, or a new one.

        Raises:
            BadRequest: there is no such errand, or nothing says what to run or where.
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

    def hear(self, words: str) -> None:
        """Do nothing, because an agent is told at the end of the call."""

    async def agree(self, plan: RentalPlan) -> str | None:
        """Return who agrees: the caller, if they have said so, or nobody yet."""
        self.plan = plan
        return self._by

    async def follow(self, lease: str, job: str) -> Watched:
        """Look at the job for some seconds."""
        assert self._drive is not None
        return await self._tenancy.follow(
            lease,
            job,
            cursor=None,
            wait_s=self._drive.left_s(_LOOK_S),
            limit_bytes=_LOG_BYTES,
        )

    async def answer(self, asks: Unanswered) -> Answers | None:
        """Return nothing: what a call says about unclaimed files is on record by then."""
        return None
