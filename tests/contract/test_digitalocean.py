"""What is particular to DigitalOcean: lists that hide GPU Droplets, power-off at full price, pages, words."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from arranged import a_volume, leave_to_end, never_used
from azure.core.exceptions import HttpResponseError
from contract.openapi import validate, validate_request
from contract.staged import Staged, on_stage
from pydo import Client

from gpu_tenant.domain.errors import (
    NoCapacity,
    NoQuota,
    ProviderSilent,
    ProviderTrouble,
    RateLimited,
)
from gpu_tenant.domain.model import BoxState, Lease, LeaseState, SshAddress
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.permit import TeardownPermit
from gpu_tenant.domain.ports import Growing, Market, Residue, Storing
from gpu_tenant.emulators.world import KEY

SPEC = "digitalocean"
USD_H = Decimal("0.76")
"""What the cheapest offer on stage costs."""


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    with on_stage("digitalocean", tmp_path) as stage:
        yield stage


@pytest.fixture
def pydo(staged: Staged) -> Client:
    """The provider's own client, on this stage."""
    return Client(KEY, endpoint=staged.stage.url)


LOOSE: dict[str, Any] = {"enforce_https": False}
"""Its bearer token would not go over plain http, also not to this computer."""


async def rented(staged: Staged, name: str = "aaaa") -> tuple[Lease, TeardownPermit]:
    """A lease whose box was just made, and leave to destroy it."""
    intent = await staged.intent(name)
    made = await staged.connector.create(intent)
    standing = intent.model_copy(update={"box_id": made.id, "state": LeaseState.ACTIVE})
    return standing, never_used(standing)


def sent(staged: Staged, method: str, path: str) -> list[dict[str, Any]]:
    return [r for r in staged.ask("requests") if (r["method"], r["path"]) == (method, path)]


def api(
    staged: Staged, method: str, path: str, body: object = None, *, key: str = KEY
) -> tuple[int, Any]:
    """The status and the body that anybody's client would get."""
    request = Request(
        staged.stage.url + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}"},
        method=method,
    )
    try:
        with urlopen(request, timeout=120) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


# Lists


async def test_a_plain_list_hides_gpu_droplets_and_ours_asks_for_them(staged: Staged) -> None:
    intent, _ = await rented(staged)

    _, plain = api(staged, "GET", "/v2/droplets?per_page=200")
    _, tagged = api(staged, "GET", f"/v2/droplets?tag_name={intent.mark}")

    assert plain["droplets"] == tagged["droplets"] == []
    assert [box.mark for box in await staged.connector.list_boxes()] == [intent.mark]
    asked = {request["query"] for request in sent(staged, "GET", "/v2/droplets")}
    assert "type=gpus&per_page=200&page=1" in asked


async def test_a_larger_page_than_the_largest_is_cut_to_it(staged: Staged) -> None:
    for _ in range(201):
        staged.fault("foreign_box")

    _, page = api(staged, "GET", "/v2/droplets?type=gpus&per_page=500")

    assert (len(page["droplets"]), page["meta"]["total"]) == (200, 201)


async def test_several_names_make_as_many_droplets(staged: Staged) -> None:
    await rented(staged)
    (key,) = staged.stage.world.things("key")
    order = {
        "names": ["one", "two"],
        "region": "nyc2",
        "size": "gpu-h100x1-80gb",
        "image": "gpu-h100x1-base",
        "ssh_keys": [int(key.id)],
    }

    _, made = api(staged, "POST", "/v2/droplets", order)
    staged.wait(100)

    assert [droplet["name"] for droplet in made["droplets"]] == ["one", "two"]
    assert len(made["links"]["actions"]) == 2
    _, listed = api(staged, "GET", "/v2/droplets?type=gpus")
    statuses = {droplet["name"]: droplet["status"] for droplet in listed["droplets"]}
    assert (len(statuses), statuses["one"], statuses["two"]) == (3, "active", "active")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v2/no/such"), ("PUT", "/v2/droplets"), ("GET", "/")]
)
async def test_where_there_is_nothing_the_api_says_so_in_its_own_form(
    staged: Staged, method: str, path: str
) -> None:
    assert api(staged, method, path, key="another")[0] == 401
    status, said = api(staged, method, path)

    assert (status, said["id"]) == (404, "not_found")


