"""Renting at every provider, while prices move, offers go, requests are lost and others rent, too."""

import asyncio
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from contract.staged import PROFILES, RENTED
from contract.test_providers import LIST
from e2e.people import NewBox, Person
from e2e.renting import MOVING, NearClock, Tenant, at_two, tenant_at
from mcp import Client
from mcp.types import CallToolResult
from signed import with_signature
from waited import over

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.address import ssh_of
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTaken,
    NoCapacity,
    NoFunds,
    NoQuota,
    PriceMoved,
    ProviderSilent,
    RateLimited,
    Refused,
    TenantError,
    UnknownLease,
    Unverified,
)
from gpu_tenant.domain.model import LeaseState, SshAddress
from gpu_tenant.emulators.server import Stage
from gpu_tenant.faces.mcp.server import make_server
from gpu_tenant.leases.adopt import adopt
from gpu_tenant.leases.lifecycle import reconcile_all

WHERE_PRICES_MOVE = pytest.mark.parametrize("tenant", MOVING, indirect=True)
NO_LIMITS = """[limits]
unguarded = "allowed"
boxes = 100
usd_h = 10000
usd_day = 100000
usd_month = 1000000
box_usd_h = 1000
"""
PARKING = [slug for slug in RENTED if PROFILES[slug].park != "none"]


# Prices that move


@WHERE_PRICES_MOVE
async def test_a_price_raised_after_the_search_rents_nothing(tenant: Tenant) -> None:
    quotes = await tenant.quotes()
    tenant.fault("price_moved", amount=1.5)

    with pytest.raises(PriceMoved, match="nothing was rented"):
        await tenant.tenancy.provision(smoke="none", quotes=quotes[:1])

    tenant.assert_nothing_bills()
    assert tenant.meter["billed_usd"] == "0.000000"
    assert tenant.creates() == 0


@WHERE_PRICES_MOVE
async def test_a_box_that_costs_more_than_its_cap_is_given_back_at_once(tenant: Tenant) -> None:
    quotes = await tenant.quotes()
    tenant.create_fails("price_moved", amount=1.5)

    with pytest.raises(PriceMoved, match="above the cap") as told:
        await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)

    tenant.assert_nothing_bills()
    (lease,) = tenant.tenancy.ledger.leases()
    receipt = tenant.tenancy.ledger.receipt(lease.id)
    assert receipt is not None
    assert (lease.state, receipt.ground) == (LeaseState.GONE, "never_used")
    assert f"given back unused, for {receipt.cost_usd} USD" in told.value.message
    tenant.assert_agrees(receipt)


@WHERE_PRICES_MOVE
async def test_a_price_raised_during_the_rental_is_shown_alarmed_and_counted(
    tenant: Tenant,
) -> None:
    card = await tenant.rented(hours=12)
    before = card.price_usd_h
    assert before is not None
    tenant.wait(4 * 3600)

    tenant.fault("price_moved", box=card.box, amount=1.5)
    told = await tenant.tenancy.list_leases()
    tenant.wait(4 * 3600)
    ended = await tenant.tenancy.verify_and_teardown(card.lease)

    after = told.leases[0].price_usd_h
    assert after is not None
    assert after > before
    assert any(f"costs {after} USD/h, above the cap" in alarm for alarm in told.alarms)
    cost, metered = ended.receipt.cost_usd, tenant.metered(card.box)
    assert cost is not None
    print(f"{tenant.slug}: {before} then {after} USD/h; {cost} USD, by the meter {metered}")
    assert abs(cost - metered) / metered < Decimal("0.02")
    assert cost > before * 8, "both rates are counted"


# One after the other, and never two


@at_two(1)
async def test_the_next_quote_is_taken_where_the_first_is_gone(tenant: Tenant) -> None:
    quotes = await tenant.quotes()
    tenant.create_fails("no_capacity")

    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:2], wait_s=3600)

    assert tenant.alive == [card.box]
    assert card.phase == "ready"
    lease = tenant.lease(card)
    assert lease.quote is not None
    assert lease.quote.id == quotes[1]
    assert [x.state for x in tenant.tenancy.ledger.leases()].count(LeaseState.VOID) == 1


