"""A volume outlives every box: it is made once, mounted by the next box too, always seen, and ended by a person alone."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from signed import signs, with_signature

from gpu_tenant.domain.errors import (
    BadRequest,
    BoxUnreachable,
    Limit,
    ProviderTrouble,
    Refused,
    SignatureWanted,
    Unverified,
)
from gpu_tenant.domain.permit import VolumePermit
from gpu_tenant.domain.ports import Storing
from gpu_tenant.domain.volumes import Volume, VolumeState
from gpu_tenant.emulators.world import Thing
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.inspection import come_in
from gpu_tenant.leases.volumes import (
    adopt_volume,
    create_volume,
    destroy_volume,
    grow_volume,
)

REGION = "EU-RO-1"
RATE = Decimal("3.5000")
"""50 GB at 0.07 USD a month."""


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("runpod", tmp_path) as tenant:
        yield tenant


async def made(tenant: Tenant, name: str = "data", region: str = REGION) -> Volume:
    return await create_volume(
        tenant.tenancy.context, name, provider="runpod", region=region, size_gb=50
    )


def ordered(tmp_path: Path, name: str = "data", path: str = "/data") -> str:
    order = tmp_path / "gpu-tenant.toml"
    order.write_text(f'[volumes.{name}]\npath = "{path}"\n', encoding="utf-8")
    return str(order)


async def rented(tenant: Tenant, tmp_path: Path) -> Card:
    quotes = await tenant.quotes(order=ordered(tmp_path))
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    assert card.phase == "ready", card
    return card


def on_the_volume(tenant: Tenant, card: Card) -> Path:
    place = tenant.lease(card).place
    assert place is not None
    return Path(place.volumes[0].at)


async def ended(tenant: Tenant, card: Card) -> None:
    await tenant.tenancy.verify_and_teardown(card.lease)
    assert card.box not in tenant.alive


# Two boxes in turn


async def test_what_the_first_box_left_on_it_the_second_box_finds(
    tenant: Tenant, tmp_path: Path
) -> None:
    volume = await made(tenant)
    first = await rented(tenant, tmp_path)
    (on_the_volume(tenant, first) / "cache").mkdir()
    (on_the_volume(tenant, first) / "cache" / "weights").write_bytes(b"w" * 4096)
    await ended(tenant, first)

    second = await rented(tenant, tmp_path)

    assert first.box != second.box
    kept = on_the_volume(tenant, second) / "cache" / "weights"
    assert kept.read_bytes() == b"w" * 4096
    assert tenant.thing(second.box).facts["place"] == REGION
    assert [v.id for v in tenant.stage.world.things("volume")] == [volume.volume_id]


async def test_the_lease_s_own_directory_is_never_on_a_volume(
    tenant: Tenant, tmp_path: Path
) -> None:
    """Two boxes may have one volume: a mark on it would tell neither from the other."""
    await made(tenant)
    order = ordered(tmp_path, path="/workspace")
    quotes = await tenant.quotes(order=order)
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)

    lease = tenant.lease(card)
    assert lease.place is not None
    assert lease.place.path == "~"
    assert [mount.path for mount in lease.place.volumes] == ["/workspace"]
    assert not list(Path(lease.place.volumes[0].at).iterdir())


async def test_a_second_lease_does_not_get_a_volume_that_is_in_use(
    tenant: Tenant, tmp_path: Path
) -> None:
    await made(tenant)
    order = ordered(tmp_path)
    quotes = await tenant.quotes(order=order)
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)

    with pytest.raises(Refused, match=f"in use by {card.lease}"):
        await tenant.tenancy.provision(smoke="none", quotes=quotes[1:2], wait_s=3600)

    assert tenant.creates() == 1


# What is an offer


async def test_only_boxes_that_can_see_the_volume_are_offered(
    tenant: Tenant, tmp_path: Path
) -> None:
    await made(tenant)

    found = await tenant.tenancy.find_offers(order=ordered(tmp_path), explain="explain")

    assert found.offers
    assert {offer.region for offer in found.offers} == {REGION}
    assert {offer.trust for offer in found.offers} == {"datacenter"}
    assert all(any(f"{RATE} USD a month" in n for n in offer.notes) for offer in found.offers)
    assert all("volume" in {t.name for t in offer.terms} for offer in found.offers)
    assert "cannot see the volume data, which is at runpod (EU-RO-1)" in found.troubles["own"]
    assert found.order == ("volume data at /data",)


async def test_a_volume_that_nobody_made_is_told_before_anybody_is_asked(
    tenant: Tenant, tmp_path: Path
) -> None:
    with pytest.raises(BadRequest, match="there is no volume 'data'"):
        await tenant.quotes(order=ordered(tmp_path))


async def test_a_box_without_a_quote_gets_no_volume(tenant: Tenant, tmp_path: Path) -> None:
    await made(tenant)

    with pytest.raises(BadRequest, match="without a quote is taken as it is"):
        await tenant.tenancy.provision("own", "me@192.0.2.1", order=ordered(tmp_path))


# What it costs, and that it is seen


async def test_a_volume_is_seen_with_its_rate_its_age_and_what_last_used_it(
    tenant: Tenant, tmp_path: Path
) -> None:
    await made(tenant)
    card = await rented(tenant, tmp_path)
    in_use = await tenant.tenancy.list_leases()
    await ended(tenant, card)
    tenant.wait(3 * 86_400)
    alone = await tenant.tenancy.list_leases()

    (line,) = in_use.also_billing
    assert f"{card.lease} uses it since" in line
    assert in_use.leaking_usd_month == 0
    (line,) = alone.also_billing
    assert "the volume data (50 GB at runpod, EU-RO-1), 3.5000 USD a month, 72.0 h old" in line
    assert f"{card.lease} used it last, until" in line
    assert alone.leaking_usd_month == RATE
    assert alone.burning_usd_h == (RATE / 720).quantize(Decimal("0.0001"))


async def test_the_meter_of_a_volume_says_what_was_told(tenant: Tenant) -> None:
    volume = await made(tenant)
    tenant.wait(720 * 3600)

    assert volume.volume_id is not None
    assert tenant.metered(volume.volume_id).quantize(Decimal("0.01")) == Decimal("3.50")


async def test_the_owner_s_limit_for_volumes_is_kept(tenant: Tenant) -> None:
    with pytest.raises(Limit, match="volumes_usd_month is 50"):
        await create_volume(
            tenant.tenancy.context, "huge", provider="runpod", region=REGION, size_gb=4000
        )

    assert tenant.stage.world.things("volume") == []


async def test_the_owner_s_limit_is_kept_where_a_price_is_told_only_when_asked(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        context = tenant.tenancy.context
        with pytest.raises(Limit, match=r"would cost 90\.0000 USD a month"):
            await create_volume(context, "huge", provider="vastai", region="44", size_gb=500)
        assert tenant.stage.world.volumes() == []

        volume = await create_volume(context, "data", provider="vastai", region="44", size_gb=50)

        assert volume.usd_month == Decimal("9.00"), "nobody had to sign for it"


# Made once


async def test_a_create_whose_answer_is_lost_made_one_volume(tenant: Tenant) -> None:
    tenant.fault("drop_after", "POST", "/v2/network-volumes", times=1)
    with pytest.raises(ProviderTrouble, match="may exist, and bill"):
        await made(tenant)

    await tenant.tenancy.list_leases()

    (volume,) = tenant.tenancy.ledger.volumes()
    (thing,) = tenant.stage.world.things("volume")
    assert (volume.state, volume.volume_id) == (VolumeState.ACTIVE, thing.id)


async def test_a_create_that_is_refused_leaves_no_volume_on_record(tenant: Tenant) -> None:
    with pytest.raises(ProviderTrouble):
        await made(tenant, region="MARS-1")

    assert tenant.tenancy.ledger.volumes() == []
    await made(tenant)


# Its end


async def signed_end(tenant: Tenant, name: str = "data") -> Volume:
    return await with_signature(
        tenant.tenancy, lambda: destroy_volume(tenant.tenancy.context, name)
    )


async def test_only_a_person_s_signature_ends_a_volume(tenant: Tenant, tmp_path: Path) -> None:
    volume = await made(tenant)
    await ended(tenant, await rented(tenant, tmp_path))
    with pytest.raises(SignatureWanted) as wanted:
        await destroy_volume(tenant.tenancy.context, "data")

    asked = tenant.tenancy.ledger.request_of(wanted.value.asked)
    assert asked.subject == volume.key
    assert any("everything on it" in words for words in asked.words)
    assert tenant.stage.world.things("volume")
    signs(tenant.tenancy, asked.code)
    gone = await destroy_volume(tenant.tenancy.context, "data")

    assert gone.state is VolumeState.GONE
    assert tenant.stage.world.things("volume") == []
    assert tenant.billing_usd_h == 0


async def test_a_volume_that_never_had_a_lease_needs_a_signature_as_well(tenant: Tenant) -> None:
    """Whoever has the console can have written to it."""
    await made(tenant)

    with pytest.raises(SignatureWanted):
        await destroy_volume(tenant.tenancy.context, "data")


async def test_a_signature_from_before_a_lease_used_it_ends_nothing(
    tenant: Tenant, tmp_path: Path
) -> None:
    await made(tenant)
    with pytest.raises(SignatureWanted) as wanted:
        await destroy_volume(tenant.tenancy.context, "data")
    signs(tenant.tenancy, wanted.value.asked)
    await ended(tenant, await rented(tenant, tmp_path))

    with pytest.raises(SignatureWanted) as again:
        await destroy_volume(tenant.tenancy.context, "data")

    assert again.value.asked != wanted.value.asked
    assert len(tenant.stage.world.things("volume")) == 1


async def test_a_signature_ends_nothing_once_more_is_on_the_volume(tmp_path: Path) -> None:
    async with tenant_at("lambda_cloud", tmp_path) as tenant:
        context = tenant.tenancy.context
        await with_signature(
            tenant.tenancy,
            lambda: create_volume(
                context, "data", provider="lambda_cloud", region="us-east-1", size_gb=1
            ),
        )
        with pytest.raises(SignatureWanted) as asked:
            await destroy_volume(context, "data")
        signs(tenant.tenancy, asked.value.asked)
        (filesystem,) = tenant.stage.world.volumes()
        filesystem.facts["bytes"] = 500 * 10**9

        with pytest.raises(SignatureWanted, match="500 GB"):
            await destroy_volume(context, "data")

        assert tenant.stage.world.volumes()


async def test_a_volume_that_a_lease_uses_is_not_ended(tenant: Tenant, tmp_path: Path) -> None:
    await made(tenant)
    card = await rented(tenant, tmp_path)

    with pytest.raises(Refused, match=f"{card.lease} uses the volume"):
        await destroy_volume(tenant.tenancy.context, "data")


async def test_a_volume_on_a_box_of_somebody_else_is_not_ended(tenant: Tenant) -> None:
    volume = await made(tenant)
    with pytest.raises(SignatureWanted) as wanted:
        await destroy_volume(tenant.tenancy.context, "data")
    signs(tenant.tenancy, wanted.value.asked)
    assert volume.volume_id is not None
    tenant.stage.rent_by_hand(volume.volume_id)

    with pytest.raises(Refused, match="as its provider says"):
        await destroy_volume(tenant.tenancy.context, "data")

    assert len(tenant.stage.world.things("volume")) == 1


async def test_a_volume_of_somebody_else_is_never_ended(tenant: Tenant) -> None:
    tenant.fault("leftover")

    with pytest.raises(BadRequest, match="never destroyed"):
        await destroy_volume(tenant.tenancy.context, "old-dataset")

    found = await tenant.tenancy.list_leases()
    assert [line for line in found.also_billing if "old-dataset" in line]


async def test_under_another_account_nothing_is_ended_and_nothing_counts_as_gone(
    tenant: Tenant,
) -> None:
    await made(tenant)
    tenant.stage.world.state.account = "f" * 32
    tenant.stage.world.state.things.clear()
    other = tenant.anew_tenancy(RUNPOD_API_KEY="rehearsal-key-2")

    with pytest.raises(ProviderTrouble, match="whether this key is of the same account is unknown"):
        await destroy_volume(other.context, "data")
    for _ in range(3):
        found = await other.list_leases()
        tenant.wait(3600)

    assert [v.state for v in other.ledger.volumes()] == [VolumeState.ACTIVE]
    assert any("proves nothing about the volume" in words for words in found.alarms)


async def test_another_key_of_the_same_account_ends_it(tenant: Tenant) -> None:
    await made(tenant)
    other = tenant.anew_tenancy(RUNPOD_API_KEY="rehearsal-key-2")

    gone = await with_signature(other, lambda: destroy_volume(other.context, "data"))

    assert gone.state is VolumeState.GONE


async def test_an_end_that_was_cut_short_is_told_and_goes_on(tenant: Tenant) -> None:
    await made(tenant)
    tenant.fault("status", "DELETE", "/v2/network-volumes", status=500, times=10_000)
    with pytest.raises(ProviderTrouble):
        await signed_end(tenant)
    told = await tenant.tenancy.list_leases()
    tenant.all_is_well()

    gone = await destroy_volume(tenant.tenancy.context, "data")

    assert any("its end was cut short" in words for words in told.alarms)
    assert told.also_billing
    assert gone.state is VolumeState.GONE


async def test_a_volume_deleted_under_us_is_told_once_and_bills_no_more(
    tenant: Tenant, tmp_path: Path
) -> None:
    volume = await made(tenant)
    tenant.stage.world.end(tenant.thing(volume.volume_id), status="deleted")

    first = await tenant.tenancy.list_leases()
    tenant.wait(60)
    second = await tenant.tenancy.list_leases()
    third = await tenant.tenancy.list_leases()

    assert first.also_billing, "one look proves nothing"
    assert any("did not destroy it" in words for words in second.alarms)
    assert not third.also_billing
    assert third.burning_usd_h == 0
    with pytest.raises(BadRequest, match="there is no volume"):
        await tenant.quotes(order=ordered(tmp_path))


async def test_a_volume_cannot_be_named_twice(tenant: Tenant) -> None:
    await made(tenant)

    with pytest.raises(Refused, match="already has a volume named data"):
        await made(tenant)

    assert len(tenant.stage.world.things("volume")) == 1


async def test_two_that_make_one_volume_at_once_make_one(tenant: Tenant) -> None:
    answers = await asyncio.gather(made(tenant), made(tenant), return_exceptions=True)

    assert sum(isinstance(answer, Volume) for answer in answers) == 1
    assert len(tenant.stage.world.things("volume")) == 1


# On the box


async def test_a_volume_that_is_not_mounted_is_no_volume(tenant: Tenant, tmp_path: Path) -> None:
    """What was written there then lies on the box's own disk, and would be lost with the box."""
    await made(tenant)
    card = await rented(tenant, tmp_path)
    assert card.box is not None
    await tenant.tenancy.launch_detached(card.lease, "echo 1 >log.txt", ["log.txt"])
    for _ in range(100):
        report = await tenant.tenancy.monitor(card.lease)
        if report.state == "finished":
            break
        await asyncio.sleep(0.1)
    await tenant.tenancy.collect(card.lease)
    (tenant.home_of(card.box).parent / "disk-data").unlink()

    with pytest.raises(Unverified, match="not mounted there any more"):
        await tenant.tenancy.verify_and_teardown(card.lease)

    assert card.box in tenant.alive


