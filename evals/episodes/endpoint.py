"""A program for `--model`: speaks for a model behind an Anthropic or an OpenAI-compatible endpoint.

    python -m evals.episodes.endpoint --api anthropic --model NAME --key env:ANTHROPIC_API_KEY
    python -m evals.episodes.endpoint --api openai --model NAME --key env:OPENAI_API_KEY --url env:URL

The key is a reference (`env:`, `file:`, `keyring:`, `cmd:`), never the key.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import httpx2

from gpu_tenant.providers.credentials import KeyPlaces, resolve_all

Json = dict[str, Any]
_TOKENS: Final = 4096
_URLS: Final = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}
APIS: Final = tuple(sorted(_URLS))
_PATHS: Final = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
_BUSY: Final = (429, 500, 502, 503, 504, 529)
_TRIES: Final = 6
_LONGEST_WAIT_S: Final = 60.0


def main(arguments: Sequence[str]) -> int:
    """The exit status, when stdin has ended."""
    parser = argparse.ArgumentParser(prog="python -m evals.episodes.endpoint")
    parser.add_argument("--api", choices=APIS, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", required=True, help="a reference: env:NAME, file:PATH, …")
    parser.add_argument("--url", help="a reference to another address than the maker's own")
    chosen = parser.parse_args(arguments)
    with Endpoint(chosen.api, chosen.key, chosen.url) as endpoint:
        for line in sys.stdin:
            move = endpoint.move(json.loads(line), chosen.model)
            sys.stdout.write(json.dumps(move) + "\n")
            sys.stdout.flush()
    return 0


class Endpoint:
    """A model's address, which is asked for one move at a time. It counts the tokens of all moves."""

    def __init__(self, api: str, key: str, url: str | None = None) -> None:
        """`key` and `url` are references. What they lead to is in no argument of a program, and in no result."""
        named = [f"KEY={key}", *([f"URL={url}"] if url else [])]
        found = resolve_all(
            named, os.environ, key_places=KeyPlaces(frozenset(), (), Path("no configuration"))
        )
        self._api = api
        self._http = httpx2.Client(
            base_url=found.get("URL", _URLS[api]), timeout=600, headers=_headers(api, found["KEY"])
        )
        self.read = self.written = 0

    def __enter__(self) -> "Endpoint":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """No connection is left open."""
        self.close()

    def close(self) -> None:
        """End its connections."""
        self._http.close()

    def move(self, turn: Json, model: str) -> Json:
        """Return the move that the model makes. One that is busy is asked again, a few times."""
        ask, read = (
            (to_anthropic, from_anthropic) if self._api == "anthropic" else (to_openai, from_openai)
        )
        body = ask(turn, model)
        for tried in range(_TRIES):
            answer = self._http.post(_PATHS[self._api], json=body)
            if answer.status_code not in _BUSY or tried == _TRIES - 1:
                break
            time.sleep(_patience(answer.headers.get("retry-after", ""), tried))  # noqa: TID251
        answer.raise_for_status()
        told = cast("Json", answer.json())
        used = told.get("usage") or {}
        self.read += used.get("input_tokens", used.get("prompt_tokens", 0))
        self.written += used.get("output_tokens", used.get("completion_tokens", 0))
        return read(told)


def _patience(said: str, tried: int) -> float:
    """Return the seconds to wait: as the server says, else longer each time."""
    return min(float(said) if said.replace(".", "", 1).isdigit() else 2.0**tried, _LONGEST_WAIT_S)


def _headers(api: str, key: str) -> Mapping[str, str]:
    if api == "anthropic":
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return {"Authorization": f"Bearer {key}"}


def to_anthropic(turn: Json, model: str) -> Json:
    """The request for one move; a call of ours has its place in the talk as its id."""
    system = "\n\n".join(m["text"] for m in turn["messages"] if m["role"] == "system")
    messages: list[Json] = []
    for place, said in enumerate(turn["messages"]):
        if said["role"] == "user":
            messages.append({"role": "user", "content": said["text"]})
        elif said["role"] == "assistant" and said.get("call"):
            use = {
                "type": "tool_use",
                "id": f"call_{place}",
                "name": said["call"]["name"],
                "input": said["call"].get("arguments", {}),
            }
            messages.append({"role": "assistant", "content": [use]})
        elif said["role"] == "assistant":
            messages.append({"role": "assistant", "content": said["text"]})
        elif said["role"] == "tool":
            result = {
                "type": "tool_result",
                "tool_use_id": f"call_{place - 1}",
                "content": said["text"],
                "is_error": said.get("error") == "error",
            }
            messages.append({"role": "user", "content": [result]})
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    tools = {"tools": turn["tools"], "tool_choice": choice} if turn["tools"] else {}
    return {
        "model": model,
        "max_tokens": _TOKENS,
        **({"system": system} if system else {}),
        "messages": messages,
        **tools,
    }


def from_anthropic(answer: Json) -> Json:
    """The move that the answer makes."""
    for part in answer["content"]:
        if part["type"] == "tool_use":
            return {"call": {"name": part["name"], "arguments": part["input"]}}
    return {"answer": "".join(part.get("text", "") for part in answer["content"])}


def to_openai(turn: Json, model: str) -> Json:
    """As `to_anthropic`."""
    messages: list[Json] = []
    for place, said in enumerate(turn["messages"]):
        if said["role"] == "assistant" and said.get("call"):
            arguments = json.dumps(said["call"].get("arguments", {}))
            call = {
                "id": f"call_{place}",
                "type": "function",
                "function": {"name": said["call"]["name"], "arguments": arguments},
            }
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif said["role"] == "tool":
            messages.append(
                {"role": "tool", "tool_call_id": f"call_{place - 1}", "content": said["text"]}
            )
        else:
            messages.append({"role": said["role"], "content": said["text"]})
    tools = [
        {
            "type": "function",
            "function": {
                "name": t["name"],
                "description": t["description"],
                "parameters": t["input_schema"],
            },
        }
        for t in turn["tools"]
    ]
    said = {"tools": tools, "parallel_tool_calls": False} if tools else {}
    return {"model": model, "messages": messages, **said}


def from_openai(answer: Json) -> Json:
    """As `from_anthropic`."""
    said = answer["choices"][0]["message"]
    if said.get("tool_calls"):
        made = said["tool_calls"][0]["function"]
        return {"call": {"name": made["name"], "arguments": json.loads(made["arguments"] or "{}")}}
    return {"answer": said.get("content") or ""}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