@pytest.mark.parametrize("tenant", ["lambda_cloud", "vastai"], indirect=True)
async def test_a_box_that_never_gets_ready_is_given_back_before_the_next_is_rented(
    tenant: Tenant,
) -> None:
    quotes = await tenant.quotes()
    tenant.fault("never_ready")

    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:2], wait_s=3600)

    assert tenant.alive == [card.box]
    first = next(x for x in tenant.tenancy.ledger.leases() if x.id != card.lease)
    receipt = tenant.tenancy.ledger.receipt(first.id)
    assert receipt is not None
    tenant.assert_agrees(receipt)
    second = tenant.lease(card)
    assert second.created_at >= receipt.second_absent_at, "never two at a time"


@pytest.mark.parametrize("tenant", ["vastai"], indirect=True)
async def test_the_host_of_a_box_that_never_got_ready_is_left_out_of_the_next_search(
    tenant: Tenant,
) -> None:
    quotes = await tenant.quotes()
    tenant.fault("never_ready")
    await tenant.tenancy.provision(smoke="none", quotes=quotes[:2], wait_s=3600)
    failed = tenant.tenancy.ledger.quote(quotes[0])
    assert failed is not None

    found = await tenant.anew_tenancy().find_offers(provider=tenant.slug)
    host = f"vastai:{failed.offer.host}"
    asked_for = await tenant.tenancy.search_offers(provider=tenant.slug, host=host)

    (reason,) = (why for why in found.unfit if why.startswith("host"))
    assert reason.startswith(f"host {host}: never ready on ")
    assert asked_for.offers
    assert all("never ready on" in " ".join(each.notes) for each in asked_for.offers)


@at_two(2)
async def test_nothing_else_is_rented_while_the_first_may_exist(tenant: Tenant) -> None:
    quotes = await tenant.quotes()
    tenant.create_fails("drop_after")
    tenant.list_fails(
        match={"method": LIST[tenant.slug][0], "path_regex": LIST[tenant.slug][1], "nth": 2}
    )

    with pytest.raises(ProviderSilent) as told:
        await tenant.tenancy.provision(smoke="none", quotes=quotes[:2], wait_s=3600)

    assert "a box may exist under" in told.value.remedy
    assert len(tenant.alive) == 1, "it was made, and nobody saw it"
    tenant.all_is_well()
    (card,) = (await tenant.tenancy.list_leases()).leases
    assert (card.state, card.box) == (LeaseState.ACTIVE, tenant.alive[0])
    assert tenant.creates() == 1


# What is refused


async def _expired(tenant: Tenant, quote: str) -> dict[str, Any]:
    tenant.wait(601)
    return {"quotes": [quote]}


async def _too_long(tenant: Tenant, quote: str) -> dict[str, Any]:
    filed = tenant.tenancy.ledger.quote(quote)
    assert filed is not None
    short = filed.offer.model_copy(update={"max_hours": 0.5})
    other = filed.model_copy(update={"id": "q-short", "offer": short})
    tenant.tenancy.ledger.file_quotes([other], at=tenant.tenancy.clock.now())
    return {"quotes": ["q-short"]}


async def _too_poor(tenant: Tenant, quote: str) -> dict[str, Any]:
    return {"quotes": [quote], "budget_usd": Decimal("0.01")}


async def _unknown(tenant: Tenant, quote: str) -> dict[str, Any]:
    return {"quotes": ["q-none", quote]}


async def _untested(tenant: Tenant, quote: str) -> dict[str, Any]:
    return {"quotes": [quote], "smoke": None}


