"""The owner's limits, which no tool raises: how much of each is used, and whether one more lease fits."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import Limit, LocalTrouble
from gpu_tenant.domain.model import Lease, LeaseId
from gpu_tenant.domain.policy import running_usd_h
from gpu_tenant.domain.record import MOST_H, Amount, Record
from gpu_tenant.domain.terms import RESCUE_H, Rate, Terms, cost_usd
from gpu_tenant.domain.wording import some
from gpu_tenant.providers.credentials import read_table

TABLE = "limits"
"""The table of the owner's configuration that holds the limits."""

UNASKED_USD = Decimal(20)
"""Where nobody can be asked, an agent rents for this sum in a day at most without a person's signature.

It pays for a day of a consumer card, or for a short run on a large one. A mistake of that size is a nuisance.
"""


AskedBy = Literal["question", "signature"]
"""How a person is asked: the agent's program puts a question to its user, or else a signature is wanted."""


class Limits(Record):
    """The owner's limits. The defaults suit one or two ordinary leases."""

    usd_h: Amount = Field(default=Decimal(20), description="USD an hour, all boxes together")
    usd_day: Amount = Field(default=Decimal(300), description="USD in a day, UTC")
    usd_month: Amount = Field(default=Decimal(1000), description="USD in a month, UTC")
    boxes: int = Field(
        default=16, ge=0, le=10_000, strict=True, description="how many may bill at the same time"
    )
    hours: float = Field(default=168, gt=0, le=MOST_H, description="from now to a lease's deadline")
    box_usd_h: Amount = Field(default=Decimal(15), description="USD an hour, for one box")
    volumes_usd_month: Amount = Field(
        default=Decimal(50), description="USD a month, all volumes together"
    )
    unguarded: Literal["signed", "allowed"] = Field(
        default="signed",
        description="whether it takes a signature to rent an expensive box whose bill nothing ends if this "
        "computer dies",
    )
    smoke: Literal["asked", "needed"] = Field(
        default="asked", description="whether renting without a smoke test takes a signature"
    )
    ask: str = Field(
        default="where possible",
        pattern=r"^(always|where possible|never|above \d{1,7}(\.\d{1,2})? USD)$",
        description="when a person is asked before money is promised: `always`, `where possible`, "
        "`above 20 USD` or `never`",
    )

    def asks_above_usd(self, asked_by: AskedBy) -> Decimal | None:
        """Return the sum in a day above which renting takes a person's own word. None if it never does.

        `asked_by` says how a person would be asked.
        """
        match self.ask:
            case "never":
                return None
            case "always":
                return Decimal(0)
            case "where possible":
                return Decimal(0) if asked_by == "question" else UNASKED_USD
            case above:
                return Decimal(above.split()[1])


def signatures_wanted_now(limits: Limits) -> dict[str, str]:
    """For each limit that is not a number, return in words what its present setting means."""
    return {
        "unguarded": "to rent an expensive box that nothing stops if this computer dies takes a signature"
        if limits.unguarded == "signed"
        else "to rent an expensive box that nothing stops if this computer dies takes no signature",
        "smoke": "to rent without a smoke test takes a signature"
        if limits.smoke == "needed"
        else "to rent without a smoke test takes no signature",
        "ask": _asking_words(limits),
    }


def _asking_words(limits: Limits) -> str:
    match limits.ask:
        case "never":
            return "an agent may rent without asking a person"
        case "always":
            return "nothing is rented before a person agrees"
        case "where possible":
            return (
                "a person is asked before each rental where the agent's program can ask; elsewhere an agent rents for "
                f"{UNASKED_USD} USD in a day at most without a person's signature"
            )
        case above:
            return f"a person agrees to what an agent rents {above} in a day"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a lease, or `count` identical ones, would cost from now on."""

    provider: str
    terms: Terms
    usd_h: Decimal | None
    besides: LeaseId | None = None
    """An existing lease that this would change. It is not counted twice."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Use:
    """How much of one limit is used."""

    name: str
    used: Decimal
    words: str
    is_near: bool = False
    """Whether half of the limit is used, or more."""


def limits_of(configuration: Path) -> Limits:
    """Read the limits that the owner has written. The others have careful defaults.

    Raises:
        LocalTrouble: what the owner wrote is not a valid limit. Nothing is rented until it is.
    """
    said = read_table(configuration, TABLE)
    try:
        return Limits.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        raise LocalTrouble(
            f"{configuration}: [{TABLE}] {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}",
            remedy=f"correct that line; the limits are {', '.join(Limits.model_fields)}",
        ) from None


