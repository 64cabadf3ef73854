"""Lives in a row on every core, a line of JSON each, and what they sum to."""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from storm.clients import preload
from storm.lives import Life
from storm.stages import PLACES, Stage

_LAST_LIFE_S = 600


def _leave(number: int, frame: object) -> None:
    """Every block is left as it should be."""
    sys.exit(128 + number)


def work(
    seeds: Sequence[int], until: float, only: str, root: Path, into: Path, life: type[Life]
) -> None:
    """Those lives were lived one after the other, as far as the time allowed; each is a line of `into`."""
    signal.signal(signal.SIGTERM, _leave)
    stages: dict[str, Stage] = {}
    providers = sorted(PLACES)
    try:
        for seed in seeds:
            if time.monotonic() > until:
                return
            provider = providers[seed % len(providers)]
            place = root / str(seed)
            try:
                if provider not in stages:
                    stages[provider] = Stage(provider, root / f"stage-{os.getpid()}-{provider}")
                line = life(seed, stages[provider], place, only).lived()
            except Exception:  # noqa: BLE001 - the driver's own, told in its line
                line = {"seed": seed, "driver": traceback.format_exc()[-2000:]}
            with into.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line, default=str) + "\n")
            if not line.get("found") and "driver" not in line:
                shutil.rmtree(place, ignore_errors=True)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for stage in stages.values():
            stage.close()


def sail(
    seeds: Sequence[int],
    workers: int,
    until: float,
    only: str,
    root: Path,
    into: Path,
    life: type[Life],
) -> None:
    """All of them were lived by so many workers, forks of this process: what verbs need is loaded once."""
    signal.signal(signal.SIGTERM, _leave)
    preload()
    fork = multiprocessing.get_context("fork")
    crews = [
        fork.Process(target=work, args=(seeds[n::workers], until, only, root, into, life))
        for n in range(workers)
    ]
    for crew in crews:
        crew.start()
    try:
        for crew in crews:
            # A life under way may end.
            crew.join(max(1, until + _LAST_LIFE_S - time.monotonic()))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # What has not is ended, with the stages that it began.
        _end(crews)


def _end(crews: Sequence[BaseProcess]) -> None:
    """None of them runs; where Python dropped the signal, it was sent again."""
    while still := [crew for crew in crews if crew.is_alive()]:
        for crew in still:
            crew.terminate()
        for crew in still:
            crew.join(30)


def _lines(of: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in of.read_text(encoding="utf-8").splitlines()]


def storm(
    leases: int,
    minutes: float,
    seed: int,
    workers: int,
    only: str,
    into: Path,
    *,
    life: type[Life] = Life,
) -> dict[str, object]:
    """So many lives from that seed on were lived, or as many as the time allowed; what they came to.

    Each life is a line of `into` as soon as it is over. Lives that have a line there already are not lived again.
    A SIGTERM ends the lives that are under way, and the rest is summed.
    """
    began = time.monotonic()
    until = began + minutes * 60
    root = Path(tempfile.mkdtemp(prefix="storm-"))
    seeds = range(seed, seed + leases)
    into.touch()
    known = {line["seed"] for line in _lines(into)}
    left = [each for each in seeds if each not in known]
    # A new process has no threads, and may fork.
    ship = multiprocessing.get_context("spawn").Process(
        target=sail, args=(left, workers, until, only, root, into, life)
    )
    was = signal.signal(signal.SIGTERM, _leave)
    try:
        ship.start()
        ship.join()
    except SystemExit:
        pass  # What is left to do is told by the number of lives.
    finally:
        _end([ship])
        signal.signal(signal.SIGTERM, was)
    lines = [line for line in _lines(into) if line["seed"] in seeds]
    with contextlib.suppress(OSError):
        root.rmdir()
    sums = Counter[str]()
    for line in lines:
        sums.update(line.get("counts", {}))
    modes: dict[str, Counter[str]] = {}
    for line in lines:
        of = modes.setdefault(f"{line.get('mode')} {line.get('provider')}", Counter())
        of.update(lives=1, leases=line.get("leases", 0), troubled=bool(line.get("troubled")))
        of.update(line.get("permits", {}))
        of.update(line.get("states", {}))
    rented = sum(line.get("leases", 0) for line in lines)
    past_min = (time.monotonic() - began) / 60
    return {
        "lives": len(lines),
        "leases": rented,
        "verbs": sum(line.get("verbs", 0) for line in lines),
        "minutes": round(past_min, 1),
        "leases_a_minute": round(rented / past_min, 1),
        "counts": dict(sums),
        "driver_failed": sum("driver" in line for line in lines),
        "modes": {name: dict(of) for name, of in sorted(modes.items())},
        "seeds": {
            name: [line["seed"] for line in lines if name in line.get("counts", {})]
            for name in sums
        },
        "kept": str(root) if root.exists() else None,
    }