REFUSED: dict[str, tuple[Callable[..., Any], type[TenantError], str, str]] = {
    "an expired quote": (_expired, Refused, "was good until", "`gpu-tenant offers`"),
    "more hours than it is offered for": (_too_long, Refused, "0.5 hours", "`gpu-tenant offers`"),
    "a budget too small": (_too_poor, Refused, "budget is 0.01 USD", "`gpu-tenant offers`"),
    "an unknown quote": (_unknown, BadRequest, "q-none", "`gpu-tenant offers`"),
    "no smoke test": (_untested, Refused, "no smoke test", "`gpu-tenant smoke"),
}


@at_two(3)
async def test_what_cannot_be_is_refused_with_the_next_command(tenant: Tenant) -> None:
    for arrange, error, words, next_command in REFUSED.values():
        quotes = await tenant.quotes()
        wanted = await arrange(tenant, quotes[0])

        with pytest.raises(error) as told:
            await tenant.tenancy.provision(**{"smoke": "none", **wanted})

        assert words in told.value.message
        assert next_command in told.value.remedy
    assert tenant.creates() == 0
    assert tenant.meter["billed_usd"] == "0.000000"


# Many at once


@at_two(3)
async def test_twenty_at_once_through_a_narrow_door_are_had_or_told(tenant: Tenant) -> None:
    tenant.home.configuration.write_text(NO_LIMITS, encoding="utf-8")
    quotes = await tenant.quotes(limit=50)
    while len(quotes) < 20:  # one quote rents one box
        quotes += await tenant.quotes(limit=50)
    tenant.create_fails("status", status=429, times=6, headers={"Retry-After": "2"}, body="slow")

    told = await asyncio.gather(
        *(
            tenant.tenancy.provision(smoke="none", quotes=[quotes[n]], wait_s=0, unguarded="accept")
            for n in range(20)
        ),
        return_exceptions=True,
    )

    had = [card for card in told if not isinstance(card, BaseException)]
    why = Counter(type(error).__name__ for error in told if isinstance(error, BaseException))
    active = [x for x in tenant.tenancy.ledger.leases() if x.state is LeaseState.ACTIVE]
    print(f"{tenant.slug}: {len(had)} of 20 had, {dict(why)}")
    assert {type(e) for e in told if isinstance(e, BaseException)} <= {
        NoCapacity,
        NoFunds,
        NoQuota,
        RateLimited,
    }
    assert sorted(tenant.alive) == sorted(str(x.box_id) for x in active)
    assert {card.lease for card in had} == {x.id for x in active}
    assert not [x for x in tenant.tenancy.ledger.leases() if x.state is LeaseState.INTENDED]
    for lease in active:
        assert lease.quote is not None
        assert lease.price_usd_h is not None
        assert lease.price_usd_h <= lease.quote.cap_usd_h


# Over MCP


