"""No tool passes the owner's limits, or loosens a lease's terms: over the real client, the commands and a terminal."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from e2e.test_rehearse import Rehearsal
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from parts import required
from terminal import at_a_terminal

pytestmark = pytest.mark.timeout(600)


def environment(rehearsal: Rehearsal) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(rehearsal.directory),
        **rehearsal.environment,
    }


def allows(rehearsal: Rehearsal, *lines: str) -> None:
    """The owner has written these limits."""
    configuration = Path(rehearsal.environment["GPU_TENANT_HOME"]) / "config.toml"
    configuration.parent.mkdir(parents=True, exist_ok=True)
    configuration.write_text("\n".join(("[limits]", *lines)) + "\n", encoding="utf-8")


class Agent:
    """Who has the tools, and nothing else."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def does(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await self._client.call_tool(tool, arguments)
        assert not answer.is_error, answer.content
        assert answer.structured_content is not None
        return answer.structured_content

    async def is_told(self, tool: str, **arguments: Any) -> str:
        answer = await self._client.call_tool(tool, arguments)
        assert answer.is_error, answer.content
        return "".join(getattr(part, "text", "") for part in answer.content)

    async def offers(self, **wish: Any) -> list[dict[str, Any]]:
        found = await self.does("find_offers", limit=50, **wish)
        return [offer for offer in found["offers"] if offer["quote"]]


@asynccontextmanager
async def agent_at(rehearsal: Rehearsal) -> AsyncIterator[Agent]:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "gpu_tenant", "serve"], env=environment(rehearsal)
    )
    async with Client(server) as client:
        yield Agent(client)


def running(rehearsal: Rehearsal) -> int:
    return len(rehearsal.ask("meter")["running"])


# What the tools cannot


async def test_no_tool_rents_what_the_limits_leave_no_room_for(rehearsal: Rehearsal) -> None:
    async with agent_at(rehearsal) as agent:
        dear = max(
            await agent.offers(gpu="H100 SXM:8", hours=100), key=lambda o: float(o["running_usd_h"])
        )
        cheap = (await agent.offers())[0]
        reckless = {"smoke": "none", "unguarded": "accept", "when_idle": "alarm", "idle_h": 0}
        told = [
            await agent.is_told(
                "provision", quotes=[dear["quote"]], hours=8000, count=4, **reckless
            ),
            await agent.is_told("provision", quotes=[dear["quote"]], hours=8000, **reckless),
            await agent.is_told("provision", quotes=[cheap["quote"]], hours=8000, **reckless),
            await agent.is_told("provision", quotes=[cheap["quote"]], count=500, **reckless),
        ]

    assert running(rehearsal) == 0
    assert [words.split(":")[0] for words in told] == ["LIMIT"] * 4
    assert "the owner's limit box_usd_h is 15" in told[0]
    assert "the owner's limit hours is 168" in told[2]
    assert "the owner's limit boxes is 16" in told[3]
    assert all("gpu-tenant limits" in words for words in told), told


async def test_a_lease_s_terms_are_loosened_over_a_person_s_signature_alone(
    rehearsal: Rehearsal,
) -> None:
    async with agent_at(rehearsal) as agent:
        quote = (await agent.offers())[0]["quote"]
        card = await agent.does(
            "provision", quotes=[quote], smoke="none", max_price_usd_h="0.3", budget_usd=5, hours=3
        )
        lease = card["lease"]
        looser = [
            {"action": "terms", "budget_usd": 5000},
            {"action": "terms", "max_price_usd_h": 500},
            {"action": "terms", "rescue_usd": 50000},
            {"action": "terms", "idle_h": 0},
            {"action": "terms", "idle_h": 100},
            {"action": "terms", "when_done": "keep"},
            {"action": "terms", "on_failure": "hold"},
            {"action": "extend", "hours": 8700},
            {"action": "extend", "hours": 100},
        ]
        told = [await agent.is_told("change_lease", lease=lease, **change) for change in looser]
        tighter = [
            {"action": "terms", "budget_usd": 4, "max_price_usd_h": "0.29", "rescue_usd": 1},
            {"action": "terms", "idle_h": 1},
            {"action": "extend", "hours": 4},
            {"action": "extend", "hours": 2},
        ]
        for change in tighter:
            card = await agent.does("change_lease", lease=lease, **change)

        assert [words.split(":")[0] for words in told] == ["SIGNATURE_WANTED"] * len(looser)
        assert "its budget goes from 5 to 5000 USD" in told[0]
        assert "goes on billing when its work is done" in told[5]
        assert "beyond the limit hours of 168" in told[7]
        assert "more than its budget of 5 USD" in told[8]
        assert (card["budget_usd"], card["max_price_usd_h"]) == ("4", "0.29")

        # The person signs for one of them, and the same call goes through, once.
        wanted = {"lease": lease, "action": "terms", "budget_usd": 6}
        code = (await agent.is_told("change_lease", **wanted)).split("by the code ")[1][:6]
        with at_a_terminal("sign", code, env=environment(rehearsal)) as terminal:
            terminal.read_until(f"Type {lease}")
            assert "its budget goes from 4 to 6 USD" in terminal.shown
            terminal.type(lease)
            assert terminal.ended() == 0
        other = await agent.is_told("change_lease", lease=lease, action="terms", budget_usd=7)
        changed = await agent.does("change_lease", **wanted)
        lowered = await agent.does("change_lease", lease=lease, action="terms", budget_usd=4)
        again = await agent.is_told("change_lease", **wanted)

    assert other.startswith("SIGNATURE_WANTED")
    assert (changed["budget_usd"], lowered["budget_usd"]) == ("6", "4")
    assert again.startswith("SIGNATURE_WANTED")


