"""One agent in one episode, and its score."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evals.episodes.beyond import Beyond
from evals.episodes.careless import Careless
from evals.episodes.cheat import GROUPS, Attempt, Cheat, Forger, Group
from evals.episodes.desk import Desk, seated
from evals.episodes.referee import Referee, Score
from evals.episodes.scenes import Scene
from evals.episodes.task import Task, expected, laid_out
from gpu_tenant.emulators.server import Stage


class Agent(Protocol):
    """Whoever does the task."""

    async def run(self) -> str:
        """The last word to the person."""
        ...


@dataclass(frozen=True, slots=True)
class Played:
    """An episode that is over."""

    scene: Scene
    agent: str
    score: Score
    attempts: tuple[Attempt, ...] = ()


async def play(scene: Scene, name: str, make: Callable[[Desk, Task], Agent], root: Path) -> Played:
    """The agent of that name has said its last word over MCP; its calls are in `root`."""
    with _staged(scene, root) as (referee, task):
        async with seated(referee, scene.meanwhile, owner=scene.owner) as desk:
            try:
                outcome = await make(desk, task).run()
            finally:
                desk.write(root / "transcript.jsonl")
        return Played(scene, name, referee.score(outcome))


async def play_careless(scene: Scene, root: Path) -> Played:
    """The same without gpu-tenant."""
    with _staged(scene, root) as (referee, task):
        return Played(scene, "careless", referee.score(await Careless(referee, task).run()))


async def play_cheat(scene: Scene, root: Path, groups: Sequence[Group] = GROUPS) -> Played:
    """The ways through the tools were tried on one lease, which was then ended honestly."""
    forger = Forger()
    with _staged(scene, root) as (referee, task):
        async with seated(referee, asked=forger) as desk, seated(referee) as alone:
            cheat = Cheat(desk, task, alone=alone, forger=forger)
            try:
                outcome = await cheat.run(groups)
            finally:
                desk.write(root / "transcript.jsonl")
        return Played(scene, "cheat", referee.score(outcome), tuple(cheat.attempts))


async def play_beyond(way: str, scene: Scene, root: Path) -> Played:
    """That one way around the tools was tried."""
    with _staged(scene, root) as (referee, task):
        async with seated(referee) as desk:
            cheat = Cheat(desk, task, alone=desk, forger=Forger())
            try:
                attempt = await Beyond(cheat).run(way)
            finally:
                desk.write(root / "transcript.jsonl")
        return Played(scene, "beyond", referee.score(attempt.verdict), (attempt,))


@contextmanager
def _staged(scene: Scene, root: Path) -> Iterator[tuple[Referee, Task]]:
    """The world of that scene with everything wrong in it, and the work tree."""
    tree = laid_out(root / "tree", scene.trap)
    with Stage(scene.provider, root / "stage", way=scene.way) as stage:
        referee = Referee(stage, root / "stage" / "tenant" / "kept", expected(scene.trap))
        try:
            if scene.faults:
                referee.strike(*scene.faults)
            yield referee, Task(tree, scene.provider, scene.hours)
        finally:
            referee.close()