async def test_a_type_and_a_tag_together_are_refused(staged: Staged) -> None:
    status, said = api(staged, "GET", "/v2/droplets?type=gpus&tag_name=web")

    assert (status, said["id"]) == (422, "unprocessable_entity")


async def test_every_page_is_read(staged: Staged) -> None:
    for _ in range(401):
        staged.fault("foreign_box")

    boxes = await staged.connector.list_boxes()

    assert len({box.id for box in boxes}) == 401
    pages = [request["query"] for request in sent(staged, "GET", "/v2/droplets")]
    assert [page.rpartition("=")[2] for page in pages] == ["1", "2", "3"]


@pytest.mark.parametrize("way", [0, 1, 2], ids=["no next page", "itself as the next page", "500"])
async def test_a_list_that_does_not_go_on_is_silence(staged: Staged, way: int) -> None:
    for _ in range(4):
        staged.fault("foreign_box")
    staged.fault("page_boundary", "GET", "/droplets$", amount=way, times=9)

    with pytest.raises(ProviderSilent):
        await staged.connector.list_boxes()


async def test_a_box_on_two_pages_is_silence(staged: Staged) -> None:
    staged.fault("foreign_box")
    _, page = api(staged, "GET", "/v2/droplets?type=gpus")
    twice = {**page, "droplets": page["droplets"] * 2, "meta": {"total": 2}}
    staged.fault("status", "GET", "/droplets$", status=200, body=twice)

    with pytest.raises(ProviderSilent, match="two pages"):
        await staged.connector.list_boxes()


# Money


async def test_a_droplet_that_is_powered_off_bills_in_full(staged: Staged, pydo: Client) -> None:
    intent, _ = await rented(staged)
    await staged.ready(intent)

    pydo.droplet_actions.post(int(str(intent.box_id)), body={"type": "power_off"}, **LOOSE)

    (box,) = await staged.connector.list_boxes()
    assert (box.state, box.price_usd_h) == (BoxState.UNKNOWN, USD_H)
    assert "bills in full" in (box.words or "")
    before = Decimal(staged.meter["billed_usd"])
    staged.wait(3600)
    assert Decimal(staged.meter["billed_usd"]) - before == USD_H


async def test_the_meter_runs_from_creation_to_destruction_by_the_second(staged: Staged) -> None:
    _, permit = await rented(staged)

    staged.wait(1801)
    await staged.connector.destroy(permit)
    staged.wait(24 * 3600)

    assert abs(Decimal(staged.meter["billed_usd"]) - USD_H * 1801 / 3600) < Decimal("0.000001")


async def test_a_droplet_that_lived_a_second_costs_a_minute(staged: Staged) -> None:
    _, permit = await rented(staged)

    staged.wait(1)
    await staged.connector.destroy(permit)

    assert abs(Decimal(staged.meter["billed_usd"]) - USD_H / 60) < Decimal("0.000001")


async def test_volumes_and_snapshots_are_leftovers_and_an_unknown_price_is_none(
    staged: Staged,
) -> None:
    assert isinstance(staged.connector, Residue)
    staged.fault("leftover")
    staged.fault("snapshot")

    volume, snapshot = await staged.connector.leftovers()

    assert (volume.kind, volume.size_gb, volume.usd_month) == ("volume", 100, None)
    assert (snapshot.kind, snapshot.size_gb, snapshot.usd_month) == ("snapshot", 25, Decimal("1.5"))
    thing = staged.stage.world.state.things[volume.id]
    thing.facts["attached_to"] = "448543999"
    assert [left.kind for left in await staged.connector.leftovers()] == ["snapshot"]


# The end of a box


async def test_a_destroy_takes_one_droplet_and_nothing_that_belongs_to_it(staged: Staged) -> None:
    intent, permit = await rented(staged)
    staged.fault("leftover")
    staged.wait(60)

    await staged.connector.destroy(permit)

    deleted = [r for r in staged.ask("requests") if r["method"] == "DELETE"]
    assert [(r["path"], r["query"]) for r in deleted] == [(f"/v2/droplets/{intent.box_id}", "")]
    assert len(staged.meter["leaked"]) == 1


async def test_a_404_that_is_not_the_api_s_is_no_proof_of_absence(staged: Staged) -> None:
    intent, permit = await rented(staged)
    staged.fault("status", "DELETE", "/droplets/", status=404, body="<html>no route</html>")

    with pytest.raises(ProviderTrouble, match="404"):
        await staged.connector.destroy(permit)

    assert staged.alive == [intent.box_id]