@pytest.mark.parametrize("tenant", ["gcp", "vastai"], indirect=True)
async def test_over_mcp_a_box_may_boot_on_and_audit_waits_for_it(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**tenant.stage.environment, "HOME": str(tenant.root)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("gpu_tenant.app._clock", lambda url: NearClock(tenant.stage))

    async with Client(make_server()) as client:
        found = await _call(client, "find_offers", provider=tenant.slug)
        quotes = [offer["quote"] for offer in found["offers"]]
        card = await _call(client, "provision", quotes=quotes[:3], smoke="none", wait_s=10)
        # Google's boxes boot while the answer to their insert is waited for.
        assert card["phase"] == ("ready" if tenant.slug == "gcp" else "booting")
        answers: list[CallToolResult] = []
        while not answers or answers[-1].is_error:
            assert len(answers) < 8
            answers.append(await client.call_tool("audit", {"lease": card["lease"]}))
        ended = await _call(client, "verify_and_teardown", lease=card["lease"])

    for waited in answers[:-1]:
        assert "STILL_BOOTS" in str(waited.content)
    assert answers[-1].structured_content is not None
    assert ended["receipt"]["ground"] == "never_used"
    tenant.assert_nothing_bills()


async def _call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    answer: dict[str, Any] | None = result.structured_content
    assert answer is not None
    return answer


# What is not ours


@at_two(4)
async def test_somebody_else_s_box_is_shown_and_left_alone(tenant: Tenant) -> None:
    tenant.fault("foreign_box")
    (theirs,) = tenant.alive

    told = await tenant.tenancy.list_leases()
    with pytest.raises(UnknownLease):
        await tenant.tenancy.verify_and_teardown(theirs)

    assert told.leases == ()
    assert [foreign.box for foreign in told.foreign] == [theirs]
    assert tenant.alive == [theirs]


@at_two(5)
async def test_another_deployment_s_box_is_named_left_alone_and_adopted_as_used(
    tenant: Tenant,
) -> None:
    intent = (await tenant.intent("zzzz")).model_copy(
        update={"mark": f"gpu-tenant:ffffff:{tenant.slug}-zzzz"}
    )
    theirs = (await tenant.connector.create(intent)).id
    await tenant.ready(intent)
    tenant.home_of(theirs).joinpath("results.csv").write_text("1,2\n", encoding="utf-8")

    told = await tenant.tenancy.list_leases()
    assert told.leases == ()
    assert [foreign.box for foreign in told.foreign] == [theirs]
    way_out = f"`gpu-tenant adopt {theirs} --on {tenant.slug} --take-over ffffff`"
    assert any(way_out in alarm for alarm in told.alarms)
    with pytest.raises(BoxTaken, match="ffffff"):
        await tenant.tenancy.provision(tenant.slug, target=theirs)
    assert tenant.alive == [theirs]

    card = await adopt(tenant.tenancy.context, tenant.slug, theirs, over="ffffff")
    assert (card.box, card.state) == (theirs, LeaseState.ACTIVE)
    assert tenant.lease(card).touched_at is not None
    with pytest.raises(Unverified, match=r"would be lost: .*results\.csv"):
        await tenant.tenancy.verify_and_teardown(card.lease)
    assert tenant.alive == [theirs]

    await tenant.tenancy.collect(card.lease, artifacts=["~/results.csv"])
    assert (await tenant.tenancy.verify_and_teardown(card.lease)).receipt.kept_files == 1
    tenant.assert_nothing_bills()


async def test_a_box_made_in_the_console_is_found_by_the_ssh_command_shown_there(
    tmp_path: Path,
) -> None:
    with Stage("vastai", tmp_path / "stage", way="local", time="frozen") as stage:
        first, second = Tenant(stage, tmp_path / "first"), Tenant(stage, tmp_path / "second")
        theirs = await first.rented()
        address = first.lease(theirs).address
        assert isinstance(address, SshAddress)
        told = ssh_of(address.target)
        assert told is not None
        command = f"ssh -p {told.port} {told.user}@{told.host} -L 8080:localhost:8080"

        with pytest.raises(BadRequest, match=f"lists no box .*{theirs.box} at "):
            await adopt(
                second.tenancy.context, "vastai", f"ssh -p {(told.port or 22) + 1} root@{told.host}"
            )
        with pytest.raises(BoxTaken, match=str(theirs.box)):
            await adopt(second.tenancy.context, "vastai", command)
        deployment = first.tenancy.context.ledger.deployment
        card = await adopt(second.tenancy.context, "vastai", command, over=deployment)

        assert card.box == theirs.box
        assert second.lease(card).touched_at is not None
        for tenancy in (*first.opened, *second.opened):
            await tenancy.aclose()


@at_two(6)
async def test_of_two_boxes_under_one_mark_one_reconcile_leaves_one(tenant: Tenant) -> None:
    quotes = await tenant.quotes()
    tenant.create_fails("twice")
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    made = tenant.alive

    shown = await tenant.tenancy.list_leases()
    assert tenant.alive == made, "whoever only looks destroys nothing"
    told = await reconcile_all(tenant.tenancy.context)

    assert tenant.alive == [card.box]
    assert [c.lease for c in told.leases if c.state.live] == [card.lease]
    assert len(shown.alarms) == len(made) - 1
    # Google's insert carries an id of its own, so that it has no twin to begin with.
    assert len(made) == (1 if tenant.slug == "gcp" else 2)
    assert sum("given back" in alarm for alarm in told.alarms) == len(made) - 1
    for lease in tenant.tenancy.ledger.leases():
        receipt = tenant.tenancy.ledger.receipt(lease.id)
        if receipt is not None:
            # Counted since it was seen, not since it was made: nobody knew of it until then.
            assert (receipt.box_id, receipt.ground) == (made[0], "never_used")


@at_two(6)
async def test_the_second_box_of_a_request_does_not_outlive_the_first(tenant: Tenant) -> None:
    quotes = await tenant.quotes()
    tenant.create_fails("twice")
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    assert len(tenant.alive) == (1 if tenant.slug == "gcp" else 2)

    ended = await tenant.tenancy.verify_and_teardown(card.lease)

    assert ended.twin is None, "nobody used it, so it was given back"
    assert tenant.alive == []
    assert tenant.billing_usd_h == 0


# Parking


@pytest.mark.parametrize("tenant", PARKING, indirect=True)
async def test_a_parked_box_costs_what_its_meter_bills_and_runs_again(tenant: Tenant) -> None:
    card = await tenant.rented(hours=24)
    tenant.wait(3600)

    parked = await tenant.tenancy.change_lease(card.lease, "park")
    rate = tenant.billing_usd_h
    tenant.wait(10 * 3600)
    resumed = await tenant.tenancy.change_lease(card.lease, "resume")
    while resumed.phase != "ready":
        tenant.wait(60)
        await tenant.tenancy.audit(card.lease)
        (resumed,) = (await tenant.tenancy.list_leases()).leases
    tenant.wait(3600)
    ended = await tenant.tenancy.verify_and_teardown(card.lease)

    assert parked.phase == "parked"
    assert parked.price_usd_h is not None
    assert parked.price_usd_h > 0 or tenant.slug == "autodl", "a kept disk is not free, but there"
    assert abs(parked.price_usd_h - rate) < Decimal("0.0001")
    assert resumed.price_usd_h == card.price_usd_h
    cost, metered = ended.receipt.cost_usd, tenant.metered(card.box)
    assert cost is not None
    print(f"{tenant.slug}: parked at {rate} USD/h; {cost} USD, by the meter {metered}")
    assert abs(cost - metered) / metered < Decimal("0.05")


@pytest.mark.parametrize("tenant", sorted(set(RENTED) - set(PARKING)), indirect=True)
async def test_where_a_stop_saves_nothing_parking_is_refused(tenant: Tenant) -> None:
    card = await tenant.rented()

    with pytest.raises(Refused, match="has no stop that saves money") as told:
        await tenant.tenancy.change_lease(card.lease, "park")

    assert f"`gpu-tenant teardown {card.lease}`" in told.value.remedy
    assert tenant.lease(card).parked_at is None
    assert tenant.meter["parked"] == []


async def test_a_stop_that_wipes_is_refused_for_a_box_whose_work_is_in_its_home(
    tmp_path: Path,
) -> None:
    async with tenant_at("runpod", tmp_path, time="runs") as tenant:
        context = tenant.tenancy.context
        at_home = PROFILES["runpod"].model_copy(update={"work_places": ()})
        context.shipped = {**context.profiles, "runpod": at_home}
        card = await tenant.rented()
        tree = tenant.root / "tree"
        tree.mkdir()
        (tree / "README").write_text("work", encoding="utf-8")
        await tenant.tenancy.push(card.lease, str(tree))
        work = "mkdir out; echo '[1]' > out/a.json"
        await tenant.tenancy.launch_detached(card.lease, work, ["out/"])
        assert (await over(tenant.tenancy, card.lease, wait_s=0)).state == "finished"

        with pytest.raises(Refused, match="empties the box's own disk") as told:
            await tenant.tenancy.change_lease(card.lease, "park")
        assert f"`gpu-tenant collect {card.lease}`" in told.value.remedy
        assert tenant.meter["parked"] == []

        await tenant.tenancy.collect(card.lease)
        ended = await tenant.tenancy.verify_and_teardown(card.lease)
        assert ended.receipt.ground == "verified"


async def test_a_parked_box_is_named_as_parked_by_every_verb_and_ends_after_a_resume(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await tenant.rented()
        tree = tenant.root / "tree"
        tree.mkdir()
        (tree / "README").write_text("work", encoding="utf-8")
        await tenant.tenancy.push(card.lease, str(tree))
        await tenant.tenancy.launch_detached(
            card.lease, "mkdir out; echo '[1]' > out/a.json", ["out/"]
        )
        assert (await over(tenant.tenancy, card.lease, wait_s=0)).state == "finished"
        await tenant.tenancy.change_lease(card.lease, "park")

        for verb in (
            tenant.tenancy.collect,
            tenant.tenancy.monitor,
            tenant.tenancy.verify_and_teardown,
        ):
            with pytest.raises(Refused) as told:
                await verb(card.lease)
            assert f"`gpu-tenant resume {card.lease}`" in told.value.remedy
        with pytest.raises(Refused, match="nothing to stop") as told:
            await tenant.tenancy.stop_job(card.lease)
        assert "resume" not in told.value.remedy
        shorter = await tenant.tenancy.change_lease(card.lease, "extend", hours=0.5)
        assert "it is earlier now" in (shorter.alarm or "")
        with pytest.raises(Refused, match="parked already"):
            await tenant.tenancy.change_lease(card.lease, "park")

        await tenant.tenancy.change_lease(card.lease, "resume")
        await tenant.tenancy.collect(card.lease)
        ended = await tenant.tenancy.verify_and_teardown(card.lease)
        assert ended.receipt.ground == "verified"


async def test_a_used_box_that_never_lets_us_in_again_keeps_until_a_person_signs(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await tenant.rented()
        tree = tenant.root / "tree"
        tree.mkdir()
        (tree / "README").write_text("work", encoding="utf-8")
        await tenant.tenancy.push(card.lease, str(tree))
        await tenant.tenancy.change_lease(card.lease, "park")

        with pytest.raises(Unverified, match="it is parked"):
            await tenant.tenancy.verify_and_teardown(card.lease)
        assert tenant.meter["parked"], "refused, so it is still there"
        tenancy = tenant.tenancy
        ended = await with_signature(tenancy, lambda: tenancy.waive(card.lease))

        assert ended.receipt.ground == "waived"
        assert tenant.meter["parked"] == []


# The owner's own


@pytest.mark.parametrize("tenant", ["runpod"], indirect=True)
async def test_an_own_machine_is_offered_beside_the_rented_ones_and_had_by_its_quote(
    tenant: Tenant, person: Person, new_box: NewBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_tenant.app._clock", lambda url: NearClock(tenant.stage))
    box = new_box("attic")
    person.state.mkdir(exist_ok=True)
    (person.state / "config.toml").write_text(
        f'[[own]]\naddress = "{box.target}"\ngpus = "RTX 4090"\nrate_usd_h = 0.02\n',
        encoding="utf-8",
    )
    tenant.stage.begin_at(person.state)
    environment = {**tenant.stage.environment, "GPU_TENANT_HOME": str(person.state)}
    tenancy = open_tenancy(environment)
    try:
        found = await tenancy.find_offers("RTX 4090")
        own = next(offer for offer in found.offers if offer.provider == "own")
        assert {offer.provider for offer in found.offers} == {"own", "runpod"}
        assert own.quote == found.cheapest
        assert own.quote is not None

        card = await tenancy.provision(smoke="none", quotes=[own.quote])
        assert (card.provider, card.address, card.phase) == ("own", box.target, "ready")
        assert card.price_usd_h == Decimal("0.02")
        assert box.logins > 0
        assert "own" not in {o.provider for o in (await tenancy.find_offers("RTX 4090")).offers}
        ended = await tenancy.verify_and_teardown(card.lease)
    finally:
        await tenancy.aclose()

    assert ended.receipt.left_behind is not None
    assert "handed back" in ended.receipt.left_behind
    assert tenant.creates() == 0