def must_be_within(
    limits: Limits,
    wanted: Wanted,
    leases: Sequence[Lease],
    *,
    free: Collection[str],
    now: datetime,
    configuration: Path,
) -> None:
    """Check that what is wanted stays within every limit, counting all live leases and what was already spent.

    `leases` are all leases that are live or ended this month. `free` names the providers that bill nothing
    themselves. A box of unknown price counts at its cap, if it has one.

    Raises:
        Limit: it exceeds a limit. The message names the first such limit, and how much of it is used.
    """
    price = wanted.usd_h if wanted.usd_h is not None else wanted.terms.max_price_usd_h
    if wanted.usd_h == 0 or (wanted.usd_h is None and wanted.provider in free):
        return

    def refuse(name: str, would_be: str, used: str) -> Limit:
        value = getattr(limits, name)
        passed = Limit(
            f"{would_be}, and the owner's limit {name} is {value:g}{used}",
            remedy=f"ask for less (hours, a cheaper box, {Option('budget-usd')}), or end what is not needed; only the owner "
            f"raises the limit: {Command('limits')} at a terminal, or {name} below [{TABLE}] in {configuration}",
        )
        passed.name, passed.value = name, f"{value:g}"
        return passed

    others = [lease for lease in leases if lease.id != wanted.besides]
    price = Decimal(0) if price is None else price
    if price > limits.box_usd_h:
        raise refuse("box_usd_h", f"one box costs {price} USD/h", "")
    left_h = (wanted.terms.deadline_at - now).total_seconds() / 3600
    # Allow one second for the time since the request, so that a request for exactly the limit works.
    if left_h > limits.hours + 1 / 3600:
        raise refuse("hours", f"its deadline is {left_h:g} hours from now", "")
    burning = [lease for lease in others if lease.state.live and may_bill(lease, free)]
    if len(burning) + wanted.count > limits.boxes:
        raise refuse(
            "boxes",
            f"with {wanted.count} more there would be {len(burning) + wanted.count} boxes",
            f", of which {len(burning)} are used",
        )
    together = sum((usd_h_of(lease) for lease in burning), Decimal(0))
    if together + price * wanted.count > limits.usd_h:
        raise refuse(
            "usd_h",
            f"with this lease, all boxes together would cost {together + price * wanted.count} USD/h",
            f" USD/h, of which {together} are used",
        )
    own = _Course.if_rented(
        wanted, price, next((x for x in leases if x.id == wanted.besides), None), now
    )
    courses = [_Course.of(lease, now) for lease in others]
    for name, what, begin, end in _windows(now):
        used = sum((course.usd(begin, end, now) for course in courses), Decimal(0))
        would_be = used + own.usd(begin, end, now) * wanted.count
        if would_be > getattr(limits, name):
            raise refuse(
                name,
                f"with this lease, {what} could cost {would_be:.2f} USD, counting every lease to its deadline",
                f" USD, of which {used:.2f} are spent or promised",
            )


def used_of(
    limits: Limits, leases: Sequence[Lease], *, free: Collection[str], now: datetime
) -> list[Use]:
    """Return how much of each limit is used, for those limits that are sums. `leases` is as for `must_be_within`."""
    burning = [lease for lease in leases if lease.state.live and may_bill(lease, free)]
    together = sum((usd_h_of(lease) for lease in burning), Decimal(0))
    courses = [_Course.of(lease, now) for lease in leases]
    unknown = len(unpriced_leases(leases, free))
    besides = f", besides {some(unknown, 'box')} at an unknown price" if unknown else ""
    told = [
        Use("usd_h", together, f"{together:g} of {limits.usd_h:g} USD/h{besides}"),
        Use("boxes", Decimal(len(burning)), f"{len(burning)} of {limits.boxes} boxes"),
    ]
    seen: set[str] = set()
    for name, what, begin, end in _windows(now):
        if name not in seen:
            seen.add(name)
            used = sum((course.usd(begin, end, now) for course in courses), Decimal(0))
            told.append(
                Use(
                    name,
                    used,
                    f"{used:.2f} of {getattr(limits, name):g} USD, spent or promised, {what}",
                    is_near=used * 2 >= getattr(limits, name),
                )
            )
    return told


def since(now: datetime) -> datetime:
    """Return the begin of this month. A lease that ended before it counts towards no limit."""
    return _month(now, 0)


def may_bill(lease: Lease, free: Collection[str]) -> bool:
    """Whether the lease's box may cost something, as far as is known."""
    usd_h = lease.price_usd_h
    return usd_h != 0 and not (usd_h is None and lease.provider in free)


def unpriced_leases(leases: Sequence[Lease], free: Collection[str]) -> list[Lease]:
    """Return the leases that bill at an unknown price and have no cap. No sum in USD includes them."""
    return [
        lease
        for lease in leases
        if lease.state.live and may_bill(lease, free) and _at_most_usd_h(lease) is None
    ]


