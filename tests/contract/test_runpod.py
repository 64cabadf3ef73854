"""What is particular to RunPod, against its rehearsal: its traps, its dollars, its own document and client."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest
from arranged import a_volume, never_used
from contract.openapi import validate, validate_request
from contract.staged import Staged, on_stage
from mcp import Client, StdioServerParameters
from parts import required

from gpu_tenant.domain.errors import (
    CredentialRefused,
    NoCapacity,
    NoFunds,
    ProviderSilent,
    ProviderTrouble,
    Rejected,
)
from gpu_tenant.domain.model import Box, BoxState, Lease, LeaseState, SshAddress
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.order import Order
from gpu_tenant.emulators.boxes import MARKER
from gpu_tenant.emulators.runpod.responses import pod_key
from gpu_tenant.emulators.world import KEY
from gpu_tenant.providers.gpu_catalog import known_gpu
from gpu_tenant.providers.runpod.connector import RunpodConnector

SPEC = "runpod"
CLIENT = "@runpod/mcp-server@4.0.0"
ORDER = {
    "name": "by-hand",
    "image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
    "gpu": {"id": "NVIDIA GeForce RTX 4090", "count": 1},
    "disk": 20,
    "ports": ["22/tcp"],
    "mounts": {"persistent": {"size": 20, "path": "/workspace"}},
    "env": {"MODEL": "llama"},
}
DAY_S = 86_400
MONTH_S = 30 * DAY_S


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    with on_stage("runpod", tmp_path) as stage:
        yield stage


@pytest.fixture
def runpod(staged: Staged) -> RunpodConnector:
    assert isinstance(staged.connector, RunpodConnector)
    return staged.connector


def said(
    staged: Staged, method: str, path: str, body: object = None, *, key: str = KEY
) -> httpx2.Response:
    """The answer to a client with that key, which is what RunPod's document says it may be."""
    url = staged.stage.url + path
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx2.Client(trust_env=False) as client:
        reply = client.request(method, url, json=body, headers=headers)
    validate(
        SPEC,
        method,
        path.partition("?")[0],
        reply.status_code,
        reply.json() if reply.content else None,
    )
    return reply


def standing(intent: Lease, box: Box) -> Lease:
    return intent.model_copy(update={"box_id": box.id, "state": LeaseState.ACTIVE})


async def rented(staged: Staged, **wish: Any) -> Lease:
    """A lease whose box is ready."""
    intent = await staged.intent(**wish)
    await staged.connector.create(intent)
    return standing(intent, await staged.ready(intent))


def billed(staged: Staged) -> Decimal:
    return Decimal(staged.meter["billed_usd"])


# RunPod's own document


def test_a_whole_life_is_answered_as_the_document_says(staged: Staged) -> None:
    pod = said(staged, "POST", "/v2/pods", ORDER).json()["id"]
    for _ in range(10):
        said(staged, "GET", "/v2/pods?includeClusterPods=true")
        shown = said(staged, "GET", f"/v2/pods/{pod}").json()
        staged.wait(12)
    assert shown["ssh"]["direct"] is not None
    for action in ("restart", "stop", "start", "terminate"):
        status = said(staged, "POST", f"/v2/pods/{pod}/action", {"action": action}).status_code
        assert status == (204 if action == "terminate" else 200)
        staged.wait(120)
    staged.fault("leftover")
    said(staged, "GET", "/v2/network-volumes")
    said(staged, "GET", "/v2/catalog/gpus")
    said(staged, "GET", "/v2/catalog/gpus?include=AVAILABILITY&product=POD&count=8&cloud=COMMUNITY")


REFUSED: dict[int, tuple[str, str, object, str]] = {
    400: ("POST", "/v2/pods", {**ORDER, "gpu": {"id": "NVIDIA H200", "count": 9}}, KEY),
    401: ("GET", "/v2/pods", None, "another"),
    403: ("GET", "/v2/pods", None, pod_key("POD")),
    404: ("DELETE", "/v2/pods/nowhere", None, KEY),
    409: ("POST", "/v2/pods/POD/action", {"action": "start"}, KEY),
    422: ("POST", "/v2/pods", {**ORDER, "bogus": 1}, KEY),
}


@pytest.mark.parametrize("status", REFUSED)
def test_a_refusal_is_told_as_the_document_says(staged: Staged, status: int) -> None:
    pod = said(staged, "POST", "/v2/pods", ORDER).json()["id"]
    method, path, body, key = REFUSED[status]

    reply = said(staged, method, path.replace("POD", pod), body, key=key.replace("POD", pod))

    assert (reply.status_code, reply.json()["status"]) == (status, status)
    assert reply.headers["content-type"] == "application/problem+json"


