"""Done means over: what is billed after the last needed byte, whoever is alive. `make over` tries 200 leases."""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest
from over.lived import PROVIDERS, Lived, live, lived
from over.stormed import Done
from over.work import KINDS
from storm.counters import COUNTERS
from storm.crews import storm

OVER = int(os.environ.get("OVER", "0"))
STORMED = int(os.environ.get("STORMED", "0"))
SEED = int(os.environ.get("SEED", "0"))
AT_ONCE = int(os.environ.get("AT_ONCE", "4"))
"""Half of a life is waiting for other processes."""
SAMPLE = [PROVIDERS.index("vastai"), len(PROVIDERS) * KINDS.index("unclaimed") + 1]
"""One plain lease and one with a file that nobody declared; the others are tried by the hundred."""


@pytest.mark.timeout(max(900, OVER * 120))
async def test_done_means_over(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if STORMED and not OVER:
        return
    if OVER:
        lives = list(at_once(range(SEED, SEED + OVER), tmp_path))
    else:
        lives = [await live(seed, tmp_path / str(seed)) for seed in SAMPLE]

    print("\n".join(table(lives)))
    record_property("leases", len(lives))
    assert [one for one in lives if one.unproved] == []
    assert [one for one in lives if not one.kept] == []
    assert [one for one in lives if not one.ended and not one.told] == [], "bills on, unsaid"
    beyond = [one.beyond_s for one in lives if one.beyond_s is not None]
    if OVER >= 20:
        assert median(beyond) <= 60
        assert p99(beyond) <= 180
    assert all(one.ended for one in lives)


def at_once(seeds: Iterable[int], root: Path) -> Iterator[Lived]:
    """Each of them, lived in one of some processes."""
    with ProcessPoolExecutor(AT_ONCE, multiprocessing.get_context("spawn")) as pool:
        for one in as_completed([pool.submit(lived, seed, root / str(seed)) for seed in seeds]):
            print(one.result(), flush=True)
            yield one.result()


@pytest.mark.timeout(max(900, STORMED * 300))
def test_under_faults_and_deaths_nothing_is_destroyed_unproved_and_no_box_is_forgotten(
    tmp_path: Path,
) -> None:
    if OVER and not STORMED:
        return
    told = Path(os.environ.get("TOLD") or tmp_path / "stormed.jsonl").absolute()
    seeds = STORMED or 1
    sums = storm(seeds, max(15, seeds * 5), SEED, AT_ONCE, "faults", told, life=Done)

    lines = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line["seed"] in range(SEED, SEED + seeds)]
    print("\n".join(stormed_table(lines)))
    assert sums["driver_failed"] == 0, told.read_text(encoding="utf-8")
    assert sums["lives"] == seeds, "the same command with the same TOLD goes on"
    counts = sums["counts"]
    assert isinstance(counts, dict)
    assert {name: counts.get(name, 0) for name in COUNTERS} == dict.fromkeys(COUNTERS, 0), lines


def p99(beyond: list[float]) -> float:
    """Of a hundred the 99th, and never more than the most; of a few the most."""
    return min(max(beyond), quantiles(beyond, n=100)[98]) if len(beyond) > 1 else beyond[0]


def table(lives: list[Lived]) -> Iterator[str]:
    """One line for each kind of work and who was alive, and one for all."""
    yield f"{'work':13} {'alive':9} {'leases':>6} {'ended':>5} {'s beyond what was said: median':>30} {'p99':>5} {'most':>5} {'cpu s':>6}"
    groups = sorted({(one.kind, one.alive) for one in lives})
    for kind, alive in groups:
        yield _line(kind, alive, [one for one in lives if (one.kind, one.alive) == (kind, alive)])
    yield _line("all", "", lives)
    again = [gap for one in lives if (gap := collected_again_s(one)) is not None]
    if again:
        yield f"collected once more before the end: {len(again)} times, {median(again):.1f} s in the median, {max(again):.1f} at most"
    for one in lives:
        if not one.ended:
            yield f"bills on, and says {' / '.join(one.told) or 'nothing'}: seed {one.seed}, {one.kind}"


def collected_again_s(one: Lived) -> float | None:
    """How long the collect right before the end took."""
    names = [name for name, _ in one.steps]
    if "done begun" not in names:
        return None
    at = names.index("done begun")
    begun = one.steps[at][1]
    return next((s - begun for name, s in one.steps[at:] if name == "collected"), None)


def _line(kind: str, alive: str, of: list[Lived]) -> str:
    beyond = [one.beyond_s for one in of if one.beyond_s is not None] or [float("nan")]
    ended = sum(one.ended for one in of)
    return (
        f"{kind:13} {alive:9} {len(of):6} {ended:5} {median(beyond):30.0f} {p99(beyond):5.0f} "
        f"{max(beyond):5.0f} {median(one.cpu_s for one in of):6.1f}"
    )


def stormed_table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each kind of work, and one for all."""
    lines = [line for line in lines if "over" in line]
    yield f"{'work':13} {'lives':>6} {'faults':>6} {'deaths':>6} {'ended by itself':>15} {'s beyond: median':>16} {'p99':>6} {'most':>6} {'cpu s':>6}"
    for kind in [*KINDS, "all"]:
        of = [line for line in lines if kind in (line["over"]["kind"], "all")]
        if not of:
            continue
        beyond = [s for line in of if (s := line["over"]["beyond_s"]) is not None] or [float("nan")]
        yield (
            f"{kind:13} {len(of):6} {sum(len(line['faults']) for line in of):6} "
            f"{sum(line['over']['deaths'] for line in of):6} {sum(line['over']['ended'] for line in of):15} "
            f"{median(beyond):16.0f} {p99(beyond):6.0f} {max(beyond):6.0f} "
            f"{median(line['cpu_s'] for line in of):6.1f}"
        )
