"""What is particular to Lambda Cloud: rationed calls, a terminate that has to wait, no stop, no age."""

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from arranged import a_volume, leave_to_end, never_used
from contract.openapi import validate, validate_request
from contract.staged import Staged, on_stage

from gpu_tenant.domain.errors import NoFunds, ProviderSilent, ProviderTrouble
from gpu_tenant.domain.model import BoxState, Lease, LeaseState, SshAddress
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.permit import TeardownPermit
from gpu_tenant.domain.ports import Market, Residue, Storing
from gpu_tenant.emulators.world import KEY, Thing

SPEC = "lambda_cloud"
LAUNCH = "/api/v1/instance-operations/launch"
TERMINATE = "/api/v1/instance-operations/terminate"


LAUNCH = "/api/v1/instance-operations/launch"


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    with on_stage("lambda_cloud", tmp_path) as stage:
        yield stage


async def rented(staged: Staged, name: str = "aaaa") -> tuple[Lease, TeardownPermit]:
    """A lease whose box was just made, and leave to destroy it."""
    intent = await staged.intent(name)
    made = await staged.connector.create(intent)
    standing = intent.model_copy(update={"box_id": made.id, "state": LeaseState.ACTIVE})
    return standing, never_used(standing)


def sent(staged: Staged, path: str, method: str = "POST") -> list[dict[str, object]]:
    return [r for r in staged.ask("requests") if (r["method"], r["path"]) == (method, path)]


def thing(staged: Staged, box_id: str | None) -> Thing:
    return staged.stage.world.state.things[str(box_id)]


def api(
    staged: Staged, method: str, path: str, body: object = None, *, key: str = KEY
) -> tuple[int, object]:
    """The status and the body that anybody's client would get, a second after the last one."""
    staged.wait(13)
    request = Request(
        staged.stage.url + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}"},
        method=method,
    )
    try:
        with urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


async def test_a_launch_waits_for_a_key_that_is_not_known_yet(staged: Staged) -> None:
    intent = await staged.intent()
    said = {"code": "global/object-does-not-exist", "message": "SSH key gpu-tenant was not found"}
    staged.fault("status", "POST", "/launch$", status=404, body={"error": said}, times=2)

    await staged.connector.create(intent)

    assert [order["status"] for order in sent(staged, LAUNCH)] == [404, 404, 200]
    assert len(staged.alive) == 1


async def test_a_launch_that_is_answered_strangely_may_have_made_an_instance(
    staged: Staged,
) -> None:
    intent = await staged.intent()
    staged.fault("status", "POST", "/launch$", status=409, body={"error": {}})

    with pytest.raises(ProviderSilent, match="may exist"):
        await staged.connector.create(intent)


async def test_where_there_is_nothing_the_api_says_so_in_its_own_form(staged: Staged) -> None:
    assert api(staged, "GET", "/api/v1/no-such", key="another")[0] == 401
    status, said = api(staged, "GET", "/api/v1/no-such")

    assert status == 404
    assert isinstance(said, dict)
    assert said["error"]["code"] == "global/not-found"


# The end of a box


async def test_a_box_that_has_not_launched_is_terminated_as_soon_as_that_can_be(
    staged: Staged,
) -> None:
    _, permit = await rented(staged)

    await staged.connector.destroy(permit)

    asked = [request["status"] for request in sent(staged, TERMINATE)]
    assert asked[-1] == 200
    assert set(asked[:-1]) == {400}, "it was asked again until it was taken"
    staged.wait(60)
    assert staged.alive == []
    assert staged.meter["billed_usd"] == "0.000000"


async def test_a_terminate_that_never_becomes_possible_is_trouble_that_names_the_reason(
    staged: Staged,
) -> None:
    intent, permit = await rented(staged)
    box = await staged.ready(intent)
    staged.fault("terminate_unavailable", seconds=24 * 3600)
    began = staged.clock.now()

    with pytest.raises(ProviderTrouble, match="vm-action-in-progress") as told:
        await staged.connector.destroy(permit)

    assert not isinstance(told.value, ProviderSilent)
    assert 300 <= (staged.clock.now() - began).total_seconds() < 400
    assert staged.alive == [box.id]


