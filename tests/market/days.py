"""A market day from a seed: which machine is offered from when to when, and at what price. Drawn, not recorded."""

import random
from dataclasses import dataclass
from typing import Any

from gpu_tenant.emulators.vastai.market import ASKS
from gpu_tenant.emulators.world import BEGIN

WAIT_S = 6 * 3600
MACHINES = 32
_LEVEL_USD_H = 0.40
_FREE_S, _TAKEN_S = 25 * 60, 8 * 3600
_DISK_USD_H = 0.15 * 40 / 720
"""What 40 GB cost by the hour at these machines."""


@dataclass(frozen=True)
class Offered:
    """One machine, free from `since` to `until`, at one price for everything."""

    machine: int
    since: float
    until: float
    usd_h: float


@dataclass(frozen=True)
class Day:
    """A day's offers, and the cap of whoever waits in it."""

    seed: int
    offers: tuple[Offered, ...]
    cap_usd_h: float
    level_usd_h: float

    @property
    def asks(self) -> list[dict[str, Any]]:
        """The offers as the emulator's market takes them."""
        usual = ASKS[0]
        return [
            {
                **usual,
                "id": 100_000 + number,
                "machine_id": 1000 + offer.machine,
                "of": 1,
                "dph_base": str(round(offer.usd_h - _DISK_USD_H, 4)),
                "since": offer.since,
                "until": offer.until,
            }
            for number, offer in enumerate(self.offers)
        ]

    @property
    def _fitting(self) -> list[Offered]:
        ends = BEGIN + WAIT_S
        return [x for x in self.offers if x.usd_h <= self.cap_usd_h and x.since < ends]

    @property
    def first_usd_h(self) -> float | None:
        """What the oracle pays that rents at the first moment at which anything fits."""
        fitting = self._fitting
        if not fitting:
            return None
        first = min(max(x.since, BEGIN) for x in fitting)
        return min(x.usd_h for x in fitting if x.since <= first < x.until)

    @property
    def best_usd_h(self) -> float | None:
        """What the oracle pays that knows the whole day."""
        return min((x.usd_h for x in self._fitting), default=None)


def day(seed: int) -> Day:
    """The day of that seed."""
    dice = random.Random(f"market day {seed}")
    level = _LEVEL_USD_H * dice.lognormvariate(0, 0.10)
    offers: list[Offered] = []
    for machine in range(MACHINES):
        own = level * dice.lognormvariate(0, 0.10)
        at = BEGIN - dice.expovariate(1 / _TAKEN_S)
        while at < BEGIN + WAIT_S:
            until = at + dice.expovariate(1 / _FREE_S)
            usd_h = round(own * dice.lognormvariate(0, 0.03), 4)
            if until > BEGIN:
                offers.append(Offered(machine, at, until, usd_h))
            at = until + dice.expovariate(1 / _TAKEN_S)
    return Day(seed, tuple(offers), round(level * dice.uniform(0.85, 1.0), 4), level)
