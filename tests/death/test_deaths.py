"""A tenant's computer dies at any moment of a lease; then the box, or its provider, ends the bill.

Where nothing does, that was said when the box was rented. `make deaths` tries a hundred.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from death.dying import GUARDED, LOOKED_AT_S, PLATFORMS, Death, Platform, When, die

DEATHS = int(os.environ.get("DEATHS", "0"))
AT_ONCE = 2 + 2 * (os.cpu_count() or 2)
SAMPLE: list[tuple[Platform, When]] = [(platform, "after") for platform in GUARDED]
"""One of each that has a guard; the moments before it are tried by the hundred."""


def cases() -> list[tuple[Platform, When]]:
    if not DEATHS:
        return SAMPLE
    whens: tuple[When, When] = ("after", "before")
    return [(PLATFORMS[n % len(PLATFORMS)], whens[n // len(PLATFORMS) % 2]) for n in range(DEATHS)]


def one(root: Path, case: tuple[int, tuple[Platform, When]]) -> Death:
    number, (platform, when) = case
    return die(platform, root / str(number), number, when)


@pytest.mark.timeout(1200 if DEATHS else 600)
def test_when_the_tenants_computer_dies_no_meter_runs_on_but_where_that_was_said(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    # Forked before any thread is started, because the workers fork again.
    with get_context("fork").Pool(AT_ONCE) as pool:
        deaths = pool.map(partial(one, tmp_path), enumerate(cases()), chunksize=1)

    print("\n".join(table(deaths)))
    record_property("deaths", len(deaths))
    assert [death for death in deaths if death.lost] == []
    assert [death for death in deaths if death.beyond_s > LOOKED_AT_S + 1] == []
    assert [death for death in deaths if death.bills_still and not said_so(death)] == []
    assert [d for d in deaths if d.bills_still and d.armed and d.platform in GUARDED] == []
    if not DEATHS:
        assert all(death.armed and death.boxes == 1 for death in deaths), deaths


def said_so(death: Death) -> bool:
    """Whether its owner was told, before the box was rented, that nothing would end this bill."""
    return death.named.kind == "nothing" or (
        not death.armed and "until the guard is armed, nothing ends the bill" in death.named.words
    )


def table(deaths: list[Death]) -> Iterator[str]:
    """One line for each platform, and for deaths before and after its guard was armed."""
    yield f"{'platform':20} {'died':12} {'deaths':>6} {'boxes':>5} {'s beyond: median':>16} {'most':>6} {'bill on':>7} {'files':>6} {'lost':>5}  named at rent time"
    for platform in PLATFORMS:
        for armed in (False, True):
            rows = [d for d in deaths if d.platform == platform and d.armed is armed]
            if not rows:
                continue
            beyond = sorted(d.beyond_s for d in rows if d.boxes) or [0.0]
            words = "guard armed" if armed else "before that"
            yield (
                f"{platform.name:20} {words:12} {len(rows):6} {sum(d.boxes for d in rows):5}"
                f" {beyond[len(beyond) // 2]:16.1f} {beyond[-1]:6.1f}"
                f" {sum(d.bills_still for d in rows):7} {sum(d.made for d in rows):6}"
                f" {sum(d.lost for d in rows):5}  {rows[0].named.kind}"
            )