def usd_h_of(lease: Lease) -> Decimal:
    """Return what a live lease costs an hour.

    While its box boots, this is what the box will cost when it runs. If the price is unknown, this is the
    lease's cap.
    """
    return _at_most_usd_h(lease) or Decimal(0)


def _at_most_usd_h(lease: Lease) -> Decimal | None:
    usd_h = lease.price_usd_h
    if lease.parked_at is None and lease.ready_at is None:
        usd_h = max((x for x in (usd_h, running_usd_h(lease)) if x is not None), default=None)
    return usd_h if usd_h is not None else lease.terms.max_price_usd_h


@dataclass(frozen=True, slots=True)
class _Course:
    """What one lease has cost so far, and what it may still cost."""

    rates: tuple[Rate, ...]
    ended_at: datetime | None
    usd_h: Decimal
    until: datetime
    left_usd: Decimal | None
    """What is left of the lease's budget. None if it has no budget."""
    rescue_usd: Decimal
    """The rescue sum, which may be spent after the lease's end."""

    @classmethod
    def of(cls, lease: Lease, now: datetime) -> "_Course":
        rates = tuple(
            rate if rate.usd_h is not None else Rate(at=rate.at, usd_h=Decimal(0))
            for rate in lease.rates
        )
        if not lease.state.live:
            return cls(rates, lease.ended_at or now, Decimal(0), now, None, Decimal(0))
        return cls._to_come(rates, lease.terms, usd_h_of(lease), now)

    @classmethod
    def if_rented(
        cls, wanted: Wanted, usd_h: Decimal, before: Lease | None, now: datetime
    ) -> "_Course":
        rates = () if before is None else cls.of(before, now).rates
        return cls._to_come(rates, wanted.terms, usd_h, now)

    @classmethod
    def _to_come(
        cls, rates: tuple[Rate, ...], terms: Terms, usd_h: Decimal, now: datetime
    ) -> "_Course":
        # A lease that is past its deadline and still live bills until somebody ends it.
        until = terms.deadline_at if terms.deadline_at > now else now + timedelta(hours=RESCUE_H)
        left = None
        if terms.budget_usd is not None:
            spent = cost_usd(rates, since=None, until=now) or Decimal(0)
            left = max(Decimal(0), terms.budget_usd - spent)
        return cls(rates, None, usd_h, until, left, terms.rescue_usd or Decimal(0))

    def usd(self, begin: datetime, end: datetime, now: datetime) -> Decimal:
        """Return the lease's cost in that period: what it has cost so far, plus the most that it may still cost."""
        past = Decimal(0)
        if begin < now:
            past_until = min(end, now, self.ended_at or now)
            past = cost_usd(self.rates, since=begin, until=past_until) or Decimal(0)
        to_come = self.usd_h * _hours(max(begin, now), min(end, self.until))
        if self.left_usd is not None:
            to_come = min(to_come, self.left_usd)
        if self.rescue_usd and self.usd_h:
            rescue_h = float(min(self.rescue_usd / self.usd_h, Decimal(MOST_H)))
            rescued = min(end, self.until + timedelta(hours=rescue_h))
            to_come += self.usd_h * _hours(max(begin, self.until), rescued)
        return past + to_come


def _hours(begin: datetime, end: datetime) -> Decimal:
    return Decimal(max(0.0, (end - begin).total_seconds())) / 3600


def _windows(now: datetime) -> Iterator[tuple[str, str, datetime, datetime]]:
    """Yield the periods to check: the name of the limit, the period in words, and when it begins and ends.

    Later periods need no check. A lease that is live on a later day is live throughout tomorrow. One that is live in a
    later month is live throughout the next two months, one of which has 31 days. So it costs no less there. The
    exception is a lease with a budget and a rescue sum: `_Course.usd` may count both in a later period.
    """
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    day = timedelta(days=1)
    yield "usd_day", "today", midnight, midnight + day
    yield "usd_day", "tomorrow", midnight + day, midnight + 2 * day
    yield "usd_month", "this month", _month(now, 0), _month(now, 1)
    yield "usd_month", "next month", _month(now, 1), _month(now, 2)
    yield "usd_month", "the month after", _month(now, 2), _month(now, 3)


def _month(now: datetime, later: int) -> datetime:
    """Return the first moment of the month that is `later` months after this one."""
    count = now.year * 12 + now.month - 1 + later
    return now.replace(
        year=count // 12, month=count % 12 + 1, day=1, hour=0, minute=0, second=0, microsecond=0
    )
