"""A sample of the endings, those that need neither root nor a mount, really produced."""

from pathlib import Path

import pytest
from evals.endings.cases import endings
from evals.endings.stage import produced

SAMPLE = (
    "exit: an exception",
    "signal: SIGKILL by somebody",
    "memory_error: an absurd list",
    "cuda_oom: torch 2",
    "walltime: its own limit",
    "exit: a traceback quoted, and status 3",
    "network_lost: the other side resets",
    "unknown: command and supervisor killed",
)
EVERY = {ending.name: ending for ending in endings(Path("nowhere"))}


@pytest.mark.parametrize("name", SAMPLE)
def test_an_ending_really_produced_is_told_right(name: str) -> None:
    ending = EVERY[name]
    assert not ending.needs

    _, found = produced(ending)

    assert found is not None
    assert (found.verdict, bool(found.evidence)) == (ending.truth, True)


def test_there_are_endings_enough_and_none_twice() -> None:
    names = [ending.name for ending in endings(Path("nowhere"))]

    assert len(names) >= 66
    assert len(set(names)) == len(names)
    assert sum(ending.truth == "unknown" for ending in EVERY.values()) >= 10
