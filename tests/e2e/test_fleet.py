"""Several boxes by one request: one cap, one budget, nothing doubled, and what was had stands."""

import asyncio
import os
from decimal import Decimal
from pathlib import Path

import pytest
from contract.test_providers import CREATE, LIST
from crash.mortal import Fate
from crash.rented import Scene
from e2e.renting import Tenant, tenant_at

from gpu_tenant.domain.errors import BadRequest, LeaseHeld, NoCapacity, QuoteUsed, Refused
from gpu_tenant.domain.fleet_budget import Fleet
from gpu_tenant.domain.model import LeaseId, LeaseState
from gpu_tenant.leases.cards import Card

AT = pytest.mark.parametrize
OF_A_KIND = AT("tenant", ["digitalocean"], indirect=True)
"""Whose offers are a kind of box, had as often as there is room."""
OF_MACHINES = AT("tenant", ["vastai"], indirect=True)


async def fleet(
    tenant: Tenant,
    quotes: list[str],
    count: int,
    *,
    wait_s: float = 0,
    at_least: int = 1,
    **sums: Decimal,
) -> tuple[Card, Fleet]:
    await tenant.key_is_known()
    card = await tenant.tenancy.provision(
        smoke="none",
        quotes=quotes,
        count=count,
        at_least=at_least,
        wait_s=wait_s,
        unguarded="accept",
        **sums,
    )
    assert card.together is not None
    return card, card.together


def price(tenant: Tenant, quote: str) -> Decimal:
    filed = tenant.tenancy.ledger.quote(quote)
    assert filed is not None
    usd_h = filed.offer.price.running_usd_h
    assert usd_h is not None
    return usd_h


@OF_A_KIND
async def test_a_fleet_stands_inside_one_cap_and_one_budget(tenant: Tenant) -> None:
    quotes = (await tenant.quotes(hours=2))[:1]
    cap, budget = price(tenant, quotes[0]) * 3 + Decimal("0.0002"), Decimal("100.0001")

    card, whole = await fleet(tenant, quotes, 3, max_price_usd_h=cap, budget_usd=budget)

    leases = [tenant.lease(name) for name in whole.leases]
    assert (whole.asked, whole.had, whole.missing) == (3, 3, ())
    assert len(tenant.alive) == 3
    assert {lease.fleet for lease in leases} == {whole.fleet} == {card.fleet} == {"fl-1"}
    assert sum(x.terms.max_price_usd_h or cap for x in leases) <= cap
    budgets = [x.terms.budget_usd or budget for x in leases]
    assert sum(budgets) <= budget
    assert min(budgets) > Decimal(33), "even parts"
    shown = (await tenant.tenancy.list_leases()).leases
    assert {row.fleet for row in shown} == {"fl-1"}


@OF_A_KIND
async def test_a_cap_for_all_of_them_stops_where_it_is_reached(tenant: Tenant) -> None:
    quotes = (await tenant.quotes())[:1]
    one = price(tenant, quotes[0])

    _, whole = await fleet(tenant, quotes, 4, max_price_usd_h=one * Decimal("2.5"))

    assert (whole.had, len(tenant.alive)) == (2, 2)
    assert "the cap leaves" in whole.missing[0]
    assert "provision --count 2" in whole.next
    assert whole.usd_h == one * 2


@OF_A_KIND
async def test_a_cap_below_the_price_rents_nothing_for_one_box_either(tenant: Tenant) -> None:
    quotes = (await tenant.quotes())[:1]

    for count in (1, 2):
        with pytest.raises(Refused, match="the cap leaves"):
            await tenant.tenancy.provision(
                smoke="none",
                quotes=quotes,
                count=count,
                max_price_usd_h=Decimal("0.01"),
                unguarded="accept",
            )

    assert tenant.creates() == 0


@OF_MACHINES
async def test_one_machine_is_had_once_and_fewer_boxes_stand(tenant: Tenant) -> None:
    quotes = await tenant.quotes()
    machines = len(quotes)

    _, whole = await fleet(tenant, quotes[:1], machines + 1)

    assert (whole.had, len(tenant.alive), tenant.creates()) == (machines, machines, machines)
    assert [words.split(": ")[1] for words in whole.missing] == [
        "it is a single machine, and was rented"
    ] * machines
    assert {tenant.lease(x).quote.id for x in whole.leases} == set(quotes)  # type: ignore[union-attr]


@OF_MACHINES
async def test_one_quote_of_a_single_machine_rents_others_that_its_search_has_shown(
    tenant: Tenant,
) -> None:
    quotes = await tenant.quotes()

    _, whole = await fleet(tenant, quotes[:1], 2, at_least=0)
    _, again = await fleet(tenant, quotes[:1], 2, at_least=0)

    assert (whole.had, whole.missing, len(tenant.alive)) == (2, (), 2)
    assert {tenant.lease(x).quote.id for x in whole.leases} == set(quotes[:2])  # type: ignore[union-attr]
    assert again == whole


@OF_MACHINES
async def test_what_no_search_has_shown_is_told_before_anything_is_rented(tenant: Tenant) -> None:
    quotes = await tenant.quotes()

    with pytest.raises(Refused, match="nothing was rented") as refused:
        await fleet(tenant, quotes, len(quotes) + 1, at_least=0)

    assert f"`--at-least {len(quotes)}`" in refused.value.remedy
    assert tenant.creates() == 0


