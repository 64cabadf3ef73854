"""Finds leases by their names, their places and their conditions."""

from collections.abc import Iterable

from gpu_tenant.domain.choices import SortedBy
from gpu_tenant.leases.cards import Card, Leases


def is_found(card: Card, search: str) -> bool:
    """Whether the card matches every word of the search. `#tag` must be a whole tag; other words may be parts."""
    tags = {word.casefold() for word in card.name.split() if word.startswith("#")}
    told = (card.name, card.lease, card.provider, card.box, card.fleet, card.condition.word)
    text = " ".join(filter(None, told)).casefold()
    return all(
        word in tags if word.startswith("#") else word in text for word in search.casefold().split()
    )


def only(seen: Leases, search: str) -> Leases:
    """Return only the leases that match the search. The sums are still those of all leases."""
    if not search:
        return seen
    found = tuple(card for card in seen.leases if is_found(card, search))
    return seen.model_copy(update={"leases": found, "hidden": len(seen.leases) - len(found)})


def in_order(cards: Iterable[Card], by: SortedBy) -> tuple[Card, ...]:
    """Return the cards in that order: names by letters, the earliest deadline first, anything else largest first.

    Unknown values come last.
    """
    match by:
        case "name":
            return tuple(sorted(cards, key=lambda card: (not card.name, card.name.casefold())))
        case "deadline":
            return tuple(sorted(cards, key=lambda card: _last_if_unknown(card.deadline_in_s)))
        case "age":
            return tuple(sorted(cards, key=lambda card: -card.age_s))
        case "cost":
            return tuple(sorted(cards, key=lambda card: _last_if_unknown(_minus(card.cost_usd))))
        case "rate":
            return tuple(sorted(cards, key=lambda card: _last_if_unknown(_minus(card.price_usd_h))))


def _minus(amount: object) -> float | None:
    return None if amount is None else -float(str(amount))


def _last_if_unknown(value: float | None) -> tuple[bool, float]:
    return (value is None, value or 0.0)