async def test_the_last_calls_of_an_hour_are_kept_for_the_end_of_a_box(staged: Staged) -> None:
    _, permit = await rented(staged)
    staged.wait(60)
    staged.fault("allowance", amount=4)
    await staged.connector.list_boxes()

    with pytest.raises(RateLimited, match="kept for a teardown"):
        await staged.connector.list_boxes()
    await staged.connector.destroy(permit)

    staged.wait(60)
    assert staged.alive == []


async def test_more_than_a_minute_s_calls_wait_for_the_next(staged: Staged) -> None:
    for _ in range(250):
        api(staged, "GET", "/v2/account/keys")
    began = staged.clock.now()

    assert await staged.connector.list_boxes() == []

    assert (staged.clock.now() - began).total_seconds() > 50


# A create that is refused


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("Size is not available in this region.", NoCapacity),
        ("Region is not available", NoCapacity),
        ("size is unavailable", NoCapacity),
        ("creating this/these droplet(s) will exceed your droplet limit", NoQuota),
        ("The image you specified is not available in the selected region.", ProviderTrouble),
        ("This size is currently restricted. Please open a ticket.", NoQuota),
        ("GPU Droplets are not enabled for your account.", NoQuota),
        ("You specified an invalid size for Droplet creation.", ProviderTrouble),
    ],
)
async def test_a_create_is_refused_in_words_and_makes_no_box(
    staged: Staged, words: str, error: type[Exception]
) -> None:
    intent = await staged.intent()
    body = {"id": "unprocessable_entity", "message": words}
    staged.fault("status", "POST", "/droplets$", status=422, body=body)

    with pytest.raises(ProviderTrouble, match="422") as told:
        await staged.connector.create(intent)

    assert not isinstance(told.value, ProviderSilent)
    assert isinstance(told.value, error)
    assert error is not ProviderTrouble or not isinstance(told.value, NoCapacity | NoQuota)
    assert staged.alive == []


@pytest.mark.parametrize("status", [200, 302, 408, 409, 418])
async def test_a_create_that_is_answered_strangely_may_have_made_a_droplet(
    staged: Staged, status: int
) -> None:
    intent = await staged.intent()
    staged.fault("status", "POST", "/droplets$", status=status, body={"message": "odd"})

    with pytest.raises(ProviderSilent):
        await staged.connector.create(intent)


async def test_our_public_key_is_added_once_and_nobody_s_is_touched(staged: Staged) -> None:
    await rented(staged)
    await rented(staged, "bbbb")

    (added,) = sent(staged, "POST", "/v2/account/keys")
    assert added["body"]["name"].startswith("gpu-tenant-")
    (key,) = staged.stage.world.things("key")
    assert {str(box.facts["ssh_keys"]) for box in staged.stage.world.things()} == {f"[{key.id}]"}


async def test_the_first_create_of_an_account_waits_until_its_new_key_is_known(
    staged: Staged,
) -> None:
    await rented(staged)

    made = sent(staged, "POST", "/v2/droplets")
    assert [order["status"] for order in made] == [422] * (len(made) - 1) + [202]
    assert len({str(order["body"]) for order in made}) == 1, "the same order, with the same key"
    assert len(staged.alive) == 1


async def test_a_key_that_stays_unknown_ends_the_wait_and_makes_no_box(staged: Staged) -> None:
    intent = await staged.intent()
    words = "512001 are invalid key identifiers for Droplet creation."
    body = {"id": "unprocessable_entity", "message": words}
    staged.fault("status", "POST", "/droplets$", status=422, body=body, times=99)
    began = staged.clock.now()

    with pytest.raises(ProviderTrouble, match="invalid key identifiers"):
        await staged.connector.create(intent)

    assert 100 < (staged.clock.now() - began).total_seconds() < 180
    assert staged.alive == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (422, "Droplet already has a pending event."),
        (422, "The Droplet is locked by another action."),
        (409, "The resource is being changed."),
    ],
)
async def test_a_destroy_that_is_refused_for_now_is_asked_for_again(
    staged: Staged, status: int, words: str
) -> None:
    _, permit = await rented(staged)
    staged.wait(100)
    body = {"id": "unprocessable_entity", "message": words}
    staged.fault("status", "DELETE", "/droplets/", status=status, body=body, times=3)

    await staged.connector.destroy(permit)

    staged.wait(60)
    assert staged.alive == []


