"""Describes what a person agrees to before a box is rented: the box, its cost, what ends it, and what is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

from gpu_tenant.domain.budget_end import budget_end
from gpu_tenant.domain.command import Option
from gpu_tenant.domain.end_reserve import QuotedBudget
from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.policy import (
    END_S,
    alone_words,
    end_clock,
    left_to_you,
    most_words,
    unasked_words,
    unproved_words,
)
from gpu_tenant.domain.protection import protection
from gpu_tenant.domain.terms import RentRequest
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import in_words, some, span, usd_words
from gpu_tenant.leases.attempts import Attempts
from gpu_tenant.leases.offers import trust_words
from gpu_tenant.leases.provision import terms_by_quote
from gpu_tenant.leases.unasked import takes_words
from gpu_tenant.leases.watchdog_heartbeat import by_this, how

if TYPE_CHECKING:
    from gpu_tenant.domain.offers import Quote
    from gpu_tenant.domain.terms import Terms
    from gpu_tenant.errands.steps import Known
    from gpu_tenant.jobs.smoke import SmokeReceipt
    from gpu_tenant.leases.context import Context
    from gpu_tenant.leases.offers import Ranked


_USD_CENT = Decimal("0.01")


def _earlier_words(earlier: Attempts, most_in_all: Decimal | None) -> str:
    """Say what earlier attempts have cost, and whether the new run's budget includes that."""
    if not earlier.leases:
        return "these sums are for this run alone"
    told = f"{some(earlier.leases, 'earlier box')} of this directory cost {earlier.usd_words}"
    if most_in_all is None:
        return f"these sums are for this run alone; {told}"
    return f"{told}; all together cost at most {usd_words(most_in_all)} ({Option('max-usd-all')})"


def too_small(paid: QuotedBudget) -> tuple[str, str]:
    """Say that the sum does not pay for all the hours of work, and which sum does."""
    return f"{Option('max-usd')} is {paid.words}", paid.remedy(Option("max-usd", paid.enough))


