"""Counts, sums of money, sizes, durations and dates in words for a person."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

NOBODY_BILLS = "nobody bills"
IN_WORDS = 3
"""A sentence contains at most this many names. The list that a person signs has all of them."""
_INSTANT = re.compile(r"\bat ([1-9]\d{9})(?:\.\d+)?\b")


def in_words(names: Sequence[str], count: int | None = None) -> str:
    """Write the first few names, then how many of the `count` names are left out."""
    more = (len(names) if count is None else count) - len(names[:IN_WORDS])
    return ", ".join(names[:IN_WORDS]) + (f", and {more} more" if more > 0 else "")


def some(count: int, noun: str) -> str:
    """Return the count with its noun: `1 file`, `2 files`, `2 boxes`, `1,000 files`."""
    plural = f"{noun}es" if noun.endswith("x") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def usd_words(amount: Decimal | None, unknown: str = "unknown") -> str:
    """Return a sum of money as every face writes it: `12.30 USD`, `0.0352 USD`. Unknown is never shown as 0.

    A sum below 1 USD has four decimal places, because we count in steps of 0.0001 USD. The page and the card in a chat
    follow the same rule.
    """
    if amount is None:
        return unknown
    return f"{amount:.{2 if abs(amount) >= 1 else 4}f} USD"


def billed_words(amount: Decimal) -> str:
    """Return a sum from a provider's records, with exactly the digits that the provider gave."""
    return f"{amount:f} USD"


def cost_words(amount: Decimal | None, counts: str | None) -> str:
    """Do the same as `usd_words`. But if nothing is counted because nobody bills, say so instead of `unknown`."""
    return usd_words(amount, NOBODY_BILLS if counts == NOBODY_BILLS else "unknown")


def size(count: int | float | None) -> str:
    """Return a number of bytes in words for a person."""
    if count is None:
        return "unknown"
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def span(seconds: float) -> str:
    """Return a duration in words for a person."""
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 120:
        return f"{sign}{seconds:.0f} s"
    if seconds < 7200:
        return f"{sign}{seconds / 60:.0f} min"
    return f"{sign}{seconds / 3600:.1f} h"


def until(seconds: float) -> str:
    """Return a time that is `seconds` ahead, or past if negative, in words for a person."""
    return f"in {span(seconds)}" if seconds >= 0 else f"passed {span(-seconds)} ago"


def with_dates(words: str) -> str:
    """Return the words, with seconds since 1970 replaced by a date."""

    def date(found: re.Match[str]) -> str:
        return f"at {datetime.fromtimestamp(int(found[1]), UTC):%Y-%m-%d %H:%M:%S} UTC"

    return _INSTANT.sub(date, words)
