"""What a sentence about the most allows, in dollars, so that a provider's meter can be held against it."""

import re
from decimal import Decimal

from gpu_tenant.domain.policy import END_S

FIRST = "the most that it costs: "


def allowed_usd(words: str, *, usd_h: Decimal, days: Decimal) -> Decimal | None:
    """The sum that those words allow so many days after the lease's end. None if they say that nothing limits it.

    `usd_h` is what the box bills while it runs: what its end takes is told without a sum.
    """
    if "nothing limits it" in words:
        return None
    if (passed := re.search(r"more than the ([0-9.]+) USD spent so far", words)) is not None:
        return Decimal(passed[1]) + usd_h * END_S / 3600
    if (
        still := re.search(r"(?:the ([0-9.]+) USD spent so far, and )?nothing more", words)
    ) is not None:
        return Decimal(still[1] or 0)
    known = re.search(r"costs: (?:about )?([0-9.]+) USD", words)
    assert known is not None, words
    rescue = re.search(r"and ([0-9.]+) USD to rescue", words)
    start = re.search(r"up to ([0-9.]+) USD for one last start", words)
    day = re.search(r"([0-9.]+) USD a day", words)
    more = [found[1] for found in (rescue, start) if found is not None]
    by_the_day = Decimal(day[1]) * days if day is not None else Decimal(0)
    return Decimal(known[1]) + usd_h * END_S / 3600 + sum(map(Decimal, more)) + by_the_day