async def test_a_dear_box_that_nothing_ends_is_signed_for_and_its_call_goes_on(
    rehearse: Callable[..., Rehearsal],
) -> None:
    required("sshd")
    rehearsal = rehearse("lambda_cloud")
    rehearsal.ask("faults", [{"do": "price_moved", "amount": 2}])
    async with agent_at(rehearsal) as agent:
        offers = [o for o in await agent.offers() if 4.5 < float(o["running_usd_h"]) < 15]
        asked: dict[str, Any] = {"quotes": [offers[0]["quote"]], "smoke": "none", "hours": 2}
        without = await agent.is_told("provision", **asked)
        asked["unguarded"] = "accept"
        told = await agent.is_told("provision", **asked)
        assert running(rehearsal) == 0
        with at_a_terminal(
            "sign", told.split("by the code ")[1][:6], env=environment(rehearsal)
        ) as t:
            t.read_until("Type lambda_cloud")
            assert "whose bill would run on if this computer dies" in t.shown
            t.type("lambda_cloud")
            assert t.ended() == 0
        card = await agent.does("provision", **asked)
        again = await agent.does("provision", **asked)

    assert without.startswith("REFUSED: ")
    assert "provision with `unguarded='accept'`, for which a person signs" in without
    assert told.startswith("SIGNATURE_WANTED: ")
    assert card["lease"] == again["lease"]
    assert running(rehearsal) == 1


async def test_a_cap_above_the_limit_of_one_box_is_that_limit(rehearsal: Rehearsal) -> None:
    allows(rehearsal, "box_usd_h = 2", 'ask = "never"')
    async with agent_at(rehearsal) as agent:
        quotes = [offer["quote"] for offer in await agent.offers(max_price_usd_h=500)]

        card = await agent.does("provision", quotes=quotes[:1], smoke="none", max_price_usd_h=400)

    assert card["max_price_usd_h"] == "2"


async def test_where_a_smoke_test_is_needed_none_is_signed_for(rehearsal: Rehearsal) -> None:
    allows(rehearsal, 'smoke = "needed"')
    async with agent_at(rehearsal) as agent:
        quote = (await agent.offers())[0]["quote"]

        told = await agent.is_told("provision", quotes=[quote], smoke="none")

    assert told.startswith("SIGNATURE_WANTED: ")
    assert "rent at runpod without a smoke test" in told
    assert running(rehearsal) == 0


def test_several_at_once_do_not_pass_a_limit_together(rehearsal: Rehearsal) -> None:
    allows(rehearsal, "boxes = 2")
    offers = json.loads(rehearsal.does("offers", "--json"))["offers"]
    quotes = [offer["quote"] for offer in offers][:5]
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "gpu_tenant", "provision", "--smoke", "none", "--quote", quote],
            env=environment(rehearsal),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for quote in quotes
    ]
    told = [process.communicate(timeout=300)[1].decode() for process in begun]

    assert running(rehearsal) == 2, told
    assert sorted(process.returncode for process in begun) == [0, 0, 3, 3, 3]
    assert sum("LIMIT" in words for words in told) == 3


