"""How the transfers for boxes of different prices share one link. The most expensive box comes first."""

import math
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from statistics import median

MOST_CONNECTIONS = 64
"""One user has at most this many connections, over all boxes. With more, a home router may drop all of them."""
LEAST_REST = 8
"""The other transfers together may have this many connections, even if the most expensive one uses fewer.

The most expensive one may use few because its own box is slow.
"""
FLOOR = 0.1
"""This part of the link is shared equally and not by price, so that every transfer makes progress."""
BURST_S = 0.25
"""A transfer that was idle may move at once what its rate allows in this many seconds."""

Usd = Decimal | float | None


def allot(
    wants: Sequence[int], prices: Sequence[Usd], *, most: int = MOST_CONNECTIONS
) -> list[int]:
    """Return for each transfer how many of the connections that it wants it may use. Each may use at least one.

    The transfer with the highest price gets as many as it wants. If several have that price, they get equal
    numbers. The others share the rest by price. Together they get no more than the first, or `LEAST_REST` if
    that is more. So on a full link, the most expensive transfer can get half of the link by asking for more
    connections. All transfers together get at most `most` connections, or one each if that is more.
    """
    if not wants:
        return []
    most = max(most, len(wants))
    wanted = [min(max(1, want), most) for want in wants]
    weights, parts = _weights(prices), parts_of(prices)
    highest = max(weights)
    dearest = [i for i, weight in enumerate(weights) if weight == highest]
    others = [i for i, weight in enumerate(weights) if weight < highest]
    given = [1] * len(wants)
    first = _level([wanted[i] for i in dearest], [1.0] * len(dearest), most - len(others))
    if any(got < wanted[i] for i, got in zip(dearest, first, strict=True)):
        # A cheaper transfer never gets more than an expensive one that did not get enough.
        wanted = [min(want, max(first)) for want in wanted]
    rest = min(most - sum(first), max(sum(first), LEAST_REST, len(others)))
    second = _level([wanted[i] for i in others], [parts[i] for i in others], rest)
    for i, got in zip([*dearest, *others], [*first, *second], strict=True):
        given[i] = got
    return given


def rates(
    limit_bytes_s: float, prices: Sequence[Usd], could_bytes_s: Sequence[float | None]
) -> list[float]:
    """Return how many bytes a second each transfer may move, by price. The sum is the limit.

    `could_bytes_s` gives for each transfer the highest rate that it can reach; None means any rate. A transfer
    with a slow box or a broken link leaves a part of its share unused. The others get that part.
    """
    parts = parts_of(prices)
    least = limit_bytes_s * FLOOR / max(1, len(parts))
    most = [math.inf if could is None else max(could, least) for could in could_bytes_s]
    given = [0.0] * len(parts)
    left, unfilled = float(limit_bytes_s), set(range(len(parts)))
    while unfilled:
        whole = sum(parts[i] for i in unfilled)
        full = {i for i in unfilled if most[i] <= left * parts[i] / whole}
        for i in full or unfilled:
            given[i] = most[i] if full else left * parts[i] / whole
        if not full:
            return given
        left = max(0.0, left - sum(most[i] for i in full))
        unfilled -= full
    return [got + left * part for got, part in zip(given, parts, strict=True)]


def parts_of(prices: Sequence[Usd]) -> list[float]:
    """Return each transfer's part of the link, by its price and with `FLOOR`. The sum is 1."""
    weights = _weights(prices)
    whole, equal = sum(weights), 1 / max(1, len(weights))
    by_price = [weight / whole if whole else equal for weight in weights]
    return [FLOOR * equal + (1 - FLOOR) * part for part in by_price]


def _weights(prices: Sequence[Usd]) -> list[float]:
    """Return the prices as numbers. An unknown price counts as the median of the known prices."""
    known = [None if price is None else max(0.0, float(price)) for price in prices]
    usual = median([price for price in known if price is not None] or [0.0])
    return [usual if price is None else price for price in known]


def _level(wants: Sequence[int], weights: Sequence[float], most: int) -> list[int]:
    """Give each transfer one connection, and share the other connections by weight.

    Transfers of equal weight get equal numbers. A remainder that cannot be shared stays unused.
    """
    given = [1] * len(wants)
    steps: dict[float, list[int]] = defaultdict(list)
    for i, (want, weight) in enumerate(zip(wants, weights, strict=True)):
        for nth in range(2, want + 1):
            steps[nth / weight].append(i)
    left = most - len(wants)
    for level in sorted(steps):
        left -= len(steps[level])
        if left < 0:
            break
        for i in steps[level]:
            given[i] += 1
    return given


class Bucket:
    """Limits one transfer to a rate. The rate may change from call to call."""

    def __init__(self, *, at_s: float) -> None:
        self._owed_bytes = 0.0
        self._at_s = at_s

    def pause_s(self, n_bytes: int, *, bytes_s: float, at_s: float) -> float:
        """Return how many seconds to wait before moving `n_bytes` more. The bytes count as moved from now on."""
        passed_s = max(0.0, at_s - self._at_s)
        self._at_s = max(self._at_s, at_s)
        self._owed_bytes = max(-BURST_S * bytes_s, self._owed_bytes - passed_s * bytes_s)
        wait_s = max(0.0, self._owed_bytes) / bytes_s
        self._owed_bytes += n_bytes
        return wait_s
