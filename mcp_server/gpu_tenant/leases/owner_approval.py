"""What only a box's owner can decide: the limits they wrote, and what they sign for beyond those limits."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import Limit, Refused
from gpu_tenant.domain.model import Lease, LeaseId, Profile
from gpu_tenant.domain.offers import Quote
from gpu_tenant.domain.policy import must_end_unseen, rescue, running_usd_h
from gpu_tenant.domain.terms import OnFailure, Terms
from gpu_tenant.domain.wording import some
from gpu_tenant.leases.speaker import speaker
from gpu_tenant.leases.spending_limits import (
    AskedBy,
    Limits,
    Use,
    Wanted,
    limits_of,
    must_be_within,
    since,
    used_of,
)
from gpu_tenant.leases.spending_plan import SpendingPlan, most_usd
from gpu_tenant.leases.work_budget import most_for_left_behind_usd
from gpu_tenant.ledger import Ledger

Unguarded = Literal["refuse", "accept"]

_A_DAY = timedelta(days=1)


class Owner:
    """The one place that decides whether a lease may cost more, or last longer."""

    def __init__(
        self, configuration: Path, profiles: Mapping[str, Profile], *, ledger: Ledger
    ) -> None:
        self._configuration = configuration
        self._ledger = ledger
        self._free = {slug for slug, profile in profiles.items() if profile.kind == "own"}

    @property
    def limits(self) -> Limits:
        """The owner's limits. They are read from the file each time.

        Raises:
            LocalTrouble: the configuration is not valid.
        """
        return limits_of(self._configuration)

    def usage(self) -> list[Use]:
        """Return how much of each limit is used, for the limits that are sums."""
        now = self._ledger.now()
        return used_of(self.limits, self._ledger.leases_since(since(now)), free=self._free, now=now)

    def allows(
        self,
        provider: str,
        terms: Terms,
        usd_h: Decimal | None,
        *,
        besides: LeaseId | None = None,
        count: int = 1,
    ) -> None:
        """Check that the limits leave room for such a lease, or for `count` identical ones.

        `besides` is an existing lease that this would change. It is not counted twice.

        Raises:
            Limit: a limit would be exceeded.
        """
        now = self._ledger.now()
        must_be_within(
            self.limits,
            Wanted(provider, terms, usd_h, besides, count),
            self._ledger.leases_since(since(now)),
            free=self._free,
            now=now,
            configuration=self._configuration,
        )

    def bound_quote(self, quote: Quote) -> Quote:
        """Return the quote. If its price cap is above the owner's limit for one box, lower the cap to that limit.

        So no box above the limit is rented or kept, whatever cap the caller named.
        """
        price, most = quote.offer.price.running_usd_h, self.limits.box_usd_h
        if price is None or quote.cap_usd_h <= most:
            return quote
        # If the price itself is above the limit, keep the cap at the price. A later check then refuses the quote and
        # names the limit.
        return quote.model_copy(update={"cap_usd_h": max(price, most)})

    # --- what a person agrees to

    def asks(self, plan: SpendingPlan, asked_by: AskedBy) -> bool:
        """Whether a person must agree to the plan before it is carried out, and nobody has yet."""
        if plan.kind == "adopt":
            return not self._has_yes(plan)  # whose box it is, only a person knows
        above = self.limits.asks_above_usd(asked_by)
        if above is None or self._has_yes(plan):
            return False
        if above == 0 or plan.usd is None:
            return True
        said = self._ledger.answers(plan.kind, since=self._ledger.now() - _A_DAY)
        if said and said[-1].said != "yes":
            return True  # after a no, the agent's own word is not enough for anything
        return plan.usd + self._unasked_usd() > above

    def must_be_agreed(self, plan: SpendingPlan) -> None:
        """Require that a person has agreed to the plan, if the owner's rule asks for that.

        Raises:
            Refused: a person has declined it.
            SignatureWanted: nobody has agreed to it yet.
        """
        who, now = speaker.get(), self._ledger.now()
        if self._ledger.declined(plan.subjects):
            raise declined(plan)
        if who == "person" and not self._has_yes(plan):
            self.note_answer(plan, "yes")
        if who != "agent" or not self.asks(plan, "signature"):
            return
        code = self._ledger.must_be_signed(
            kind=plan.kind,
            subject=plan.subject,
            would=f"{plan.would}, {plan.cost}",
            words=plan.lines,
            digest=plan.digest,
            at=now,
        )
        self._ledger.use_signature(code, at=now)
        self.note_answer(plan, "yes")

    def is_signed(self, plan: SpendingPlan) -> bool:
        """Whether a person's unused signature is for such a plan."""
        now = self._ledger.now()
        found = self._ledger.unused_signature(plan.kind, plan.subject, plan.digest, at=now)
        return found is not None

    def note_answer(self, plan: SpendingPlan, said: Literal["yes", "no", "nothing"]) -> None:
        """Record a person's answer to the plan."""
        self._ledger.note_answer(
            plan.kind, said, plan.subjects, usd=plan.usd, would=plan.would, at=self._ledger.now()
        )

    def _has_yes(self, plan: SpendingPlan) -> bool:
        """Whether a person has agreed to this plan, or to a dearer one of the same subjects."""
        since = self._ledger.now() - _A_DAY
        for answer in reversed(self._ledger.answers(plan.kind, since=since)):
            if {*plan.subjects} <= answer.subjects:
                if answer.said != "yes":
                    return False
                return answer.usd is None or (plan.usd is not None and plan.usd <= answer.usd)
        return False

    def _unasked_usd(self) -> Decimal:
        """Return what live leases, and those that ended within a day, cost beyond what people have agreed to.

        A live lease counts with the most that it costs by its deadline.
        """
        now, agreed, total = self._ledger.now(), self._agreed_usd(), Decimal(0)
        for lease in self._ledger.leases_since(now - _A_DAY):
            if lease.quote is None or lease.recovers is not None:
                continue
            names = (lease.id, lease.quote.id, *self._ledger.made_for(lease.id))
            sums = [agreed[name] for name in names if name in agreed]
            if None in sums:
                continue
            cost = lease.cost_usd(now) or Decimal(0)
            if lease.state.live and (usd_h := running_usd_h(lease)) is not None:
                left = lease.terms.deadline_at - lease.created_at
                cost = max(cost, most_usd(usd_h, left, lease.terms.budget_usd))
            total += max(Decimal(0), cost - sum(filter(None, sums), Decimal(0)))
        return total

    def _agreed_usd(self) -> dict[str, Decimal | None]:
        """Return the sums that people have agreed to, by quote, run, wish or lease. None if a sum was not named."""
        agreed: dict[str, Decimal | None] = {}
        for answer in (*self._ledger.answers("rent"), *self._ledger.answers("extend")):
            if answer.said != "yes":
                continue
            for subject in answer.subjects:
                name = subject.partition(" ")[0]
                before = agreed.get(name, Decimal(0))
                agreed[name] = None if before is None or answer.usd is None else before + answer.usd
        return agreed

    # --- what is signed for

    def signs_unguarded(
        self, word: Unguarded, profile: Profile, usd_h: Decimal | None, *, count: int = 1
    ) -> str | None:
        """Return the code of a signature for boxes that nothing ends if this computer fails. None if none is needed.

        Raises:
            Refused: the caller has not said that they accept such a box.
            SignatureWanted: nobody has signed for it yet.
        """
        together = None if usd_h is None else usd_h * count
        try:
            must_end_unseen(profile, together)
        except Refused:
            if word == "refuse":
                raise
            if self.limits.unguarded == "allowed":
                return None
        else:
            return None
        day = "an unknown sum" if together is None else f"{together * 24:.2f} USD"
        return self._ledger.must_be_signed(
            kind="unguarded",
            subject=profile.id,
            would=f"rent {some(count, 'box')} at {profile.title} whose bill would run on if this computer dies",
            words=(f"a day that nobody notices costs {day}",),
            at=self._ledger.now(),
        )

    def signs_for_no_smoke(self, smoke: str | None, provider: str) -> str | None:
        """Return the code of a signature for renting without a smoke test. None if none is needed.

        Raises:
            SignatureWanted: nobody has signed for it yet.
        """
        if smoke != "none" or self.limits.smoke == "asked":
            return None
        return self._ledger.must_be_signed(
            kind="no smoke test",
            subject=provider,
            would=f"rent at {provider} without a smoke test",
            words=(
                "without it, a bug that a smoke test would find here is found while the box bills",
            ),
            at=self._ledger.now(),
        )

    def signs_change(
        self, lease: Lease, terms: Terms, usd_h: Decimal | None, *, hours: float | None
    ) -> str | None:
        """Return the code of a signature for a lease's looser terms, or for a higher cost. None if none is needed.

        Tighter terms need no signature. A later deadline within the limits and the lease's budget needs none either.
        `hours` is the new deadline in hours from now, if it was given in hours.

        Raises:
            SignatureWanted: nobody has signed for it yet.
        """
        words = [*self._looser(lease, terms, usd_h)]
        dearer = terms.deadline_at > lease.terms.deadline_at or usd_h != lease.price_usd_h
        dearer = dearer or self.is_of_its_work(lease, terms)
        if words or dearer:
            try:
                self.allows(lease.provider, terms, usd_h, besides=lease.id)
            except Limit as limit:
                words.append(f"that is beyond the limit {limit.name} of {limit.value}")
        if not words:
            if dearer and (plan := self.plan_of_change(lease, terms, usd_h)) is not None:
                self.must_be_agreed(plan)
            return None
        if hours is not None:
            words.append(f"its deadline is then {hours:g} hours after this change is carried out")
        return self._ledger.must_be_signed(
            kind="terms",
            subject=lease.id,
            would=f"loosen the terms of {lease.id}",
            words=words,
            at=self._ledger.now(),
        )

    def plan_of_change(
        self, lease: Lease, terms: Terms, usd_h: Decimal | None
    ) -> SpendingPlan | None:
        """Return what a later deadline promises beyond what was agreed. None if that is nothing."""
        until = lease.terms.deadline_at
        if terms.deadline_at <= until or lease.provider in self._free or usd_h == 0:
            return None
        if lease.parked_at is None and lease.ready_at is None:
            # While a box boots, it may bill less than it does later.
            usd_h = max(filter(None, (usd_h, running_usd_h(lease))), default=usd_h)
        if usd_h is not None and terms.budget_usd is not None:
            return None  # the budget was agreed to, and bounds the whole lease
        added = None
        if usd_h is not None:
            # Its price may rise as far as its cap.
            usd_h = max(usd_h, terms.max_price_usd_h or usd_h)
            added = most_usd(usd_h, terms.deadline_at - max(until, self._ledger.now()), None)
        return SpendingPlan(
            kind="extend",
            subjects=(f"{lease.id} {until.isoformat()}",),
            would=f"move the deadline of {lease.id}",
            usd=added,
            lines=(f"its deadline is then {terms.deadline_at:%Y-%m-%d %H:%M} UTC",),
            has_free_bytes=lease.quote is not None and lease.quote.offer.price.has_free_bytes,
        )

    def is_of_its_work(self, lease: Lease, terms: Terms) -> bool:
        """Whether the new budget is larger, but still within the sum that the owner agreed to for the lease's work.

        This is so only if another lease continues the work. The sum is for all leases of the work together.
        """
        if not _rises(lease.terms.budget_usd, terms.budget_usd) or terms.budget_usd is None:
            return False
        most = most_for_left_behind_usd(self._ledger, lease)
        return most is not None and terms.budget_usd <= most

    def _looser(self, lease: Lease, terms: Terms, usd_h: Decimal | None) -> Iterator[str]:
        before = lease.terms
        if _rises(before.budget_usd, terms.budget_usd) and not self.is_of_its_work(lease, terms):
            yield f"its budget goes from {before.budget_usd} to {_or_none(terms.budget_usd)} USD"
        if _rises(before.max_price_usd_h, terms.max_price_usd_h):
            yield f"its price cap goes from {before.max_price_usd_h} to {_or_none(terms.max_price_usd_h)} USD/h"
        if terms.rescue_usd != before.rescue_usd and terms.rescue_usd is not None:
            most = rescue(lease)
            if most is None or terms.rescue_usd > most:
                yield f"its rescue sum goes from {_or_none(most)} to {terms.rescue_usd} USD"
        if before.idle_h is not None and (terms.idle_h is None or terms.idle_h > before.idle_h):
            after = "never" if terms.idle_h is None else f"after {terms.idle_h:g} h"
            yield f"it is now ended after {before.idle_h:g} idle hours; then {after}"
        if before.when_done != "keep" and terms.when_done == "keep":
            yield "it goes on billing when its work is done, until another of its terms ends it"
        elif before.when_done == "end" and terms.when_done == "park":
            yield "when its work is done, it is parked and no longer torn down, and its disk goes on billing"
        elif terms.when_done != "keep" and _waits_longer(before.on_failure, terms.on_failure):
            yield f"for a box whose job failed, the term changes from `{before.on_failure.words}` to `{terms.on_failure.words}`"
        if terms.deadline_at > before.deadline_at and terms.budget_usd is not None:
            now = self._ledger.now()
            spent, left = lease.cost_usd(now), terms.deadline_at - now
            to_come = (usd_h or Decimal(0)) * Decimal(left.total_seconds()) / 3600
            if spent is not None and spent + to_come > terms.budget_usd:
                yield f"until its deadline it costs more than its budget of {terms.budget_usd} USD"


def _rises(before: Decimal | None, after: Decimal | None) -> bool:
    """Whether a limit becomes looser. None means that there is no limit."""
    return before is not None and (after is None or after > before)


def _waits_longer(before: OnFailure, after: OnFailure) -> bool:
    """Whether a box whose job failed would bill for longer than before, or would be parked instead of ended."""
    if before.does == "hold" or after.does == "hold":
        return before.does != "hold"
    return after.longest_s > before.longest_s or (before.does, after.does) == ("end", "park")


def _or_none(usd: Decimal | None) -> str:
    return "an unknown sum" if usd is None else str(usd)


def declined(plan: SpendingPlan) -> Refused:
    """Make the error for a plan that a person has declined."""
    return Refused(
        "a person declined this plan, so it is over, and nothing was rented by it"
        if plan.kind == "rent"
        else "a person declined this, and nothing was changed",
        remedy=f"ask the person what should change; only a new plan that they are shown can rent: {Command('offers')} begins it"
        if plan.kind == "rent"
        else "ask the person what should change",
    )