def test_what_ended_today_counts_and_the_refusal_says_what_is_used(rehearsal: Rehearsal) -> None:
    lease, _ = rehearsal.rented()
    rehearsal.ask("clock", {"advance_s": 3600})
    rehearsal.does("teardown", lease)
    allows(rehearsal, "usd_day = 0.2")

    quote = json.loads(rehearsal.does("offers", "--json"))["cheapest"]
    out = rehearsal.does("provision", "--quote", quote, "--smoke", "none", "--json", status=3)

    told = json.loads(out)["error"]
    assert told["code"] == "LIMIT"
    assert "the owner's limit usd_day is 0.2 USD, of which 0." in told["message"]


# What an owner can, where they sit


def test_at_a_terminal_the_same_command_asks_and_goes_on(rehearsal: Rehearsal) -> None:
    lease, _ = rehearsal.rented()
    rehearsal.does("terms", lease, "--budget-usd", "3")

    with at_a_terminal("terms", lease, "--budget-usd", "9", env=environment(rehearsal)) as terminal:
        terminal.read_until(f"Type {lease}")
        assert "its budget goes from 3 to 9 USD" in terminal.shown
        terminal.type(lease)
        assert terminal.ended() == 0
    with at_a_terminal("extend", lease, "--hours", "300", env=environment(rehearsal)) as terminal:
        terminal.read_until(f"Type {lease}")
        terminal.type("no")
        assert terminal.ended() == 3

    assert "budget 9 USD" in rehearsal.does("terms", lease)


def test_at_a_terminal_the_first_that_meets_a_limit_offers_to_set_it(rehearsal: Rehearsal) -> None:
    offers = json.loads(rehearsal.does("offers", "--json"))["offers"]
    words = ["provision", "--quote", offers[0]["quote"], "--smoke", "none", "--hours", "200"]
    rehearsal.does(*words, status=3)

    with at_a_terminal(*words, env=environment(rehearsal)) as terminal:
        terminal.read_until("Set hours to")
        assert "a careful default: nothing is written yet" in terminal.shown
        terminal.type("240")
        assert terminal.ended() == 0

    written = Path(rehearsal.environment["GPU_TENANT_HOME"]) / "config.toml"
    assert "hours = 240" in written.read_text(encoding="utf-8")
    assert running(rehearsal) == 1


def test_limits_are_shown_anywhere_and_set_at_a_terminal_alone(rehearsal: Rehearsal) -> None:
    configuration = Path(rehearsal.environment["GPU_TENANT_HOME"]) / "config.toml"
    allows(rehearsal, "# mine", "boxes = 3 # for now")
    rehearsal.rented()

    shown = {row["name"]: row for row in json.loads(rehearsal.does("limits", "--json"))["limits"]}
    now_true = (shown["smoke"]["used"], shown["unguarded"]["used"])
    assert now_true[0] == "to rent without a smoke test takes no signature"
    assert all(words in rehearsal.does("doctor") for words in now_true)
    rehearsal.does("limits", "--boxes", "9", status=3)
    with at_a_terminal("limits", "--usd-day", "12.5", env=environment(rehearsal)) as terminal:
        terminal.read_until("Type limits to set that")
        assert "usd_day: 300 -> 12.5" in terminal.shown
        terminal.type("limits")
        assert terminal.ended() == 0

    assert (shown["boxes"]["value"], shown["boxes"]["by"]) == ("3", "you")
    assert shown["boxes"]["used"] == "1 of 3 boxes"
    assert (shown["usd_h"]["value"], shown["usd_h"]["by"]) == ("20", "default")
    text = configuration.read_text(encoding="utf-8")
    assert text == "[limits]\n# mine\nboxes = 3 # for now\nusd_day = 12.5\n"
    checkup = json.loads(rehearsal.does("doctor", "--json", status=None))
    (told,) = [x for x in checkup["findings"] if x["subject"] == "limits"]
    assert "1 of 3 boxes" in told["words"]


def test_a_configuration_that_cannot_be_read_is_no_leave_to_rent(rehearsal: Rehearsal) -> None:
    allows(rehearsal, "usd_h = 'a lot'")
    quote = json.loads(rehearsal.does("offers", "--json"))["cheapest"]

    out = rehearsal.does("provision", "--quote", quote, "--smoke", "none", "--json", status=6)

    assert "[limits] usd_h" in json.loads(out)["error"]["message"]
    assert running(rehearsal) == 0
