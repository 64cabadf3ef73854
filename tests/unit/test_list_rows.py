"""One row of a provider's list that makes no sense hides no other, and proves no box gone."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from arranged import NOON, HandClock, context_of, intended, setting
from desk import Desk
from fuzz.recorded import LISTS, PROVIDERS, answers, asking

from gpu_tenant.domain.errors import PartlyListed, ProviderSilent
from gpu_tenant.domain.model import Box, BoxState, LeaseId
from gpu_tenant.domain.ports import Connector, Credential
from gpu_tenant.domain.reconcile import Blind, Listed
from gpu_tenant.files.skill_files import skill_directory
from gpu_tenant.leases.provider_listing import boxes_of, look
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.kubernetes.job_manifest import Cluster, job
from gpu_tenant.providers.list_rows import must_be_whole
from gpu_tenant.providers.profiles import load_profiles

PROFILES = load_profiles(skill_directory() / "profiles")
PRICES: dict[str, list[list[str | int]]] = {
    "runpod": [["cost"]],
    "vastai": [["instance", "totalHour"], ["dph_total"]],
    "lambda_cloud": [["instance_type", "price_cents_per_hour"]],
    "digitalocean": [["size", "price_hourly"]],
}
"""Where a row tells its prices."""


def said_with(provider: str, change: Callable[[dict[str, Any]], None]) -> tuple[str, str]:
    """The request and the answer, with its first box changed."""
    request, field = LISTS[provider]
    answer = answers(provider)[request]
    change(answer[field][0])
    return request, json.dumps(answer)


def put(row: dict[str, Any], path: list[str | int], value: object) -> None:
    where: Any = row
    for step in path[:-1]:
        where = where[step]
    where[path[-1]] = value


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_both_boxes_are_listed_as_they_were_recorded(tmp_path: Path, provider: str) -> None:
    with asking(provider, tmp_path) as (connector, _):
        boxes = await connector.list_boxes()

    assert [box.state for box in boxes] == [BoxState.READY] * 2
    assert all(box.price_usd_h is not None and box.mark for box in boxes)


@pytest.mark.parametrize(
    "beside",
    [
        {"next": "/v3/boxes?page=2"},
        {"next_page": 2},
        {"nextPageToken": "abc"},
        {"has_more": True},
        {"links": {"pages": {"next": "https://x/2"}}},
        {"meta": {"pagination": {"cursor": "abc"}}},
        {"meta": {"total": 3}},
        {"totalCount": 3},
        {"count": 3},
    ],
    ids=str,
)
def test_more_pages_of_an_unknown_form_prove_nothing(beside: dict[str, object]) -> None:
    with pytest.raises(ProviderSilent, match="nothing can be concluded"):
        must_be_whole("X's list", {"boxes": [], **beside}, 2, known=("boxes",))


@pytest.mark.parametrize(
    "beside",
    [
        {},
        {"next": None, "has_more": False, "cursor": ""},
        {"meta": {"total": 2}, "count": 2},
        {"request_id": "next-week", "success": True},
        {"links": {"self": "/boxes"}},
    ],
    ids=str,
)
def test_a_list_that_announces_no_more_is_whole(beside: dict[str, object]) -> None:
    must_be_whole("X's list", {"boxes": [], **beside}, 2, known=("boxes",))


@pytest.mark.parametrize("provider", ["runpod", "vastai", "lambda_cloud"])
async def test_a_list_with_an_unknown_field_for_more_proves_no_box_gone(
    tmp_path: Path, provider: str
) -> None:
    request, _ = LISTS[provider]
    answer = {**answers(provider)[request], "nextPage": "p-2"}
    with asking(provider, tmp_path) as (connector, desk):
        desk.always[request] = json.dumps(answer)

        with pytest.raises(ProviderSilent, match="nextPage"):
            await connector.list_boxes()


@pytest.mark.parametrize("price", [float("nan"), 1e308, -5, float("inf"), 10**400])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_absurd_price_is_unknown_and_hides_no_box(
    tmp_path: Path, provider: str, price: float
) -> None:
    with asking(provider, tmp_path) as (connector, desk):
        good = await connector.list_boxes()
        for path in PRICES[provider]:
            request, answer = said_with(provider, lambda row, path=path: put(row, path, price))
            desk.always[request] = answer
            boxes = await connector.list_boxes()

            assert [box.id for box in boxes] == [box.id for box in good]
            assert [box.mark for box in boxes] == [box.mark for box in good]
            assert boxes[1] == good[1]
            told = boxes[0].price_usd_h
            assert told is None or (told.is_finite() and Decimal(0) <= told <= 100_000)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_row_that_cannot_be_read_is_a_box_of_unknown_state(
    tmp_path: Path, provider: str
) -> None:
    def spoil(row: dict[str, Any]) -> None:
        row["status"] = ["not", "a", "word"]
        row["actual_status"] = {"cur_state": []}
        row["instance"] = row["instance_type"] = row["size"] = "odd"

    with asking(provider, tmp_path) as (connector, desk):
        good = await connector.list_boxes()
        request, answer = said_with(provider, spoil)
        desk.always[request] = answer

        boxes = await connector.list_boxes()

    assert (boxes[0].id, boxes[0].mark) == (good[0].id, good[0].mark)
    assert (boxes[0].state, boxes[0].price_usd_h) == (BoxState.UNKNOWN, None)
    assert boxes[1] == good[1]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_where_a_row_does_not_tell_its_box_no_absence_is_concluded(
    tmp_path: Path, provider: str
) -> None:
    def no_id(row: dict[str, Any]) -> None:
        row["id"] = {"odd": []}

    ledger = Ledger(tmp_path / "ledger.sqlite3", HandClock())
    with asking(provider, tmp_path) as (connector, desk):
        hidden, shown = await connector.list_boxes()
        request, answer = said_with(provider, no_id)
        desk.always[request] = answer
        with pytest.raises(PartlyListed) as told:
            await connector.list_boxes()

        async def seen(box: Box) -> object:
            lease = intended(ledger, LeaseId(f"a-{box.id}"), provider=provider)
            lease = ledger.bind(lease.id, box.model_copy(update={"mark": lease.mark}), at=NOON)
            lease = lease.model_copy(update={"mark": box.mark})
            return await look(context_of(ledger, PROFILES[provider], connector), lease)

        of_hidden, of_shown = await seen(hidden), await seen(shown)
    ledger.close()

    assert [box.id for box in boxes_of(told.value)] == [shown.id]
    assert isinstance(of_hidden, Blind)
    assert isinstance(of_shown, Listed)


# --- lists that the providers' own clients, several calls, or commands bring

MARKS = [f"gpu-tenant:0a1b2c:{{}}-{name}" for name in ("aaaa", "bbbb")]


def autodl_rows(rows: list[dict[str, Any]]) -> dict[str, object]:
    about = {"list": rows, "page_index": 1, "max_page": 1, "result_total": len(rows)}
    at = "/api/v1/dev/instance/pro"
    shown: dict[str, object] = {"proxy_host": "203.0.113.1", "ssh_port": 22, "payg_price": 1980}
    return {
        f"POST {at}/list": {"code": "Success", "data": about},
        f"GET {at}/snapshot": {"code": "Success", "data": shown},
    }


def gcp_rows(rows: list[dict[str, Any]]) -> dict[str, object]:
    page = {"items": {"zones/us-central1-a": {"instances": rows}}}
    return {"GET /compute/v1/projects/key-of-nobody/aggregated/instances": page}


def kubernetes_rows(rows: list[dict[str, Any]]) -> dict[str, object]:
    jobs = [row for row in rows if row["kind"] == "Job"]
    pods = [row for row in rows if row["kind"] == "Pod"]
    return {
        "GET /api/v1/namespaces/default": {"metadata": {"uid": "u", "name": "default"}},
        "GET /apis/batch/v1/namespaces/default/jobs": {"kind": "JobList", "items": jobs},
        "GET /api/v1/namespaces/default/pods": {"kind": "PodList", "items": pods},
    }


def autodl_row(n: int) -> dict[str, Any]:
    return {
        "uuid": f"pro-{n}",
        "name": MARKS[n].format("autodl"),
        "status": "running",
        "start_mode": "gpu",
        "charge_type": "payg",
        "req_gpu_amount": 1,
    }


def gcp_row(n: int) -> dict[str, Any]:
    label = MARKS[n].format("gcp").removeprefix("gpu-tenant:").replace(":", "_")
    return {
        "id": str(n + 1),
        "name": f"gt-{n}",
        "zone": "https://x/zones/us-central1-a",
        "labels": {"gpu-tenant": label},
        "status": "RUNNING",
        "scheduling": {},
        "machineType": "https://x/g2-standard-4",
        "disks": [],
        "networkInterfaces": [{"accessConfigs": [{"natIP": "203.0.113.1"}]}],
    }


def kubernetes_row(n: int) -> dict[str, Any]:
    mark = MARKS[n].format("kubernetes")
    ordered: dict[str, Any] = job(
        mark, Cluster(context="a", image="a", gpus=("H100 SXM:8",)), gpu_count=1
    )
    ordered["metadata"] |= {"namespace": "default", "uid": f"u{n}"}
    ordered["metadata"]["annotations"]["gpu-tenant/first-pod"] = f"p{n}"
    return {**ordered, "kind": "Job"}


def pod_row(n: int) -> dict[str, Any]:
    about = {"uid": f"p{n}", "name": f"pod-{n}", "ownerReferences": [{"uid": f"u{n}"}]}
    runs = {"name": "box", "state": {"running": {}}}
    return {
        "kind": "Pod",
        "metadata": about,
        "status": {"phase": "Running", "containerStatuses": [runs]},
    }


Rows = list[dict[str, Any]]
ELSEWHERE: dict[str, tuple[Callable[[], Rows], Callable[[Rows], dict[str, object]], str]] = {
    "autodl": (lambda: [autodl_row(n) for n in (0, 1)], autodl_rows, "uuid"),
    "gcp": (lambda: [gcp_row(n) for n in (0, 1)], gcp_rows, "id"),
    "kubernetes": (
        lambda: [*(kubernetes_row(n) for n in (0, 1)), *(pod_row(n) for n in (0, 1))],
        kubernetes_rows,
        "metadata",
    ),
}
"""The rows of two boxes, the answers that hold them, and where a row tells which box it is about."""


async def listed_elsewhere(provider: str, root: Path, rows: Rows) -> Sequence[Box]:
    desk = Desk()
    desk.always = {k: json.dumps(said) for k, said in ELSEWHERE[provider][1](rows).items()}
    (root / "kubeconfig").write_text(
        f'clusters: [{{name: a, cluster: {{server: "{desk.url}"}}}}]\n'
        "contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: a}}]\n",
        encoding="utf-8",
    )
    (root / "config.toml").write_text(
        f"[kubernetes]\ncontext = 'a'\nimage = 'a'\ngpus = ['H100 SXM:8']\nkubeconfig = '{root}/kubeconfig'\n",
        encoding="utf-8",
    )
    try:
        connector: Connector = import_module(f"gpu_tenant.providers.{provider}.connector").connect(
            replace(
                setting(root),
                profile=PROFILES[provider],
                credential=Credential(source="env:A_KEY", read=lambda: "key-of-nobody"),
                rehearsed_at=desk.url,
            )
        )
        return await connector.list_boxes()
    finally:
        desk.close()


@pytest.mark.parametrize("provider", ELSEWHERE)
async def test_an_odd_row_of_any_list_is_a_box_of_unknown_state(
    tmp_path: Path, provider: str
) -> None:
    rows = ELSEWHERE[provider][0]()
    good = await listed_elsewhere(provider, tmp_path, rows)
    rows[0]["status"] = ["not", "a", "word"]
    rows[0]["req_gpu_amount"] = "many"

    boxes = await listed_elsewhere(provider, tmp_path, rows)

    assert [box.state for box in good] == [BoxState.READY] * 2
    assert [box.mark for box in good] == [mark.format(provider) for mark in MARKS]
    assert (boxes[0].id, boxes[0].mark, boxes[0].state) == (
        good[0].id,
        good[0].mark,
        BoxState.UNKNOWN,
    )
    assert boxes[1] == good[1]


@pytest.mark.parametrize("provider", ELSEWHERE)
async def test_a_row_of_any_list_that_does_not_tell_its_box_hides_no_other(
    tmp_path: Path, provider: str
) -> None:
    make, _, identity = ELSEWHERE[provider]
    good = await listed_elsewhere(provider, tmp_path, make())
    for odd in ({"odd": []}, None, []):
        rows = make()
        rows[0][identity] = odd
        with pytest.raises(PartlyListed) as told:
            await listed_elsewhere(provider, tmp_path, rows)
        assert boxes_of(told.value) == good[1:]


async def test_a_pod_that_does_not_tell_whose_it_is_took_nobody_s_box(tmp_path: Path) -> None:
    rows = ELSEWHERE["kubernetes"][0]()
    rows[2]["metadata"]["ownerReferences"] = [{"odd": 1}]

    hidden, shown = await listed_elsewhere("kubernetes", tmp_path, rows)

    assert (hidden.state, hidden.mark) == (BoxState.UNKNOWN, MARKS[0].format("kubernetes"))
    assert shown.state is BoxState.READY


async def test_what_autodl_tells_oddly_of_one_box_hides_no_other(tmp_path: Path) -> None:
    desk = Desk()
    said = autodl_rows([autodl_row(0), {**autodl_row(1), "status": "creating"}])
    said["GET /api/v1/dev/instance/pro/snapshot"] = {
        "code": "Success",
        "data": {"ssh_port": "secret"},
    }
    desk.always = {k: json.dumps(each) for k, each in said.items()}
    connector: Connector = import_module("gpu_tenant.providers.autodl.connector").connect(
        replace(
            setting(tmp_path),
            profile=PROFILES["autodl"],
            rehearsed_at=desk.url,
            credential=Credential(source="env:A_KEY", read=lambda: "key-of-nobody"),
        )
    )
    try:
        odd, fine = await connector.list_boxes()
    finally:
        desk.close()

    assert (odd.state, odd.address, odd.price_usd_h) == (BoxState.READY, None, None)
    assert odd.mark == MARKS[0].format("autodl")
    assert "secret" not in str(odd)
    assert fine.mark == MARKS[1].format("autodl")


async def test_a_row_of_slurm_s_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    mark = MARKS[0].format("slurm")
    tools = tmp_path / "bin"
    tools.mkdir()
    row = f"7|7|N/A|RUNNING|None|0|N/A|N/A|N/A|low|gpu:1|1|{mark}|".replace("|", "\x1f")
    said = {
        "squeue": f"{row}\n8\x1f8\x1fN/A\x1fRUNNING\x1f\n",
        "sinfo": "",
        "sacct": "",
        "scontrol": "ClusterName = lab\n",
    }
    for name, text in said.items():
        (tools / f"{name}.txt").write_text(text, encoding="utf-8")
        (tools / name).write_text(f"#!/bin/sh\ncat {tools}/{name}.txt\n", encoding="utf-8")
        (tools / name).chmod(0o700)
    (tmp_path / "config.toml").write_text(
        f"[slurm]\nlogin = 'there'\nbefore = ['env', 'PATH={tools}:/usr/bin:/bin']\n",
        encoding="utf-8",
    )
    connector: Connector = import_module("gpu_tenant.providers.slurm.connector").connect(
        replace(setting(tmp_path), profile=PROFILES["slurm"])
    )

    with pytest.raises(PartlyListed) as told:
        await connector.list_boxes()

    assert [(box.id, box.mark, box.state) for box in boxes_of(told.value)] == [
        ("7", mark, BoxState.READY),
        ("8", None, BoxState.UNKNOWN),
    ]
