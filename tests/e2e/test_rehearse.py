"""`gpu-tenant rehearse` in a process of its own, and whoever rents there in others."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from urllib.error import HTTPError

import pytest
from arranged import eventually
from e2e.rehearsal import Rehearsal
from e2e.renting import QuickClock
from parts import required

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import CredentialRefused
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.emulators.boxes import SSHD
from gpu_tenant.emulators.faults import ON_THE_WIRE
from gpu_tenant.emulators.server import Stage, lacking_package
from gpu_tenant.faces.mcp.server import make_server
from gpu_tenant.files.installation import extra_line

TRAIN = "mkdir -p out && echo '{\"loss\": 0.1}' > out/model.json && echo done"


def test_a_whole_lease_goes_over_the_command_line_with_its_money(
    rehearse: Callable[..., Rehearsal], tmp_path: Path
) -> None:
    required("sshd")
    stage = rehearse()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "README").write_text("work", encoding="utf-8")

    lease, box = stage.rented()
    audited = json.loads(stage.does("audit", "--burn", "60", "--json"))
    stage.does("push", str(tree))
    stage.does("launch", "--artifact", "out/", "--", TRAIN)
    assert json.loads(stage.does("monitor", "--wait-s", "30", "--json"))["state"] == "finished"
    stage.does("collect")
    ended = json.loads(stage.does("teardown", "--json"))

    # Over ssh, too, the box has the GPU that was rented.
    assert [gpu["name"] for gpu in audited["gpus"]] == [
        "NVIDIA GeForce RTX 3090 (a rehearsal's GPU)"
    ]
    burnt = {finding["subject"]: finding for finding in audited["findings"]}["burn gpu 0"]
    assert burnt["seen"].startswith("as paid for"), burnt
    receipt = ended["receipt"]
    assert (ended["lease"], receipt["box_id"], receipt["ground"]) == (lease, box, "verified")
    assert receipt["formats"] == {"json": 1}
    metered = Decimal(stage.ask("meter")["by_thing"][box])
    print(f"{receipt['cost_usd']} USD, by the meter {metered}")
    # The GPU is not billed until it runs: 90 seconds at less than half a dollar.
    assert -USD_STEP <= Decimal(receipt["cost_usd"]) - metered <= Decimal("0.015")
    assert stage.ask("meter")["usd_h"] == "0.000000"


def test_time_passes_on_request_alone_while_a_watchdog_looks_and_the_guard_keeps_the_leases_deadline(
    rehearse: Callable[..., Rehearsal], monkeypatch: pytest.MonkeyPatch
) -> None:
    required("sshd")
    stage = rehearse()
    lease, box = stage.rented_at_once(monkeypatch)
    stage.does("launch", lease, "--artifact", "out/", "--", "mkdir -p out; exec sleep 600")
    leapt, looked = (
        stage.directory / "stage/boxes/leapt",
        stage.directory / "stage/tenant/watchdog.json",
    )
    before = float(leapt.read_text())
    with stage.beside("watchdog", "--every", "5"):
        assert eventually(looked.exists)
        first = looked.read_text()
        assert eventually(lambda: looked.read_text() != first)
    # Only the pause between two requests to the platform was jumped over.
    assert float(leapt.read_text()) - before < 1

    stage.ask("clock", {"advance_s": 25 * 3600})

    assert [parked["id"] for parked in stage.ask("meter")["parked"]] == [box], (
        "its guard has stopped it"
    )


async def test_each_answer_of_a_rehearsal_that_speaks_of_money_says_that_it_is_one(
    rehearse: Callable[..., Rehearsal], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = make_server().instructions
    stage = rehearse()
    for name, value in stage.environment.items():
        monkeypatch.setenv(name, value)

    told = [stage.ran("leases"), stage.ran("leases", "--json"), stage.ran("terms")]

    assert [ran.stderr.count("note: rehearsal, no money") for ran in told] == [1] * 3
    assert "rehearsal, no money" not in stage.ran("hosts").stderr
    assert json.loads(told[1].stdout)["leases"] == []
    assert "rehearsal" not in str(real)
    assert "This is a rehearsal of vastai: no account, no money" in str(make_server().instructions)


def test_the_control_surface_shows_and_changes_the_world(
    rehearse: Callable[..., Rehearsal],
) -> None:
    stage = rehearse()

    known = stage.ask("faults")
    with pytest.raises(HTTPError) as refused:
        stage.ask("faults", [{"do": "earthquake"}])
    told = json.loads(refused.value.read())
    refused.value.close()
    assert refused.value.code == 400
    assert "earthquake" in told["error"]
    assert set(ON_THE_WIRE) | {"no_capacity", "host_lost"} <= set(told["known"]) == set(known)

    with pytest.raises(HTTPError) as unnamed:
        stage.ask("faults", [])
    assert set(json.loads(unnamed.value.read())["known"]) == set(known)
    unnamed.value.close()

    (did,) = stage.ask("faults", {"do": "foreign_box"})["did"]
    assert did.startswith("foreign_box has struck (")
    assert did.endswith("is there): somebody else's box is in the account")
    (missed,) = stage.ask("faults", [{"do": "outbid", "box": "77"}])["did"]
    assert "finds no box 77 (there are: " in missed
    (nothing,) = stage.ask("faults", [{"do": "null_after_destroy"}])["did"]
    assert nothing.startswith("null_after_destroy has changed nothing: ")
    assert '"match"' in nothing
    match = {"method": "PUT", "path_regex": "/asks/"}
    (waits,) = stage.ask("faults", [{"do": "no_capacity", "match": match}])["did"]
    assert waits.startswith("no_capacity waits for the next PUT at a path like '/asks/': ")
    before = stage.ask("meter")
    stage.ask("clock", {"advance_s": 3600})
    after = stage.ask("meter")
    assert [box["usd_h"] for box in before["running"]] == [before["usd_h"]]
    grown = Decimal(after["billed_usd"]) - Decimal(before["billed_usd"])
    assert abs(grown - Decimal(before["usd_h"])) < Decimal("0.01"), "an hour at that rate"

    stage.does("leases")
    asked = stage.ask("requests")
    assert {"GET"} == {line["method"] for line in asked}
    assert all(line["status"] == 200 for line in asked)
    assert stage.ask("routes") == {}
    assert stage.ask("reset", {}) == {"reset": True}
    assert stage.ask("meter")["running"] == []
    assert stage.ask("requests") == []


def test_at_a_terminal_provision_asks_before_it_opens_a_meter(
    rehearse: Callable[..., Rehearsal],
) -> None:
    stage = rehearse()
    quote = json.loads(stage.does("offers", "--json"))["offers"][0]["quote"]

    shown = stage.typed("no", "provision", "--quote", quote, "--smoke", "none")

    assert "Rent it? (yes, no) [no]" in shown
    assert "by its deadline" in shown, "what it costs at most"
    assert "nothing is rented" in shown
    assert Decimal(stage.ask("meter")["usd_h"]) == 0


def test_the_help_lists_every_fault_that_the_rehearsal_knows(
    rehearse: Callable[..., Rehearsal],
) -> None:
    stage = rehearse()

    of_one = stage.does("rehearse", "vastai", "--help")
    of_none = stage.does("rehearse", "--help")

    listed = {line.split()[0] for line in of_one.splitlines() if line.startswith("  ")}
    assert set(stage.ask("faults")) <= listed
    assert "a bid box is stopped" in of_one
    assert "Of runpod:" not in of_one + of_none
    assert "runpod" in of_none, "each platform is named"


def test_killed_and_started_again_it_knows_its_box_and_bills_on(
    rehearse: Callable[..., Rehearsal], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rehearse()
    lease, box = first.rented_at_once(monkeypatch)
    routes, billed = first.ask("routes"), Decimal(first.ask("meter")["billed_usd"])
    assert first.ended(signal.SIGKILL) == -signal.SIGKILL
    alive = first.living()

    again = rehearse(port=int(first.url.rpartition(":")[2]))
    again.ask("clock", {"advance_s": 3600})
    shown = json.loads(again.does("leases", "--json"))

    assert again.url == first.url
    assert again.ask("routes") == routes
    assert SSHD is None or alive, "the box itself went on"
    assert [(card["lease"], card["box"]) for card in shown["leases"]] == [(lease, box)]
    later = Decimal(again.ask("meter")["billed_usd"])
    assert later - billed >= Decimal(again.ask("meter")["usd_h"]) * Decimal("0.99")
    ended = json.loads(again.does("teardown", "--json"))
    assert ended["receipt"]["ground"] == "never_used"
    metered = Decimal(again.ask("meter")["by_thing"][box])
    assert -USD_STEP <= Decimal(ended["receipt"]["cost_usd"]) - metered <= Decimal("0.015")
    assert eventually(lambda: not again.living())


def test_ctrl_c_ends_it_and_its_boxes(
    rehearse: Callable[..., Rehearsal], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = rehearse()
    stage.rented_at_once(monkeypatch)
    assert SSHD is None or stage.living()

    status = stage.ended(signal.SIGINT)

    assert status == 0
    assert eventually(lambda: not stage.living())
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", int(stage.url.rpartition(":")[2])))


async def test_in_a_rehearsal_no_other_provider_is_asked_whatever_keys_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"RUNPOD_API_KEY": "a real one", "LAMBDA_API_KEY": "a real one"}
    with Stage("vastai", tmp_path / "stage", way="local", time="frozen") as stage:
        monkeypatch.setattr("gpu_tenant.app._clock", QuickClock)
        tenancy = open_tenancy({**keys, **stage.environment})
        try:
            found = await tenancy.find_offers()
            with pytest.raises(CredentialRefused, match="RunPod is not set up"):
                await tenancy.find_offers(provider="runpod")
        finally:
            await tenancy.aclose()

    assert {offer.provider for offer in found.offers} == {"vastai"}
    assert found.troubles == {}


@pytest.mark.parametrize("provider", ["runpod", "vastai", "autodl"])
def test_the_fault_that_is_printed_as_an_example_is_one_that_this_rehearsal_has(
    provider: str, rehearse: Callable[..., Rehearsal], tmp_path: Path
) -> None:
    stage = rehearse(provider=provider)
    printed = subprocess.Popen(
        [sys.executable, "-m", "gpu_tenant", "rehearse", provider, "--keep", str(tmp_path / "it")],
        env={**os.environ, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        assert printed.stdout is not None
        line = next(line for line in printed.stdout if line.startswith("# Faults"))
    finally:
        printed.send_signal(signal.SIGTERM)
        printed.communicate(timeout=60)

    (example,) = json.loads(line.partition("-d '")[2].rpartition("'")[0])

    assert set(example) == {"do", "box"}
    assert example["do"] in set(stage.ask("faults")) - set(ON_THE_WIRE)


def test_a_rehearsed_google_has_prices_for_spot_and_what_nobody_offers_is_status_1(
    rehearse: Callable[..., Rehearsal],
) -> None:
    stage = rehearse("gcp")

    found = json.loads(stage.does("offers", "--gpu", "T4", "--interruptible", "yes", "--json"))
    nothing = stage.ran("offers", "--gpu", "T4", "--vram-gib", "999")

    assert found["cheapest"]
    assert nothing.returncode == 1
    assert nothing.stdout.startswith("nothing is offered now\n")
    assert "\nnext: " in nothing.stdout


@pytest.mark.parametrize("provider", ["gcp", "vastai"])
def test_a_fault_strikes_the_box_that_its_number_alone_or_its_lease_names(
    provider: str, rehearse: Callable[..., Rehearsal]
) -> None:
    stage = rehearse(provider)
    lease, box = stage.rented()
    stage.ask("faults", {"do": "foreign_box"})

    by_number, by_lease = (
        stage.ask("faults", {"do": "host_lost", "box": name})["did"][0]
        for name in (box.rpartition("/")[2], lease)
    )

    assert "finds no box" not in by_number + by_lease
    assert f"({box} is " in by_number, "and not the newest, which is somebody else's"


def test_a_rehearsal_says_which_package_a_client_of_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert lacking_package("vastai") is None
    monkeypatch.setitem(sys.modules, "google.cloud.compute_v1", None)

    assert lacking_package("gcp") == extra_line("gcp")
