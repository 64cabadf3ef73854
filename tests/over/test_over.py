"""Done means over: what is billed after the last needed byte, whoever is alive. `make over` tries 200 leases."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles

import pytest
from over.lived import KINDS, PROVIDERS, Lived, live

OVER = int(os.environ.get("OVER", "0"))
SEED = int(os.environ.get("SEED", "0"))
SAMPLE = [PROVIDERS.index("vastai"), len(PROVIDERS) * KINDS.index("unclaimed") + 1]
"""One lease that ends and one with an unclaimed file; the others are tried by the hundred."""


@pytest.mark.timeout(max(900, OVER * 120))
async def test_done_means_over(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seeds = range(SEED, SEED + OVER) if OVER else SAMPLE
    lived = list[Lived]()
    for seed in seeds:
        lived.append(await live(seed, tmp_path / str(seed)))
        print(lived[-1], flush=True)

    print("\n".join(table(lived)))
    record_property("leases", len(lived))
    assert [one for one in lived if one.unproved] == []
    assert [one for one in lived if not one.kept] == []
    assert [one for one in lived if not one.ended and not one.told] == [], "bills on, unsaid"
    beyond = [one.beyond_s for one in lived if one.beyond_s is not None]
    if OVER >= 20:
        assert median(beyond) <= 60
        assert quantiles(beyond, n=100)[98] <= 180
    assert all(one.ended for one in lived if one.kind in ("ok", "several", "sweep", "failed"))


def table(lived: list[Lived]) -> Iterator[str]:
    """One line for each kind of work and who was alive, and one for all."""
    yield f"{'work':10} {'alive':9} {'leases':>6} {'ended':>5} {'s billed: median':>16} {'most':>7} {'beyond what was said: median':>29} {'most':>6}"
    groups = sorted({(one.kind, one.alive) for one in lived})
    for kind, alive in groups:
        yield _line(kind, alive, [one for one in lived if (one.kind, one.alive) == (kind, alive)])
    yield _line("all", "", lived)
    for one in lived:
        if not one.ended:
            yield f"bills on, and says {' / '.join(one.told) or 'nothing'}: seed {one.seed}, {one.kind}"


def _line(kind: str, alive: str, of: list[Lived]) -> str:
    billed = [one.billed_s for one in of if one.billed_s is not None] or [float("nan")]
    beyond = [one.beyond_s for one in of if one.beyond_s is not None] or [float("nan")]
    ended = sum(one.ended for one in of)
    return (
        f"{kind:10} {alive:9} {len(of):6} {ended:5} {median(billed):16.0f} {max(billed):7.0f} "
        f"{median(beyond):29.0f} {max(beyond):6.0f}"
    )
