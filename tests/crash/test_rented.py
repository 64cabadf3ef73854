"""A tenant of every provider is killed before and after every effect, while the network cheats.

For each provider, trouble and list lag the story runs once to count its moments, and then with a
SIGKILL at moments of it; another process goes on. Then everything late happens, one reconcile is
made, and nothing may bill that was not asked for. `make torture` takes more of them.
"""

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from contract.staged import RENTED
from contract.test_providers import CREATE, DESTROY
from crash.rented import Scene, Trouble, die_and_go_on, moments

AT_ONCE = max(2, os.cpu_count() or 2)
CASES_EACH = {"": 1, "more": 7, "all": 10_000}[os.environ.get("GPU_TENANT_TORTURE", "")]
"""So many moments of each story, spread over it; with 7 the run takes five minutes, with all an hour."""

FAULTS: dict[str, tuple[str, dict[str, object]] | None] = {
    "nothing": None,
    "create lost": ("create", {"do": "drop_before"}),
    "create answered to nobody": ("create", {"do": "drop_after"}),
    "create late": ("create", {"do": "late", "seconds": 60}),
    "create very late": ("create", {"do": "late", "seconds": 700}),
    "create twice": ("create", {"do": "twice"}),
    "destroy lost": ("destroy", {"do": "drop_before"}),
    "destroy answered to nobody": ("destroy", {"do": "drop_after"}),
    "destroy twice": ("destroy", {"do": "twice"}),
}
LAGS_S = (0, 30, 119)
TROUBLES = len(FAULTS) + 4
"""Two of them come with each lag."""


def troubles(provider: str) -> list[Trouble]:
    found = []
    for number, (name, fault) in enumerate(FAULTS.items()):
        matched = None
        if fault is not None:
            method, path = (CREATE if fault[0] == "create" else DESTROY)[provider]
            matched = {**fault[1], "match": {"method": method, "path_regex": path}}
        lags = LAGS_S if name in ("nothing", "create answered to nobody") else (LAGS_S[number % 3],)
        found += [Trouble(provider, matched, lag, f"{name}, list lag {lag} s") for lag in lags]
    return found


def torture(root: Path, provider: str) -> list[tuple[str, str, list[str]]]:
    """(trouble, moment, what was wrong) of every case of one provider."""
    scene = Scene(provider, root / provider)
    results = []
    try:
        # Each trouble at a third of the providers; `make torture` has them all.
        chosen = list(enumerate(troubles(provider)))
        if CASES_EACH == 1:
            chosen = chosen[RENTED.index(provider) % 3 :: 3]
        for number, trouble in chosen:
            told, wrong = moments(scene, trouble, f"{number}")
            results.append((trouble.name, "no death", wrong))
            every = max(1, round(len(told) / CASES_EACH))
            # Another offset for each trouble and provider, so that few cases are spread over all the story.
            share = (5 * number + 3 * RENTED.index(provider)) % TROUBLES
            for moment in range(every * share // TROUBLES, len(told), every):
                wrong = die_and_go_on(scene, trouble, f"{number}-{moment}", moment)
                results.append((trouble.name, told[moment], wrong))
    finally:
        scene.close()
    return results


@pytest.mark.timeout(7200 if os.environ.get("GPU_TENANT_TORTURE") else 900)
def test_a_kill_at_any_moment_at_any_provider_leaves_no_orphan_and_no_twin(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    # Forked before any thread is started, because the workers fork again.
    with get_context("fork").Pool(AT_ONCE) as pool:
        found = pool.map(partial(torture, tmp_path), RENTED, chunksize=1)
    results = [
        (provider, *case) for provider, cases in zip(RENTED, found, strict=True) for case in cases
    ]

    record_property("crash_cases", len(results))
    print(f"{len(results)} crash cases: {dict(Counter(provider for provider, *_ in results))}")
    assert len(results) >= (500 if CASES_EACH > 2 else 48)
    assert [case for case in results if case[3]] == []
