"""What a person said is what counts: a no stays a no, and an agent's own word rents for small sums alone."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
from e2e.renting import NearClock, Tenant, tenant_at
from errands import COMMAND, a_tree
from mcp import Client
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult
from signed import signs

from gpu_tenant.faces.mcp.server import make_server

Action = Literal["accept", "decline", "cancel"]


@pytest.fixture
async def renting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tenant]:
    """A rehearsal at which the server rents, and where waiting takes no time."""
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        for name, value in {**tenant.stage.environment, "HOME": str(tenant.root)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("GPU_TENANT_HOME", str(tenant.home.root))
        monkeypatch.setattr("gpu_tenant.errands.calls._CALL_S", 400)
        monkeypatch.setattr("gpu_tenant.app._clock", lambda url: NearClock(tenant.stage))
        yield tenant


class Person:
    """Somebody whom the host asks, and who answers in this order; the last answer stays."""

    def __init__(self, *answers: Action) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, _: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        action = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return ElicitResult(action=action, content={} if action == "accept" else None)

    def client(self) -> Client:
        return Client(make_server(), elicitation_callback=self)


def rule(tenant: Tenant, ask: str) -> None:
    """The owner writes when a person is asked."""
    tenant.home.root.mkdir(parents=True, exist_ok=True)
    tenant.home.configuration.write_text(f'[limits]\nask = "{ask}"\n', encoding="utf-8")


async def told(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    answer: dict[str, Any] | None = result.structured_content
    assert answer is not None
    return answer


def words(result: CallToolResult) -> str:
    assert result.is_error, result.structured_content
    return "".join(getattr(part, "text", "") for part in result.content)


async def a_quote(client: Client, **wish: Any) -> str:
    found = await told(client, "find_offers", provider="vastai", **wish)
    return str(next(offer["quote"] for offer in found["offers"] if offer["quote"]))


def errand_in(tree: Path, **more: Any) -> dict[str, Any]:
    smoke = f"SMOKE=1 {COMMAND}"
    return {
        "directory": str(tree),
        "command": COMMAND,
        "artifacts": ["out/"],
        "smoke": smoke,
        **more,
    }


def signed_by_a_person(tenant: Tenant, refusal: str) -> None:
    code = refusal.split("by the code ")[1].split(":")[0]
    signs(tenant.tenancy, code)


# A run


async def test_a_run_that_a_person_declined_rents_nothing_whoever_asks_again(
    renting: Tenant, tmp_path: Path
) -> None:
    person, tree = Person("decline"), a_tree(tmp_path / "tree")
    async with person.client() as client:
        answer = await told(client, "run", **errand_in(tree))
        again = await told(client, "run", id=answer["run"], agree="yes")
    async with Client(make_server()) as alone:
        elsewhere = await told(alone, "run", id=answer["run"], agree="yes")
        anew = words(await alone.call_tool("run", errand_in(tree, agree="yes")))

    assert answer["outcome"] == again["outcome"] == elsewhere["outcome"] == "declined"
    assert "declined" in answer["words"]
    assert "agree" not in answer["next"]
    assert "ask the person" in answer["next"]
    assert "SIGNATURE_WANTED" in anew
    assert len(person.asked) == 1
    assert renting.creates() == 0


async def test_after_a_no_a_new_run_is_shown_and_rents_with_a_yes(
    renting: Tenant, tmp_path: Path
) -> None:
    person, tree = Person("decline", "accept"), a_tree(tmp_path / "tree")
    async with person.client() as client:
        first = await told(client, "run", **errand_in(tree))
        second = await told(client, "run", **errand_in(tree))
        while second["outcome"] == "under way":
            second = await told(client, "run", id=second["run"])

    assert first["run"] != second["run"]
    assert second["outcome"] == "done", second
    assert len(person.asked) == 2
    renting.assert_nothing_bills()


async def test_a_closed_question_is_no_yes_and_a_signature_agrees_in_its_place(
    renting: Tenant, tmp_path: Path
) -> None:
    person, tree = Person("cancel"), a_tree(tmp_path / "tree")
    async with person.client() as client:
        refusal = words(await client.call_tool("run", errand_in(tree)))
        assert "SIGNATURE_WANTED" in refusal
        assert "USD/h" in person.asked[0]
        assert renting.creates() == 0

        signed_by_a_person(renting, refusal)
        answer = await told(client, "run", **errand_in(tree))
        while answer["outcome"] == "under way":
            answer = await told(client, "run", id=answer["run"])

    assert answer["outcome"] == "done", answer
    assert len(person.asked) == 1


async def test_the_agent_s_word_does_not_take_the_place_of_the_question(
    renting: Tenant, tmp_path: Path
) -> None:
    person = Person("decline")
    async with person.client() as client:
        answer = await told(client, "run", **errand_in(a_tree(tmp_path / "tree"), agree="yes"))

    assert answer["outcome"] == "declined"
    assert renting.creates() == 0


# A provision


async def test_provision_asks_as_run_does_and_a_no_ends_its_quotes(renting: Tenant) -> None:
    person = Person("decline", "accept")
    async with person.client() as client:
        quote = await a_quote(client)
        refusals = [
            words(await client.call_tool("provision", {"quotes": [quote], "smoke": "none"}))
            for _ in range(2)
        ]
        assert renting.creates() == 0
        assert len(person.asked) == 1, "what was declined is not asked for again"

        card = await told(client, "provision", quotes=[await a_quote(client)], smoke="none")
        await told(client, "verify_and_teardown", lease=card["lease"])

    for refusal in refusals:
        assert "a person declined this plan" in refusal
        assert "only a new plan that they are shown can rent" in refusal
    assert "Rent this?" in person.asked[0]
    assert "USD/h" in person.asked[0]
    assert len(person.asked) == 2
    renting.assert_nothing_bills()


async def test_a_quote_that_rented_is_not_asked_about_again(renting: Tenant) -> None:
    person = Person("accept")
    async with person.client() as client:
        quote = await a_quote(client)
        cards = [await told(client, "provision", quotes=[quote], smoke="none") for _ in range(2)]
        await told(client, "verify_and_teardown", lease=cards[0]["lease"])

    assert cards[0]["lease"] == cards[1]["lease"]
    assert len(person.asked) == 1


async def test_a_yes_to_an_hour_is_none_to_a_week(renting: Tenant) -> None:
    person = Person("accept", "decline")
    async with person.client() as client:
        quote = await a_quote(client)
        renting.create_fails("no_capacity")
        await client.call_tool("provision", {"quotes": [quote], "smoke": "none", "hours": 2})
        asked = {"quotes": [quote], "smoke": "none", "hours": 150}
        refusal = words(await client.call_tool("provision", asked))

    assert "a person declined" in refusal
    assert len(person.asked) == 2


async def test_a_later_deadline_is_asked_about_and_stays_as_it_was_after_a_no(
    renting: Tenant,
) -> None:
    person = Person("accept", "decline")
    async with person.client() as client:
        card = await told(client, "provision", quotes=[await a_quote(client)], smoke="none")
        before = renting.lease(card["lease"]).terms.deadline_at
        longer = {"lease": card["lease"], "action": "extend", "hours": 30}
        refusal = words(await client.call_tool("change_lease", longer))

        assert renting.lease(card["lease"]).terms.deadline_at == before
        await told(client, "verify_and_teardown", lease=card["lease"])

    assert "a person declined" in refusal
    assert f"move the deadline of {card['lease']}" in person.asked[1]


# Where the host cannot ask


async def test_where_nobody_can_be_asked_small_sums_need_nobody(renting: Tenant) -> None:
    async with Client(make_server()) as client:
        card = await told(client, "provision", quotes=[await a_quote(client)], smoke="none")
        await told(client, "verify_and_teardown", lease=card["lease"])

    renting.assert_nothing_bills()


async def test_where_nobody_can_be_asked_a_large_sum_is_signed_for_once(renting: Tenant) -> None:
    async with Client(make_server()) as client:
        asked = {"quotes": [await a_quote(client)], "smoke": "none", "hours": 150}
        refusal = words(await client.call_tool("provision", asked))
        assert "SIGNATURE_WANTED" in refusal
        assert renting.creates() == 0

        signed_by_a_person(renting, refusal)
        card = await told(client, "provision", **asked)
        await told(client, "verify_and_teardown", lease=card["lease"])

        other = {**asked, "quotes": [await a_quote(client)]}
        assert "SIGNATURE_WANTED" in words(await client.call_tool("provision", other))


async def test_many_small_sums_are_one_large_sum(renting: Tenant) -> None:
    leases, refusal = list[str](), ""
    async with Client(make_server()) as client:
        found = await told(client, "find_offers", provider="vastai", limit=50)
        quotes = [offer["quote"] for offer in found["offers"] if offer["quote"]]
        for quote in quotes:
            made = await client.call_tool(
                "provision", {"quotes": [quote], "smoke": "none", "hours": 12, "wait_s": 0}
            )
            if made.is_error and "SIGNATURE_WANTED" in words(made):
                refusal = words(made)
                break
            if not made.is_error:
                assert made.structured_content is not None
                leases.append(made.structured_content["lease"])

    assert leases
    assert "SIGNATURE_WANTED" in refusal


async def test_an_extension_beyond_the_sum_is_signed_for(renting: Tenant) -> None:
    async with Client(make_server()) as client:
        card = await told(
            client, "provision", quotes=[await a_quote(client, gpu="RTX 4090")], smoke="none"
        )
        longer = {"lease": card["lease"], "action": "extend", "hours": 150}
        refusal = words(await client.call_tool("change_lease", longer))
        assert "SIGNATURE_WANTED" in refusal
        await told(client, "verify_and_teardown", lease=card["lease"])


async def test_a_wish_that_waits_promises_money_too(renting: Tenant) -> None:
    async with Client(make_server()) as client:
        quote = await a_quote(client)
        asked = {"quotes": [quote], "smoke": "none", "wait_h": 1, "hours": 150}
        refusal = words(await client.call_tool("provision", asked))

    assert "SIGNATURE_WANTED" in refusal
    assert renting.tenancy.ledger.standing_wishes() == []


# The owner's rule


@pytest.mark.parametrize("ask", ["always", "above 0.01 USD"])
async def test_the_owner_s_rule_holds_where_nobody_can_be_asked(
    ask: str, renting: Tenant, tmp_path: Path
) -> None:
    rule(renting, ask)
    async with Client(make_server()) as client:
        asked = {"quotes": [await a_quote(client)], "smoke": "none"}
        by_quote = words(await client.call_tool("provision", asked))
        by_run = words(
            await client.call_tool("run", errand_in(a_tree(tmp_path / "tree"), agree="yes"))
        )

    assert "SIGNATURE_WANTED" in by_quote
    assert "SIGNATURE_WANTED" in by_run
    assert renting.creates() == 0


@pytest.mark.parametrize("ask", ["never", "above 500 USD"])
async def test_where_the_owner_wants_no_question_none_is_asked(ask: str, renting: Tenant) -> None:
    rule(renting, ask)
    person = Person("decline")
    async with person.client() as client:
        card = await told(client, "provision", quotes=[await a_quote(client)], smoke="none")
        await told(client, "verify_and_teardown", lease=card["lease"])

    assert person.asked == []


async def test_a_rule_that_is_none_rents_nothing(renting: Tenant) -> None:
    rule(renting, "sometimes")
    async with Client(make_server()) as client:
        asked = {"quotes": [await a_quote(client)], "smoke": "none"}
        refusal = words(await client.call_tool("provision", asked))

    assert "[limits] ask" in refusal
    assert renting.creates() == 0


# A box that this program did not rent


def a_stranger_s(tenant: Tenant) -> str:
    """The id of somebody else's box in the account."""
    before = set(tenant.stage.world.state.things)
    tenant.fault("foreign_box")
    (box,) = set(tenant.stage.world.state.things) - before
    return box