class Planned:
    """One errand's plan, in words."""

    def __init__(
        self,
        context: Context,
        facts: Known,
        chosen: Sequence[Ranked],
        quote: Quote,
        asked: RentRequest,
        smoked: SmokeReceipt | None,
    ) -> None:
        self._context, self._facts, self._chosen, self._quote = context, facts, chosen, quote
        self._errand, self._smoked = facts.errand, smoked
        self._profile = context.profile(quote.offer.provider)
        self._now = context.clock.now()
        self._lease = _as_it_would_be(quote, terms_by_quote(quote, asked, self._now), self._now)

    def lines(
        self, *, order: Sequence[str], earlier: Attempts, undeclared: Sequence[str]
    ) -> list[str]:
        """Return the whole plan in sentences. They state the terms that the lease will have."""
        return [
            *self._too_small(),
            self._offer(),
            "; ".join(
                (self._cost(), self._most(), _earlier_words(earlier, self._errand.max_usd_all))
            ),
            self._ends(),
            f"if this computer dies: {self._unseen()}",
            *self._others(),
            *(f"the box: {words}" for words in order),
            f"it runs {self._errand.command!r}, and keeps {', '.join(self._facts.artifacts)}",
            unasked_words(self._lease.terms),
            self._smoke(),
            *self._memory(),
            *([self._undeclared(undeclared)] if undeclared else []),
        ]

    # The short form, for the question at a terminal

    def headline(self) -> str:
        """Return one line: what is rented, its price, for how long, and the maximum cost by the deadline."""
        first = self._chosen[0]
        parts = [f"{first.gpu_count} x {first.gpu}", first.provider, first.region, _host(first)]
        parts += ["interruptible"] if first.interruptible else []
        where = ", ".join(filter(None, parts))
        hours = f"{self._quote.wish.hours:g} h{' (assumed)' if self._assumed() else ''}"
        return (
            f"{where}: {first.running_usd_h or 'unknown'} USD/h for {hours}{self._most_in_brief()}"
        )

    def _most_in_brief(self) -> str:
        """Return the maximum cost by the deadline, on the most expensive of the boxes that may be rented."""
        if any(offer.running_usd_h is None for offer in self._chosen):
            return ""
        # A box is rented and kept up to its price cap.
        usd_h = max(self._quote.cap_usd_h, *(o.running_usd_h or Decimal(0) for o in self._chosen))
        terms = self._lease.terms
        bills_s = max(0.0, (terms.deadline_at - self._now).total_seconds()) + END_S
        most = (usd_h * Decimal(str(bills_s)) / 3600).quantize(_USD_CENT, ROUND_CEILING)
        holds = ""
        if terms.budget_usd is not None and terms.budget_usd < most and self._is_watched:
            most, holds = terms.budget_usd, " while it is watched"
        is_in_cents = most == most.quantize(_USD_CENT)
        sum_words = f"{most:.2f} USD" if is_in_cents else usd_words(most)
        then = ""
        if self._profile.destroy == "deletes":
            then = f"; files that are not proved then: {unproved_words(self._lease, self._profile)}"
        if all(offer.price.has_free_bytes for offer in self._chosen):
            return f", at most {sum_words} by {terms.deadline_at:%H:%M} UTC{holds}{then}"
        return f", at most {sum_words} plus traffic by {terms.deadline_at:%H:%M} UTC{holds}{then}"

    @property
    def _is_watched(self) -> bool:
        return self._context.looked_after == "watched"

    def brief(self, *, undeclared: Sequence[str]) -> dict[str, str]:
        """Return what a person has to know before they agree: a short text for each title."""
        # Of a box that can be destroyed, the headline has what unproved files cost.
        can_end = self._profile.destroy == "deletes"
        left = None if can_end else left_to_you(self._lease, self._profile)
        budget = {"budget": told} if (told := self._budget_in_brief()) else {}
        ends = {"ends": self._ends_in_brief()}
        return {
            **(budget | ends if self._too_small() else ends | budget),
            "watched": self._watched_in_brief(),
            "keeps": ", ".join(self._facts.artifacts),
            **({"left to you": left} if left else {}),
            **self._risk(undeclared),
        }

    def _ends_in_brief(self) -> str:
        rule = self._lease.terms.on_failure
        failed = {
            "end": f"; a failed job's box: {rule.time_words}" if rule.time_words else "",
            "park": "; a failed job's box is parked, and its disk bills on",
            "hold": "; a failed job's box is kept, and bills on",
        }[rule.does]
        return f"after the job, when its files are proved here, or at {end_clock(self._lease, self._now)}{failed}"

    def _budget_in_brief(self) -> str:
        most = self._errand.max_usd
        if most is None:
            told = f"none: {Option('max-usd', 'USD')} sets one"
        else:
            paid = QuotedBudget(self._quote, most)
            told = (
                ""
                if paid.is_enough
                else f"{usd_words(most)} is too small: it pays for {span(paid.paid_h * 3600)} of {paid.hours:g} h; "
                f"{paid.enough_usd} USD suffices"
            )
        others = [offer.running_usd_h for offer in self._chosen[1:] if offer.running_usd_h]
        if not others or max(others) <= (self._chosen[0].running_usd_h or 0):
            return told
        dearer = f"if this offer is gone, another for up to {max(others)} USD/h"
        return f"{told}; {dearer}" if told else dearer

    def _watched_in_brief(self) -> str:
        words = self._context.watch_words()
        if self._context.watches != "run":
            words = f"by this run during its calls; otherwise {words}"
        return "; ".join(
            filter(
                None,
                (
                    words,
                    alone_words(protection(self._profile, self._lease, None), guard="not armed"),
                ),
            )
        )

    def _risk(self, undeclared: Sequence[str]) -> dict[str, str]:
        """Return the most important warning, with its title."""
        if undeclared:
            return {"decide now": _undeclared_in_brief(undeclared)}
        first = self._chosen[0]
        if self._smoked is not None and self._smoked.gpu_memory is not None:
            warning = self._smoked.gpu_memory.warning(first.vram_gib, self._smoked.id)
            if warning:
                return {"risk": warning}
        if first.interruptible and not self._lease.terms.recover:
            return {
                "risk": f"its platform may take the box; {Option('recover', 'same')} continues on another box"
            }
        if self._smoked is None:
            return {"risk": "no smoke test was run"}
        if first.trust == "unverified":
            return {"risk": "the owner of the machine can read what is on it"}
        return {}

    @property
    def what_suffices(self) -> str:
        """Which sum pays for all the hours of work. Empty if the present sum does, or if there is no limit."""
        most = self._errand.max_usd
        paid = None if most is None else QuotedBudget(self._quote, most)
        return "" if paid is None or paid.is_enough else too_small(paid)[1]

    # The sentences of the full plan

    def _too_small(self) -> list[str]:
        """Say that the sum does not pay for all the hours of work, and which sum does. Empty if it does."""
        most = self._errand.max_usd
        paid = None if most is None else QuotedBudget(self._quote, most)
        if paid is None or paid.is_enough:
            return []
        return [too_small(paid)[0]]

    def _offer(self) -> str:
        first = self._chosen[0]
        return (
            f"{first.gpu_count} x {first.gpu} at {first.provider}"
            f"{f' in {first.region}' if first.region else ''}: {first.running_usd_h or 'unknown'} USD/h"
            f"{', interruptible' if first.interruptible else ''}; {trust_words(first)}"
        )

    def _others(self) -> list[str]:
        others = [f"{o.gpu} at {o.provider} for {o.running_usd_h} USD/h" for o in self._chosen[1:]]
        return [f"if the first offer is gone: {', '.join(others)}"] if others else []

    def _cost(self) -> str:
        hours, price = self._quote.wish.hours, self._chosen[0].running_usd_h
        cost = None if price is None else price * Decimal(str(hours))
        return f"about {usd_words(cost)} for {hours:g} h of work{self._assumed()}"

    def _assumed(self) -> str:
        is_said = "hours" in self._errand.model_fields_set
        return "" if is_said else f" (assumed: {Option('hours', 'N')})"

    def _most(self) -> str:
        most = most_words(self._lease, self._profile, self._context.looked_after, now=self._now)
        if self._errand.max_usd is None:
            return f"{most or 'no cost limit is set'} ({Option('max-usd', 'USD')} sets a limit)"
        return most or f"at most {usd_words(self._errand.max_usd)}"

    def _ends(self) -> str:
        """Say when the lease ends, and who ends it."""
        terms = self._lease.terms
        left = span((terms.deadline_at - self._now).total_seconds())
        rule = terms.on_failure
        later = rule.time_words
        price = self._chosen[0].running_usd_h
        if later and price:
            later += f", for about {usd_words(price * Decimal(rule.longest_s) / 3600)}"
        day = "an unknown sum" if price is None else usd_words(price * 24)
        failed = {
            "end": f"if it failed: {later}" if later else "also if it failed",
            "park": f"if it failed, the box is parked {later or 'at once'}, and its disk bills on",
            "hold": f"if it failed, the box is kept, and bills {day} a day",
        }[rule.does]
        before = [f"when the job has ended and its files are proved here ({failed})"]
        if self._is_watched:
            before += [self._budget()] if terms.budget_usd else []
            before += [f"or if the box is idle for {terms.idle_h:g} h"] if terms.idle_h else []
        return (
            f"deadline {terms.deadline_at:%Y-%m-%d %H:%M} UTC, in {left}: the guard on the box stops the job; "
            f"the lease ends earlier {', '.join(before)}; {self._watched()}"
        )

    def _watched(self) -> str:
        words = f"watched: {self._context.watch_words()}"
        if self._context.watches != "run":
            return f"this run enforces these terms during its calls; at other times {words}"
        return f"{words}; {how(self._context.home.watchdog)}" if by_this("run") in words else words

    def _budget(self) -> str:
        """Say that the lease ends before the budget is spent, and after how long if that is before the deadline."""
        budget = usd_words(self._lease.terms.budget_usd)
        end = budget_end(self._lease, (), self._now)
        if end is None:
            return f"or before {budget} are spent"
        left_s = max(0.0, (end.acts_at - self._now).total_seconds())
        return f"or before {budget} are spent, that is {span(left_s)} after billing begins"

    def _unseen(self) -> str:
        return protection(self._profile, self._lease, None).words

    def _undeclared(self, names: Sequence[str]) -> str:
        """Name the large files that nobody declared, and say what it would take and cost to fetch them."""
        sizes = self._smoked.large if self._smoked is not None else {}
        named = in_words([quote_text(name) for name in names[:5]], len(names))
        takes = takes_words(self._lease, (), sum(sizes.get(name, 0) for name in names))
        return (
            f"the smoke test also wrote {named} ({takes}), too large to come home unasked: decide now whether to keep "
            "that; if the job writes such a file, too, the box bills at the end until you decide"
        )

    def _smoke(self) -> str:
        if self._smoked is None:
            return "no smoke test was run"
        hint = "" if self._errand.smoke else f" ({Option('smoke', 'COMMAND')} names one that does)"
        return (
            f"smoke test: {self._smoked.command!r} ended well here in {self._smoked.seconds:.0f} s, confined by "
            f"{self._smoked.confined}; whether the job can be killed and resumed was not tested, unless that command tests it{hint}{self._gate()}"
        )

    def _gate(self) -> str:
        if not self._errand.gate_s:
            return ""
        return f"; on the rented GPU it is tried again, for at most {span(self._errand.gate_s)} ({Option('gate', 'none')}: not)"

    def _memory(self) -> list[str]:
        """Say how much GPU memory the job needs, and on which of the chosen boxes this is too much."""
        if self._smoked is None or self._smoked.gpu_memory is None:
            return []
        memory = self._smoked.gpu_memory
        first, *others = self._chosen
        lines = [memory.warning(first.vram_gib, self._smoked.id) or memory.words]
        lines += [
            f"{o.gpu} at {o.provider}: {words}"
            for o in others
            if (words := memory.warning(o.vram_gib, self._smoked.id))
        ]
        return lines


def _host(offer: Ranked) -> str:
    """Return in few words whose machine the offer is for."""
    if offer.provider == "own":
        return "your own machine"
    return {
        "unverified": "untested host",
        "verified": "tested host",
        "datacenter": "data centre",
    }[offer.trust]


def _undeclared_in_brief(names: Sequence[str]) -> str:
    named = in_words([quote_text(name) for name in names[:5]], len(names))
    return f"whether to keep {named}; if the job writes such a file, the box bills until you decide"


def _as_it_would_be(quote: Quote, terms: Terms, now: datetime) -> Lease:
    """Return the lease that a rental by this quote would create. It is used for the words only, and is not recorded."""
    return Lease(
        id=LeaseId("planned"),
        mark="",
        provider=quote.offer.provider,
        state=LeaseState.INTENDED,
        terms=terms,
        quote=quote,
        box_id=None,
        address=None,
        price_usd_h=quote.offer.price.running_usd_h,
        rates=(),
        created_at=now,
        active_at=None,
        ready_at=None,
        parked_at=None,
        ended_at=None,
        touched_at=None,
        kept_in=None,
    )
