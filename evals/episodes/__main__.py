"""`python -m evals.episodes [--only WORDS] [--model 'COMMAND'] [--transcripts DIR]`: a table of episodes."""

import argparse
import asyncio
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from evals.episodes import all_played, scripted
from evals.episodes.desk import Desk
from evals.episodes.model import Model
from evals.episodes.play import Played, play
from evals.episodes.scenes import SCENES, Scene
from evals.episodes.task import Task


def main(arguments: Sequence[str]) -> int:
    """The exit status, when the episodes have been played and shown."""
    parser = argparse.ArgumentParser(prog="python -m evals.episodes", description=__doc__)
    parser.add_argument("--only", default="", help="episodes whose name or provider holds this")
    parser.add_argument("--model", help="a program that speaks for a model, see evals/README.md")
    parser.add_argument("--transcripts", type=Path, help="a directory for what was said")
    chosen = parser.parse_args(arguments)
    if chosen.model is None:
        played = asyncio.run(all_played(scripted()))
    else:
        where = chosen.transcripts or Path(tempfile.mkdtemp(prefix="gpu-tenant-transcripts-"))
        where.mkdir(parents=True, exist_ok=True)
        command = shlex.split(chosen.model)
        scenes = [s for s in SCENES if chosen.only in f"{s.name} {s.provider}"]
        played = [asyncio.run(asked(scene, command, where)) for scene in scenes]
    _show([one for one in played if chosen.only in f"{one.scene.name} {one.scene.provider}"])
    return 0 if all(one.score.clean for one in played if one.agent != "careless") else 1


async def asked(scene: Scene, command: Sequence[str], where: Path) -> Played:
    """A model has played it; the talk is in `where`, a file for each episode."""
    models: list[Model] = []

    def make(desk: Desk, task: Task) -> Model:
        models.append(Model(desk, task.words, command))
        return models[-1]

    with tempfile.TemporaryDirectory(prefix="gpu-tenant-episode-") as root:
        try:
            return await play(scene, "model", make, Path(root))
        finally:
            name = f"{scene.provider}-{scene.name.replace(' ', '-').replace(',', '')}.jsonl"
            for model in models:
                model.write(where / name)


def _show(played: Sequence[Played]) -> None:
    table = Table(
        "episode",
        "provider",
        "agent",
        "USD/h lost",
        "bytes lost",
        "wasted USD",
        "refusals",
        "calls",
        "tokens read",
        "outcome",
    )
    for one in played:
        score = one.score
        table.add_row(
            one.scene.name,
            one.scene.provider,
            one.agent,
            str(score.leaking_usd_h),
            str(score.bytes_lost + score.bytes_left_on_boxes),
            str(score.wasted_usd),
            str(score.refused),
            str(score.calls),
            str(score.characters_read // 4),
            score.outcome[:60],
        )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
