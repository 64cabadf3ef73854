"""How often a job should save its work. This depends on the cost of a save and on how often boxes are interrupted."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Literal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.expected_cost import INTERRUPTIONS_PER_DAY
from gpu_tenant.domain.interruption import INTERRUPTIONS
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.ledger import Ledger, Ran

_MOST_OF_MTBI = 1 / 50
"""The formula holds for saves up to this share of the mean time between interruptions (MTBI).

`scripts/cadence.py` uses the same limit.
"""
_PRIOR_S = 86_400 / float(INTERRUPTIONS_PER_DAY)
_WRITE_BYTES_S = 200e6
"""The slowest disk of a container, in bytes per second. A save counts as at least this slow."""
_APART_S = 20
"""Files that were written closer together than this belong to one save."""
_LOOKED_AT = 8
"""Only this many of the newest saves are used, so that a changed interval soon shows."""
_BOXES = 256
"""Only this many of the newest boxes are used: enough for a mean, and few enough to read each time."""
_WORTH_SAYING = 1.5
"""Advice is given if a job's interval differs from the best one by more than this factor.

Saving half as often costs only a quarter more.
"""


@dataclass(frozen=True, slots=True)
class Cadence:
    """The interval between saves that loses the least time, and how much time is still lost."""

    interval_s: float
    lost_share: float
    """The share of the paid time that is spent on saves and on work done twice."""
    holds: bool
    """Whether the formula is reliable for these times."""
    notice: Literal["none", "fits", "too_short"]
    """Whether a save fits into the notice that the platform gives before it takes the box."""


def advise(save_s: float, mtbi_s: float, grace_s: float | None = None) -> Cadence:
    """Apply Young's formula. `save_s` is how long a save takes, `mtbi_s` the mean time between interruptions.

    `grace_s` is how many seconds before an interruption the platform announces it. None if it does not.

    The formula and limits are those of `scripts/cadence.py`, which runs alone on a box.
    """
    interval_s = math.sqrt(2 * mtbi_s * save_s)
    lost = save_s / (interval_s + save_s) + interval_s / (2 * mtbi_s)
    notice: Literal["none", "fits", "too_short"] = "none"
    if grace_s:
        notice = "too_short" if grace_s < save_s else "fits"
    return Cadence(
        interval_s=interval_s,
        lost_share=min(1.0, lost),
        holds=save_s <= _MOST_OF_MTBI * mtbi_s and interval_s <= mtbi_s,
        notice=notice,
    )


# What was observed


@dataclass(frozen=True, slots=True)
class Save:
    """One checkpoint, as seen from the times and sizes of its files."""

    at_s: float
    """When the last file of the save was written, by the box's clock."""
    took_s: float
    """The time from the first file of the save to its last."""
    size_bytes: int


def saves_of(files: Iterable[tuple[float, int]]) -> list[Save]:
    """Group the files into saves, oldest first. `files` gives the time and the size of each."""
    found: list[Save] = []
    for at_s, size_bytes in sorted(files):
        if found and at_s - found[-1].at_s <= _APART_S:
            last = found.pop()
            began_s = last.at_s - last.took_s
            found.append(Save(at_s, at_s - began_s, last.size_bytes + size_bytes))
        else:
            found.append(Save(at_s, 0, size_bytes))
    return found


@dataclass(frozen=True, slots=True)
class Measured:
    """How long one save of a job takes, and how far apart its saves are."""

    save_s: float
    every_s: float


def measure_saves(saves: Sequence[Save]) -> Measured | None:
    """Measure how long one save takes, and how far apart saves are. None if there are too few saves to tell.

    A save lasts from its first file to its last, but at least as long as a slow disk needs for its bytes. Small
    files between the checkpoints, such as logs and plots, do not count as saves.
    """
    largest = max((save.size_bytes for save in saves), default=0)
    whole = [save for save in saves if save.size_bytes * 2 >= largest][-_LOOKED_AT:]
    apart = [later.at_s - sooner.at_s for sooner, later in pairwise(whole)]
    if not apart:
        return None
    took = [max(save.took_s, save.size_bytes / _WRITE_BYTES_S) for save in whole]
    return Measured(save_s=max(median(took), 0.1), every_s=median(apart))


def between_interruptions(ledger: Ledger, provider: str, now: datetime) -> tuple[float, int]:
    """Estimate a provider's mean time between interruptions, in seconds. Also returns how many interruptions were seen.

    An assumed interval counts as one observation, so one early interruption or one lucky day does not decide
    alone.
    """
    exposed_s, interruptions = 0.0, 0
    for box in ledger.interruptible(provider, most=_BOXES):
        seconds, count = _exposure(box, now)
        exposed_s += seconds
        interruptions += count
    return (exposed_s + _PRIOR_S) / (interruptions + 1), interruptions


def _interruptible(lease: Lease) -> bool:
    return lease.quote is not None and lease.quote.offer.interruptible


def _exposure(box: Ran, now: datetime) -> tuple[float, int]:
    """Return for how many seconds the box could have been interrupted, and how often it was."""
    seconds, count, since = 0.0, 0, None
    for at, kind, fate in box.turns:
        if kind == timeline.Ready.kind:
            since = at
        elif kind in (timeline.Taken.kind, timeline.Parked.kind) and since is not None:
            seconds += max(0.0, (at - since).total_seconds())
            count += kind == timeline.Taken.kind and fate in INTERRUPTIONS
            since = None
        elif kind == timeline.Taken.kind and fate is None:
            since = at
    if since is not None:
        seconds += max(0.0, ((box.ended_at or now) - since).total_seconds())
        count += box.state is LeaseState.LOST
    return seconds, count


# What the user is told


def advice_for(
    lease: Lease,
    *,
    ledger: Ledger,
    now: datetime,
    mtbi_s: float | None = None,
    grace_s: float | None = None,
) -> str | None:
    """Advise in one sentence how often the lease's jobs should save. None if no advice is needed or possible.

    `mtbi_s` is used, if given, instead of what was observed.
    """
    if not _interruptible(lease):
        return None
    looks = [x for _, x in ledger.events(lease.id) if isinstance(x, timeline.Snapped)]
    seen = measure_saves([Save(*save) for look in looks for save in look.saves])
    if seen is None:
        return None
    if mtbi_s is None:
        mtbi_s, count = between_interruptions(ledger, lease.provider, now)
        basis = (
            f", by {count} seen at this provider"
            if count
            else ", which is assumed until one is seen"
        )
    else:
        basis = ""
    best = advise(seen.save_s, mtbi_s, grace_s)
    came = f"checkpoints came every {_span_words(seen.every_s)}"
    facts = (
        f"a save takes {_span_words(seen.save_s)}, an interruption comes about every "
        f"{_span_words(mtbi_s)}{basis}"
    )
    if not best.holds:
        return f"{came}; {facts}: save less, or faster, or take a steadier box"
    if 1 / _WORTH_SAYING <= seen.every_s / best.interval_s <= _WORTH_SAYING:
        return None
    return f"{came}; every {_span_words(best.interval_s)} would lose least: {facts}"


def _span_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.2g} h"