@OF_A_KIND
async def test_a_fleet_that_cannot_be_had_as_a_whole_is_given_back(tenant: Tenant) -> None:
    quotes = (await tenant.quotes())[:1]
    method, path = CREATE[tenant.slug]
    tenant.create_fails(
        "no_capacity", times=9, match={"method": method, "path_regex": path, "nth": 3}
    )

    with pytest.raises(NoCapacity, match="2 of 3 boxes could be rented") as refused:
        await fleet(tenant, quotes, 3, at_least=0)

    assert "`--at-least 2`" in refused.value.remedy
    assert tenant.alive == []
    assert {x.state for x in tenant.tenancy.ledger.leases()} <= {LeaseState.GONE, LeaseState.VOID}


@OF_A_KIND
async def test_the_same_request_again_rents_nothing_more_and_another_does(tenant: Tenant) -> None:
    quotes = (await tenant.quotes())[:1]
    _, first = await fleet(tenant, quotes, 2)

    _, again = await fleet(tenant, quotes, 2)
    with pytest.raises(QuoteUsed, match="has already rented digitalocean-"):
        await fleet(tenant, quotes, 3)
    _, more = await fleet(tenant, (await tenant.quotes())[:1], 3)

    assert again == first
    assert (more.had, more.fleet) == (3, "fl-3")
    assert tenant.creates() == 5


@OF_A_KIND
async def test_no_other_is_rented_while_the_fate_of_one_is_unknown(tenant: Tenant) -> None:
    quotes = (await tenant.quotes())[:1]
    method, path = CREATE[tenant.slug]
    tenant.create_fails("drop_after", match={"method": method, "path_regex": path, "nth": 2})
    method, path = LIST[tenant.slug]
    tenant.list_fails(match={"method": method, "path_regex": path, "nth": 3})

    _, cut = await fleet(tenant, quotes, 3)
    with pytest.raises(LeaseHeld, match="it is not known yet whether it was made"):
        tenant.tenancy.ledger.intend(
            lease_id=LeaseId("digitalocean-zzzz"),
            provider=tenant.slug,
            address=None,
            price_usd_h=None,
            terms=tenant.lease(cut.leases[0]).terms,
            at=tenant.clock.now(),
            fleet=cut.fleet,
        )
    after_the_first = tenant.creates()
    tenant.all_is_well()
    _, whole = await fleet(tenant, quotes, 3)

    assert after_the_first == 2
    assert "may exist" in cut.missing[0]
    assert (whole.had, whole.missing, len(tenant.alive)) == (3, (), 3)


@AT("tenant", ["lambda_cloud"], indirect=True)
async def test_a_box_that_never_gets_ready_is_given_back_and_another_had(tenant: Tenant) -> None:
    quotes = (await tenant.quotes())[:2]
    tenant.fault("never_ready")

    _, whole = await fleet(tenant, quotes, 2, wait_s=3600)

    states = [x.state for x in tenant.tenancy.ledger.leases()]
    assert (whole.had, whole.not_ready, len(tenant.alive)) == (2, (), 2)
    assert states.count(LeaseState.GONE) == 1


@OF_A_KIND
async def test_where_none_is_had_the_reason_is_raised(tenant: Tenant) -> None:
    quotes = (await tenant.quotes())[:1]
    tenant.create_fails("no_capacity", times=100)

    with pytest.raises(NoCapacity, match=quotes[0]):
        await fleet(tenant, quotes, 2)

    assert all(x.state is LeaseState.VOID for x in tenant.tenancy.ledger.leases())


async def test_an_existing_machine_is_not_had_several_times(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        with pytest.raises(BadRequest, match="one at a time"):
            await tenant.tenancy.provision("own", "me@there", count=2)


def test_a_kill_between_two_boxes_neither_doubles_nor_loses_one(tmp_path: Path) -> None:
    scene = Scene("digitalocean", tmp_path / "scene")
    try:
        told = tmp_path / "told"
        assert _lived(scene, "whole", None, told) == 0
        moments = told.read_text(encoding="utf-8").splitlines()
        second = [line for line in moments if line.endswith("create")][2:4]
        dies = [int(line.split()[0]) for line in second]
        for moment in [*dies, dies[1] + 2]:
            scene.ask("reset", {})
            case = f"dies-{moment}"
            assert _lived(scene, case, moment, tmp_path / case) != 0
            assert _lived(scene, case, None, tmp_path / f"{case}-on") == 0

            meter = scene.ask("meter")
            tenancy = scene.tenancy(case, Fate(None, tmp_path / "last"))
            leases = [x for x in tenancy.ledger.leases() if x.state.live]
            tenancy.ledger.close()
            assert len(meter["running"]) == len(leases) == 3, (moments[moment], meter)
            assert {lease.fleet for lease in leases} == {"fl-1"}
    finally:
        scene.close()


def _lived(scene: Scene, case: str, dies_at: int | None, told: Path) -> int:
    """How a process ended that asked for three boxes, always by the same words."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:

        async def once() -> None:
            looking = scene.tenancy(case, Fate(None, told.with_suffix(".looks")))
            known = told.parent / f"{case}.quote"
            if not known.exists():
                found = await looking.find_offers()
                known.write_text(found.cheapest or "", encoding="utf-8")
            await looking.aclose()
            tenancy = scene.tenancy(case, Fate(dies_at, told))
            await tenancy.provision(
                smoke="none",
                quotes=[known.read_text(encoding="utf-8")],
                count=3,
                wait_s=3600,
                unguarded="accept",
            )
            await tenancy.aclose()

        asyncio.run(once())
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        (told.parent / f"{case}-error").write_text(repr(error), encoding="utf-8")
        os._exit(1)
    os._exit(0)
