"""`gpu-tenant rehearse` in a process of its own, and whoever rents there in others."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from arranged import eventually
from e2e.owner import command_lines
from e2e.people import living_in
from e2e.renting import QuickClock

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.offers import CENT
from gpu_tenant.emulators.boxes import SSHD
from gpu_tenant.emulators.faults import ON_THE_WIRE
from gpu_tenant.emulators.server import Stage
from gpu_tenant.leases.cards import Card

TRAIN = "mkdir -p out && echo '{\"loss\": 0.1}' > out/model.json && echo done"


class Rehearsal:
    """One that was started on the command line, and what it said."""

    def __init__(self, directory: Path, provider: str = "vastai", port: int = 0) -> None:
        self.directory = directory
        self._home = {"HOME": str(directory), "GPU_TENANT_HOME": str(directory / "unused")}
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "gpu_tenant",
                "rehearse",
                provider,
                "--json",
                "--keep",
                str(directory / "stage"),
                "--port",
                str(port),
            ],
            env={**_plain(), **self._home},
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout
        said = json.loads(self.process.stdout.readline())
        self.url: str = said["url"]
        self.environment: Mapping[str, str] = said["environment"]

    def ask(self, path: str, body: object = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"{self.url}/_rehearsal/{path}", sent), timeout=120) as answer:
            return json.load(answer)

    def does(self, *words: str, status: int | None = 0) -> str:
        """What a `gpu-tenant` in a process of its own prints."""
        ran = subprocess.run(
            [sys.executable, "-m", "gpu_tenant", *words],
            env={**_plain(), **self._home, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert status is None or ran.returncode == status, (words, ran)
        return ran.stdout

    def rented(self) -> tuple[str, str]:
        """The lease and the box, had by the cheapest quote."""
        quote = json.loads(self.does("offers", "--json"))["cheapest"]
        card = json.loads(self.does("provision", "--quote", quote, "--smoke", "none", "--json"))
        return card["lease"], card["box"]

    def rented_at_once(self, patch: pytest.MonkeyPatch) -> tuple[str, str]:
        """The same, in this process, whose waiting takes no time."""
        patch.setattr("gpu_tenant.app._clock", QuickClock)

        async def rent() -> Card:
            tenancy = open_tenancy(self.environment)
            try:
                quote = (await tenancy.find_offers()).cheapest
                assert quote
                return await tenancy.provision(smoke="none", quotes=[quote], wait_s=3600)
            finally:
                await tenancy.aclose()

        card = asyncio.run(rent())
        assert card.phase == "ready"
        assert card.box
        return card.lease, card.box

    def living(self) -> list[int]:
        """The processes that belong to its boxes, the sshd of each among them."""
        boxes = self.directory / "stage" / "boxes"
        found = [pid for home in boxes.glob("*/home") for pid in living_in(home)]
        # An sshd writes its title over its environment.
        title = os.fsencode(f"sshd -f {boxes}/")
        found += [pid for pid, line in command_lines() if title in line.replace(b"\0", b" ")]
        return found

    def ended(self, how: signal.Signals) -> int:
        """The status with which it ended after that signal."""
        os.killpg(self.process.pid, how)
        out, err = self.process.communicate(timeout=120)
        assert "Traceback" not in err, err
        assert out == ""
        return self.process.returncode


def _plain() -> dict[str, str]:
    return {n: v for n, v in os.environ.items() if not n.startswith(("GPU_TENANT", "VAST", "SSH_"))}


@pytest.fixture
def rehearse(tmp_path: Path) -> Iterator[Callable[..., Rehearsal]]:
    begun: list[Rehearsal] = []

    def begin(port: int = 0) -> Rehearsal:
        begun.append(Rehearsal(tmp_path, port=port))
        return begun[-1]

    yield begin
    for each in begun:
        if each.process.poll() is None:
            each.ended(signal.SIGKILL)
        for pid in each.living():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_whole_lease_goes_over_the_command_line_with_its_money(
    rehearse: Callable[..., Rehearsal], tmp_path: Path
) -> None:
    if SSHD is None:
        pytest.skip("needs a real sshd: `apt-get install openssh-server`")
    stage = rehearse()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "README").write_text("work", encoding="utf-8")

    lease, box = stage.rented()
    audited = json.loads(stage.does("audit", "--json", status=None))
    stage.does("push", str(tree))
    stage.does("launch", "--artifact", "out/", "--", TRAIN)
    assert json.loads(stage.does("monitor", "--wait-s", "30", "--json"))["state"] == "finished"
    stage.does("collect")
    ended = json.loads(stage.does("teardown", "--json"))

    assert audited["findings"]
    receipt = ended["receipt"]
    assert (ended["lease"], receipt["box_id"], receipt["ground"]) == (lease, box, "verified")
    assert receipt["formats"] == {"json": 1}
    metered = Decimal(stage.ask("meter")["by_thing"][box])
    print(f"{receipt['cost_usd']} USD, by the meter {metered}")
    # The GPU is not billed until it runs: 90 seconds at less than half a dollar.
    assert -CENT <= Decimal(receipt["cost_usd"]) - metered <= Decimal("0.015")
    assert stage.ask("meter")["usd_h"] == "0.000000"


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

    stage.ask("faults", [{"do": "foreign_box"}])
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
    assert -CENT <= Decimal(ended["receipt"]["cost_usd"]) - metered <= Decimal("0.015")
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
            with pytest.raises(BadRequest, match="RunPod is not set up"):
                await tenancy.find_offers(provider="runpod")
        finally:
            await tenancy.aclose()

    assert {offer.provider for offer in found.offers} == {"vastai"}
    assert found.troubles == {}
