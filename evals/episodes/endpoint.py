"""A program for `--model`: speaks for a model behind an Anthropic or an OpenAI-compatible endpoint.

    python -m evals.episodes.endpoint --api anthropic --model NAME --key env:ANTHROPIC_API_KEY
    python -m evals.episodes.endpoint --api openai --model NAME --key env:OPENAI_API_KEY --url env:URL

The key is a reference (`env:`, `file:`, `keyring:`, `cmd:`), never the key.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import httpx2

from gpu_tenant.providers.credentials import KeyPlaces, resolve_all

Json = dict[str, Any]
_TOKENS: Final = 4096
_URLS: Final = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}
_PATHS: Final = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}


def main(arguments: Sequence[str]) -> int:
    """The exit status, when stdin has ended."""
    parser = argparse.ArgumentParser(prog="python -m evals.episodes.endpoint")
    parser.add_argument("--api", choices=sorted(_URLS), required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", required=True, help="a reference: env:NAME, file:PATH, …")
    parser.add_argument("--url", help="a reference to another address than the maker's own")
    chosen = parser.parse_args(arguments)
    named = [f"KEY={chosen.key}", *([f"URL={chosen.url}"] if chosen.url else [])]
    found = resolve_all(
        named, os.environ, key_places=KeyPlaces(frozenset(), (), Path("no configuration"))
    )
    ask, read = (
        (to_anthropic, from_anthropic) if chosen.api == "anthropic" else (to_openai, from_openai)
    )
    with httpx2.Client(base_url=found.get("URL", _URLS[chosen.api]), timeout=600) as http:
        for line in sys.stdin:
            body = ask(json.loads(line), chosen.model)
            answer = http.post(
                _PATHS[chosen.api], json=body, headers=_headers(chosen.api, found["KEY"])
            )
            answer.raise_for_status()
            sys.stdout.write(json.dumps(read(cast("Json", answer.json()))) + "\n")
            sys.stdout.flush()
    return 0


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
    return {
        "model": model,
        "max_tokens": _TOKENS,
        "system": system,
        "messages": messages,
        "tools": turn["tools"],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
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
    return {"model": model, "messages": messages, "tools": tools, "parallel_tool_calls": False}


def from_openai(answer: Json) -> Json:
    """As `from_anthropic`."""
    said = answer["choices"][0]["message"]
    if said.get("tool_calls"):
        made = said["tool_calls"][0]["function"]
        return {"call": {"name": made["name"], "arguments": json.loads(made["arguments"] or "{}")}}
    return {"answer": said.get("content") or ""}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
