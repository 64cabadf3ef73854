"""`python -m evals.tasks [--only WORDS] [--model 'COMMAND'] [--skill with|without] [--transcripts DIR]`: a row a task."""

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from rich.console import Console
from rich.table import Table

from evals.episodes.desk import Desk
from evals.episodes.model import Model
from evals.tasks import Agent, Graded, all_graded
from evals.tasks.requests import REQUESTS
from evals.tasks.scripted import carry_out
from evals.tasks.states import World


def main(arguments: Sequence[str]) -> int:
    """Try the tasks and show how they went. Returns 0 if all were done."""
    parser = argparse.ArgumentParser(prog="python -m evals.tasks", description=__doc__)
    parser.add_argument("--only", default="", help="tasks whose name, kind or provider holds this")
    parser.add_argument("--model", help="a program that speaks for a model, see evals/README.md")
    parser.add_argument("--skill", choices=("with", "without"), default="with")
    parser.add_argument("--transcripts", type=Path, help="a directory for what was said")
    chosen = parser.parse_args(arguments)
    requests = [r for r in REQUESTS if chosen.only in f"{r.name} {r.kind} {r.provider}"]
    agent: Agent = carry_out
    if chosen.model is not None:
        where = chosen.transcripts or Path(mkdtemp(prefix="gpu-tenant-transcripts-"))
        where.mkdir(parents=True, exist_ok=True)
        agent = asked(shlex.split(chosen.model), where, has_skill=chosen.skill == "with")
    results = asyncio.run(all_graded(requests, agent, 1 if chosen.model else 4))
    if chosen.transcripts is not None:
        chosen.transcripts.mkdir(parents=True, exist_ok=True)
        (chosen.transcripts / "results.jsonl").write_text(recorded(results), encoding="utf-8")
    _show(results)
    return 0 if all(not one.missed for one in results) else 1


def asked(command: Sequence[str], where: Path, *, has_skill: bool) -> Agent:
    """Return the model as an agent. What was said is in `where`, a file for each task."""

    async def agent(world: World, desk: Desk) -> str:
        model = Model(desk, world.words, command, has_skill=has_skill)
        try:
            return await model.run()
        finally:
            name = f"{len(list(where.iterdir())):03}-{world.request.provider}-{world.request.name}"
            model.write(where / f"{name.replace(' ', '-')}.jsonl")

    return agent


def recorded(results: Sequence[Graded]) -> str:
    """Return one line of JSON for each task: how it went, and the last word to the person."""
    rows = (
        {
            "task": one.request.name,
            "provider": one.request.provider,
            "missed": list(one.missed),
            "calls": one.calls,
            "tokens_read": one.characters_read // 4,
            "answer": one.answer,
        }
        for one in results
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _show(results: Sequence[Graded]) -> None:
    table = Table("task", "provider", "missed", "calls", "tokens read")
    for one in results:
        table.add_row(
            one.request.name,
            one.request.provider,
            "; ".join(one.missed) or "nothing",
            str(one.calls),
            str(one.characters_read // 4),
        )
    console = Console()
    console.print(table)
    console.print(f"done: {sum(not one.missed for one in results)} of {len(results)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
