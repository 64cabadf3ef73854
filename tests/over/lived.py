"""One lease by default terms, its work, and who looks after it; and what was billed after the last needed byte."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from e2e.renting import DESTROY
from e2e.watching import Scene, scene_at
from over.work import CELLS, KINDS, LOOKED_AT_S, Kind, script

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import LeaseHeld
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.watchdog.loop import Watchdog

Alive = Literal["watchdog", "agent"]
PROVIDERS = ("vastai", "runpod", "lambda_cloud", "digitalocean")
_REALLY_S, _AFTERWARDS_S = 0.25, 0.05
"""How long a wait really takes: as long as on the clock of a rehearsal at the command line; less once its tenant has
done all that they will do."""
_AT_MOST_H = 1.1
"""Longer than the hour after which nothing may still bill unsaid. Each minute of it is a look, which takes processor time."""


@dataclass(frozen=True)
class Lived:
    """What one lease came to."""

    seed: int
    provider: str
    kind: Kind
    alive: Alive
    ended: bool
    billed_s: float | None
    """Seconds on the provider's meter after the last needed byte was there; None: it still bills."""
    beyond_s: float | None
    """The same, without the time that its terms say somebody has to look."""
    told: tuple[str, ...]
    """The alarms that stand, where it still bills."""
    unproved: int
    """Destroys that were asked for without a permit on the ground that all was verified."""
    kept: bool
    """Whether what the job wrote is here, as it was written."""
    steps: tuple[tuple[str, float], ...]
    """What the timeline says from the last needed byte on, each with the seconds since then."""
    cpu_s: float
    """Seconds of processor that all of it took, but for what the box left running."""


def lived(seed: int, root: Path) -> Lived:
    """As `live`, for a process that lives nothing else meanwhile."""
    return asyncio.run(live(seed, root))