async def test_a_box_that_is_not_ours_is_shown_as_its_provider_shows_it_and_its_bill_is_told(
    renting: Tenant,
) -> None:
    box = a_stranger_s(renting)
    async with Client(make_server()) as client:
        leases = await told(client, "list_leases")

    (row,) = leases["foreign"]
    assert row["box"] == box
    assert row["name"] == "somebody-elses-run"
    assert "RTX" in row["gpus"] or "x " in row["gpus"]
    assert row["created_at"]
    assert "ask the person" in row["next"]
    assert f"target='{box}'" in row["next"]
    assert float(leases["burning_usd_h"]) == 0
    assert float(leases["foreign_usd_h"]) == float(row["price_usd_h"]) > 0


async def test_a_stranger_s_box_is_adopted_over_a_signature_where_nobody_can_be_asked(
    renting: Tenant,
) -> None:
    box = a_stranger_s(renting)
    async with Client(make_server()) as client:
        asked = {"provider": "vastai", "target": box, "wait_s": 0}
        refusal = words(await client.call_tool("provision", asked))
        assert "SIGNATURE_WANTED" in refusal
        assert "somebody-elses-run" in refusal
        assert renting.tenancy.ledger.leases("live") == []

        signed_by_a_person(renting, refusal)
        card = await told(client, "provision", **asked)

    terms = renting.lease(card["lease"]).terms
    assert (terms.idle_h, terms.when_done) == (None, "keep")


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
async def test_a_stranger_s_box_is_adopted_by_a_yes_alone(action: Action, renting: Tenant) -> None:
    rule(renting, "never")
    box, person = a_stranger_s(renting), Person(action)
    async with person.client() as client:
        asked = {"provider": "vastai", "target": box, "wait_s": 0}
        answer = await client.call_tool("provision", asked)

    (question,) = person.asked
    assert "Take this box over?" in question
    assert "somebody-elses-run" in question
    assert "at its deadline, in 24.0 h" in question
    assert answer.is_error == (action != "accept")
    assert len(renting.tenancy.ledger.leases("live")) == (1 if action == "accept" else 0)