async def test_a_box_whose_volume_does_not_come_lets_nobody_work(
    tenant: Tenant, tmp_path: Path
) -> None:
    await made(tenant)
    quotes = await tenant.quotes(order=ordered(tmp_path))
    with tenant.stage.nothing_mounted():
        card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=300)

    assert card.phase != "ready"
    assert tenant.lease(card).address is not None, "it could be reached"
    with pytest.raises(BoxUnreachable, match="its volume data is not mounted"):
        await come_in(tenant.tenancy.context, tenant.lease(card))


# It grows


async def grown(tenant: Tenant, size_gb: int) -> Volume:
    return await grow_volume(tenant.tenancy.context, "data", size_gb)


async def test_a_volume_grows_with_its_rate_and_all_that_is_on_it(
    tenant: Tenant, tmp_path: Path
) -> None:
    await made(tenant)
    first = await rented(tenant, tmp_path)
    (on_the_volume(tenant, first) / "kept").write_bytes(b"k")
    await ended(tenant, first)

    larger = await grown(tenant, 100)

    assert (larger.size_gb, larger.usd_month) == (100, 2 * RATE)
    told = await tenant.tenancy.list_leases()
    assert told.burning_usd_h == (2 * RATE / 720).quantize(Decimal("0.0001"))
    assert abs(told.burning_usd_h - tenant.billing_usd_h) <= Decimal("0.0001")
    second = await rented(tenant, tmp_path)
    assert (on_the_volume(tenant, second) / "kept").read_bytes() == b"k"


