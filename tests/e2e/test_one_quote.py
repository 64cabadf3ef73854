"""One quote rents one box: whoever asks how often, at once, after a timeout or after a kill."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from crash.mortal import Fate
from crash.rented import Scene
from e2e.renting import Tenant
from e2e.test_rehearse import Rehearsal
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from gpu_tenant.domain.command import in_tools
from gpu_tenant.domain.errors import NoCapacity, QuoteUsed, Refused
from gpu_tenant.domain.fleet_budget import known_again
from gpu_tenant.domain.model import LeaseState

pytestmark = pytest.mark.timeout(600)
OF_A_KIND = pytest.mark.parametrize("tenant", ["digitalocean"], indirect=True)


# Later


@OF_A_KIND
async def test_the_same_call_again_is_answered_with_the_lease_that_it_has(tenant: Tenant) -> None:
    quotes = await tenant.quotes()
    first = await tenant.tenancy.provision(smoke="none", quotes=quotes, wait_s=3600)

    again = await tenant.anew_tenancy().provision(smoke="none", quotes=quotes, wait_s=3600)

    assert again.lease == first.lease
    assert again.alarm is not None
    assert "had already rented this box" in again.alarm
    assert tenant.creates() == 1


@OF_A_KIND
async def test_a_list_of_quotes_does_not_rent_the_second_because_it_has_the_first(
    tenant: Tenant,
) -> None:
    quotes = await tenant.quotes()
    first = await tenant.tenancy.provision(smoke="none", quotes=quotes[:3], wait_s=3600)
    tenant.create_fails("no_capacity")
    second = await tenant.tenancy.provision(smoke="none", quotes=quotes[3:6], wait_s=3600)

    answers = [
        await tenant.tenancy.provision(smoke="none", quotes=quotes[begin:end])
        for begin, end in ((0, 3), (0, 1), (3, 6), (4, 6))
    ]

    leases = [card.lease for card in answers]
    assert leases == [first.lease, first.lease, second.lease, second.lease]
    assert len(tenant.alive) == 2


@OF_A_KIND
async def test_long_after_the_quote_has_expired_its_lease_is_still_the_answer(
    tenant: Tenant,
) -> None:
    (quote, *_) = await tenant.quotes(hours=5)
    first = await tenant.tenancy.provision(smoke="none", quotes=[quote], wait_s=3600)
    await tenant.clock.sleep(3600)

    again = await tenant.tenancy.provision(smoke="none", quotes=[quote])

    assert (again.lease, tenant.creates()) == (first.lease, 1)


@OF_A_KIND
async def test_a_quote_whose_lease_has_ended_may_be_tried_again_within_its_time(
    tenant: Tenant,
) -> None:
    (quote, *_) = await tenant.quotes()
    tenant.create_fails("no_capacity")
    with pytest.raises(NoCapacity) as refused:
        await tenant.tenancy.provision(smoke="none", quotes=[quote])

    known = tenant.tenancy.ledger.quote(quote)
    assert known is not None
    assert f"provision(quotes=['{known.wish_id}'], wait_h=6" in in_tools(refused.value.remedy)
    had = await tenant.tenancy.provision(smoke="none", quotes=[quote], wait_s=3600)
    await tenant.tenancy.verify_and_teardown(had.lease)
    anew = await tenant.tenancy.provision(smoke="none", quotes=[quote], wait_s=3600)
    await tenant.tenancy.verify_and_teardown(anew.lease)
    await tenant.clock.sleep(3600)

    assert anew.lease != had.lease
    with pytest.raises(Refused, match="was good until"):
        await tenant.tenancy.provision(smoke="none", quotes=[quote])


@OF_A_KIND
async def test_what_a_fleet_has_rented_by_a_quote_nobody_else_rents_by_it(tenant: Tenant) -> None:
    quote, other, *_ = await tenant.quotes()
    card = await tenant.tenancy.provision(smoke="none", quotes=[quote], count=2, wait_s=3600)

    with pytest.raises(QuoteUsed, match=f"{quote} has already rented digitalocean-") as told:
        await tenant.tenancy.provision(smoke="none", quotes=[quote])
    single = await tenant.tenancy.provision(smoke="none", quotes=[quote, other], wait_s=3600)

    assert "`gpu-tenant offers` makes a new quote" in told.value.remedy
    assert tenant.lease(single).quote is not None
    assert single.lease != card.lease
    assert len(tenant.alive) == 3


# At once


def test_two_commands_at_once_by_one_quote_rent_one_box(rehearsal: Rehearsal) -> None:
    for _ in range(3):
        (quote, *_) = _quotes(rehearsal)
        cards = _at_once(rehearsal, [[quote], [quote]])

        assert len({card["lease"] for card in cards}) == 1, cards
        assert len(rehearsal.ask("meter")["running"]) == 1
        rehearsal.does("teardown", cards[0]["lease"])


def test_commands_at_once_by_lists_that_overlap_rent_one_box_though_the_first_is_sold_out(
    rehearsal: Rehearsal,
) -> None:
    for _ in range(2):
        quotes = _quotes(rehearsal)[:3]
        rehearsal.ask("faults", [{"do": "no_capacity", "times": 1}])
        cards = _at_once(rehearsal, [quotes, quotes, quotes[::-1]])

        assert len({card["lease"] for card in cards}) == 1, cards
        assert len(rehearsal.ask("meter")["running"]) == 1
        rehearsal.does("teardown", cards[0]["lease"])


async def test_two_calls_at_once_over_mcp_rent_one_box_in_one_server_and_in_two(
    rehearsal: Rehearsal,
) -> None:
    (quote, *_) = await asyncio.to_thread(_quotes, rehearsal)
    home = str(rehearsal.directory)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gpu_tenant", "serve"],
        env={"PATH": os.environ["PATH"], "HOME": home, **rehearsal.environment},
    )
    async with Client(server) as one, Client(server) as two:
        asked = {"quotes": [quote], "smoke": "none"}
        answers = await asyncio.gather(*(c.call_tool("provision", asked) for c in (one, one, two)))

    assert [answer.is_error for answer in answers] == [False] * 3, [a.content for a in answers]
    leases = {answer.structured_content["lease"] for answer in answers if answer.structured_content}
    assert len(leases) == 1
    assert len(rehearsal.ask("meter")["running"]) == 1


def _quotes(rehearsal: Rehearsal) -> list[str]:
    offers = json.loads(rehearsal.does("offers", "--json"))["offers"]
    return [offer["quote"] for offer in offers if offer["quote"]]


def _at_once(rehearsal: Rehearsal, asked: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """What as many `gpu-tenant provision`, started together, have answered."""
    home = str(rehearsal.directory)
    begun = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "gpu_tenant",
                "provision",
                "--smoke",
                "none",
                "--json",
                *(word for quote in quotes for word in ("--quote", quote)),
            ],
            env={"PATH": os.environ["PATH"], "HOME": home, **rehearsal.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for quotes in asked
    ]
    told = [process.communicate(timeout=300) for process in begun]
    assert [process.returncode for process in begun] == [0] * len(begun), told
    return [json.loads(out) for out, _ in told]


# After a kill


def test_a_call_that_was_killed_anywhere_is_gone_on_with_by_the_same_call(tmp_path: Path) -> None:
    scene = Scene("runpod", tmp_path / "scene")
    try:
        told = tmp_path / "told"
        assert _lived(scene, "whole", None, told) == 0
        moments = told.read_text(encoding="utf-8").splitlines()
        create = next(int(line.split()[0]) for line in moments if line.endswith("before create"))
        for moment in range(create - 3, min(create + 6, len(moments))):
            scene.ask("reset", {})
            case = f"dies-{moment}"
            assert _lived(scene, case, moment, tmp_path / case) != 0
            assert _lived(scene, case, None, tmp_path / f"{case}-on") == 0, (
                tmp_path / f"{case}-error"
            ).read_text(encoding="utf-8")

            tenancy = scene.tenancy(case, Fate(None, tmp_path / "last"))
            states = [lease.state for lease in tenancy.ledger.leases()]
            tenancy.ledger.close()
            assert states.count(LeaseState.ACTIVE) == 1, (moments[moment], states)
            assert len(scene.ask("meter")["running"]) == 1
    finally:
        scene.close()


def _lived(scene: Scene, case: str, dies_at: int | None, told: Path) -> int:
    """How a process ended that asked for one box, always by the same quotes."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:

        async def once() -> None:
            looking = scene.tenancy(case, Fate(None, told.with_suffix(".looks")))
            known = told.parent / f"{case}.quotes"
            if not known.exists():
                found = await looking.find_offers()
                known.write_text(
                    json.dumps([o.quote for o in found.offers if o.quote]), encoding="utf-8"
                )
            await looking.aclose()
            tenancy = scene.tenancy(case, Fate(dies_at, told))
            await tenancy.provision(
                smoke="none", quotes=json.loads(known.read_text(encoding="utf-8")), wait_s=3600
            )
            await tenancy.aclose()

        asyncio.run(once())
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        (told.parent / f"{case}-error").write_text(repr(error), encoding="utf-8")
        os._exit(1)
    os._exit(0)


