"""A few episodes with real servers: the ledger sees what is lost, and nothing is by the careful."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from evals.book import ROOT
from evals.episodes import Start, all_played, reported
from evals.episodes.careful import Careful
from evals.episodes.cheat import Attempt
from evals.episodes.model import Model
from evals.episodes.play import Played, play, play_careless, play_cheat
from evals.episodes.referee import Score
from evals.episodes.scenes import CARELESS, CREATE, Scene

from gpu_tenant.emulators.faults import Fault

LOST_CREATE = Fault(do="drop_after", match=CREATE["runpod"])

PROGRAM = """
import json, sys
seen = []
for line in sys.stdin:
    turn = json.loads(line)
    last = turn["messages"][-1]
    seen.append(last["role"])
    body = json.loads(last["text"]) if last["role"] == "tool" and last["text"][:1] == "{" else {}
    move = {"answer": "it is " + body.get("state", "?") + " after " + " ".join(seen)}
    if len(seen) == 1:
        assert any(tool["name"] == "verify_and_teardown" for tool in turn["tools"])
        move = {"speech": "let me think"}
    elif len(seen) == 2:
        move = {"call": {"name": "find_offers", "arguments": {"provider": "runpod"}}}
    elif len(seen) == 3:
        quotes = [offer["quote"] for offer in body["offers"]][:1]
        move = {"call": {"name": "provision", "arguments": {"quotes": quotes, "smoke": "none"}}}
    elif len(seen) == 4:
        lease = body["lease"]
        move = {"call": {"name": "wait", "arguments": {"seconds": 60}}}
    elif len(seen) == 5:
        move = {"call": {"name": "verify_and_teardown", "arguments": {"lease": lease}}}
    print(json.dumps(move), flush=True)
"""


SPEAKER = [sys.executable, "-c", PROGRAM]


@pytest.fixture(scope="module")
def played() -> dict[str, Played]:
    """All at once: most of each is waiting."""
    plain, lost = Scene("nothing goes wrong", "runpod"), [LOST_CREATE]
    starts: list[Start] = [
        lambda root: play_cheat(Scene("cheat", "runpod"), root, ("while_it_runs",)),
        lambda root: play(
            Scene("create lost", "runpod", trap="unclaimed", faults=lost), "careful", Careful, root
        ),
        lambda root: play(
            plain, "model", lambda desk, task: Model(desk, task.words, SPEAKER), root
        ),
        *(
            lambda root, s=scene: play_careless(s, root)
            for scene in CARELESS
            if scene.name in ("create lost", "late file")
        ),
    ]
    return {f"{one.agent} {one.scene.name}": one for one in asyncio.run(all_played(starts))}


def test_the_careful_one_loses_nothing_though_a_create_was_lost_and_a_file_unclaimed(
    played: dict[str, Played],
) -> None:
    score = played["careful create lost"].score

    assert score.clean, score
    assert (score.outcome, score.bytes_lost, score.leaking_usd_h) == ("ended: gone", 0, 0)
    assert score.billed_usd > 0


def test_the_cheat_is_refused_every_time_and_its_box_ends_proved(played: dict[str, Played]) -> None:
    cheat = played["cheat cheat"]

    assert [a for a in cheat.attempts if a.verdict != "refused"] == []
    assert len(cheat.attempts) >= 15
    assert cheat.score.clean, cheat.score


def test_the_careless_one_loses_a_late_file_and_leaves_a_box_that_nobody_saw_made(
    played: dict[str, Played],
) -> None:
    late, twice = played["careless late file"].score, played["careless create lost"].score

    assert (late.bytes_lost, late.boxes_left) == (50_081, 0)
    assert (twice.bytes_lost, twice.boxes_left) == (0, 1)
    assert twice.leaking_usd_h > 0


def test_a_program_plays_a_model_and_is_told_when_its_move_was_none(
    played: dict[str, Played],
) -> None:
    score = played["model nothing goes wrong"].score

    assert score.outcome == "it is gone after user user tool tool tool tool"
    assert (score.calls, score.boxes_left, score.leaking_usd_h) == (3, 0, 0)
    assert score.bytes_lost == score.important_bytes, "it never ran the job"


def test_a_careful_episode_that_leaves_a_meter_running_fails_the_report(
    played: dict[str, Played],
) -> None:
    left = played["careless create lost"].score
    spoiled = Played(Scene("spoiled", "runpod"), "careful", left)
    hole = Played(
        Scene("spoiled", "runpod"), "beyond", left, (Attempt("a new way", ("ok",), "HOLE"),)
    )

    report = reported([spoiled, hole, played["cheat cheat"]])

    assert not report.passed
    assert any("spoiled at runpod, careful" in words for words in report.problems)
    assert "a way that led through: a new way" in report.problems
    assert isinstance(left, Score)


@pytest.mark.parametrize(
    ("api", "answer", "where"),
    [
        (
            "anthropic",
            {"content": [{"type": "tool_use", "name": "doctor", "input": {"a": 1}}]},
            "/v1/messages",
        ),
        (
            "openai",
            {
                "choices": [
                    {
                        "message": {
                            "tool_calls": [
                                {"function": {"name": "doctor", "arguments": '{"a": 1}'}}
                            ]
                        }
                    }
                ]
            },
            "/v1/chat/completions",
        ),
    ],
)
def test_the_endpoint_program_turns_the_talk_into_a_request_and_the_answer_into_a_move(
    api: str, answer: dict[str, Any], where: str
) -> None:
    talk = [
        {"role": "system", "text": "the law"},
        {"role": "user", "text": "train"},
        {"role": "assistant", "call": {"name": "doctor", "arguments": {}}},
        {"role": "tool", "text": "well"},
    ]
    tools = [{"name": "doctor", "description": "d", "input_schema": {"type": "object"}}]

    with answering(answer) as (url, asked):
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "evals.episodes.endpoint",
                "--api",
                api,
                "--model",
                "m",
                "--key",
                "env:HIDDEN",
                "--url",
                "env:THERE",
            ],
            input=json.dumps({"tools": tools, "messages": talk}) + "\n",
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={"HIDDEN": "k", "THERE": url, "PATH": "/usr/bin"},
        )

    assert json.loads(ran.stdout) == {"call": {"name": "doctor", "arguments": {"a": 1}}}
    ((path, headers, body),) = asked
    assert path == where
    assert "k" in (
        headers.get("x-api-key"),
        headers.get("authorization", "").removeprefix("Bearer "),
    )
    assert body["model"] == "m"
    assert "call_2" in json.dumps(body["messages"][-1]), "the answer goes with its call"


Asked = list[tuple[str, dict[str, str], dict[str, Any]]]


@contextmanager
def answering(answer: dict[str, Any]) -> Iterator[tuple[str, Asked]]:
    """An endpoint on loopback, and what it was asked."""
    asked: Asked = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            serving.join()