async def test_a_terminate_that_names_nobody_was_carried_out_for_nobody(staged: Staged) -> None:
    intent, permit = await rented(staged)
    await staged.ready(intent)
    staged.fault("soft_failure", "POST", "/terminate$")

    with pytest.raises(ProviderTrouble, match="terminated_instances"):
        await staged.connector.destroy(permit)

    assert staged.alive == [permit.box_id]
    await staged.connector.destroy(permit)
    staged.wait(60)
    assert staged.alive == []


async def test_a_box_on_its_way_out_is_listed_as_broken_and_bills_no_more(staged: Staged) -> None:
    intent, permit = await rented(staged)
    await staged.ready(intent)

    await staged.connector.destroy(permit)

    (leaving,) = await staged.connector.list_boxes()
    assert (leaving.state, leaving.words) == (
        BoxState.BROKEN,
        "Lambda Cloud calls it terminating",
    )
    assert staged.billing_usd_h == 0


async def test_a_404_that_does_not_speak_of_the_object_is_no_proof_of_absence(
    staged: Staged,
) -> None:
    intent, permit = await rented(staged)
    await staged.ready(intent)
    for method, path in (("POST", "/terminate$"), ("GET", "/instances/")):
        staged.fault("status", method, path, status=404, body={"error": {"code": "proxy"}})

    with pytest.raises(ProviderTrouble, match="404"):
        await staged.connector.destroy(permit)

    assert staged.alive == [permit.box_id]


# Money


async def test_booting_is_free_and_every_minute_begun_is_a_whole_one(staged: Staged) -> None:
    intent, permit = await rented(staged)
    staged.wait(170)
    assert staged.meter["billed_usd"] == "0.000000"
    box = await staged.ready(intent)
    assert box.price_usd_h == Decimal("0.50"), "and the price is known all the while"

    staged.wait(61 * 60)
    await staged.connector.destroy(permit)

    minutes = Decimal(staged.meter["billed_usd"]) / (Decimal("0.50") / 60)
    assert 61 < minutes < 64
    assert abs(minutes - round(minutes)) < Decimal("0.001")
    before = staged.meter["billed_usd"]
    staged.wait(7 * 24 * 3600)
    assert staged.meter["billed_usd"] == before


async def test_an_inactive_account_cannot_rent_and_what_it_has_bills_on(staged: Staged) -> None:
    intent, _ = await rented(staged)
    await staged.ready(intent)
    staged.fault("balance_zero")

    with pytest.raises(NoFunds, match="account-inactive"):
        await rented(staged, "bbbb")

    assert staged.alive == [intent.box_id]
    assert staged.billing_usd_h == Decimal("0.50")


async def test_an_unhealthy_box_is_unknown_and_bills_on(staged: Staged) -> None:
    intent, _ = await rented(staged)
    await staged.ready(intent)

    staged.fault("host_lost")

    (box,) = await staged.connector.list_boxes()
    assert (box.state, box.words) == (BoxState.UNKNOWN, "Lambda Cloud calls it unhealthy")
    assert staged.billing_usd_h == Decimal("0.50")


async def test_a_filesystem_that_nothing_mounts_is_a_leftover_of_unknown_price(
    staged: Staged,
) -> None:
    assert isinstance(staged.connector, Residue)
    staged.fault("leftover")

    (left,) = await staged.connector.leftovers()

    assert (left.kind, left.mark, left.usd_month) == ("filesystem", None, None)
    assert left.size_gb == pytest.approx(107.37, abs=0.01)
    thing(staged, left.id).facts["attached_to"] = "somebody"
    assert list(await staged.connector.leftovers()) == []


# Calls are rationed


async def test_calls_are_a_second_apart_and_launches_twelve(staged: Staged) -> None:
    for name in ("aaaa", "bbbb", "cccc"):
        await rented(staged, name)

    log = staged.ask("requests")
    times = [request["at"] for request in log]
    launches = [request["at"] for request in log if request["path"] == LAUNCH]
    assert min(b - a for a, b in pairwise(times)) > 0.99
    assert min(b - a for a, b in pairwise(launches)) > 11.99
    assert {request["status"] for request in log} == {200}


