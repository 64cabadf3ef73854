"""Tasks as an agent meets them: a request, a rehearsal in some state, and a grader that looks at money, bytes and words."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from evals.episodes.desk import Desk, seated
from evals.report import Figure, Report
from evals.tasks.grader import missed
from evals.tasks.planted import right, wrong
from evals.tasks.requests import REQUESTS, Request
from evals.tasks.scripted import carry_out
from evals.tasks.states import World, staged

_AT_ONCE: Final = 4
_PATIENCE_S: Final = 600
_LEAST_TASKS, _LEAST_PLANTED = 60, 200

Agent = Callable[[World, Desk], Awaitable[str]]
"""Does the task, and returns its last word to the person."""


@dataclass(frozen=True, slots=True)
class Graded:
    """One task that was tried."""

    request: Request
    answer: str
    missed: Sequence[str]
    calls: int
    characters_read: int

    @property
    def row(self) -> str:
        """The task in a line."""
        told = "; ".join(self.missed) or "done"
        return f"{self.request.name} at {self.request.provider}: {told} ({self.calls} calls)"


def run() -> Report:
    """The scripts have done every task, and the grader has judged the planted ends."""
    return reported(asyncio.run(all_graded(REQUESTS, carry_out)))


async def all_graded(
    requests: Sequence[Request], agent: Agent, at_once: int = _AT_ONCE
) -> list[Graded]:
    """Return how the agent did each of them, some at a time."""
    gate = asyncio.Semaphore(at_once)

    async def one(request: Request, root: Path) -> Graded:
        async with gate:
            return await graded(request, agent, root)

    with TemporaryDirectory(prefix="gpu-tenant-tasks-") as directory:
        roots = [Path(directory) / str(number) for number in range(len(requests))]
        return await asyncio.gather(*map(one, requests, roots))


async def graded(request: Request, agent: Agent, root: Path) -> Graded:
    """Let the agent do that task in a world of its own, and judge what came of it."""
    root.mkdir()
    with staged(request, root) as world:
        await world.made()
        try:
            async with (
                asyncio.timeout(_PATIENCE_S),
                seated(world.referee, owner=world.owner) as desk,
            ):
                answer = await agent(world, desk)
        except TimeoutError:
            answer = ""
        calls, read = world.referee.calls, world.referee.characters_read
        end = await world.ended(answer)
        return Graded(request, answer, missed(world.wants, end), calls, read)


def reported(results: Sequence[Graded]) -> Report:
    """The figures, and the tasks that were not done."""
    planted = [(request, *each) for request in REQUESTS for each in wrong(request.wants)]
    let_through = [
        f"{request.name} at {request.provider}: {words}"
        for request, words, end in planted
        if not missed(request.wants, end)
    ]
    refused_right = [
        f"{request.name} at {request.provider}: a right end is refused: {told}"
        for request in REQUESTS
        if (told := missed(request.wants, right(request.wants)))
    ]
    return Report(
        "tasks",
        [
            Figure("tasks", len(REQUESTS), _LEAST_TASKS),
            Figure("done by the scripts", sum(not one.missed for one in results) / len(results), 1),
            Figure("wrong ends planted", len(planted), _LEAST_PLANTED),
            Figure("wrong ends refused", 1 - len(let_through) / len(planted), 1),
        ],
        problems=[
            *(one.row for one in results if one.missed),
            *(f"let through: {words}" for words in let_through),
            *refused_right,
        ],
        remarks=[],
    )