def test_an_unknown_field_is_named(staged: Staged) -> None:
    reply = said(staged, "POST", "/v2/pods", {**ORDER, "tags": ["a"], "spot": True})

    assert reply.json()["errors"] == [
        "$: additional properties 'tags' not allowed",
        "$: additional properties 'spot' not allowed",
    ]


async def test_what_we_ask_for_is_what_the_document_allows(
    staged: Staged, runpod: RunpodConnector
) -> None:
    intent = await staged.intent(gpu="RTX 4090", gpu_count=2, disk_gb=80, region="romania")

    await runpod.create(intent)

    (pod,) = staged.stage.world.things()
    asked: Any = pod.facts["asked"]
    validate_request(SPEC, "POST", "/v2/pods", asked)
    assert asked["name"] == asked["env"]["GPU_TENANT_MARK"] == intent.mark
    assert asked["gpu"] == {
        "id": "NVIDIA GeForce RTX 4090",
        "count": 2,
        "minCudaVersion": "12.8",
    }
    assert (asked["ports"], asked["startSsh"], asked["disk"]) == (["22/tcp"], True, 20)
    assert asked["mounts"] == {"persistent": {"size": 80, "path": "/workspace"}}
    assert asked["dataCenterIds"] == ["EU-RO-1"], "a hard constraint"
    assert asked["env"]["PUBLIC_KEY"].startswith("ssh-ed25519 ")


async def test_the_account_s_own_keys_are_never_touched(staged: Staged) -> None:
    await rented(staged)

    assert not [
        r for r in staged.ask("requests") if r["method"] == "PUT" or "ssh-keys" in r["path"]
    ]


def test_the_allowance_is_told_with_every_answer_and_kept(staged: Staged) -> None:
    replies = [said(staged, "GET", "/v2/pods") for _ in range(61)]

    assert [r.status_code for r in replies] == [200] * 60 + [429]
    assert '"minute";r=59;' in replies[0].headers["RateLimit"]
    assert '"minute";q=60;w=60' in replies[0].headers["RateLimit-Policy"]
    staged.wait(int(replies[-1].headers["Retry-After"]))
    assert said(staged, "GET", "/v2/pods").status_code == 200


def test_a_library_s_own_name_and_the_old_api_are_turned_away(staged: Staged) -> None:
    with httpx2.Client(trust_env=False, headers={"Authorization": f"Bearer {KEY}"}) as client:
        wall = client.get(
            f"{staged.stage.url}/v2/pods", headers={"User-Agent": "Python-urllib/3.11"}
        )
        old = client.get(f"{staged.stage.url}/v1/pods")

    assert (wall.status_code, wall.text) == (403, "error code: 1010")
    assert old.status_code == 410


def test_a_pod_s_own_key_looks_at_stops_and_ends_that_pod_alone(staged: Staged) -> None:
    mine, other = (said(staged, "POST", "/v2/pods", ORDER).json()["id"] for _ in range(2))
    key = pod_key(mine)

    def status(method: str, path: str, body: object = None) -> int:
        return said(staged, method, path, body, key=key).status_code

    assert status("GET", f"/v2/pods/{mine}") == 200
    assert status("GET", f"/v2/pods/{other}") == 403
    assert status("POST", "/v2/pods", ORDER) == 403
    assert status("POST", f"/v2/pods/{mine}/action", {"action": "restart"}) == 403
    assert status("POST", f"/v2/pods/{other}/action", {"action": "terminate"}) == 403
    assert status("POST", f"/v2/pods/{mine}/action", {"action": "terminate"}) == 204
    assert staged.alive == [other]


# Offers


async def test_both_clouds_are_offered_and_a_stranger_s_machine_is_called_so(
    runpod: RunpodConnector,
) -> None:
    offers = await runpod.offers(Wish(gpu="RTX 4090"))

    assert {o.id: o.trust for o in offers} == {
        "SECURE/1/NVIDIA GeForce RTX 4090": "datacenter",
        "COMMUNITY/1/NVIDIA GeForce RTX 4090": "unverified",
    }