async def live(seed: int, root: Path) -> Lived:
    """The case of that seed, from offers to its end, or until it has billed for more than an hour longer."""
    began_cpu_s = sum(os.times()[:4])
    dice = random.Random(seed)
    provider = PROVIDERS[seed % len(PROVIDERS)]
    kind = KINDS[seed // len(PROVIDERS) % len(KINDS)]
    alive: Alive = "agent" if dice.random() < 0.5 else "watchdog"
    async with scene_at(provider, root) as scene:
        await scene.rent(when_done=None, hours=12)
        content = f"{seed} {dice.random()}"
        async with _looked_after(scene, alive) as pace:
            needed_at = await _worked(scene, kind, content, dice)
            pace.really_s = _AFTERWARDS_S
            thing = scene.tenant.thing(scene.tenant.lease(scene.lease).box_id)
            until = needed_at + _AT_MOST_H * 3600
            await _until(
                lambda: scene.state is LeaseState.GONE or scene.tenant.stage.world.now >= until
            )
        ended = scene.state is LeaseState.GONE
        billed = None
        if ended:
            billed = max(span.until or 0 for span in thing.spans) - needed_at
        return Lived(
            seed=seed,
            provider=provider,
            kind=kind,
            alive=alive,
            ended=ended,
            billed_s=billed,
            beyond_s=None if billed is None else billed - LOOKED_AT_S.get(kind, 0),
            told=tuple(f"{key}: {words}" for key, (_, words) in sorted(scene.alarms().items())),
            unproved=_unproved(scene),
            kept=_is_kept(scene, kind, content),
            steps=tuple(
                (_step(line.event), round(line.at.timestamp() - needed_at, 1))
                for line in scene.tenant.tenancy.ledger.events(scene.lease)
                if line.at.timestamp() >= needed_at
            ),
            cpu_s=round(sum(os.times()[:4]) - began_cpu_s, 1),
        )


def _step(event: timeline.Event) -> str:
    """What it is called in the table: its kind, and what came of it where it says so."""
    return " ".join(filter(None, (event.kind, getattr(event, "outcome", None))))


@dataclass
class _Pace:
    """How long each wait of whoever looks after the lease really takes."""

    really_s: float = _REALLY_S


@asynccontextmanager
async def _looked_after(scene: Scene, alive: Alive) -> AsyncIterator[_Pace]:
    """A watchdog of another process' kind looks, or the server of an agent does; both know only the ledger."""
    tenancy, pace = scene.tenant.anew_tenancy(), _Pace()

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(min(seconds, pace.really_s))
        await scene.tenant.clock.sleep(max(0.0, seconds - pace.really_s))

    by: Literal["watchdog", "server"] = "server" if alive == "agent" else "watchdog"
    dog = Watchdog(tenancy, tell=lambda _: None, sleep=sleep, by=by)
    watching = asyncio.create_task(dog.forever())
    try:
        yield pace
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _worked(scene: Scene, kind: Kind, content: str, dice: random.Random) -> float:
    """The work was launched and is over; returns when the last needed byte was there, by the provider's clock."""
    tenancy = scene.tenant.tenancy
    nap = f"sleep {dice.uniform(0.1, 1.5):.2f}"
    writes = f"{nap}; mkdir -p out; printf %s '{content}' > out/.w; mv out/.w out/w.txt"
    if kind == "sweep":
        command = (
            writes.replace(content, f"{content} {{seed}}")
            .replace("out/", "out/{cell}/")
            .replace("mkdir -p out", "mkdir -p out/{cell}")
        )
        await tenancy.launch_detached(
            scene.lease, command, ["out/{cell}/"], matrix={"seed": [1, 2, 3]}
        )
        return await _there(scene, *(f"out/{cell}/w.txt" for cell in CELLS))
    await _launched(scene, script(kind, writes), "out/", "train")
    at = await _there(scene, "out/w.txt")
    if kind == "several":
        for n in range(2):
            # An agent that sees the end, and launches the next before the grace is over.
            await asyncio.sleep(dice.uniform(0, 0.2))
            command = writes.replace("out/", f"o{n}/").replace("-p out", f"-p o{n}")
            await _launched(scene, command, f"o{n}/", f"n{n}")
            at = await _there(scene, f"o{n}/w.txt")
    return at


async def _launched(scene: Scene, command: str, artifact: str, name: str) -> None:
    """It was launched; while the lease is held for longer than a call waits, the same call is made again."""
    for _ in range(50):
        with suppress(LeaseHeld):
            await scene.tenant.tenancy.launch_detached(scene.lease, command, [artifact], name=name)
            return
    raise AssertionError("it is never launched")


async def _there(scene: Scene, *names: str) -> float:
    """When all of them were on the box, by the provider's clock: never later than they were."""
    home = scene.tenant.home_of(scene.tenant.lease(scene.lease).box_id or "")
    work = home / scene.tenant.lease(scene.lease).work_directory
    before = scene.tenant.stage.world.now
    for _ in range(30_000):
        now = scene.tenant.stage.world.now
        if all((work / name).exists() for name in names) or not home.exists():
            return before
        before = now
        await asyncio.sleep(0.01)
    raise AssertionError("the work is never done")


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(30_000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it does not come")


def _unproved(scene: Scene) -> int:
    """How many destroys were sent where no permit said that all was verified."""
    method, path = DESTROY[scene.tenant.slug]
    asked = sum(x["method"] == method and path in x["path"] for x in scene.tenant.ask("requests"))
    if not asked:
        return 0
    receipt = scene.tenant.tenancy.ledger.receipt(scene.lease)
    return 0 if receipt is not None and receipt.ground == "verified" else asked


def _is_kept(scene: Scene, kind: Kind, content: str) -> bool:
    names = [f"out/{cell}/w.txt" for cell in CELLS] if kind == "sweep" else ["out/w.txt"]
    names += ["o0/w.txt", "o1/w.txt"] if kind == "several" else []
    kept = scene.kept()
    written = [f"{content} {n}" for n in (1, 2, 3)] if kind == "sweep" else [content] * len(names)
    if kind == "unclaimed":
        names, written = [*names, "other.bin"], [*written, "precious\n"]
    return all(
        (kept / name).exists() and (kept / name).read_text() == text
        for name, text in zip(names, written, strict=True)
    )
