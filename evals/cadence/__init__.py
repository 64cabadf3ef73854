"""What the advice on saving costs over interruptions that nobody foresaw, against fixed habits and an oracle."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

from evals.book import ROOT
from evals.cadence.picture import drawn
from evals.cadence.traces import DAYS, TRACES, gaps_of
from evals.report import Figure, Report
from gpu_tenant.artifacts.checkpoint_interval import advise
from gpu_tenant.domain.expected_cost import INTERRUPTIONS_PER_DAY

USD_H: Final = 2.0
SAVE_S: Final = 30.0
SAVES_S: Final = (5.0, 30.0, 120.0)
RESTART_S: Final = 300.0
"""From a taken box to the first step on another: as long for everybody, the oracle too."""
FIXED_MIN: Final = (5, 15, 30, 60, 120)
SEEDS: Final = 5
WORST: Final = 1.1
"""How much more than the best fixed habit, known only afterwards, the advice may cost anywhere."""
PICTURE: Final = ROOT / "evals" / "results" / "cadence.svg"
_LEAST_S: Final = 60.0

Policy = Callable[[float, int, float], float]
"""How long to work until the next save: by the time seen so far, the interruptions in it, and a save's time."""


def advised(seen_s: float, count: int, save_s: float) -> float:
    """As a lease is advised while it runs: what was assumed counts as one observation."""
    prior_s = 86_400 / float(INTERRUPTIONS_PER_DAY)
    return max(_LEAST_S, advise(save_s, (seen_s + prior_s) / (count + 1)).interval_s)


def every(minutes: int) -> Policy:
    """The habit of saving so often, whatever happens."""
    return lambda seen_s, count, save_s: minutes * 60.0


POLICIES: Final[Mapping[str, Policy]] = {
    "our advice": advised,
    **{f"every {minutes} min": every(minutes) for minutes in FIXED_MIN},
}


def lost_s(gaps: Sequence[float], policy: Policy, save_s: float) -> float:
    """What of those stretches between interruptions went into saves, restarts and work done twice."""
    lost, seen = 0.0, 0.0
    for count, gap in enumerate(gaps):
        interval = policy(seen, count, save_s)
        left = max(0.0, gap - RESTART_S)
        whole = int(left // (interval + save_s))
        # Every finished save keeps an interval of work; all else of the stretch is lost.
        lost += gap - whole * interval
        seen += gap
    return lost


def oracle_s(gaps: Sequence[float], save_s: float) -> float:
    """The same for somebody who knows when the next interruption comes, and saves just before it."""
    return sum(gap - max(0.0, gap - RESTART_S - save_s) for gap in gaps)


@cache
def costs(save_s: float) -> dict[str, dict[str, float]]:
    """USD a day of rented time, by trace and by who decides."""
    found: dict[str, dict[str, float]] = {}
    for trace in TRACES:
        runs = [gaps_of(trace, seed) for seed in range(SEEDS)]
        rented_days = sum(map(sum, runs)) / 86_400

        def usd_a_day(lost: float, days: float = rented_days) -> float:
            return lost / 3600 * USD_H / days

        found[trace] = {
            "oracle": usd_a_day(sum(oracle_s(run, save_s) for run in runs)),
            **{
                name: usd_a_day(sum(lost_s(run, policy, save_s) for run in runs))
                for name, policy in POLICIES.items()
            },
        }
    return found


def run() -> Report:
    """The table of what each cadence loses a day, and how far the advice is from the best and the worst."""
    table = costs(SAVE_S)
    figures = [
        Figure("days of each trace, in several runs", DAYS * SEEDS),
        Figure("USD/h of the box", USD_H),
        Figure("seconds that a save takes", SAVE_S),
        Figure("seconds that a restart takes", RESTART_S),
    ]
    figures += [
        Figure(f"{trace}: {name}, lost USD a day", cost)
        for trace, by in table.items()
        for name, cost in by.items()
    ]
    against = [
        (by["our advice"], [cost for name, cost in by.items() if name.startswith("every")])
        for save_s in SAVES_S
        for by in costs(save_s).values()
    ]
    saves = ", ".join(f"{save_s:g}" for save_s in SAVES_S)
    figures += [
        Figure(
            f"advice over the best fixed one of each trace, at worst (saves of {saves} s)",
            max(ours / min(fixed) for ours, fixed in against),
            WORST,
            "most",
        ),
        Figure("the same of the one fixed cadence that does best over all of them", _chosen_once()),
        Figure(
            "advice over the worst fixed one of each trace, at worst",
            max(ours / max(fixed) for ours, fixed in against),
            1,
            "most",
        ),
    ]
    problems = [
        f"{trace}: {sooner} loses less than the oracle"
        for trace, by in table.items()
        for sooner, cost in by.items()
        if cost < by["oracle"] * 0.999
    ]
    return Report("cadence", figures, problems)


def _chosen_once() -> float:
    """How far the one habit that does best over all traces and saves is from the best, at its worst."""
    tables = [by for save_s in SAVES_S for by in costs(save_s).values()]
    habits = [f"every {minutes} min" for minutes in FIXED_MIN]
    return min(
        max(by[habit] / min(by[other] for other in habits) for by in tables) for habit in habits
    )


def draw() -> None:
    """The picture of the table lies where it is shown from."""
    PICTURE.parent.mkdir(exist_ok=True)
    title = (
        f"lost, USD a day at {USD_H:g} USD/h; a save takes {SAVE_S:g} s, a restart {RESTART_S:g} s"
    )
    PICTURE.write_text(drawn(costs(SAVE_S), title), encoding="utf-8")
