"""Any model in an episode: a program that is given the tools and the talk, and answers with one move."""

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from evals.book import ROOT
from evals.episodes.desk import Desk

_TURNS: Final = 120
_LINE_BYTES: Final = 1 << 24
_LONGEST_WAIT_S: Final = 6 * 3600

_WAIT: Final[dict[str, JsonValue]] = {
    "name": "wait",
    "description": "Let time pass without doing anything.",
    "input_schema": {
        "type": "object",
        "properties": {"seconds": {"type": "number"}},
        "required": ["seconds"],
    },
}


READ_PAGE: Final[dict[str, JsonValue]] = {
    "name": "read_page",
    "description": "Read a page of the skill.",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "as in references/gotchas.md"}},
        "required": ["path"],
    },
}
_PAGES: Final = ("references", "profiles")


class Call(BaseModel):
    """One use of a tool."""

    model_config = ConfigDict(extra="forbid")

    name: str
    arguments: dict[str, JsonValue] = {}


class Move(BaseModel):
    """What the program answers, one line of JSON: a call, or the last word."""

    model_config = ConfigDict(extra="forbid")

    call: Call | None = None
    answer: str | None = None


class Message(BaseModel):
    """One line of the talk: `call` is the assistant's, `error` a tool's."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    call: Call | None = None
    error: Literal["", "error"] = ""


class Model:
    """Asks the program for one move at a time; each line it is sent holds all that it may know."""

    def __init__(
        self, desk: Desk, words: str, command: Sequence[str], *, has_skill: bool = True
    ) -> None:
        """`words` is what the person types. With the skill, its pages can be read as well."""
        self._desk = desk
        self._words = words
        self._command = command
        self._has_skill = has_skill
        self.messages: list[Message] = []

    async def run(self) -> str:
        """The model's last word."""
        skill = (ROOT / "SKILL.md").read_text(encoding="utf-8")
        self.messages = [
            *([Message(role="system", text=skill)] if self._has_skill else []),
            Message(role="user", text=self._words),
        ]
        tools: list[JsonValue] = [
            {"name": t.name, "description": t.description or "", "input_schema": t.input_schema}
            for t in await self._desk.tools()
        ]
        program = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, limit=_LINE_BYTES
        )
        try:
            for _ in range(_TURNS):
                own: list[JsonValue] = [_WAIT, READ_PAGE] if self._has_skill else [_WAIT]
                last = await self._turn(program, [*tools, *own])
                if last is not None:
                    return last
            return f"gave up: no end after {_TURNS} turns"
        finally:
            if program.stdin is not None:
                program.stdin.close()
            await program.wait()

    def write(self, path: Path) -> None:
        """The whole talk is in that file, a message in each line."""
        path.write_text(
            "".join(message.model_dump_json() + "\n" for message in self.messages), encoding="utf-8"
        )

    async def _turn(self, program: Process, tools: list[JsonValue]) -> str | None:
        """One move was made; its words, where it was the last."""
        assert program.stdin is not None
        assert program.stdout is not None
        talk = [message.model_dump(exclude_defaults=True) for message in self.messages]
        program.stdin.write(json.dumps({"tools": tools, "messages": talk}).encode() + b"\n")
        await program.stdin.drain()
        line = await program.stdout.readline()
        if not line:
            return "gave up: the program ended"
        try:
            move = Move.model_validate_json(line)
        except ValidationError as error:
            self.messages.append(Message(role="user", text=f"That was no move: {error}"))
            return None
        self.messages.append(Message(role="assistant", text=move.answer or "", call=move.call))
        if move.call is None:
            return move.answer or ""
        self.messages.append(await self._made(move.call))
        return None

    async def _made(self, call: Call) -> Message:
        if call.name == "wait":
            seconds = call.arguments.get("seconds")
            if not isinstance(seconds, int | float) or not 0 <= seconds <= _LONGEST_WAIT_S:
                return Message(role="tool", text="seconds: 0 to 21600", error="error")
            self._desk.wait(float(seconds))
            return Message(role="tool", text=f"{seconds} seconds have passed")
        if call.name == "read_page" and self._has_skill:
            return page(str(call.arguments.get("path")))
        answer = await self._desk.call(call.name, **call.arguments)
        return Message(role="tool", text=answer.words, error="error" if answer.code else "")


def page(path: str) -> Message:
    """Return the page of the skill. An error if there is no such page."""
    asked = (ROOT / path).resolve()
    pages = (file.resolve() for name in _PAGES for file in (ROOT / name).rglob("*.md"))
    if asked not in pages:
        return Message(role="tool", text=f"there is no page {path}", error="error")
    return Message(role="tool", text=asked.read_text(encoding="utf-8"))