async def test_a_volume_is_not_made_smaller_and_not_grown_under_a_box(
    tenant: Tenant, tmp_path: Path
) -> None:
    await made(tenant)
    with pytest.raises(BadRequest, match="none is made smaller"):
        await grown(tenant, 50)
    card = await rented(tenant, tmp_path)

    with pytest.raises(Refused, match=f"{card.lease} uses the volume data; it is as it was"):
        await grown(tenant, 100)

    assert tenant.tenancy.ledger.volumes()[0].size_gb == 50


async def test_a_volume_grows_within_the_owner_s_limit_alone(tenant: Tenant) -> None:
    await made(tenant)

    with pytest.raises(Limit, match="volumes_usd_month is 50"):
        await grown(tenant, 4000)

    assert tenant.stage.world.volumes()[0].facts["size"] == 50


async def test_a_refused_growth_leaves_the_record_as_it_was(tenant: Tenant) -> None:
    await made(tenant)
    tenant.fault("status", "PATCH", "/v2/network-volumes", status=400, body={"detail": "no"})

    with pytest.raises(ProviderTrouble):
        await grown(tenant, 100)

    (volume,) = tenant.tenancy.ledger.volumes()
    assert (volume.size_gb, volume.usd_month) == (50, RATE)


async def test_a_growth_whose_answer_is_lost_is_seen_by_the_next_look(tenant: Tenant) -> None:
    await made(tenant)
    tenant.fault("drop_after", "PATCH", "/v2/network-volumes", times=10)
    with pytest.raises(ProviderTrouble):
        await grown(tenant, 100)
    tenant.all_is_well()

    told = await tenant.tenancy.list_leases()

    assert "100 GB" in told.also_billing[0]