# A fleet's request


@OF_A_KIND
async def test_a_fleet_s_request_is_known_by_its_numbers_however_they_are_written(
    tenant: Tenant,
) -> None:
    quotes = (await tenant.quotes(hours=2))[:2]
    said = [
        {"budget_usd": Decimal(100), "hours": 5.0, "max_price_usd_h": Decimal(10)},
        {"max_price_usd_h": Decimal("1E+1"), "hours": 5, "budget_usd": Decimal("100.00")},
        {"budget_usd": Decimal("1.0E2"), "max_price_usd_h": Decimal("10.0"), "hours": 5},
    ]

    had = [
        await tenant.tenancy.provision(
            smoke="none", quotes=named, count=2, wait_s=3600, unguarded="accept", **terms
        )
        for terms in said
        for named in (quotes, quotes[::-1])
    ]

    assert {card.fleet for card in had} == {"fl-1"}
    assert len(tenant.alive) == tenant.creates() == 2


def test_a_request_that_an_earlier_version_wrote_is_known_again() -> None:
    before = '{"count": 2, "quotes": ["q-b", "q-a"], "terms": {"budget_usd": "1.0", "hours": 5.0}}'
    now = '{"terms": {"hours": 5, "budget_usd": "1"}, "quotes": ["q-a", "q-b"], "count": 2}'

    assert known_again(before) == known_again(now)
    assert known_again(before) != known_again(now.replace('"count": 2', '"count": 3'))