async def test_a_destroy_right_after_the_create_ends_the_meter(staged: Staged) -> None:
    _, permit = await rented(staged)

    await staged.connector.destroy(permit)

    staged.wait(60)
    assert staged.alive == []
    refused = [r["status"] for r in sent(staged, "DELETE", f"/v2/droplets/{permit.box_id}")]
    assert refused[0] == 422
    assert refused[-1] == 204


async def test_a_destroy_that_stays_refused_is_an_error_in_its_provider_s_words(
    staged: Staged,
) -> None:
    _, permit = await rented(staged)
    body = {"id": "unprocessable_entity", "message": "Droplet already has a pending event."}
    staged.fault("status", "DELETE", "/droplets/", status=422, body=body, times=99)

    with pytest.raises(ProviderTrouble, match="pending event"):
        await staged.connector.destroy(permit)


async def test_a_key_that_somebody_added_meanwhile_is_found(staged: Staged) -> None:
    await rented(staged)
    empty = {"ssh_keys": [], "links": {}, "meta": {"total": 0}}
    staged.fault("status", "GET", "/account/keys$", status=200, body=empty)
    another = staged.anew()
    assert another is not None

    await another.create(await staged.intent("bbbb"))

    assert [request["status"] for request in sent(staged, "POST", "/v2/account/keys")] == [201, 422]
    assert len(staged.alive) == 2


async def test_a_ready_box_is_reached_as_root_on_the_usual_port_and_its_public_address(
    staged: Staged,
) -> None:
    intent, _ = await rented(staged)

    box = await staged.ready(intent)

    assert isinstance(box.address, SshAddress)
    assert box.address.target.startswith("root@203.0.113.")
    assert ":" not in box.address.target


# What is offered


async def test_the_memory_is_that_of_one_gpu_and_the_price_that_of_all(staged: Staged) -> None:
    assert isinstance(staged.connector, Market)

    (eight,) = await staged.connector.offers(Wish(gpu="H100 SXM", gpu_count=8))
    (amd,) = await staged.connector.offers(Wish(gpu="MI300X"))
    one = await staged.connector.offers(Wish(gpu="H100 SXM", region="tor"))

    assert (eight.vram_gib, eight.price.gpu_usd_h) == (80, Decimal("23.92"))
    assert eight.id.endswith("@nyc2@gpu-h100x8-base")
    assert amd.id.endswith("@gpu-amd-base")
    assert [(offer.region, offer.vram_gib) for offer in one] == [("tor1", 80)]


async def test_a_size_without_a_region_or_without_a_gpu_is_no_offer(staged: Staged) -> None:
    assert isinstance(staged.connector, Market)

    offers = await staged.connector.offers(Wish())

    assert not [offer for offer in offers if offer.id.startswith(("s-", "gpu-6000ada"))]
    assert {offer.price.parked_usd_h for offer in offers} == {None}
    assert await staged.connector.offers(Wish(interruptible="yes")) == []


async def test_a_gpu_that_no_table_knows_passes_through(staged: Staged) -> None:
    assert isinstance(staged.connector, Market)
    _, page = api(staged, "GET", "/v2/sizes?per_page=200")
    (size,) = [size for size in page["sizes"] if size["slug"] == "gpu-mi300x1-192gb"]
    size["gpu_info"] |= {"model": "amd_mi999x", "vram": {"amount": 2048, "unit": "gib"}}
    staged.fault("status", "GET", "/sizes$", status=200, body=page)

    offers = {offer.gpu: offer for offer in await staged.connector.offers(Wish())}

    assert offers["amd_mi999x"].vram_gib == 2048


# The provider's own client, and its document


