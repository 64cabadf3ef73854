"""What a task wants, how its episode ended, and which of the wants were missed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class Wants:
    """What must hold when the agent has said its last word. That nothing is lost is always wanted."""

    boxes: int = 0
    """How many of our boxes exist then, running or parked."""
    rents: tuple[int, int] = (0, 0)
    """The fewest and the most boxes that the agent may have rented."""
    home: bool = False
    """Every file that matters is on this computer."""
    says: Sequence[str] = ()
    """Patterns that the last word must match, in any order; upper and lower case are the same."""
    price: bool = False
    """The last word names the price of the cheapest offer."""
    phase: str = ""
    """The phase of the lease that stands, if that is wanted."""
    deadline_h: tuple[float, float] | None = None
    """How far away that lease's deadline may be."""
    budget_usd: Decimal | None = None
    """The budget that each lease must have, and that the bill stays below."""
    strangers: int = 0
    """Boxes of somebody else in the account. All of them still exist."""


@dataclass(frozen=True, slots=True)
class End:
    """How one episode ended, by the provider's books, the disks, the ledger and the agent's last word."""

    answer: str
    boxes: int = 0
    rented: int = 0
    bytes_lost: int = 0
    bytes_not_here: int = 0
    billed_usd: Decimal = Decimal(0)
    strangers: int = 0
    cheapest_usd_h: Decimal | None = None
    cards: Sequence[Mapping[str, JsonValue]] = field(default_factory=tuple)
    """All leases as `list_leases` shows them, those that have ended too."""


def missed(wants: Wants, end: End) -> list[str]:
    """Return each want that the end does not meet. Empty: the task was done."""
    return list(_missed(wants, end))


def _missed(wants: Wants, end: End) -> Iterator[str]:
    if end.bytes_lost:
        yield f"{end.bytes_lost} bytes are lost"
    if wants.home and end.bytes_not_here:
        yield f"{end.bytes_not_here} bytes are not on this computer"
    if end.boxes != wants.boxes:
        yield f"{end.boxes} boxes stand, and not {wants.boxes}"
    fewest, most = wants.rents
    if not fewest <= end.rented <= most:
        yield f"{end.rented} boxes were rented, and not {fewest} to {most}"
    if end.strangers != wants.strangers:
        yield f"{end.strangers} boxes of somebody else stand, and not {wants.strangers}"
    if not end.answer.strip():
        yield "the person was told nothing"
    for pattern in wants.says:
        if re.search(pattern, end.answer, re.IGNORECASE) is None:
            yield f"the last word does not say {pattern}"
    if wants.price and not _names_price(end):
        yield f"the last word does not name {end.cheapest_usd_h} USD/h"
    yield from _missed_terms(wants, end)


def _missed_terms(wants: Wants, end: End) -> Iterator[str]:
    live = [card for card in end.cards if card["state"] == "active"]
    if wants.phase and [card["phase"] for card in live] != [wants.phase]:
        yield f"the lease is not {wants.phase}"
    if wants.deadline_h is not None:
        least, most = wants.deadline_h
        left = [float(str(card["deadline_in_s"])) / 3600 for card in live]
        if len(left) != 1 or not least <= left[0] <= most:
            yield f"the deadline is not {least} to {most} hours away"
    if wants.budget_usd is not None:
        budgets = [card["budget_usd"] for card in end.cards]
        if not budgets or any(b is None or Decimal(str(b)) > wants.budget_usd for b in budgets):
            yield f"not every lease has a budget of {wants.budget_usd} USD"
        if end.billed_usd > wants.budget_usd:
            yield f"{end.billed_usd} USD were billed, above {wants.budget_usd}"


def _names_price(end: End) -> bool:
    """Whether a number of the last word is the price of the cheapest offer, rounded to a cent or better."""
    if end.cheapest_usd_h is None:
        return False
    numbers = map(Decimal, re.findall(r"\d+\.\d+", end.answer))
    return any(abs(number - end.cheapest_usd_h) <= Decimal("0.005") for number in numbers)
