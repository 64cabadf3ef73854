"""What is particular to Vast.ai, against its rehearsal: its traps, and what they cost in dollars."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest
from arranged import a_volume, leave_to_end, never_used
from contract.staged import Staged, on_stage

from gpu_tenant.domain.errors import (
    BadRequest,
    CredentialRefused,
    NoCapacity,
    NoFunds,
    PriceMoved,
    ProviderSilent,
    ProviderTrouble,
)
from gpu_tenant.domain.model import Box, BoxState, Lease, LeaseState, SshAddress
from gpu_tenant.domain.offers import USD_STEP, Wish
from gpu_tenant.domain.order import Order
from gpu_tenant.domain.ports import Growing, Storing, VolumeMarket
from gpu_tenant.emulators.vastai import market
from gpu_tenant.emulators.world import KEY
from gpu_tenant.providers.vastai.connector import VastConnector

ONE = "/api/v0/instances/"
ORDER = {
    "client_id": "me",
    "image": "pytorch/pytorch:2.4.0",
    "disk": 40,
    "label": "by-hand",
    "price": None,
    "runtype": "ssh_direc ssh_proxy",
    "cancel_unavail": False,
}
DISK_USD_H = Decimal("0.12") * 40 / 720
"""40 GB on the host that the cheapest plain offer is on."""
GPU_USD_H, BID_USD_H = Decimal("0.22"), Decimal("0.10")


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    with on_stage("vastai", tmp_path) as stage:
        yield stage


@pytest.fixture
def vast(staged: Staged) -> VastConnector:
    assert isinstance(staged.connector, VastConnector)
    return staged.connector


def ask(
    staged: Staged, method: str, path: str, body: object = None, *, key: str = KEY
) -> httpx2.Response:
    """The answer to another client of the account, which never comes too soon."""
    staged.wait(15)
    with httpx2.Client(base_url=staged.stage.url, trust_env=False) as client:
        return client.request(method, path, json=body, headers={"Authorization": f"Bearer {key}"})


def standing(intent: Lease, box: Box) -> Lease:
    return intent.model_copy(update={"box_id": box.id, "state": LeaseState.ACTIVE})


async def rented(staged: Staged, vast: VastConnector) -> tuple[Lease, Box]:
    """A box that runs, and its lease."""
    intent = await staged.intent(gpu="RTX 3090")
    await vast.create(intent)
    box = await staged.ready(intent)
    return standing(intent, box), box


async def bid_intent(staged: Staged, vast: VastConnector, name: str = "aaaa") -> Lease:
    """A lease that wants an interruptible box."""
    intent = await staged.intent(name, gpu="RTX 3090")
    (offer,) = await vast.offers(Wish(gpu="RTX 3090", interruptible="yes"))
    assert intent.quote is not None
    quote = intent.quote.model_copy(update={"offer": offer})
    return intent.model_copy(update={"quote": quote})


async def seen(vast: VastConnector) -> Box:
    (box,) = await vast.list_boxes()
    return box


def billed(staged: Staged) -> dict[str, Decimal]:
    return {name: Decimal(usd) for name, usd in staged.meter["by_component"].items()}


def near(usd: Decimal, expected: Decimal) -> bool:
    return abs(usd - expected) < Decimal("0.000002")


# What a search shows


@pytest.mark.parametrize(
    ("wish", "found"),
    [
        ({"vram_gib": 80}, {"A100 SXM 80GB", "H100 SXM"}),
        ({"vram_gib": 24, "region": "oregon"}, {"RTX 4090"}),
        ({"region": "Iceland"}, {"RTX 3060"}),
        ({"host": "vastai:41"}, {"RTX 4090"}),
        ({"host": "vastai:2290"}, {"RTX 3060"}),
    ],
)
async def test_what_fits_is_found_behind_any_number_of_cheaper_offers(
    staged: Staged, vast: VastConnector, wish: dict[str, object], found: set[str]
) -> None:
    staged.fault("crowded")

    offers = await vast.offers(Wish.model_validate(wish))

    assert {offer.gpu for offer in offers} == found


async def test_offers_of_one_price_fill_a_page_and_hide_nothing(
    staged: Staged, vast: VastConnector
) -> None:
    cheap = {**market.CHEAP, "dph_base": "0.05"}
    day = [
        {**cheap, "id": n, "machine_id": n, "geolocation": "Brno, CZ", "since": 0, "until": 1e12}
        for n in range(1, 81)
    ]
    day.append({**day[0], "id": 81, "dph_base": "0.06", "geolocation": "Iceland"})
    staged.stage.world.state.facts["market_day"] = day

    (offer,) = await vast.offers(Wish(region="iceland"))

    assert offer.id == "81"


async def test_a_search_that_shows_no_end_is_no_proof_that_nothing_fits(
    staged: Staged, vast: VastConnector
) -> None:
    staged.fault("crowded", amount=4000)

    with pytest.raises(ProviderSilent, match="name a GPU"):
        await vast.offers(Wish(region="Atlantis"))


async def test_filters_that_the_provider_does_not_apply_are_applied_here(
    staged: Staged, vast: VastConnector
) -> None:
    strict = {offer.id for offer in await vast.offers(Wish(gpu="RTX 4090", disk_gb=400))}
    staged.fault("loose_filters")

    loose = {offer.id for offer in await vast.offers(Wish(gpu="RTX 4090", disk_gb=400))}

    assert loose == strict == {"9001"}


@pytest.mark.parametrize(
    "told",
    [
        {"direct_port_count": 0},
        {"disk_space": 12},
        {"duration": 1200},
        {"rentable": False},
        {"rented": True},
        {"num_gpus": 2},
        {"cuda_max_good": 12.1},
        {"gpu_ram": 8000},
        {"verification": "unverified"},
    ],
    ids=str,
)
async def test_a_row_that_does_not_fit_is_no_offer_whatever_was_asked_for(
    staged: Staged, vast: VastConnector, told: dict[str, object]
) -> None:
    body = {"type": "on-demand", "gpu_name": {"eq": "RTX 3090"}}
    (row,) = ask(staged, "POST", "/api/v0/bundles/", body).json()["offers"]
    row |= {"verification": "verified"}
    wish = Wish(
        gpu="RTX 3090", vram_gib=20, trust="verified", order=Order(cuda="12.4"), disk_gb=100
    )
    for change, fits in (({}, True), (told, False)):
        answer = {"offers": [{**row, **change}]}
        staged.fault("status", "POST", "/bundles/", status=200, body=answer)

        assert bool(await vast.offers(wish)) is fits


async def test_the_memory_of_a_part_of_a_machine_is_that_part(
    staged: Staged, vast: VastConnector
) -> None:
    (offer,) = await vast.offers(Wish(gpu="RTX 3090"))

    assert offer.ram_gib == 128000 / 1024 * 16 / 64


# What it costs


async def test_loading_bills_the_disk_and_not_the_gpu(staged: Staged, vast: VastConnector) -> None:
    box = await vast.create(await staged.intent(gpu="RTX 3090"))
    staged.wait(80 - (staged.stage.world.now - staged.stage.world.things()[0].created_at))

    assert (await seen(vast)).state is BoxState.BOOTING
    assert box.price_usd_h == DISK_USD_H.quantize(Decimal("0.0001"))
    assert box.running_usd_h == (GPU_USD_H + DISK_USD_H).quantize(Decimal("0.0001")), (
        "what is to come"
    )
    assert set(billed(staged)) == {"disk"}


async def test_an_hour_of_running_is_an_hour_of_gpu_and_of_disk(
    staged: Staged, vast: VastConnector
) -> None:
    await rented(staged, vast)
    before = billed(staged)

    staged.wait(3600)

    after = billed(staged)
    assert near(after["gpu"] - before.get("gpu", Decimal(0)), GPU_USD_H)
    assert near(after["disk"] - before["disk"], DISK_USD_H)


async def test_a_parked_day_is_a_day_of_disk(staged: Staged, vast: VastConnector) -> None:
    lease, _ = await rented(staged, vast)
    await vast.park(lease)
    before = Decimal(staged.meter["billed_usd"])

    staged.wait(86400)

    assert near(Decimal(staged.meter["billed_usd"]) - before, 24 * DISK_USD_H)


async def test_bytes_are_billed_in_both_directions_as_offered(
    staged: Staged, vast: VastConnector
) -> None:
    lease, _ = await rented(staged, vast)
    assert lease.quote is not None
    price = lease.quote.offer.price
    assert price.upload_usd_gb is not None
    assert price.download_usd_gb is not None

    staged.fault("traffic", amount=100)

    assert billed(staged)["bytes"] == 100 * (price.upload_usd_gb + price.download_usd_gb)


async def test_a_host_that_is_offline_bills_nothing_and_is_unknown_and_not_gone(
    staged: Staged, vast: VastConnector
) -> None:
    await rented(staged, vast)

    staged.fault("host_lost")

    box = await seen(vast)
    assert (box.state, box.address) == (BoxState.UNKNOWN, None)
    assert staged.billing_usd_h == 0


async def test_a_container_that_ended_by_itself_is_broken_and_its_disk_bills(
    staged: Staged, vast: VastConnector
) -> None:
    await rented(staged, vast)

    staged.fault("exited")

    box = await seen(vast)
    assert box.state is BoxState.BROKEN
    assert "the container is not running" in (box.words or "")
    assert near(staged.billing_usd_h, DISK_USD_H)


@pytest.mark.parametrize(
    ("fault", "why"),
    [("image_not_found", "pull access denied"), ("cannot_start", "OCI runtime create failed")],
)
async def test_a_box_that_can_never_start_is_broken_in_its_provider_s_words(
    staged: Staged, vast: VastConnector, fault: str, why: str
) -> None:
    staged.fault(fault)
    await vast.create(await staged.intent(gpu="RTX 3090"))
    staged.wait(60)

    box = await seen(vast)

    assert box.state is BoxState.BROKEN
    assert why in (box.words or "")


@pytest.mark.parametrize("told", ["pulling layer 3 of 9", "Error: slow \x1b[31mregistry"])
async def test_what_is_said_of_a_box_that_boots_is_shown_and_ends_no_wait(
    staged: Staged, vast: VastConnector, told: str
) -> None:
    await vast.create(await staged.intent(gpu="RTX 3090"))
    staged.stage.world.things()[0].facts["message"] = told
    staged.wait(30)

    box = await seen(vast)

    assert box.state is BoxState.BOOTING
    assert told.split()[-1].removeprefix("\x1b[31m") in (box.words or "")
    assert "\x1b" not in (box.words or "")


@pytest.mark.parametrize("price", [None, "0.44", {"usd": 1}], ids=str)
async def test_a_price_that_cannot_be_read_is_unknown_and_said_to_be(
    staged: Staged, vast: VastConnector, price: object
) -> None:
    await rented(staged, vast)
    answer = ask(staged, "GET", "/api/v1/instances/").json()
    answer["instances"][0]["instance"] = {"totalHour": price}
    staged.fault("status", "GET", "/api/v1/instances/$", status=200, body=answer)

    box = await seen(vast)

    assert (box.state, box.price_usd_h) == (BoxState.READY, None)
    assert "does not tell its price" in (box.words or "")


async def test_a_running_box_without_a_port_says_so(staged: Staged, vast: VastConnector) -> None:
    staged.fault("no_address")
    await vast.create(await staged.intent(gpu="RTX 3090"))
    staged.wait(200)

    box = await seen(vast)

    assert (box.state, box.address) == (BoxState.READY, None)
    assert "no port of its own for ssh" in (box.words or "")


async def test_a_box_that_starts_again_is_called_exited_for_a_while(
    staged: Staged, vast: VastConnector
) -> None:
    lease, _ = await rented(staged, vast)
    await vast.park(lease)

    await vast.resume(lease)

    box = await seen(vast)
    assert "for up to 10 min after a start" in (box.words or "")
    assert (await staged.ready(lease)).state is BoxState.READY


async def test_a_stopped_box_is_parked_although_its_container_reads_as_a_dead_one_s(
    staged: Staged, vast: VastConnector
) -> None:
    lease, box = await rented(staged, vast)

    await vast.park(lease)

    row = ask(staged, "GET", f"{ONE}{box.id}/?owner=me").json()["instances"]
    assert (row["actual_status"], row["cur_state"]) == ("exited", "stopped")
    assert (await seen(vast)).state is BoxState.PARKED


async def test_a_rental_that_ended_is_stopped_cannot_start_and_is_deleted_two_days_later(
    staged: Staged, vast: VastConnector
) -> None:
    lease, _ = await rented(staged, vast)

    staged.fault("end_date")

    box = await seen(vast)
    assert box.state is BoxState.PARKED
    assert "its rental has ended" in (box.words or "")
    with pytest.raises(ProviderTrouble, match="expired"):
        await vast.resume(lease)
    before = Decimal(staged.meter["billed_usd"])
    staged.wait(48 * 3600)
    assert near(Decimal(staged.meter["billed_usd"]) - before, 48 * DISK_USD_H)
    assert await vast.list_boxes() == []


async def test_without_credit_all_is_stopped_and_nothing_is_rented(
    staged: Staged, vast: VastConnector
) -> None:
    lease, _ = await rented(staged, vast)
    another = await staged.intent("bbbb")

    staged.fault("balance_zero")

    assert (await seen(vast)).state is BoxState.PARKED
    assert near(staged.billing_usd_h, DISK_USD_H)
    with pytest.raises(NoFunds, match="lacks credit"):
        await vast.create(another)
    with pytest.raises(NoFunds, match="lacks credit"):
        await vast.resume(lease)


async def test_money_that_runs_out_by_itself_stops_everything_too(
    staged: Staged, vast: VastConnector
) -> None:
    await rented(staged, vast)
    staged.stage.world.state.balance_usd = Decimal(1)

    staged.wait(5 * 3600)

    assert (await seen(vast)).state is BoxState.PARKED


async def test_without_a_card_to_go_on_charging_all_is_destroyed(
    staged: Staged, vast: VastConnector
) -> None:
    await rented(staged, vast)

    staged.fault("balance_zero", seconds=3600)
    staged.wait(3600)

    assert await vast.list_boxes() == []


# Bids


async def test_a_bid_rents_an_interruptible_box_at_what_was_bid(
    staged: Staged, vast: VastConnector
) -> None:
    intent = await bid_intent(staged, vast)

    await vast.create(intent)
    box = await staged.ready(intent)

    assert box.interruptible
    assert box.price_usd_h == (BID_USD_H + DISK_USD_H).quantize(Decimal("0.0001"))
    assert near(staged.billing_usd_h, BID_USD_H + DISK_USD_H)


async def test_a_bid_that_was_lost_on_the_way_is_seen_as_the_firm_price_it_became(
    staged: Staged, vast: VastConnector
) -> None:
    intent = await bid_intent(staged, vast)
    ask(staged, "PUT", "/api/v0/asks/9004/", {**ORDER, "label": intent.mark})

    box = await vast.create(intent)

    assert intent.quote is not None
    assert intent.quote.offer.interruptible
    assert not box.interruptible
    assert box.running_usd_h is not None
    assert box.running_usd_h > intent.quote.offer.price.running_usd_h  # type: ignore[operator]


async def test_no_bid_goes_above_the_cap(staged: Staged, vast: VastConnector) -> None:
    intent = await bid_intent(staged, vast)
    assert intent.quote is not None
    quote = intent.quote.model_copy(update={"cap_usd_h": BID_USD_H})

    with pytest.raises(PriceMoved):
        await vast.create(intent.model_copy(update={"quote": quote}))

    assert staged.alive == []
    assert not [line for line in staged.ask("requests") if line["method"] == "PUT"]


async def test_a_bid_at_the_cap_is_made_however_the_cap_was_rounded(
    staged: Staged, vast: VastConnector
) -> None:
    intent = await bid_intent(staged, vast)
    (offer,) = await vast.offers(Wish(offer="9001:bid"))
    assert intent.quote is not None
    quote = intent.quote.model_copy(update={"offer": offer, "cap_usd_h": offer.price.running_usd_h})

    box = await vast.create(intent.model_copy(update={"quote": quote}))

    assert box.running_usd_h == quote.cap_usd_h == Decimal("0.2083")


async def test_a_bid_that_has_become_too_low_leaves_nothing_behind(
    staged: Staged, vast: VastConnector
) -> None:
    intent = await bid_intent(staged, vast)
    staged.fault("price_moved", amount=1.5)

    with pytest.raises(NoCapacity):
        await vast.create(intent)

    assert staged.alive == []


def test_a_low_bid_by_hand_is_refused_and_its_stopped_box_bills_its_disk(staged: Staged) -> None:
    refused = ask(staged, "PUT", "/api/v0/asks/9004/", {**ORDER, "price": 0.05})

    assert refused.status_code == 400
    row = ask(staged, "GET", f"{ONE}{refused.json()['new_contract']}/").json()["instances"]
    assert (row["cur_state"], row["actual_status"], row["is_bid"]) == ("stopped", None, True)
    assert near(staged.billing_usd_h, DISK_USD_H)


async def test_a_box_that_an_error_tells_of_is_returned_for_giving_back(
    staged: Staged, vast: VastConnector
) -> None:
    intent = await bid_intent(staged, vast)
    staged.fault("created_despite_error", "PUT", "/asks/")

    box = await vast.create(intent)

    assert (box.state, box.mark) == (BoxState.PARKED, intent.mark)
    await vast.destroy(never_used(standing(intent, box)))
    assert (staged.alive, staged.billing_usd_h) == ([], 0)


async def test_an_outbid_box_says_so_and_bills_again_when_it_starts_by_itself(
    staged: Staged, vast: VastConnector
) -> None:
    intent = await bid_intent(staged, vast)
    await vast.create(intent)
    first = await staged.ready(intent)

    staged.fault("outbid", seconds=1800)

    box = await seen(vast)
    assert box.state is BoxState.PARKED
    assert "it may start again by itself, and bill" in (box.words or "")
    assert near(staged.billing_usd_h, DISK_USD_H)
    staged.wait(1800)
    back = await staged.ready(intent)
    assert back.address != first.address, "the port is another one"
    assert near(staged.billing_usd_h, BID_USD_H + DISK_USD_H)


# Parking


async def test_a_start_that_was_put_off_is_withdrawn_lest_it_happen_unseen(
    staged: Staged, vast: VastConnector
) -> None:
    lease, _ = await rented(staged, vast)
    await vast.park(lease)
    staged.fault("gpu_taken")

    with pytest.raises(NoCapacity, match="state change queued"):
        await vast.resume(lease)

    staged.fault("gpu_taken", amount=0)
    staged.wait(3600)
    assert (await seen(vast)).state is BoxState.PARKED
    await vast.resume(lease)
    assert (await staged.ready(lease)).price_usd_h is not None


async def test_a_start_that_somebody_else_left_queued_is_told(
    staged: Staged, vast: VastConnector
) -> None:
    lease, box = await rented(staged, vast)
    await vast.park(lease)
    staged.fault("gpu_taken")

    ask(staged, "PUT", f"{ONE}{box.id}/", {"state": "running"})

    told = await seen(vast)
    assert (told.state, "waits for its GPU" in (told.words or "")) == (BoxState.PARKED, True)


# Renting


async def test_our_key_goes_with_the_order_and_to_the_box_and_not_to_the_account(
    staged: Staged, vast: VastConnector
) -> None:
    await vast.create(await staged.intent())

    sent = {
        (line["method"], line["path"].rstrip("0123456789/")): line["body"]
        for line in staged.ask("requests")
    }
    key = next(body["ssh_key"] for body in sent.values() if body and "ssh_key" in body)
    assert key.startswith("ssh-ed25519 ")
    assert key in sent["PUT", "/api/v0/asks"]["onstart"]
    assert sent["PUT", "/api/v0/asks"]["cancel_unavail"] is True
    assert ask(staged, "GET", "/api/v0/ssh/").json() == []


async def test_a_key_that_could_not_be_attached_says_that_the_box_exists(
    staged: Staged, vast: VastConnector
) -> None:
    intent = await staged.intent()
    staged.fault("status", "POST", "/ssh/", status=429, headers={"Retry-After": "3600"})

    with pytest.raises(ProviderSilent, match=r"made instance \d+"):
        await vast.create(intent)

    assert [box.mark for box in await vast.list_boxes()] == [intent.mark]


@pytest.mark.parametrize("status", [200, 400, 403, 409, 500])
async def test_a_box_s_own_key_never_leaves_the_connector(
    staged: Staged, vast: VastConnector, status: int
) -> None:
    intent = await staged.intent()
    staged.fault(
        "status",
        "PUT",
        "/asks/",
        status=status,
        body={"success": False, "instance_api_key": "ik-1"},
    )

    with pytest.raises(ProviderTrouble) as told:
        await vast.create(intent)

    assert "ik-1" not in f"{told.value!r} {told.value}"


async def test_a_200_without_a_box_is_unclear(staged: Staged, vast: VastConnector) -> None:
    intent = await staged.intent()
    staged.fault("status", "PUT", "/asks/", status=200, body={"success": True})

    with pytest.raises(ProviderSilent):
        await vast.create(intent)


async def test_a_box_without_a_port_of_its_own_has_no_address(
    staged: Staged, vast: VastConnector
) -> None:
    ask(staged, "PUT", "/api/v0/asks/9004/", {**ORDER, "runtype": "ssh_proxy"})
    staged.wait(600)

    box = await seen(vast)

    assert (box.state, box.address) == (BoxState.READY, None)


async def test_the_address_is_the_host_s_and_never_the_proxy_s(
    staged: Staged, vast: VastConnector
) -> None:
    _, box = await rented(staged, vast)

    assert isinstance(box.address, SshAddress)
    assert box.address.target.startswith("root@203.0.113.43:4")


# What is offered


async def test_what_ends_too_soon_or_cannot_be_reached_is_not_offered(
    staged: Staged, vast: VastConnector
) -> None:
    ids = {offer.id for offer in await vast.offers(Wish(gpu="RTX 4090"))}

    assert ids == {"9001", "9002"}
    lasting = await vast.offers(Wish(gpu="RTX 4090", hours=13 * 24))
    assert {offer.id for offer in lasting} == {"9001"}


async def test_any_of_the_gpus_of_a_wish_is_offered(staged: Staged, vast: VastConnector) -> None:
    either = await vast.offers(Wish(gpu="RTX 4090 | RTX 3090 / H100 SXM"))

    assert {offer.gpu for offer in either} == {"RTX 4090", "RTX 3090", "H100 SXM"}
    assert await vast.offers(Wish(gpu="Z900 Ultra")) == []


async def test_the_disk_of_the_wish_is_in_the_price(staged: Staged, vast: VastConnector) -> None:
    for gb in (8, 40, 400):
        (offer,) = await vast.offers(Wish(gpu="RTX 3090", disk_gb=gb))
        assert offer.price.gpu_usd_h == GPU_USD_H
        assert offer.price.disk_usd_h == (Decimal("0.12") * gb / 720).quantize(USD_STEP)
    assert await vast.offers(Wish(gpu="RTX 3090", disk_gb=501)) == []


async def test_a_wish_for_either_kind_shows_firm_prices_and_bids(
    staged: Staged, vast: VastConnector
) -> None:
    offers = await vast.offers(Wish(gpu="RTX 3090", interruptible="either"))

    shown = {offer.id: (offer.interruptible, offer.price.gpu_usd_h) for offer in offers}
    assert shown == {"9004": (False, GPU_USD_H), "9004:bid": (True, BID_USD_H)}
    (again,) = await vast.offers(Wish(offer="9004:bid"))
    assert again.interruptible
    assert await vast.offers(Wish(offer="9004:bid; rm")) == []


async def test_one_name_for_two_sizes_is_told_apart_by_memory(
    staged: Staged, vast: VastConnector
) -> None:
    offers = await vast.offers(Wish())

    sizes = {(offer.gpu, offer.vram_gib) for offer in offers}
    assert ("A100 PCIe 40GB", 40) in sizes
    assert ("A100 SXM 80GB", 80) in sizes
    assert ("H100 SXM", 80) in sizes
    assert await vast.offers(Wish(gpu="A100 PCIe 80GB")) == []
    assert {o.gpu for o in await vast.offers(Wish(vram_gib=80))} == {"A100 SXM 80GB", "H100 SXM"}


@pytest.mark.parametrize(
    ("wish", "ids"),
    [
        (Wish(trust="verified", gpu="RTX 4090"), {"9001"}),
        (Wish(trust="datacenter"), {"9005", "9007"}),
        (Wish(region="hanoi"), {"9002"}),
        (Wish(gpu="H100 SXM", gpu_count=8), {"9006"}),
    ],
)
async def test_whose_machine_it_is_where_and_how_many_is_as_wished(
    vast: VastConnector, wish: Wish, ids: set[str]
) -> None:
    offers = await vast.offers(wish)

    assert {offer.id for offer in offers} == ids
    assert wish.trust == "any" or {offer.trust for offer in offers} == {wish.trust}


# Keys, and how often one may ask


async def test_a_404_about_the_key_is_no_absence(staged: Staged, vast: VastConnector) -> None:
    lease, _ = await rented(staged, vast)
    staged.fault("auth_404", "", "/(instances|volumes|bundles)", times=20)

    for call in (vast.leftovers(), vast.list_boxes(), vast.offers(Wish()), vast.park(lease)):
        with pytest.raises(CredentialRefused):
            await call


def test_a_bad_key_is_401_and_on_billing_endpoints_404(staged: Staged) -> None:
    answers = [
        ask(staged, "GET", path, key="wrong").status_code
        for path in ("/api/v1/instances/", "/api/v0/charges/")
    ]

    assert answers == [401, 404]


async def test_a_box_s_own_key_ends_that_box_and_does_nothing_else(
    staged: Staged, vast: VastConnector
) -> None:
    one, other = (ask(staged, "PUT", "/api/v0/asks/9004/", ORDER).json() for _ in range(2))
    key = one["instance_api_key"]

    assert ask(staged, "GET", "/api/v1/instances/", key=key).status_code == 401
    assert ask(staged, "DELETE", f"{ONE}{other['new_contract']}/", {}, key=key).status_code == 401
    assert ask(staged, "DELETE", f"{ONE}{one['new_contract']}/", {}, key=key).json()["success"]
    assert staged.alive == [str(other["new_contract"])]


async def test_calls_are_as_far_apart_as_the_provider_wants_them(
    staged: Staged, vast: VastConnector
) -> None:
    intents = [await staged.intent(name) for name in ("aaaa", "bbbb", "cccc")]

    boxes = [await vast.create(intent) for intent in intents]
    for intent, box in zip(intents, boxes, strict=True):
        await vast.destroy(never_used(standing(intent, box)))

    lines = staged.ask("requests")
    assert {line["status"] for line in lines} == {200}, "none came too soon"
    for method, apart_s in (("PUT", 4.5), ("DELETE", 3.0)):
        times = [line["at"] for line in lines if line["method"] == method]
        assert all(b - a >= apart_s for a, b in pairwise(times))


async def test_whoever_comes_too_soon_is_told_in_plain_text_and_waits(
    staged: Staged, vast: VastConnector
) -> None:
    ask(staged, "GET", "/api/v1/instances/")

    assert list(await vast.list_boxes()) == []

    assert [line["status"] for line in staged.ask("requests")] == [200, 429, 200]


async def test_a_create_that_came_too_soon_is_sent_again_and_rents_one_box(
    staged: Staged, vast: VastConnector
) -> None:
    intent = await staged.intent()
    ask(staged, "PUT", "/api/v0/asks/9001/", ORDER)

    box = await vast.create(intent)

    assert 429 in [line["status"] for line in staged.ask("requests")]
    assert [b.id for b in await vast.list_boxes() if b.mark == intent.mark] == [box.id]


async def test_a_row_that_is_lost_at_the_end_of_a_page_is_missed(
    staged: Staged, vast: VastConnector
) -> None:
    await rented(staged, vast)
    staged.fault("page_boundary", "GET", "/instances/$", amount=1)

    with pytest.raises(ProviderSilent, match="0 of 1"):
        await vast.list_boxes()


async def test_a_volume_outlives_its_box_and_is_shown_when_nothing_uses_it(
    staged: Staged, vast: VastConnector
) -> None:
    mounted = {"create_new": True, "volume_id": 77, "size": 30, "mount_path": "/data"}
    made = ask(staged, "PUT", "/api/v0/asks/9001/", {**ORDER, "volume_info": mounted}).json()
    assert list(await vast.leftovers()) == []

    ask(staged, "DELETE", f"{ONE}{made['new_contract']}/", {})

    (left,) = await vast.leftovers()
    assert (left.size_gb, left.usd_month) == (30, Decimal("3.00"))


async def test_a_delete_that_is_accepted_and_does_nothing_goes_on_billing(
    staged: Staged, vast: VastConnector
) -> None:
    lease, box = await rented(staged, vast)
    staged.fault("stuck_termination")

    await vast.destroy(never_used(lease))

    assert (await seen(vast)).id == box.id
    staged.fault("stuck_termination", amount=0)
    assert (await vast.list_boxes(), staged.billing_usd_h) == ([], 0)


# Volumes


MACHINE = "43"
"""That of the cheapest plain offer."""


async def test_a_volume_is_made_once_from_its_machine_s_offer_at_its_host_s_price(
    staged: Staged, vast: VastConnector
) -> None:
    assert isinstance(vast, Storing)
    assert isinstance(vast, VolumeMarket)
    assert not isinstance(vast, Growing), "its size is fixed"
    wanted = a_volume("vastai", MACHINE)

    told = await vast.ask_volume_usd_month(50, MACHINE)
    made = await vast.create_volume(wanted)
    again = await vast.create_volume(wanted)
    (listed,) = await vast.list_volumes()

    assert made.id == again.id == listed.id
    assert told == made.usd_month == Decimal("6.0000")
    assert (listed.name, listed.region, listed.size_gb) == (wanted.mark, MACHINE, 50)
    assert (listed.usd_month, listed.boxes, listed.going) == (Decimal("6.00"), (), None)
    (thing,) = staged.stage.world.volumes()
    assert thing.name == "gpu_tenant_0a1b2c_vol_abcd", "a name has no other letters there"
    assert near(staged.billing_usd_h, Decimal(6) / 720)


async def test_only_boxes_on_the_volume_s_machine_are_offers_and_have_it(
    staged: Staged, vast: VastConnector
) -> None:
    made = await vast.create_volume(a_volume("vastai", MACHINE))
    mount = a_volume("vastai", MACHINE, volume_id=made.id).attachable("/data")
    offers = await vast.offers(Wish(volumes=(mount,), interruptible="either"))
    assert {offer.host for offer in offers} == {MACHINE}
    assert len(offers) == 2

    box = await vast.create(await staged.intent(volumes=(mount,)))

    sent = [line["body"] for line in staged.ask("requests") if "/asks/" in line["path"]]
    assert sent[-1]["volume_info"] == {
        "mount_path": "/data",
        "create_new": False,
        "volume_id": int(made.id),
    }
    (listed,) = await vast.list_volumes()
    assert listed.boxes == (box.id,)
    assert list(await vast.leftovers()) == []
    two = [mount, mount.model_copy(update={"name": "other"})]
    assert vast.refused_volumes(two) == "Vast.ai mounts one volume on an instance"


async def test_a_volume_that_an_instance_has_is_not_deleted_whoever_permits_it(
    staged: Staged, vast: VastConnector
) -> None:
    made = await vast.create_volume(a_volume("vastai", MACHINE))
    permit = leave_to_end(a_volume("vastai", MACHINE, volume_id=made.id))
    box = staged.stage.rent_by_hand(made.id)

    with pytest.raises(ProviderTrouble, match="used by an instance"):
        await vast.destroy_volume(permit)
    staged.stage.end_by_hand(box)
    assert len(staged.stage.world.volumes()) == 1, "its box is gone, and it stays"
    staged.wait(60)
    await vast.destroy_volume(permit)
    await vast.destroy_volume(permit)

    assert list(await vast.list_volumes()) == []
    assert staged.billing_usd_h == 0


async def test_a_machine_without_room_and_a_region_that_is_no_machine_are_told(
    staged: Staged, vast: VastConnector
) -> None:
    with pytest.raises(NoCapacity, match="the machine 42 offers no room"):
        await vast.create_volume(a_volume("vastai", "42"))
    with pytest.raises(NoCapacity, match="of 5000 GB"):
        await vast.ask_volume_usd_month(5000, MACHINE)
    with pytest.raises(BadRequest, match="is a machine"):
        await vast.create_volume(a_volume("vastai", "Oregon"))

    assert staged.stage.world.volumes() == []


async def test_a_volume_whose_price_has_risen_is_not_made(
    staged: Staged, vast: VastConnector
) -> None:
    agreed = a_volume("vastai", MACHINE).model_copy(update={"usd_month": Decimal("5.99")})

    with pytest.raises(PriceMoved, match=r"6\.0000 USD a month now"):
        await vast.create_volume(agreed)

    assert staged.stage.world.volumes() == []


async def test_a_404_about_the_key_is_no_absence_of_a_volume(
    staged: Staged, vast: VastConnector
) -> None:
    made = await vast.create_volume(a_volume("vastai", MACHINE))
    staged.fault("auth_404", "DELETE", "/volumes", times=20)

    with pytest.raises(CredentialRefused):
        await vast.destroy_volume(leave_to_end(a_volume("vastai", MACHINE, volume_id=made.id)))

    assert len(staged.stage.world.volumes()) == 1


async def test_a_volume_whose_host_s_listing_ends_soon_is_told(
    staged: Staged, vast: VastConnector
) -> None:
    await vast.create_volume(a_volume("vastai", MACHINE))
    staged.wait(84 * 86_400)

    (listed,) = await vast.list_volumes()

    assert listed.going is not None
    assert "its host's listing ends at" in listed.going


async def test_a_list_of_volumes_that_hides_who_has_them_proves_nothing(
    staged: Staged, vast: VastConnector
) -> None:
    rows: tuple[dict[str, object], ...] = (
        {"id": None, "instances": []},
        {"id": 5, "instances": "none"},
    )
    for row in rows:
        staged.fault("status", "GET", "/volumes", status=200, body={"volumes": [row]}, times=1)
        with pytest.raises(ProviderSilent):
            await vast.list_volumes()
