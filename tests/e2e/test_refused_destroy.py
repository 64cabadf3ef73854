"""A destroy that was refused or ignored, and a parked box that somebody starts: neither makes a lease blind or stuck."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from e2e.watching import Scene, scene_at

from gpu_tenant.domain.errors import ProviderTrouble, Unverified
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.ports import Parking
from gpu_tenant.leases.cards import Card

WRITES = "mkdir -p out; echo whole > out/result.txt"
STOPS = ("autodl", "gcp", "runpod", "vastai")
"""Where a box can be stopped so that it costs less, and its disk stays."""


@pytest.fixture(params=STOPS)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene_at(request.param, tmp_path) as scene:
        yield scene


async def finished(scene: Scene) -> Card:
    """A lease whose job has ended, and whose result is here."""
    card = await scene.rent()
    await scene.work(WRITES)
    await scene.ends()
    await scene.tenant.tenancy.collect(scene.lease)
    return card


def at_the_console(scene: Scene) -> Parking:
    """The provider, as somebody else with its key asks it."""
    connector = scene.tenant.tenancy.context.connectors[scene.tenant.slug]
    assert isinstance(connector, Parking)
    return connector


async def ignored(scene: Scene) -> None:
    """A teardown that was permitted as verified, and that the provider refused, or accepted and did not carry out."""
    is_refused = scene.tenant.slug in ("gcp", "vastai")
    if is_refused:
        scene.tenant.destroy_fails("soft_failure")
    else:
        scene.tenant.fault("stuck_termination")
    with pytest.raises(ProviderTrouble):
        await scene.tenant.tenancy.verify_and_teardown(scene.lease)
    if is_refused:
        scene.tenant.all_is_well()
    else:
        scene.tenant.fault("stuck_termination", amount=0)
    assert scene.state is LeaseState.TERMINATING


async def rate_is_told_right(scene: Scene, card: Card) -> None:
    (shown,) = (await scene.tenant.tenancy.list_leases()).leases
    told = shown.price_usd_h or 0
    assert abs(float(told) - float(scene.tenant.billing_usd_h)) < 0.001, card.box


async def test_a_verified_box_that_stops_after_an_ignored_destroy_is_destroyed_without_a_signature(
    scene: Scene,
) -> None:
    card = await finished(scene)
    await ignored(scene)
    lease = scene.tenant.lease(card)
    if scene.tenant.billing_usd_h and lease.parked_at is None:
        await at_the_console(scene).park(lease)
    scene.tenant.wait(600)

    await rate_is_told_right(scene, card)
    torn = await scene.tenant.tenancy.verify_and_teardown(scene.lease)

    assert (torn.state, torn.receipt.ground) == (LeaseState.GONE, "verified")
    scene.tenant.assert_nothing_bills()


@pytest.mark.parametrize("scene", ["autodl", "gcp"], indirect=True)
@pytest.mark.parametrize("since", ["nothing", "a start"])
async def test_a_never_used_box_that_stops_after_an_ignored_destroy_goes_unless_somebody_starts_it(
    scene: Scene, since: str
) -> None:
    card = await scene.rent()
    await ignored(scene)
    lease = scene.tenant.lease(card)
    if lease.parked_at is None and scene.tenant.slug != "autodl":
        await at_the_console(scene).park(lease)
    scene.tenant.wait(600)
    await scene.tenant.tenancy.list_leases()
    if since == "a start":
        await at_the_console(scene).resume(scene.tenant.lease(card))
        scene.tenant.wait(900)
        home = scene.tenant.home_of(str(card.box))
        (home / "late.bin").write_bytes(b"written after the permit")
        with pytest.raises(Unverified):
            await scene.tenant.tenancy.verify_and_teardown(scene.lease)
        assert scene.tenant.alive == [card.box]
        return

    await scene.look()

    receipt = scene.tenant.tenancy.ledger.receipt(scene.tenant.lease(card).id)
    assert receipt is not None
    assert receipt.ground == "never_used"
    scene.tenant.assert_nothing_bills()


@pytest.mark.parametrize("scene", ["vastai"], indirect=True)
async def test_a_never_used_box_that_was_stopped_is_looked_at_and_ended_after_its_deadline(
    scene: Scene,
) -> None:
    card = await scene.rent()
    await at_the_console(scene).park(scene.tenant.lease(card))

    await scene.later(hours=3)
    await scene.later(minutes=10)

    receipt = scene.tenant.tenancy.ledger.receipt(scene.tenant.lease(card).id)
    assert receipt is not None, scene.alarms()
    assert receipt.ground == "never_used"
    scene.tenant.assert_nothing_bills()


async def test_a_box_that_was_started_after_an_ignored_destroy_is_read_again(scene: Scene) -> None:
    card = await finished(scene)
    await ignored(scene)
    console, lease = at_the_console(scene), scene.tenant.lease(card)
    if lease.parked_at is None and scene.tenant.slug != "autodl":
        await console.park(lease)
        scene.tenant.wait(600)
        await scene.tenant.tenancy.list_leases()
    lease = scene.tenant.lease(card)
    await console.resume(lease)
    scene.tenant.wait(900)
    await rate_is_told_right(scene, card)
    late = scene.tenant.home_of(str(card.box)) / lease.work_directory / "late.bin"
    late.write_bytes(b"written after the permit")

    with pytest.raises(Unverified):
        await scene.tenant.tenancy.verify_and_teardown(scene.lease)

    assert scene.state is LeaseState.TERMINATING
    assert scene.tenant.alive == [card.box]


async def test_a_parked_box_that_somebody_starts_goes_on_as_if_it_had_been_resumed(
    scene: Scene,
) -> None:
    card = await finished(scene)
    tenancy = scene.tenant.tenancy
    await tenancy.change_lease(scene.lease, "park")
    scene.tenant.wait(600)

    await at_the_console(scene).resume(scene.tenant.lease(card))
    scene.tenant.wait(900)
    (shown,) = (await tenancy.list_leases()).leases

    assert shown.phase != "parked"
    assert "somebody has started it" in (shown.alarm or "")
    await rate_is_told_right(scene, card)
    torn = await tenancy.verify_and_teardown(scene.lease)
    assert torn.receipt.ground == "verified"
    scene.tenant.assert_nothing_bills()


async def test_a_parked_box_that_somebody_starts_is_ended_at_its_deadline(scene: Scene) -> None:
    card = await finished(scene)
    await scene.tenant.tenancy.change_lease(scene.lease, "park")
    scene.tenant.wait(600)
    await at_the_console(scene).resume(scene.tenant.lease(card))
    scene.tenant.wait(900)
    await scene.look()

    for _ in range(13):  # its lease is for two hours
        await scene.later(minutes=9)
        if scene.state is not LeaseState.ACTIVE:
            break

    assert scene.state is LeaseState.GONE
    scene.tenant.assert_nothing_bills()


async def test_a_box_is_parked_right_after_it_was_resumed(scene: Scene) -> None:
    await finished(scene)
    tenancy = scene.tenant.tenancy
    await tenancy.change_lease(scene.lease, "park")
    scene.tenant.wait(600)
    await tenancy.change_lease(scene.lease, "resume")
    scene.tenant.wait(1800)

    parked = await tenancy.change_lease(scene.lease, "park")

    assert parked.phase == "parked"


@pytest.mark.parametrize("scene", ["lambda_cloud"], indirect=True)
async def test_two_enders_at_once_file_one_receipt_and_leave_no_alarm(scene: Scene) -> None:
    await finished(scene)
    tenancy = scene.tenant.tenancy

    first, second, third = await asyncio.gather(
        *(tenancy.verify_and_teardown(scene.lease) for _ in range(3))
    )
    await scene.look()

    assert first.receipt == second.receipt == third.receipt
    assert scene.alarms() == {}
