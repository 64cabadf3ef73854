"""The end of a rental at every provider: refused, delayed, or not ours; and what is left to bill."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest
from contract.staged import RENTED
from e2e.leased import command
from e2e.renting import EVERYTHING, FOREVER, NearClock, Tenant, at_two

from gpu_tenant.domain.errors import CredentialRefused, ProviderSilent, ProviderTrouble, RateLimited
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.emulators.server import Stage
from gpu_tenant.emulators.world import Thing

# A destroy that fails


@dataclass(frozen=True)
class Failure:
    """How a destroy fails, and what is told of it."""

    do: str
    error: type[ProviderTrouble]
    more: dict[str, object] = field(default_factory=dict)


_DAY = {"Retry-After": "86400"}
FAILURES = {
    "a failure inside a 200": Failure("soft_failure", ProviderTrouble),
    "a bad key": Failure("status", CredentialRefused, {"status": 401, "body": {"error": "key"}}),
    "a second factor": Failure("two_factor", CredentialRefused),
    "404 for a bad key": Failure("auth_404", CredentialRefused),
    "too many calls": Failure("status", RateLimited, {"status": 429, "headers": _DAY}),
    "500": Failure("status", ProviderSilent, {"status": 500}),
    "502 in HTML": Failure("status", ProviderSilent, {"status": 502, "body": "<html>Bad</html>"}),
}
OWN = {
    "soft_failure": ["gcp", "lambda_cloud", "vastai"],
    "two_factor": ["vastai"],
    "auth_404": ["vastai"],
}
"""Where the faults that are not of every provider's are."""
FAILING = [
    pytest.param(slug, failure, id=f"{slug}-{failure}")
    for failure, how in FAILURES.items()
    for slug in OWN.get(how.do, RENTED)
    # One that a client of the provider's own reads, and one that ours does.
    if failure != "502 in HTML" or slug in ("gcp", "vastai")
]


@pytest.mark.parametrize(("tenant", "failure"), FAILING, indirect=["tenant"])
async def test_a_destroy_that_failed_is_told_and_the_same_call_ends_it_later(
    tenant: Tenant, failure: str
) -> None:
    card = await tenant.rented()
    how = FAILURES[failure]
    tenant.destroy_fails(how.do, **how.more)

    with pytest.raises(how.error) as told:
        await tenant.tenancy.verify_and_teardown(card.lease)

    assert type(told.value) is how.error or how.error is ProviderTrouble
    await _still_standing(tenant, card.lease, told.value)
    tenant.all_is_well()
    ended = await tenant.tenancy.verify_and_teardown(card.lease)
    assert (ended.state, ended.receipt.box_id) == (LeaseState.GONE, card.box)
    tenant.assert_agrees(ended.receipt)
    tenant.assert_nothing_bills()


async def _still_standing(tenant: Tenant, lease_id: str, told: ProviderTrouble) -> None:
    """The trouble says which box may be billing how much, and nothing was dropped for it."""
    lease = tenant.lease(lease_id)
    assert told.exit_status == 5
    assert f"{lease.box_id} is not proved gone" in told.message
    assert f"may be billing at {lease.price_usd_h} USD/h" in told.message
    assert f"`gpu-tenant teardown {lease.id}` again" in told.remedy
    assert (lease.state, tenant.alive) == (LeaseState.TERMINATING, [lease.box_id])
    assert tenant.tenancy.ledger.receipt(lease.id) is None
    (shown,) = (await tenant.tenancy.list_leases()).leases
    assert shown.lease == lease.id
    assert f"`gpu-tenant teardown {shown.lease}` again" in shown.next


@at_two(7)
async def test_a_termination_that_hangs_is_told_until_it_goes(tenant: Tenant) -> None:
    card = await tenant.rented()
    tenant.fault("stuck_termination")

    with pytest.raises(ProviderSilent, match="list still shows it") as told:
        await tenant.tenancy.verify_and_teardown(card.lease)

    await _still_standing(tenant, card.lease, told.value)
    tenant.fault("stuck_termination", amount=0)
    tenant.assert_agrees((await tenant.tenancy.verify_and_teardown(card.lease)).receipt)
    tenant.assert_nothing_bills()


@pytest.mark.parametrize("tenant", ["vastai"], indirect=True)
async def test_a_destroyed_box_that_reads_as_null_is_gone(tenant: Tenant) -> None:
    card = await tenant.rented()
    tenant.fault("null_after_destroy")

    ended = await tenant.tenancy.verify_and_teardown(card.lease)

    tenant.assert_agrees(ended.receipt)
    tenant.assert_nothing_bills()


@at_two(8)
async def test_a_provider_that_is_down_for_an_hour_ends_nothing_and_loses_nothing(
    tenant: Tenant,
) -> None:
    card = await tenant.rented()
    begun = tenant.clock.now()
    tenant.fault("status", "", EVERYTHING, status=503, times=FOREVER)

    with pytest.raises(ProviderSilent) as down:
        await tenant.tenancy.verify_and_teardown(card.lease)
    told = await tenant.tenancy.list_leases()
    tenant.wait(3600 - (tenant.clock.now() - begun).total_seconds())

    assert any("the box may be running" in alarm for alarm in told.alarms)
    assert f"{card.box} is not proved gone" in down.value.message
    assert f"{card.price_usd_h} USD/h" in down.value.message
    assert tenant.lease(card).state is LeaseState.TERMINATING
    tenant.all_is_well()
    ended = await tenant.tenancy.verify_and_teardown(card.lease)
    tenant.assert_agrees(ended.receipt)
    tenant.assert_nothing_bills()
    assert tenant.metered(card.box) > 0