@pytest.mark.parametrize("trust", ["verified", "datacenter"])
async def test_who_wants_a_data_center_is_not_shown_the_other_cloud(
    staged: Staged, runpod: RunpodConnector, trust: str
) -> None:
    offers = await runpod.offers(Wish.model_validate({"trust": trust}))

    assert {offer.trust for offer in offers} == {"datacenter"}
    (asked,) = staged.ask("requests")
    assert "cloud=SECURE" in asked["query"]


async def test_the_catalog_s_price_is_for_one_gpu(runpod: RunpodConnector) -> None:
    one, four = [
        (await runpod.offers(Wish(gpu="A100 SXM 80GB", gpu_count=n, trust="datacenter")))[0]
        for n in (1, 4)
    ]

    assert (one.price.gpu_usd_h, four.price.gpu_usd_h) == (Decimal("1.49"), Decimal("5.96"))
    assert four.gpu_count == 4
    assert one.vram_gib == four.vram_gib == 80


async def test_more_gpus_than_a_machine_has_are_not_offered(runpod: RunpodConnector) -> None:
    assert [o.gpu_count for o in await runpod.offers(Wish(gpu="L40S", gpu_count=4))] == [4, 4]
    assert await runpod.offers(Wish(gpu="L40S", gpu_count=5)) == []


async def test_nothing_interruptible_is_sold_and_nobody_is_asked(
    staged: Staged, runpod: RunpodConnector
) -> None:
    assert await runpod.offers(Wish(interruptible="yes")) == []
    assert staged.ask("requests") == []


async def test_what_cannot_run_the_image_is_not_offered(runpod: RunpodConnector) -> None:
    assert "MI300X" not in {offer.gpu for offer in await runpod.offers(Wish())}


async def test_a_region_is_part_of_the_offer_and_of_where_the_pod_is(
    staged: Staged, runpod: RunpodConnector
) -> None:
    (offer,) = await runpod.offers(Wish(gpu="A100 SXM 80GB", region="us-tx", trust="datacenter"))

    assert offer.id == "SECURE/1/NVIDIA A100-SXM4-80GB/US-TX-3"
    assert offer.region == "US-TX-3"
    assert [o.id for o in await runpod.offers(Wish(offer=offer.id))] == [offer.id]
    assert await runpod.offers(Wish(gpu="A100 SXM 80GB", region="mars")) == []


@pytest.mark.parametrize(
    "offer", ["", "x", "SPOT/1/NVIDIA H200", "SECURE/x/NVIDIA H200", "SECURE/1/None"]
)
async def test_an_offer_that_is_none_of_theirs_is_not_found(
    runpod: RunpodConnector, offer: str
) -> None:
    assert await runpod.offers(Wish(offer=offer)) == []


NAMES = {
    "NVIDIA GeForce RTX 3090 Ti": "RTX 3090 Ti",
    "NVIDIA GeForce RTX 4080 SUPER": "RTX 4080 SUPER",
    "NVIDIA RTX A6000": "RTX A6000",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA RTX 4000 SFF Ada Generation": "RTX 4000 SFF Ada",
    "NVIDIA RTX PRO 4500 Blackwell": "RTX PRO 4500",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000 Server",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000 Workstation",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "RTX PRO 6000 Max-Q",
    "NVIDIA A40": "A40",
    "NVIDIA L40S": "L40S",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA B200": "B200",
    "NVIDIA B300 SXM6 AC": "B300",
    "Tesla V100-PCIE-16GB": "V100 PCIe 16GB",
    "Tesla V100-SXM2-32GB": "V100 SXM 32GB",
}


@pytest.mark.parametrize("theirs", NAMES)
def test_their_names_are_known_by_ours(theirs: str) -> None:
    model = known_gpu(theirs)

    assert model is not None
    assert model.name == NAMES[theirs]


def test_a_slice_of_a_gpu_is_not_taken_for_the_whole() -> None:
    part = known_gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb")

    assert part is not None
    assert part.name != "RTX PRO 6000 Server"


# A create


CAPACITY = (
    "There are no longer any instances available with the requested specifications. Please refresh and try again.",
    "There are no longer any instances available with enough disk space.",
)


@pytest.mark.parametrize("detail", CAPACITY)
async def test_a_400_that_speaks_of_capacity_is_no_capacity(
    staged: Staged, runpod: RunpodConnector, detail: str
) -> None:
    intent = await staged.intent()
    body = {"title": "Bad Request", "status": 400, "detail": detail}
    staged.fault("status", "POST", "/v2/pods$", status=400, body=body)

    with pytest.raises(NoCapacity, match="instances available"):
        await runpod.create(intent)