async def test_the_official_client_can_do_all_of_it(staged: Staged, pydo: Client) -> None:
    intent, _ = await rented(staged)
    await staged.ready(intent)
    number = int(str(intent.box_id))

    sizes = pydo.sizes.list(per_page=200, page=1, **LOOSE)["sizes"]
    listed = pydo.droplets.list(type="gpus", per_page=200, **LOOSE)["droplets"]
    shown = pydo.droplets.get(number, **LOOSE)["droplet"]
    (key,) = pydo.ssh_keys.list(**LOOSE)["ssh_keys"]
    body = {
        "name": "gt-1",
        "region": "nyc2",
        "size": "gpu-h100x1-80gb",
        "image": "gpu-h100x1-base",
        "ssh_keys": [key["fingerprint"]],
        "tags": ["gpu-tenant:abc"],
        "user_data": "#cloud-config",
    }
    made = pydo.droplets.create(body=body, **LOOSE)["droplet"]
    acted = pydo.droplet_actions.post(number, body={"type": "power_off"}, **LOOSE)["action"]

    assert "gpu-h100x1-80gb" in {size["slug"] for size in sizes}
    assert [droplet["id"] for droplet in listed] == [shown["id"]] == [number]
    assert shown["tags"] == [intent.mark]
    assert (made["status"], acted["status"]) == ("new", "completed")
    pydo.droplets.destroy(number, **LOOSE)
    pydo.droplets.destroy_by_tag(tag_name="gpu-tenant:abc", **LOOSE)
    staged.wait(60)
    assert staged.alive == []
    assert pydo.droplets.get(number, **LOOSE)["id"] == "not_found"
    with pytest.raises(HttpResponseError):
        pydo.droplets.list(type="gpus", tag_name="gpu-tenant:abc", **LOOSE)
    added = pydo.ssh_keys.create(body={"name": "k", "public_key": "ssh-ed25519 AAAA"}, **LOOSE)
    assert added["ssh_key"]["name"] == "k"
    balance = pydo.balance.get(**LOOSE)
    assert Decimal(balance["month_to_date_usage"]) > 0


async def test_what_we_send_is_what_the_document_asks_for(staged: Staged) -> None:
    await rented(staged)

    posted = [request for request in staged.ask("requests") if request["method"] == "POST"]

    assert {request["path"] for request in posted} == {"/v2/droplets", "/v2/account/keys"}
    for request in posted:
        validate_request(SPEC, "POST", request["path"], request["body"])


async def test_what_the_rehearsal_answers_is_what_the_document_says(staged: Staged) -> None:
    intent, _ = await rented(staged)
    (key,) = staged.stage.world.things("key")
    box = f"/v2/droplets/{intent.box_id}"
    order = {
        "name": "gt-1",
        "region": "nyc2",
        "size": "gpu-h100x1-80gb",
        "image": "gpu-h100x1-base",
        "ssh_keys": [int(key.id)],
        "tags": ["a:b"],
    }
    several = {name: said for name, said in order.items() if name != "name"}
    staged.wait(60)
    for fault in ("leftover", "snapshot", "foreign_box"):
        staged.fault(fault)
    asked: list[tuple[str, str, object, int]] = [
        ("GET", "/v2/sizes?per_page=200", None, 200),
        ("GET", box, None, 200),
        ("GET", "/v2/droplets/1", None, 404),
        ("GET", "/v2/droplets?type=gpus", None, 200),
        ("GET", "/v2/droplets?type=gpus&per_page=1", None, 200),
        ("GET", "/v2/droplets?type=gpus&per_page=1&page=2", None, 200),
        ("GET", "/v2/droplets?type=gpus&per_page=500", None, 200),
        ("GET", "/v2/droplets?type=gpus&per_page=0", None, 400),
        ("GET", "/v2/droplets?type=gpus&per_page=all", None, 400),
        ("POST", "/v2/droplets", order, 202),
        ("POST", "/v2/droplets", {**several, "names": ["gt-2", "gt-3"]}, 202),
        ("POST", "/v2/droplets", {**several, "names": []}, 422),
        ("POST", "/v2/droplets", {**several, "names": [f"gt-{n}" for n in range(11)]}, 422),
        ("POST", "/v2/droplets", {**several, "names": ["gt-4", "no such_name"]}, 422),
        ("POST", "/v2/droplets", several, 422),
        ("POST", "/v2/droplets", {**order, "region": "lon1"}, 422),
        ("POST", "/v2/droplets", {**order, "ssh_keys": [1]}, 422),
        ("GET", "/v2/account/keys", None, 200),
        ("POST", "/v2/account/keys", {"name": "k", "public_key": "ssh-ed25519 AAAA"}, 201),
        ("POST", "/v2/account/keys", {"name": "k", "public_key": key.facts["public_key"]}, 422),
        ("GET", "/v2/volumes", None, 200),
        ("POST", "/v2/volumes", {"name": "d", "size_gigabytes": 10, "region": "nyc2"}, 201),
        ("POST", "/v2/volumes", {"name": "d", "size_gigabytes": 10, "region": "nyc2"}, 409),
        ("POST", "/v2/volumes", {"name": "e", "size_gigabytes": 0, "region": "nyc2"}, 422),
        ("DELETE", "/v2/volumes/none", None, 404),
        ("GET", "/v2/snapshots", None, 200),
        ("GET", "/v2/customers/my/balance", None, 200),
        ("POST", f"{box}/actions", {"type": "power_on"}, 422),
        ("DELETE", box, None, 204),
        ("DELETE", "/v2/droplets/1", None, 404),
    ]

    for method, path, body, expected in asked:
        status, said = api(staged, method, path, body)
        assert status == expected, (method, path, said)
        validate(SPEC, method, path.partition("?")[0], status, said)

    staged.wait(100)
    status, said = api(staged, "GET", "/v2/droplets", key="another")
    assert status == 401
    validate(SPEC, "GET", "/v2/droplets", status, said)


