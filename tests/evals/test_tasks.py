"""The grader tells right ends of tasks from wrong ones, and the scripts do tasks at real rehearsals."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from evals.book import ROOT
from evals.episodes.desk import Desk
from evals.tasks import graded
from evals.tasks.grader import missed
from evals.tasks.planted import right, wrong
from evals.tasks.requests import REQUESTS, Request
from evals.tasks.scripted import carry_out
from evals.tasks.states import World

RECORDED = ROOT / "evals/results/tasks.jsonl"
PLANTED = [(request, *each) for request in REQUESTS for each in wrong(request.wants)]


def named(request: Request) -> str:
    return f"{request.name} at {request.provider}"


def one(kind: str, provider: str) -> Request:
    return next(r for r in REQUESTS if (r.kind, r.provider) == (kind, provider))


def test_there_are_as_many_tasks_and_planted_ends_as_the_page_says() -> None:
    assert len(REQUESTS) >= 60
    assert len(PLANTED) >= 200


def test_every_right_end_is_accepted() -> None:
    refused = {
        named(request): told
        for request in REQUESTS
        if (told := missed(request.wants, right(request.wants)))
    }

    assert refused == {}


def test_every_planted_wrong_end_is_refused() -> None:
    let_through = [
        f"{named(request)}: {words}"
        for request, words, end in PLANTED
        if not missed(request.wants, end)
    ]

    assert let_through == []


@pytest.mark.parametrize(
    ("kind", "provider"), [("look", "vastai"), ("price", "runpod"), ("why", "vastai")]
)
async def test_a_script_does_a_task_at_a_rehearsal(
    kind: str, provider: str, tmp_path: Path
) -> None:
    played = await graded(one(kind, provider), carry_out, tmp_path / "world")

    assert played.missed == []
    assert played.calls > 0


async def test_an_agent_that_only_says_it_is_done_has_done_nothing(tmp_path: Path) -> None:
    async def idle(world: World, desk: Desk) -> str:
        return "Everything is done."

    played = await graded(one("home", "vastai"), idle, tmp_path / "world")

    assert any("stand" in words for words in played.missed)
    assert played.calls == 0


def test_what_an_agent_said_at_the_end_of_each_task_is_on_record_and_passes() -> None:
    rows = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    assert Counter((row["task"], row["provider"]) for row in rows) == Counter(
        (request.name, request.provider) for request in REQUESTS
    )
    for row in rows:
        wants = next(
            r.wants for r in REQUESTS if (r.name, r.provider) == (row["task"], row["provider"])
        )
        for pattern in wants.says:
            said = pattern.replace("{stranger}", r"[\w-]{4,}")
            assert re.search(said, row["answer"], re.IGNORECASE), (row, pattern)
    assert [row for row in rows if row["missed"]] == []