async def test_a_growth_that_takes_its_time_is_waited_for(tmp_path: Path) -> None:
    async with tenant_at("digitalocean", tmp_path) as tenant:
        tenancy = tenant.tenancy
        await with_signature(tenancy, lambda: at_digitalocean(tenant, "data"))

        larger = await with_signature(tenancy, lambda: grow_volume(tenancy.context, "data", 100))

        assert larger.size_gb == 100
        assert tenant.stage.world.volumes()[0].facts["size_gigabytes"] == 100


async def test_a_growth_that_is_not_seen_yet_stays_on_record_as_it_was_asked_for(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(tenant)
    storing = tenant.tenancy.context.connectors["runpod"]

    async def later(volume: Volume, size_gb: int) -> None:
        """The provider takes the request, and is slow to show it."""

    monkeypatch.setattr(storing, "grow_volume", later)

    larger = await grown(tenant, 100)

    assert (larger.size_gb, larger.usd_month) == (100, 2 * RATE)


async def test_a_growth_that_is_refused_before_it_is_sent_leaves_the_record_as_it_was(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(tenant)
    storing = tenant.tenancy.context.connectors["runpod"]

    async def refused(volume: Volume, size_gb: int) -> None:
        raise BadRequest("too large", remedy="a smaller one")

    monkeypatch.setattr(storing, "grow_volume", refused)

    with pytest.raises(BadRequest, match="too large"):
        await grown(tenant, 100)

    (volume,) = tenant.tenancy.ledger.volumes()
    assert (volume.size_gb, volume.usd_month) == (50, RATE)


async def test_a_create_that_is_refused_before_it_is_sent_leaves_no_volume_on_record(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    storing = tenant.tenancy.context.connectors["runpod"]

    async def refused(volume: Volume) -> None:
        raise BadRequest("no such region", remedy="another one")

    with monkeypatch.context() as patched:
        patched.setattr(storing, "create_volume", refused)
        with pytest.raises(BadRequest, match="no such region"):
            await made(tenant)

    await made(tenant)


# A signature is used once


async def at_digitalocean(tenant: Tenant, name: str) -> Volume:
    return await create_volume(
        tenant.tenancy.context, name, provider="digitalocean", region="nyc2", size_gb=50
    )


async def test_a_signature_for_an_unknown_price_makes_one_volume_and_grows_it_once(
    tmp_path: Path,
) -> None:
    async with tenant_at("digitalocean", tmp_path) as tenant:
        tenancy = tenant.tenancy
        await with_signature(tenancy, lambda: at_digitalocean(tenant, "data"))
        await with_signature(tenancy, lambda: destroy_volume(tenancy.context, "data"))

        with pytest.raises(SignatureWanted, match="make the volume data"):
            await at_digitalocean(tenant, "data")

        await with_signature(tenancy, lambda: at_digitalocean(tenant, "data"))
        with pytest.raises(SignatureWanted) as wanted:
            await grow_volume(tenancy.context, "data", 100)
        signs(tenancy, wanted.value.asked)
        await grow_volume(tenancy.context, "data", 100)
        assert (
            tenancy.ledger.signed_for("volume price", "digitalocean", at=tenancy.clock.now()) == []
        )


async def test_a_signature_takes_up_one_volume_once(tenant: Tenant) -> None:
    tenant.fault("leftover")
    (thing,) = tenant.stage.world.volumes()
    as_it_was = thing.model_copy(deep=True)
    await adopted(tenant, thing.id)
    await signed_end(tenant, "old")
    tenant.stage.world.state.things[thing.id] = as_it_was

    with pytest.raises(SignatureWanted):
        await adopt_volume(tenant.tenancy.context, "old", provider="runpod", volume_id=thing.id)


# What is signed for is what is destroyed


async def test_a_volume_that_changes_after_the_signature_was_used_is_kept(tmp_path: Path) -> None:
    """Somebody may mount it, write, and detach it between the two looks."""
    async with tenant_at("lambda_cloud", tmp_path) as tenant:
        tenancy, context = tenant.tenancy, tenant.tenancy.context
        await with_signature(
            tenancy,
            lambda: create_volume(
                context, "data", provider="lambda_cloud", region="us-east-1", size_gb=1
            ),
        )
        with pytest.raises(SignatureWanted) as asked:
            await destroy_volume(context, "data")
        signs(tenancy, asked.value.asked)
        (filesystem,) = tenant.stage.world.volumes()
        permit = tenancy.ledger.file_volume_permit

        def writes(*told: object, **named: object) -> Volume:
            filesystem.facts["bytes"] = 500 * 10**9
            return permit(*told, **named)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(tenancy.ledger, "file_volume_permit", writes)
            with pytest.raises(Refused, match="not any more what was signed for"):
                await destroy_volume(context, "data")

        assert tenant.stage.world.volumes()
        with pytest.raises(SignatureWanted, match="500 GB") as again:
            await destroy_volume(context, "data")
        signs(tenancy, again.value.asked)
        gone = await destroy_volume(context, "data")
        assert gone.state is VolumeState.GONE
        assert tenancy.ledger.signed_for("volume", gone.key, at=tenancy.clock.now()) == []


# One that was made elsewhere


async def adopted(tenant: Tenant, volume_id: str, name: str = "old") -> Volume:
    tenancy = tenant.tenancy
    return await with_signature(
        tenancy,
        lambda: adopt_volume(tenancy.context, name, provider="runpod", volume_id=volume_id),
    )


async def test_a_volume_made_in_the_console_is_taken_up_by_a_person_and_mounted(
    tenant: Tenant, tmp_path: Path
) -> None:
    tenant.fault("leftover")
    (thing,) = tenant.stage.world.volumes()
    with pytest.raises(SignatureWanted):
        await adopt_volume(tenant.tenancy.context, "old", provider="runpod", volume_id=thing.id)

    volume = await adopted(tenant, thing.id)

    assert (volume.size_gb, volume.region, volume.volume_id) == (100, REGION, thing.id)
    order = ordered(tmp_path, name="old")
    quotes = await tenant.quotes(order=order)
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    assert card.phase == "ready"
    await ended(tenant, card)
    assert [v.id for v in tenant.stage.world.volumes()] == [thing.id]
    (line,) = (await tenant.tenancy.list_leases()).also_billing
    assert "the volume old (100 GB" in line


async def test_a_volume_is_taken_up_once(tenant: Tenant) -> None:
    tenant.fault("leftover")
    (thing,) = tenant.stage.world.volumes()
    await adopted(tenant, thing.id)

    with pytest.raises(Refused, match="is already on record here"):
        await adopted(tenant, thing.id, "again")
    with pytest.raises(BadRequest, match="lists no volume"):
        await adopted(tenant, "nowhere", "none")


async def test_under_another_account_a_volume_that_was_taken_up_does_not_count_as_gone(
    tenant: Tenant,
) -> None:
    tenant.fault("leftover")
    await adopted(tenant, tenant.stage.world.volumes()[0].id)
    tenant.stage.world.state.account = "f" * 32
    tenant.stage.world.state.things.clear()
    other = tenant.anew_tenancy(RUNPOD_API_KEY="rehearsal-key-2")

    for _ in range(3):
        await other.list_leases()
        tenant.wait(3600)

    assert [v.state for v in other.ledger.volumes()] == [VolumeState.ACTIVE]


async def test_two_volumes_that_have_one_name_at_their_provider_are_both_taken_up(
    tenant: Tenant,
) -> None:
    tenant.fault("leftover")
    tenant.fault("leftover")
    first, second = tenant.stage.world.volumes()
    assert first.name == second.name

    one = await adopted(tenant, first.id, "one")
    two = await adopted(tenant, second.id, "two")

    assert (one.mark, two.mark) == (first.name, second.name), "by which it is mounted"
    assert len((await tenant.tenancy.list_leases()).also_billing) == 2


async def lost(tenant: Tenant, thing: Thing) -> None:
    """Its provider's list omits the volume for a while."""
    tenant.stage.world.state.things.pop(thing.id)
    for _ in range(2):
        await tenant.tenancy.list_leases()
        tenant.wait(3600)
    tenant.stage.world.state.things[thing.id] = thing


async def test_a_lost_volume_that_is_listed_again_is_taken_up_again(tenant: Tenant) -> None:
    tenant.fault("leftover")
    (thing,) = tenant.stage.world.volumes()
    await adopted(tenant, thing.id)
    await lost(tenant, thing)
    assert tenant.tenancy.ledger.volumes() == []

    await adopted(tenant, thing.id, "again")

    for _ in range(2):
        told = await tenant.tenancy.list_leases()
        assert [v.name for v in tenant.tenancy.ledger.volumes()] == ["again"]
        assert len(told.also_billing) == 1
    assert not told.alarms


async def test_a_volume_that_was_lost_under_a_lease_is_still_in_its_use_when_taken_up_again(
    tenant: Tenant, tmp_path: Path
) -> None:
    tenant.fault("leftover")
    (thing,) = tenant.stage.world.volumes()
    await adopted(tenant, thing.id, "data")
    card = await rented(tenant, tmp_path)
    await lost(tenant, thing)
    assert tenant.tenancy.ledger.volumes() == []
    await adopted(tenant, thing.id, "again")

    with pytest.raises(Refused, match=f"{card.lease} uses the volume again"):
        await destroy_volume(tenant.tenancy.context, "again")


async def test_a_lost_volume_that_is_listed_again_under_a_taken_name_is_told(
    tenant: Tenant,
) -> None:
    tenant.fault("leftover")
    (thing,) = tenant.stage.world.volumes()
    await adopted(tenant, thing.id, "data")
    await lost(tenant, thing)
    await made(tenant, "data")

    told = await tenant.tenancy.list_leases()

    (alarm,) = told.alarms
    assert f"volumes --adopt NAME --on runpod --id {thing.id}" in alarm
    assert len(told.also_billing) == 2
    await adopted(tenant, thing.id, "other")
    assert not (await tenant.tenancy.list_leases()).alarms


# At Google a volume is a blank disk, to which the first box gives a file system


GOOGLE_S_ZONE = "us-central1-a"


async def boxed_at_google(tenant: Tenant, order: str, *, wait_s: float = 3600) -> Card:
    quotes = await tenant.quotes(order=order)
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=wait_s)
    assert tenant.lease(card).quote is not None
    return card


async def test_a_volume_at_google_is_made_at_the_list_price_and_two_boxes_in_turn_have_it(
    tmp_path: Path,
) -> None:
    async with tenant_at("gcp", tmp_path) as tenant:
        tenancy = tenant.tenancy
        volume = await create_volume(
            tenancy.context, "data", provider="gcp", region=GOOGLE_S_ZONE, size_gb=50
        )
        order = ordered(tmp_path)
        first = await boxed_at_google(tenant, order)
        (on_the_volume(tenant, first) / "weights").write_bytes(b"w" * 4096)
        in_use = await tenancy.list_leases()
        await ended(tenant, first)
        second = await boxed_at_google(tenant, order)

        assert (volume.usd_month, volume.region) == (Decimal("4.9315"), GOOGLE_S_ZONE)
        assert f"{first.lease} uses it since" in in_use.also_billing[0]
        assert (on_the_volume(tenant, second) / "weights").read_bytes() == b"w" * 4096
        await ended(tenant, second)
        tenant.wait(60)
        larger = await grow_volume(tenancy.context, "data", 80)
        gone = await with_signature(tenancy, lambda: destroy_volume(tenancy.context, "data"))
        assert (larger.size_gb, larger.usd_month) == (80, Decimal("7.8904"))
        assert gone.state is VolumeState.GONE
        assert tenant.stage.world.volumes() == []
        assert tenant.billing_usd_h == 0


async def test_a_parked_box_at_google_keeps_its_volume_and_has_it_again_after_the_resume(
    tmp_path: Path,
) -> None:
    async with tenant_at("gcp", tmp_path) as tenant:
        tenancy = tenant.tenancy
        await create_volume(
            tenancy.context, "data", provider="gcp", region=GOOGLE_S_ZONE, size_gb=50
        )
        card = await boxed_at_google(tenant, ordered(tmp_path))
        (on_the_volume(tenant, card) / "weights").write_bytes(b"w")
        await tenancy.change_lease(card.lease, "park")
        tenant.wait(60)
        with pytest.raises(Refused, match=f"{card.lease} uses the volume"):
            await destroy_volume(tenancy.context, "data")

        await tenancy.change_lease(card.lease, "resume")

        assert (on_the_volume(tenant, card) / "weights").read_bytes() == b"w"
        assert tenant.stage.world.volumes()[0].facts["user"] is not None


async def test_a_blank_disk_that_was_made_elsewhere_is_not_formatted_and_nobody_works_on_its_box(
    tmp_path: Path,
) -> None:
    async with tenant_at("gcp", tmp_path) as tenant:
        tenancy = tenant.tenancy
        tenant.fault("leftover")
        (thing,) = tenant.stage.world.volumes()
        thing.facts["formatted"] = False
        await with_signature(
            tenancy,
            lambda: adopt_volume(tenancy.context, "data", provider="gcp", volume_id=thing.id),
        )

        card = await boxed_at_google(tenant, ordered(tmp_path), wait_s=400)

        assert card.phase != "ready"
        assert thing.facts["formatted"] is False
        with pytest.raises(BoxUnreachable, match="its volume data is not mounted"):
            await come_in(tenancy.context, tenant.lease(card))


async def test_a_signature_ends_nothing_at_google_once_somebody_else_s_box_has_had_the_volume(
    tmp_path: Path,
) -> None:
    async with tenant_at("gcp", tmp_path) as tenant:
        context = tenant.tenancy.context
        volume = await create_volume(
            context, "data", provider="gcp", region=GOOGLE_S_ZONE, size_gb=50
        )
        with pytest.raises(SignatureWanted) as asked:
            await destroy_volume(context, "data")
        signs(tenant.tenancy, asked.value.asked)
        assert volume.volume_id is not None
        tenant.stage.end_by_hand(tenant.stage.rent_by_hand(volume.volume_id))
        tenant.wait(60)

        with pytest.raises(SignatureWanted):
            await destroy_volume(context, "data")

        assert len(tenant.stage.world.volumes()) == 1


async def test_a_region_of_google_s_is_told_to_be_no_zone_and_leaves_no_volume_on_record(
    tmp_path: Path,
) -> None:
    async with tenant_at("gcp", tmp_path) as tenant:
        context = tenant.tenancy.context
        with pytest.raises(BadRequest, match="'us-central1' is not a zone"):
            await create_volume(context, "data", provider="gcp", region="us-central1", size_gb=50)

        assert tenant.tenancy.ledger.volumes() == []
        assert tenant.stage.world.volumes() == []


# Attached between the last look and the destroy


async def test_a_volume_that_was_attached_at_the_last_moment_is_kept_and_its_box_is_named(
    tmp_path: Path,
) -> None:
    async with tenant_at("digitalocean", tmp_path) as tenant:
        tenancy = tenant.tenancy
        volume = await with_signature(
            tenancy,
            lambda: create_volume(
                tenancy.context, "data", provider="digitalocean", region="nyc2", size_gb=50
            ),
        )
        assert volume.volume_id is not None
        storing = tenancy.context.connectors["digitalocean"]
        assert isinstance(storing, Storing)
        destroy = storing.destroy_volume

        async def late(permit: VolumePermit) -> None:
            tenant.stage.rent_by_hand(permit.volume_id)
            await destroy(permit)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(storing, "destroy_volume", late)
            with pytest.raises(ProviderTrouble, match="attached to a Droplet"):
                await with_signature(tenancy, lambda: destroy_volume(tenancy.context, "data"))

        assert [v.id for v in tenant.stage.world.volumes()] == [volume.volume_id]
        told = await tenancy.list_leases()
        assert any("its end was cut short" in words for words in told.alarms)
        with pytest.raises(Refused, match="as its provider says"):
            await destroy_volume(tenancy.context, "data")
