"""`.venv/bin/python tests/market/rules.py 5000 400`: what other rules of waiting would pay on drawn days, looked at once a minute.

Nothing is rented here: a rule sees each minute's offers, and says at which price it takes the cheapest. The wish ends after six hours.
"""

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import NormalDist, median

sys.path.insert(0, str(Path(__file__).parents[1]))

from market.days import MACHINES, WAIT_S, Day, day

from gpu_tenant.emulators.world import BEGIN

_TICK_S = 60
_MORE = 5
"""So many fitting offers must still be expected before the rule that learns passes one."""
_SIGMA, _ROUND_MIN = 0.104, 505
"""How far prices of a day spread, and how often a machine comes back: what `days.py` assumes, in sum."""
Rule = Callable[[float, float, int], float]
"""The most that is paid, by the share of the wait that is over, the cap, and how many offers fit."""


def first(share: float, cap: float, fitting: int) -> float:
    """Whatever fits is taken at once, as `provision --wait` does."""
    return cap


def falling(until: float, less: float, but_alone: bool = False) -> Rule:
    """Up to `until` of the wait, less than the cap is offered: by `less` of it at first, and ever more.

    With `but_alone`, an offer that is the only one that fits is taken at once.
    """

    def most(share: float, cap: float, fitting: int) -> float:
        if share >= until or (but_alone and fitting < 2):
            return cap
        return cap * (1 - less * (1 - share / until))

    return most


def had(of: Day, rule: Rule) -> tuple[float, float] | None:
    """The price at which that rule rents on that day, and after how many minutes; None if it never does."""
    for tick in range(WAIT_S // _TICK_S + 1):
        at = BEGIN + tick * _TICK_S
        fitting = [x.usd_h for x in of.offers if x.since <= at < x.until]
        fitting = [usd_h for usd_h in fitting if usd_h <= of.cap_usd_h]
        most = rule(tick * _TICK_S / WAIT_S, of.cap_usd_h, len(fitting))
        if fitting and min(fitting) <= most:
            return min(fitting), tick * _TICK_S / 60
    return None


def expecting(days: Sequence[Day], less: float, life_min: float | None) -> tuple[int, int, float]:
    """On how many days the rule that learns had a box and lost one, and how much more it paid than the oracle.

    It asks for up to `less` below the cap, the more fitting offers it expects. An offer is taken to stand for
    `life_min`. None: the rule is told how often machines come, and how many of them fit.
    """
    lost, paid, best = 0, 0.0, 0.0
    could = [of for of in days if had(of, first)]
    for of in could:
        told = _had_expecting(of, less, life_min)
        lost += told is None
        paid += told or 0
        best += (of.best_usd_h or 0) if told else 0
    return len(could) - lost, lost, paid / best - 1


def _had_expecting(of: Day, less: float, life_min: float | None) -> float | None:
    minutes, seen, fit = WAIT_S // 60, set[int](), set[int]()
    for minute in range(minutes + 1):
        at = BEGIN + minute * 60
        now = [(n, x.usd_h) for n, x in enumerate(of.offers) if x.since <= at < x.until]
        seen |= {n for n, _ in now}
        fit |= {n for n, usd_h in now if usd_h <= of.cap_usd_h}
        if life_min is None:
            share = NormalDist(0, _SIGMA).cdf(math.log(of.cap_usd_h / of.level_usd_h))
            a_minute = MACHINES / _ROUND_MIN * share
        else:
            a_minute = len(fit) / (minute + life_min)
        more = a_minute * (minutes - minute) - _MORE
        most = of.cap_usd_h * (1 if more <= 0 else 1 - less + less / (1 + more / 2))
        fitting = [usd_h for _, usd_h in now if usd_h <= of.cap_usd_h]
        if fitting and min(fitting) <= most:
            return min(fitting)
    return None


def line(name: str, rule: Rule, days: Sequence[Day]) -> str:
    """What that rule comes to on those days."""
    pairs = [(of.best_usd_h, told) for of in days if (told := had(of, rule)) and of.best_usd_h]
    lost = sum(had(of, rule) is None for of in days if had(of, first) is not None)
    paid = sum(usd_h for _, (usd_h, _) in pairs) / sum(best for best, _ in pairs) - 1
    waited = sorted(minutes for _, (_, minutes) in pairs)
    return f"{name:32} {len(pairs):5} {lost:5} {paid:+8.1%} {median(waited):8.0f} {waited[int(0.9 * len(waited))]:6.0f}"


def main() -> None:
    """The table is printed."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    days = [day(n) for n in range(seed, seed + count)]
    print(
        f"{'rule':32} {'had':>5} {'lost':>5} {'paid':>8} {'min: median':>8} {'p90':>6}   of {count}"
    )
    print(line("the first that fits", first, days))
    for until, less in (
        (0.1, 0.05),
        (0.15, 0.05),
        (0.1, 0.1),
        (0.25, 0.1),
        (0.5, 0.1),
        (0.75, 0.15),
    ):
        print(
            line(f"{less:.0%} less, up to {until:.0%} of it", falling(until, less), days),
            flush=True,
        )
    alone = falling(0.25, 0.1, but_alone=True)
    print(line("the same for 25%, if two fit", alone, days))
    for name, less, life_min in (
        ("learns, and is careful", 0.18, 60),
        ("learns, and is less careful", 0.10, 45),
        ("the same, told the true rates", 0.10, None),
    ):
        had_on, lost, paid = expecting(days, less, life_min)
        print(f"{name:32} {had_on:5} {lost:5} {paid:+8.1%}", flush=True)


if __name__ == "__main__":
    main()
