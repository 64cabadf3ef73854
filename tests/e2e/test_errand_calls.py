"""The whole errand over MCP: one tool, a plan that somebody agrees to, and few words."""

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from e2e.renting import NearClock, Tenant, tenant_at
from errands import COMMAND, a_tree
from mcp import Client
from mcp.types import ElicitRequestParams, ElicitResult
from signed import signs

from gpu_tenant.faces.mcp.server import make_server

MOST_CALLS, MOST_TOKENS = 3, 1000
SMOKE = f"SMOKE=1 {COMMAND}"


@pytest.fixture
async def renting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tenant]:
    """A rehearsal at which the server rents, and where waiting takes no time."""
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        for name, value in {**tenant.stage.environment, "HOME": str(tenant.root)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("GPU_TENANT_HOME", str(tenant.home.root))
        # A busy machine needs longer for the same work, and a call ends after some seconds.
        monkeypatch.setattr("gpu_tenant.errands.calls._CALL_S", 400)
        monkeypatch.setattr("gpu_tenant.app._clock", lambda url: NearClock(tenant.stage))
        yield tenant


class Spoken:
    """A client that counts what it says and hears, by characters / 4."""

    def __init__(self, client: Client) -> None:
        self._client, self.calls, self.characters = client, 0, 0

    async def run(self, **arguments: Any) -> dict[str, Any]:
        result = await self._client.call_tool("run", arguments)
        assert not result.is_error, result.content
        answer: dict[str, Any] | None = result.structured_content
        assert answer is not None
        self.calls += 1
        self.characters += len(json.dumps(arguments)) + len(json.dumps(answer))
        return answer


def the_errand(tree: Path, **more: Any) -> dict[str, Any]:
    return {
        "directory": str(tree),
        "command": COMMAND,
        "artifacts": ["out/"],
        "smoke": SMOKE,
        **more,
    }


async def test_an_errand_without_trouble_is_three_calls_and_a_thousand_tokens(
    renting: Tenant, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with Client(make_server()) as client:
        spoken = Spoken(client)
        planned = await spoken.run(**the_errand(a_tree(tmp_path / "tree"), max_usd=50))

        assert planned["outcome"] == "asks"
        assert any("USD/h" in line for line in planned["asks"])
        assert renting.creates() == 0

        told = await spoken.run(id=planned["run"], agree="yes")
        while told["outcome"] == "under way":
            told = await spoken.run(id=planned["run"])

    record_property("calls_and_tokens", (spoken.calls, spoken.characters / 4))
    print(f"{spoken.calls} calls, {spoken.characters / 4:.0f} tokens")
    assert told["outcome"] == "done", told
    assert "verified" in told["words"]
    assert spoken.characters / 4 <= MOST_TOKENS
    renting.assert_nothing_bills()
    assert spoken.calls <= MOST_CALLS


def _arguments(call: str) -> dict[str, Any]:
    """The arguments of a call that an answer names."""
    return eval(f"dict({call})", {})


async def test_a_plan_names_the_call_that_declares_a_file_of_the_smoke_test_and_rents(
    renting: Tenant, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree", "echo odd > notes.txt")
    (tree / "gpu-tenant.toml").write_text("[run]\nunasked_gib = 0\n", encoding="utf-8")
    async with Client(make_server()) as client:
        spoken = Spoken(client)
        told = await spoken.run(**the_errand(tree) | {"smoke": f"{SMOKE}; echo odd > notes.txt"})
        assert "the smoke test also wrote notes.txt" in told["asks"][-1]
        assert renting.creates() == 0

        (answer,) = re.findall(r"`run\(([^`]*discard[^`]*)\)`", told["next"])
        told = await spoken.run(**_arguments(answer))
        while told["outcome"] == "under way":
            told = await spoken.run(id=told["run"])

    assert told["outcome"] == "done", told
    renting.assert_nothing_bills()


async def test_the_log_of_a_failed_smoke_test_is_not_called_a_boxs(
    renting: Tenant, tmp_path: Path
) -> None:
    async with Client(make_server()) as client:
        broken = the_errand(a_tree(tmp_path / "tree")) | {"smoke": "echo broken; exit 3"}
        told = await Spoken(client).run(**broken)

    assert 'source="the smoke test\'s log, from here">\nbroken' in told["log"]


@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_host_that_can_ask_its_user_asks_once_before_anything_is_rented(
    action: Literal["accept", "decline"], renting: Tenant, tmp_path: Path
) -> None:
    asked: list[ElicitRequestParams] = []

    async def answer(_: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action=action, content={} if action == "accept" else None)

    async with Client(make_server(), elicitation_callback=answer) as client:
        spoken = Spoken(client)
        told = await spoken.run(**the_errand(a_tree(tmp_path / "tree")))
        while told["outcome"] == "under way":
            told = await spoken.run(id=told["run"])

    assert len(asked) == 1
    assert "USD/h" in asked[0].message
    assert told["outcome"] == ("done" if action == "accept" else "declined")
    assert renting.creates() == (1 if action == "accept" else 0)
    renting.assert_nothing_bills()


async def test_what_only_a_person_can_answer_comes_at_the_end_and_is_answered_by_its_id(
    renting: Tenant, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree", "echo odd > notes.txt")
    (tree / "gpu-tenant.toml").write_text("[run]\nunasked_gib = 0\n", encoding="utf-8")
    async with Client(make_server()) as client:
        spoken = Spoken(client)
        told = await spoken.run(**the_errand(tree, agree="yes"))
        while told["outcome"] == "under way":
            told = await spoken.run(id=told["run"])

        assert told["outcome"] == "asks"
        assert "notes.txt" in str(told["asks"])
        assert "it bills" in told["words"]

        (answer,) = re.findall(
            r"`run\((id='run-\w+', discard=\['notes.txt'\])\)`", str(told["asks"])
        )
        wanted = await client.call_tool("run", _arguments(answer))
        assert "SIGNATURE_WANTED" in str(wanted.content)
        signs(renting.tenancy, str(wanted.content).split("by the code ")[1].split(":")[0])
        told = await spoken.run(**_arguments(answer))
        while told["outcome"] == "under way":
            told = await spoken.run(id=told["run"])

    assert told["outcome"] == "done", told
    renting.assert_nothing_bills()