async def test_a_second_program_with_the_same_key_is_turned_away_and_waits(staged: Staged) -> None:
    intent, _ = await rented(staged)
    other = staged.anew()
    assert other is not None

    listed = [await each.list_boxes() for each in (staged.connector, other)]

    assert [box.id for boxes in listed for box in boxes] == [intent.box_id] * 2
    assert 429 in {request["status"] for request in staged.ask("requests")}


# What a box carries


async def test_our_public_key_is_added_once_and_nobody_s_is_touched(staged: Staged) -> None:
    await rented(staged)
    await rented(staged, "bbbb")

    (added,) = sent(staged, "/api/v1/ssh-keys")
    body = added["body"]
    assert isinstance(body, dict)
    assert body["name"].startswith("gpu-tenant-")
    assert body["public_key"].startswith("ssh-ed25519 ")
    assert not [request for request in staged.ask("requests") if request["method"] == "DELETE"]


async def test_a_key_that_was_added_meanwhile_is_found(staged: Staged) -> None:
    await rented(staged)
    staged.fault("status", "GET", "/ssh-keys$", status=200, body={"data": []})

    await rented(staged, "bbbb")

    assert [request["status"] for request in sent(staged, "/api/v1/ssh-keys")] == [200, 400]
    assert len(staged.alive) == 2


async def test_an_equal_key_under_another_name_is_used_as_it_is(staged: Staged) -> None:
    intent, _ = await rented(staged)
    (key,) = staged.stage.world.things("key")
    key.name = "laptop"
    key.facts["public_key"] = " ".join([*str(key.facts["public_key"]).split()[:2], "me@laptop"])

    second, _ = await rented(staged, "bbbb")

    assert len(sent(staged, "/api/v1/ssh-keys")) == 1
    assert thing(staged, second.box_id).facts["ssh_key_names"] == ["laptop"]
    assert intent.box_id != second.box_id


async def test_a_box_carries_its_mark_and_its_age_and_is_known_by_name_if_its_tags_are_lost(
    staged: Staged,
) -> None:
    intent, _ = await rented(staged)
    facts = thing(staged, intent.box_id).facts
    tags = facts["tags"]
    assert isinstance(tags, list)
    assert {"key": "gpu-tenant", "value": intent.mark} in tags
    assert json.dumps(tags).count("gpu-tenant-created") == 1

    facts["tags"] = []

    assert [box.mark for box in await staged.connector.list_boxes()] == [intent.mark]


async def test_a_ready_box_is_reached_as_ubuntu_on_the_usual_port(staged: Staged) -> None:
    intent, _ = await rented(staged)

    box = await staged.ready(intent)

    assert isinstance(box.address, SshAddress)
    assert box.address.target.startswith("ubuntu@203.0.113.")
    assert ":" not in box.address.target


async def test_a_row_of_another_form_is_an_unknown_box_and_repeats_no_token(staged: Staged) -> None:
    token = "0123456789abcdef"
    row = {"id": "a", "status": "active", "jupyter_token": token, "ip": {"token": token}}
    staged.fault("status", "GET", "/instances$", status=200, body={"data": [row]})

    (box,) = await staged.connector.list_boxes()

    assert (box.id, box.state, box.mark) == ("a", BoxState.UNKNOWN, None)
    assert "cannot be read" in (box.words or "")
    assert token not in repr(box)


# What is offered


