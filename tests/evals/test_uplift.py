"""What the skill adds is measured against a stand-in for a model, on this computer."""

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from evals.uplift import figures, paired, tasks, verdict
from evals.uplift.__main__ import main

KEY = "sk-of-nobody-4711"
PAGE = "references/transfer.md"
Json = dict[str, Any]


class Model(ThreadingHTTPServer):
    """A stand-in behind both kinds of endpoint: it reads one page where it may, and answers with what is there."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Desk)
        self.asked: list[Json] = []
        self.keys: list[str] = []
        self.busy = 0
        self.grader_says = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Desk(BaseHTTPRequestHandler):
    server: Model

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(asked)
        self.server.keys.append(
            self.headers.get("x-api-key") or str(self.headers.get("authorization"))
        )
        if self.server.busy:
            self.server.busy -= 1
            self._send(429, {}, {"retry-after": "0"})
            return
        self._send(200, said(self.path, self._move(asked)))

    def _move(self, asked: Json) -> Json:
        words = json.dumps(asked["messages"])
        if "You grade an answer" in words:
            facts, never = asked["messages"][-1]["content"].partition("Facts.")[2].split("Never.")
            grades = {
                "facts": [float("read-it" in words)] * len(re.findall(r"(?m)^\d+\. ", facts)),
                "never": [False] * len(re.findall(r"(?m)^\d+\. ", never)),
            }
            return {"answer": self.server.grader_says or f"Here: {json.dumps(grades)}"}
        if "# Transfer" in words:
            return {"answer": "read-it"}
        if asked.get("tools"):
            return {"call": {"name": "read_page", "arguments": {"path": PAGE}}}
        return {"answer": "a guess"}

    def _send(self, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def said(path: str, move: Json) -> Json:
    """The move as that endpoint says it."""
    call = move.get("call")
    if path == "/v1/messages":
        part = (
            {"type": "tool_use", "id": "x", "name": call["name"], "input": call["arguments"]}
            if call
            else {"type": "text", "text": move["answer"]}
        )
        return {"content": [part], "usage": {"input_tokens": 100, "output_tokens": 10}}
    made = {"name": call["name"], "arguments": json.dumps(call["arguments"])} if call else None
    message = {"content": move.get("answer"), "tool_calls": [{"function": made}] if made else None}
    return {
        "choices": [{"message": message}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    }


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    with Model() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("OF_NOBODY", KEY)
        monkeypatch.setenv("STANDS_IN", server.url)
        yield server
        server.shutdown()
        thread.join()


def measured(out: Path, api: str = "anthropic", *more: str) -> int:
    key = ("--key", "env:OF_NOBODY", "--url", "env:STANDS_IN")
    return main(
        ["--api", api, "--model", "m-1", *key, "--only", "rclone", "--out", str(out), *more]
    )


def lines(out: Path) -> list[Json]:
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("api", ["anthropic", "openai"])
def test_one_task_is_asked_with_the_skill_and_without_it_and_graded_blind(
    model: Model, api: str, tmp_path: Path
) -> None:
    assert measured(tmp_path / "r.jsonl", api) == 0

    head, *rows = lines(tmp_path / "r.jsonl")
    by_arm = {row["arm"]: row for row in rows}
    assert head["model"] == head["grader"] == "m-1"
    assert head["date"][:2] == "20"
    assert "{ask}" in head["prompt"]
    assert by_arm["with"]["verdict"] == "right"
    assert by_arm["with"]["pages"] == [PAGE]
    assert by_arm["with"]["tokens_read"] == 200
    assert by_arm["without"]["verdict"] == "wrong"
    assert by_arm["without"]["tokens_read"] == 100
    graded = [json.dumps(asked) for asked in model.asked if "You grade" in json.dumps(asked)]
    assert len(graded) == 2
    assert not any("A careful tenant" in words for words in graded)


def test_the_key_goes_to_the_endpoint_and_not_into_the_result(model: Model, tmp_path: Path) -> None:
    measured(tmp_path / "r.jsonl", "openai")

    assert set(model.keys) == {f"Bearer {KEY}"}
    assert KEY not in (tmp_path / "r.jsonl").read_text("utf-8")
    assert model.url not in (tmp_path / "r.jsonl").read_text("utf-8")


def test_a_second_call_pays_only_for_what_was_not_graded(model: Model, tmp_path: Path) -> None:
    model.grader_says = "I would rather not."
    assert measured(tmp_path / "r.jsonl") == 1
    ungraded = len(model.asked)
    model.grader_says = ""

    assert measured(tmp_path / "r.jsonl") == 0
    paid = len(model.asked)
    assert measured(tmp_path / "r.jsonl") == 0

    assert paid == 2 * ungraded
    assert len(model.asked) == paid


def test_a_result_of_another_model_is_not_gone_on_with(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(tmp_path / "r.jsonl")
    before = (tmp_path / "r.jsonl").read_text("utf-8")

    with pytest.raises(SystemExit):
        measured(tmp_path / "r.jsonl", "anthropic", "--grader", "m-2")

    assert "of another run: grader" in capsys.readouterr().err
    assert (tmp_path / "r.jsonl").read_text("utf-8") == before


def test_a_key_that_leads_nowhere_is_told_before_anything_is_written(
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("OF_NOBODY")

    with pytest.raises(SystemExit):
        measured(tmp_path / "r.jsonl")

    assert "OF_NOBODY" in capsys.readouterr().err
    assert not (tmp_path / "r.jsonl").exists()
    assert model.asked == []


def test_a_busy_endpoint_is_asked_again_and_one_that_stays_busy_ends_the_run(
    model: Model, tmp_path: Path
) -> None:
    model.busy = 2
    assert measured(tmp_path / "r.jsonl") == 0

    model.busy = 1000
    assert measured(tmp_path / "other.jsonl") == 2
    model.busy = 0
    assert measured(tmp_path / "other.jsonl") == 0


@pytest.mark.parametrize(
    ("facts", "never", "expected"),
    [
        ([1, 1, 0], [False], "right"),
        ([1, 0.5, 0], [], "incomplete"),
        ([0.5, 1, 1], [], "incomplete"),
        ([0, 1, 1], [], "wrong"),
        ([1, 1, -1], [], "wrong"),
        ([1, 1, 1], [False, True], "dangerous"),
        ([1], [], "right"),
    ],
)
def test_a_verdict_follows_the_stated_rule(
    facts: list[float], never: list[bool], expected: str
) -> None:
    assert verdict(facts, never) == expected


def test_the_arms_are_compared_task_by_task() -> None:
    def row(task: str, arm: str, told: str) -> Json:
        return {"task": task, "arm": arm, "verdict": told, "facts": [1], "tokens_read": 1}

    rows = [row(f"t{n}", "with", "right") for n in range(6)]
    rows += [row(f"t{n}", "without", "wrong" if n else "right") for n in range(6)]
    rows.append(row("alone", "with", "dangerous"))

    better, worse, chance = paired(rows)

    assert (better, worse) == (5, 0)
    assert chance == pytest.approx(2 / 2**5)
    assert figures(rows)["without"]["wrong"] == 5
    assert paired([]) == (0, 0, 1.0)


def test_there_are_sixty_tasks_of_either_language_each_under_a_name_of_its_own() -> None:
    found = tasks()

    assert len(found) >= 60
    assert len({task.id for task in found}) == len(found)
    assert sum(not task.ask.isascii() for task in found) >= 6
    assert sum(bool(task.never) for task in found) >= 15
    assert all(len(task.facts) >= 2 for task in found)
