"""Vast.ai's rehearsal speaks as Vast.ai does: by its own document, and to its own client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from arranged import a_volume, leave_to_end
from contract.documents.extract import read_table
from contract.openapi import validate
from contract.staged import Staged, on_stage
from contract.test_vastai import ONE, ORDER, ask

from gpu_tenant.domain.ports import Billing, Storing

SEARCH = (
    "search offers gpu_name=RTX_4090 num_gpus=1 gpu_ram>=20 duration>=2 cuda_max_good>=12.4 "
    "inet_down>=200 -o dph_total --limit 5 --storage 40"
)
CREATE = (
    "create instance 9001 --image pytorch/pytorch:2.4.0 --disk 40 --ssh --direct --label gt-own-1 "
    "--env -e A=1 -p 8080:8080 --onstart-cmd echo hi --cancel-unavail"
)
BID = (
    "create instance 9001 --image pytorch/pytorch:2.4.0 --disk 40 --ssh --direct --bid_price 0.25 "
    "--label gt-own-2"
)


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    with on_stage("vastai", tmp_path) as stage:
        yield stage


# The provider's own document


def test_every_answer_is_what_the_document_says(staged: Staged) -> None:
    def held(method: str, path: str, status: int, body: object = None) -> Any:
        answer = ask(staged, method, path, body)
        assert answer.status_code == status, answer.text
        shown = answer.json()
        checked = shown
        if method == "GET" and path.startswith(ONE):
            # The document has the ports as numbers and the environment as text here; its list of
            # instances and the official client have both as they are.
            row = {k: v for k, v in shown["instances"].items() if k not in ("ports", "extra_env")}
            checked = {"instances": row}
        validate("vastai", method, path.partition("?")[0].rstrip("/"), status, checked)
        return shown

    held("POST", "/api/v0/bundles/", 200, {"gpu_name": {"in": ["RTX 3090"]}, "type": "bid"})
    held("POST", "/api/v0/bundles/", 400, {"colour": {"eq": "red"}})
    held("PUT", "/api/v0/asks/1/", 404, ORDER)
    held("PUT", "/api/v0/asks/1/", 410, {**ORDER, "cancel_unavail": True})
    held("PUT", "/api/v0/asks/9004/", 400, {**ORDER, "image": ""})
    held("PUT", "/api/v0/asks/9004/", 400, {**ORDER, "price": 1000})
    number = held("PUT", "/api/v0/asks/9004/", 200, {**ORDER, "env": {"A": "1"}})["new_contract"]
    held("POST", f"{ONE}{number}/ssh/", 200, {"ssh_key": "ssh-ed25519 AAAA me"})
    held("POST", f"{ONE}{number}/ssh/", 400, {"ssh_key": ""})
    held("GET", "/api/v1/instances/", 200)
    staged.wait(600)
    held("GET", f"{ONE}{number}/?owner=me", 200)
    held("GET", "/api/v1/instances/?limit=5", 200)
    held("GET", '/api/v1/instances/?select_filters={"dph_total":{"lt":1}}', 400)
    held("GET", "/api/v1/instances/?after_token=x", 400)
    held("PUT", f"{ONE}reboot/{number}/", 200, {})
    staged.wait(600)
    held("PUT", f"{ONE}request_logs/{number}/", 200, {"tail": "5"})
    held("PUT", f"{ONE}{number}/", 200, {"label": "renamed"})
    held("PUT", f"{ONE}{number}/", 400, {})
    held("PUT", f"{ONE}{number}/", 200, {"state": "stopped"})
    held("PUT", f"{ONE}bid_price/{number}/", 400, {"client_id": "me", "price": 0})
    held("PUT", f"{ONE}bid_price/1/", 404, {"client_id": "me", "price": 1})
    held("POST", "/api/v0/ssh/", 200, {"ssh_key": "ssh-ed25519 AAAA me"})
    held("POST", "/api/v0/ssh/", 400, {})
    held("GET", "/api/v0/ssh/", 200)
    held("POST", "/api/v0/volumes/search/", 200, {})
    name = held("PUT", "/api/v0/volumes/", 200, {"id": 77, "size": 20})["volume_name"]
    held("GET", "/api/v0/volumes", 200)
    held("DELETE", "/api/v0/volumes/", 200, {"id": int(name.removeprefix("V."))})
    held("DELETE", "/api/v0/volumes/", 404, {"id": 1})
    held("GET", "/api/v0/users/current", 200)
    days = '{"day": {"gte": 1793491200, "lte": 1799999999}}'
    held("GET", f"/api/v0/charges/?select_filters={days}", 200)
    held("GET", "/api/v0/charges/", 400)
    held("DELETE", f"{ONE}{number}/", 200, {})
    held("DELETE", f"{ONE}{number}/", 404, {})
    assert ask(staged, "GET", f"{ONE}{number}/").json() == {"instances": None}
    staged.fault("two_factor", "GET", "instances/$")
    held("GET", "/api/v1/instances/", 401)


# The official client


class Client:
    """Vast.ai's own command line, with a home of its own."""

    def __init__(self, staged: Staged, home: Path) -> None:
        self._staged = staged
        self._environ = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            **staged.stage.for_clients,
            "HOME": str(home),
            "VASTAI_NO_UPDATE_CHECK": "1",
        }
        home.mkdir()

    def __call__(self, *args: str) -> Any:
        """What the command printed, as JSON where it is that."""
        self._staged.wait(15)
        done = subprocess.run(
            [Path(sys.executable).with_name("vastai"), *args],
            env=self._environ,
            timeout=120,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        assert not done.stderr, done.stderr
        try:
            return json.loads(done.stdout)
        except ValueError:
            return done.stdout

    @property
    def sent(self) -> list[dict[str, Any]]:
        """What it has asked, but for what it asks on its own account."""
        return [
            {
                "method": line["method"],
                "path": line["path"],
                "body": line["body"],
                "query": [list(pair) for pair in parse_qsl(line["query"], keep_blank_values=True)],
            }
            for line in self._staged.ask("requests")
            if not line["path"].endswith(("/gpu_names/unique/", "/users/current"))
        ]


@pytest.fixture
def client(staged: Staged, tmp_path: Path) -> Client:
    return Client(staged, tmp_path / "client")


def captured(command: str, ids: Mapping[str, str]) -> dict[str, Any]:
    """The request that the same command made once, of another instance."""
    text = json.dumps(read_table("vastai_client")["requests"][command])
    for theirs, ours in ids.items():
        text = text.replace(theirs, ours)
    request: dict[str, Any] = json.loads(text)
    if request["body"] and "env" in request["body"]:
        request["body"]["env"] = "(redacted)"  # as the log of a rehearsal has it
    return request


def test_the_official_client_searches_rents_shows_stops_starts_and_destroys(
    staged: Staged, client: Client
) -> None:
    found = client(
        "search",
        "offers",
        "gpu_name=RTX_4090 num_gpus=1 gpu_ram>=20 duration>=2 cuda_max_good>=12.4 inet_down>=200",
        "-o",
        "dph_total",
        "--limit",
        "5",
        "--storage",
        "40",
        "--raw",
    )
    assert [offer["id"] for offer in found] == [9010, 9001]
    made = client(
        "create",
        "instance",
        "9001",
        "--image",
        "pytorch/pytorch:2.4.0",
        "--disk",
        "40",
        "--ssh",
        "--direct",
        "--label",
        "gt-own-1",
        "--env",
        "-e A=1 -p 8080:8080",
        "--onstart-cmd",
        "echo hi",
        "--cancel-unavail",
        "--raw",
    )
    assert made["success"]
    number = str(made["new_contract"])
    assert client("show", "instance", number, "--raw")["actual_status"] == "loading"
    staged.wait(600)
    (row,) = client("show", "instances", "--raw")
    assert (str(row["id"]), row["actual_status"], row["is_bid"]) == (number, "running", False)
    assert row["extra_env"] == {"A": "1", "-p 8080:8080": "1"}
    assert client("stop", "instance", number) == f"stopping instance {number}.\n"
    assert client("show", "instance", number, "--raw")["cur_state"] == "stopped"
    assert client("start", "instance", number) == f"starting instance {number}.\n"
    client("label", "instance", number, "gt-own-3")
    (row,) = client("show", "instances", "--raw")
    assert row["label"] == "gt-own-3"
    client("destroy", "instance", number, "-y", "--raw")
    assert client("show", "instances", "--raw") == []
    assert client("show", "instance", number, "--raw") == {"instances": None}

    ids = {"31337": number}
    expected = [
        captured(command, ids)
        for command in (
            SEARCH,
            CREATE,
            "show instance 31337",
            "show instances",
            "stop instance 31337",
            "show instance 31337",
            "start instance 31337",
            "label instance 31337 gt-own-3",
            "show instances",
            "destroy instance 31337 -y",
            "show instances",
            "show instance 31337",
        )
    ]
    assert client.sent == expected


def test_the_official_client_bids_and_keeps_keys_volumes_and_logs(
    staged: Staged, client: Client
) -> None:
    (offer, *_) = client("search", "offers", "--type", "bid", "gpu_name=RTX_4090", "--raw")
    assert offer["dph_base"] == offer["min_bid"]
    bid = client(
        "create",
        "instance",
        "9001",
        "--image",
        "pytorch/pytorch:2.4.0",
        "--disk",
        "40",
        "--ssh",
        "--direct",
        "--bid_price",
        "0.25",
        "--label",
        "gt-own-2",
        "--raw",
    )
    number = str(bid["new_contract"])
    assert client("show", "instance", number, "--raw")["is_bid"] is True
    client("change", "bid", number, "--price", "0.3")
    client("create", "ssh-key", "ssh-ed25519 AAAA test", "-y")
    (key,) = client("show", "ssh-keys", "--raw")
    assert key["key"] == "ssh-ed25519 AAAA test"
    client("attach", "ssh", number, "ssh-ed25519 AAAA test")
    assert client("logs", number, "--tail", "50") == f"C.{number}: started\n\n"
    client("search", "volumes", "--raw")
    volume = client("create", "volume", "77", "-s", "20", "--raw")["volume_name"].removeprefix("V.")
    (row,) = client("show", "volumes", "--raw")
    assert (row["id"], row["disk_space"], row["instances"]) == (int(volume), 20, [])
    client("delete", "volume", volume, "--raw")
    assert client("show", "user", "--raw")["credit"] < 100
    month = ("--start-date", "2026-11-01", "--end-date", "2026-11-19")
    charges = client("show", "invoices-v1", "--charges", *month, "--raw")
    assert number in str(charges)

    ids = {
        "31337": number,
        "<HOME>/.ssh/id_ed25519.pub": "ssh-ed25519 AAAA test",
        '"5"': f'"{volume}"',
    }
    expected = [
        captured(command, ids)
        for command in (
            "search offers --type bid gpu_name=RTX_4090",
            BID,
            "show instance 31337",
            "change bid 31337 --price 0.3",
            "create ssh-key <HOME>/.ssh/id_ed25519.pub -y",
            "show ssh-keys",
            "attach ssh 31337 ssh-ed25519 AAAA test",
            "logs 31337 --tail 50",
            "search volumes",
            "create volume 77 -s 20",
            "show volumes",
            "delete volume 5",
            "show invoices-v1 --charges --start-date 2026-11-01 --end-date 2026-11-19",
        )
    ]
    sent = [line for line in client.sent if not line["path"].startswith("/s3/")]
    assert sent == expected


async def test_the_connector_asks_for_charges_as_the_official_client_does(staged: Staged) -> None:
    assert isinstance(staged.connector, Billing)
    await staged.connector.ask_bill(await staged.intent())

    sent = dict(parse_qsl(staged.ask("requests")[-1]["query"]))
    theirs = dict(
        captured("show invoices-v1 --charges --start-date 2026-11-01 --end-date 2026-11-19", {})[
            "query"
        ]
    )
    assert set(sent) == set(theirs)
    assert set(json.loads(sent["select_filters"])["day"]) == {"gte", "lte"}


async def test_the_connector_s_order_has_the_official_client_s_form(
    staged: Staged,
) -> None:
    await staged.connector.create(await staged.intent())

    (sent,) = [line["body"] for line in staged.ask("requests") if "/asks/" in line["path"]]
    theirs = captured(
        CREATE,
        {},
    )["body"]
    assert {name: type(value) for name, value in sent.items()} == {
        name: type(value) for name, value in theirs.items()
    }


async def test_the_connector_makes_links_and_deletes_a_volume_as_the_official_client_does(
    staged: Staged, client: Client
) -> None:
    assert isinstance(staged.connector, Storing)
    wanted = a_volume("vastai", "41")
    made = await staged.connector.create_volume(wanted)
    volume = a_volume("vastai", "41", volume_id=made.id)
    await staged.connector.create(await staged.intent(volumes=(volume.attachable("/data"),)))
    (box,) = staged.alive
    ask(staged, "DELETE", f"{ONE}{box}/", {})
    staged.wait(60)
    await staged.connector.destroy_volume(leave_to_end(volume))
    ours = client.sent

    name = wanted.mark.replace("-", "_")
    (theirs,) = [client("create", "volume", "77", "-s", "50", "-n", name, "--raw")["volume_name"]]
    number = theirs.removeprefix("V.")
    image = ("--image", "pytorch/pytorch:2.4.0", "--disk", "40", "--ssh", "--direct")
    linked = ("--link-volume", number, "--mount-path", "/data")
    rented = client("create", "instance", "9001", *image, *linked, "--raw")
    client("destroy", "instance", str(rented["new_contract"]), "-y", "--raw")
    client("delete", "volume", number, "--raw")
    said = client.sent[len(ours) :]

    def of(lines: list[dict[str, Any]], method: str, path: str) -> dict[str, Any]:
        return next(x for x in lines if x["method"] == method and path in x["path"])

    assert of(ours, "PUT", "/volumes/") == of(said, "PUT", "/volumes/")
    link = of(ours, "PUT", "/asks/")["body"]["volume_info"]
    assert link == of(said, "PUT", "/asks/")["body"]["volume_info"] | {"volume_id": int(made.id)}
    assert of(ours, "DELETE", "/volumes/")["query"] == [["id", made.id]]
    assert of(said, "DELETE", "/volumes/")["query"] == [["id", number]]
