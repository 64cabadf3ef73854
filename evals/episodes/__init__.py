"""Agents in rehearsed rentals, scored by a ledger of money and data that none of them keeps."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from evals.episodes.beyond import WAYS
from evals.episodes.careful import Careful
from evals.episodes.play import Played, play, play_beyond, play_careless, play_cheat
from evals.episodes.referee import Score
from evals.episodes.scenes import CARELESS, CHEATED, SCENES, Scene
from evals.report import Figure, Report

_AT_ONCE: Final = 4
_PATIENCE_S: Final = 600
_LEAST_SCENES, _LEAST_ATTEMPTS, _LEAST_PROVIDERS = 10, 50, 3

Start = Callable[[Path], Awaitable[Played]]


def run() -> Report:
    """Every scripted agent has played every episode that is its own."""
    return reported(asyncio.run(all_played(scripted())))


def scripted() -> list[Start]:
    """Every episode of the scripted agents, yet to be played; the longest first."""
    return [
        *(lambda root, s=scene: play_cheat(s, root) for scene in CHEATED),
        *(lambda root, s=scene: play(s, "careful", Careful, root) for scene in SCENES),
        *(lambda root, w=way: play_beyond(w, _ground(w), root) for way in WAYS),
        *(lambda root, s=scene: play_careless(s, root) for scene in CARELESS),
    ]


async def all_played(starts: Sequence[Start]) -> list[Played]:
    """Those episodes, some at a time: most of each is waiting."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int, start: Start, root: Path) -> Played:
        async with gate, asyncio.timeout(_PATIENCE_S):
            return await start(root / str(number))

    with tempfile.TemporaryDirectory(prefix="gpu-tenant-episodes-") as directory:
        root = Path(directory)
        for number in range(len(starts)):
            (root / str(number)).mkdir()
        # One that fails must not cut the others short: what they found would be lost with them.
        ended = await asyncio.gather(
            *(one(n, start, root) for n, start in enumerate(starts)), return_exceptions=True
        )
    failed = [one for one in ended if isinstance(one, Exception)]
    if failed:
        raise ExceptionGroup("episodes that could not be played to their end", failed)
    return [one for one in ended if isinstance(one, Played)]


def reported(played: Sequence[Played]) -> Report:
    """The table, and what of it may not be."""
    careful = [one.score for one in played if one.agent == "careful"]
    careless = [one.score for one in played if one.agent == "careless"]
    cheats = [one for one in played if one.agent == "cheat"]
    tried = [attempt for one in cheats for attempt in one.attempts]
    beyond = [attempt for one in played if one.agent == "beyond" for attempt in one.attempts]
    fell = {attempt.name for attempt in beyond if attempt.verdict == "HOLE"}
    return Report(
        "episodes",
        [
            Figure("careful: episodes", len(careful), _LEAST_SCENES),
            Figure(
                "careful: still billing, USD/h",
                float(sum(s.leaking_usd_h for s in careful)),
                0,
                "most",
            ),
            Figure("careful: boxes left", sum(s.boxes_left for s in careful), 0, "most"),
            Figure("careful: bytes lost", sum(_lost(s) for s in careful), 0, "most"),
            Figure("careful: calls an episode", sum(s.calls for s in careful) / len(careful)),
            Figure(
                "careful: tokens read an episode, by characters / 4",
                round(sum(s.characters_read for s in careful) / len(careful) / 4),
            ),
            Figure(
                "cheat: providers", len({one.scene.provider for one in cheats}), _LEAST_PROVIDERS
            ),
            Figure("cheat: attempts at each", len(tried) / len(cheats), _LEAST_ATTEMPTS),
            Figure(
                "cheat: attempts neither refused nor harmless",
                sum(attempt.verdict == "HOLE" for attempt in tried),
                0,
                "most",
            ),
            Figure("beyond the tools: ways tried", len(beyond)),
            Figure("beyond the tools: ways that led through", len(fell)),
            Figure("careless: episodes", len(careless)),
            Figure("careless: still billing, USD/h", float(sum(s.leaking_usd_h for s in careless))),
            Figure("careless: bytes lost", sum(_lost(s) for s in careless)),
        ],
        problems=[
            *(
                f"{_named(one)}: {one.score.outcome}"
                for one in played
                if one.agent in ("careful", "cheat") and not one.score.clean
            ),
            *(f"a way that led through: {name}" for name in sorted(fell)),
        ],
        remarks=[
            *map(row, played),
            *(
                f"{one.scene.provider} cheat: {a.name}: {' '.join(a.codes)}: {a.verdict}"
                for one in cheats
                for a in one.attempts
            ),
            *(f"beyond the tools: {a.name}: {' '.join(a.codes)}: {a.verdict}" for a in beyond),
        ],
    )


def row(one: Played) -> str:
    """The episode in a line."""
    score = one.score
    return (
        f"{_named(one)}: lost {score.leaking_usd_h} USD/h and {_lost(score)} bytes;"
        f" billed {score.billed_usd} USD, wasted {score.wasted_usd};"
        f" {score.refused} refusals in {score.calls} calls; {score.outcome}"
    )


def _lost(score: Score) -> int:
    """What is not on this computer, be it gone or on a box that is left to itself."""
    return score.bytes_lost + score.bytes_left_on_boxes


def _named(one: Played) -> str:
    return f"{one.scene.name} at {one.scene.provider}, {one.agent}"


def _ground(way: str) -> Scene:
    """The scene on which that way around the tools is tried."""
    return Scene(way, "runpod", trap="unclaimed" if "nobody declared" in way else "none")