async def test_every_region_with_capacity_is_an_offer_and_nothing_else_is(staged: Staged) -> None:
    assert isinstance(staged.connector, Market)

    offers = {offer.id: offer for offer in await staged.connector.offers(Wish())}

    assert {"gpu_1x_a10@us-east-1", "gpu_1x_a10@us-west-1"} <= set(offers)
    assert not [each for each in offers if each.startswith(("gpu_8x_v100", "cpu_", "gpu_8x"))]
    assert offers["gpu_1x_a100_sxm4@us-east-1"].gpu == "A100 SXM 40GB"
    assert offers["gpu_1x_h100_sxm5@us-south-1"].gpu == "H100 SXM"
    assert offers["gpu_1x_h100_pcie@us-west-1"].gpu == "H100 PCIe"
    assert offers["gpu_1x_rtx6000@us-south-1"].gpu == "Quadro RTX 6000", "which is no RTX 6000 Ada"
    assert "aarch64" in " ".join(offers["gpu_1x_gh200@us-east-3"].notes)
    assert {offer.price.parked_usd_h for offer in offers.values()} == {None}
    assert {offer.price.disk_usd_h for offer in offers.values()} == {Decimal(0)}


async def test_what_cannot_fit_is_left_out(staged: Staged) -> None:
    assert isinstance(staged.connector, Market)
    wishes = {
        "gpu_8x_h100_sxm5gdr@us-east-1": Wish(gpu="H100 SXM", gpu_count=8),
        "gpu_1x_a10@us-west-1": Wish(gpu="A10", region="WEST"),
        "gpu_1x_gh200@us-east-3": Wish(vram_gib=90),
        "": Wish(interruptible="yes"),
    }

    for only, wish in wishes.items():
        assert {offer.id for offer in await staged.connector.offers(wish)} == {only} - {""}


# The provider's own document


async def test_what_we_send_is_what_the_document_asks_for(staged: Staged) -> None:
    intent, permit = await rented(staged)
    await staged.ready(intent)
    await staged.connector.destroy(permit)

    posted = [request for request in staged.ask("requests") if request["method"] == "POST"]

    assert {request["path"] for request in posted} == {LAUNCH, TERMINATE, "/api/v1/ssh-keys"}
    for request in posted:
        validate_request(SPEC, "POST", request["path"], request["body"])


async def test_what_the_rehearsal_answers_is_what_the_document_says(staged: Staged) -> None:
    intent, _ = await rented(staged)
    booting = f"/api/v1/instances/{intent.box_id}"
    (key,) = staged.stage.world.things("key")
    order = {
        "region_name": "us-east-1",
        "instance_type_name": "gpu_1x_a10",
        "ssh_key_names": [key.name],
    }
    ended = {"instance_ids": [intent.box_id]}
    staged.fault("leftover")
    asked: list[tuple[str, str, object, int]] = [
        ("GET", "/api/v1/instance-types", None, 200),
        ("GET", booting, None, 200),
        ("POST", TERMINATE, ended, 400),
        ("GET", "/api/v1/instances", None, 200),
        ("GET", "/api/v1/instances/none", None, 404),
        ("GET", "/api/v1/ssh-keys", None, 200),
        ("POST", "/api/v1/ssh-keys", {"name": "k", "public_key": "ssh-ed25519 AAAA"}, 200),
        ("POST", "/api/v1/ssh-keys", {"name": "k", "public_key": "ssh-ed25519 AAAA"}, 400),
        ("GET", "/api/v1/file-systems", None, 200),
        ("POST", LAUNCH, order, 200),
        ("POST", LAUNCH, {**order, "ssh_key_names": []}, 400),
        ("POST", LAUNCH, {**order, "region_name": "us-south-1"}, 400),
        ("POST", LAUNCH, {**order, "instance_type_name": "gpu_9x"}, 404),
        ("POST", TERMINATE, {"instance_ids": ["none"]}, 404),
        ("POST", TERMINATE, ended, 200),
        ("GET", booting, None, 200),
    ]

    for method, path, body, expected in asked:
        status, said = api(staged, method, path, body)
        assert status == expected, (method, path, said)
        validate(SPEC, method, path, status, said)

    status, said = api(staged, "GET", "/api/v1/instances", key="another")
    assert status == 401
    validate(SPEC, "GET", "/api/v1/instances", status, said)
    staged.fault("balance_zero")
    status, said = api(staged, "POST", LAUNCH, order)
    assert status == 403
    validate(SPEC, "POST", LAUNCH, status, said)


# Filesystems that are volumes of ours


