"""A wish that waits: whoever is alive goes on with it, and it rents one box, under its cap, or none."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from e2e.rehearsal import Rehearsal
from e2e.renting import Tenant
from mcp import Client
from parts import required

from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.errors import BadRequest, NoCapacity, Refused
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.standing_wish import LOOK_S
from gpu_tenant.faces.mcp.server import make_server
from gpu_tenant.leases.wait import look_for
from gpu_tenant.watchdog.loop import Watchdog

pytestmark = pytest.mark.timeout(600)
AT_VAST = pytest.mark.parametrize("tenant", ["vastai"], indirect=True)
GPU = "RTX 4090"


async def wished(tenant: Tenant, **wish: Any) -> str:
    """The wish for which nothing is offered now, because every price has doubled."""
    tenant.stage.world.state.price_factor = Decimal(2)
    found = await tenant.tenancy.find_offers(
        **{"gpu": GPU, "provider": tenant.slug, "max_price_usd_h": Decimal("0.45"), **wish}
    )
    assert not found.offers, found
    assert found.wish is not None
    assert f"--quote {found.wish} --wait" in found.next
    return found.wish


async def waits(tenant: Tenant, wish: str, **terms: Any) -> Any:
    return await tenant.anew_tenancy().provision(
        **{"quotes": [wish], "smoke": "none", "wait_h": 6, "wait_s": 0, **terms}
    )


async def watched(tenant: Tenant, minutes: int = 1) -> list[str]:
    """Another process, which only knows the ledger, has looked once a minute. What it told."""
    told: list[str] = []
    dog = Watchdog(tenant.anew_tenancy(), tell=told.append)
    for _ in range(minutes):
        await tenant.clock.sleep(60)
        await dog.once()
    return told


def cheap_again(tenant: Tenant) -> None:
    tenant.stage.world.state.price_factor = Decimal(1)


# It is had


@AT_VAST
async def test_a_watchdog_that_knows_only_the_ledger_rents_when_the_price_comes_under_the_cap(
    tenant: Tenant,
) -> None:
    wish = await wished(tenant)
    card = await waits(tenant, wish)
    assert (card.lease, card.phase, card.cost_usd) == (wish, "waiting", 0)
    (line,) = (await tenant.tenancy.list_leases()).waiting
    assert "RTX 4090 at vastai at up to 0.45 USD/h until" in line
    assert f"`gpu-tenant call-off {wish}` ends it" in line
    await watched(tenant, 3)
    assert tenant.creates() == 0

    cheap_again(tenant)
    told = await watched(tenant, 4)

    (lease,) = tenant.tenancy.ledger.leases()
    assert lease.ready_at is not None
    assert lease.price_usd_h is not None
    assert lease.price_usd_h <= Decimal("0.45")
    assert tenant.tenancy.ledger.wish(wish).outcome == "had"
    assert any(
        f"{wish}: a box was rented for this wish: {lease.id} at vastai" in line for line in told
    )
    (news,) = [a for a in tenant.tenancy.ledger.open_alarms() if a.key == f"wish {wish}"]
    assert news.level is Level.NOTICE
    assert f"{wish}, the wish for {GPU} at vastai" in news.words
    assert f"has its box: {lease.id} at vastai for" in news.words
    assert (await tenant.tenancy.list_leases()).waiting == ()
    again = await waits(tenant, wish)
    assert (again.lease, tenant.creates()) == (lease.id, 1)
    await watched(tenant, 7)
    assert not [a for a in tenant.tenancy.ledger.open_alarms() if a.key == f"wish {wish}"]

    await tenant.tenancy.verify_and_teardown(lease.id)

    over = f"{wish}: a box was rented for this wish: {lease.id} at vastai for .*; the lease of that box has ended"
    with pytest.raises(Refused, match=over):
        await waits(tenant, wish)


@AT_VAST
async def test_the_call_itself_stays_until_it_is_had(tenant: Tenant) -> None:
    wish = await wished(tenant)
    staying = asyncio.create_task(waits(tenant, wish, wait_s=3600))
    while tenant.stage.world.state.price_factor == 2:
        await asyncio.sleep(0.01)
        if tenant.tenancy.ledger.wish(wish).looked_at is not None:
            cheap_again(tenant)

    card = await staying

    assert card.phase == "ready"
    assert tenant.tenancy.ledger.wish(wish).outcome == "had"


@AT_VAST
async def test_quotes_that_are_gone_are_waited_for_under_their_own_price(tenant: Tenant) -> None:
    quotes = await tenant.quotes(gpu=GPU)
    price = max(quote.cap_usd_h for quote in map(tenant.tenancy.ledger.quote, quotes[:2]) if quote)
    tenant.stage.world.state.price_factor = Decimal("1.5")
    card = await waits(tenant, quotes[0], quotes=quotes[:2])
    assert (card.phase, card.max_price_usd_h) == ("waiting", price)
    assert tenant.creates() == 0
    await tenant.clock.sleep(LOOK_S)

    cheap_again(tenant)
    card = await waits(tenant, quotes[0], quotes=quotes[:2], wait_s=3600)

    assert card.phase == "ready"
    assert tenant.lease(card).price_usd_h is not None
    assert tenant.metered(card.box) >= 0
    assert len(tenant.alive) == 1


@AT_VAST
async def test_a_box_that_is_sold_at_the_last_moment_or_never_boots_is_not_the_end_of_it(
    tenant: Tenant,
) -> None:
    wish = await wished(tenant, trust="any")
    await waits(tenant, wish)
    tenant.create_fails("no_capacity", times=20)
    cheap_again(tenant)
    await watched(tenant, 3)
    assert tenant.alive == []
    assert tenant.tenancy.ledger.wish(wish).stands
    tenant.all_is_well()
    tenant.create_fails("never_ready")

    await watched(tenant, 25)

    assert tenant.tenancy.ledger.wish(wish).outcome == "had"
    assert len(tenant.alive) == 1
    states = [lease.state for lease in tenant.tenancy.ledger.leases()]
    assert LeaseState.GONE in states, "the one that never booted was given back"


# It is not had


@AT_VAST
async def test_a_price_just_above_the_cap_is_never_rented_and_the_wish_is_given_up_with_a_notice(
    tenant: Tenant,
) -> None:
    found = await tenant.tenancy.find_offers(gpu=GPU, provider="vastai")
    lowest = min(offer.running_usd_h for offer in found.offers if offer.running_usd_h)
    wish = await wished(tenant, max_price_usd_h=lowest - Decimal("0.0001"))
    await waits(tenant, wish, wait_h=0.5)
    cheap_again(tenant)

    await watched(tenant, 32)

    assert tenant.creates() == 0
    assert tenant.tenancy.ledger.wish(wish).outcome == "given up"
    (news,) = [a for a in tenant.tenancy.ledger.open_alarms() if a.key == f"wish {wish}"]
    assert "no box was found in time for " in news.words
    assert "above the cap" in news.words
    with pytest.raises(NoCapacity, match="was given up, and nothing was rented"):
        await waits(tenant, wish)
    cheap_again(tenant)
    await watched(tenant, 3)
    assert tenant.creates() == 0


@AT_VAST
async def test_what_would_cost_more_than_the_budget_is_not_rented(tenant: Tenant) -> None:
    wish = await wished(tenant, hours=10)
    card = await waits(tenant, wish, budget_usd=Decimal("1.5"), wait_h=24)
    cheap_again(tenant)

    assert f"provision --quote {wish} --wait 24" in card.next

    await watched(tenant, 3)

    assert tenant.creates() == 0
    assert "the budget is 1.5 USD" in tenant.tenancy.ledger.wish(wish).seen


@AT_VAST
async def test_a_wish_without_a_cap_does_not_wait(tenant: Tenant) -> None:
    tenant.stage.world.state.price_factor = Decimal(2)
    found = await tenant.tenancy.find_offers(gpu=GPU, provider="vastai")

    with pytest.raises(BadRequest, match="has no price cap"):
        await waits(tenant, str(found.wish))
    with pytest.raises(Refused, match="no smoke test was named"):
        await waits(tenant, str(found.wish), max_price_usd_h=Decimal("0.4"), smoke=None)


# It is called off


@AT_VAST
async def test_what_was_called_off_rents_nothing_and_one_that_has_its_box_says_so(
    tenant: Tenant,
) -> None:
    wish = await wished(tenant)
    await waits(tenant, wish)

    card = await tenant.tenancy.change_lease(wish, "call_off")
    cheap_again(tenant)
    await watched(tenant, 3)

    assert card.phase == "called off"
    assert tenant.creates() == 0
    with pytest.raises(Refused, match="was called off"):
        await waits(tenant, wish)
    with pytest.raises(BadRequest, match="nobody waits for"):
        await tenant.tenancy.change_lease(await wished(tenant, hours=2), "call_off")

    second = await wished(tenant)
    assert second != wish
    await waits(tenant, second)
    cheap_again(tenant)
    await tenant.clock.sleep(LOOK_S)
    await look_for(tenant.tenancy.context, second, wait_s=0)
    (live,) = tenant.tenancy.ledger.leases("live")
    card = await tenant.tenancy.change_lease(second, "call_off")
    assert f"the box that was rented for this wish bills, under {live.id}" in card.next


# One box


@AT_VAST
async def test_several_who_wait_at_once_have_one_box_together(tenant: Tenant) -> None:
    wish = await wished(tenant)
    await waits(tenant, wish)
    cheap_again(tenant)
    await tenant.clock.sleep(LOOK_S)
    dogs = [Watchdog(tenant.anew_tenancy(), tell=lambda _: None).once() for _ in range(2)]

    cards = await asyncio.gather(
        waits(tenant, wish, wait_s=3600), waits(tenant, wish, wait_s=3600), *dogs
    )

    assert len({card.lease for card in cards[:2]}) == 1
    assert tenant.creates() == 1
    assert len(tenant.alive) == 1


@AT_VAST
async def test_a_quote_of_a_search_that_somebody_waits_for_rents_no_second_box(
    tenant: Tenant,
) -> None:
    quotes = await tenant.quotes(gpu=GPU)
    tenant.stage.world.state.price_factor = Decimal(2)
    card = await waits(tenant, quotes[0])
    cheap_again(tenant)

    with pytest.raises(Refused, match="waits for this already") as told:
        await tenant.tenancy.provision(quotes=quotes[:1], smoke="none")

    assert f"call-off {card.lease}" in told.value.remedy


@AT_VAST
async def test_other_terms_need_another_wish(tenant: Tenant) -> None:
    wish = await wished(tenant)
    first = await waits(tenant, wish)

    with pytest.raises(BadRequest, match="on other terms"):
        await waits(tenant, wish, budget_usd=Decimal(3))

    assert (await waits(tenant, wish)).deadline_in_s == first.deadline_in_s


# Politely


@AT_VAST
async def test_however_many_look_the_market_is_asked_once_a_minute(tenant: Tenant) -> None:
    wish = await wished(tenant)
    before = _searches(tenant)
    await waits(tenant, wish)
    each = _searches(tenant) - before
    assert each >= 1
    dogs = [Watchdog(tenant.anew_tenancy(), tell=lambda _: None) for _ in range(3)]
    begun = tenant.clock.now()

    for _ in range(30):
        await tenant.clock.sleep(20)
        for dog in dogs:
            await dog.once()

    # Waiting for its turn at the provider takes time on the clock, too.
    minutes = (tenant.clock.now() - begun).total_seconds() / 60
    assert minutes >= 10
    assert 5 * each <= _searches(tenant) - before <= (minutes + 1) * each


@AT_VAST
async def test_a_provider_that_fails_is_left_alone_for_longer_and_longer(tenant: Tenant) -> None:
    wish = await wished(tenant)
    tenant.fault("status", "", r"bundles|offers", status=500, times=10_000)
    await waits(tenant, wish)

    await watched(tenant, 30)

    assert 2 <= tenant.tenancy.ledger.wish(wish).rests["vastai"].failed <= 5
    tenant.all_is_well()
    cheap_again(tenant)
    await watched(tenant, 20)
    assert tenant.tenancy.ledger.wish(wish).outcome == "had"


def _searches(tenant: Tenant) -> int:
    return sum("bundles" in line["path"] for line in tenant.ask("requests"))


# At a terminal, and as a tool


def test_ctrl_c_and_kill_9_leave_it_standing_and_the_next_process_has_one_box(
    rehearse: Callable[..., Rehearsal],
) -> None:
    required("sshd")
    stage = rehearse("vastai")
    stage.ask("faults", [{"do": "price_moved", "amount": 2}])
    found = json.loads(
        stage.does("offers", "--gpu", GPU, "--max-price-usd-h", "0.45", "--json", status=None)
    )
    wish = found["wish"]
    for how in (signal.SIGINT, signal.SIGKILL):
        process = _waiting(stage, wish)
        assert process.stderr is not None
        assert "rehearsal" in process.stderr.readline()
        first = process.stderr.readline()
        assert "after Ctrl-C, the wish stays open" in first, first + process.stderr.read()
        process.send_signal(how)
        _, err = process.communicate(timeout=60)
        if how is signal.SIGINT:
            assert process.returncode == 130
            assert "this command stops here, but the wish stays open" in err
            assert f"gpu-tenant call-off {wish}" in err
            assert "Traceback" not in err
    assert json.loads(stage.does("leases", "--json"))["waiting"]

    stage.ask("faults", [{"do": "price_moved", "amount": 0.5}])
    both = [_waiting(stage, wish) for _ in range(2)]
    told = [json.loads(process.communicate(timeout=240)[0]) for process in both]

    assert len({card["lease"] for card in told}) == 1
    assert len(stage.ask("meter")["running"]) == 1
    stage.does("teardown", told[0]["lease"])


def _waiting(stage: Rehearsal, wish: str) -> "subprocess.Popen[str]":
    words = ["provision", "--quote", wish, "--wait", "6h", "--smoke", "none", "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "gpu_tenant", *words],
        env={"PATH": os.environ["PATH"], "HOME": str(stage.directory), **stage.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


@AT_VAST
async def test_a_server_goes_on_with_it_while_it_runs_although_nothing_bills(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = await wished(tenant)
    environ = {**tenant.stage.environment, "GPU_TENANT_HOME": str(tenant.home.root)}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    async with Client(make_server(watch_every_s=0.5)) as client:
        asked = {"quotes": [wish], "smoke": "none", "wait_h": 6, "wait_s": 0}
        answer = (await client.call_tool("provision", asked)).structured_content
        assert answer is not None
        assert (answer["phase"], answer["watched"]) == ("waiting", "by this server, while it runs")
        assert f"change_lease(lease='{wish}', action='call_off')" in answer["next"]
        cheap_again(tenant)
        for _ in range(600):
            await tenant.clock.sleep(30)
            if not tenant.tenancy.ledger.wish(wish).stands:
                break
            await asyncio.sleep(0.2)

    assert tenant.tenancy.ledger.wish(wish).outcome == "had"
    assert tenant.creates() == 1