async def test_any_other_400_is_a_fault_of_the_request_and_says_which(
    staged: Staged, runpod: RunpodConnector
) -> None:
    intent = await staged.intent()
    body = {"title": "Bad Request", "status": 400, "detail": "exactly one of gpu or cpu"}
    staged.fault("status", "POST", "/v2/pods$", status=400, body=body)

    with pytest.raises(Rejected, match="exactly one of gpu or cpu"):
        await runpod.create(intent)


async def test_a_pool_that_is_not_for_this_account_is_skipped_as_if_it_were_full(
    staged: Staged, runpod: RunpodConnector
) -> None:
    intent = await staged.intent()
    staged.fault("no_pool")

    with pytest.raises(NoCapacity, match="this account may not have") as told:
        await runpod.create(intent)

    assert "another offer" in told.value.remedy
    assert staged.alive == []


async def test_the_wall_before_the_api_is_not_taken_for_a_full_pool(
    staged: Staged, runpod: RunpodConnector
) -> None:
    intent = await staged.intent()
    staged.fault("status", "POST", "/v2/pods$", status=403, body="error code: 1010")

    with pytest.raises(ProviderSilent, match=r"1010.*says nothing about the key"):
        await runpod.create(intent)


@pytest.mark.parametrize("status", [302, 408, 409, 418])
async def test_a_create_that_is_answered_strangely_may_have_made_a_pod(
    staged: Staged, runpod: RunpodConnector, status: int
) -> None:
    intent = await staged.intent()
    staged.fault("status", "POST", "/v2/pods$", status=status, body={"detail": "odd"})

    with pytest.raises(ProviderSilent, match=r"may (exist|have been done)"):
        await runpod.create(intent)


async def test_a_created_pod_that_reads_as_nothing_may_exist(
    staged: Staged, runpod: RunpodConnector
) -> None:
    intent = await staged.intent()
    staged.fault("status", "POST", "/v2/pods$", status=201, body={"name": "x"})

    with pytest.raises(ProviderSilent):
        await runpod.create(intent)


async def test_less_than_an_hour_s_credit_rents_nothing(
    staged: Staged, runpod: RunpodConnector
) -> None:
    intent = await staged.intent(gpu="H100 SXM")
    staged.stage.world.state.balance_usd = Decimal("3.00")

    with pytest.raises(NoFunds, match="insufficient balance"):
        await runpod.create(intent)