async def test_a_filesystem_is_made_once_and_mounted_as_the_document_allows(staged: Staged) -> None:
    storing, market = staged.connector, staged.connector
    assert isinstance(storing, Storing)
    assert isinstance(market, Market)
    wanted = a_volume("lambda_cloud", "us-east-1")
    made = await storing.create_volume(wanted)
    again = await storing.create_volume(wanted)
    mount = a_volume("lambda_cloud", "us-east-1", volume_id=made.id).attachable("/data")
    intent = await staged.intent(gpu="A10", volumes=(mount,))
    box = await staged.connector.create(intent)

    (asked,) = sent(staged, "/api/v1/filesystems")
    validate_request(SPEC, "POST", "/api/v1/filesystems", asked["body"])
    (launch,) = sent(staged, LAUNCH)
    validate_request(SPEC, "POST", LAUNCH, launch["body"])
    assert made.id == again.id
    assert (made.region, made.usd_month, made.boxes) == ("us-east-1", None, ())
    assert (await storing.list_volumes())[0].boxes == (box.id,)
    offers = await market.offers(Wish(gpu="A10", volumes=(mount,)))
    assert {offer.region for offer in offers} == {"us-east-1"}


async def test_a_filesystem_is_mounted_only_where_the_document_allows(staged: Staged) -> None:
    storing = staged.connector
    assert isinstance(storing, Storing)
    here = a_volume("lambda_cloud", "us-east-1", volume_id="f1")
    other = a_volume("lambda_cloud", "us-west-1", volume_id="f2")

    assert storing.refused_volumes([here.attachable("/data/cache")]) is None
    assert "/workspace" in str(storing.refused_volumes([here.attachable("/workspace")]))
    assert "several regions" in str(
        storing.refused_volumes([here.attachable("/data/a"), other.attachable("/data/b")])
    )


async def test_a_filesystem_that_an_instance_mounts_is_not_deleted_whoever_permits_it(
    staged: Staged,
) -> None:
    storing = staged.connector
    assert isinstance(storing, Storing)
    made = await storing.create_volume(a_volume("lambda_cloud", "us-east-1"))
    permit = leave_to_end(a_volume("lambda_cloud", "us-east-1", volume_id=made.id))
    box = staged.stage.rent_by_hand(made.id)

    with pytest.raises(ProviderTrouble, match="in use"):
        await storing.destroy_volume(permit)
    staged.stage.end_by_hand(box)
    staged.wait(60)
    await storing.destroy_volume(permit)
    await storing.destroy_volume(permit)

    assert await storing.list_volumes() == []


async def test_a_filesystem_in_use_by_an_instance_that_is_not_shown_is_in_use(
    staged: Staged,
) -> None:
    storing = staged.connector
    assert isinstance(storing, Storing)
    made = await storing.create_volume(a_volume("lambda_cloud", "us-east-1"))
    staged.stage.rent_by_hand(made.id)
    staged.fault("status", "GET", "/instances$", status=200, body={"data": []})

    (listed,) = await storing.list_volumes()

    assert listed.boxes


async def test_the_emulator_answers_for_filesystems_as_the_document_says(staged: Staged) -> None:
    wanted = {"name": "by-hand", "region": "us-east-1"}
    status, made = api(staged, "POST", "/api/v1/filesystems", wanted)
    validate(SPEC, "POST", "/api/v1/filesystems", status, made)
    assert status == 200
    assert isinstance(made, dict)
    path = f"/api/v1/filesystems/{made['data']['id']}"
    box = staged.stage.rent_by_hand(made["data"]["id"])
    validate(SPEC, "GET", "/api/v1/instances", *api(staged, "GET", "/api/v1/instances"))
    for method, at, body, wants in (
        ("POST", "/api/v1/filesystems", wanted, 400),
        ("DELETE", path, None, 400),
        ("DELETE", "/api/v1/filesystems/none", None, 404),
    ):
        status, said = api(staged, method, at, body)
        validate(SPEC, method, at, status, said)
        assert status == wants
    staged.stage.end_by_hand(box)
    staged.wait(60)
    status, said = api(staged, "DELETE", path)
    validate(SPEC, "DELETE", path, status, said)
    assert status == 200
