"""When boxes are taken, made up: at any moment alike, in bursts, or by the hour of the day; seeded."""

import math
import random
from collections.abc import Iterator
from typing import Final

DAYS: Final = 60
TRACES: Final = ("exponential", "bursty", "diurnal")
_MEAN_S: Final = 4 * 3600.0
_CALM_S, _STORM_S, _TURNS_S = 12 * 3600.0, 30 * 60.0, 8 * 3600.0
_SWING: Final = 0.9


def gaps_of(trace: str, seed: int) -> list[float]:
    """The seconds between one interruption and the next, over so many days."""
    chance = random.Random(f"{trace} {seed}")  # noqa: S311 - made-up traces, the same every time
    at, gaps, last = 0.0, list[float](), 0.0
    for at in _moments(trace, chance):
        if at > DAYS * 86_400:
            break
        gaps.append(at - last)
        last = at
    return gaps


def _moments(trace: str, chance: random.Random) -> Iterator[float]:
    """When boxes are taken, for ever: candidates at the highest rate, of which a share is kept."""
    highest = 1 / (_STORM_S if trace == "bursty" else _MEAN_S / (1 + _SWING))
    at, is_storm, turns_at = 0.0, False, 0.0
    while True:
        at += chance.expovariate(highest)
        while at >= turns_at:
            # Three quarters of the time are calm.
            is_storm = not is_storm
            turns_at += chance.expovariate(1 / (_TURNS_S / 3 if is_storm else _TURNS_S))
        match trace:
            case "exponential":
                rate = 1 / _MEAN_S
            case "bursty":
                rate = 1 / (_STORM_S if is_storm else _CALM_S)
            case _:
                rate = (1 + _SWING * math.sin(2 * math.pi * at / 86_400)) / _MEAN_S
        if chance.random() < rate / highest:
            yield at