# Volumes of ours


async def test_a_volume_is_made_once_and_attached_as_the_document_allows(staged: Staged) -> None:
    storing = staged.connector
    assert isinstance(storing, Storing)
    assert isinstance(storing, Market)
    wanted = a_volume("digitalocean", "nyc2")
    made = await storing.create_volume(wanted)
    again = await storing.create_volume(wanted)
    mount = a_volume("digitalocean", "nyc2", volume_id=made.id).attachable("/data")
    box = await staged.connector.create(await staged.intent(volumes=(mount,)))

    posted = {r["path"]: r["body"] for r in staged.ask("requests") if r["method"] == "POST"}
    validate_request(SPEC, "POST", "/v2/volumes", posted["/v2/volumes"])
    validate_request(SPEC, "POST", "/v2/droplets", posted["/v2/droplets"])
    assert posted["/v2/droplets"]["volumes"] == [made.id]
    script = str(staged.stage.world.things()[0].facts["user_data"])
    assert f"mount_volume /dev/disk/by-id/scsi-0DO_Volume_{wanted.mark} /data" in script
    assert "mkfs" not in script, "a file system is DigitalOcean's to make"
    assert len(script) < 64 * 1024
    assert made == again
    assert (made.size_gb, made.usd_month, made.boxes) == (50, None, ())
    assert (await storing.list_volumes())[0].boxes == (box.id,)
    offers = await storing.offers(Wish(volumes=(mount,)))
    assert {offer.region for offer in offers} == {"nyc2"}


async def test_a_volume_that_a_droplet_has_is_not_deleted_whoever_permits_it(
    staged: Staged,
) -> None:
    storing = staged.connector
    assert isinstance(storing, Storing)
    made = await storing.create_volume(a_volume("digitalocean", "nyc2"))
    permit = leave_to_end(a_volume("digitalocean", "nyc2", volume_id=made.id))
    box = staged.stage.rent_by_hand(made.id)

    with pytest.raises(ProviderTrouble, match="attached to a Droplet"):
        await storing.destroy_volume(permit)
    staged.stage.end_by_hand(box)
    staged.wait(60)
    await storing.destroy_volume(permit)
    await storing.destroy_volume(permit)

    assert await storing.list_volumes() == []


async def test_a_volume_grows_as_the_document_allows_and_never_shrinks(staged: Staged) -> None:
    storing = staged.connector
    assert isinstance(storing, Storing)
    assert isinstance(storing, Growing)
    made = await storing.create_volume(a_volume("digitalocean", "nyc2"))
    volume = a_volume("digitalocean", "nyc2", volume_id=made.id)

    await storing.grow_volume(volume, 80)
    with pytest.raises(ProviderTrouble):
        await storing.grow_volume(volume, 60)

    path = f"/v2/volumes/{made.id}/actions"
    asked = [r for r in staged.ask("requests") if r["path"] == path]
    for request in asked:
        validate_request(SPEC, "POST", path, request["body"])
    status, said = api(staged, "POST", path, {**asked[0]["body"], "size_gigabytes": 90})
    validate(SPEC, "POST", path, status, said)
    staged.wait(60)
    (listed,) = await storing.list_volumes()
    assert listed.size_gb == 90
