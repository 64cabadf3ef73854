"""`.venv/bin/python tests/market/rules.py 5000 400`: what other rules of waiting would pay on drawn days, looked at once a minute.

Nothing is rented here: a rule sees each minute's offers, and says at which price it takes the cheapest. The wish ends after six hours.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from market.days import WAIT_S, Day, day

from gpu_tenant.emulators.world import BEGIN

_TICK_S = 60
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


if __name__ == "__main__":
    main()