def test_on_the_command_line_it_is_status_5_with_the_box_and_its_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stage("runpod", tmp_path / "stage", way="local", time="frozen") as stage:
        here = Tenant(stage, tmp_path)
        for name, value in {**stage.environment, "HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("gpu_tenant.app._clock", lambda url: NearClock(stage))
        _, out, _ = command("offers", "--json")
        quote = out.partition('"cheapest": "')[2].partition('"')[0]
        assert command("provision", "--quote", quote, "--smoke", "none")[0] == 0
        (box,) = here.alive
        here.destroy_fails("status", status=401)

        status, out, err = command("teardown")

        assert (status, out) == (5, "")
        assert f"\nerror: CREDENTIAL_REFUSED: {box} is not proved gone" in err
        assert "USD/h" in err
        assert "\nhint: " in err
        here.all_is_well()
        assert command("teardown")[0] == 0
        assert here.alive == []


# What is left behind


def _named_vastai(left: Thing, mark: str) -> None:
    left.facts["label"] = mark


def _named_runpod(left: Thing, mark: str) -> None:
    left.name = mark


def _named_gcp(left: Thing, mark: str) -> None:
    label = mark.removeprefix("gpu-tenant:").replace(":", "_")
    body = left.facts["body"]
    assert isinstance(body, dict)
    body["labels"] = {"gpu-tenant": label}


MARKED: dict[str, Callable[[Thing, str], None]] = {
    "gcp": _named_gcp,
    "runpod": _named_runpod,
    "vastai": _named_vastai,
}
"""How what is left says whose it was, where it can: a filesystem of Lambda's has no mark."""


@pytest.mark.parametrize("tenant", MARKED, indirect=True)
async def test_what_a_box_of_ours_leaves_is_named_in_its_receipt(tenant: Tenant) -> None:
    card = await tenant.rented()
    tenant.fault("leftover")
    (left,) = tenant.meter["leaked"]
    MARKED[tenant.slug](tenant.thing(left["id"]), tenant.lease(card).mark)

    receipt = (await tenant.tenancy.verify_and_teardown(card.lease)).receipt

    assert receipt.left_behind is not None
    assert "USD a month" in receipt.left_behind
    assert [each["id"] for each in tenant.meter["leaked"]] == [left["id"]], "told, never deleted"


@at_two(9)
async def test_what_bills_without_a_box_is_named_with_its_price(tenant: Tenant) -> None:
    card = await tenant.rented()
    tenant.fault("leftover")
    (left,) = tenant.meter["leaked"]

    told = await tenant.tenancy.list_leases()
    receipt = (await tenant.tenancy.verify_and_teardown(card.lease)).receipt

    (words,) = told.also_billing
    if tenant.slug in UNPRICED:
        assert "an unknown rate" in words
    else:
        usd = Decimal(words.rpartition(" USD a month")[0].rpartition(" ")[2])
        monthly = Decimal(left["usd_h"]) * 720
        assert abs(usd - monthly) / monthly < Decimal("0.05")
    assert receipt.left_behind is None


UNPRICED = ("autodl", "digitalocean", "lambda_cloud")
"""Their APIs do not say what such a thing costs, and unknown is not zero."""


# An end that is not ours


@at_two(10)
async def test_a_box_that_somebody_else_ended_is_lost_and_never_made_anew(tenant: Tenant) -> None:
    card = await tenant.rented()
    tenant.stage.world.end(tenant.thing(card.box), status="deleted in the console")

    tenant.wait(300)
    first = await tenant.tenancy.list_leases()
    tenant.wait(300)
    told = await tenant.tenancy.list_leases()

    words = " ".join((*first.alarms, *told.alarms))
    assert "one look proves nothing" in words
    assert "the box is gone, and this program did not end it" in words
    assert tenant.lease(card).state is LeaseState.LOST
    assert tenant.creates() == 1
    assert tenant.alive == []


TAKEN = {
    "host_lost": ["gcp", "lambda_cloud", "runpod", "vastai"],
    "preempted": ["gcp", "vastai"],
}


@pytest.mark.parametrize(
    ("tenant", "fault"),
    [(slug, fault) for fault, slugs in TAKEN.items() for slug in slugs],
    indirect=["tenant"],
)
async def test_a_box_that_its_provider_took_back_is_told_and_never_made_anew(
    tenant: Tenant, fault: str
) -> None:
    card = await tenant.rented()

    tenant.fault(fault, box=card.box)
    tenant.wait(300)
    told = await tenant.tenancy.list_leases()

    (shown,) = told.leases
    print(f"{tenant.slug} {fault}: {shown.alarm}")
    assert shown.alarm
    assert shown.state is LeaseState.ACTIVE, "it is listed, and may bill"
    assert tenant.creates() == 1
    assert tenant.alive == [card.box]
    ended = await tenant.tenancy.verify_and_teardown(card.lease)
    assert ended.state is LeaseState.GONE
    tenant.assert_nothing_bills()
