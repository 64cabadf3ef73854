"""The one way that an agent has to the world: the tools of a real server, and time that passes."""

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext, ElicitationFnT
from mcp.client.stdio import stdio_client
from mcp.types import ElicitRequestParams, ElicitResult, Tool
from pydantic import JsonValue

from evals.episodes.referee import Referee, code_of

Asked = Callable[[ElicitRequestParams], ElicitResult]
"""What stands in for the person: it sees the form that the server shows, and answers it."""

Owner = Callable[[Referee], None]
"""What the person does at the provider's console when an agent asks for it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool answered."""

    words: str
    code: str | None
    body: Mapping[str, JsonValue]

    def text(self, name: str) -> str:
        """That field of a success; empty where it has none."""
        value = self.body.get(name)
        return "" if value is None else str(value)

    def texts(self, name: str) -> list[str]:
        """That field, a list of words."""
        return cast("list[str]", self.body.get(name) or [])

    def rows(self, name: str) -> list[dict[str, JsonValue]]:
        """That field, a list of records."""
        return cast("list[dict[str, JsonValue]]", self.body.get(name) or [])


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that the world does around the agent's `nth` call of a tool."""

    when: Literal["before", "after"]
    tool: str
    do: Owner
    nth: int = 1


@dataclass(slots=True)
class Desk:
    """Every call goes through here, is counted by the referee, and stands in the transcript."""

    client: Client
    referee: Referee
    meanwhile: Sequence[Happening] = ()
    owner: Owner | None = None
    transcript: list[dict[str, JsonValue]] = field(default_factory=list)

    async def tools(self) -> list[Tool]:
        """What the server offers."""
        return list((await self.client.list_tools()).tools)

    async def call(self, tool: str, **arguments: JsonValue) -> Answer:
        """What the tool answered, error or not."""
        nth = 1 + sum(line["tool"] == tool for line in self.transcript)
        self._happen("before", tool, nth)
        result = await self.client.call_tool(tool, dict(arguments))
        words = "".join(getattr(part, "text", "") for part in result.content)
        code = code_of(words) if result.is_error else None
        self.referee.note(words, refused=code)
        self.transcript.append(
            {"tool": tool, "arguments": dict(arguments), "refused": code, "words": words}
        )
        self._happen("after", tool, nth)
        body = {} if result.is_error else cast("dict[str, JsonValue]", result.structured_content)
        return Answer(words, code, body or {})

    def wait(self, seconds: float) -> None:
        """The agent has done nothing for so long."""
        self.referee.wait(seconds)

    def tell_owner(self, words: str) -> None:
        """The person has read that, and done at the console what it asks, if anything."""
        self.transcript.append(
            {"tool": "(to the person)", "arguments": {}, "refused": None, "words": words}
        )
        if self.owner is not None:
            self.owner(self.referee)

    def write(self, path: Path) -> None:
        """The transcript is in that file, a call in each line."""
        lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in self.transcript)
        path.write_text("".join(lines), encoding="utf-8")

    def _happen(self, when: str, tool: str, nth: int) -> None:
        for one in self.meanwhile:
            if (one.when, one.tool, one.nth) == (when, tool, nth):
                one.do(self.referee)


@asynccontextmanager
async def seated(
    referee: Referee,
    meanwhile: Sequence[Happening] = (),
    *,
    asked: Asked | None = None,
    owner: Owner | None = None,
) -> AsyncIterator[Desk]:
    """A desk before a server of its own, as a host starts it; with nobody to ask unless `asked` is."""
    stage = referee.stage
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gpu_tenant", "serve"],
        env={
            # First the interpreter that runs us: one that is a script in front of another is slow.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(stage.directory),
            "USER": "owner",
            **stage.environment,
            **stage.for_clients,
        },
    )
    with (stage.directory / "server.log").open("a", encoding="utf-8") as log:
        way = stdio_client(server, errlog=log)
        async with Client(way, elicitation_callback=_callback(asked)) as client:
            yield Desk(client, referee, meanwhile, owner)


def _callback(asked: Asked | None) -> ElicitationFnT | None:
    if asked is None:
        return None

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return asked(params)

    return answer