async def test_a_pod_that_was_renamed_by_hand_is_still_ours(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    staged.stage.world.things()[0].name = "my favourite"

    assert [box.mark for box in await runpod.list_boxes()] == [lease.mark]


# Reachable, which is later than running


async def test_running_is_shown_before_there_is_an_address(
    staged: Staged, runpod: RunpodConnector
) -> None:
    await runpod.create(await staged.intent())
    seen: list[tuple[BoxState, bool]] = []
    for _ in range(20):
        (box,) = await runpod.list_boxes()
        if (box.state, box.address is not None) not in seen:
            seen.append((box.state, box.address is not None))
        staged.wait(8)

    assert seen == [(BoxState.BOOTING, False), (BoxState.READY, False), (BoxState.READY, True)]


async def test_the_address_is_the_pod_s_own_and_never_the_proxy(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)

    (box,) = await runpod.list_boxes()

    shown = said(staged, "GET", f"/v2/pods/{lease.box_id}").json()["ssh"]
    assert isinstance(box.address, SshAddress)
    assert box.address.target == f"root@{shown['direct']['host']}:{shown['direct']['port']}"
    assert shown["proxy"]["host"] not in box.address.target


STARTED_ANEW: dict[str, Callable[[Staged, RunpodConnector, Lease], Any]] = {
    "parked and resumed": lambda s, c, lease: park_and_resume(c, lease),
    "restarted by its container's end": lambda s, c, lease: told(s, "container_exits"),
}


async def park_and_resume(runpod: RunpodConnector, lease: Lease) -> None:
    await runpod.park(lease)
    await runpod.resume(lease)


async def told(staged: Staged, fault: str) -> None:
    staged.fault(fault)


@pytest.mark.parametrize("how", STARTED_ANEW)
async def test_a_pod_that_started_anew_is_at_another_port_and_its_home_is_empty(
    staged: Staged, runpod: RunpodConnector, how: str
) -> None:
    lease = await rented(staged)
    before = await staged.ready(lease)
    home = next(staged.root.glob("stage/boxes/*/home"))
    (home / "model.bin").write_bytes(b"weights")

    await STARTED_ANEW[how](staged, runpod, lease)
    staged.wait(1)
    assert (await runpod.list_boxes())[0].address is None

    after = await staged.ready(lease)
    assert after.id == before.id
    assert after.address != before.address
    assert [path.name for path in home.iterdir()] == [MARKER]


# Money


async def test_a_day_costs_what_was_quoted(staged: Staged) -> None:
    lease = await rented(staged, gpu="RTX 4090", trust="datacenter")
    before = billed(staged)

    staged.wait(DAY_S)

    assert lease.quote is not None
    price = lease.quote.offer.price
    assert (price.gpu_usd_h, price.disk_usd_h) == (Decimal("0.69"), Decimal("0.0083"))
    assert billed(staged) - before == pytest.approx(Decimal("16.76"), abs=Decimal("0.00001"))
    assert price.running_usd_h is not None
    assert price.running_usd_h * 24 == pytest.approx(Decimal("16.76"), abs=Decimal("0.002"))


async def test_a_stopped_pod_says_it_costs_nothing_and_bills_its_volume_double(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)

    await runpod.park(lease)
    before = billed(staged)
    staged.wait(MONTH_S)

    assert said(staged, "GET", f"/v2/pods/{lease.box_id}").json()["cost"] == 0.0
    (box,) = await runpod.list_boxes()
    assert (box.state, box.price_usd_h) == (BoxState.PARKED, Decimal("0.0111"))
    assert billed(staged) - before == pytest.approx(Decimal("8.00"), abs=Decimal("0.0001"))


async def test_a_container_that_ends_does_not_end_the_bill(staged: Staged) -> None:
    lease = await rented(staged, gpu="RTX 4090", trust="datacenter")
    staged.fault("container_exits")
    before = billed(staged)

    staged.wait(3600)

    assert billed(staged) - before > Decimal("0.69")
    assert staged.alive == [lease.box_id]


async def test_a_host_that_is_lost_bills_nothing_and_is_shown_as_broken(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)

    staged.fault("host_lost")

    (box,) = await runpod.list_boxes()
    assert (box.id, box.state, box.address) == (lease.box_id, BoxState.BROKEN, None)
    assert box.words == "RunPod calls it ERROR"
    assert staged.billing_usd_h == 0


async def test_an_empty_balance_ends_pods_and_stops_those_with_a_network_volume(
    staged: Staged, runpod: RunpodConnector
) -> None:
    await rented(staged)
    staged.fault("leftover")
    (volume,) = said(staged, "GET", "/v2/network-volumes").json()["networkVolumes"]
    mounts = {"network": [{"volumeId": volume["id"], "path": "/workspace"}]}
    kept = said(staged, "POST", "/v2/pods", {**ORDER, "mounts": mounts}).json()["id"]

    staged.fault("balance_zero")

    assert [(b.id, b.state) for b in await runpod.list_boxes()] == [(kept, BoxState.PARKED)]
    assert staged.billing_usd_h == pytest.approx(Decimal("7") / 720, abs=Decimal("0.00001"))


# The list


@pytest.mark.parametrize("size", [1, 2, 5, 6])
async def test_every_page_is_read_and_no_pages_are_a_whole_list(
    staged: Staged, runpod: RunpodConnector, size: int
) -> None:
    for _ in range(5):
        staged.fault("foreign_box")
    whole = await runpod.list_boxes()

    staged.fault("paged", amount=size)

    assert await runpod.list_boxes() == whole
    assert len(whole) == 5


TORN: dict[str, object] = {
    "no cursor": {"nextCursor": None, "hasNextPage": True},
    "an empty cursor": {"nextCursor": "", "hasNextPage": True},
    "neither yes nor no": {"nextCursor": None},
    "no object": "more",
}


@pytest.mark.parametrize("pagination", TORN)
async def test_a_list_whose_end_is_not_in_sight_is_not_a_list(
    staged: Staged, runpod: RunpodConnector, pagination: str
) -> None:
    body = {"pods": [], "pagination": TORN[pagination]}
    staged.fault("status", "GET", "/v2/pods$", status=200, body=body)

    with pytest.raises(
        ProviderSilent, match=r"does not lead to the next|unknown form of pagination"
    ):
        await runpod.list_boxes()


async def test_a_cursor_that_comes_back_ends_nothing(
    staged: Staged, runpod: RunpodConnector
) -> None:
    staged.fault("foreign_box")
    staged.fault("page_boundary", amount=1)

    with pytest.raises(ProviderSilent, match="does not lead to the next"):
        await runpod.list_boxes()


async def test_the_members_of_clusters_are_asked_for(
    staged: Staged, runpod: RunpodConnector
) -> None:
    await runpod.list_boxes()

    assert staged.ask("requests")[0]["query"] == "includeClusterPods=true"


async def test_a_pod_that_is_listed_as_terminated_is_none_any_more(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    shown = said(staged, "GET", f"/v2/pods/{lease.box_id}").json()
    body = {"pods": [{**shown, "status": "TERMINATED", "cost": 0.0}]}
    staged.fault("status", "GET", "/v2/pods$", status=200, body=body)

    assert await runpod.list_boxes() == []


# The end, and the stop


async def test_a_404_is_believed_only_where_the_list_agrees(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    body = {"title": "Not Found", "status": 404, "detail": "pod not found"}
    staged.fault("status", "DELETE", "/v2/pods/", status=404, body=body)

    with pytest.raises(ProviderTrouble, match="404"):
        await runpod.destroy(never_used(lease))

    assert staged.alive == [lease.box_id]
    for _ in range(2):
        await runpod.destroy(never_used(lease))
    assert staged.alive == []


async def test_a_delete_that_was_promised_and_not_done_is_seen_in_the_list(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    staged.fault("stuck_termination")

    await runpod.destroy(never_used(lease))

    assert [box.id for box in await runpod.list_boxes()] == [lease.box_id]
    staged.fault("stuck_termination", amount=0)
    await runpod.destroy(never_used(lease))
    assert await runpod.list_boxes() == []


async def test_a_delete_whose_answer_is_lost_is_sent_again(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    staged.fault("drop_before", "DELETE", "/v2/pods/")

    await runpod.destroy(never_used(lease))

    assert staged.alive == []


async def test_stopping_what_is_stopped_and_starting_what_runs_is_no_trouble(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)

    await runpod.resume(lease)
    for _ in range(2):
        await runpod.park(lease)

    assert [box.state for box in await runpod.list_boxes()] == [BoxState.PARKED]


async def test_a_stop_that_the_pod_s_state_forbids_is_told(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    staged.fault("host_lost")

    with pytest.raises(Rejected, match="409"):
        await runpod.park(lease)


async def test_looking_never_eats_what_teardown_needs(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    for _ in range(70):
        await runpod.list_boxes()

    await runpod.destroy(never_used(lease))

    assert 429 not in {request["status"] for request in staged.ask("requests")}
    assert staged.alive == []


# What is left, and what is never shown


async def test_a_network_volume_without_a_pod_is_left_and_one_in_use_is_not(
    staged: Staged, runpod: RunpodConnector
) -> None:
    staged.fault("leftover")
    (left,) = await runpod.leftovers()
    mounts = {"network": [{"volumeId": left.id, "path": "/workspace"}]}

    said(staged, "POST", "/v2/pods", {**ORDER, "mounts": mounts})

    assert (left.kind, left.size_gb, left.usd_month) == ("volume", 100, Decimal("7.0000"))
    assert await runpod.leftovers() == []


@pytest.mark.parametrize(
    ("size", "tier", "usd_month"),
    [
        (10, "STANDARD", Decimal("0.7")),
        (1000, "STANDARD", Decimal(70)),
        (4000, "STANDARD", Decimal(220)),
        (10, "HIGH_PERFORMANCE", None),
    ],
)
async def test_a_volume_is_priced_by_its_size_and_not_at_all_where_no_price_is_known(
    staged: Staged, runpod: RunpodConnector, size: int, tier: str, usd_month: Decimal | None
) -> None:
    volume = {"id": "v1", "name": "x", "size": size, "dataCenter": "EU-RO-1", "type": tier}
    body = {"networkVolumes": [volume]}
    staged.fault("status", "GET", "/v2/network-volumes", status=200, body=body)

    (left,) = await runpod.leftovers()

    assert left.usd_month == usd_month


async def test_a_network_volume_is_made_once_and_mounted_as_the_document_allows(
    staged: Staged, runpod: RunpodConnector
) -> None:
    made = await runpod.create_volume(a_volume("runpod", "EU-RO-1"))
    again = await runpod.create_volume(a_volume("runpod", "EU-RO-1"))
    mount = a_volume("runpod", "EU-RO-1", volume_id=made.id).attachable("/data")
    wish = {"gpu": "RTX 4090", "volumes": (mount,)}
    box = await runpod.create(await staged.intent(**wish))

    (asked,) = [
        line
        for line in staged.ask("requests")
        if line["path"] == "/v2/network-volumes" and line["method"] == "POST"
    ]
    validate_request(SPEC, "POST", "/v2/network-volumes", asked["body"])
    assert made == again
    assert (made.size_gb, made.usd_month, made.boxes) == (50, Decimal("3.5000"), ())
    (pod,) = staged.stage.world.things()
    body: Any = pod.facts["asked"]
    validate_request(SPEC, "POST", "/v2/pods", body)
    assert body["mounts"] == {"network": [{"volumeId": made.id, "path": "/data"}]}
    assert (body["dataCenterIds"], body["disk"]) == (["EU-RO-1"], 40)
    (listed,) = await runpod.list_volumes()
    assert listed.boxes == (box.id,)
    assert await runpod.offers(Wish.model_validate({**wish, "gpu": "L40S"})) == []
    assert runpod.refused_volumes([mount, mount]) is not None


async def test_a_network_volume_grows_as_the_document_allows_and_never_shrinks(
    staged: Staged, runpod: RunpodConnector
) -> None:
    made = await runpod.create_volume(a_volume("runpod", "EU-RO-1"))
    volume = a_volume("runpod", "EU-RO-1", volume_id=made.id)

    await runpod.grow_volume(volume, 80)
    with pytest.raises(ProviderTrouble, match="400"):
        await runpod.grow_volume(volume, 60)

    path = f"/v2/network-volumes/{made.id}"
    for request in [r for r in staged.ask("requests") if r["method"] == "PATCH"]:
        validate_request(SPEC, "PATCH", path, request["body"])
    (listed,) = await runpod.list_volumes()
    assert (listed.size_gb, listed.usd_month) == (80, Decimal("5.6000"))


async def test_a_pod_s_environment_is_in_no_error_and_in_no_log(
    staged: Staged, runpod: RunpodConnector
) -> None:
    intent = await staged.intent()
    body = {"detail": "no", "env": {"HF_TOKEN": "hf_secret"}, "pods": [{"env": {"A": "hf_secret"}}]}
    staged.fault("status", "POST", "/v2/pods$", status=422, body=body)

    with pytest.raises(ProviderTrouble) as told:
        await runpod.create(intent)

    assert "hf_secret" not in f"{told.value} {told.value!r}"
    assert "ssh-ed25519" not in json.dumps(staged.ask("requests"))


# RunPod's own client


@pytest.fixture(scope="session")
def client_program() -> Path:
    """RunPod's MCP server, installed once beside the repository's other caches."""
    required("node", "npm")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = home / "gpu-tenant-tests" / "runpod-mcp" / CLIENT.rpartition("@")[2]
    program = directory / "node_modules" / "@runpod" / "mcp-server" / "dist" / "stdio.mjs"
    # npm writes this one last, so an install that was cut off is done again.
    if not (directory / "node_modules" / ".package-lock.json").is_file():
        directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                "npm",
                "install",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--prefix",
                directory,
                CLIENT,
            ],
            check=True,
            timeout=150,
            stdin=subprocess.DEVNULL,
            cwd=directory,
        )
    return program


async def test_runpod_s_own_client_lists_makes_and_ends_a_pod_here(
    staged: Staged, client_program: Path, tmp_path: Path
) -> None:
    server = StdioServerParameters(
        command="node",
        args=[os.fspath(client_program)],
        env={"PATH": os.environ["PATH"], "HOME": os.fspath(tmp_path), **staged.stage.for_clients},
        cwd=tmp_path,
    )
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(server, mode="legacy"))

        async def ask(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            text = "".join(getattr(part, "text", "") for part in result.content)
            assert not result.is_error, text
            return json.loads(text)

        gpus = await ask("list-gpu-types", include=["AVAILABILITY"], product=["POD"])
        assert (await ask("list-pods"))["pods"] == []
        pod = await ask("create-pod", body={**ORDER, "gpu": {"id": gpus["gpus"][0]["id"]}})
        assert staged.alive == [pod["id"]]
        staged.wait(120)
        (listed,) = (await ask("list-pods"))["pods"]
        assert (listed["id"], listed["status"]) == (pod["id"], "RUNNING")
        await ask("pod-action", id=pod["id"], body={"action": "stop"})
        await ask("delete-pod", id=pod["id"])

    assert staged.alive == []
    assert [request["status"] for request in staged.ask("requests")] == [
        200,
        200,
        201,
        200,
        200,
        204,
    ]


# What a real account does


async def test_a_running_pod_without_a_public_port_says_so_and_since_when_it_runs(
    staged: Staged,
) -> None:
    staged.fault("no_public_port")
    await staged.connector.create(await staged.intent())
    staged.wait(300)

    (box,) = await staged.connector.list_boxes()

    assert (box.state, box.address) == (BoxState.READY, None)
    assert "no public port for ssh" in (box.words or "")
    assert box.runs_since is not None
    assert 200 < (staged.clock.now() - box.runs_since).total_seconds() < 300


@pytest.mark.parametrize("runtime", [None, {}])
async def test_a_pod_whose_container_has_not_started_boots(staged: Staged, runtime: object) -> None:
    lease = await rented(staged)
    shown = said(staged, "GET", f"/v2/pods/{lease.box_id}").json()
    shown |= {"runtime": runtime, "ssh": {**shown["ssh"], "direct": None}}
    staged.fault("status", "GET", "/v2/pods$", status=200, body={"pods": [shown]})

    (box,) = await staged.connector.list_boxes()

    assert (box.state, box.words) == (BoxState.BOOTING, None)


async def test_a_start_without_a_gpu_is_taken_back_and_told(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    await runpod.park(lease)
    staged.fault("no_gpu")

    with pytest.raises(NoCapacity, match="without one"):
        await runpod.resume(lease)

    (box,) = await runpod.list_boxes()
    assert box.state is BoxState.PARKED
    await runpod.resume(lease)
    assert (await staged.ready(lease)).words is None


async def test_a_start_without_a_gpu_that_cannot_be_taken_back_is_not_called_parked(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    await runpod.park(lease)
    staged.fault("no_gpu")
    body = {"title": "Conflict", "status": 409, "detail": "the pod is locked"}
    match = {"method": "POST", "path_regex": "/action$", "nth": 2}
    staged.ask("faults", [{"do": "status", "status": 409, "body": body, "match": match}])

    with pytest.raises(ProviderSilent, match="did not stop it again"):
        await runpod.resume(lease)


async def test_a_pod_that_came_without_a_gpu_says_so(staged: Staged) -> None:
    lease = await rented(staged)
    staged.stage.world.things()[0].facts["no_gpu"] = True

    (box,) = await staged.connector.list_boxes()

    assert (box.id, box.words) == (lease.box_id, "RunPod has started it without a GPU")


@pytest.mark.parametrize("newer", [True, False], ids=["entrypoint known", "entrypoint unknown"])
async def test_an_own_image_is_ordered_as_the_schema_of_the_day_allows(
    staged: Staged, newer: bool
) -> None:
    if newer:
        staged.fault("takes_entrypoint")
    order = Order(image="vllm/vllm-openai:v0.11.0")

    await staged.connector.create(await staged.intent(order=order))

    staged.wait(300)
    (box,) = await staged.connector.list_boxes()
    assert (box.address is not None) is newer, "args alone go to the image's own ENTRYPOINT"
    assert len(staged.alive) == 1
    (pod,) = staged.stage.world.things()
    assert pod.facts["asked"]["args"].startswith("sh -c '")  # type: ignore[call-overload,index,union-attr]


async def test_a_delete_that_is_refused_for_now_is_asked_for_again(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    staged.fault("busy")

    await runpod.destroy(never_used(lease))

    assert staged.alive == []


async def test_a_firewall_before_the_api_ends_no_teardown_as_refused_and_no_create_as_undone(
    staged: Staged, runpod: RunpodConnector
) -> None:
    intent = await staged.intent()
    staged.fault("firewall", "POST", "/v2/pods$")
    with pytest.raises(ProviderSilent, match="says nothing about the key"):
        await runpod.create(intent)
    lease = await rented(staged)
    staged.fault("firewall", "DELETE", "/v2/pods/")

    await runpod.destroy(never_used(lease))

    assert staged.alive == []


async def test_a_key_that_may_not_use_graphql_is_right_for_all_else(
    staged: Staged, runpod: RunpodConnector
) -> None:
    lease = await rented(staged)
    staged.fault("no_graphql")

    with pytest.raises(ProviderTrouble, match="by GraphQL alone") as told:
        await runpod.balance()

    assert not isinstance(told.value, CredentialRefused)
    assert "check that the key" not in str(told.value)
    assert (await runpod.account(), await runpod.last_change(lease)) == (None, None)
